//! Reads by tasks: callers that must not wait; a waker calls them back.
//!
//! A task does what a thread does in `run_read`, except what takes time: fetches go to the file's queue or to a worker, and
//! whether the source has grown is asked by a worker. While tasks read a file that has a queue, one thread attends to that
//! queue, so that no answer waits for a tick. Where no thread can be had, the read is done on the spot: late, and not never.
//! Never: calls a waker behind the lock, or lets a waker's panic go further.
//!
//! ```text
//!   poll ──► past the end as known? ──► a worker asks the source ──► woken ─┐
//!     │ no                                                                  │
//!     ├──► begun: Read ◄────────────────────────────────────────────────────┘
//!     │      ├─ served: copy, Release; the last piece: done
//!     │      └─ nothing yet: leave the waker, hand the fetches over, Pending ──► woken by Serve or Fail: look again
//!   drop ──► what was served is released, Abandon, the slot is free
//! ```

use super::jobs::Wait;
use super::lock::{Guard, Outside};
use super::queue::Reaper;
use super::read_buf::ReadBuf;
use super::state::State;
use super::{Driver, Given, LOOK_UP, Shared, VersionCursor};
use crate::error::Fault;
use crate::sync::Condvar;
use foreread_core::event::{Error, Event};
use foreread_core::units::{ByteRange, FileId, Nanos, OpenId, ReadId};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Poll, Waker};

/// How far a task's read has come.
#[derive(Debug, Default)]
pub struct Progress {
    /// Its slot, from the first question to the last byte.
    slot: Option<u32>,
    /// The read, once it has begun.
    read: Option<ReadId>,
    /// The source has been asked for its size.
    asked: bool,
    given: Given,
}

/// The thread that reaps a queue for tasks.
#[derive(Default)]
pub struct ReaperThread {
    /// A thread does, or is being started.
    here: bool,
    /// A task has read since that thread looked last.
    wanted: bool,
    /// Where it waits while a caller sits at the queue.
    condvar: Option<Arc<Condvar>>,
}

impl ReaperThread {
    /// A thread attends. With it, where it waits, if it has to be woken.
    pub fn called(&mut self) -> Option<Option<Arc<Condvar>>> {
        self.here.then(|| self.condvar.take())
    }
}

impl Driver {
    /// Goes on with a task's read of `range`, as `Driver::read` does. Pending means that `waker` will be called.
    pub fn poll_read(
        &self,
        (open, file): (OpenId, FileId),
        seen: &VersionCursor,
        (room, offset): (&mut ReadBuf<'_, '_>, u64),
        progress: &mut Progress,
        waker: &Waker,
    ) -> Result<Poll<usize>, Fault> {
        let shared = &self.shared;
        let range = ByteRange::between(offset, offset.saturating_add(room.len() as u64));
        let now = shared.now();
        let mut state = Outside::enter(shared).lock()?;
        if progress.read.is_none() {
            if let Some(fault) = state.outcome_if_changed(file, seen) {
                state.leave(progress);
                state.unlock();
                return Err(fault);
            }
            if state.is_accepting(file) {
                state.await_word(file, progress, waker)?;
                state.unlock();
                return Ok(Poll::Pending);
            }
            let past = range.end() > state.known(file).0 && !range.is_empty();
            if past && !progress.asked {
                match shared.ask(state, file, progress, waker)? {
                    Some(told) => state = told,
                    None => return Ok(Poll::Pending),
                }
            }
            if state.is_asked(progress) {
                // Woken by another thread: the worker has not come back.
                state.wait_at(progress).waker = Some(waker.clone());
                state.unlock();
                return Ok(Poll::Pending);
            }
            if let Some(end) = state.met(file, seen, range) {
                state.leave(progress);
                state.unlock();
                return end.map(Poll::Ready);
            }
            state.ring_timer(now);
            if !state.begin_polled(now, open, range, progress) {
                state.unlock();
                return Err(Fault::Read(Error::Limit));
            }
        }
        let (state, outcome) = shared.go_on(state, (file, range), room, progress, waker)?;
        let outcome = outcome.map(|outcome| state.settle(file, seen, outcome));
        if let Poll::Ready(Err(Error::Changed)) = outcome {
            seen.told(state.known(file).1);
        }
        state.unlock();
        match outcome {
            Poll::Pending => Ok(Poll::Pending),
            Poll::Ready(outcome) => outcome.map(Poll::Ready).map_err(Fault::Read),
        }
    }

