//! What is in the folder of a cache, for people: by source and version, whether it is right, and how it is removed.
//!
//! A cache that other processes use may be looked at, checked and emptied at the same time: a piece that is gone is a miss for them.
//! Nothing is made, and texts of the folder are shown without what a terminal would obey.
//!
//! ```text
//!   DIR ──open──► CacheInspector ──versions──► [VersionSummary ..] ──► verify, remove      of one version
//!                       └─ trim                                                             of all, as the cache itself makes room
//! ```

use super::account::Account;
use super::folder::{CacheFolder, PieceFile, inside};
use super::names::{self, ListingSummary};
use super::piece::{Extent, HEADER_BYTES, MAX_PIECE_BYTES, OpenPiece, PieceFault, VersionHash};
use super::room::{Evictor, versions};
use super::settings::DiskCacheSettings;
use super::shared::CacheState;
use super::{SourceName, SourceOpenError, refused};
use rustix::io::Errno;

/// Characters of a source or a version that are shown. A key of S3 has at most 1,024 bytes.
const MAX_TEXT: usize = 2048;

/// Looks at the folder of a cache on disk.
///
/// ```
/// use foreread::source::disk_cache::{CacheInspector, DiskCache, DiskCacheSettings};
///
/// let dir = tempfile::tempdir()?;
/// let settings = DiskCacheSettings::new(dir.path());
/// assert!(CacheInspector::open(settings.clone()).is_err(), "there is no cache in it");
/// let _cache = DiskCache::open(settings.clone())?;
/// assert!(CacheInspector::open(settings)?.versions().versions.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CacheInspector {
    folder: CacheFolder,
    settings: DiskCacheSettings,
}

/// All versions of a cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VersionList {
    /// By source, and of one source the one that was used last first.
    pub versions: Vec<VersionSummary>,
    /// Folders that this user cannot read.
    pub unreadable: u64,
}

/// What there is of one version of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VersionSummary {
    /// Its folder, below that of the cache.
    pub folder: String,
    /// Its name without secrets; nothing where the folder does not say.
    pub source: Option<String>,
    /// Its ETag or generation.
    pub version: Option<String>,
    /// Bytes of the source.
    pub size_bytes: Option<u64>,
    /// Pieces.
    pub pieces: u64,
    /// Of these, used again after they had been written.
    pub pieces_again: u64,
    /// Bytes of the source that are there, each counted once.
    pub held_bytes: u64,
    /// Bytes of the files.
    pub file_bytes: u64,
    /// Of these, of pieces that were used again.
    pub again_file_bytes: u64,
    /// When a piece was used last, in nanoseconds since 1970.
    pub last_used_ns: Option<i128>,
    /// The same of the piece that was not used for longest.
    pub oldest_used_ns: Option<i128>,
    /// When the version was seen first.
    pub first_seen_ns: Option<i128>,
}

impl VersionSummary {
    /// Is it of the source of this name, or below it where the name ends with a slash?
    #[must_use]
    pub fn is_of(&self, name: &str) -> bool {
        self.source
            .as_deref()
            .is_some_and(|source| source == name || name.ends_with('/') && source.starts_with(name))
    }
}

/// A piece that was read for its checksums.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckedPiece {
    /// Its file, below the folder of the cache.
    pub path: String,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// What became of it.
    pub state: PieceState,
}

/// Is a piece what its name and its checksums say?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceState {
    /// It is.
    Right,
    /// It is not.
    Wrong,
    /// The disk cannot read it: an error number.
    Unreadable(i32),
}

/// What a trim has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TrimCounts {
    /// Pieces removed.
    pub removed: u64,
    /// Bytes of their files.
    pub removed_bytes: u64,
    /// Bytes of those that are left.
    pub left_bytes: u64,
}

/// Room of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskSpace {
    /// Bytes that are free for this user.
    pub free_bytes: u64,
    /// All that it has.
    pub total_bytes: u64,
}

impl CacheInspector {
    /// Opens the folder of a cache, and makes nothing.
    ///
    /// # Errors
    /// There is no cache in it, it cannot be read, or other users may write it.
    pub fn open(settings: DiskCacheSettings) -> Result<CacheInspector, SourceOpenError> {
        match CacheFolder::open_existing(&settings) {
            Ok(folder) => Ok(CacheInspector { folder, settings }),
            Err(error) => Err(SourceOpenError {
                what: SourceName::from(settings.dir.as_path()),
                why: format!("cannot look at the disk cache: {}", error.why),
                remedy: error.remedy,
                errno: error.errno,
                cause: None,
            }),
        }
    }

    /// Looks at every file. Takes about a second for 100,000 of them.
    #[must_use]
    pub fn versions(&self) -> VersionList {
        let mut list = VersionList::default();
        for folder in versions(&self.folder) {
            match self.summary(folder) {
                Ok(summary) => list.versions.extend(summary),
                Err(Errno::NOENT) => {}
                Err(_) => list.unreadable += 1,
            }
        }
        list.versions.sort_by(|a, b| {
            // What has no name comes last.
            (a.source.is_none(), &a.source, b.last_used_ns, &a.folder).cmp(&(
                b.source.is_none(),
                &b.source,
                a.last_used_ns,
                &b.folder,
            ))
        });
        list
    }

