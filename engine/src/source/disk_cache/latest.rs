//! Which version of an object was read last. An object that is opened by its name is asked for that version alone: while it is the one there is,
//! the answer is a 304 without bytes, and its first bytes come from the disk.
//!
//! ```text
//!   open s3://b/k ──► latest/HASH(s3://b/k) ── "e1f0 4096", and its first bytes are on the disk ──► GET, If-None-Match: "e1f0"
//!                       └─ no file, a wrong one, no bytes ──► GET                      304: that version │ 206: another, and its first bytes
//! ```
//! A file is `HASH VERSION`, a line; HASH is that of the source with this version (piece.rs), and is what a torn or a foreign file has not.
//! Objects that a listing has named need none. Never: is written by the thread that opens.

use super::folder::CacheFolder;
use super::folder::inside;
use super::piece::VersionHash;
use super::shared::CachedVersion;
use rustix::io::Errno;

/// The folder of these files.
pub const FOLDER: &str = "latest";
/// A longer file is none. An ETag of S3 has 34 characters.
const MAX_BYTES: usize = 512;

fn path_of(source: &str) -> String {
    inside(FOLDER, &VersionHash::of(source, "").name())
}

/// The version of a source that was noted last.
pub fn read(folder: &CacheFolder, source: &str) -> Option<String> {
    let text = text(folder, &path_of(source))?;
    let (hash, version) = text.split_once(' ')?;
    (hash == VersionHash::of(source, version).name()).then(|| version.to_string())
}

/// Notes the version of a source, unless it is noted already.
///
/// # Errors
/// It cannot be written.
pub fn write(folder: &CacheFolder, version: &CachedVersion) -> Result<(), Errno> {
    let path = path_of(&version.exact.source);
    let line = format!("{} {}", version.hash.name(), version.exact.version);
    if line.len() >= MAX_BYTES || text(folder, &path).as_ref() == Some(&line) {
        return Ok(());
    }
    folder.make_own(FOLDER)?;
    folder.replace(FOLDER, &path, format!("{line}\n").as_bytes())
}

/// Removes those of versions of which nothing is on the disk any more.
pub fn clean(folder: &CacheFolder) {
    let _ = folder.names(FOLDER, &mut |name| {
        if folder.remove_abandoned(FOLDER, name) {
            return true;
        }
        let path = inside(FOLDER, &name.to_string_lossy());
        let is_held = text(folder, &path).is_some_and(|line| {
            let hash = line.split(' ').next().and_then(VersionHash::of_name);
            hash.is_some_and(|hash| folder.changed_at(hash).is_ok())
        });
        if !is_held && folder.use_of(&path).is_ok_and(|used| used.is_abandoned()) {
            let _ = folder.remove(&path);
        }
        true
    });
}

fn text(folder: &CacheFolder, path: &str) -> Option<String> {
    let text = folder.small_text(path, MAX_BYTES).ok()?;
    text.strip_suffix('\n').map(str::to_string)
}
