//! One cache, one set of limits and one pool of worker threads for any number of sources.
//!
//! A file is known from its first reader to its last: then its pages are dropped and its number is used again, so a program
//! may open a million files one after the other. The policy `auto` measures one source: give each kind of storage an engine. Never: shares more with another engine than the
//! budget they were given.
//!
//! ```text
//!   Engine::new(options)
//!     ├─ open(source A) ──► Reader ── try_clone ──► Reader      the pages of A are theirs together
//!     └─ open(source B) ──► Reader                           B competes with A for the cache, by the order of eviction
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
use crate::source::{Defaults, Io, Source, tree::Tree};
use foreread_core::event::Advice;
use foreread_core::machine::Machine;
use foreread_core::policy::PolicySpec;
use foreread_core::stats::Stats;
use std::sync::Arc;

/// A cache with its policy, its limits and its threads, for any number of sources.
///
/// [`Reader::open`](crate::Reader::open) creates an engine for one source. Create one yourself to share a cache between many files: they compete for it by the
/// order of eviction, and the policy `auto` knows the storage when the next one is opened. It measures one kind of storage, so give
/// local files and objects an engine each. The pages of a file are dropped with its last reader. A clone is the same engine; it ends
/// with the last clone and the last reader.
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
    io: Io,
    appending: bool,
    hint: Option<Advice>,
    #[cfg(feature = "disk-cache")]
    disk_cache: Option<DiskCache>,
    // Given back last: the buffers are gone by then.
    reserved: Reservation,
}

impl Engine {
    /// An engine with an empty cache. Its policy cannot go by the size or the device of a source, since it will have many:
    /// it is made for files ([`Defaults::FILE`]).
    ///
    /// # Errors
    /// A setting does not fit.
    pub fn new(options: Options) -> Result<Engine, OpenError> {
        Engine::build(
            &options,
            Storage {
                readahead_bytes: None,
                size: None,
                defaults: Defaults::FILE,
            },
        )
    }

    /// The same for sources of one kind of storage: its workers, its largest fetch, and the `max` that a policy leaves open.
    ///
    /// # Errors
    /// A setting does not fit.
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

    /// The same for the files of a tree: a `max` that is left open is the readahead setting of its device.
    ///
    /// # Errors
    /// A setting does not fit.
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

    /// The same for sources with these properties.
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
        // The alignment that a source needs comes with the source.
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
        let (io, appending, hint) = (options.io, options.appending, options.hint);
        Ok(Engine {
            shared: Arc::new(EngineShared {
                driver,
                policy,
                cache_bytes,
                io,
                appending,
                hint,
                #[cfg(feature = "disk-cache")]
                disk_cache: options.disk_cache.clone(),
                reserved,
            }),
        })
    }

    /// The counters since the engine was made, of all its files.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.driver.stats().unwrap_or_default()
    }

    /// Whether an internal error has stopped it: every read and every open of it fails from then on, so it is not to be kept for later ones.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.shared.driver.is_stopped()
    }

    /// The current activity.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        self.shared.driver.gauges().unwrap_or_default()
    }

    /// Whether the engine is idle: no read waits, and no source is called before the next read. Calls no code of sources or tasks, so it may be called
    /// where the engine must not run, for example by a garbage collector.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.shared.driver.is_quiet()
    }

    /// Latencies of sources for demand fetches, and for fetches that started as readahead.
    #[must_use]
    pub fn latencies(&self) -> [Latencies; 2] {
        self.shared.driver.latencies()
    }

    /// The open descriptions with the most reads, at most `most` of them.
    #[must_use]
    pub fn streams(&self, most: usize) -> Vec<StreamView> {
        self.shared.driver.streams(most).unwrap_or_default()
    }

    /// The gauge of memory; it outlives the engine.
    #[must_use]
    pub fn meter(&self) -> Arc<MemoryMeter> {
        Arc::clone(self.shared.driver.meter())
    }

    /// The cache size: as requested, or less if the budget did not have it.
    #[must_use]
    pub fn cache_bytes(&self) -> u64 {
        self.shared.cache_bytes
    }

    /// It caches no more than this for now. [`Engine::cache_bytes`] stays what it may cache.
    #[cfg(feature = "fuse")]
    pub(crate) fn bound_cache(&self, bytes: u64) {
        // One that has stopped caches nothing.
        let _ = self
            .shared
            .driver
            .bound_cache(bytes.min(self.cache_bytes()));
    }

    /// What it shares with other engines.
    #[must_use]
    pub fn budget(&self) -> &Arc<Budget> {
        self.shared.reserved.budget()
    }

    /// The policy with all its values.
    #[must_use]
    pub fn policy(&self) -> &PolicySpec {
        &self.shared.policy
    }

    /// Brings the event log to its file. Also done when the engine ends.
    ///
    /// # Errors
    /// The first error there was in writing it.
    pub fn flush_event_log(&self) -> std::io::Result<()> {
        self.shared.driver.flush_log()
    }

    /// Ends the event log, if there is one: it is brought to its file, and nothing more is written to it. The counters as
    /// they were at its last line, so that a log and the figures of a run are of the same moment.
    ///
    /// # Errors
    /// The first error there was in writing it.
    pub fn end_event_log(&self) -> std::io::Result<Stats> {
        self.shared.driver.end_log()
    }

    /// The cache on disk below it.
    #[cfg(feature = "disk-cache")]
    #[must_use]
    pub fn disk_cache(&self) -> Option<&DiskCache> {
        self.shared.disk_cache.as_ref()
    }

    /// A source as this engine reads it: with the disk cache, if there is one.
    pub(crate) fn below(&self, source: Arc<dyn Source>) -> Arc<dyn Source> {
        #[cfg(feature = "disk-cache")]
        if let Some(cache) = self.disk_cache() {
            return cache.over(source);
        }
        source
    }

    /// How its files are read.
    pub(crate) fn io(&self) -> Io {
        self.shared.io
    }

    /// Whether its files are only appended to, never overwritten.
    pub(crate) fn appending(&self) -> bool {
        self.shared.appending
    }

    /// The initial hint of each open description.
    pub(crate) fn hint(&self) -> Option<Advice> {
        self.shared
            .hint
            .filter(|hint| matches!(hint, Advice::Normal | Advice::Sequential | Advice::Random))
    }

    pub(crate) fn driver(&self) -> &Driver {
        &self.shared.driver
    }
}
