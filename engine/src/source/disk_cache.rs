//! The disk cache below the memory cache: it keeps fetched bytes after the process has ended, and shares them with other processes.
//!
//! The disk cache holds data of sources with an exact version ([`Source::exact_version`]): objects with a strong ETag or a
//! generation. All other sources bypass the disk cache. File names serve as the index, so the cache needs no repair, and opening it
//! reads no index.
//!
//! ```text
//!   reader ──► engine (memory, readahead) ──► CachedSource ──► files below DIR/foreread-cache-2
//!                                               └─ absent ──► the source, and a copy is written in the background
//! ```
//! | file | content |
//! |---|---|
//! | folder, account, claims | the folder: access without following links, total bytes, fetches in progress |
//! | hash, object | names and checksums; the two files of a version |
//! | whole | versions that the kernel reads by FUSE passthrough |
//! | cached | split a fetch into parts from disk and from the store |
//! | tier, disk, bucket, runs | the interface of a tier; its two kinds, a folder and a bucket |
//! | writer, evict | background writes, and eviction; a tier with its writer, and the shared tier below it |
//! | speed | bypasses a disk that is slower than the store |
//! | fill | fetches all objects below a prefix before they are read |
//! | names, kept_tree | cached folder listings, which the next mount shows before the store has answered |
//! | latest | the version of each object that was read last |
//! | inspect | lists and verifies the cache for the `foreread cache` command |
//!
//! The disk cache never fails a read because of a disk error, and never follows a symbolic link in its folder. The disk cache verifies
//! the checksums of all cached bytes that it serves itself. The kernel serves files for FUSE passthrough; such a file is verified when it
//! is opened, unless it was recorded as complete and valid before (see `whole`).

mod account;
mod bucket;
mod cached;
mod claims;
mod disk;
mod evict;
mod fill;
mod folder;
mod hash;
mod inspect;
mod kept_tree;
mod latest;
mod names;
mod object;
mod runs;
mod settings;
mod shared;
mod speed;
mod tier;
mod whole;
mod writer;

use super::object::{self as store, ObjectSettings, Prefix};
use super::tree::Tree;
use super::{Source, SourceName, SourceOpenError};
use bucket::BucketTier;
use cached::CachedSource;
use disk::DiskTier;
pub use fill::{CacheFillCounts, CacheFillEnd, CacheFillReport};
pub use folder::OLD_FOLDER;
pub use inspect::{BlockState, CacheInspector, TrimCounts, VersionSummary};
pub use names::ListingSummary;
pub use settings::{DiskCacheSettings, FreeSpace, NOTATION, SharedBucket, SharedCache};
pub use shared::DiskCacheCounts;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use writer::{Parts, Writer};

/// The environment variable that configures the disk cache of the commands. The value of this variable must have the form
/// [`NOTATION`].
pub const VARIABLE: &str = "FOREREAD_DISK_CACHE";

/// A cache on disk. All clones share one cache. Opening the same folder again with the same settings returns the cache that is
/// already open in this process.
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
    disk: Arc<DiskTier>,
    parts: Arc<Parts>,
}

#[derive(Default)]
pub(crate) struct OpenCaches(Vec<OpenCache>);

struct OpenCache {
    settings: DiskCacheSettings,
    /// The process that opened it: a forked child does not have its parent's threads.
    process: u32,
    disk: Weak<DiskTier>,
    parts: Weak<Parts>,
}

