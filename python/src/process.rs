//! State shared by the files of a process: an engine for each kind of storage and each group of settings, the defaults, and the handling of
//! forks.
//!
//! The policy `auto` adapts to the storage that its engine reads, so a local file and an object have separate engines,
//! but a thousand objects share one engine. After the last file of an engine is closed, the engine is kept for the next
//! file. If there are more than [`MAX_ENGINES`] engines, the engines without open files are dropped.
//!
//! ```text
//!   open ──► kind, policy, cache ──► the existing engine, or a new one
//!   fork ──► parent: nothing changes
//!        └─► child:  generation + 1; old engines and readers are neither used nor dropped
//! ```
//! The lock of this state is held only briefly, by a thread that is attached to the interpreter. Before a thread calls the engine, it
//! unlocks the state and detaches from the interpreter. Therefore the state is consistent during a fork: with a GIL no other thread is
//! attached, and without a GIL Python first stops all attached threads (`PyOS_BeforeFork`). An attached thread must not block, because a
//! fork waits for all attached threads. The fork would wait forever if an attached thread waited for a lock that the forking thread holds:
//! `Fork::prepare` locks the state that engines share.

use crate::calls;
use crate::fetcher;
use foreread::source::Defaults;
use foreread::source::disk_cache::{DiskCache, VARIABLE};
use foreread::{Budget, BudgetLimits, Engine, Fork, OpenError, Options};
use pyo3::Python;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of engines kept without open files.
const MAX_ENGINES: usize = 8;
/// Default size of an engine's cache.
pub const CACHE_BYTES: u64 = 256 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub policy: String,
    pub cache_bytes: u64,
    /// The disk cache, in the notation of `foreread::source::disk_cache`; empty for none.
    pub disk_cache: String,
}

struct State {
    defaults: Option<Settings>,
    /// The budget. It is not the engine's process-wide budget, which in a child would include the parent's reservations.
    budget: Option<Arc<Budget>>,
    engines: Vec<ProcessEngine>,
}

#[derive(Clone)]
struct ProcessEngine {
    kind: String,
    settings: Settings,
    engine: Engine,
}

static STATE: Mutex<State> = Mutex::new(State {
    defaults: None,
    budget: None,
    engines: Vec::new(),
});
/// The number of forks since the first process.
static GENERATION: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static FORK: RefCell<Option<Fork>> = const { RefCell::new(None) };
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a number by which a forked child is distinguished from its parent: it increases in the child at each fork.
pub fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// Returns the settings of files that are opened without explicit settings.
pub fn defaults() -> Settings {
    state().defaults()
}

impl State {
    fn defaults(&self) -> Settings {
        let set = self.defaults.clone();
        set.unwrap_or_else(|| Settings {
            policy: foreread::policy::DEFAULT.to_string(),
            cache_bytes: CACHE_BYTES,
            disk_cache: std::env::var(VARIABLE).unwrap_or_default(),
        })
    }
}

/// Sets the defaults for files that are opened later; settings that are `None` do not change. Returns an error if the policy does not
/// exist, or if the cache size is invalid for the policy.
pub fn configure(
    py: Python<'_>,
    policy: Option<&str>,
    cache_bytes: Option<u64>,
    disk_cache: Option<&str>,
) -> Result<(), OpenError> {
    loop {
        let before = defaults();
        let policy = policy.map_or_else(|| before.policy.clone(), str::to_string);
        let settings = Settings {
            policy,
            cache_bytes: cache_bytes.unwrap_or(before.cache_bytes),
            disk_cache: disk_cache.map_or_else(|| before.disk_cache.clone(), str::to_string),
        };
        py.detach(|| check(&settings))?;
        let mut state = state();
        // Otherwise another thread has changed the rest, and the check must be repeated.
        if state.defaults() == before {
            state.defaults = Some(settings);
            return Ok(());
        }
    }
}

fn check(settings: &Settings) -> Result<(), OpenError> {
    // Created only as a check, with its own budget.
    let limits = BudgetLimits {
        memory_bytes: u64::MAX,
        ..BudgetLimits::default()
    };
    let options = Options::default()
        .policy(settings.policy.as_str())
        .cache_bytes(settings.cache_bytes);
    DiskCache::named(&settings.disk_cache)?;
    Engine::for_kind(options.budget(Budget::new(limits)), Defaults::FILE).map(drop)
}

