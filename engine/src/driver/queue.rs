//! Transfers in flight without a thread each: what is submitted to a source's queue, and which thread reaps it.
//!
//! The thread that finds fetches waiting submits them, a batch in one call, demand first. A fetch is one transfer for each
//! group of pages; its pages land in order from the front, as they arrive. Of the callers that wait for bytes of a file,
//! one reaps for all of them; when it has its own bytes, it wakes another that sleeps. While no caller waits, a worker
//! polls once in a [`TICK`], so that readahead goes on. A queue may refuse: what it refuses, and what is beyond its depth,
//! waits for a thread like any other fetch.
//!
//! Example: three readers miss on one file with a queue of depth 16. The first submits three transfers and reaps. Its own
//! ends second: it has by then completed the first reader's, and wakes the third to reap the last transfer.
//!
//! ```text
//!   jobs ──batch──► queue (owns buffers) ──ended──► reaper: a caller that waits     ──► Done, Failed
//!                                              │    the next caller, which polls first ┘
//!                                              └─── the idle poll: a worker, while no caller waits
//! ```

use super::jobs::{Job, Part};
use super::lock::{Guard, Outside, Remote};
use super::polled::ReaperThread;
use super::state::State;
use super::submitted::{Submitted, groups};
use super::{Shared, guarded};
use crate::error::Fault;
use crate::log;
use crate::source::{EIO, Ended, Queue, SourceError, Transfer};
use foreread_core::event::{Class, Error, Event};
use foreread_core::units::{FileId, Nanos};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often a worker polls the queues that no thread reaps. 16 fetches of 1 MiB in each tick are 16 GB/s.
pub const TICK: Duration = Duration::from_millis(1);
/// Ticks without a transfer after which it ends.
pub const LINGER: u32 = 50;

/// Bits of a tag that number the piece.
const PIECE_BITS: u32 = 20;

/// The driver's state of one file's queue.
pub struct QueueState {
    queue: Remote<dyn Queue>,
    /// Transfers that it takes at once.
    depth: usize,
    /// Identifies it: another file may have the same file number by now.
    pub number: u64,
    /// Fetches of which transfers are in flight.
    handed: Vec<Submitted>,
    /// Transfers at the queue.
    under_way: usize,
    /// A thread reaps it.
    reaping: bool,
    /// A sleeping caller has been woken to reap and has not begun.
    called: bool,
    /// It has refused once: nothing more is submitted.
    closed: bool,
    /// The thread that reaps for tasks.
    pub reaper_thread: ReaperThread,
}

/// The thread that reaps a queue.
#[derive(Clone, Copy)]
pub enum Reaper {
    /// A caller that waits for its read: until there is something, or the read has an answer.
    Caller(u32),
    /// The thread that reaps for tasks: until there is something, or about a second.
    Thread,
    /// A thread that polls and does not wait.
    Poll,
}

impl QueueState {
    pub fn new(queue: Remote<dyn Queue>, depth: usize, number: u64) -> QueueState {
        let reaper_thread = ReaperThread::default();
        let handed = Vec::new();
        QueueState {
            queue,
            depth,
            number,
            handed,
            under_way: 0,
            reaping: false,
            called: false,
            closed: false,
            reaper_thread,
        }
    }

    fn room(&self) -> usize {
        if self.closed { 0 } else { self.depth.saturating_sub(self.under_way) }
    }

    /// Its queue, to be interrupted.
    pub fn weak(&self) -> Weak<dyn Queue> {
        self.queue.weak()
    }

    fn unattended(&self) -> bool {
        !self.reaping && self.under_way > 0
    }

    /// Nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.under_way == 0
    }
}

/// Fetches to be submitted.
pub struct Batch {
    file: FileId,
    number: u64,
    queue: Remote<dyn Queue>,
    /// The serial number of each, and the fetch.
    jobs: Vec<(u64, Job)>,
}

impl State {
    /// More than one fetch of this file can be submitted at once: that is worth a queue.
    pub fn worth_a_batch(&self, file: FileId) -> bool {
        self.jobs.len() > 1
            && self.queue_state(file).is_some_and(|queue_state| queue_state.room() > 1)
            && self.jobs.iter().filter(|job| job.file == file).nth(1).is_some()
    }

    /// Takes what the queues have room for out of the jobs. Readahead for which the budget has nothing left is refused.
    pub fn batches(&mut self) -> Vec<Batch> {
        let mut batches = Vec::new();
        loop {
            let refused = self.fill_batches(&mut batches);
            if refused.is_empty() {
                return batches;
            }
            // Refused ones may make room for others in the machine.
            refused.iter().for_each(|job| self.refuse(job));
        }
    }

