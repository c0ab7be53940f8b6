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
//! The state is locked only with the interpreter attached and for a moment, so a fork, which is attached too, finds it whole.

use crate::calls;
use crate::fetcher;
use foreread::source::Defaults;
use foreread::{Budget, BudgetLimits, Engine, Fork, OpenError, Options};
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Engines that are kept although no file is open.
const MAX_ENGINES: usize = 8;
/// Bytes of a cache unless the program says otherwise.
pub const CACHE_BYTES: u64 = 256 << 20;

/// What a file is opened with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub policy: String,
    pub cache_bytes: u64,
}

struct State {
    defaults: Option<Settings>,
    /// Not the one of the engine's process: in a child that would count what the parent has reserved.
    budget: Option<Arc<Budget>>,
    engines: Vec<Made>,
}

struct Made {
    kind: String,
    settings: Settings,
    engine: Engine,
}

static STATE: Mutex<State> = Mutex::new(State { defaults: None, budget: None, engines: Vec::new() });
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
    let set = state().defaults.clone();
    set.unwrap_or_else(|| Settings { policy: foreread::policy::DEFAULT.to_string(), cache_bytes: CACHE_BYTES })
}

/// Sets them for files that are opened from now on.
///
/// # Errors
/// The policy does not exist, or the cache does not fit it.
pub fn configure(settings: Settings) -> Result<(), OpenError> {
    let Settings { policy, cache_bytes } = &settings;
    // Made to be checked, from a budget that is not the process's.
    let limits = BudgetLimits { memory_bytes: u64::MAX, ..BudgetLimits::default() };
    let options = Options::default().policy(policy.as_str()).cache_bytes(*cache_bytes).budget(Budget::new(limits));
    Engine::for_kind(options, Defaults::FILE)?;
    state().defaults = Some(settings);
    Ok(())
}

/// The engine for a kind of storage, and engines that are not needed any more, to be dropped with the interpreter released.
///
/// # Errors
/// A setting does not fit, or there is no memory left.
pub fn engine(kind: &str, how: Defaults, settings: &Settings) -> Result<(Engine, Vec<Engine>), OpenError> {
    let mut state = state();
    if let Some(made) = state.engines.iter().find(|made| made.kind == kind && made.settings == *settings) {
        return Ok((made.engine.clone(), Vec::new()));
    }
    let mut idle = Vec::new();
    if state.engines.len() >= MAX_ENGINES {
        let (kept, gone) =
            std::mem::take(&mut state.engines).into_iter().partition(|made| made.engine.gauges().files > 0);
        state.engines = kept;
        idle = Vec::from_iter((gone as Vec<Made>).into_iter().map(|made| made.engine));
    }
    let budget = Arc::clone(state.budget.get_or_insert_with(|| Budget::new(BudgetLimits::default())));
    let mut options =
        Options::default().policy(settings.policy.as_str()).cache_bytes(settings.cache_bytes).budget(budget);
    if how.kind == fetcher::KIND {
        // More would wait in the queue of its threads, where what a reader comes to wait for passes nothing.
        options.limits.max_ahead_in_flight = Some(how.requests);
    }
    let engine = Engine::for_kind(options, how)?;
    state.engines.push(Made { kind: kind.to_string(), settings: settings.clone(), engine: engine.clone() });
    Ok((engine, idle))
}

/// Every engine and its kind.
pub fn engines() -> Vec<(String, Engine)> {
    state().engines.iter().map(|made| (made.kind.clone(), made.engine.clone())).collect()
}

/// This thread is about to fork.
pub fn before_fork() {
    let fork = Fork::prepare();
    FORK.with_borrow_mut(|held| *held = Some(fork));
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
