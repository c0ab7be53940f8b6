//! The engine: one cache, one set of limits and one pool of worker threads for any number of sources.
//!
//! The engine keeps state for a file only while the file has readers or is listed. When the last reader of a file closes, the engine
//! drops the file's pages and reuses its number, so a program may open a million files one after the other. The policy `auto` measures
//! all sources of an engine together, so use one engine for each kind of storage. An engine shares nothing with other engines except the
//! budget.
//!
//! ```text
//!   Engine::new(options)
//!     ├─ open(source A) ──► Reader ── try_clone ──► Reader      both share the pages of A
//!     └─ open(source B) ──► Reader                           B competes with A for the cache, in eviction order
//! ```

use crate::budget::{Budget, Reservation};
use crate::chunk::{MemoryMeter, Pool};
use crate::driver::{Driver, Gauges, StreamView};
use crate::error::OpenError;
use crate::eventlog::EventLog;
use crate::latency::Latencies;
use crate::options::{Options, Storage};
#[cfg(feature = "disk-cache")]
use crate::source::disk_cache::DiskCache;
use crate::source::{Defaults, tree::Tree};
use foreread_core::machine::Machine;
use foreread_core::policy::PolicySpec;
use foreread_core::stats::Stats;
use std::sync::Arc;

/// A cache for any number of sources, with its policy, limits and threads.
///
/// [`Reader::open`](crate::Reader::open) creates an engine for one source. To share a cache between many files, create an engine and open
/// the files with it. The files of an engine share one eviction order, and the policy `auto` already knows the storage when another file
/// is opened. `auto` measures one kind of storage, so use separate engines for local files and for objects. The pages of a file are
/// dropped when its last reader is dropped. A clone refers to the same engine; the engine ends when the last clone and the last reader
/// are dropped.
///
/// ```
/// use foreread::source::Mem;
/// use foreread::{Engine, Options};
/// use std::sync::Arc;
///
/// let engine = Engine::new(Options::default().cache_bytes(16 << 20))?;
/// let (one, two) = (engine.open(Arc::new(Mem::new(vec![1; 9000])))?, engine.open(Arc::new(Mem::new(vec![2; 9000])))?);
/// let mut buf = [0; 2];
/// one.read_at(&mut buf[..1], 0)?;
/// two.read_at(&mut buf[1..], 0)?;
/// assert_eq!((buf, engine.gauges().files), ([1, 2], 2));
/// drop((one, two));
/// assert_eq!((engine.gauges().files, engine.gauges().pages), (0, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Engine {
    shared: Arc<EngineShared>,
}

struct EngineShared {
    driver: Driver,
    policy: PolicySpec,
    cache_bytes: u64,
    options: Options,
    // Dropped last: the buffers are freed by then.
    reserved: Reservation,
}

impl Engine {
    /// Creates an engine with an empty cache. The policy does not depend on the size or the device of one source, because the engine may
    /// have many: it uses the defaults for files ([`Defaults::FILE`]).
    ///
    /// # Errors
    /// Returns an error if a setting is invalid.
    pub fn new(options: Options) -> Result<Engine, OpenError> {
        Engine::for_kind(options, Defaults::FILE)
    }

    /// Like [`Engine::new`], but for sources of one kind of storage: the kind determines the number of workers, the largest fetch, and
    /// the policy's `max` if it is not set.
    ///
    /// # Errors
    /// Returns an error if a setting is invalid.
    pub fn for_kind(options: Options, kind: Defaults) -> Result<Engine, OpenError> {
        Engine::build(
            &options,
            Storage {
                readahead_bytes: None,
                size: None,
                defaults: kind,
            },
        )
    }

    /// Like [`Engine::new`], but for the files of a tree: if the policy's `max` is not set, it is the readahead setting of the tree's
    /// device.
    ///
    /// # Errors
    /// Returns an error if a setting is invalid.
    pub fn for_tree(options: Options, tree: &dyn Tree) -> Result<Engine, OpenError> {
        let readahead_bytes = tree.readahead_bytes();
        Engine::build(
            &options,
            Storage {
                readahead_bytes,
                size: None,
                defaults: tree.defaults(),
            },
        )
    }