    fn fill_batches(&mut self, batches: &mut Vec<Batch>) -> Vec<Job> {
        let began = self.now();
        let State { files, jobs, budget, page, handed_over, unattended, .. } = self;
        let mut refused = Vec::new();
        jobs.take_if(|job, class| {
            let pieces = groups(*page, job.range).count();
            let queue_state =
                files.get_mut(job.file.0 as usize).and_then(Option::as_mut).and_then(|file| file.queue_state.as_mut());
            let Some(queue_state) = queue_state.filter(|queue_state| queue_state.room() >= pieces) else {
                return false;
            };
            let bytes = job.range.len();
            let claim = if class == Class::Demand { Some(budget.demand(bytes)) } else { budget.ahead(bytes) };
            let Some(claim) = claim else {
                refused.push(*job);
                return true;
            };
            *unattended += u32::from(!queue_state.reaping && queue_state.under_way == 0);
            *handed_over += 1;
            queue_state.under_way += pieces;
            let (serial, left) = (*handed_over, pieces as u32);
            queue_state.handed.push(Submitted {
                serial,
                job: *job,
                left,
                early: Vec::new(),
                landed: (0, 0),
                answered: false,
                began,
                claim,
            });
            match batches.iter_mut().find(|batch| batch.file == job.file) {
                Some(batch) => batch.jobs.push((serial, *job)),
                None => {
                    let (number, queue) = (queue_state.number, queue_state.queue.share());
                    batches.push(Batch { file: job.file, number, queue, jobs: vec![(serial, *job)] });
                }
            }
            true
        });
        refused
    }

    /// Transfers of the file are in flight, and no thread reaps them.
    pub fn is_unattended(&self, file: FileId) -> bool {
        self.queue_state(file).is_some_and(QueueState::unattended)
    }

    pub fn queue_mut(&mut self, file: FileId) -> Option<&mut QueueState> {
        self.files.get_mut(file.0 as usize)?.as_mut()?.queue_state.as_mut()
    }

    fn queue_state(&self, file: FileId) -> Option<&QueueState> {
        self.file(file)?.queue_state.as_ref()
    }

    /// Fetches submitted and not completed.
    pub fn handed(&self) -> usize {
        self.files
            .iter()
            .flatten()
            .filter_map(|file| file.queue_state.as_ref())
            .map(|queue_state| queue_state.handed.len())
            .sum()
    }

    /// The same, if the file number is still this file's.
    pub fn queue_of(&mut self, file: FileId, number: u64) -> Option<&mut QueueState> {
        self.queue_mut(file).filter(|queue_state| queue_state.number == number)
    }

    /// Begins to reap the file's queue, if no other thread does. Only [`Reaper::Thread`] reaps a queue with nothing in flight.
    fn begin_reap(&mut self, file: FileId, reaper: Reaper) -> Option<(u64, Remote<dyn Queue>)> {
        let awaits = matches!(reaper, Reaper::Thread);
        let queue_state =
            self.queue_mut(file).filter(|queue_state| queue_state.unattended() || awaits && !queue_state.reaping)?;
        let unattended = u32::from(queue_state.unattended());
        queue_state.reaping = true;
        let seated = (queue_state.number, queue_state.queue.share());
        self.unattended -= unattended;
        Some(seated)
    }

    /// This thread no longer reaps the queue.
    fn end_reap(&mut self, file: FileId, number: u64) {
        if let Some(queue_state) = self.queue_of(file, number) {
            queue_state.reaping = false;
            let unattended = u32::from(queue_state.unattended());
            self.unattended += unattended;
        }
    }

    /// The file is closed: its fetches fail, and transfers in flight are dropped when they end.
    pub fn give_up_queue(&mut self, now: Nanos, file: FileId) {
        let Some(queue_state) = self.queue_mut(file) else { return };
        let unattended = u32::from(queue_state.unattended());
        (queue_state.under_way, queue_state.closed) = (0, true);
        let handed = std::mem::take(&mut queue_state.handed);
        let attended = queue_state.reaper_thread.called().map(|condvar| (condvar, queue_state.weak()));
        self.unattended -= unattended;
        if let Some((condvar, queue)) = attended {
            self.notifications.condvars.extend(condvar);
            self.notifications.queues.push(queue);
        }
        for handed in handed.into_iter().filter(|handed| !handed.answered) {
            self.feed(now, Event::Failed { fetch: handed.job.fetch, error: Error::Io(EIO) });
        }
    }

    /// The caller that was woken to reap is awake.
    pub fn arrived(&mut self, file: FileId) {
        if let Some(queue_state) = self.queue_mut(file) {
            queue_state.called = false;
        }
    }

