//! What the parts of a cache share: the folder that is open, the counters, and what is switched off for a while after an error.

use super::files::CacheFiles;
use super::folder::FolderError;
use super::index::Index;
use super::piece::{Extent, VersionHash};
use super::settings::DiskCacheSettings;
use super::speed::Speeds;
use crate::source::ExactVersion;
use rustix::io::Errno;
use std::collections::HashMap;
#[cfg(feature = "object")]
use std::sync::Condvar;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

/// How long nothing is written, or read, after an error of the disk.
const PAUSE: Duration = Duration::from_secs(30);
/// Errors of reads in a row after which the disk is not read for a while: one may be of one sector.
const MAX_ERRORS: u32 = 3;

/// A version of a source, as all readers of this process know it.
pub struct CachedVersion {
    pub exact: ExactVersion,
    pub hash: VersionHash,
    pub size: u64,
    pub index: Index,
    /// An object was opened by its name as this version: it is noted as the latest one (latest.rs).
    pub is_named: AtomicBool,
    /// How the index is filled from a bucket.
    #[cfg(feature = "object")]
    pub listing: VersionListing,
}

impl CachedVersion {
    /// What people read of it.
    pub fn about(&self) -> String {
        format!(
            "source {}\nversion {}\nsize {}\n",
            line(&self.exact.shown),
            line(&self.exact.version),
            self.size
        )
    }
}

fn line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// How far the listing of a version is.
#[cfg(feature = "object")]
#[derive(Default)]
pub struct VersionListing {
    pub state: Mutex<VersionListingState>,
    pub ended: Condvar,
}

#[cfg(feature = "object")]
#[derive(Default)]
pub struct VersionListingState {
    pub began: Option<Instant>,
    pub took: Duration,
    /// The process that lists: a fork has none of its threads.
    pub runs_in: Option<u32>,
    pub has_ended: bool,
}

/// What every tier has.
pub struct TierState {
    /// As a line of the log names it.
    name: String,
    pub counts: Counts,
    pub speeds: Speeds,
    pub writes: Switch,
    pub reads: Switch,
    /// Other processes are waited for.
    pub waits: Switch,
    versions: Mutex<HashMap<VersionHash, Weak<CachedVersion>>>,
    /// When a warning was given.
    said: Mutex<Option<Instant>>,
}

impl TierState {
    pub fn new(name: String) -> TierState {
        TierState {
            name,
            counts: Counts::default(),
            speeds: Speeds::default(),
            writes: Switch::default(),
            reads: Switch::default(),
            waits: Switch::default(),
            versions: Mutex::default(),
            said: Mutex::default(),
        }
    }

    pub fn version(&self, exact: ExactVersion, size: u64) -> Arc<CachedVersion> {
        let hash = VersionHash::of(&exact.source, &exact.version);
        let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = versions.get(&hash).and_then(Weak::upgrade) {
            return known;
        }
        // Twice as many as are in use are remembered at most.
        if versions.len() >= versions.capacity() {
            versions.retain(|_, version| version.strong_count() > 0);
        }
        let version = Arc::new(CachedVersion {
            exact,
            hash,
            size,
            index: Index::default(),
            is_named: AtomicBool::new(false),
            #[cfg(feature = "object")]
            listing: VersionListing::default(),
        });
        versions.insert(hash, Arc::downgrade(&version));
        version
    }

    /// A piece could not be read.
    pub fn read_failed(&self, errno: Errno) {
        Counts::add(&self.counts.read_errors, 1);
        if self.reads.failed(Instant::now()) {
            self.writes.off(Instant::now());
            self.report("reading", &errno_text(errno), "the store is read instead");
        }
    }

    /// A piece could not be written.
    pub fn write_failed(&self, why: &str) {
        self.writes.off(Instant::now());
        self.report("writing", why, "reads go on from the store");
    }

    /// A piece was written.
    pub fn wrote(&self, extent: Extent) {
        Counts::add(&self.counts.written, 1);
        Counts::add(&self.counts.written_bytes, u64::from(extent.len));
    }

    /// One line for all that goes wrong at about the same time.
    fn say(&self, text: &str) {
        let now = Instant::now();
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_some_and(|said| now.duration_since(said) < PAUSE) {
            return;
        }
        *said = Some(now);
        tracing::warn!("{}: {text}", self.name);
    }

