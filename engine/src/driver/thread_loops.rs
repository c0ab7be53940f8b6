//! What the threads of a driver do: a worker, and a thread that reaps a queue for tasks.
//!
//! Example: a window of 16 fetches with 4 workers. Each runs one fetch, takes the next when it is done, and sleeps when none
//! is left; the next thread that gives up the lock with a job left wakes one. A reaper thread lives as long as tasks read
//! its file, and for a second or two more.

use super::jobs::NextJob;
use super::lock::WAKEUP_TIMEOUT;
use super::notifications::QueueKey;
use super::queue::{Reaper, STALE};
use super::reaping::{self, Tried};
use super::shared::{Guard, Outside, Shared};
use super::transfer;
use crate::error::Fault;
use foreread_core::event::Class;
use std::sync::Arc;
use std::time::Duration;

/// A worker, from its start to its end.
pub fn worker(shared: &Arc<Shared>) {
    // After a panic behind the lock there is nothing left to do.
    let _ = work(shared);
}

/// A thread that reaps a queue for tasks.
pub fn reaper(shared: &Arc<Shared>, key: QueueKey) {
    let _ = reap_for_tasks(shared, key);
}

fn work(shared: &Arc<Shared>) -> Result<(), Fault> {
    let mut state = Outside::enter(shared).lock()?;
    state.workers.begins();
    let mut quiet_ticks = None;
    loop {
        state.ring_timer(shared.now());
        if state.queues.unattended() > 0 {
            state = reaping::look_in_everywhere(state)?;
        }
        // Checked here because the lock was released above, and is held from here to the wait.
        if state.workers.is_closing() {
            return Ok(());
        }
        if let Some(file) = state.jobs.take_check() {
            state = transfer::check(state, file)?;
            state.tell_size(file);
            continue;
        }
        if let Some(NextJob { job, class }) = state.jobs.take_any() {
            let bytes = job.range.len();
            let claim = match class {
                Class::Demand => Some(shared.budget.demand(bytes)),
                Class::Ahead => shared.budget.ahead(bytes),
            };
            match claim {
                Some(claim) => state = transfer::run(state, &job, claim)?,
                None => state.refuse(&job),
            }
            continue;
        }
        if let Some(wakeups) = state.wakeups() {
            state = state.release().wake(wakeups).lock()?;
            continue;
        }
        let timer = state
            .workers
            .timer()
            .map(|at| Duration::from_nanos(at.since(shared.now())));
        let unattended = state.queues.unattended() > 0;
        let pause = state.workers.pause(&mut quiet_ticks, unattended);
        state.workers.falls_idle();
        let pause = timer.map_or(pause, |timer| timer.min(pause));
        state = state.sleep_on(&shared.workers_condvar, pause)?.0;
        state.workers.wakes();
    }
}

fn reap_for_tasks(shared: &Arc<Shared>, key: QueueKey) -> Result<(), Fault> {
    let mut state = Outside::enter(shared).lock()?;
    loop {
        let closing = state.workers.is_closing();
        if !state.queues.thread_goes_on(key, shared.now(), closing) {
            state.unlock();
            return Ok(());
        }
        if state.queues.thread_on_standby(key, shared.now()) {
            state = stand_by(state, key)?;
            continue;
        }
        let tried: Tried<'_> = reaping::reap(state, key.file, Reaper::Thread)?;
        state = tried.state;
        if let Some(wakeups) = state.wakeups() {
            state = state.release().wake(wakeups).lock()?;
        } else if !tried.reaped {
            state = wait_for_the_queue(state, key)?;
        }
    }
}

/// A task polls the queue: looks once in a while whether it still does.
fn stand_by(mut state: Guard<'_>, key: QueueKey) -> Result<Guard<'_>, Fault> {
    let shared = state.shared();
    while state.queues.thread_on_standby(key, shared.now()) && !state.workers.is_closing() {
        if let Some(wakeups) = state.wakeups() {
            state = state.release().wake(wakeups).lock()?;
            continue;
        }
        let Some(condvar) = state.queues.thread_sleeps(key, true) else {
            return Ok(state);
        };
        state = state.sleep_on(&condvar, STALE)?.0;
        state.queues.thread_awake(key);
    }
    Ok(state)
}

/// A caller reaps the queue: sleeps until it has ended.
fn wait_for_the_queue(mut state: Guard<'_>, key: QueueKey) -> Result<Guard<'_>, Fault> {
    let Some(condvar) = state.queues.thread_sleeps(key, false) else {
        return Ok(state);
    };
    let (mut state, _) = state.sleep_on(&condvar, WAKEUP_TIMEOUT)?;
    state.queues.thread_awake(key);
    Ok(state)
}
