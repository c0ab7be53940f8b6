//! Caches listings on disk for the next mount: one text file for each folder of a store.
//!
//! ```text
//!   DIR/foreread-cache-2/names/<hash of the folder's name>
//!     foreread-names 1 1f0c...                   version of the format, and the CRC-64/NVME of all that follows, in 16 hex digits
//!     folder http://127.0.0.1:9000/bucket/data/  endpoint, bucket and key, without secrets
//!     shown s3://bucket/data/                    the name of the folder, as shown to users
//!     listed 1795757400123                       time of the request, in milliseconds since 1970
//!     names 2
//!     4096 > 1795750000 > "e1f0" 4096 > a.bin    a file: size, seconds since 1970, version, name. `>` is a tab
//!     / > > > sub                                a folder
//! ```
//! All files together use at most a 32nd of the cache's limit. To make room for a new file, foreread first removes the files that were
//! not written for 30 days, then the oldest files. If several processes write the same file at once, the file of the last writer remains.
//!
//! Every file is validated when it is read. A file is ignored if it is incomplete or too long, belongs to another folder, or has another
//! format, a time in the future, an invalid entry or unsorted names. A listing that the file format cannot represent is not cached.

use super::folder::{CacheFolder, inside, now_ns, used_ns};
use super::hash::{VersionHash, checksum};
use super::settings::DiskCacheSettings;
use crate::source::tree::{FolderNames, Kind, Meta};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// The folder of the files.
const FOLDER: &str = "names";
const FIRST_WORD: &str = "foreread-names 1 ";
/// Maximum size of a file: a million names of 60 bytes.
const MAX_BYTES: usize = 64 << 20;
/// Maximum number of names in a folder; a prefix has the same limit.
const MAX_NAMES: usize = 1 << 20;
/// Maximum bytes of a name, and of a version.
const MAX_NAME_BYTES: usize = 255;
const MAX_VERSION_BYTES: usize = 2048;
/// All files together may use the cache's limit divided by this.
const PART: u64 = 32;
/// Maximum number of files.
const MAX_FILES: usize = 1 << 16;
/// Files not written for this long are removed.
const KEPT_NS: i128 = 30 * 86_400 * NANOS;
const DAY_MS: u64 = 86_400_000;
/// After writing this many files, a process scans the folder again for files of other processes.
const LOOKS_EACH: u32 = 256;
const NANOS: i128 = 1_000_000_000;

/// A listing and the time of its request.
#[derive(Debug)]
pub struct KeptListing {
    pub names: Arc<FolderNames>,
    /// Milliseconds since 1970.
    pub listed_ms: u64,
}

impl KeptListing {
    /// Returns true if the listing was requested less than `ttl` ago; false if the recorded time is in the future.
    pub fn is_younger(&self, ttl: Duration) -> bool {
        let age = now_ms().checked_sub(self.listed_ms);
        age.is_some_and(|age| u128::from(age) < ttl.as_millis())
    }
}

/// A listing to be written to the cache. A listing without names means that the folder no longer exists in the store.
pub struct NewListing {
    /// Endpoint, bucket and key.
    pub folder: String,
    /// The name of the folder, as shown to users.
    pub shown: String,
    pub names: Option<Arc<FolderNames>>,
    pub listed_ms: u64,
}

/// Describes a cached listing, for users.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListingSummary {
    /// The folder as a source, without secrets.
    pub source: String,
    /// Name of its file.
    pub file: String,
    /// Number of names in it.
    pub names: u64,
    /// Size of its file in bytes.
    pub file_bytes: u64,
    /// The time of its request, in seconds since 1970.
    pub listed_s: u64,
}

impl ListingSummary {
    /// Returns true if this is the listing of the folder with this name, or of a folder below it. `name` must end with a slash.
    #[must_use]
    pub fn is_of(&self, name: &str) -> bool {
        name.ends_with('/') && self.source.starts_with(name)
    }
}

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    u64::try_from(now_ns() / 1_000_000).unwrap_or(0)
}

