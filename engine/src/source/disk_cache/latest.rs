//! Records, for each object, which version was read last. When an object is opened by name, the request contains the recorded version
//! (If-None-Match). If this version is still current, the store replies 304 without a body, and the first bytes come from the disk.
//!
//! ```text
//!   open s3://b/k ──► latest/HASH(s3://b/k) ── "e1f0 4096", and its first bytes are on the disk ──► GET, If-None-Match: "e1f0"
//!                       └─ no file, an invalid one, no bytes ──► GET                 304: that version │ 206: another, and its first bytes
//! ```
//! A file has one line, `HASH VERSION`. HASH is computed from the source's name and VERSION (hash.rs), so a file that is incomplete or
//! belongs to another source is detected. An object that is opened from a listing needs no such file. The file is written by the cache's
//! writer thread, never by the thread that opens the object.

use super::folder::{CacheFolder, inside, is_abandoned};
use super::hash::VersionHash;
use super::object;
use super::shared::CachedVersion;
use rustix::io::Errno;

/// The name of the subfolder with the files that record the version read last.
pub const FOLDER: &str = "latest";
/// A longer file is invalid. An ETag of S3 has 34 characters.
const MAX_BYTES: usize = 512;

fn name_of(source: &str) -> String {
    VersionHash::of(source, "").name()
}

/// Returns the version that was last recorded for a source.
pub fn read(folder: &CacheFolder, source: &str) -> Option<String> {
    let text = text(folder, &name_of(source))?;
    let (hash, version) = text.split_once(' ')?;
    (hash == VersionHash::of(source, version).name()).then(|| version.to_string())
}

/// Records the version of a source, unless it is already recorded.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub fn write(folder: &CacheFolder, version: &CachedVersion) -> Result<(), Errno> {
    let name = name_of(&version.exact.source);
    let line = format!("{} {}", version.hash.name(), version.exact.version);
    if line.len() >= MAX_BYTES || text(folder, &name).as_ref() == Some(&line) {
        return Ok(());
    }
    folder.replace(FOLDER, &name, format!("{line}\n").as_bytes())
}

/// Removes those files that record a version which is no longer cached.
pub fn clean(folder: &CacheFolder) {
    let _ = folder.entries(FOLDER, &mut |name, stat| {
        let is_held = text(folder, name).is_some_and(|line| {
            let hash = line.split(' ').next().and_then(VersionHash::of_name);
            hash.is_some_and(|hash| object::is_there(folder, hash))
        });
        if !is_held && is_abandoned(stat) {
            let _ = folder.remove(FOLDER, name);
        }
        true
    });
}

fn text(folder: &CacheFolder, name: &str) -> Option<String> {
    let text = folder.small_text(&inside(FOLDER, name), MAX_BYTES).ok()?;
    text.strip_suffix('\n').map(str::to_string)
}
