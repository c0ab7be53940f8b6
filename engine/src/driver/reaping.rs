//! A thread reaps a queue: it takes what has ended, says so to the machine, and lets another thread reap.
//!
//! Example: a caller waits for page 7 and reaps. The queue returns transfers for pages 7 and 9. Both land; the read of page
//! 7 has its bytes, and the next thread that gives up the lock wakes the caller of page 9.
//!
//! ```text
//!   begin_reap ─unlock─ queue.reap ─ source.size ─lock─ end_reap ─► arrive, for each transfer that has ended
//! ```

use super::panics::guarded;
use super::queue::{Reaper, Reaping};
use super::shared::{Guard, Outside, Shared};
use super::transfer;
use crate::error::Fault;
use crate::source::report_failure;
use foreread_core::units::FileId;
use std::sync::Arc;

/// A thread that has tried to reap.
pub struct Tried<'a> {
    pub state: Guard<'a>,
    /// It did reap. False when there was nothing to reap, or another thread reaps.
    pub reaped: bool,
}

/// Reaps the file's queue, if no other thread does.
pub fn reap(mut state: Guard<'_>, file: FileId, reaper: Reaper) -> Result<Tried<'_>, Fault> {
    let Some(reaping) = state.queues.begin_reap(file, reaper) else {
        return Ok(Tried {
            state,
            reaped: false,
        });
    };
    if let Reaper::Caller(slot) = reaper {
        state.reads.set_reaps(slot, Some(reaping.weak()));
    }
    // At the end of the driver no reader is left: how large the source is does not matter.
    let source = state.files.source(file).filter(|_| reaper != Reaper::Last);
    let shared = state.shared();
    let outside = state.unlock();
    let Reaping { key, queue } = reaping;
    let mut ended = Vec::new();
    let sound = guarded(|| {
        queue.once(&outside, |queue| {
            queue.reap(reaper != Reaper::Poll, &mut ended)
        });
        Ok(())
    });
    ended
        .iter()
        .filter_map(|ended| ended.result.as_ref().err())
        .for_each(report_failure);
    // Dropped here where it is not asked: its last reader may have closed it meanwhile, and the lock is taken below.
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
        let jobs = state.queues.lose(key);
        state.jobs.put_back(jobs);
    }
    let state = if reaper == Reaper::Last {
        state
    } else {
        transfer::accept(state, file)?
    };
    Ok(Tried {
        state,
        reaped: true,
    })
}

/// Takes the lock for a thread that comes to read a file, and looks into its queue where no thread reaps.
pub fn enter(shared: &Arc<Shared>, file: FileId) -> Result<Guard<'_>, Fault> {
    let state = Outside::enter(shared).lock()?;
    if state.queues.unattended() > 0 {
        look_in(state, file)
    } else {
        Ok(state)
    }
}

/// Takes what has ended at the file's queue without waiting, if it is anything.
pub fn look_in(state: Guard<'_>, file: FileId) -> Result<Guard<'_>, Fault> {
    let Some(queue) = state.queues.share_unattended(file) else {
        return Ok(state);
    };
    let outside = state.release();
    let ended = queue
        .once(&outside, |queue| guarded(|| Ok(queue.has_ended())))
        .unwrap_or(true);
    let state = outside.lock()?;
    if ended {
        Ok(reap(state, file, Reaper::Poll)?.state)
    } else {
        Ok(state)
    }
}

/// The same for the task that polls.
pub fn look_in_for_task(state: Guard<'_>, file: FileId) -> Result<Guard<'_>, Fault> {
    let before = state.queues.in_flight(file);
    let mut state = look_in(state, file)?;
    if state.queues.in_flight(file) != before {
        let now = state.now();
        state.queues.poller_found(file, now);
    }
    Ok(state)
}

/// The same for every file.
pub fn look_in_everywhere(mut state: Guard<'_>) -> Result<Guard<'_>, Fault> {
    for number in 0..state.queues.file_numbers() {
        state = look_in(state, FileId(number))?;
    }
    Ok(state)
}

/// Waits for everything that is in flight. For the end of the driver.
pub fn drain(outside: Outside<'_>) -> Result<(), Fault> {
    let mut state = outside.lock()?;
    for number in 0..state.queues.file_numbers() {
        loop {
            let tried = reap(state, FileId(number), Reaper::Last)?;
            state = tried.state;
            if !tried.reaped {
                break;
            }
        }
    }
    state.unlock();
    Ok(())
}