    pub fn report(&self, what: &str, why: &str, goes_on: &str) {
        let pause = PAUSE.as_secs();
        self.say(&format!(
            "{what} failed ({why}), and pauses for {pause} s; {goes_on}"
        ));
    }
}

fn errno_text(errno: Errno) -> String {
    crate::source::errno_text(errno.raw_os_error())
}

/// A folder as the place of pieces, with its settings.
pub struct CacheState {
    pub settings: DiskCacheSettings,
    opened: RwLock<Arc<CacheFiles>>,
    pub tier: TierState,
}

impl CacheState {
    pub fn open(settings: DiskCacheSettings) -> Result<CacheState, FolderError> {
        let opened = CacheFiles::open(&settings)?;
        let name = format!("disk cache {}", settings.dir.display());
        if opened.writable.is_none() {
            tracing::warn!("{name}: it cannot be written; what is there is read");
        }
        Ok(CacheState {
            settings,
            opened: RwLock::new(Arc::new(opened)),
            tier: TierState::new(name),
        })
    }

    pub fn opened(&self) -> Arc<CacheFiles> {
        Arc::clone(&self.opened.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The folder was removed: it is made anew.
    pub fn open_again(&self) -> bool {
        let Ok(opened) = CacheFiles::open(&self.settings) else {
            return false;
        };
        *self.opened.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(opened);
        true
    }

    /// Is a range, which is on the disk, to be read from the store?
    pub fn passes_over_disk(&self, bytes: u64) -> bool {
        !self.settings.reads_slow_disk && self.tier.speeds.passes_over_disk(bytes)
    }

    /// The disk could not be written.
    pub fn write_failed(&self, errno: Errno) {
        self.tier.write_failed(&errno_text(errno));
    }

    /// A piece has no room.
    pub fn no_room(&self, is_disk_full: bool) {
        let why = if is_disk_full {
            "the disk has no room beside what is to stay free"
        } else {
            "it is smaller than a piece"
        };
        self.tier.say(&format!(
            "nothing is written, because {why}; reads go on from the store"
        ));
    }
}

/// On, or off for a while.
#[derive(Default)]
pub struct Switch(Mutex<SwitchState>);

#[derive(Default)]
struct SwitchState {
    until: Option<Instant>,
    errors: u32,
}

impl Switch {
    pub fn is_on(&self) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.until.is_some_and(|until| Instant::now() >= until) {
            state.until = None;
        }
        state.until.is_none()
    }

    /// Off from now on, for a while.
    pub fn off(&self, now: Instant) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (state.until, state.errors) = (Some(now + PAUSE), 0);
    }

    /// One more error. Is it off now?
    pub fn failed(&self, now: Instant) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.errors += 1;
        if state.errors < MAX_ERRORS {
            return false;
        }
        (state.until, state.errors) = (Some(now + PAUSE), 0);
        true
    }

    pub fn worked(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).errors = 0;
    }
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a [`super::DiskCache`] of this process has done since it was opened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct DiskCacheCounts {
            $($(#[$doc])* pub $name: u64,)*
        }

        #[derive(Default)]
        pub struct Counts {
            $(pub $name: AtomicU64,)*
        }

        impl Counts {
            pub fn now(&self) -> DiskCacheCounts {
                DiskCacheCounts {
                    $($name: self.$name.load(Ordering::Relaxed),)*
                }
            }
        }
    };
}

counts! {
    /// Parts of fetches that were read from the disk.
    hits,
    /// Their bytes.
    hit_bytes,
    /// Parts of fetches that were asked of the store.
    misses,
    /// Their bytes.
    miss_bytes,
    /// Pieces written.
    written,
    /// Bytes of these.
    written_bytes,
    /// Bytes that were not written because the disk did not keep up.
    dropped_bytes,
    /// Pieces that were not written because of an error, or because there was no room.
    refused_writes,
    /// Pieces that could not be read.
    read_errors,
    /// Pieces that were not what their names or checksums say, and were removed.
    wrong,
    /// Pieces removed to make room.
    evicted,
    /// Bytes of their files.
    evicted_bytes,
    /// Bytes on the disk that were asked of the store, because it is faster.
    passed_over_bytes,
    /// Fetches that waited for another process that had begun the same.
    waits,
}

impl Counts {
    pub fn add(of: &AtomicU64, more: u64) {
        of.fetch_add(more, Ordering::Relaxed);
    }
}
