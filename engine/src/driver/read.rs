//! Reads by threads: what a read waits for, in which order, and which work the thread does meanwhile.
//!
//! ```text
//!   admit ──► Read ──► a piece is ready? ──► copy without the lock, Release ──► the last one: done
//!                  ▲     │ no
//!                  │     ├─ a job for it? ─────── run it: source.read_at without the lock
//!                  │     ├─ its queue unreaped? ─ reap: wait for a transfer
//!                  └─────┴─ neither: sleep until another thread has something for it
//! ```
//!
//! Example: a thread reads 4 KiB of a page that is cached but has not been read yet (later reads of the page take no lock, see
//! `read_hit`). The thread takes the lock, passes the event `Read` to the state machine and gets the bytes. The thread copies the bytes
//! without the lock, and takes the lock again to pass the event `Release`. `docs/architecture.md` has the example of a miss.

use super::files::{self, Admission, OpenFile, SizeQuestion, VersionCursor};
use super::lock::{self, WAKEUP_TIMEOUT};
use super::queue::Reaper;
use super::reads::{Hit, ReadBuf, Ready};
use super::reaping;
use super::shared::{DriverShared, Guard, Outside};
use super::span::ReadSpan;
use super::state::State;
use super::transfer;
use crate::error::Fault;
use crate::source::EIO;
use crate::store::{Lease, SizedVersion};
use foreread_core::event::{Error, Event};
use foreread_core::machine::LookedUp;
use foreread_core::units::{ByteRange, FileId, ReadId};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::task::{Poll, Waker};

/// The data that a read has received so far.
#[derive(Debug, Default)]
pub struct ReadSoFar {
    bytes: usize,
    /// Whether bytes are missing in the store that the machine promised: this is a bug, and must not return wrong data.
    torn: bool,
    /// How the pages of the read were served (hit, late, miss).
    looked_up: LookedUp,
}

