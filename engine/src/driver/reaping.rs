//! Reaping a queue: a thread takes completed transfers, reports them to the state machine, and lets another thread reap.
//!
//! Example: a caller waits for page 7 and reaps. The queue returns transfers for pages 7 and 9. The caller stores the bytes of both
//! transfers. The read of this caller now has the bytes of page 7, and the next thread that releases the lock wakes the caller that waits
//! for page 9.
//!
//! ```text
//!   begin_reap ─unlock─ queue.reap ─ source.size ─lock─ end_reap ─► arrive, for each transfer that has ended
//! ```

use super::lock::{WAKEUP_TIMEOUT, guarded};
use super::notifications::QueueKey;
use super::queue::{Reaper, STALE};
use super::shared::{DriverShared, Guard, Outside};
use super::transfer;
use crate::error::Fault;
use crate::source::report_failure;
use foreread_core::event::Class;
use foreread_core::units::FileId;
use std::sync::Arc;
use std::time::Duration;

/// Reaps the file's queue, unless another thread does. Returns false if there was nothing to reap, or if another thread reaps.
pub fn reap(
    mut state: Guard<'_>,
    file: FileId,
    reaper: Reaper,
) -> Result<(Guard<'_>, bool), Fault> {
    let Some((key, queue)) = state.queues.begin_reap(file, reaper) else {
        return Ok((state, false));
    };
    if let Reaper::Caller(slot) = reaper {
        state.reads.set_reaps(slot, Some(queue.weak()));
    }
    // At the end of the driver no reader is left, so the size of the source does not matter.
    let source = state.files.source(file).filter(|_| reaper != Reaper::Last);
    let shared = state.shared();
    let outside = state.unlock();
    let mut ended = Vec::new();
    let sound = guarded(|| {
        queue.once(&outside, |queue| {
            let wait = !matches!(reaper, Reaper::Poll | Reaper::Watcher);
            queue.reap(wait, &mut ended)
        });
        Ok(())
    });
    ended
        .iter()
        .filter_map(|ended| ended.result.as_ref().err())
        .for_each(report_failure);
    // If the source is not asked, it is dropped here: its last reader may have closed it meanwhile, and the lock is taken below.
    let source = source.filter(|_| !ended.is_empty());
    let size = source.map_or(Ok(0), |source| {
        source.once(&outside, |source| guarded(|| Ok(source.size())))
    });
    let now = shared.now();
    let mut state = outside.lock()?;
    state.queues.end_reap(key);
    if let Reaper::Caller(slot) = reaper {
        state.reads.set_reaps(slot, None);
    }
    ended
        .into_iter()
        .for_each(|ended| state.arrive(now, file, ended, &size));
    if sound.is_err() {
        let jobs = state.queues.close(key, |_| true);
        state.jobs.put_back(jobs);
    }
    if reaper != Reaper::Last {
        state = transfer::accept(state, file)?;
    }
    Ok((state, true))
}

/// Takes the lock for a thread that is about to read a file. If no thread reaps the file's queue, checks it for completions.
pub fn enter(shared: &Arc<DriverShared>, file: FileId) -> Result<Guard<'_>, Fault> {
    let state = Outside::enter(shared).lock()?;
    if state.queues.unattended() > 0 {
        look_in(state, file)
    } else {
        Ok(state)
    }
}

