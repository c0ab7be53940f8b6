//! Transfers under way without a thread each: what is handed to a source's queue, who reaps it, and who takes over.
//!
//! The thread that finds fetches waiting hands them over, a batch in one call, demand first; a fetch goes as one transfer for
//! each group of pages, and its pages land as they come, from the front. Of the callers that wait for bytes of a file one
//! sits at its queue and reaps for all; when it has what it waited for, it calls another that sleeps. While nobody waits, a
//! worker looks in once in a [`TICK`], so that readahead goes on; nothing depends on it. Never: the only way. What a queue
//! refuses, and what is beyond its depth, waits for a thread like any other fetch.
//!
//! ```text
//!   jobs ──batch──► queue (owns buffers) ──ended──► reaper: a caller that waits  ──► Done, Failed
//!                                              │    next caller, looking in first ┘
//!                                              └─── the watch: a worker, while nobody waits
//! ```

use super::jobs::{Job, Part};
use super::lock::{Guard, Outside, Remote};
use super::polled::Attendance;
use super::state::{GROUP_PAGES, State};
use super::{Shared, guarded};
use crate::budget::Claim;
use crate::error::Fault;
use crate::log;
use crate::source::{EIO, Ended, Queue, SourceError, Transfer};
use foreread_core::event::{Class, Error, Event};
use foreread_core::units::{ByteRange, FileId, Nanos, PageSize};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often the watch looks in. 16 fetches of 1 MiB in each are 16 GB/s.
pub const TICK: Duration = Duration::from_millis(1);
/// Ticks without a transfer after which the watch ends.
pub const LINGER: u32 = 50;

/// A fetch that has been handed over, in pieces.
struct Handed {
    /// Tells this use of a place from earlier ones; with the number of the piece it is the tag of a transfer.
    serial: u64,
    job: Job,
    /// Pieces at the queue.
    left: u32,
    /// Pieces that wait for one before them: the number of the piece, and what came.
    early: Vec<(u64, Part, u64)>,
    /// Pieces that have landed, and how many bytes they are.
    landed: (u64, u64),
    /// The machine has its answer; what still comes is nobody's.
    answered: bool,
    /// When it was handed over.
    began: Nanos,
    /// Its share of the budget.
    claim: Claim,
}

/// Bits of a tag that number the piece.
const PIECE_BITS: u32 = 20;

/// A file's queue, as the driver sees it.
pub struct Line {
    queue: Remote<dyn Queue>,
    /// Transfers that it takes at once.
    depth: usize,
    /// Tells it from the line of any other file, which may have the same number by now.
    pub number: u64,
    /// What has been handed over and not all come back.
    handed: Vec<Handed>,
    /// Transfers at the queue.
    under_way: usize,
    /// Somebody sits at it.
    reaping: bool,
    /// A sleeper has been called to sit down and has not arrived.
    called: bool,
    /// It has refused once: no more is handed over.
    closed: bool,
    /// Who attends to it for tasks.
    pub attendance: Attendance,
}

/// Who sits down at a queue.
#[derive(Clone, Copy)]
pub enum Seat {
    /// A caller that waits for its read: until there is something, or the read has an answer.
    Caller(u32),
    /// The thread that attends for tasks: until there is something, or about a second.
    Attendant,
    /// Somebody who looks in and does not wait.
    Passing,
}

