//! A read by a thread: what it waits for, in which order, and what it does itself.
//!
//! ```text
//!   gate ──► Read ──► a piece is ready? ──► copy without the lock, Release ──► the last one: done
//!                 ▲     │ no
//!                 │     ├─ a job for it? ─────── run it: source.read_at without the lock
//!                 │     ├─ its queue unreaped? ─ reap: wait for a transfer
//!                 └─────┴─ neither: sleep until another thread has something for it
//! ```
//!
//! Example, the first hit of 4 KiB in a page (later ones: `hits.rs`): one lock to feed `Read` and take the piece, the copy without it, one lock to feed `Release`.
//! `docs/architecture.md` has the example of a miss.

use super::files::OpenFile;
use super::lock::WAKEUP_TIMEOUT;
use super::queue::Reaper;
use super::read_buf::ReadBuf;
use super::reads::Ready;
use super::reaping::{self, Tried};
use super::shared::{Guard, Outside, Shared};
use super::transfer;
use super::version_cursor::{self, Gate, SizeQuestion, VersionCursor};
use crate::error::Fault;
use crate::source::EIO;
use crate::store::Known;
use foreread_core::event::{Error, Event};
use foreread_core::units::{ByteRange, FileId};
use std::sync::Arc;

/// What a read has been given so far.
#[derive(Debug, Default)]
pub struct Given {
    bytes: usize,
    /// Bytes that the machine promised and the store does not have: a bug, and never a guess.
    torn: bool,
}

impl Given {
    fn outcome(&self) -> Result<usize, Error> {
        debug_assert!(!self.torn, "every byte of a served piece is in the store");
        // In a release build too: an error, and never bytes that were not filled.
        if self.torn {
            Err(Error::Io(EIO))
        } else {
            Ok(self.bytes)
        }
    }
}

/// A read that has begun.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    pub slot: u32,
    pub file: FileId,
    pub range: ByteRange,
}

/// A read that has been given what there was.
pub struct Taken<'a> {
    pub state: Guard<'a>,
    /// How it has ended, if it has; its slot is free then.
    pub outcome: Option<Result<usize, Error>>,
}

/// Reads what there is of `range` into `buf`. `seen` is the version its reader knows of: when there is a newer one,
/// the read fails and the reader learns of it. `waits` is called before the first wait, if there is one.
pub fn read(
    shared: &Arc<Shared>,
    OpenFile { file, open }: OpenFile,
    seen: &VersionCursor,
    buf: &mut ReadBuf<'_, '_>,
    range: ByteRange,
    waits: Option<&mut dyn FnMut()>,
) -> Result<usize, Fault> {
    let now = shared.now();
    let mut state = reaping::enter(shared, file)?;
    let mut question = SizeQuestion::NotAsked;
    loop {
        match version_cursor::gate(&state.files, file, seen, range, question) {
            Gate::Open | Gate::Asking => break,
            Gate::Over(end) => {
                state.unlock();
                return end;
            }
            Gate::Accepting => state = transfer::await_accepted(state, file)?,
            Gate::Ask => {
                question = SizeQuestion::Answered;
                state = transfer::check(state, file)?;
            }
        }
    }
    state.ring_timer(now);
    let Some(slot) = state.reads.take_slot() else {
        return Err(Fault::Read(Error::Limit));
    };
    state.begin(now, slot, open, range);
    let Finished { state, outcome } = finish(
        state,
        Begun { slot, file, range },
        buf,
        &mut Given::default(),
        waits,
    )?;
    let outcome = version_cursor::settle(&state.files, file, seen, outcome);
    state.unlock();
    outcome.map_err(Fault::Read)
}

/// A read that has ended.
pub struct Finished<'a> {
    pub state: Guard<'a>,
    pub outcome: Result<usize, Error>,
}

/// From the look-up to the last byte or the error. This thread does what the read waits for, or sleeps.
pub fn finish<'a>(
    mut state: Guard<'a>,
    begun: Begun,
    buf: &mut ReadBuf<'_, '_>,
    given: &mut Given,
    mut waits: Option<&mut dyn FnMut()>,
) -> Result<Finished<'a>, Fault> {
    let Begun { slot, file, range } = begun;
    loop {
        let taken = take(state, begun, buf, given)?;
        state = taken.state;
        if let Some(outcome) = taken.outcome {
            return Ok(Finished { state, outcome });
        }
        if let Some(waits) = waits.take() {
            // Wakeups are sent later: perhaps no other thread is needed.
            let outside = state.release();
            waits();
            state = outside.lock()?;
        } else if let Some(job) = state.take_job(file, range) {
            let claim = state.shared().budget.demand(job.range.len());
            state = transfer::run(state, &job, claim)?;
        } else {
            let Tried {
                state: tried,
                reaped,
            } = reaping::reap(state, file, Reaper::Caller(slot))?;
            state = if reaped { tried } else { sleep(tried, begun)? };
        }
    }
}

/// Copies every piece that is ready. A read that has ended frees its slot.
pub fn take<'a>(
    mut state: Guard<'a>,
    begun: Begun,
    buf: &mut ReadBuf<'_, '_>,
    given: &mut Given,
) -> Result<Taken<'a>, Fault> {
    let Begun { slot, range, .. } = begun;
    while let Some(ready) = state.reads.next_piece(slot) {
        let last = ready.last;
        state = copy(state, ready, range, buf, given)?;
        if last {
            state.reads.free(slot);
            return Ok(Taken {
                state,
                outcome: Some(given.outcome()),
            });
        }
    }
    let Some(error) = state.reads.error(slot) else {
        return Ok(Taken {
            state,
            outcome: None,
        });
    };
    state.reads.free(slot);
    Ok(Taken {
        state,
        outcome: Some(Err(error)),
    })
}

/// Copies a piece, without the lock, and gives its lease back.
fn copy<'a>(
    state: Guard<'a>,
    ready: Ready,
    range: ByteRange,
    buf: &mut ReadBuf<'_, '_>,
    given: &mut Given,
) -> Result<Guard<'a>, Fault> {
    let outside = state.unlock();
    let at = (ready.range.start() - range.start()) as usize;
    let len = buf.take(at, &ready.bytes);
    given.torn |= !ready.whole || len as u64 != ready.range.len();
    given.bytes += len;
    let lease = ready.lease;
    drop(ready);
    let mut state = outside.lock()?;
    let now = state.now();
    state.feed(now, Event::Release { lease });
    Ok(state)
}

/// Releases the lock until this caller is notified: for its read, or because a job needs a thread.
fn sleep(mut state: Guard<'_>, Begun { slot, file, range }: Begun) -> Result<Guard<'_>, Fault> {
    if let Some(wakeups) = state.wakeups() {
        // Things may have moved on meanwhile: the caller looks again.
        return state.release().wake(wakeups).lock();
    }
    let condvar = state.reads.falls_asleep(slot, file);
    let (mut state, passed) = state.sleep_on(&condvar, WAKEUP_TIMEOUT)?;
    let notified = state.reads.wakes(slot);
    state.queues.caller_awake(file);
    if passed && !notified {
        let alone = state.workers.is_disabled();
        if state.jobs.has_for(file, range, alone) || state.queues.is_unattended(file) {
            state.reads.count_missed_call();
        }
    }
    Ok(state)
}

/// What is known of a file. Waits where the source has changed and has not said yet how large it is.
pub fn known(shared: &Arc<Shared>, file: FileId) -> Result<Known, Fault> {
    Ok(
        transfer::await_accepted(Outside::enter(shared).lock()?, file)?
            .files
            .known(file),
    )
}