    /// Wakes a sleeping caller for each queue without a reaper. False when a queue has no such caller.
    pub fn hand_over(&mut self) -> bool {
        let mut all = true;
        for (number, file) in self.files.iter_mut().enumerate() {
            let queue_state = file.as_mut().and_then(|file| file.queue_state.as_mut());
            let Some(queue_state) = queue_state.filter(|queue_state| queue_state.unattended() && !queue_state.called)
            else {
                continue;
            };
            if let Some(condvar) = queue_state.reaper_thread.called() {
                queue_state.called = condvar.is_some();
                self.notifications.condvars.extend(condvar);
                continue;
            }
            let sleeper = self.waits.iter_mut().find(|wait| wait.asleep && wait.file.0 as usize == number);
            match sleeper {
                Some(wait) => {
                    wait.asleep = false;
                    self.sleepers -= 1;
                    queue_state.called = true;
                    self.notifications.condvars.push(Arc::clone(&wait.condvar));
                }
                None => all = false,
            }
        }
        all
    }

    /// A transfer has ended, and the source has this size.
    fn come_in(&mut self, now: Nanos, file: FileId, ended: Ended, size: &Result<u64, SourceError>) {
        let (serial, piece) = (ended.transfer.tag() >> PIECE_BITS, ended.transfer.tag() & ((1 << PIECE_BITS) - 1));
        let Some(index) = self.come_back(file, serial) else { return };
        let result = ended.result.and_then(|read| Ok((read as u64, size.clone()?)));
        let start = ended.transfer.offset();
        let Some(queue_state) = self.queue_mut(file) else { return };
        let handed = &mut queue_state.handed[index];
        let (job, answered) = (handed.job, handed.answered);
        let size = match result {
            _ if answered => return self.clear(file, index),
            Err(error) => {
                handed.answered = true;
                handed.early.clear();
                self.clear(file, index);
                return self.complete(now, &job, Vec::new(), Err(error));
            }
            Ok((read, size)) => {
                let chunk = ended.transfer.into_chunks().pop();
                handed.early.extend(chunk.map(|chunk| (piece, Part { start, chunk }, read)));
                size
            }
        };
        let (mut parts, bytes, short) = handed.land_in_order();
        let over = short || bytes >= job.range.len();
        handed.answered = over;
        let (began, ahead) = (handed.began, handed.claim.is_ahead());
        self.clear(file, index);
        if over {
            self.clocked[usize::from(ahead)].record(now.since(began));
        }
        let last = if over { parts.pop() } else { None };
        parts.into_iter().for_each(|part| self.land(now, &job, part));
        if over {
            self.complete(now, &job, last.into_iter().collect(), Ok((bytes as usize, size)));
        } else {
            // Known before the lock is given up: a reader that is pinned to a size must not take these bytes.
            self.grown(now, file, job.version, size);
        }
    }

    /// One piece fewer in flight: the index of its fetch.
    fn come_back(&mut self, file: FileId, serial: u64) -> Option<usize> {
        let queue_state = self.files.get_mut(file.0 as usize)?.as_mut()?.queue_state.as_mut()?;
        let index = queue_state.handed.iter().position(|handed| handed.serial == serial)?;
        queue_state.handed[index].left -= 1;
        queue_state.under_way -= 1;
        self.unattended -= u32::from(queue_state.under_way == 0 && !queue_state.reaping);
        Some(index)
    }

    /// Removes a fetch that is answered and has no transfer in flight.
    fn clear(&mut self, file: FileId, index: usize) {
        if let Some(queue_state) = self.queue_mut(file)
            && queue_state.handed[index].answered
            && queue_state.handed[index].left == 0
        {
            queue_state.handed.swap_remove(index);
        }
    }

    /// The queue panicked: its fetches are read again.
    fn lost(&mut self, file: FileId, number: u64) {
        let handed = self.queue_state(file).map_or(&[][..], |queue_state| &queue_state.handed);
        let serials: Vec<u64> = handed.iter().map(|handed| handed.serial).collect();
        self.refused(file, number, &serials);
    }

    /// Fetches of which pieces were refused wait for a thread, and the queue is closed. Pieces of them that were begun are dropped
    /// when they end.
    fn refused(&mut self, file: FileId, number: u64, serials: &[u64]) {
        let Some(queue_state) = self.queue_of(file, number) else { return };
        queue_state.closed = true;
        let before = queue_state.under_way;
        let (refused, left): (Vec<Submitted>, _) =
            std::mem::take(&mut queue_state.handed).into_iter().partition(|handed| serials.contains(&handed.serial));
        queue_state.handed = left;
        queue_state.under_way -= refused.iter().map(|handed| handed.left as usize).sum::<usize>();
        let attended = u32::from(before > 0 && queue_state.under_way == 0 && !queue_state.reaping);
        self.unattended -= attended;
        // Whole: bytes that have landed are not put in place again.
        let unanswered = refused.into_iter().filter(|handed| !handed.answered);
        self.jobs.put_back(unanswered.map(|handed| handed.job).collect());
    }
}

