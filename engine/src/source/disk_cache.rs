//! The disk cache below the memory cache: fetched bytes remain after the process has ended, and are shared with other processes.
//!
//! It caches sources with an exact version ([`Source::exact_version`]): objects with a strong ETag or a
//! generation. Other sources bypass it. The file system is the index: nothing needs repair, and nothing is read
//! before the first byte.
//!
//! ```text
//!   reader ──► engine (memory, readahead) ──► CachedSource ──► files below DIR/foreread-cache-2
//!                                               └─ absent ──► the source, and a copy is written in the background
//! ```
//! | file | is about |
//! |---|---|
//! | folder, account, claims | the folder: paths without links, total bytes, running fetches |
//! | hash, object | names and checksums; the two files of a version |
//! | whole | versions that the kernel reads by FUSE passthrough |
//! | cached, sinks | split a fetch into parts from disk and from the store |
//! | tier, disk, bucket, runs | a folder or a bucket as the place of bytes |
//! | parts | a tier with its writer, and the shared tier below it |
//! | writer, evict | background writes, and eviction |
//! | speed | bypasses a disk that is slower than the store |
//! | fill | all objects below a prefix, fetched before they are read |
//! | names, latest, kept_tree | the names of folders, shown by the next mount before the store has answered; the version that was read last |
//! | inspect | listing and verification for the command |
//!
//! Never: fails a read because of the disk, trusts a file without its checksums, or follows a link below the folder.

mod account;
#[cfg(feature = "object")]
mod bucket;
mod cached;
mod claims;
mod disk;
mod evict;
mod fill;
mod folder;
mod hash;
mod inspect;
#[cfg(feature = "object")]
mod kept_tree;
mod latest;
#[cfg_attr(
    not(feature = "object"),
    allow(dead_code, reason = "only prefixes of stores are cached")
)]
mod names;
mod object;
mod parts;
#[cfg(feature = "object")]
mod runs;
mod settings;
mod shared;
mod sinks;
mod speed;
mod tier;
mod whole;
mod writer;

use super::tree::Tree;
use super::{Source, SourceName, SourceOpenError};
use cached::CachedSource;
use disk::DiskTier;
pub use fill::{CacheFillCounts, CacheFillEnd, CacheFillReport, CacheFiller, ObjectLeftOut};
use folder::FolderError;
pub use folder::OLD_FOLDER;
pub use inspect::{
    BlockState, CacheInspector, CheckedBlocks, DiskSpace, TrimCounts, VersionList, VersionSummary,
};
pub use names::ListingSummary;
use parts::Parts;
pub use parts::SharedTier;
pub use settings::{
    DiskCacheSettings, FreeSpace, KeptNames, NOTATION, SharedBucket, SharedCache, SharedFolder,
};
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
    disk: Arc<DiskTier>,
    parts: Arc<Parts>,
}

/// The function that opens the shared tier.
#[derive(Default)]
struct OpenSettings {
    /// Of a bucket. Default those of the environment.
    #[cfg(feature = "object")]
    objects: Option<super::object::ObjectSettings>,
}

#[cfg(feature = "object")]
impl OpenSettings {
    fn object_settings(
        &self,
        name: &SourceName,
    ) -> Result<super::object::ObjectSettings, SourceOpenError> {
        let settings = self.objects.clone();
        settings.map_or_else(|| super::object::settings(name), Ok)
    }
}

/// Those that are open in this process.
#[derive(Default)]
pub(crate) struct OpenCaches(Vec<OpenCache>);

struct OpenCache {
    settings: DiskCacheSettings,
    /// A child of a fork has no threads of its parent.
    process: u32,
    disk: Weak<DiskTier>,
    parts: Weak<Parts>,
}

