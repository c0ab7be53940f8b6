//! The state behind the driver's one lock: the machine, the bytes, the reads that wait and the jobs to be run.
//!
//! Never: waits, reads a source, copies a reader's bytes or asks the time. Every method is short and leaves the
//! machine's answers all dealt with.
//!
//! ```text
//!   event ──► machine ──► Submit ──► jobs: demand, ahead      (a caller or a worker takes them)
//!      │          │  └──► Serve, Fail ──► waits[slot]         (its caller takes them)
//!      └─► log ◄──┘  └──► Drop ──► store;  Cancel ──► a job not begun is answered;  WakeAt ──► wake_at
//! ```

use super::bytes;
use super::jobs::{IdlePoll, Job, Jobs, Notifications, Part, Ready, ThreadPool, Wait, Wakeups};
use super::lock::Remote;
use super::queue::QueueState;
use super::version_cursor::Accepting;
use crate::budget::Budget;
use crate::eventlog::EventLog;
use crate::latency::Clocked;
use crate::source::{Queue, Source, SourceError};
use crate::store::{Lease, Store};
use crate::sync::Condvar;
use foreread_core::event::{Action, Error, Event};
use foreread_core::machine::{MAX_READS, Machine};
use foreread_core::units::{ByteRange, FileId, Nanos, OpenId, PageSize, ReadId};
use std::collections::VecDeque;
use std::sync::Arc;

/// Pages in a group of the machine's index.
pub const GROUP_PAGES: u64 = foreread_core::cache::GROUP_PAGES;

/// A file, as far as the driver needs it.
pub struct File {
    pub source: Remote<dyn Source>,
    /// Its bytes come one after the other.
    pub streams: bool,
    /// As told to the machine.
    pub size: u64,
    /// The number of this version; no other version of any file ever had it, so what is late cannot be mistaken.
    pub version: u64,
    /// Its source has changed and is being asked what it holds now. Until it has said so nothing is read: the size is not
    /// known.
    pub accepting: Accepting,
    /// Where its transfers are handed over, if it has such a place.
    pub queue_state: Option<QueueState>,
    /// Open descriptions. The last one takes the file with it.
    opens: u32,
}

/// What is known of a file before it has a number.
pub struct NewFile {
    pub source: Remote<dyn Source>,
    pub size: u64,
    pub streams: bool,
    /// Its queue, and how many transfers that takes at once.
    pub queue: Option<(Remote<dyn Queue>, usize)>,
}

/// See the head of this file.
pub struct State {
    machine: Machine,
    store: Store,
    pub page: PageSize,
    pub budget: Arc<Budget>,
    /// Times of the sources: demand when they began, and readahead.
    pub clocked: [Clocked; 2],
    log: Option<EventLog>,
    /// The latest time seen: it never goes back, whatever order threads come in.
    now: Nanos,
    /// By number; those without a file are free.
    pub files: Vec<Option<File>>,
    free_files: Vec<u32>,
    /// Versions there have been, of all files.
    pub versions: u64,
    /// Numbers of open descriptions in use.
    opens: Vec<Option<FileId>>,
    free_opens: Vec<u32>,
    pub waits: Vec<Wait>,
    /// Callers that sleep and have not been notified.
    pub sleepers: u32,
    /// Attendants that wait for a reaper.
    pub attendants: u32,
    free_waits: Vec<u32>,
    reads: u64,
    pub jobs: Jobs,
    cancelled: Vec<Job>,
    pub running: u32,
    pub missed_calls: u64,
    pub wake_at: Option<Nanos>,
    /// Whose read has something new: to be woken when the lock is given up.
    pub notifications: Notifications,
    /// Files whose sources are to be asked for their size, for tasks.
    pub checks: VecDeque<FileId>,
    /// Files with transfers in flight that no thread reaps.
    pub unattended: u32,
    /// Fetches handed to queues so far.
    pub handed_over: u64,
    pub workers: ThreadPool,
}

/// Bits of a read's number that are its slot; above them a count makes each number new.
const SLOT_BITS: u32 = 16;
const _: () = assert!(MAX_READS <= 1 << SLOT_BITS);