    /// Like [`Engine::new`], but for sources with these properties.
    pub(crate) fn build(options: &Options, storage: Storage) -> Result<Engine, OpenError> {
        let budget = options.budget.clone().unwrap_or_else(Budget::of_process);
        let wanted = options
            .cache_bytes
            .saturating_add(options.limits.spare_bytes);
        let reserved = budget.reserve(wanted, options.limits.spare_bytes)?;
        let mut options = options.clone();
        if reserved.bytes() < wanted {
            options.limits.spare_bytes = options.limits.spare_bytes.min(reserved.bytes() / 8);
            options.cache_bytes = reserved.bytes() - options.limits.spare_bytes;
        }
        let (policy, config) = options.resolve(&storage)?;
        let cache_bytes = config.capacity_pages * config.page.bytes();
        #[cfg(feature = "disk-cache")]
        if let Some(disk_cache) = &options.disk_cache {
            disk_cache.bound_queues(cache_bytes / 2);
        }
        // Each source sets its own alignment when it is added.
        let pool = Pool::new(config.page.bytes() as usize, 1, options.limits.spare_bytes);
        let log = match &options.event_log {
            None => None,
            Some(path) => {
                let text = path.display().to_string();
                let file = foreread_os::output::growing(path, true);
                let file = file.map_err(|error| OpenError::EventLog { path: text, error })?;
                Some(EventLog::new(Box::new(file), &config, &policy))
            }
        };
        let machine = Machine::new(config, policy.clone());
        let driver = Driver::new(
            machine,
            pool,
            log,
            options.workers(storage.defaults),
            budget,
        );
        Ok(Engine {
            shared: Arc::new(EngineShared {
                driver,
                policy,
                cache_bytes,
                options,
                reserved,
            }),
        })
    }

    /// The counters of all files of the engine since it was created.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.driver.stats().unwrap_or_default()
    }

    /// Whether an internal error has stopped the engine. Every read and every open of a stopped engine fails, so create a new engine for
    /// further files.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.shared.driver.is_stopped()
    }

    /// The engine's current activity: reads, fetches, threads and memory.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        self.shared.driver.gauges().unwrap_or_default()
    }

    /// Whether the engine is idle: no read waits, and no source is called before the next read. The call runs no code of sources or
    /// tasks, so it is allowed where such code must not run, for example in a garbage collector.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.shared.driver.is_quiet()
    }

    /// Latencies of the sources: the first histogram is of demand fetches, the second of fetches that started as readahead.
    #[must_use]
    pub fn latencies(&self) -> [Latencies; 2] {
        self.shared.driver.latencies()
    }

    /// The open descriptions with the most reads, at most `most` of them.
    #[must_use]
    pub fn streams(&self, most: usize) -> Vec<StreamView> {
        self.shared.driver.streams(most).unwrap_or_default()
    }

    /// The counters of the engine's buffer memory; they can be read even after the engine is dropped.
    #[must_use]
    pub fn meter(&self) -> Arc<MemoryMeter> {
        Arc::clone(self.shared.driver.meter())
    }

    /// The size of the cache in bytes: the requested size, or less if the budget had less memory left.
    #[must_use]
    pub fn cache_bytes(&self) -> u64 {
        self.shared.cache_bytes
    }

    /// Limits the cache to this size for now. [`Engine::cache_bytes`] does not change.
    #[cfg(feature = "fuse")]
    pub(crate) fn bound_cache(&self, bytes: u64) {
        // A stopped engine caches nothing.
        let _ = self
            .shared
            .driver
            .bound_cache(bytes.min(self.cache_bytes()));
    }

    /// The budget that this engine shares with other engines.
    #[must_use]
    pub fn budget(&self) -> &Arc<Budget> {
        self.shared.reserved.budget()
    }

    /// The policy with all its parameter values.
    #[must_use]
    pub fn policy(&self) -> &PolicySpec {
        &self.shared.policy
    }

    /// Ends the event log, if there is one: all lines are written to its file, and nothing is added afterwards. Returns the counters at
    /// the time of the log's last line, so that the log and the counters cover the same period.
    ///
    /// # Errors
    /// Returns the first error that occurred while writing the log.
    pub fn end_event_log(&self) -> std::io::Result<Stats> {
        self.shared.driver.end_log()
    }

    /// The cache on disk that this engine uses, if there is one.
    #[cfg(feature = "disk-cache")]
    #[must_use]
    pub fn disk_cache(&self) -> Option<&DiskCache> {
        self.shared.options.disk_cache.as_ref()
    }

    pub(crate) fn options(&self) -> &Options {
        &self.shared.options
    }

    pub(crate) fn driver(&self) -> &Driver {
        &self.shared.driver
    }
}