    /// The read is abandoned.
    pub fn abandon(&self, progress: &mut Progress) {
        if progress.slot.is_none() {
            return;
        }
        let now = self.shared.now();
        if let Ok(mut state) = Outside::enter(&self.shared).lock() {
            while let Some(ready) = state.wait_at(progress).ready.pop_front() {
                // Released first: a read of which a piece is lent out goes on until it comes back.
                state.feed(now, Event::Release { lease: ready.lease });
            }
            if let Some(read) = progress.read {
                state.feed(now, Event::Abandon { read });
            }
            state.leave(progress);
            state.unlock();
        }
    }
}

impl State {
    /// Size and version of a file, as far as is known here.
    pub fn known(&self, file: FileId) -> (u64, u64) {
        self.file(file).map_or((0, 0), |file| (file.size, file.version))
    }

    fn wait_at(&mut self, progress: &Progress) -> &mut Wait {
        self.wait(progress.slot.unwrap_or_default())
    }

    fn is_asked(&mut self, progress: &Progress) -> bool {
        progress.slot.is_some() && self.wait_at(progress).asks
    }

    fn begin_polled(&mut self, now: Nanos, open: OpenId, range: ByteRange, progress: &mut Progress) -> bool {
        progress.slot = progress.slot.or_else(|| self.take_slot());
        let Some(slot) = progress.slot else { return false };
        progress.read = Some(self.begin_at(now, slot, open, range));
        true
    }

    /// The read is over, one way or another: polled once more it would be a new one.
    fn leave(&mut self, progress: &mut Progress) -> Given {
        let over = std::mem::take(progress);
        if let Some(slot) = over.slot {
            let wait = self.wait(slot);
            (wait.waker, wait.asks) = (None, false);
            wait.ready.clear();
            self.end(slot);
        }
        over.given
    }

    /// Sees to it that a thread attends to the file's queue, if it has one.
    fn have_attended(&mut self, file: FileId) {
        let Some(queue_state) = self.queue_mut(file) else { return };
        queue_state.reaper_thread.wanted = true;
        if !std::mem::replace(&mut queue_state.reaper_thread.here, true) {
            let number = queue_state.number;
            self.notifications.attend.push((file, number));
        }
    }

    /// Every attendant looks up.
    pub fn interrupt_attendants(&mut self) {
        let State { files, notifications, .. } = self;
        for queue_state in files.iter_mut().flatten().filter_map(|file| file.queue_state.as_mut()) {
            if let Some(condvar) = queue_state.reaper_thread.called() {
                notifications.condvars.extend(condvar);
                notifications.queues.push(queue_state.weak());
            }
        }
    }

    /// A task waits for the word of a file's source.
    fn await_word(&mut self, file: FileId, progress: &mut Progress, waker: &Waker) -> Result<(), Fault> {
        let slot = progress.slot.or_else(|| self.take_slot()).ok_or(Fault::Read(Error::Limit))?;
        progress.slot = Some(slot);
        let wait = self.wait(slot);
        (wait.asks, wait.file, wait.waker) = (true, file, Some(waker.clone()));
        Ok(())
    }

    /// Wakes tasks that wait to know whether the file has grown.
    pub fn tell(&mut self, file: FileId) {
        let State { waits, notifications, .. } = self;
        for wait in waits.iter_mut().filter(|wait| wait.asks && wait.file == file) {
            wait.asks = false;
            notifications.wakers.extend(wait.waker.take());
        }
    }

    /// There is no thread to be had: every task looks again, and does what is left by itself.
    pub fn tell_all(&mut self) {
        self.checks.clear();
        for wait in &mut self.waits {
            wait.asks = false;
            self.notifications.wakers.extend(wait.waker.take());
        }
    }

    /// No worker can fetch for tasks.
    fn is_alone(&self) -> bool {
        self.workers.most == 0 || self.workers.closing
    }
}