fn name_of(folder_name: &str) -> String {
    VersionHash::of(folder_name, FOLDER).name()
}

// ---- the format ----

fn is_line(text: &str, most: usize) -> bool {
    text.len() <= most && !text.chars().any(char::is_control)
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && is_line(name, MAX_NAME_BYTES)
        && name != "."
        && name != ".."
        && !name.contains('/')
}

/// Formats a listing. Returns `None` if the format cannot represent it.
fn text_of(listing: &NewListing, names: &FolderNames) -> Option<String> {
    let NewListing {
        folder,
        shown,
        listed_ms,
        ..
    } = listing;
    let is_plain = [folder, shown]
        .iter()
        .all(|text| is_line(text, MAX_VERSION_BYTES));
    if names.len() > MAX_NAMES || !is_plain {
        return None;
    }
    let count = names.len();
    let mut text = format!("folder {folder}\nshown {shown}\nlisted {listed_ms}\nnames {count}\n");
    for index in 0..names.len() {
        let name = names.name(index)?.to_str().filter(|name| is_name(name))?;
        match (names.kind(index)?, names.meta(index)) {
            (Kind::Folder, _) => writeln!(text, "/\t\t\t{name}").ok()?,
            (Kind::File, Some(meta)) => {
                let version = std::str::from_utf8(&meta.version).ok();
                let version = version.filter(|version| is_line(version, MAX_VERSION_BYTES))?;
                let (size, seconds) = (meta.size, meta.mtime_ns / NANOS);
                // Parsing the text must give the same listing.
                if Meta::listed_file(size, seconds, version.as_bytes()) != meta {
                    return None;
                }
                writeln!(text, "{size}\t{seconds}\t{version}\t{name}").ok()?;
            }
            _ => return None,
        }
        if text.len() > MAX_BYTES - 64 {
            return None;
        }
    }
    Some(format!(
        "{FIRST_WORD}{:016x}\n{text}",
        checksum(text.as_bytes())
    ))
}

/// A valid file of a listing.
struct ListingText<'a> {
    folder: &'a str,
    shown: &'a str,
    listed_ms: u64,
    names: FolderNames,
}

/// The rest of the first line, which must begin with `key`, and the text after that line.
fn line<'a>(text: &'a str, key: &str) -> Option<[&'a str; 2]> {
    let (line, rest) = text.split_once('\n')?;
    Some([line.strip_prefix(key)?, rest])
}

/// Parses a listing. Returns `None` if any part of it is invalid, or if there is no memory for the names.
fn parse(text: &str, now_ms: u64) -> Option<ListingText<'_>> {
    let [sum, body] = line(text, FIRST_WORD)?;
    if format!("{:016x}", checksum(body.as_bytes())) != sum {
        return None;
    }
    let [folder, rest] = line(body, "folder ")?;
    let [shown, rest] = line(rest, "shown ")?;
    let [listed, rest] = line(rest, "listed ")?;
    let [count, rest] = line(rest, "names ")?;
    let (listed_ms, count) = (number(listed)?, number(count)?);
    // Clocks may differ by a day.
    if count > MAX_NAMES as u64 || listed_ms > now_ms.saturating_add(DAY_MS) {
        return None;
    }
    let (mut names, mut before) = (FolderNames::default(), "");
    let lines = rest.strip_suffix('\n').into_iter();
    for line in lines.flat_map(|rest| rest.split('\n')) {
        let mut fields = line.split('\t');
        let [size, seconds, version, name] = [(); 4].map(|()| fields.next());
        let name = name.filter(|name| is_name(name) && *name > before)?;
        let (size, seconds, version) = (size?, seconds?, version?);
        if fields.next().is_some() || !is_line(version, MAX_VERSION_BYTES) {
            return None;
        }
        let meta = match size {
            "/" if seconds.is_empty() && version.is_empty() => Meta::listed_folder(),
            _ => Meta::listed_file(
                number(size)?,
                i128::from(number(seconds)?),
                version.as_bytes(),
            ),
        };
        if names.len() as u64 == count || !names.push(OsStr::new(name), meta.kind, Some(&meta)) {
            return None;
        }
        before = name;
    }
    (names.len() as u64 == count).then_some(ListingText {
        folder,
        shown,
        listed_ms,
        names,
    })
}

