//! What the files of a process share: an engine for each kind of storage and setting, the defaults, and what a fork does.
//!
//! `auto` measures one kind of storage, so a local file and an object do not share an engine; a thousand objects do. An engine
//! stays when its last file is closed, since the next open needs it; of more than [`MAX_ENGINES`] those without files go.
//!
//! ```text
//!   open ──► kind, policy, cache ──► the engine there is, or a new one
//!   fork ──► parent: nothing changes
//!        └─► child:  generation + 1; engines and readers of before are left as they are, never used and never dropped
//! ```
//! The state is locked only with the interpreter attached, for a moment, and the engine is called with it released. A fork
//! finds the state whole then: with a GIL no other thread is attached, and without one Python first stops all that are
//! (`PyOS_BeforeFork`). A thread that is attached and waits would be waited for, without end if what it waits for is locked by
//! the fork, as `Fork::prepare` locks what engines share.

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

/// Engines that are kept although no file is open.
const MAX_ENGINES: usize = 8;
/// Bytes of a cache unless the program says otherwise.
pub const CACHE_BYTES: u64 = 256 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub policy: String,
    pub cache_bytes: u64,
    /// In the notation of `foreread::source::disk_cache`; empty for none.
    pub disk_cache: String,
}

struct State {
    defaults: Option<Settings>,
    /// Not the one of the engine's process: in a child that would count what the parent has reserved.
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
/// How often the process was forked, from the first one on.
static GENERATION: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static FORK: RefCell<Option<Fork>> = const { RefCell::new(None) };
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Changes with each fork, in the child.
pub fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// What files are opened with that say nothing else.
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

/// Sets them for files that are opened from now on; what is not given stays.
///
/// # Errors
/// The policy does not exist, or the cache does not fit it.
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
        // Else another thread has set what stays, and it has to fit that.
        if state.defaults() == before {
            state.defaults = Some(settings);
            return Ok(());
        }
    }
}

fn check(settings: &Settings) -> Result<(), OpenError> {
    // Made to be checked, from a budget that is not the process's.
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

/// The engine for a kind of storage.
///
/// # Errors
/// A setting does not fit, or there is no memory left.
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
        let budget = Arc::clone(
            state
                .budget
                .get_or_insert_with(|| Budget::new(BudgetLimits::default())),
        );
        (state.engines.len() >= MAX_ENGINES, budget)
    };
    if full {
        drop_idle(py);
    }
    let made = py.detach(|| new_engine(how, settings, Arc::clone(&budget)));
    // What idle engines have reserved goes to the one that is needed.
    let made = match made {
        Err(OpenError::Budget { .. }) => {
            drop_idle(py);
            py.detach(|| new_engine(how, settings, budget))?
        }
        made => made?,
    };
    let mut state = state();
    // Another thread may have been first.
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

    /// Engines that an internal error has stopped: each later open would fail.
    fn take_stopped(&mut self) -> Vec<ProcessEngine> {
        let (stopped, kept) = std::mem::take(&mut self.engines)
            .into_iter()
            .partition(|made| made.engine.is_stopped());
        self.engines = kept;
        stopped
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
        // More would wait in the queue of its threads, where what a reader comes to wait for passes nothing.
        options.limits.max_ahead_in_flight = Some(how.requests);
    }
    Engine::for_kind(options, how)
}

/// Gives up the engines that have no file. One that another thread takes at this moment works on, and the next open makes another.
fn drop_idle(py: Python<'_>) {
    let mut idle = state().engines.clone();
    py.detach(|| idle.retain(|made| made.engine.gauges().files == 0));
    let gone = {
        let mut state = state();
        let of = |made: &ProcessEngine| {
            idle.iter()
                .any(|one| made.kind == one.kind && made.settings == one.settings)
        };
        let (gone, kept): (Vec<ProcessEngine>, Vec<ProcessEngine>) =
            std::mem::take(&mut state.engines).into_iter().partition(of);
        state.engines = kept;
        gone
    };
    py.detach(|| drop((idle, gone)));
}

/// Every engine and its kind.
pub fn engines() -> Vec<(String, Engine)> {
    state()
        .engines
        .iter()
        .map(|made| (made.kind.clone(), made.engine.clone()))
        .collect()
}

/// How long the end of a process waits for what is being written to caches on disk.
const WRITE_PATIENCE: Duration = Duration::from_secs(5);

/// Waits for what is being written to the caches on disk of these engines.
pub fn flush_disk_caches(engines: &[(String, Engine)]) {
    let began = Instant::now();
    for (_, engine) in engines {
        if let Some(cache) = engine.disk_cache() {
            cache.flush(WRITE_PATIENCE.saturating_sub(began.elapsed()));
        }
    }
}

/// This thread is about to fork. It waits for other threads that fork, which need the interpreter to be done.
pub fn before_fork(py: Python<'_>) {
    py.detach(|| {
        let fork = Fork::prepare();
        FORK.with_borrow_mut(|held| *held = Some(fork));
    });
}

/// It has forked, or could not; this is the parent.
pub fn after_fork_in_parent() {
    FORK.take();
}

/// It has forked, and this is the child.
pub fn after_fork_in_child() {
    if let Some(fork) = FORK.take() {
        fork.in_child();
    }
    GENERATION.fetch_add(1, Ordering::Relaxed);
    calls::forget();
    let mut state = state();
    // Not dropped: their threads are not here, and their locks may be held.
    std::mem::forget(std::mem::take(&mut state.engines));
    state.budget = None;
}