    /// Nothing for a folder without pieces.
    fn summary(&self, folder: String) -> Result<Option<VersionSummary>, Errno> {
        let mut own = VersionSummary::default();
        let mut extents = Vec::new();
        self.folder.names(&folder, &mut |name| {
            let Some((extent, used_again)) = name.to_str().and_then(Extent::of_name) else {
                return true;
            };
            let path = inside(&folder, &name.to_string_lossy());
            if let Ok(used) = self.folder.use_of(&path) {
                own.pieces += 1;
                own.pieces_again += u64::from(used_again);
                own.file_bytes += used.file_bytes;
                own.again_file_bytes += if used_again { used.file_bytes } else { 0 };
                own.last_used_ns = own.last_used_ns.max(Some(used.at_ns));
                let oldest = own.oldest_used_ns.get_or_insert(used.at_ns);
                *oldest = used.at_ns.min(*oldest);
                // A file that was cut has less.
                if used.file_bytes >= HEADER_BYTES as u64 + u64::from(extent.len) {
                    extents.push(extent);
                }
            }
            true
        })?;
        if own.pieces == 0 {
            return Ok(None);
        }
        own.held_bytes = union(&mut extents);
        let about = self.folder.about(&folder).unwrap_or_default();
        let field = |key: &str| {
            let line = about.lines().find_map(|line| line.strip_prefix(key));
            line.map(harmless).filter(|text| !text.is_empty())
        };
        own.source = field("source ");
        own.version = field("version ");
        own.size_bytes = field("size ").and_then(|text| text.parse().ok());
        own.first_seen_ns = self.folder.made_at(&folder);
        own.folder = folder;
        Ok(Some(own))
    }

    /// Reads every byte of the pieces of a version, and calls `each` with what became of each, until that says false. With `removes`,
    /// what is wrong is removed; what the disk cannot read stays.
    ///
    /// # Errors
    /// The folder of the version cannot be read, or nothing can be removed from it.
    pub fn verify(
        &self,
        version: &VersionSummary,
        removes: bool,
        each: &mut dyn FnMut(CheckedPiece) -> bool,
    ) -> Result<(), SourceOpenError> {
        let hash = self.hash(version)?;
        let account = if removes { Some(self.account()?) } else { None };
        let mut buffer = vec![0; MAX_PIECE_BYTES as usize];
        for piece in self.pieces(version, hash)? {
            let checked = match check(&self.folder, hash, piece, &mut buffer) {
                Ok(()) => PieceState::Right,
                Err(PieceFault::Gone) => continue,
                Err(PieceFault::Wrong) => PieceState::Wrong,
                Err(PieceFault::Io(errno)) => PieceState::Unreadable(errno.raw_os_error()),
            };
            let path = inside(&version.folder, &piece.extent.name(piece.used_again));
            let file_bytes = self.folder.use_of(&path).map_or(0, |used| used.file_bytes);
            if let (PieceState::Wrong, Some(account)) = (checked, &account) {
                self.remove_piece(account, hash, piece)?;
            }
            let goes_on = each(CheckedPiece {
                path,
                file_bytes,
                state: checked,
            });
            if !goes_on {
                break;
            }
        }
        Ok(())
    }

    /// Removes the pieces of a version, and calls `each` with the bytes of each file, until that says false.
    ///
    /// # Errors
    /// Nothing can be removed from it.
    pub fn remove(
        &self,
        version: &VersionSummary,
        each: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), SourceOpenError> {
        let (hash, account) = (self.hash(version)?, self.account()?);
        for piece in self.pieces(version, hash)? {
            self.remove_piece(&account, hash, piece)?;
            if !each(piece.extent.file_bytes()) {
                return Ok(());
            }
        }
        let _ = self.folder.names(&version.folder, &mut |name| {
            self.folder.remove_abandoned(&version.folder, name);
            true
        });
        // What is left in it is not of a cache, or was written a moment ago.
        let _ = self.folder.remove_version(&version.folder);
        Ok(())
    }

    /// Removes pieces until all have at most this many bytes, those first that the cache would remove first. `goes_on` gets the bytes that
    /// are left, and ends it by false.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn trim(
        &self,
        size_bytes: u64,
        goes_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<TrimCounts, SourceOpenError> {
        let settings = DiskCacheSettings {
            size_bytes,
            ..self.settings.clone()
        };
        let dir = settings.dir.clone();
        let shared = CacheState::open(settings).map_err(|error| refused(&dir, error))?;
        let left_bytes = Evictor::default().trim(&shared, &shared.opened(), goes_on);
        let counts = shared.tier.counts.now();
        Ok(TrimCounts {
            removed: counts.evicted,
            removed_bytes: counts.evicted_bytes,
            left_bytes,
        })
    }

