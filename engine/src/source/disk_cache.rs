//! A cache on disk, below the cache in memory: bytes that were fetched once are there after the process has ended, and for other processes.
//!
//! It keeps bytes of sources that say exactly which version they read ([`Source::exact_version`]): objects with a strong ETag or a
//! generation. What another source reads passes through. The file system is the index: nothing has to be repaired, and nothing is read
//! before the first byte.
//!
//! ```text
//!   reader ──► engine (memory, readahead) ──► CachedSource ──► pieces below DIR/foreread-cache-1
//!                                               └─ what is not there ──► the source, and a copy behind the reader
//! ```
//! | file | is about |
//! |---|---|
//! | piece | the format of a piece; everything that is read is looked at |
//! | folder, files, account, claims | the files of the folder: paths without links, bytes in all, what is being fetched |
//! | index, cached, sinks, reader | which part of a fetch comes from where |
//! | writer, room | writing behind the reader, and what makes way |
//! | speed | a disk that is slower than the store is passed over |
//! | fill | all objects below a prefix, fetched before they are read |
//! | inspect | what is in the folder, for people |
//!
//! Never: fails a read because of the disk, believes a file because it is there, or follows a link below the folder.

mod account;
mod cached;
mod claims;
mod files;
mod fill;
mod folder;
mod index;
mod inspect;
mod piece;
mod reader;
mod room;
mod settings;
mod shared;
mod sinks;
mod speed;
mod writer;

use super::{Source, SourceName, SourceOpenError};
use cached::{CachedSource, Parts};
pub use fill::{CacheFillCounts, CacheFillEnd, CacheFillReport, CacheFiller, ObjectLeftOut};
use folder::FolderError;
pub use inspect::{
    CacheInspector, CheckedPiece, DiskSpace, PieceState, TrimCounts, VersionList, VersionSummary,
};
use reader::PieceReader;
pub use settings::{DiskCacheSettings, FreeSpace, NOTATION, SharedFolder};
use shared::CacheState;
pub use shared::DiskCacheCounts;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use writer::Writer;

/// The variable that names the cache of commands: in [`NOTATION`].
pub const VARIABLE: &str = "FOREREAD_DISK_CACHE";

/// A cache on disk. A clone is the same cache; so is one that is opened for the same folder with the same settings while it lives.
///
/// ```
/// use foreread::source::disk_cache::{DiskCache, DiskCacheSettings};
///
/// let dir = tempfile::tempdir()?;
/// let cache = DiskCache::open(DiskCacheSettings::new(dir.path().join("cache")))?;
/// let options = foreread::Options::default().disk_cache(&cache);
/// # drop(options);
/// assert_eq!(cache.counts().hits, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct DiskCache {
    parts: Arc<Parts>,
    /// A folder that several machines share.
    below: Option<Box<DiskCache>>,
}

/// Those that are open in this process.
#[derive(Default)]
pub(crate) struct OpenCaches(Vec<OpenCache>);

struct OpenCache {
    settings: DiskCacheSettings,
    /// A child of a fork has no threads of its parent.
    process: u32,
    parts: Weak<Parts>,
}