impl Shared {
    /// Has a worker ask the source for its version and size. Nothing when the task has to wait for that.
    fn ask<'a>(
        &self,
        mut state: Guard<'a>,
        file: FileId,
        progress: &mut Progress,
        waker: &Waker,
    ) -> Result<Option<Guard<'a>>, Fault> {
        progress.asked = true;
        if state.is_alone() {
            return self.check(state, file).map(Some);
        }
        state.await_word(file, progress, waker)?;
        if !state.checks.contains(&file) {
            state.checks.push_back(file);
        }
        state.unlock();
        Ok(None)
    }

    /// A worker asks a source for the tasks that wait to know.
    pub(super) fn answer<'a>(&self, state: Guard<'a>, file: FileId) -> Result<Guard<'a>, Fault> {
        let mut state = self.check(state, file)?;
        state.tell(file);
        Ok(state)
    }

    /// Takes what there is, and says what else is needed.
    fn go_on<'a>(
        &self,
        mut state: Guard<'a>,
        (file, range): (FileId, ByteRange),
        room: &mut ReadBuf<'_, '_>,
        progress: &mut Progress,
        waker: &Waker,
    ) -> Result<(Guard<'a>, Poll<Result<usize, Error>>), Fault> {
        let slot = progress.slot.unwrap_or_default();
        loop {
            if let Some(ready) = state.wait(slot).ready.pop_front() {
                let last = ready.last;
                state = self.hand_out(state, ready, range, room, &mut progress.given)?;
                if last {
                    let given = state.leave(progress);
                    return Ok((state, Poll::Ready(given.outcome())));
                }
            } else if let Some(error) = state.wait(slot).failed {
                state.leave(progress);
                return Ok((state, Poll::Ready(Err(error))));
            } else if state.is_alone() {
                // No other thread does: as a thread would.
                let mut given = std::mem::take(progress).given;
                let (state, outcome) = self.run_read(state, slot, (file, range), room, &mut given, None)?;
                return Ok((state, Poll::Ready(outcome)));
            } else {
                let wait = state.wait(slot);
                (wait.file, wait.waker) = (file, Some(waker.clone()));
                state.have_attended(file);
                return Ok((state, Poll::Pending));
            }
        }
    }
}

/// Starts the thread that attends to a file's queue, the line `number`.
pub fn attend<'a>(outside: Outside<'a>, file: FileId, number: u64) -> Outside<'a> {
    let own = Arc::clone(outside.shared());
    let spawned = outside.shared().threads.spawn("foreread-queue", move || {
        // After a panic behind the lock there is nothing left to do.
        let _ = work(&own, file, number);
    });
    if spawned {
        return outside;
    }
    // The idle_poll looks in once in a tick.
    match outside.try_lock() {
        Ok(mut state) => {
            if let Some(queue_state) = state.queue_of(file, number) {
                queue_state.reaper_thread = ReaperThread::default();
            }
            state.unlock()
        }
        Err(outside) => outside,
    }
}

/// Attends to a queue as long as tasks read from it, and for a second or two more.
fn work(shared: &Arc<Shared>, file: FileId, number: u64) -> Result<(), Fault> {
    let mut state = Outside::enter(shared).lock()?;
    loop {
        let closing = state.workers.closing;
        let Some(queue_state) = state.queue_of(file, number) else { return Ok(()) };
        let wanted = std::mem::take(&mut queue_state.reaper_thread.wanted);
        if closing || !wanted && queue_state.is_empty() {
            queue_state.reaper_thread = ReaperThread::default();
            state.unlock();
            return Ok(());
        }
        let seated;
        (state, seated) = shared.reap(state, file, Reaper::Thread)?;
        if let Some(wakeups) = state.wakeups() {
            state = state.release().wake(wakeups).lock()?;
        } else if !seated {
            state = wait_for_the_seat(state, file, number)?;
        }
    }
}

/// A caller sits at the queue: sleeps until it leaves.
fn wait_for_the_seat(mut state: Guard<'_>, file: FileId, number: u64) -> Result<Guard<'_>, Fault> {
    let Some(queue_state) = state.queue_of(file, number) else { return Ok(state) };
    let condvar = Arc::new(Condvar::new());
    queue_state.reaper_thread.condvar = Some(Arc::clone(&condvar));
    state.attendants += 1;
    let (mut state, _) = state.sleep_on(&condvar, LOOK_UP)?;
    state.attendants -= 1;
    if let Some(queue_state) = state.queue_of(file, number) {
        queue_state.reaper_thread.condvar = None;
        state.arrived(file);
    }
    Ok(state)
}

/// Wakes a task. A panic of its runtime ends here.
pub fn wake(waker: Waker) {
    let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
}