impl Line {
    pub fn new(queue: Remote<dyn Queue>, depth: usize, number: u64) -> Line {
        let attendance = Attendance::default();
        let handed = Vec::new();
        Line { queue, depth, number, handed, under_way: 0, reaping: false, called: false, closed: false, attendance }
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

/// Fetches to be handed over.
pub struct Batch {
    file: FileId,
    line: u64,
    queue: Remote<dyn Queue>,
    /// The serial number of each, and the fetch.
    jobs: Vec<(u64, Job)>,
}

impl State {
    /// More than one fetch of this file can be handed over at once: that is worth a queue.
    pub fn worth_a_batch(&self, file: FileId) -> bool {
        self.jobs.len() > 1
            && self.line(file).is_some_and(|line| line.room() > 1)
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
            let line = files.get_mut(job.file.0 as usize).and_then(Option::as_mut).and_then(|file| file.line.as_mut());
            let Some(line) = line.filter(|line| line.room() >= pieces) else { return false };
            let bytes = job.range.len();
            let claim = if class == Class::Demand { Some(budget.demand(bytes)) } else { budget.ahead(bytes) };
            let Some(claim) = claim else {
                refused.push(*job);
                return true;
            };
            *unattended += u32::from(!line.reaping && line.under_way == 0);
            *handed_over += 1;
            line.under_way += pieces;
            let (serial, left) = (*handed_over, pieces as u32);
            line.handed.push(Handed {
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
                    let (number, queue) = (line.number, line.queue.share());
                    batches.push(Batch { file: job.file, line: number, queue, jobs: vec![(serial, *job)] });
                }
            }
            true
        });
        refused
    }

    /// Something is under way from the file, and nobody waits for it to end.
    pub fn is_unattended(&self, file: FileId) -> bool {
        self.line(file).is_some_and(Line::unattended)
    }

    pub fn line_mut(&mut self, file: FileId) -> Option<&mut Line> {
        self.files.get_mut(file.0 as usize)?.as_mut()?.line.as_mut()
    }

    fn line(&self, file: FileId) -> Option<&Line> {
        self.file(file)?.line.as_ref()
    }

    /// Fetches handed over and not come back.
    pub fn handed(&self) -> usize {
        self.files.iter().flatten().filter_map(|file| file.line.as_ref()).map(|line| line.handed.len()).sum()
    }

    /// The same, if it is still this file's: the number may be another file's by now.
    pub fn line_of(&mut self, file: FileId, number: u64) -> Option<&mut Line> {
        self.line_mut(file).filter(|line| line.number == number)
    }

    /// The line to sit down at, if nobody does, and its queue. Where nothing is under way only an attendant waits.
    fn sit_down(&mut self, file: FileId, seat: Seat) -> Option<(u64, Remote<dyn Queue>)> {
        let awaits = matches!(seat, Seat::Attendant);
        let line = self.line_mut(file).filter(|line| line.unattended() || awaits && !line.reaping)?;
        let unattended = u32::from(line.unattended());
        line.reaping = true;
        let seated = (line.number, line.queue.share());
        self.unattended -= unattended;
        Some(seated)
    }

    /// Nobody sits at this queue any more.
    fn stand_up(&mut self, file: FileId, number: u64) {
        if let Some(line) = self.line_of(file, number) {
            line.reaping = false;
            let unattended = u32::from(line.unattended());
            self.unattended += unattended;
        }
    }

    /// The file is going: its fetches are answered, and what is at its queue is nobody's.
    pub fn give_up_line(&mut self, now: Nanos, file: FileId) {
        let Some(line) = self.line_mut(file) else { return };
        let unattended = u32::from(line.unattended());
        (line.under_way, line.closed) = (0, true);
        let handed = std::mem::take(&mut line.handed);
        let attended = line.attendance.called().map(|bell| (bell, line.weak()));
        self.unattended -= unattended;
        if let Some((bell, queue)) = attended {
            self.news.bells.extend(bell);
            self.news.queues.push(queue);
        }
        for handed in handed.into_iter().filter(|handed| !handed.answered) {
            self.feed(now, Event::Failed { fetch: handed.job.fetch, error: Error::Io(EIO) });
        }
    }

    /// Whoever was called to sit down is awake.
    pub fn arrived(&mut self, file: FileId) {
        if let Some(line) = self.line_mut(file) {
            line.called = false;
        }
    }

