//! The worker threads: they run what no caller waits for, and what callers have not got round to.
//!
//! Started one by one when there is something to do and nobody idle, ended with the driver. Never: needed for
//! progress. With none of them readahead that nobody joins is simply not read.
//!
//! ```text
//!   hired ──► called ──► running jobs: demand first, then ahead ──none left──► idle ──rung──► called
//!                              │ closing                                        │ the time of a timer: Timer
//!                              ▼                                                ▼
//!                             gone ◄────────────────────────────────────────── closing
//! ```

use super::jobs::Watch;
use super::line::{LINGER, TICK};
use super::lock::Outside;
use super::state::State;
use super::{LOOK_UP, Shared};
use crate::error::Fault;
use foreread_core::event::Class;
use std::sync::Arc;
use std::time::Duration;

/// Starts a worker that has been counted as started and called.
pub fn hire(outside: Outside<'_>) -> Outside<'_> {
    let own = Arc::clone(outside.shared());
    let spawned = outside.shared().threads.spawn("foreread", move || {
        // After a panic behind the lock there is nothing left to do.
        let _ = work(&own);
    });
    if spawned {
        return outside;
    }
    match outside.try_lock() {
        Ok(mut state) => {
            state.not_hired();
            state.unlock()
        }
        Err(outside) => outside,
    }
}

fn work(shared: &Arc<Shared>) -> Result<(), Fault> {
    let mut state = Outside::enter(shared).lock()?;
    state.crew.called = state.crew.called.saturating_sub(1);
    let mut watch = None;
    loop {
        state.ring_timer(shared.now());
        if state.unattended > 0 {
            state = shared.look_in_everywhere(state)?;
        }
        // Only here: the lock was given up meanwhile, and from here to the bell it is not.
        if state.crew.closing {
            return Ok(());
        }
        if let Some(file) = state.checks.pop_front() {
            state = shared.answer(state, file)?;
            continue;
        }
        if let Some((job, class)) = state.jobs.take_any() {
            let bytes = job.range.len();
            let claim = match class {
                Class::Demand => Some(shared.budget.demand(bytes)),
                Class::Ahead => shared.budget.ahead(bytes),
            };
            match claim {
                Some(claim) => state = shared.run(state, &job, claim)?,
                None => state.refuse(&job),
            }
            continue;
        }
        if let Some(calls) = state.calls() {
            state = state.release().call(calls).lock()?;
            continue;
        }
        let until = state.wake_at.map(|at| Duration::from_nanos(at.since(shared.now())));
        let look_up = keep_watch(&mut state, &mut watch);
        state.crew.idle += 1;
        let pause = until.map_or(look_up, |u| u.min(look_up));
        state = state.sleep_on(&shared.crew_bell, pause)?.0;
        // Whoever calls has counted one of the idle as called; which one wakes is all the same.
        match state.crew.called {
            0 => state.crew.idle = state.crew.idle.saturating_sub(1),
            _ => state.crew.called -= 1,
        }
    }
}

/// The watch over transfers that nobody waits for: taken when one is called for, given up when there have been none for a
/// while. `ticks` is how long this worker, if it has the watch, has seen none. Returns how long it may sleep.
fn keep_watch(state: &mut State, ticks: &mut Option<u32>) -> Duration {
    if state.crew.watch == Watch::Called {
        (state.crew.watch, *ticks) = (Watch::Kept, Some(0));
    }
    let Some(quiet) = ticks.as_mut() else { return LOOK_UP };
    *quiet = if state.unattended > 0 { 0 } else { *quiet + 1 };
    if *quiet <= LINGER {
        return TICK;
    }
    (state.crew.watch, *ticks) = (Watch::No, None);
    LOOK_UP
}