/// Returns the engine for a kind of storage and these settings, and creates it if it does not exist yet. Returns an error if a setting is
/// invalid, or if there is not enough memory.
pub fn engine(
    py: Python<'_>,
    kind: &str,
    how: Defaults,
    settings: &Settings,
) -> Result<Engine, OpenError> {
    let (full, budget) = {
        let mut state = state();
        if let Some(made) = state.find(kind, settings) {
            return Ok(made);
        }
        let new = || Budget::new(BudgetLimits::default());
        let budget = Arc::clone(state.budget.get_or_insert_with(new));
        (state.engines.len() >= MAX_ENGINES, budget)
    };
    if full {
        drop_idle(py);
    }
    let made = py.detach(|| new_engine(how, settings, Arc::clone(&budget)));
    // Drop idle engines, so that the new engine can reserve their memory.
    let made = match made {
        Err(OpenError::Budget { .. }) => {
            drop_idle(py);
            py.detach(|| new_engine(how, settings, budget))?
        }
        made => made?,
    };
    let mut state = state();
    // Another thread may have created it first.
    let stopped = state.take_stopped();
    let first = state.find(kind, settings);
    let engine = first.clone().unwrap_or_else(|| {
        state.engines.push(ProcessEngine {
            kind: kind.to_string(),
            settings: settings.clone(),
            engine: made.clone(),
        });
        made.clone()
    });
    drop(state);
    py.detach(|| drop((first, made, stopped)));
    Ok(engine)
}

impl State {
    fn find(&self, kind: &str, settings: &Settings) -> Option<Engine> {
        let fits = |made: &&ProcessEngine| {
            made.kind == kind && made.settings == *settings && !made.engine.is_stopped()
        };
        Some(self.engines.iter().find(fits)?.engine.clone())
    }

    /// Drops engines stopped by an internal error, because each later open would fail.
    fn take_stopped(&mut self) -> Vec<ProcessEngine> {
        let is_stopped = |made: &mut ProcessEngine| made.engine.is_stopped();
        self.engines.extract_if(.., is_stopped).collect()
    }
}

fn new_engine(
    how: Defaults,
    settings: &Settings,
    budget: Arc<Budget>,
) -> Result<Engine, OpenError> {
    let mut options = Options::default()
        .policy(settings.policy.as_str())
        .cache_bytes(settings.cache_bytes)
        .budget(budget);
    options.disk_cache = DiskCache::if_usable(&settings.disk_cache)?;
    if how.kind == fetcher::KIND {
        // With more requests, some would queue in its threads, where a demand read cannot overtake readahead.
        options.limits.max_ahead_in_flight = Some(how.requests);
    }
    Engine::for_kind(options, how)
}

/// Drops engines without files. If another thread is just opening a file on one, that engine continues, and the next open creates a
/// new engine.
fn drop_idle(py: Python<'_>) {
    let mut idle = state().engines.clone();
    py.detach(|| idle.retain(|made| made.engine.gauges().files == 0));
    let is_idle = |made: &mut ProcessEngine| {
        let is_same = |one: &ProcessEngine| made.kind == one.kind && made.settings == one.settings;
        idle.iter().any(is_same)
    };
    let gone: Vec<ProcessEngine> = state().engines.extract_if(.., is_idle).collect();
    py.detach(|| drop((idle, gone)));
}

/// Returns all engines of this process, each with its kind of storage.
pub fn engines() -> Vec<(String, Engine)> {
    let both = |made: &ProcessEngine| (made.kind.clone(), made.engine.clone());
    state().engines.iter().map(both).collect()
}

/// How long the end of a process waits for writes to disk caches.
const WRITE_PATIENCE: Duration = Duration::from_secs(5);

/// Waits for pending writes to the disk caches of these engines.
pub fn flush_disk_caches(engines: &[(String, Engine)]) {
    let began = Instant::now();
    for (_, engine) in engines {
        if let Some(cache) = engine.disk_cache() {
            cache.flush(WRITE_PATIENCE.saturating_sub(began.elapsed()));
        }
    }
}

/// Must be called before this thread forks. Waits until no other thread is forking. To finish its fork, the other thread must attach to the
/// interpreter, so the calling thread detaches from it while it waits.
pub fn before_fork(py: Python<'_>) {
    py.detach(|| {
        let fork = Fork::prepare();
        FORK.with_borrow_mut(|held| *held = Some(fork));
    });
}

/// Must be called in the parent after the fork, also if the fork failed.
pub fn after_fork_in_parent() {
    FORK.take();
}

/// Must be called in the child after the fork.
pub fn after_fork_in_child() {
    if let Some(fork) = FORK.take() {
        fork.in_child();
    }
    GENERATION.fetch_add(1, Ordering::Relaxed);
    calls::forget();
    let mut state = state();
    // Not dropped, because their threads do not exist here and their locks may be held.
    std::mem::forget(std::mem::take(&mut state.engines));
    state.budget = None;
}
