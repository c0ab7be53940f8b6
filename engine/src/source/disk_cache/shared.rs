//! State that all parts of a cache share: the versions that are open, the counters, and the operations that are paused after an
//! error.

use super::hash::VersionHash;
use super::object::ObjectFiles;
use super::speed::Speeds;
use crate::source::ExactVersion;
use crate::sync::lock;
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// Maximum number of versions with open files.
const MAX_OPEN: usize = 64;
/// Pause of writes, or reads, after a disk error.
const PAUSE: Duration = Duration::from_secs(30);
/// Pause of writes if the disk is full.
const FULL_PAUSE: Duration = Duration::from_secs(60);
/// After this many read errors in a row, the disk is not read for a while. A single error may concern one sector only.
const MAX_ERRORS: u32 = 3;

/// A version of a source, shared by all readers of this process.
pub struct CachedVersion {
    pub exact: ExactVersion,
    pub hash: VersionHash,
    pub size: u64,
    /// The open files of the tier, which close this version's when it is dropped.
    open: Arc<RecentFiles<ObjectFiles>>,
    /// Whether an object was opened by its name as this version. If so, it is noted as the latest version (latest.rs).
    pub is_named: AtomicBool,
    /// Whether a thread is verifying all of it for passthrough.
    pub is_looked_at: AtomicBool,
    /// Whether another process was fetching this version at the same time. It soon reads the bytes that this process writes.
    pub is_shared: AtomicBool,
    /// Whether reads wait for other processes that are fetching this version.
    pub waits: Switch,
    pub listing: super::runs::VersionListing,
}

impl CachedVersion {
    /// Returns a description for users, which is also stored in the checksum file.
    pub fn about(&self) -> String {
        let (shown, version) = (line(&self.exact.shown), line(&self.exact.version));
        format!("version {version}\nsize {}\nsource {shown}\n", self.size)
    }
}

impl Drop for CachedVersion {
    fn drop(&mut self) {
        self.open.close(self.hash);
    }
}

fn line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// Open files of at most this many versions, for the next use; those opened first are closed first. The space of a removed file is
/// freed only when the file is closed, so an eviction closes the removed ones ([`RecentFiles::retain`]).
pub struct RecentFiles<T> {
    files: Mutex<VecDeque<(VersionHash, Arc<T>)>>,
    most: usize,
}

impl<T> RecentFiles<T> {
    pub fn new(most: usize) -> RecentFiles<T> {
        RecentFiles {
            files: Mutex::default(),
            most,
        }
    }

    pub fn get(&self, hash: VersionHash) -> Option<Arc<T>> {
        let files = lock(&self.files);
        let found = files.iter().find(|(known, _)| *known == hash);
        found.map(|(_, files)| Arc::clone(files))
    }

    /// Keeps the open files of a version, in place of earlier ones.
    pub fn put(&self, hash: VersionHash, opened: T) -> Arc<T> {
        let opened = Arc::new(opened);
        let mut files = lock(&self.files);
        files.retain(|(known, _)| *known != hash);
        files.push_back((hash, Arc::clone(&opened)));
        if files.len() > self.most {
            files.pop_front();
        }
        opened
    }

    pub fn close(&self, hash: VersionHash) {
        lock(&self.files).retain(|(known, _)| *known != hash);
    }

    /// Closes all files but those for which `is_kept` returns true.
    pub fn retain(&self, is_kept: fn(&T) -> bool) {
        lock(&self.files).retain(|(_, files)| is_kept(files));
    }
}

/// State that every tier has, whether it is a folder or a bucket.
pub struct TierState {
    /// The name of the tier in log messages.
    name: String,
    pub counts: Counts,
    pub speeds: Speeds,
    pub open: Arc<RecentFiles<ObjectFiles>>,
    pub writes: Switch,
    pub reads: Switch,
    versions: Mutex<HashMap<VersionHash, Weak<CachedVersion>>>,
    /// When the last warning was logged.
    said: Mutex<Option<Instant>>,
}

impl TierState {
    pub fn new(name: String) -> TierState {
        TierState {
            name,
            counts: Counts::default(),
            speeds: Speeds::default(),
            open: Arc::new(RecentFiles::new(MAX_OPEN)),
            writes: Switch::default(),
            reads: Switch::default(),
            versions: Mutex::default(),
            said: Mutex::default(),
        }
    }