impl ReadSoFar {
    fn outcome(&self) -> Result<usize, Fault> {
        debug_assert!(
            !self.torn,
            "a part of the read is copied only if all its bytes are cached"
        );
        // Also in a release build this is an error, so that unfilled bytes are never returned.
        if self.torn {
            Err(Fault::Read(Error::Io(EIO)))
        } else {
            Ok(self.bytes)
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct StartedRead {
    slot: u32,
    file: FileId,
    range: ByteRange,
}

/// Reads `range` into `buf`; a part of the range beyond the end of the file is left out. `seen` is the version that the reader knows: if
/// there is a newer version, the read fails and `seen` is set to that version. `waits` is called before the first wait, if there is one.
/// `looked_up` is set to the numbers of bytes that were in the cache (hits), in flight (late) or absent (missed).
pub fn read(
    shared: &Arc<DriverShared>,
    OpenFile { file, open }: OpenFile,
    seen: &VersionCursor,
    buf: &mut ReadBuf<'_, '_>,
    range: ByteRange,
    waits: Option<&mut dyn FnMut()>,
    looked_up: Option<&mut LookedUp>,
) -> Result<usize, Fault> {
    let now = shared.now();
    let mut state = reaping::enter(shared, file)?;
    let mut question = SizeQuestion::NotAsked;
    loop {
        match files::admit(&state.files, file, seen, range, question) {
            Admission::Open | Admission::Asking => break,
            Admission::Over(end) => {
                state.unlock();
                return end;
            }
            Admission::Accepting => state = transfer::await_accepted(state, file)?,
            Admission::Ask => {
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
    let mut given = ReadSoFar::default();
    let begun = StartedRead { slot, file, range };
    let (state, outcome) = finish(state, begun, buf, &mut given, waits)?;
    if let Some(looked_up) = looked_up {
        *looked_up = given.looked_up;
    }
    let outcome = files::settle(&state.files, file, seen, outcome);
    state.unlock();
    outcome
}

/// Runs the read from its lookup to the last byte or the error. While the read waits, the calling thread runs the fetches for which the
/// read waits, or sleeps.
fn finish<'a>(
    mut state: Guard<'a>,
    begun: StartedRead,
    buf: &mut ReadBuf<'_, '_>,
    given: &mut ReadSoFar,
    mut waits: Option<&mut dyn FnMut()>,
) -> Result<(Guard<'a>, Result<usize, Fault>), Fault> {
    let StartedRead { slot, file, range } = begun;
    loop {
        let ended;
        (state, ended) = take(state, begun, buf, given)?;
        if let Some(outcome) = ended {
            return Ok((state, outcome));
        }
        if let Some(waits) = waits.take() {
            // Wakeups are sent later, because other threads may not be needed.
            let outside = state.release();
            waits();
            state = outside.lock()?;
        } else if let Some(job) = state.take_job(file, range) {
            let claim = state.shared().budget.demand(job.range.len());
            state = transfer::run(state, &job, claim)?;
        } else {
            let reaped;
            (state, reaped) = reaping::reap(state, file, Reaper::Caller(slot))?;
            if !reaped {
                state = sleep(state, begun)?;
            }
        }
    }
}

/// Copies every piece of the read that is ready. If the read has ended, frees its slot, and returns the result.
fn take<'a>(
    mut state: Guard<'a>,
    begun: StartedRead,
    buf: &mut ReadBuf<'_, '_>,
    given: &mut ReadSoFar,
) -> Result<(Guard<'a>, Option<Result<usize, Fault>>), Fault> {
    let StartedRead { slot, range, .. } = begun;
    let mut ended = None;
    while ended.is_none()
        && let Some(ready) = state.reads.next_piece(slot)
    {
        let last = ready.last;
        state = copy(state, ready, range, buf, given)?;
        ended = last.then(|| given.outcome());
    }
    let ended = ended.or_else(|| state.reads.take_fault(slot).map(Err));
    if ended.is_some() {
        state.reads.free(slot);
    }
    Ok((state, ended))
}

/// Copies a piece without the lock, and releases its lease.
fn copy<'a>(
    state: Guard<'a>,
    ready: Ready,
    range: ByteRange,
    buf: &mut ReadBuf<'_, '_>,
    given: &mut ReadSoFar,
) -> Result<Guard<'a>, Fault> {
    let outside = state.unlock();
    let at = (ready.range.start() - range.start()) as usize;
    let len = buf.take(at, &ready.bytes);
    given.torn |= !ready.whole || len as u64 != ready.range.len();
    given.bytes += len;
    let Ready { lease, last, .. } = ready;
    drop(ready.bytes);
    let mut state = outside.lock()?;
    if last && ReadSpan::is_wanted() {
        given.looked_up = state.machine().looked_up(lease).unwrap_or_default();
    }
    let now = state.now();
    state.feed(now, Event::Release { lease });
    Ok(state)
}

/// Releases the lock until this caller is notified, either for its read or because a job needs a thread.
fn sleep(
    mut state: Guard<'_>,
    StartedRead { slot, file, range }: StartedRead,
) -> Result<Guard<'_>, Fault> {
    if let Some(wakeups) = state.wakeups() {
        // The state may have changed meanwhile, so the caller checks again.
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

/// Size and version of a file. Waits if the source has changed and its new size is not known yet.
pub fn known(shared: &Arc<DriverShared>, file: FileId) -> Result<SizedVersion, Fault> {
    let state = Outside::enter(shared).lock()?;
    Ok(transfer::await_accepted(state, file)?.files.known(file))
}

// Hits that do not take the driver's lock.
//
// A read of published pages (`store/shown.rs`) is copied from there and recorded. The next thread that takes the driver's lock first
// reports the recorded reads to the machine (`reads.rs`). A thread with many recorded reads takes the lock to report them.
//
// ```text
//   read ──► shown? ──yes──► lease, copy, note ──64 are noted──► the lock: reported
//              │ no
//              └──► the lock, as any read
// ```
//
// Example: 16 threads read cached pages of 4 KiB. Of 64 reads of one thread, one takes the driver's lock to report the reads of all
// threads. Each of the others takes two locks that other threads rarely want.

/// Reads `range` without the driver's lock, if its group of pages is published. Returns `None` if the driver's lock is needed.
#[inline]
pub fn read_hit(
    shared: &Arc<DriverShared>,
    OpenFile { file, open }: OpenFile,
    seen: &VersionCursor,
    buf: &mut ReadBuf<'_, '_>,
    range: ByteRange,
) -> Option<Result<usize, Fault>> {
    let mut lease = Lease::default();
    // After a panic under the lock, published pages may be outdated.
    if !shared
        .shown
        .lease(file, range, |known| seen.allows(known), &mut lease)
        || shared.is_stopped()
    {
        return None;
    }
    let len = buf.take(0, &lease);
    drop(lease);
    if shared.noted.note(Hit { open, range }) {
        return Some(report(shared, file).map(|()| len));
    }
    Some(Ok(len))
}

/// The look-up result of a read that was served without the lock: all its bytes are hits.
#[inline]
pub fn all_hit(hit: &Result<usize, Fault>) -> LookedUp {
    LookedUp {
        hit_bytes: hit.as_ref().map_or(0, |&len| len as u64),
        ..LookedUp::default()
    }
}

/// Takes the lock, which reports the recorded reads.
#[cold]
fn report(shared: &Arc<DriverShared>, file: FileId) -> Result<(), Fault> {
    let now = shared.now();
    let mut state = reaping::enter(shared, file)?;
    state.ring_timer(now);
    state.unlock();
    Ok(())
}

// Reads by tasks: callers that must not wait, and leave a waker instead.
//
// A task does the same as a thread, except what takes time: fetches go to the file's queue or to a worker, and a worker asks whether
// the source has grown. Of the tasks that wait for a queue, one has itself polled again for a moment and checks the queue
// (`queue/attend.rs`); a standby thread reaps if no task does. If an event loop watches the queue, neither is needed.
// If no thread can be started, the read blocks during the poll.
//
// Example: a task polls a read that misses, of a source without a queue. The read starts, its fetch goes to a worker, the waker
// stays in the slot, and the poll returns pending. The worker completes the fetch, releases the lock and calls the waker; the second
// poll copies the bytes. With a queue, the fetch is submitted, and the task is polled again at once and repeatedly until it ends.
//
// ```text
//   poll ──► past the known end? ─────► a worker asks the source ──► woken ─┐
//     │ no                                                                  │
//     ├──► begun: Read ◄────────────────────────────────────────────────────┘
//     │      ├─ served: copy, Release; the last piece: done
//     │      └─ nothing yet: leave the waker, hand the fetches over, Pending ──► woken by Serve or Fail: checks again
//   drop ──► what was served is released, Abandon, the slot is free
// ```

#[derive(Debug, Default)]
pub struct Progress {
    /// Its slot, from its first poll to the last byte.
    slot: Option<u32>,
    /// Its file, while it has a slot.
    file: Option<FileId>,
    /// The read, once it has started.
    read: Option<ReadId>,
    /// Whether the source was asked for its size.
    asked: bool,
    given: ReadSoFar,
    pub span: Option<ReadSpan>,
    /// How its pages were served, once it has ended.
    pub looked_up: LookedUp,
}

impl Progress {
    /// Whether this is the task's first poll of the read.
    pub fn is_first(&self) -> bool {
        self.slot.is_none()
    }
}

pub struct TaskRead<'a> {
    pub at: OpenFile,
    pub seen: &'a VersionCursor,
    pub offset: u64,
    pub buf: &'a mut [u8],
    pub waker: &'a Waker,
    pub progress: &'a mut Progress,
    /// Pending until the read has ended.
    pub outcome: Poll<Result<usize, Fault>>,
    /// Whether the task polls its queue and must be polled again.
    pub again: bool,
}

impl TaskRead<'_> {
    pub fn range(&self) -> ByteRange {
        let end = self.offset.saturating_add(self.buf.len() as u64);
        ByteRange::between(self.offset, end)
    }

    /// Ends the read; another poll would start a new read.
    fn end(&mut self, state: &mut State, outcome: Result<usize, Fault>) {
        if let Some(slot) = std::mem::take(self.progress).slot {
            state.reads.free(slot);
        }
        self.outcome = Poll::Ready(outcome);
    }

    /// Makes the task wait for the size of the source.
    fn await_size(&mut self, state: &mut State) -> Result<(), Fault> {
        let slot = self.progress.slot.or_else(|| state.reads.take_slot());
        let slot = slot.ok_or(Fault::Read(Error::Limit))?;
        self.progress.slot = Some(slot);
        state.reads.await_size(slot, self.at.file, self.waker);
        Ok(())
    }
}

/// Polls pending reads of tasks, like [`read`], and submits their fetches together. If a read stays pending, its waker will be called.
pub fn poll_reads(shared: &Arc<DriverShared>, reads: &mut [TaskRead<'_>]) {
    let mut locked = Outside::enter(shared).lock();
    for read in reads.iter_mut().filter(|read| read.outcome.is_pending()) {
        // Not `unlock` after each, which would submit each fetch alone.
        let polled = locked.and_then(|state| step(state, read));
        locked = polled.or_else(|fault| {
            read.outcome = Poll::Ready(Err(fault));
            Outside::enter(shared).lock()
        });
    }
    if let Ok(state) = locked {
        state.unlock();
    }
    // Done after others are woken, so that other tasks run first.
    let again = reads.iter().filter(|read| read.again);
    again.for_each(|read| lock::wake(read.waker));
}

fn step<'a>(mut state: Guard<'a>, read: &mut TaskRead<'_>) -> Result<Guard<'a>, Fault> {
    if read.progress.read.is_some() {
        state = look(state, read.at.file, read.progress)?;
    } else {
        match begin(state, read)? {
            ControlFlow::Continue(begun) => state = begun,
            ControlFlow::Break(state) => return Ok(state),
        }
    }
    go_on(state, read)
}

/// Reaps completions, if this task is the polling one.
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

/// Starts a read, unless it ends or waits before it can start.
fn begin<'a>(
    mut state: Guard<'a>,
    read: &mut TaskRead<'_>,
) -> Result<ControlFlow<Guard<'a>, Guard<'a>>, Fault> {
    let (OpenFile { file, open }, range) = (read.at, read.range());
    loop {
        let slot = read.progress.slot;
        let asking = slot.is_some_and(|slot| state.reads.awaits_size(slot));
        let question = match (read.progress.asked, asking) {
            (false, _) => SizeQuestion::NotAsked,
            (true, true) => SizeQuestion::Asking,
            (true, false) => SizeQuestion::Answered,
        };
        match files::admit(&state.files, file, read.seen, range, question) {
            Admission::Open => break,
            Admission::Over(end) => {
                read.end(&mut state, end);
                return Ok(ControlFlow::Break(state));
            }
            Admission::Ask if state.workers.is_unavailable() => {
                read.progress.asked = true;
                state = transfer::check(state, file)?;
            }
            Admission::Ask => {
                read.progress.asked = true;
                read.await_size(&mut state)?;
                state.jobs.push_check(file);
                return Ok(ControlFlow::Break(state));
            }
            // Woken by another thread while the worker is not back yet; or the source is being asked for its size.
            Admission::Asking | Admission::Accepting => {
                read.await_size(&mut state)?;
                return Ok(ControlFlow::Break(state));
            }
        }
    }
    let now = state.shared().now();
    state.ring_timer(now);
    let Some(slot) = read.progress.slot.or_else(|| state.reads.take_slot()) else {
        read.end(&mut state, Err(Fault::Read(Error::Limit)));
        return Ok(ControlFlow::Break(state));
    };
    (read.progress.slot, read.progress.file) = (Some(slot), Some(file));
    read.progress.read = Some(state.begin(now, slot, open, range));
    Ok(ControlFlow::Continue(state))
}

/// Takes available data, and notes what else is needed.
fn go_on<'a>(state: Guard<'a>, read: &mut TaskRead<'_>) -> Result<Guard<'a>, Fault> {
    let (file, range, Some(slot)) = (read.at.file, read.range(), read.progress.slot) else {
        return Err(Fault::Read(Error::Limit));
    };
    let begun = StartedRead { slot, file, range };
    let mut buf = ReadBuf::One(read.buf);
    let (mut state, ended) = take(state, begun, &mut buf, &mut read.progress.given)?;
    let (state, outcome) = if let Some(outcome) = ended {
        // Its slot is already free.
        let looked_up = std::mem::take(read.progress).given.looked_up;
        read.progress.looked_up = looked_up;
        state.end_poll(file, slot);
        (state, outcome)
    } else if state.workers.is_unavailable() {
        // No other thread can do it, so do it here as a thread would.
        let mut given = std::mem::take(read.progress).given;
        state.end_poll(file, slot);
        let ended = finish(state, begun, &mut buf, &mut given, None)?;
        read.progress.looked_up = given.looked_up;
        ended
    } else {
        let watched = state.queues.is_watched(file);
        let now = state.shared().now();
        read.again = !watched && state.task_polls(now, file, slot);
        if !read.again {
            state.reads.await_bytes(slot, file, read.waker);
        }
        if !read.again && !watched {
            state.want_reaper_thread(file);
        }
        return Ok(state);
    };
    let outcome = files::settle(&state.files, file, read.seen, outcome);
    read.outcome = Poll::Ready(outcome);
    Ok(state)
}

/// Abandons the read of a task; pages that are already fetched stay cached.
pub fn abandon(shared: &Arc<DriverShared>, progress: &mut Progress) {
    let Some(slot) = progress.slot else { return };
    let now = shared.now();
    if let Ok(mut state) = Outside::enter(shared).lock() {
        while let Some(ready) = state.reads.next_piece(slot) {
            // Release the piece first: a read with a lent piece continues until it is returned.
            state.feed(now, Event::Release { lease: ready.lease });
        }
        if let Some(read) = progress.read {
            state.feed(now, Event::Abandon { read });
        }
        let file = std::mem::take(progress).file;
        let fault = state.reads.take_fault(slot);
        state.reads.free(slot);
        file.into_iter().for_each(|file| state.end_poll(file, slot));
        state.unlock();
        // Dropped without the lock, because it may contain an error of the source's own type.
        drop(fault);
    }
}