/// Locks the list of open caches. A thread that is about to fork holds the lock, too.
pub(crate) fn hold() -> MutexGuard<'static, OpenCaches> {
    static OPEN: Mutex<OpenCaches> = Mutex::new(OpenCaches(Vec::new()));
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DiskCache {
    /// Opens a cache, and creates its folder if needed. The time to open a cache does not depend on its size.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be created or is not writable, or if other users may write to it.
    pub fn open(settings: DiskCacheSettings) -> Result<DiskCache, SourceOpenError> {
        DiskCache::open_with(settings, None)
    }

    /// Like [`DiskCache::open`], but accesses a shared bucket with these settings instead of those of the environment.
    ///
    /// # Errors
    /// Returns the errors of [`DiskCache::open`].
    pub fn open_with(
        settings: DiskCacheSettings,
        objects: impl Into<Option<ObjectSettings>>,
    ) -> Result<DiskCache, SourceOpenError> {
        let shared = settings.shared.as_ref();
        let below = shared.map(|shared| open_shared(shared, &settings, objects.into()));
        let below = below.transpose()?;
        let whole = |dir: &Path| dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf());
        if let Some(SharedCache::Folder { dir, .. }) = &settings.shared
            && whole(dir) == whole(&settings.dir)
        {
            return Err(SourceOpenError::new(
                settings.dir.as_path(),
                "the disk cache and its shared cache are the same folder",
                "use another folder on this machine for the disk cache",
                rustix::io::Errno::INVAL.raw_os_error(),
            ));
        }
        let process = std::process::id();
        let mut open = hold();
        open.0.retain(|cache| cache.parts.strong_count() > 0);
        let is_same = |cache: &&OpenCache| cache.settings == settings && cache.process == process;
        let known = open
            .0
            .iter()
            .find(is_same)
            .and_then(|cache| cache.parts.upgrade().zip(cache.disk.upgrade()));
        if let Some((parts, disk)) = known {
            return Ok(DiskCache { disk, parts });
        }
        let disk = Arc::new(DiskTier::open(settings.clone())?);
        let parts = Arc::new(Parts {
            writer: Arc::new(Writer::new(disk.clone(), 1)),
            tier: disk.clone(),
            below,
        });
        open.0.push(OpenCache {
            settings,
            process,
            disk: Arc::downgrade(&disk),
            parts: Arc::downgrade(&parts),
        });
        Ok(DiskCache { disk, parts })
    }

    /// Opens a source by its name. The request for an object is conditional if the cache has the first bytes of the version that was read
    /// last. If that version is still current, the store answers 304 and sends no bytes.
    ///
    /// # Errors
    /// Returns the errors of [`source::open`](super::open).
    pub fn open_source(&self, name: &SourceName) -> Result<Arc<dyn Source>, SourceOpenError> {
        if super::is_object(name) {
            let settings = store::settings(name)?;
            return Ok(Arc::new(self.open_object(name.clone(), settings)?));
        }
        super::open(name)
    }

    /// Like [`DiskCache::open_source`] for an object, but with these settings instead of those of the environment.
    ///
    /// # Errors
    /// Returns the errors of [`Object::open_with`](super::Object::open_with).
    pub fn open_object(
        &self,
        name: impl Into<SourceName>,
        settings: ObjectSettings,
    ) -> Result<super::Object, SourceOpenError> {
        let name = name.into();
        let shown = name.to_string();
        let held = |source: &str| self.disk.latest(source, &shown, store::FIRST_BYTES);
        super::Object::open_unless(name, settings, &held)
    }

    /// Opens a source as a tree. Folders of a prefix that an earlier mount has listed are shown from the cached listing. Before the first
    /// file of a folder with a cached listing is opened, the listing is checked with the store ([`DiskCacheSettings::keeps_names`]). This
    /// function sends no request if the listing of the root folder is cached.
    ///
    /// # Errors
    /// Returns the errors of [`source::open_tree`](super::open_tree).
    pub fn open_tree(&self, name: &SourceName) -> Result<Arc<dyn Tree>, SourceOpenError> {
        if store::names_a_prefix(name) {
            return self.open_prefix(name.clone(), store::settings(name)?);
        }
        super::open_tree(name)
    }

    /// Like [`DiskCache::open_tree`] for a prefix, but with these settings instead of those of the environment.
    ///
    /// # Errors
    /// Returns the errors of [`Prefix::open_with`].
    pub fn open_prefix(
        &self,
        name: impl Into<SourceName>,
        settings: ObjectSettings,
    ) -> Result<Arc<dyn Tree>, SourceOpenError> {
        if !self.settings().keeps_names {
            return Ok(Arc::new(Prefix::open_with(name, settings)?));
        }
        let tree = kept_tree::KeptTree::open(self, name.into(), settings)?;
        Ok(Arc::new(tree))
    }

    /// Wraps a source with this cache. A source without an exact version is returned unchanged, and is not cached.
    #[must_use]
    pub fn over(&self, source: Arc<dyn Source>) -> Arc<dyn Source> {
        if source.exact_version().is_none() {
            return source;
        }
        CachedSource::over(source, &self.parts)
    }

    /// Returns the counters of this cache in this process.
    #[must_use]
    pub fn counts(&self) -> DiskCacheCounts {
        self.parts.tier.state().counts.now()
    }

    /// Returns the counters of the shared tier (a folder or bucket that several machines share), if there is one.
    #[must_use]
    pub fn shared_counts(&self) -> Option<DiskCacheCounts> {
        let below = self.parts.below.as_ref()?;
        Some(below.tier.state().counts.now())
    }

    /// Opens the cache that a text of the form [`NOTATION`] describes. Returns `None` if the text is empty.
    ///
    /// # Errors
    /// Returns an error if the text is invalid or the folder cannot be used.
    pub fn named(text: &str) -> Result<Option<DiskCache>, SourceOpenError> {
        if text.is_empty() {
            return Ok(None);
        }
        let settings = DiskCacheSettings::parse(text).map_err(|why| {
            SourceOpenError::new(
                // The shared name may contain credentials.
                text.split(",shared=").next().unwrap_or_default(),
                format!("not a disk cache: {why}"),
                format!("write {NOTATION}"),
                rustix::io::Errno::INVAL.raw_os_error(),
            )
        })?;
        DiskCache::open(settings).map(Some)
    }

    /// Like [`DiskCache::named`], but for a server: if the folder cannot be used now, it logs one warning and returns `None`, so that the
    /// server runs without a disk cache. If the text is invalid, or other users may write to the folder, this still returns an
    /// error.
    ///
    /// # Errors
    /// Returns the errors of [`DiskCache::named`].
    pub fn if_usable(text: &str) -> Result<Option<DiskCache>, SourceOpenError> {
        use rustix::io::Errno;
        DiskCache::named(text).or_else(|error| {
            let settings = [Errno::INVAL, Errno::PERM, Errno::OPNOTSUPP];
            if settings
                .iter()
                .any(|errno| errno.raw_os_error() == error.errno)
            {
                return Err(error);
            }
            tracing::warn!("{error}; continuing without a disk cache");
            Ok(None)
        })
    }

    /// Total bytes of the cache's files, written by all processes. Returns `None` if the total is not known.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        self.disk.bytes()
    }

    /// Returns the settings of this cache.
    #[must_use]
    pub fn settings(&self) -> &DiskCacheSettings {
        &self.disk.settings
    }

    /// Returns the folder that was given in the settings.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.settings().dir
    }

    /// Limits the memory of queued writes from now on.
    pub(crate) fn bound_queues(&self, bytes: u64) {
        self.parts.bound_queues(bytes);
    }

    /// Waits at most this long until all fetched data is written to disk. Returns true if all data is written.
    pub fn flush(&self, most: Duration) -> bool {
        self.parts.flush(most)
    }
}

