//! Reads by tasks: callers that must not wait, and leave a waker instead.
//!
//! A task does what a thread does in `read.rs`, except what takes time: fetches go to the file's queue or to a worker, and a
//! worker asks whether the source has grown. Of the tasks that wait for a queue one has itself polled again for a moment and
//! looks into it (`queue/poller.rs`); a thread on standby reaps when none does. Where no thread can be had, the read is done on
//! the spot: late is better than never.
//!
//! Example: a task polls a read that misses, of a source without a queue. The read begins, its fetch goes to a worker, the waker
//! stays in the slot, and the poll is pending. The worker completes the fetch, gives up the lock and calls the waker; the second
//! poll copies the bytes. With a queue the fetch is submitted; the task is polled again at once, and again until it ends.
//!
//! ```text
//!   poll ──► past the end as known? ──► a worker asks the source ──► woken ─┐
//!     │ no                                                                  │
//!     ├──► begun: Read ◄────────────────────────────────────────────────────┘
//!     │      ├─ served: copy, Release; the last piece: done
//!     │      └─ nothing yet: leave the waker, hand the fetches over, Pending ──► woken by Serve or Fail: look again
//!   drop ──► what was served is released, Abandon, the slot is free
//! ```

use super::files::OpenFile;
use super::panics;
use super::queue::TaskWait;
use super::read::{self, Begun, Finished, Given, Taken};
use super::read_buf::ReadBuf;
use super::reaping;
use super::shared::{Guard, Outside, Shared};
use super::state::State;
use super::transfer;
use super::version_cursor::{self, Gate, SizeQuestion, VersionCursor};
use crate::error::Fault;
use foreread_core::event::{Error, Event};
use foreread_core::units::{ByteRange, FileId, ReadId};
use std::sync::Arc;
use std::task::{Poll, Waker};

/// How far a task's read has come.
#[derive(Debug, Default)]
pub struct Progress {
    /// Its slot, from the first question to the last byte.
    slot: Option<u32>,
    /// Its file, as long as it has a slot.
    file: Option<FileId>,
    /// The read, once it has begun.
    read: Option<ReadId>,
    /// The source has been asked for its size.
    asked: bool,
    given: Given,
}

impl Progress {
    /// Nothing has been done for the read.
    pub fn is_first(&self) -> bool {
        self.slot.is_none()
    }
}

/// A read that was polled.
struct Polled<'a> {
    state: Guard<'a>,
    outcome: Poll<Result<usize, Fault>>,
    /// It polls its queue: to be polled again.
    again: bool,
}

impl<'a> Polled<'a> {
    fn pending(state: Guard<'a>) -> Polled<'a> {
        Polled {
            state,
            outcome: Poll::Pending,
            again: false,
        }
    }

    /// The read is over: polled once more it would be a new one.
    fn over(
        mut state: Guard<'a>,
        progress: &mut Progress,
        outcome: Result<usize, Fault>,
    ) -> Polled<'a> {
        if let Some(slot) = std::mem::take(progress).slot {
            state.reads.free(slot);
        }
        Polled {
            state,
            outcome: Poll::Ready(outcome),
            again: false,
        }
    }
}

/// A task's read: what is the same in every poll.
pub struct TaskRead<'a> {
    pub at: OpenFile,
    pub seen: &'a VersionCursor,
    pub offset: u64,
    pub waker: &'a Waker,
}

/// Goes on with a task's read of `range`, as `read::read` does. Pending means that its waker will be called.
pub fn poll_read(
    shared: &Arc<Shared>,
    task: &TaskRead<'_>,
    buf: &mut ReadBuf<'_, '_>,
    range: ByteRange,
    progress: &mut Progress,
) -> Poll<Result<usize, Fault>> {
    let polled = Outside::enter(shared).lock().and_then(|mut state| {
        if progress.read.is_some() {
            state = look(state, task.at.file, progress)?;
        } else {
            match begin(state, task, range, progress)? {
                Start::Begun(begun) => state = begun,
                Start::Not(polled) => return Ok(polled),
            }
        }
        go_on(state, task, range, buf, progress)
    });
    match polled {
        Ok(Polled {
            state,
            outcome,
            again,
        }) => {
            state.unlock();
            if again {
                // After what this thread has woken: other tasks go on first.
                panics::wake(task.waker.clone());
            }
            outcome
        }
        Err(fault) => Poll::Ready(Err(fault)),
    }
}

/// A task that polls takes what has ended out of the queue.
fn look<'a>(state: Guard<'a>, file: FileId, progress: &Progress) -> Result<Guard<'a>, Fault> {
    let polls = progress
        .slot
        .is_some_and(|slot| state.queues.is_polled_by(file, slot));
    if polls {
        reaping::look_in_for_task(state, file)
    } else {
        Ok(state)
    }
}