/// Those of this process, locked; also for a thread that is about to fork.
pub(crate) fn hold() -> MutexGuard<'static, OpenCaches> {
    static OPEN: Mutex<OpenCaches> = Mutex::new(OpenCaches(Vec::new()));
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DiskCache {
    /// Opens a cache, and makes its folder where it is not there. Takes the same time whatever is in it.
    ///
    /// # Errors
    /// The folder cannot be made or written, or other users may write it.
    pub fn open(settings: DiskCacheSettings) -> Result<DiskCache, SourceOpenError> {
        let below = settings.shared.as_ref().map(|shared| {
            DiskCache::open(DiskCacheSettings {
                dir: shared.dir.clone(),
                size_bytes: shared.size_bytes,
                others_trusted: true,
                shared: None,
                ..settings.clone()
            })
        });
        let below = below.transpose()?.map(Box::new);
        let whole = |dir: &Path| dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf());
        if below
            .as_ref()
            .is_some_and(|below| whole(below.dir()) == whole(&settings.dir))
        {
            return Err(SourceOpenError {
                what: SourceName::from(settings.dir.as_path()),
                why: "it is a disk cache and the shared folder below it".to_string(),
                remedy: "name another folder of this machine".to_string(),
                errno: rustix::io::Errno::INVAL.raw_os_error(),
            });
        }
        let process = std::process::id();
        let mut open = hold();
        open.0.retain(|cache| cache.parts.strong_count() > 0);
        let is_same = |cache: &&OpenCache| cache.settings == settings && cache.process == process;
        let known = open
            .0
            .iter()
            .find(is_same)
            .and_then(|cache| cache.parts.upgrade());
        if let Some(parts) = known {
            return Ok(DiskCache { parts, below });
        }
        let shared =
            CacheState::open(settings.clone()).map_err(|error| refused(&settings.dir, error))?;
        let shared = Arc::new(shared);
        let parts = Arc::new(Parts {
            writer: Arc::new(Writer::new(Arc::clone(&shared))),
            reader: PieceReader::default(),
            shared,
        });
        open.0.push(OpenCache {
            settings,
            process,
            parts: Arc::downgrade(&parts),
        });
        Ok(DiskCache { parts, below })
    }

    /// The source with this cache; the source itself, where it does not say exactly which version it reads.
    #[must_use]
    pub fn over(&self, source: Arc<dyn Source>) -> Arc<dyn Source> {
        if source.exact_version().is_none() {
            return source;
        }
        let source = match &self.below {
            Some(below) => below.over(source),
            None => source,
        };
        Arc::new(CachedSource::new(source, Arc::clone(&self.parts)))
    }

    /// What it has done for this process.
    #[must_use]
    pub fn counts(&self) -> DiskCacheCounts {
        self.parts.shared.counts.now()
    }

    /// That of the folder that several machines share, if there is one.
    #[must_use]
    pub fn shared(&self) -> Option<&DiskCache> {
        self.below.as_deref()
    }

    /// The cache that a text in [`NOTATION`] names; nothing for an empty one.
    ///
    /// # Errors
    /// A line that says what is wrong with the text, or with the folder.
    pub fn named(text: &str) -> Result<Option<DiskCache>, SourceOpenError> {
        if text.is_empty() {
            return Ok(None);
        }
        let settings = DiskCacheSettings::parse(text).map_err(|why| SourceOpenError {
            what: SourceName::from(text),
            why: format!("it is no disk cache: {why}"),
            remedy: format!("write {NOTATION}"),
            errno: rustix::io::Errno::INVAL.raw_os_error(),
        })?;
        DiskCache::open(settings).map(Some)
    }

    /// Bytes of its pieces, over all processes; nothing where that is not known yet.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        self.parts.shared.opened().bytes()
    }

    /// Its settings.
    #[must_use]
    pub fn settings(&self) -> &DiskCacheSettings {
        &self.parts.shared.settings
    }

    /// Its folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.settings().dir
    }

    /// Waits until what was fetched so far is written, at most that long. Is it?
    pub fn flush(&self, most: Duration) -> bool {
        let began = std::time::Instant::now();
        let own = self.parts.writer.flush(most);
        let left = most.saturating_sub(began.elapsed());
        own & self.below.as_ref().is_none_or(|below| below.flush(left))
    }
}

fn refused(dir: &Path, error: FolderError) -> SourceOpenError {
    SourceOpenError {
        what: SourceName::from(dir),
        why: format!("it cannot be a disk cache: {}", error.why),
        remedy: error.remedy,
        errno: error.errno,
    }
}

impl std::fmt::Debug for DiskCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.settings())
    }
}