fn open_shared(
    shared: &SharedCache,
    own: &DiskCacheSettings,
    objects: Option<ObjectSettings>,
) -> Result<Arc<Parts>, SourceOpenError> {
    match shared {
        SharedCache::Folder { dir, size_bytes } => {
            let settings = DiskCacheSettings {
                dir: dir.clone(),
                size_bytes: *size_bytes,
                others_trusted: true,
                shared: None,
                ..own.clone()
            };
            Ok(DiskCache::open(settings)?.parts)
        }
        SharedCache::Bucket(bucket) => {
            let tier = BucketTier::open(bucket, objects)?;
            Ok(Arc::new(Parts {
                writer: Arc::new(Writer::new(tier.clone(), bucket::WRITERS)),
                tier,
                below: None,
            }))
        }
    }
}

impl std::fmt::Debug for DiskCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.settings())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, Options};

    /// Data that is queued for the disk also uses memory.
    #[test]
    fn a_small_cache_in_memory_has_a_short_queue_to_the_disk() {
        let dir = tempfile::tempdir().expect("a folder");
        let settings = DiskCacheSettings::new(dir.path().join("cache"));
        let cache = DiskCache::open(settings).unwrap_or_else(|error| panic!("{error}"));
        let queue = || cache.parts.writer.most_queued();
        let before = queue();
        let options = Options::default().cache_bytes(16 << 20).disk_cache(&cache);
        let _engine = Engine::new(options).expect("an engine");
        assert_eq!(queue(), before.min(8 << 20));
    }
}