    /// Calls a sleeper to each queue that nobody sits at. False when there is a queue for which nobody sleeps.
    pub fn hand_over(&mut self) -> bool {
        let mut all = true;
        for (number, file) in self.files.iter_mut().enumerate() {
            let line = file.as_mut().and_then(|file| file.line.as_mut());
            let Some(line) = line.filter(|line| line.unattended() && !line.called) else { continue };
            if let Some(bell) = line.attendance.called() {
                line.called = bell.is_some();
                self.news.bells.extend(bell);
                continue;
            }
            let sleeper = self.waits.iter_mut().find(|wait| wait.asleep && wait.file.0 as usize == number);
            match sleeper {
                Some(wait) => {
                    wait.asleep = false;
                    self.sleepers -= 1;
                    line.called = true;
                    self.news.bells.push(Arc::clone(&wait.bell));
                }
                None => all = false,
            }
        }
        all
    }

    /// A transfer has come back, and the source is this large.
    fn come_in(&mut self, now: Nanos, file: FileId, ended: Ended, size: &Result<u64, SourceError>) {
        let (serial, piece) = (ended.transfer.tag() >> PIECE_BITS, ended.transfer.tag() & ((1 << PIECE_BITS) - 1));
        let Some(place) = self.come_back(file, serial) else { return };
        let result = ended.result.and_then(|read| Ok((read as u64, size.clone()?)));
        let start = ended.transfer.offset();
        let Some(line) = self.line_mut(file) else { return };
        let handed = &mut line.handed[place];
        let (job, answered) = (handed.job, handed.answered);
        let size = match result {
            _ if answered => return self.clear(file, place),
            Err(error) => {
                handed.answered = true;
                handed.early.clear();
                self.clear(file, place);
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
        self.clear(file, place);
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

    /// One piece less at the queue: where its fetch stands.
    fn come_back(&mut self, file: FileId, serial: u64) -> Option<usize> {
        let line = self.files.get_mut(file.0 as usize)?.as_mut()?.line.as_mut()?;
        let place = line.handed.iter().position(|handed| handed.serial == serial)?;
        line.handed[place].left -= 1;
        line.under_way -= 1;
        self.unattended -= u32::from(line.under_way == 0 && !line.reaping);
        Some(place)
    }

    /// Clears the place of a fetch that is answered and of which nothing is at the queue any more.
    fn clear(&mut self, file: FileId, place: usize) {
        if let Some(line) = self.line_mut(file)
            && line.handed[place].answered
            && line.handed[place].left == 0
        {
            line.handed.swap_remove(place);
        }
    }

    /// The queue panicked: what it owes is read anew.
    fn lost(&mut self, file: FileId, number: u64) {
        let handed = self.line(file).map_or(&[][..], |line| &line.handed);
        let serials: Vec<u64> = handed.iter().map(|handed| handed.serial).collect();
        self.refused(file, number, &serials);
    }

    /// Fetches of which pieces were refused wait for a thread now, and their queue gets no more. What was begun of them all the
    /// same is nobody's when it comes.
    fn refused(&mut self, file: FileId, number: u64, serials: &[u64]) {
        let Some(line) = self.line_of(file, number) else { return };
        line.closed = true;
        let before = line.under_way;
        let (refused, left): (Vec<Handed>, _) =
            std::mem::take(&mut line.handed).into_iter().partition(|handed| serials.contains(&handed.serial));
        line.handed = left;
        line.under_way -= refused.iter().map(|handed| handed.left as usize).sum::<usize>();
        let attended = u32::from(before > 0 && line.under_way == 0 && !line.reaping);
        self.unattended -= attended;
        // Whole: bytes that have landed are not put in place again.
        let unanswered = refused.into_iter().filter(|handed| !handed.answered);
        self.jobs.put_back(unanswered.map(|handed| handed.job).collect());
    }
}

impl Handed {
    /// Takes the pieces that follow on what has landed. With them: how many bytes have landed then, and whether the last of
    /// them ended early.
    fn land_in_order(&mut self) -> (Vec<Part>, u64, bool) {
        let mut parts = Vec::new();
        let mut short = false;
        while let Some(at) = self.early.iter().position(|(piece, ..)| *piece == self.landed.0).filter(|_| !short) {
            let (_, part, read) = self.early.swap_remove(at);
            let wanted = (part.chunk.bytes().len() as u64).min(self.job.range.end() - part.start);
            short = read < wanted;
            self.landed = (self.landed.0 + 1, self.landed.1 + read.min(wanted));
            parts.push(part);
        }
        (parts, self.landed.1, short)
    }
}

/// The groups of pages that a range touches, each with its first and last page (past the end).
pub fn groups(page: PageSize, range: ByteRange) -> impl Iterator<Item = (u64, u64)> {
    let pages = page.cover(range);
    let cut = move |number| (pages.first.max(number * GROUP_PAGES), pages.end.min((number + 1) * GROUP_PAGES));
    (pages.first / GROUP_PAGES..pages.end.div_ceil(GROUP_PAGES)).map(cut)
}

impl Shared {
    /// Hands a batch over.
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
        // After a panic nobody can say which were begun: all are read anew, and what comes back of them all the same is nobody's.
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
                state.refused(batch.file, batch.line, &serials);
                state.unlock()
            }
            Err(outside) => outside,
        };
        // Its reaper may wait for these alone.
        batch.queue.once(&outside, |queue| queue.interrupt());
        outside
    }