/// Parses an integer that consists of digits only.
fn number(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

// ---- the files ----

/// Reads the last listing of a folder. Returns `None` if there is no valid file, or if the file is longer than `most` bytes.
pub fn read(folder: &CacheFolder, folder_name: &str, most: Option<usize>) -> Option<KeptListing> {
    let most = most.unwrap_or(MAX_BYTES).min(MAX_BYTES);
    let path = inside(FOLDER, &name_of(folder_name));
    let text = folder.small_text(&path, most).ok()?;
    let listing = parse(&text, now_ms()).filter(|listing| listing.folder == folder_name)?;
    Some(KeptListing {
        names: Arc::new(listing.names),
        listed_ms: listing.listed_ms,
    })
}

/// The total size of all listing files, as far as this process knows it.
#[derive(Default)]
pub struct ListingsRoom {
    bytes: Option<u64>,
    writes: u32,
}

impl ListingsRoom {
    /// Writes a listing, or removes the listing of a folder that no longer exists.
    ///
    /// # Errors
    /// Returns an error if the listing cannot be written or removed.
    pub fn write(
        &mut self,
        folder: &CacheFolder,
        settings: &DiskCacheSettings,
        listing: &NewListing,
    ) -> Result<(), Errno> {
        let name = name_of(&listing.folder);
        let text = listing
            .names
            .as_ref()
            .and_then(|names| text_of(listing, names));
        let limit = settings.size_bytes / PART;
        let text = text.filter(|text| text.len() as u64 <= limit);
        let Some(text) = text else {
            // The existing file is outdated, and the new listing cannot be cached.
            return remove(folder, &name);
        };
        let (free, total) = folder.free_bytes()?;
        let len = text.len() as u64;
        if free < settings.free.of(total).saturating_add(len) {
            return Ok(());
        }
        self.writes = self.writes.wrapping_add(1);
        let known = self
            .bytes
            .filter(|_| !self.writes.is_multiple_of(LOOKS_EACH));
        let fits = known.filter(|bytes| bytes.saturating_add(len) <= limit);
        let held = fits.unwrap_or_else(|| trim(folder, limit.saturating_sub(len)));
        self.bytes = Some(held.saturating_add(len));
        folder.replace(FOLDER, &name, text.as_bytes())
    }
}

/// Removes listings until they use at most a 32nd of `size_bytes`, the part of a cache that is for listings.
pub fn trim_to(folder: &CacheFolder, size_bytes: u64) {
    trim(folder, size_bytes / PART);
}

/// Removes files until they use at most `limit`: files that were not written for long, then the oldest. Returns the bytes that remain.
fn trim(folder: &CacheFolder, limit: u64) -> u64 {
    let (mut kept, mut bytes, now) = (Vec::new(), 0_u64, now_ns());
    for file in files(folder) {
        if now - file.used_ns > KEPT_NS {
            let _ = folder.remove(FOLDER, &file.name);
        } else {
            bytes = bytes.saturating_add(file.bytes);
            kept.push(file);
        }
    }
    if bytes <= limit && kept.len() < MAX_FILES {
        return bytes;
    }
    kept.sort_unstable_by_key(|file| file.used_ns);
    // Shrink to three quarters of both limits, so that the next files have room.
    let (wanted, most) = (limit / 4 * 3, MAX_FILES / 4 * 3);
    let mut left = kept.len();
    for file in kept {
        if bytes <= wanted && left <= most {
            break;
        }
        if folder.remove(FOLDER, &file.name).is_ok() {
            (bytes, left) = (bytes.saturating_sub(file.bytes), left - 1);
        }
    }
    bytes
}

struct ListingFile {
    name: String,
    bytes: u64,
    used_ns: i128,
}

fn files(folder: &CacheFolder) -> Vec<ListingFile> {
    let mut found = Vec::new();
    let _ = folder.entries(FOLDER, &mut |name, stat| {
        if VersionHash::of_name(name).is_some() {
            found.push(ListingFile {
                name: name.to_string(),
                bytes: u64::try_from(stat.st_size).unwrap_or(0),
                used_ns: used_ns(stat),
            });
        }
        found.len() < 2 * MAX_FILES
    });
    found
}

/// Returns all valid listings, sorted by folder.
pub fn all(folder: &CacheFolder) -> Vec<ListingSummary> {
    let summary = |file: ListingFile| {
        let at = inside(FOLDER, &file.name);
        let text = folder.small_text(&at, MAX_BYTES).ok()?;
        let listing = parse(&text, now_ms())?;
        (name_of(listing.folder) == file.name).then(|| ListingSummary {
            source: listing.shown.to_string(),
            file: file.name,
            names: listing.names.len() as u64,
            file_bytes: text.len() as u64,
            listed_s: listing.listed_ms / 1000,
        })
    };
    let mut all: Vec<_> = files(folder).into_iter().filter_map(summary).collect();
    all.sort_by(|a, b| (&a.source, &a.file).cmp(&(&b.source, &b.file)));
    all
}

/// Removes one listing.
///
/// # Errors
/// Returns an error if the file of the listing cannot be removed.
pub fn remove(folder: &CacheFolder, file: &str) -> Result<(), Errno> {
    match folder.remove(FOLDER, file) {
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

/// Removes all listings, including invalid files.
///
/// # Errors
/// Returns an error if a file cannot be removed.
pub fn remove_all(folder: &CacheFolder) -> Result<(), Errno> {
    for file in files(folder) {
        remove(folder, &file.name)?;
    }
    // This leaves files that are not foreread's.
    let _ = folder.remove_folder(FOLDER);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    const NOW: u64 = 1_800_000_000_000;

    fn listing() -> (NewListing, FolderNames) {
        let mut names = FolderNames::default();
        for (name, meta) in [
            (
                "a b.bin",
                Meta::listed_file(4096, 1_795_750_000, b"\"e1f0\" 4096"),
            ),
            ("sub", Meta::listed_folder()),
            ("z\u{e4}", Meta::listed_file(0, 0, b"")),
        ] {
            assert!(names.push(OsStr::new(name), meta.kind, Some(&meta)));
        }
        let new = NewListing {
            folder: "http://h/b/d/".to_string(),
            shown: "s3://b/d/".to_string(),
            names: None,
            listed_ms: NOW - 5000,
        };
        (new, names)
    }

    fn sealed(body: &str) -> String {
        format!("{FIRST_WORD}{:016x}\n{body}", checksum(body.as_bytes()))
    }

    #[test]
    fn a_listing_is_read_as_it_was_written() {
        let (new, names) = listing();
        let text = text_of(&new, &names).expect("a text");
        let body = "folder http://h/b/d/\nshown s3://b/d/\nlisted 1799999995000\nnames 3\n4096\t1795750000\t\"e1f0\" 4096\ta b.bin\n/\t\t\tsub\n0\t0\t\tz\u{e4}\n";
        assert_eq!(text, sealed(body));
        let read = parse(&text, NOW).expect("a listing");
        assert_eq!((read.names.len(), read.listed_ms), (3, NOW - 5000));
        assert_eq!((read.folder, read.shown), (&*new.folder, &*new.shown));
        assert!((0..3).all(|at| read.names.is_same(at, &names, at)));
        let none = sealed("folder http://h/b/d/\nshown s3://b/d/\nlisted 1\nnames 0\n");
        assert!(parse(&none, NOW).expect("a folder").names.is_empty());
    }

    #[test]
    fn unrepresentable_listings_are_not_cached() {
        let file = Meta::listed_file(1, 1, b"v");
        let (mut writable, mut exact, mut link, mut binary) =
            (file.clone(), file.clone(), file.clone(), file.clone());
        writable.permissions = 0o644;
        exact.mtime_ns = 1;
        link.kind = Kind::Link;
        binary.version = [0xff].into();
        let odd = [
            ("a\nb", file.clone()),
            ("a\tb", file.clone()),
            ("..", file.clone()),
            ("a/b", file),
            ("a", Meta::listed_file(1, 1, b"v\tw")),
            ("a", Meta::listed_file(1, -1, b"v")),
            ("a", writable),
            ("a", exact),
            ("a", link),
            ("a", binary),
        ];
        for (name, meta) in odd {
            let mut names = FolderNames::default();
            assert!(names.push(OsStr::new(name), meta.kind, Some(&meta)));
            let text = text_of(&listing().0, &names);
            // Even if such a text is written, parsing must reject it.
            let is_read = text.is_some_and(|text| parse(&text, NOW).is_some());
            assert!(!is_read, "{name:?} {meta:?}");
        }
        let mut names = FolderNames::default();
        assert!(names.push(OsStr::from_bytes(b"\xff"), Kind::File, None));
        assert!(text_of(&listing().0, &names).is_none());
    }

    /// A matching checksum is not enough: others may write to a shared folder.
    #[test]
    fn an_invalid_listing_is_ignored_as_a_whole() {
        let (new, names) = listing();
        let text = text_of(&new, &names).expect("a text");
        let body = text.split_once('\n').expect("lines").1;
        let all = |from: &str, to: &str| sealed(&body.replace(from, to));
        let hostile = [
            String::new(),
            text[..text.len() - 1].to_string(),
            text[..text.len() - 9].to_string(),
            text.replace("4096\t", "4097\t"),
            text.replace("names 1 ", "names 2 "),
            all("a b.bin", ".."),
            all("a b.bin", "."),
            all("a b.bin", ""),
            all("a b.bin", "a/b"),
            all("a b.bin", "/etc"),
            all("a b.bin", "a\0b"),
            all("a b.bin", "t"),
            all("a b.bin", "sub"),
            all("a b.bin", &"x".repeat(256)),
            all("a b.bin", "a\tb"),
            all("names 3", "names 2"),
            all("names 3", "names 4"),
            all("names 3", "names 99999999999999999999"),
            all("names 3", "names 1048577"),
            all("listed 1799999995000", "listed 1800086400001"),
            all("listed 1799999995000", "listed -1"),
            all("/\t\t\tsub", "/\t1\t\tsub"),
            all("/\t\t\tsub", "/\t\tsub"),
            all("4096\t1795750000", "+4096\t1795750000"),
            all("4096\t1795750000", "4096\t-1"),
            all("4096\t1795750000", "99999999999999999999\t1"),
            all("\u{e4}\n", "\u{e4}"),
            all("\u{e4}\n", "\u{e4}\n\n"),
            all("e1f0", "e1\u{1b}[2J"),
        ];
        for text in hostile {
            assert!(parse(&text, NOW).is_none(), "{text}");
        }
        assert!(parse(&sealed(body), NOW).is_some());
    }

    #[test]
    fn a_listing_is_young_for_a_time_and_never_from_the_future() {
        let of = |listed_ms| KeptListing {
            names: Arc::default(),
            listed_ms,
        };
        let hour = Duration::from_secs(3600);
        assert!(of(now_ms()).is_younger(hour) && !of(now_ms()).is_younger(Duration::ZERO));
        assert!(!of(now_ms() - 3_700_000).is_younger(hour));
        assert!(!of(now_ms() + 60_000).is_younger(hour));
    }
}