impl State {
    pub fn new(machine: Machine, store: Store, log: Option<EventLog>, workers: u32, budget: Arc<Budget>) -> State {
        State {
            page: machine.config().page,
            machine,
            budget,
            clocked: Default::default(),
            store,
            log,
            now: Nanos(0),
            files: Vec::new(),
            free_files: Vec::new(),
            versions: 0,
            opens: Vec::new(),
            free_opens: Vec::new(),
            waits: Vec::new(),
            sleepers: 0,
            attendants: 0,
            free_waits: Vec::new(),
            reads: 0,
            jobs: Jobs::default(),
            cancelled: Vec::new(),
            running: 0,
            missed_calls: 0,
            wake_at: None,
            notifications: Notifications::default(),
            checks: VecDeque::new(),
            unattended: 0,
            handed_over: 0,
            workers: ThreadPool { most: workers, ..ThreadPool::default() },
        }
    }

    // ---- getters ----

    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// What is known of a file, unless its last reader is closed.
    pub fn file(&self, file: FileId) -> Option<&File> {
        self.files.get(file.0 as usize)?.as_ref()
    }

    /// Files that have a reader.
    pub fn files(&self) -> usize {
        self.files.len() - self.free_files.len()
    }

    /// Open descriptions.
    pub fn opens(&self) -> usize {
        self.opens.len() - self.free_opens.len()
    }

    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Reads that have not returned.
    pub fn waiting(&self) -> usize {
        self.waits.len() - self.free_waits.len()
    }

    pub fn log(&mut self) -> Option<&mut EventLog> {
        self.log.as_mut()
    }

    /// Nothing is logged from now on.
    pub fn take_log(&mut self) -> Option<EventLog> {
        self.log.take()
    }

    // ---- files and readers ----

    /// A new file; nothing when there are `limit` already. It stays until its last reader is closed.
    pub fn add_file(&mut self, NewFile { source, size, streams, queue }: NewFile, limit: u32) -> Option<FileId> {
        let number = take_number(&mut self.files, &mut self.free_files, limit)?;
        self.versions += 1;
        let version = self.versions;
        let queue_state = queue.map(|(queue, depth)| QueueState::new(queue, depth, version));
        self.files[number as usize] =
            Some(File { source, streams, size, version, accepting: Accepting::No, queue_state, opens: 0 });
        Some(FileId(number))
    }

    /// The number of a new reader, or nothing when there are `limit` already.
    pub fn open(&mut self, now: Nanos, file: FileId, limit: u32) -> Option<OpenId> {
        let entry = self.files.get_mut(file.0 as usize).and_then(Option::as_mut)?;
        let Some(open) = take_number(&mut self.opens, &mut self.free_opens, limit) else {
            // A file without an open description is not kept.
            if entry.opens == 0 {
                self.forget(now, file);
            }
            return None;
        };
        entry.opens += 1;
        let size = entry.size;
        self.opens[open as usize] = Some(file);
        self.feed(now, Event::Open { open: OpenId(open), file, size });
        Some(OpenId(open))
    }

    /// The reader is gone, and with the last one of a file everything that is kept of it.
    pub fn close(&mut self, now: Nanos, open: OpenId) {
        let Some(file) = self.opens.get_mut(open.0 as usize).and_then(Option::take) else { return };
        self.free_opens.push(open.0);
        self.feed(now, Event::Close { open });
        let Some(entry) = self.files.get_mut(file.0 as usize).and_then(Option::as_mut) else { return };
        entry.opens -= 1;
        if entry.opens == 0 {
            self.forget(now, file);
        }
    }

    /// Drops a file's pages and gives its number back. Transfers that run end as they like: their fetches are doomed. What is
    /// handed over is answered here, and its queue, when it is dropped, waits for it.
    fn forget(&mut self, now: Nanos, file: FileId) {
        self.feed(now, Event::Forget { file });
        self.give_up_queue(now, file);
        self.free_files.push(file.0);
        let gone = self.files[file.0 as usize].take();
        self.notifications.gone.extend(gone);
    }

    // ---- events in ----

    /// Feeds the machine one event and applies its actions.
    pub fn feed(&mut self, now: Nanos, event: Event) {
        self.now = self.now.max(now);
        if let Some(log) = &mut self.log {
            log.event(self.now, &event);
        }
        self.machine.handle(self.now, event);
        while let Some(action) = self.machine.poll() {
            self.apply_action(&action);
        }
        while let Some(job) = self.cancelled.pop() {
            // Not needed and not begun: answered here, without a transfer.
            self.feed(now, Event::Failed { fetch: job.fetch, error: Error::Io(CANCELLED) });
        }
    }

    /// A read comes in. Nothing when too many wait already.
    pub fn begin(&mut self, now: Nanos, open: OpenId, range: ByteRange) -> Option<u32> {
        let slot = self.take_slot()?;
        self.begin_at(now, slot, open, range);
        Some(slot)
    }

