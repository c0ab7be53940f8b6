//! State shared by the parts of a cache: versions, counters, and operations that are paused after an error.

use super::hash::VersionHash;
use super::object::ObjectFiles;
use super::speed::Speeds;
use crate::source::ExactVersion;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Pause of writes, or reads, after a disk error.
const PAUSE: Duration = Duration::from_secs(30);
/// Pause of writes if the disk is full.
const FULL_PAUSE: Duration = Duration::from_secs(60);
/// Errors of reads in a row after which the disk is not read for a while: one may be of one sector.
const MAX_ERRORS: u32 = 3;

/// A version of a source, as all readers of this process know it.
pub struct CachedVersion {
    pub exact: ExactVersion,
    pub hash: VersionHash,
    pub size: u64,
    /// Its files, while they are open.
    pub files: Mutex<Option<Arc<ObjectFiles>>>,
    /// An object was opened by its name as this version: it is noted as the latest one (latest.rs).
    pub is_named: AtomicBool,
    /// A thread looks at all of it, so that it may be passed through.
    pub is_looked_at: AtomicBool,
    /// Other processes that fetch it are waited for again after that.
    pub waits_after: Mutex<Option<Instant>>,
    /// The bucket's known content.
    #[cfg(feature = "object")]
    pub listing: super::runs::VersionListing,
}

impl CachedVersion {
    /// What people read of it.
    pub fn about(&self) -> String {
        let (shown, version) = (line(&self.exact.shown), line(&self.exact.version));
        format!("version {version}\nsize {}\nsource {shown}\n", self.size)
    }
}

impl CachedVersion {
    /// Whether a read of this version waits for another process that is fetching it.
    pub fn waits(&self) -> bool {
        let after = self
            .waits_after
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        after.is_none_or(|after| Instant::now() >= after)
    }

    /// They are not, for that long.
    pub fn wait_after(&self, pause: Duration) {
        let after = Some(Instant::now() + pause);
        *self
            .waits_after
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = after;
    }
}

fn line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// What every tier has.
pub struct TierState {
    /// As a line of the log names it.
    name: String,
    pub counts: Counts,
    pub speeds: Speeds,
    pub writes: Switch,
    pub reads: Switch,
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
            files: Mutex::default(),
            is_named: AtomicBool::new(false),
            is_looked_at: AtomicBool::new(false),
            waits_after: Mutex::default(),
            #[cfg(feature = "object")]
            listing: super::runs::VersionListing::default(),
        });
        versions.insert(hash, Arc::downgrade(&version));
        version
    }

    /// Bytes could not be read.
    pub fn read_failed(&self, errno: Errno) {
        Counts::add(&self.counts.read_errors, 1);
        if self.reads.failed() {
            self.writes.off(PAUSE);
            self.report("reading", &errno_text(errno), "the store is read instead");
        }
    }

    /// Bytes could not be written.
    pub fn write_failed(&self, why: &str) {
        self.writes.off(PAUSE);
        self.report("writing", why, "reads continue from the store");
    }

    /// Bytes could not be written to this disk.
    pub fn disk_failed(&self, errno: Errno) {
        if !is_full(errno) {
            return self.write_failed(&errno_text(errno));
        }
        self.writes.off(FULL_PAUSE);
        let pause = FULL_PAUSE.as_secs();
        self.say(&format!(
            "writes pause for {pause} s ({}); reads continue from the store",
            errno_text(errno)
        ));
    }

    /// Bytes have no room.
    pub fn no_room(&self, is_disk_full: bool) {
        let why = if is_disk_full {
            "the disk has no space beyond the reserve"
        } else {
            "its limit leaves no room"
        };
        self.say(&format!(
            "nothing is written, because {why}; reads continue from the store"
        ));
    }

    /// Bytes were written.
    pub fn wrote(&self, bytes: u64) {
        Counts::add(&self.counts.written, 1);
        Counts::add(&self.counts.written_bytes, bytes);
    }

    /// One line for all that goes wrong at about the same time.
    pub fn say(&self, text: &str) {
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
            "{what} failed ({why}) and is paused for {pause} s; {goes_on}"
        ));
    }
}

/// Has the disk, or a quota, no room?
pub fn is_full(errno: Errno) -> bool {
    matches!(errno, Errno::NOSPC | Errno::DQUOT)
}

fn errno_text(errno: Errno) -> String {
    crate::source::errno_text(errno.raw_os_error())
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

    /// Off from now on, for that long.
    pub fn off(&self, pause: Duration) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (state.until, state.errors) = (Some(Instant::now() + pause), 0);
    }

    /// One more error. Is it off now?
    pub fn failed(&self) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.errors += 1;
        if state.errors < MAX_ERRORS {
            return false;
        }
        (state.until, state.errors) = (Some(Instant::now() + PAUSE), 0);
        true
    }

    pub fn worked(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).errors = 0;
    }
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a [`super::DiskCache`] of this process since it was opened.
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
    /// Parts of fetches requested from the store.
    misses,
    /// Their bytes.
    miss_bytes,
    /// Runs of blocks written, each of at most 1 MiB.
    written,
    /// Bytes of these.
    written_bytes,
    /// Bytes that were not written because the disk did not keep up.
    dropped_bytes,
    /// Runs that were not written because of an error, or because there was no room.
    refused_writes,
    /// Reads of the disk that failed.
    read_errors,
    /// Invalid blocks and headers, which were removed.
    wrong,
    /// Versions, or parts of large ones, removed to make room.
    evicted,
    /// Their bytes on the disk.
    evicted_bytes,
    /// Cached bytes that were read from the store, because it is faster.
    passed_over_bytes,
    /// Fetches that waited for another process with the same fetch.
    waits,
    /// Fully verified files, for FUSE passthrough.
    verified,
}

impl Counts {
    pub fn add(of: &AtomicU64, more: u64) {
        of.fetch_add(more, Ordering::Relaxed);
    }
}
