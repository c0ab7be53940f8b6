//! The worker threads: they run fetches that no caller waits for, and demand fetches whose callers are busy.
//!
//! The driver spawns one when there is a job and no idle worker, up to the limit, and joins all of them at its end.
//! Example: a window of 16 fetches with 4 workers: each runs one fetch, and takes the next when it is done. No read
//! depends on a worker: without one, readahead that no reader joins is not read.
//!
//! ```text
//!   spawned ──► called ──► running jobs: demand first, then ahead ──none left──► idle ──notified──► called
//!                                │ closing                                        │ the time of a timer: Timer
//!                                ▼                                                ▼
//!                              ended ◄────────────────────────────────────────── closing
//! ```

use super::jobs::IdlePoll;
use super::lock::Outside;
use super::queue::{LINGER, TICK};
use super::state::State;
use super::{LOOK_UP, Shared};
use crate::error::Fault;
use foreread_core::event::Class;
use std::sync::Arc;
use std::time::Duration;

/// Starts a worker. [`ThreadPool`](super::jobs::ThreadPool) already counts it as started and called.
pub fn spawn_worker(outside: Outside<'_>) -> Outside<'_> {
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
            state.not_spawned();
            state.unlock()
        }
        Err(outside) => outside,
    }
}

fn work(shared: &Arc<Shared>) -> Result<(), Fault> {
    let mut state = Outside::enter(shared).lock()?;
    state.workers.called = state.workers.called.saturating_sub(1);
    let mut idle_poll = None;
    loop {
        state.ring_timer(shared.now());
        if state.unattended > 0 {
            state = shared.look_in_everywhere(state)?;
        }
        // Checked here because the lock was released above, and is held from here to the wait.
        if state.workers.closing {
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
        if let Some(wakeups) = state.wakeups() {
            state = state.release().wake(wakeups).lock()?;
            continue;
        }
        let until = state.wake_at.map(|at| Duration::from_nanos(at.since(shared.now())));
        let look_up = poll_while_idle(&mut state, &mut idle_poll);
        state.workers.idle += 1;
        let pause = until.map_or(look_up, |u| u.min(look_up));
        state = state.sleep_on(&shared.workers_condvar, pause)?.0;
        // The caller of a worker has moved one from idle to called; any idle worker may be the one that wakes.
        match state.workers.called {
            0 => state.workers.idle = state.workers.idle.saturating_sub(1),
            _ => state.workers.called -= 1,
        }
    }
}

/// One worker polls the queues that no reader reaps. It takes this task when it is called for, and ends it after [`LINGER`]
/// ticks without a transfer. `ticks` counts these, if this worker polls. Returns how long the worker may sleep.
fn poll_while_idle(state: &mut State, ticks: &mut Option<u32>) -> Duration {
    if state.workers.idle_poll == IdlePoll::Called {
        (state.workers.idle_poll, *ticks) = (IdlePoll::Kept, Some(0));
    }
    let Some(quiet) = ticks.as_mut() else { return LOOK_UP };
    *quiet = if state.unattended > 0 { 0 } else { *quiet + 1 };
    if *quiet <= LINGER {
        return TICK;
    }
    (state.workers.idle_poll, *ticks) = (IdlePoll::No, None);
    LOOK_UP
}