    /// A slot for a read. Nothing when too many wait already.
    pub fn take_slot(&mut self) -> Option<u32> {
        match self.free_waits.pop() {
            Some(slot) => Some(slot),
            None if self.waits.len() >= MAX_READS => None,
            None => {
                self.waits.push(Wait::new());
                Some((self.waits.len() - 1) as u32)
            }
        }
    }

    /// A read comes in that has its slot.
    pub fn begin_at(&mut self, now: Nanos, slot: u32, open: OpenId, range: ByteRange) -> ReadId {
        self.reads += 1;
        let read = ReadId(self.reads << SLOT_BITS | u64::from(slot));
        self.feed(now, Event::Read { read, open, range, random: false });
        read
    }

    /// The slot of a read that has ended is free.
    pub fn end(&mut self, slot: u32) {
        let wait = &mut self.waits[slot as usize];
        wait.failed = None;
        self.free_waits.push(slot);
    }

    pub fn wait(&mut self, slot: u32) -> &mut Wait {
        &mut self.waits[slot as usize]
    }

    // ---- jobs ----

    /// The threads and tasks to wake now; nearly always none.
    #[inline]
    pub fn wakeups(&mut self) -> Option<Wakeups> {
        let nobody_waits = self.sleepers + self.attendants == 0;
        let looked_after =
            self.unattended == 0 || nobody_waits && (self.workers.idle_poll != IdlePoll::No || self.workers.most == 0);
        if self.notifications.is_empty()
            && self.jobs.len() == 0
            && self.checks.is_empty()
            && !self.workers.timer_moved
            && looked_after
        {
            return None;
        }
        self.plan()
    }

    #[cold]
    fn plan(&mut self) -> Option<Wakeups> {
        let batches = if self.jobs.len() > 0 { self.batches() } else { Vec::new() };
        let idle_poll = self.unattended > 0 && !self.hand_over();
        let wakeups = Wakeups { batches, notifications: std::mem::take(&mut self.notifications), ..Wakeups::default() };
        let others = self.checks.len();
        let wakeups = wakeups.plan(&self.jobs, &mut self.workers, &mut self.waits, (others, idle_poll))?;
        self.sleepers -= wakeups.sleepers_rung;
        Some(wakeups)
    }

    /// A caller goes to sleep for its read.
    pub fn falls_asleep(&mut self, slot: u32, file: FileId) -> Arc<Condvar> {
        self.sleepers += 1;
        let wait = &mut self.waits[slot as usize];
        (wait.asleep, wait.file) = (true, file);
        Arc::clone(&wait.condvar)
    }

    /// A caller is awake again. True when it was notified.
    pub fn wakes(&mut self, slot: u32, file: FileId) -> bool {
        let rung = !std::mem::take(&mut self.waits[slot as usize].asleep);
        self.sleepers -= u32::from(!rung);
        self.arrived(file);
        rung
    }

    /// A job for a caller that waits for `range`. Readahead that arrives piece by piece is left to a worker, if one can
    /// take it: a caller that ran it would have to stay to its end, and not only for the bytes it waits for.
    pub fn take_job(&mut self, file: FileId, range: ByteRange) -> Option<Job> {
        // Several are better handed over together: the next time the lock is given up they are, demand first.
        if self.worth_a_batch(file) {
            return None;
        }
        let workers = &self.workers;
        let (free, alone) = (workers.idle + workers.called > 0 || workers.started < workers.most, workers.most == 0);
        if free && self.file(file).is_some_and(|f| f.streams) {
            return self.jobs.take_demand(file, range, alone);
        }
        self.jobs.take_for(file, range, alone)
    }

    /// One full buffer of a job that goes on.
    pub fn land(&mut self, now: Nanos, job: &Job, part: Part) {
        if self.machine.fetch(job.fetch).is_none_or(|f| f.doomed) {
            return;
        }
        let bytes = part.start + part.chunk.bytes().len() as u64 - job.range.start();
        bytes::keep(&self.machine, &mut self.store, job, vec![part], bytes);
        self.feed(now, Event::Progress { fetch: job.fetch, bytes });
    }

    /// A worker could not be started: no more are tried.
    pub fn not_spawned(&mut self) {
        self.workers.started -= 1;
        self.workers.called = self.workers.called.saturating_sub(1);
        self.workers.most = self.workers.started;
        if self.workers.most == 0 {
            self.tell_all();
        }
    }