impl Shared {
    /// Submits a batch.
    pub(super) fn submit<'a>(&self, outside: Outside<'a>, batch: Batch) -> Outside<'a> {
        let mut transfers = Vec::with_capacity(batch.jobs.len() * 5);
        for (serial, job) in &batch.jobs {
            let pieces = self.parts(job.range).into_iter().enumerate();
            transfers.extend(
                pieces.map(|(piece, part)| {
                    Transfer::new(serial << PIECE_BITS | piece as u64, part.start, vec![part.chunk])
                }),
            );
        }
        // After a panic it is unknown which were begun: all are read again, and late pieces are dropped.
        let sound = guarded(|| {
            batch.queue.at(&outside).submit(&mut transfers);
            Ok(())
        });
        let serials: Vec<u64> = match sound {
            Ok(()) if transfers.is_empty() => return outside,
            Ok(()) => transfers.iter().map(|transfer| transfer.tag() >> PIECE_BITS).collect(),
            Err(_) => batch.jobs.iter().map(|(serial, _)| *serial).collect(),
        };
        drop(transfers);
        let outside = match outside.try_lock() {
            Ok(mut state) => {
                state.refused(batch.file, batch.number, &serials);
                state.unlock()
            }
            Err(outside) => outside,
        };
        // Its reaper may wait for these alone.
        batch.queue.once(&outside, |queue| queue.interrupt());
        outside
    }

    /// Reaps the file's queue, if no other thread does. False when there is nothing to reap.
    pub(super) fn reap<'a>(
        &self,
        mut state: Guard<'a>,
        file: FileId,
        reaper: Reaper,
    ) -> Result<(Guard<'a>, bool), Fault> {
        let Some((number, queue)) = state.begin_reap(file, reaper) else { return Ok((state, false)) };
        if let Reaper::Caller(slot) = reaper {
            state.wait(slot).reaps = Some(queue.weak());
        }
        let source = state.file(file).map(|file| file.source.share());
        let outside = state.unlock();
        let mut ended = Vec::new();
        let sound = guarded(|| {
            queue.once(&outside, |queue| queue.reap(!matches!(reaper, Reaper::Poll), &mut ended));
            Ok(())
        });
        ended.iter().filter_map(|ended| ended.result.as_ref().err()).for_each(log::source_failed);
        let size = match source.filter(|_| !ended.is_empty()) {
            Some(source) => source.once(&outside, |source| guarded(|| Ok(source.size()))),
            None => Ok(0),
        };
        let now = self.now();
        let mut state = outside.lock()?;
        state.end_reap(file, number);
        if let Reaper::Caller(slot) = reaper {
            state.wait(slot).reaps = None;
        }
        ended.into_iter().for_each(|ended| state.come_in(now, file, ended, &size));
        if sound.is_err() {
            state.lost(file, number);
        }
        Ok((self.accept(state, file)?, true))
    }

    /// Takes what has ended at the file's queue without waiting, if it is anything.
    pub(super) fn look_in<'a>(&self, state: Guard<'a>, file: FileId) -> Result<Guard<'a>, Fault> {
        let Some(queue_state) = state.queue_state(file).filter(|queue_state| queue_state.unattended()) else {
            return Ok(state);
        };
        let queue = queue_state.queue.share();
        let outside = state.release();
        let ended = queue.once(&outside, |queue| guarded(|| Ok(queue.has_ended()))).unwrap_or(true);
        let state = outside.lock()?;
        if ended { Ok(self.reap(state, file, Reaper::Poll)?.0) } else { Ok(state) }
    }

    /// The same for every file.
    pub(super) fn look_in_everywhere<'a>(&self, mut state: Guard<'a>) -> Result<Guard<'a>, Fault> {
        for number in 0..state.files.len() {
            state = self.look_in(state, FileId(number as u32))?;
        }
        Ok(state)
    }

    /// Waits for everything that is under way. For the end of the driver.
    pub(super) fn drain(&self, outside: Outside<'_>) -> Result<(), Fault> {
        let mut state = outside.lock()?;
        for number in 0..state.files.len() {
            let file = FileId(number as u32);
            while let Some((number, queue)) = state.begin_reap(file, Reaper::Poll) {
                let outside = state.release();
                let mut ended = Vec::new();
                queue.once(&outside, |queue| queue.reap(true, &mut ended));
                let now = self.now();
                state = outside.lock()?;
                state.end_reap(file, number);
                // No reader is left: how large it is does not matter.
                ended.into_iter().for_each(|ended| state.come_in(now, file, ended, &Ok(0)));
            }
        }
        let _outside = state.unlock();
        Ok(())
    }
}