/// Reaps completed transfers of the file's queue without waiting, if there are any.
pub fn look_in(state: Guard<'_>, file: FileId) -> Result<Guard<'_>, Fault> {
    let Some(queue) = state.queues.share_unreaped(file) else {
        return Ok(state);
    };
    let outside = state.release();
    let ended = queue
        .once(&outside, |queue| guarded(|| Ok(queue.has_ended())))
        .unwrap_or(true);
    let state = outside.lock()?;
    if ended {
        Ok(reap(state, file, Reaper::Poll)?.0)
    } else {
        Ok(state)
    }
}

pub fn look_in_for_task(state: Guard<'_>, file: FileId) -> Result<Guard<'_>, Fault> {
    let before = state.queues.in_flight(file);
    let mut state = look_in(state, file)?;
    if state.queues.in_flight(file) != before {
        let now = state.now();
        state.queues.poller_found(file, now);
    }
    Ok(state)
}

/// Like [`look_in`], but for the queues of all files.
pub fn look_in_everywhere(mut state: Guard<'_>) -> Result<Guard<'_>, Fault> {
    for number in 0..state.queues.file_numbers() {
        state = look_in(state, FileId(number))?;
    }
    Ok(state)
}

/// Waits for all transfers in flight before the driver ends.
pub fn drain(outside: Outside<'_>) -> Result<(), Fault> {
    let mut state = outside.lock()?;
    for number in 0..state.queues.file_numbers() {
        let mut reaped = true;
        while reaped {
            (state, reaped) = reap(state, FileId(number), Reaper::Last)?;
        }
    }
    state.unlock();
    Ok(())
}

// The loops of a driver's threads: of a worker, and of a thread that reaps a queue for tasks.
//
// Example: a window of 16 fetches with 4 workers. Each worker runs one fetch, takes the next one when it is done, and sleeps when
// none is left. The next thread that releases the lock with a job left wakes a worker. A reaper thread lives as long as tasks read
// its file, and a second or two longer.

pub fn worker(shared: &Arc<DriverShared>) {
    // After a panic under the lock nothing is left to do.
    let _ = work(shared);
}

pub fn reaper(shared: &Arc<DriverShared>, key: QueueKey) {
    let _ = reap_for_tasks(shared, key);
}

fn work(shared: &Arc<DriverShared>) -> Result<(), Fault> {
    let mut state = Outside::enter(shared).lock()?;
    state.workers.begins();
    let mut quiet_ticks = None;
    loop {
        state.ring_timer(shared.now());
        if state.queues.unattended() > 0 {
            state = look_in_everywhere(state)?;
        }
        // Checked here because the lock was released above, and is held from here until the wait.
        if state.workers.closing {
            return Ok(());
        }
        if let Some(file) = state.jobs.checks.pop_front() {
            state = transfer::check(state, file)?;
            state.tell_size(file);
            continue;
        }
        if let Some((job, class)) = state.jobs.take_any() {
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
            .wake_at
            .map(|at| Duration::from_nanos(at.since(shared.now())));
        let unattended = state.queues.unattended() > 0;
        let pause = state.workers.pause(&mut quiet_ticks, unattended);
        state.workers.falls_idle();
        let pause = timer.map_or(pause, |timer| timer.min(pause));
        state = state.sleep_on(&shared.workers_condvar, pause)?.0;
        state.workers.wakes();
    }
}

fn reap_for_tasks(shared: &Arc<DriverShared>, key: QueueKey) -> Result<(), Fault> {
    let mut state = Outside::enter(shared).lock()?;
    loop {
        let closing = state.workers.closing;
        if !state.queues.thread_goes_on(key, shared.now(), closing) {
            state.unlock();
            return Ok(());
        }
        if state.queues.thread_on_standby(key, shared.now()) {
            state = stand_by(state, key)?;
            continue;
        }
        let reaped;
        (state, reaped) = reap(state, key.file, Reaper::Thread)?;
        if let Some(wakeups) = state.wakeups() {
            state = state.release().wake(wakeups).lock()?;
        } else if !reaped {
            state = wait_for_the_queue(state, key)?;
        }
    }
}

/// Sleeps while a task polls the queue, and periodically checks whether the task still does.
fn stand_by(mut state: Guard<'_>, key: QueueKey) -> Result<Guard<'_>, Fault> {
    let shared = state.shared();
    while state.queues.thread_on_standby(key, shared.now()) && !state.workers.closing {
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

/// Sleeps while a caller reaps the queue.
fn wait_for_the_queue(mut state: Guard<'_>, key: QueueKey) -> Result<Guard<'_>, Fault> {
    let Some(condvar) = state.queues.thread_sleeps(key, false) else {
        return Ok(state);
    };
    let (mut state, _) = state.sleep_on(&condvar, WAKEUP_TIMEOUT)?;
    state.queues.thread_awake(key);
    Ok(state)
}