    /// The end of a job: bytes into the store, the event to the machine. A job that went well says how much was read,
    /// and how large its source is now.
    pub fn complete(&mut self, now: Nanos, job: &Job, mut parts: Vec<Part>, result: Result<(usize, u64), SourceError>) {
        match result {
            Ok((read, size)) => {
                let bytes = (read as u64).min(job.range.len());
                // In place before the machine says that they are.
                if let Some(fetch) = self.machine.fetch(job.fetch).filter(|f| !f.doomed) {
                    // What has landed before may have been dropped again.
                    let landed = job.range.start() + fetch.arrived;
                    parts.retain(|part| part.start >= landed);
                    bytes::keep(&self.machine, &mut self.store, job, parts, bytes);
                }
                self.feed(now, Event::Done { fetch: job.fetch, bytes });
                self.grown(now, job.file, job.version, size);
            }
            Err(error) => {
                if let SourceError::Changed { .. } = error {
                    self.changed(now, job.file, job.version);
                }
                self.feed(now, Event::Failed { fetch: job.fetch, error: event_error(&error) });
            }
        }
    }

    /// The budget has nothing left for a readahead: it is not read, and no demand read fails by it.
    pub fn refuse(&mut self, job: &Job) {
        self.feed(self.now, Event::Failed { fetch: job.fetch, error: Error::Limit });
    }

    /// The time that was asked for has come.
    pub fn ring_timer(&mut self, now: Nanos) {
        if self.wake_at.is_some_and(|at| at <= now) {
            self.wake_at = None;
            self.feed(now, Event::Timer);
        }
    }

    // ---- actions out ----

    /// The slot of a read that has an answer; its caller is to be woken.
    fn wait_of(&mut self, read: ReadId) -> Option<&mut Wait> {
        let wait = self.waits.get_mut((read.0 & ((1 << SLOT_BITS) - 1)) as usize)?;
        if wait.asleep {
            wait.asleep = false;
            self.sleepers -= 1;
            self.notifications.condvars.push(Arc::clone(&wait.condvar));
        }
        self.notifications.queues.extend(wait.reaps.take());
        self.notifications.wakers.extend(wait.waker.take());
        Some(wait)
    }

    fn apply_action(&mut self, action: &Action) {
        if let Some(log) = &mut self.log {
            log.action(action);
        }
        match *action {
            Action::Serve { read, lease, file, range, last } => {
                let ready = Ready { lease, range, bytes: Lease::default(), whole: true, last };
                let mut ready = ready;
                ready.whole = bytes::fill(&self.machine, &self.store, file, range, &mut ready.bytes);
                if let Some(wait) = self.wait_of(read) {
                    wait.ready.push_back(ready);
                }
            }
            Action::Fail { read, error } => {
                if let Some(wait) = self.wait_of(read) {
                    wait.failed = Some(error);
                }
            }
            Action::Submit { fetch, file, range, class } => {
                let version = self.file(file).map_or(0, |file| file.version);
                self.jobs.push(Job { fetch, file, range, version }, class);
            }
            Action::Drop { slot, pages, .. } => self.store.drop_pages(slot, pages),
            Action::Cancel { fetch } => self.cancelled.extend(self.jobs.cancel(fetch)),
            Action::WakeAt { at } => {
                if self.wake_at.is_none_or(|old| at < old) {
                    self.wake_at = Some(at);
                    self.workers.timer_moved = true;
                }
            }
        }
    }
}

/// An unused number below `limit`: one that was given back, or the next.
fn take_number<T>(list: &mut Vec<Option<T>>, free: &mut Vec<u32>, limit: u32) -> Option<u32> {
    if let Some(number) = free.pop() {
        return Some(number);
    }
    let number = u32::try_from(list.len()).ok().filter(|&n| n < limit)?;
    list.push(None);
    Some(number)
}

const CANCELLED: i32 = rustix::io::Errno::CANCELED.raw_os_error();

fn event_error(error: &SourceError) -> Error {
    match error {
        SourceError::Io { errno, .. } => Error::Io(*errno),
        SourceError::Short { .. } => Error::Short,
        SourceError::Changed { .. } => Error::Changed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again_and_end_at_the_limit() {
        let (mut list, mut free): (Vec<Option<u8>>, Vec<u32>) = Default::default();
        let taken: Vec<Option<u32>> = (0..4).map(|_| take_number(&mut list, &mut free, 3)).collect();
        assert_eq!(taken, [Some(0), Some(1), Some(2), None]);
        free.push(1);
        assert_eq!((take_number(&mut list, &mut free, 3), take_number(&mut list, &mut free, 3)), (Some(1), None));
    }
}