/// Those of this process, locked; also for a thread that is about to fork.
pub(crate) fn hold() -> MutexGuard<'static, OpenCaches> {
    static OPEN: Mutex<OpenCaches> = Mutex::new(OpenCaches(Vec::new()));
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DiskCache {
    /// Opens a cache, and creates its folder if needed. The time does not depend on its content.
    ///
    /// # Errors
    /// The folder cannot be made or written, or other users may write it.
    pub fn open(settings: DiskCacheSettings) -> Result<DiskCache, SourceOpenError> {
        DiskCache::open_by(settings, &OpenSettings::default())
    }

    /// The same with other settings for a bucket that it shares than those of the environment.
    ///
    /// # Errors
    /// See [`DiskCache::open`].
    #[cfg(feature = "object")]
    pub fn open_with(
        settings: DiskCacheSettings,
        objects: super::object::ObjectSettings,
    ) -> Result<DiskCache, SourceOpenError> {
        let objects = Some(objects);
        DiskCache::open_by(settings, &OpenSettings { objects })
    }

    fn open_by(
        settings: DiskCacheSettings,
        open_settings: &OpenSettings,
    ) -> Result<DiskCache, SourceOpenError> {
        let below = settings
            .shared
            .as_ref()
            .map(|shared| open_shared(shared, &settings, open_settings))
            .transpose()?;
        let whole = |dir: &Path| dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf());
        if let Some(SharedCache::Folder(shared)) = &settings.shared
            && whole(&shared.dir) == whole(&settings.dir)
        {
            return Err(SourceOpenError {
                what: SourceName::from(settings.dir.as_path()),
                why: "it is a disk cache and the shared folder below it".to_string(),
                remedy: "name another folder of this machine".to_string(),
                errno: rustix::io::Errno::INVAL.raw_os_error(),
                cause: None,
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
            .and_then(|cache| cache.parts.upgrade().zip(cache.disk.upgrade()));
        if let Some((parts, disk)) = known {
            return Ok(DiskCache { disk, parts });
        }
        let disk =
            DiskTier::open(settings.clone()).map_err(|error| refused(&settings.dir, error))?;
        let disk = Arc::new(disk);
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

    /// Opens a source by its name. Of an object whose first bytes this cache has, no bytes are asked for while it is the version that was read last:
    /// the store answers 304.
    ///
    /// # Errors
    /// See [`source::open`](super::open).
    pub fn open_source(&self, name: &SourceName) -> Result<Arc<dyn Source>, SourceOpenError> {
        #[cfg(feature = "object")]
        if super::is_object(name) {
            let settings = super::object::settings(name)?;
            return Ok(Arc::new(self.open_object(name.clone(), settings)?));
        }
        super::open(name)
    }

    /// The same of an object, with other settings than those of the environment.
    ///
    /// # Errors
    /// See [`Object::open_with`](super::Object::open_with).
    #[cfg(feature = "object")]
    pub fn open_object(
        &self,
        name: impl Into<SourceName>,
        settings: super::object::ObjectSettings,
    ) -> Result<super::Object, SourceOpenError> {
        let name = name.into();
        let shown = name.to_string();
        let first_bytes = super::object::FIRST_BYTES;
        let held = |source: &str| self.disk.latest(source, &shown, first_bytes);
        super::Object::open_unless(name, settings, &held)
    }

    /// Opens a source as a tree. The folders of a prefix that an earlier mount has listed are shown as they were then, and checked before the
    /// first file of them is opened ([`KeptNames`]); the store is asked when that begins.
    ///
    /// # Errors
    /// See [`source::open_tree`](super::open_tree).
    pub fn open_tree(&self, name: &SourceName) -> Result<Arc<dyn Tree>, SourceOpenError> {
        #[cfg(feature = "object")]
        if super::object::names_a_prefix(name) {
            return self.open_prefix(name.clone(), super::object::settings(name)?);
        }
        super::open_tree(name)
    }

    /// The same of a prefix, with other settings than those of the environment.
    ///
    /// # Errors
    /// See [`Prefix::open_with`](super::object::Prefix::open_with).
    #[cfg(feature = "object")]
    pub fn open_prefix(
        &self,
        name: impl Into<SourceName>,
        settings: super::object::ObjectSettings,
    ) -> Result<Arc<dyn Tree>, SourceOpenError> {
        if self.settings().names == KeptNames::Off {
            return Ok(Arc::new(super::object::Prefix::open_with(name, settings)?));
        }
        let tree = kept_tree::KeptTree::open(self, name.into(), settings)?;
        Ok(Arc::new(tree))
    }

    /// Wraps a source with this cache. A source without an exact version is returned unchanged.
    #[must_use]
    pub fn over(&self, source: Arc<dyn Source>) -> Arc<dyn Source> {
        if source.exact_version().is_none() {
            return source;
        }
        CachedSource::over(source, &self.parts)
    }

    /// Its counters for this process.
    #[must_use]
    pub fn counts(&self) -> DiskCacheCounts {
        self.parts.tier.state().counts.now()
    }

    /// The tier shared by several machines, if any.
    #[must_use]
    pub fn shared(&self) -> Option<&SharedTier> {
        self.parts.below.as_ref()
    }

    /// The cache named by a text in [`NOTATION`]; `None` for an empty text.
    ///
    /// # Errors
    /// A line with the problem of the text or the folder.
    pub fn named(text: &str) -> Result<Option<DiskCache>, SourceOpenError> {
        if text.is_empty() {
            return Ok(None);
        }
        let settings = DiskCacheSettings::parse(text).map_err(|why| SourceOpenError {
            // The shared name may contain credentials.
            what: SourceName::from(text.split(",shared=").next().unwrap_or_default()),
            why: format!("not a disk cache: {why}"),
            remedy: format!("write {NOTATION}"),
            errno: rustix::io::Errno::INVAL.raw_os_error(),
            cause: None,
        })?;
        DiskCache::open(settings).map(Some)
    }

    /// The same for a server: if the folder cannot be used now, it continues without and reports that once. An invalid text or a refused folder
    /// because others may write it stays an error.
    ///
    /// # Errors
    /// See [`DiskCache::named`].
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

    /// Total bytes of its files, over all processes; `None` if unknown.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        self.disk.bytes()
    }

    /// Its settings.
    #[must_use]
    pub fn settings(&self) -> &DiskCacheSettings {
        &self.disk.settings
    }

    /// Its folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.settings().dir
    }

    /// Limits the memory of queued writes from now on.
    pub(crate) fn bound_queues(&self, bytes: u64) {
        self.parts.bound_queues(bytes);
    }

    /// Waits until all fetched data is written, at most this long. Returns whether it is.
    pub fn flush(&self, most: Duration) -> bool {
        self.parts.flush(most)
    }
}

fn open_shared(
    shared: &SharedCache,
    own: &DiskCacheSettings,
    open: &OpenSettings,
) -> Result<SharedTier, SourceOpenError> {
    match shared {
        SharedCache::Folder(shared) => {
            let settings = DiskCacheSettings {
                dir: shared.dir.clone(),
                size_bytes: shared.size_bytes,
                others_trusted: true,
                shared: None,
                ..own.clone()
            };
            Ok(SharedTier(DiskCache::open(settings)?.parts))
        }
        #[cfg(feature = "object")]
        SharedCache::Bucket(bucket) => {
            let tier = bucket::BucketTier::open(bucket, own, open)?;
            Ok(SharedTier(Arc::new(Parts {
                writer: Arc::new(Writer::new(tier.clone(), bucket::WRITERS)),
                tier,
                below: None,
            })))
        }
        #[cfg(not(feature = "object"))]
        SharedCache::Bucket(bucket) => {
            let _ = open;
            Err(SourceOpenError {
                what: bucket.name.clone(),
                why: "a bucket cannot be a shared cache: foreread was built without the feature `object`"
                    .to_string(),
                remedy: "build it with that feature, or share a folder".to_string(),
                errno: rustix::io::Errno::OPNOTSUPP.raw_os_error(),
                cause: None,
            })
        }
    }
}

fn refused(dir: &Path, error: FolderError) -> SourceOpenError {
    SourceOpenError {
        what: SourceName::from(dir),
        why: format!("it cannot be a disk cache: {}", error.why),
        remedy: error.remedy,
        errno: error.errno,
        cause: None,
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

    /// What waits to be written is memory, too.
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
