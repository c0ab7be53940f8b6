//! Lists, verifies and removes the versions in a cache's folder.
//!
//! This module may inspect, verify and empty a cache while other processes use it: for them, removed data is a cache miss. This
//! module creates no files. Control characters in texts that come from the folder are replaced.
//!
//! ```text
//!   DIR ──open──► CacheInspector ──versions──► [VersionSummary ..] ──► verify, remove      of one version
//!                       └─ trim                                                             of all, as the cache itself makes room
//! ```

use super::disk::DiskTier;
use super::evict;
use super::folder::{CacheFolder, inside};
use super::hash::{BLOCK_BYTES, VersionHash};
use super::names::{self, ListingSummary};
use super::object::{self, Fault, FoundObject, MAX_BLOCKS, ObjectFiles, ObjectHeader};
use super::settings::DiskCacheSettings;
use super::tier::Tier;
use crate::source::SourceOpenError;
use rustix::io::Errno;
use std::cmp::Reverse;
use std::ops::Range;

/// Maximum number of characters shown of a source's name or version. An S3 key has at most 1,024 bytes.
const MAX_TEXT: usize = 2048;

/// Inspects the folder of a disk cache.
///
/// ```
/// use foreread::source::disk_cache::{CacheInspector, DiskCache, DiskCacheSettings};
///
/// let dir = tempfile::tempdir()?;
/// let settings = DiskCacheSettings::new(dir.path());
/// assert!(CacheInspector::open(settings.clone()).is_err(), "there is no cache in it");
/// let _cache = DiskCache::open(settings.clone())?;
/// assert!(CacheInspector::open(settings)?.versions().0.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CacheInspector {
    folder: CacheFolder,
    settings: DiskCacheSettings,
}

/// A version of a source in the cache, and how much of it is cached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VersionSummary {
    /// Path of its files without their endings, relative to the cache's folder.
    pub file: String,
    /// Name of the source without secrets. `None` if the file does not contain it.
    pub source: Option<String>,
    /// ETag or generation of the source.
    pub version: Option<String>,
    /// Size of the source in bytes.
    pub size_bytes: Option<u64>,
    /// Whether it was used again after it had been written.
    pub used_again: bool,
    /// Number of the source's bytes that are cached.
    pub held_bytes: u64,
    /// Bytes that its files use on disk.
    pub file_bytes: u64,
    /// When it was last written or used, in nanoseconds since 1970.
    pub last_used_ns: i128,
    hash: VersionHash,
}

impl VersionSummary {
    /// Returns true if this version belongs to the source with this name. If the name ends with a slash, all sources below it
    /// match.
    #[must_use]
    pub fn is_of(&self, name: &str) -> bool {
        self.source
            .as_deref()
            .is_some_and(|source| source == name || name.ends_with('/') && source.starts_with(name))
    }
}

/// Whether verified blocks are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// The blocks match their checksums.
    Right,
    /// The block is invalid. Or the whole version is: its header is invalid, or its data is missing.
    Wrong,
    /// The disk cannot read them. The value is the errno.
    Unreadable(i32),
}

/// What [`CacheInspector::trim`] has removed, and what remains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TrimCounts {
    /// Bytes that the removed versions, and removed parts of large versions, used on disk.
    pub removed_bytes: u64,
    /// Bytes that remain in the cache.
    pub left_bytes: u64,
}

impl CacheInspector {
    /// Opens the folder of a cache; creates nothing.
    ///
    /// # Errors
    /// Returns an error if the folder has no cache, if it cannot be read, or if other users may write to it.
    pub fn open(settings: DiskCacheSettings) -> Result<CacheInspector, SourceOpenError> {
        let folder = CacheFolder::open_existing(&settings)?;
        Ok(CacheInspector { folder, settings })
    }

    /// Scans all files of the cache. Returns the versions, sorted by source, those of one source by last use, the latest first; and the
    /// number of folders that this user cannot read.
    #[must_use]
    pub fn versions(&self) -> (Vec<VersionSummary>, u64) {
        let (found, unreadable) = evict::all(&self.folder);
        let mut versions = Vec::from_iter(found.iter().map(|found| self.summary(found)));
        // Versions without a name come last.
        versions.sort_by_cached_key(|version| {
            let (source, used) = (version.source.clone(), Reverse(version.last_used_ns));
            (source.is_none(), source, used, version.file.clone())
        });
        (versions, unreadable)
    }