/// Whether a read has begun.
enum Start<'a> {
    Begun(Guard<'a>),
    Not(Polled<'a>),
}

fn begin<'a>(
    mut state: Guard<'a>,
    task: &TaskRead<'_>,
    range: ByteRange,
    progress: &mut Progress,
) -> Result<Start<'a>, Fault> {
    let OpenFile { file, open } = task.at;
    loop {
        let asking = progress
            .slot
            .is_some_and(|slot| state.reads.awaits_size(slot));
        let question = match (progress.asked, asking) {
            (false, _) => SizeQuestion::NotAsked,
            (true, true) => SizeQuestion::Asking,
            (true, false) => SizeQuestion::Answered,
        };
        match version_cursor::gate(&state.files, file, task.seen, range, question) {
            Gate::Open => break,
            Gate::Over(end) => return Ok(Start::Not(Polled::over(state, progress, end))),
            Gate::Ask if state.workers.is_unavailable() => {
                progress.asked = true;
                state = transfer::check(state, file)?;
            }
            Gate::Ask => {
                progress.asked = true;
                await_size(&mut state, file, progress, task.waker)?;
                state.jobs.push_check(file);
                return Ok(Start::Not(Polled::pending(state)));
            }
            // Woken by another thread, the worker has not come back; or the source says what it holds now.
            Gate::Asking | Gate::Accepting => {
                await_size(&mut state, file, progress, task.waker)?;
                return Ok(Start::Not(Polled::pending(state)));
            }
        }
    }
    let now = state.shared().now();
    state.ring_timer(now);
    let Some(slot) = progress.slot.or_else(|| state.reads.take_slot()) else {
        return Ok(Start::Not(Polled::over(
            state,
            progress,
            Err(Fault::Read(Error::Limit)),
        )));
    };
    (progress.slot, progress.file) = (Some(slot), Some(file));
    progress.read = Some(state.begin(now, slot, open, range));
    Ok(Start::Begun(state))
}

/// The task waits for the size of the source.
fn await_size(
    state: &mut State,
    file: FileId,
    progress: &mut Progress,
    waker: &Waker,
) -> Result<(), Fault> {
    let slot = progress
        .slot
        .or_else(|| state.reads.take_slot())
        .ok_or(Fault::Read(Error::Limit))?;
    progress.slot = Some(slot);
    state.reads.await_size(slot, file, waker);
    Ok(())
}

/// Takes what there is, and says what else is needed.
fn go_on<'a>(
    state: Guard<'a>,
    task: &TaskRead<'_>,
    range: ByteRange,
    buf: &mut ReadBuf<'_, '_>,
    progress: &mut Progress,
) -> Result<Polled<'a>, Fault> {
    let (file, Some(slot)) = (task.at.file, progress.slot) else {
        return Err(Fault::Read(Error::Limit));
    };
    let begun = Begun { slot, file, range };
    let Taken { mut state, outcome } = read::take(state, begun, buf, &mut progress.given)?;
    let (state, outcome) = if let Some(outcome) = outcome {
        // Its slot is free.
        *progress = Progress::default();
        state.end_poll(file, slot);
        (state, outcome)
    } else if state.workers.is_unavailable() {
        // No other thread does: as a thread would.
        let mut given = std::mem::take(progress).given;
        state.end_poll(file, slot);
        let Finished { state, outcome } = read::finish(state, begun, buf, &mut given, None)?;
        (state, outcome)
    } else {
        let now = state.shared().now();
        let again = state.task_waits(now, file, slot) == TaskWait::Polls;
        if !again {
            state.reads.await_bytes(slot, file, task.waker);
            state.want_reaper_thread(file);
        }
        return Ok(Polled {
            state,
            outcome: Poll::Pending,
            again,
        });
    };
    let outcome = version_cursor::settle(&state.files, file, task.seen, outcome);
    Ok(Polled {
        state,
        outcome: Poll::Ready(outcome.map_err(Fault::Read)),
        again: false,
    })
}

/// The read is abandoned.
pub fn abandon(shared: &Arc<Shared>, progress: &mut Progress) {
    let Some(slot) = progress.slot else { return };
    let now = shared.now();
    if let Ok(mut state) = Outside::enter(shared).lock() {
        while let Some(ready) = state.reads.next_piece(slot) {
            // Released first: a read of which a piece is lent out goes on until it comes back.
            state.feed(now, Event::Release { lease: ready.lease });
        }
        if let Some(read) = progress.read {
            state.feed(now, Event::Abandon { read });
        }
        let file = std::mem::take(progress).file;
        state.reads.free(slot);
        file.into_iter().for_each(|file| state.end_poll(file, slot));
        state.unlock();
    }
}