    pub fn version(&self, exact: ExactVersion, size: u64) -> Arc<CachedVersion> {
        let hash = VersionHash::of(&exact.source, &exact.version);
        let mut versions = lock(&self.versions);
        if let Some(known) = versions.get(&hash).and_then(Weak::upgrade) {
            return known;
        }
        // Remember at most twice as many versions as are in use.
        if versions.len() >= versions.capacity() {
            versions.retain(|_, version| version.strong_count() > 0);
        }
        let version = Arc::new(CachedVersion {
            exact,
            hash,
            size,
            open: Arc::clone(&self.open),
            is_named: AtomicBool::new(false),
            is_looked_at: AtomicBool::new(false),
            is_shared: AtomicBool::new(false),
            waits: Switch::default(),
            listing: super::runs::VersionListing::default(),
        });
        versions.insert(hash, Arc::downgrade(&version));
        version
    }

    /// Records that a read of the disk has failed. After several failures, the cache is not used for some time.
    pub fn read_failed(&self, errno: Errno) {
        Counts::add(&self.counts.read_errors, 1);
        if self.reads.failed() {
            self.writes.off(PAUSE);
            self.report("reading", &errno_text(errno), "the store is read instead");
        }
    }

    /// Records that a write has failed: nothing is written to the cache for some time.
    pub fn write_failed(&self, why: &str) {
        self.writes.off(PAUSE);
        self.report("writing", why, "reads continue from the store");
    }

    /// Logs that there was no space for a write, although old data was evicted. If the disk is full, nothing is written to the cache for
    /// some time: each attempt looks through the whole cache for something to evict.
    pub fn no_room(&self, why: &str, is_disk_full: bool) {
        let mut pauses = String::new();
        if is_disk_full {
            self.writes.off(FULL_PAUSE);
            pauses = format!(" for {} s", FULL_PAUSE.as_secs());
        }
        self.say(&format!(
            "nothing is written to the cache{pauses}, because {why}; reads continue from the store"
        ));
    }

    pub fn wrote(&self, bytes: u64) {
        Counts::add(&self.counts.written, 1);
        Counts::add(&self.counts.written_bytes, bytes);
    }

    /// Logs a warning. If several errors occur within a short time, only the first is logged.
    pub fn say(&self, text: &str) {
        let now = Instant::now();
        let mut said = lock(&self.said);
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

pub fn errno_text(errno: Errno) -> String {
    crate::source::errno_text(errno.raw_os_error())
}

/// A switch that can be turned off for a limited time; afterwards it is on again.
#[derive(Default)]
pub struct Switch(Mutex<SwitchState>);

#[derive(Default)]
struct SwitchState {
    until: Option<Instant>,
    errors: u32,
}

impl Switch {
    pub fn is_on(&self) -> bool {
        let mut state = lock(&self.0);
        if state.until.is_some_and(|until| Instant::now() >= until) {
            state.until = None;
        }
        state.until.is_none()
    }

    /// Turns the switch off for this long.
    pub fn off(&self, pause: Duration) {
        let mut state = lock(&self.0);
        (state.until, state.errors) = (Some(Instant::now() + pause), 0);
    }

    /// Counts one more error. Returns true if this error has turned the switch off.
    pub fn failed(&self) -> bool {
        let mut state = lock(&self.0);
        state.errors += 1;
        if state.errors < MAX_ERRORS {
            return false;
        }
        (state.until, state.errors) = (Some(Instant::now() + PAUSE), 0);
        true
    }

    pub fn worked(&self) {
        lock(&self.0).errors = 0;
    }
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a [`super::DiskCache`]: what this process has done with it since it was opened.
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
    /// Number of parts of fetches that were read from the disk.
    hits,
    /// Bytes of these parts.
    hit_bytes,
    /// Number of parts of fetches that were requested from the store.
    misses,
    /// Bytes of these parts.
    miss_bytes,
    /// Number of runs of blocks written. A run has at most 1 MiB.
    written,
    /// Bytes of these runs.
    written_bytes,
    /// Bytes that were not written because the disk did not keep up.
    dropped_bytes,
    /// Number of runs that were not written because of an error or for lack of room.
    refused_writes,
    /// Number of disk reads that failed.
    read_errors,
    /// Number of invalid blocks and headers, which were removed.
    wrong,
    /// Number of versions removed to make room; a removed part of a large version counts as one.
    evicted,
    /// Bytes that they used on disk.
    evicted_bytes,
    /// Cached bytes that were read from the store because it is faster than the disk.
    passed_over_bytes,
    /// Number of fetches that waited for another process that was fetching the same data.
    waits,
    /// Number of files that were fully verified for FUSE passthrough.
    verified,
}

impl Counts {
    pub fn add(of: &AtomicU64, more: u64) {
        of.fetch_add(more, Ordering::Relaxed);
    }
}