    fn summary(&self, found: &FoundObject) -> VersionSummary {
        let header = ObjectHeader::open(&self.folder, found.hash).ok();
        let field = |key: &str| {
            let text = header
                .as_ref()
                .map(|header| &*header.text)
                .unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix(key));
            line.map(harmless).filter(|text| !text.is_empty())
        };
        let size = header.as_ref().map(|header| header.size);
        VersionSummary {
            file: inside(&found.hash.folder(), &found.hash.name()),
            source: field("source "),
            version: field("version "),
            size_bytes: size,
            used_again: found.used_again,
            held_bytes: size.map_or(0, |size| self.held(found.hash, size)),
            file_bytes: found.bytes,
            last_used_ns: found.used_ns,
            hash: found.hash,
        }
    }

    /// Number of cached bytes: those of blocks with a checksum.
    fn held(&self, hash: VersionHash, size: u64) -> u64 {
        let files = ObjectFiles::open(&self.folder, hash, size);
        files.map_or(0, |files| {
            let runs = files.runs(MAX_BLOCKS).map_while(Result::ok);
            let bytes = runs.map(|(first, sums)| files.bytes_of(first, sums.len()));
            bytes.map(|bytes| bytes.end - bytes.start).sum()
        })
    }

    /// Reads every cached byte of a version. Calls `each` with the bytes of each group of blocks and whether they are valid, until `each`
    /// returns false. If `removes` is true, invalid blocks are removed; blocks that the disk cannot read are kept.
    ///
    /// # Errors
    /// Returns an error if `removes` is true and invalid data cannot be removed from the cache.
    pub fn verify(
        &self,
        version: &VersionSummary,
        removes: bool,
        each: &mut dyn FnMut(Range<u64>, BlockState) -> bool,
    ) -> Result<(), SourceOpenError> {
        let hash = version.hash;
        let unreadable = |errno: Errno| BlockState::Unreadable(errno.raw_os_error());
        let size = version.size_bytes.ok_or(Fault::Wrong(None));
        let files = match size.and_then(|size| ObjectFiles::open(&self.folder, hash, size)) {
            Ok(files) => files,
            Err(fault) => {
                // Checksums without data are wrong; without either, the version was evicted.
                let lacks_data = fault == Fault::NoFile && object::is_there(&self.folder, hash);
                if matches!(fault, Fault::Wrong(_)) || lacks_data {
                    each(0..0, BlockState::Wrong);
                    if removes {
                        self.remove_files(hash)?;
                    }
                } else if let Fault::Io(errno) = fault {
                    each(0..0, unreadable(errno));
                }
                return Ok(());
            }
        };
        let mut buffer = vec![0; 1 << 20];
        'runs: for run in files.runs(buffer.len() as u64 / BLOCK_BYTES) {
            let (mut first, mut sums) = match run {
                Ok(run) => run,
                Err(Fault::Io(errno)) => {
                    each(0..0, unreadable(errno));
                    break;
                }
                Err(_) => break,
            };
            while !sums.is_empty() {
                let all = files.bytes_of(first, sums.len());
                let buffer = &mut buffer[..(all.end - all.start) as usize];
                let (count, state) = match files.read_blocks(first, buffer, &sums) {
                    Ok(()) => (sums.len(), BlockState::Right),
                    // The blocks before the invalid one are valid.
                    Err(Fault::Wrong(Some(wrong))) if wrong > first => {
                        ((wrong - first) as usize, BlockState::Right)
                    }
                    Err(Fault::Io(errno)) => (sums.len(), unreadable(errno)),
                    Err(_) => {
                        if removes {
                            self.changed(files.forget(first, 1))?;
                        }
                        (1, BlockState::Wrong)
                    }
                };
                if !each(files.bytes_of(first, count), state) {
                    break 'runs;
                }
                sums.drain(..count);
                first += count as u64;
            }
        }
        files.drop_pages(0, None);
        Ok(())
    }

    /// Removes a version. Returns the number of bytes that the files of the version used.
    ///
    /// # Errors
    /// Returns an error if the version's files cannot be removed.
    pub fn remove(&self, version: &VersionSummary) -> Result<u64, SourceOpenError> {
        self.remove_files(version.hash)?;
        Ok(version.file_bytes)
    }

    fn remove_files(&self, hash: VersionHash) -> Result<(), SourceOpenError> {
        let done = object::remove(&self.folder, hash);
        self.changed(done.and_then(|()| evict::recount(&self.folder, hash)))
    }

    /// Removes versions until the cache has at most this many bytes, in the order in which the cache itself evicts them.
    /// `goes_on` is called with the number of bytes that are still in the cache; if it returns false, no more versions are
    /// removed.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be written.
    pub fn trim(
        &self,
        size_bytes: u64,
        goes_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<TrimCounts, SourceOpenError> {
        let settings = DiskCacheSettings {
            size_bytes,
            ..self.settings.clone()
        };
        let disk = DiskTier::open(settings)?;
        names::trim_to(&self.folder, size_bytes);
        let left_bytes = self.changed(disk.trim(goes_on).ok_or(Errno::ROFS))?;
        let counts = disk.state().counts.now();
        Ok(TrimCounts {
            removed_bytes: counts.evicted_bytes,
            left_bytes,
        })
    }

    /// Returns true if a folder of the previous format version exists, which foreread no longer uses.
    #[must_use]
    pub fn has_old_folder(&self) -> bool {
        self.folder.has_old
    }

    /// Returns the cached listings, sorted by folder.
    #[must_use]
    pub fn listings(&self) -> Vec<ListingSummary> {
        let mut all = names::all(&self.folder);
        all.iter_mut()
            .for_each(|listing| listing.source = harmless(&listing.source));
        all
    }

    /// Removes the cached listing of a folder.
    ///
    /// # Errors
    /// Returns an error if the file of the listing cannot be removed.
    pub fn remove_listing(&self, listing: &ListingSummary) -> Result<(), SourceOpenError> {
        self.changed(names::remove(&self.folder, &listing.file))
    }

    /// Removes the cached listings of all folders.
    ///
    /// # Errors
    /// Returns an error if a file cannot be removed.
    pub fn remove_listings(&self) -> Result<(), SourceOpenError> {
        self.changed(names::remove_all(&self.folder))
    }

    /// Returns the bytes that are free for this user on the file system, and its size. Returns `None` if they are not known.
    #[must_use]
    pub fn space(&self) -> Option<(u64, u64)> {
        self.folder.free_bytes().ok()
    }

    fn changed<T>(&self, done: Result<T, Errno>) -> Result<T, SourceOpenError> {
        done.map_err(|errno| {
            let errno = errno.raw_os_error();
            let why = crate::source::errno_text(errno);
            SourceOpenError::new(
                self.settings.dir.as_path(),
                format!("cannot change the disk cache: {why}"),
                "run this command as the owner of the folder",
                errno,
            )
        })
    }
}

/// Shortens a text and replaces characters that move the cursor or change the text direction: other users may have written it.
fn harmless(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    text.chars()
        .take(MAX_TEXT)
        .map(|c| match c {
            c if c.is_control() || turns(c) => char::REPLACEMENT_CHARACTER,
            c => c,
        })
        .collect::<String>()
        .trim()
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_others_wrote_moves_no_cursor() {
        let text = "s3://b/\u{1b}[31m\u{7}\u{202e}x";
        assert_eq!(harmless(text), "s3://b/\u{fffd}[31m\u{fffd}\u{fffd}x");
        assert_eq!(harmless(&"x".repeat(1 << 20)).len(), MAX_TEXT);
    }

    #[test]
    fn a_name_is_of_a_source_or_of_all_below_a_slash() {
        let of = |source: Option<&str>| VersionSummary {
            source: source.map(ToString::to_string),
            ..VersionSummary::default()
        };
        let own = of(Some("s3://b/a/c"));
        assert!(own.is_of("s3://b/a/c") && own.is_of("s3://b/a/") && own.is_of("s3://b/"));
        assert!(!own.is_of("s3://b/a") && !own.is_of("s3://b/a/c/") && !of(None).is_of("/"));
    }
}