    /// Sits down at the file's queue, if nobody else does, and takes what has ended. False when there is no such seat.
    pub(super) fn reap<'a>(&self, mut state: Guard<'a>, file: FileId, seat: Seat) -> Result<(Guard<'a>, bool), Fault> {
        let Some((line, queue)) = state.sit_down(file, seat) else { return Ok((state, false)) };
        if let Seat::Caller(place) = seat {
            state.wait(place).reaps = Some(queue.weak());
        }
        let source = state.file(file).map(|file| file.source.share());
        let outside = state.unlock();
        let mut ended = Vec::new();
        let sound = guarded(|| {
            queue.once(&outside, |queue| queue.reap(!matches!(seat, Seat::Passing), &mut ended));
            Ok(())
        });
        ended.iter().filter_map(|ended| ended.result.as_ref().err()).for_each(log::source_failed);
        let size = match source.filter(|_| !ended.is_empty()) {
            Some(source) => source.once(&outside, |source| guarded(|| Ok(source.size()))),
            None => Ok(0),
        };
        let now = self.now();
        let mut state = outside.lock()?;
        state.stand_up(file, line);
        if let Seat::Caller(place) = seat {
            state.wait(place).reaps = None;
        }
        ended.into_iter().for_each(|ended| state.come_in(now, file, ended, &size));
        if sound.is_err() {
            state.lost(file, line);
        }
        Ok((self.accept(state, file)?, true))
    }

    /// Takes what has ended at the file's queue without waiting, if it is anything.
    pub(super) fn look_in<'a>(&self, state: Guard<'a>, file: FileId) -> Result<Guard<'a>, Fault> {
        let Some(line) = state.line(file).filter(|line| line.unattended()) else { return Ok(state) };
        let queue = line.queue.share();
        let outside = state.release();
        let ended = queue.once(&outside, |queue| guarded(|| Ok(queue.has_ended()))).unwrap_or(true);
        let state = outside.lock()?;
        if ended { Ok(self.reap(state, file, Seat::Passing)?.0) } else { Ok(state) }
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
            while let Some((line, queue)) = state.sit_down(file, Seat::Passing) {
                let outside = state.release();
                let mut ended = Vec::new();
                queue.once(&outside, |queue| queue.reap(true, &mut ended));
                let now = self.now();
                state = outside.lock()?;
                state.stand_up(file, line);
                // No reader is left: how large it is does not matter.
                ended.into_iter().for_each(|ended| state.come_in(now, file, ended, &Ok(0)));
            }
        }
        let _outside = state.unlock();
        Ok(())
    }
}