    /// The names of folders that are kept, by folder.
    #[must_use]
    pub fn listings(&self) -> Vec<ListingSummary> {
        let mut all = names::all(&self.folder);
        all.iter_mut()
            .for_each(|listing| listing.source = harmless(&listing.source));
        all
    }

    /// Removes the names of a folder.
    ///
    /// # Errors
    /// Its file cannot be removed.
    pub fn remove_listing(&self, listing: &ListingSummary) -> Result<(), SourceOpenError> {
        let failed = |errno| self.failed("change", &VersionSummary::default(), errno);
        names::remove(&self.folder, &listing.file).map_err(failed)
    }

    /// Removes the names of all folders.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn remove_listings(&self) -> Result<(), SourceOpenError> {
        let failed = |errno| self.failed("change", &VersionSummary::default(), errno);
        names::remove_all(&self.folder).map_err(failed)
    }

    /// Room of the file system; nothing where that cannot be asked.
    #[must_use]
    pub fn space(&self) -> Option<DiskSpace> {
        let (free_bytes, total_bytes) = self.folder.free_bytes().ok()?;
        Some(DiskSpace {
            free_bytes,
            total_bytes,
        })
    }

    fn hash(&self, version: &VersionSummary) -> Result<VersionHash, SourceOpenError> {
        let name = version.folder.rsplit('/').next().unwrap_or_default();
        VersionHash::of_name(name).ok_or_else(|| self.failed("look at", version, Errno::INVAL))
    }

    fn account(&self) -> Result<Account, SourceOpenError> {
        let failed = |errno| self.failed("change", &VersionSummary::default(), errno);
        Account::open(&self.folder).map_err(failed)
    }

    fn pieces(
        &self,
        version: &VersionSummary,
        hash: VersionHash,
    ) -> Result<Vec<PieceFile>, SourceOpenError> {
        let mut pieces = Vec::new();
        match self.folder.pieces(hash, &mut |piece| pieces.push(piece)) {
            Ok(_) | Err(Errno::NOENT) => Ok(pieces),
            Err(errno) => Err(self.failed("read", version, errno)),
        }
    }

    fn remove_piece(
        &self,
        account: &Account,
        hash: VersionHash,
        piece: PieceFile,
    ) -> Result<(), SourceOpenError> {
        match self.folder.remove_piece(hash, piece) {
            Ok(()) => {
                account.removed(piece.extent.file_bytes());
                Ok(())
            }
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.failed("change", &VersionSummary::default(), errno)),
        }
    }

    fn failed(&self, what: &str, version: &VersionSummary, errno: Errno) -> SourceOpenError {
        let dir = self.settings.dir.join(&version.folder);
        SourceOpenError {
            what: SourceName::from(dir.as_path()),
            why: format!(
                "cannot {what} the disk cache: {}",
                crate::source::errno_text(errno.raw_os_error())
            ),
            remedy: "run it as the user of the folder".to_string(),
            errno: errno.raw_os_error(),
            cause: None,
        }
    }
}

impl std::fmt::Debug for CacheInspector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CacheInspector of {}", self.settings.dir.display())
    }
}

/// Reads a piece whole.
fn check(
    folder: &CacheFolder,
    hash: VersionHash,
    piece: PieceFile,
    buffer: &mut [u8],
) -> Result<(), PieceFault> {
    let file = match folder.open_piece(hash, piece) {
        // A link, a folder or a device is no piece.
        Err(PieceFault::Io(Errno::LOOP | Errno::INVAL | Errno::NXIO | Errno::XDEV)) => {
            return Err(PieceFault::Wrong);
        }
        opened => opened?,
    };
    let own = file.try_clone().ok();
    let all = 0..u64::from(piece.extent.len);
    let piece = OpenPiece::new(file, piece.extent, hash, all)?;
    let Extent { offset, len } = piece.extent();
    let done = piece.read(offset, &mut buffer[..len as usize]);
    // All of a cache would push everything else out of the page cache.
    if let Some(file) = own {
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    }
    done
}

/// Bytes of all ranges, each counted once.
fn union(extents: &mut [Extent]) -> u64 {
    extents.sort_unstable();
    let (mut end, mut bytes) = (0, 0);
    for extent in extents {
        let from = extent.offset.max(end);
        bytes += extent.end().saturating_sub(from);
        end = end.max(extent.end());
    }
    bytes
}

/// Without letters that move the cursor or turn the direction of text, and not too long: others may have written it.
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
    fn bytes_of_pieces_that_overlap_count_once() {
        let mut extents = [(10, 5), (0, 4), (12, 10), (12, 2), (40, 1)]
            .map(|(offset, len)| Extent { offset, len });
        assert_eq!(union(&mut extents), 4 + 12 + 1);
        assert_eq!(union(&mut []), 0);
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
