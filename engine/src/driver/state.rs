//! The state under the driver's lock: the state machine, the cached bytes, and waiting reads and fetches.
//!
//! Every method is short, does not block, and applies all actions of the state machine. The states of files, reads, queues, jobs, workers
//! and notifications are separate types, each in its own file. This file connects these types.
//!
//! ```text
//!   event ──► machine ──► Submit ──► jobs: demand, ahead      (a caller, a worker or a queue takes them)
//!      │          │  └──► Serve, Fail ──► reads               (the caller takes them)
//!      └─► log ◄──┘  └──► Drop ──► store;  Cancel ──► a job not started is answered;  WakeAt ──► the workers' timer
//! ```
//!
//! Example: a thread passes the event `Read` for a cached page. The state machine answers with one `Serve`; the store leases the bytes,
//! and they are in the slot of the read when `feed` returns.

use super::files::{FileKey, Files};
use super::jobs::{self, Job, Jobs, Part, TransferReport};
use super::lock::Remote;
use super::notifications::{Notification, Notifications};
use super::queue::{Arrival, Batch, Queues};
use super::reads::{Hit, NotedHits, Reads, Ready};
use super::workers::{CalledWorkers, Workers};
use crate::budget::Budget;
use crate::error::Fault;
use crate::eventlog::EventLog;
use crate::latency::LatencyClock;
use crate::source::{Cause, CompletedTransfer, EIO, Queue, Source, SourceError};
use crate::store::{Lease, Store};
use foreread_core::event::{Action, Error, Event};
use foreread_core::machine::Machine;
use foreread_core::units::{ByteRange, FetchId, FileId, Nanos, OpenId, ReadId};
use std::sync::Arc;

/// A source with its properties, which will be added to the state as a file.
pub struct NewFile {
    pub source: Remote<dyn Source>,
    pub size: u64,
    pub streams: bool,
    /// Its asynchronous queue, with the maximum number of concurrent transfers.
    pub queue: Option<(Remote<dyn Queue>, usize)>,
    /// How long its storage took to answer when it was opened.
    pub answer_ns: Option<u64>,
}

pub struct State {
    machine: Machine,
    store: Store,
    log: Option<EventLog>,
    /// The latest time seen. It never goes back, whatever the order in which threads take the lock.
    now: Nanos,
    cancelled: Vec<Job>,
    /// The error of the fetch whose end is being applied.
    failing: Option<Cause>,
    /// Scratch space for reporting hits.
    hits: Vec<Hit>,
    notifications: Notifications,
    /// Latencies of the sources, by class of the fetch when it started: demand, readahead.
    pub clocked: [LatencyClock; 2],
    pub files: Files,
    pub reads: Reads,
    pub queues: Queues,
    pub jobs: Jobs,
    pub workers: Workers,
}

impl State {
    pub fn new(
        machine: Machine,
        store: Store,
        log: Option<EventLog>,
        workers: u32,
        budget: Arc<Budget>,
    ) -> State {
        State {
            queues: Queues::new(machine.config().page, budget),
            machine,
            store,
            log,
            now: Nanos(0),
            cancelled: Vec::new(),
            failing: None,
            hits: Vec::new(),
            notifications: Notifications::default(),
            clocked: Default::default(),
            files: Files::default(),
            reads: Reads::default(),
            jobs: Jobs::default(),
            workers: Workers::new(workers),
        }
    }

    // ---- getters ----

    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Takes the event log out of the state; nothing is logged afterwards.
    pub fn take_log(&mut self) -> Option<EventLog> {
        self.log.take()
    }

    // ---- files and readers ----

    /// Adds a file, which stays until its last reader is closed. Returns `None` if there are too many files.
    pub fn add_file(
        &mut self,
        NewFile {
            source,
            size,
            streams,
            queue,
            answer_ns,
        }: NewFile,
    ) -> Option<FileId> {
        let file = self.files.add(source, size, streams, answer_ns)?;
        if let Some((queue, depth)) = queue {
            let number = self.files.known(file).version;
            self.queues.add(file, queue, depth, number);
        }
        Some(file)
    }

    /// Adds a file without a reader, which follows `after` in a listing. The file stays until it is no longer listed and its last reader
    /// is closed. Returns `None` if there are too many files.
    pub fn list(
        &mut self,
        now: Nanos,
        new: NewFile,
        after: Option<FileKey>,
        planned: bool,
    ) -> Option<FileKey> {
        let (size, after) = (new.size, after.and_then(|after| self.files.number(after)));
        let file = self.add_file(new)?;
        self.files.list(file);
        self.feed(
            now,
            Event::List {
                file,
                size,
                after,
                planned,
            },
        );
        self.files.key(file)
    }

    /// Reports that the file is no longer in any listing.
    pub fn unlist(&mut self, now: Nanos, key: FileKey) {
        if let Some(file) = self.files.unlist(key) {
            self.forget_unused(now, file);
        }
    }

    /// Opens a reader. Returns `None` if there are too many readers.
    pub fn open(&mut self, now: Nanos, file: FileId) -> Option<OpenId> {
        let Some((open, size)) = self.files.open(file) else {
            self.forget_unused(now, file);
            return None;
        };
        self.feed(now, Event::Open { open, file, size });
        if let Some(ns) = self.files.take_answer_ns(file) {
            self.feed(now, Event::Answered { ns });
        }
        Some(open)
    }

    /// Closes a reader. If this was the last reader of a file that is not listed, all state of the file is removed.
    pub fn close(&mut self, now: Nanos, open: OpenId) {
        if let Some(file) = self.files.close(open) {
            self.feed(now, Event::Close { open });
            self.forget_unused(now, file);
        }
    }

    /// If a file has no reader and is not listed: drops its pages and frees its number. Running transfers end by themselves, and their bytes
    /// are discarded. Submitted fetches are answered here; the file's queue waits for them when it is dropped.
    fn forget_unused(&mut self, now: Nanos, file: FileId) {
        if !self.files.is_unused(file) {
            return;
        }
        self.feed(now, Event::Forget { file });
        for fetch in self.queues.remove(file, &mut self.notifications) {
            self.fail(now, fetch, Error::Io(EIO));
        }
        if let Some(source) = self.files.remove(file) {
            let source = Notification::Drop(Box::new(source));
            self.notifications.add(source);
        }
    }

    /// Reports the size of this version of the source, which may have grown.
    pub fn grow(&mut self, now: Nanos, file: FileId, version: u64, size: u64) {
        if self.files.grow(file, version, size) {
            self.store.outdate();
            self.feed(now, Event::Grown { file, size });
        }
    }

    /// Reports that the source no longer has `version`. The first report of a change drops all pages and fetches of the old version.
    pub fn change(&mut self, now: Nanos, file: FileId, version: u64) {
        if self.files.change(file, version) {
            self.feed(now, Event::Changed { file, size: 0 });
        }
    }

    /// Sets the size that a changed source has reported.
    pub fn accept(&mut self, now: Nanos, file: FileId, version: u64, size: u64) {
        if self.files.accept(file, version) {
            self.grow(now, file, version, size);
            self.tell_size(file);
        }
    }

    /// Wakes tasks that wait for the size of the file.
    pub fn tell_size(&mut self, file: FileId) {
        self.reads.tell_size(file, &mut self.notifications);
    }

    // ---- events in, actions out ----

    /// Passes one event to the state machine and applies the actions that it returns.
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
            // Cancelled before it started: answered here, without a transfer.
            self.fail(now, job.fetch, Error::Io(CANCELLED));
        }
    }

    pub fn fail(&mut self, now: Nanos, fetch: FetchId, error: Error) {
        self.feed(now, Event::Failed { fetch, error });
    }

    fn apply_action(&mut self, action: &Action) {
        if let Some(log) = &mut self.log {
            log.action(action);
        }
        match *action {
            Action::Serve {
                read,
                lease,
                file,
                range,
                last,
            } => {
                let mut bytes = Lease::default();
                let whole = jobs::fill(&self.machine, &self.store, file, range, &mut bytes);
                let ready = Ready {
                    lease,
                    range,
                    bytes,
                    whole,
                    last,
                };
                self.reads.serve(read, ready, &mut self.notifications);
            }
            Action::Fail { read, error } => {
                let fault = match &self.failing {
                    Some(cause) => Fault::Source(error, cause.clone()),
                    None => Fault::Read(error),
                };
                self.reads.fail(read, fault, &mut self.notifications);
            }
            Action::Submit {
                fetch,
                file,
                range,
                class,
            } => {
                let job = Job {
                    fetch,
                    file,
                    range,
                    version: self.files.known(file).version,
                };
                self.jobs.push(job, class);
            }
            Action::Drop { slot, pages, .. } => self.store.drop_pages(slot, pages),
            Action::Cancel { fetch } => self.cancelled.extend(self.jobs.cancel(fetch)),
            Action::WakeAt { at } => self.workers.set_timer(at),
        }
    }

    /// Starts a read that already has its slot.
    pub fn begin(&mut self, now: Nanos, slot: u32, open: OpenId, range: ByteRange) -> ReadId {
        self.show(open, range);
        let read = self.reads.begin(slot);
        self.feed(
            now,
            Event::Read {
                read,
                open,
                range,
                random: false,
            },
        );
        read
    }

    /// Publishes the pages of a read if they are settled, so that the next such read needs no lock.
    fn show(&mut self, open: OpenId, range: ByteRange) {
        let pages = self.machine.config().page.cover(range);
        let Some(settled) = self.machine.settled(open, pages) else {
            return;
        };
        self.store.show(settled, self.files.known(settled.file));
    }

    /// Reports to the state machine the reads that were served without the lock. These reads are reported with the time of the latest
    /// event, because no measurement uses the time of a hit.
    #[cold]
    pub fn report_hits(&mut self, noted: &NotedHits) {
        let mut scratch = std::mem::take(&mut self.hits);
        noted.take(&mut scratch, |Hit { open, range }| {
            let read = self.reads.number();
            self.feed(self.now, Event::Hit { read, open, range });
        });
        self.hits = scratch;
    }

    /// Passes the event `Timer` to the state machine, if the time has come for which the machine has requested it.
    #[inline]
    pub fn ring_timer(&mut self, now: Nanos) {
        if self.workers.take_due_timer(now) {
            self.feed(now, Event::Timer);
        }
    }

    // ---- fetches ----

    /// Takes a job for a caller that waits for `range`. A streaming readahead fetch is left to a worker if a worker is available. A
    /// caller that ran a streaming fetch would have to wait until the whole fetch ends, although it may need only the first bytes.
    pub fn take_job(&mut self, file: FileId, range: ByteRange) -> Option<Job> {
        // Several jobs are better submitted together: the next `unlock` does that, demand first.
        if self.jobs.has_several_of(file) && self.queues.has_room_for_several(file) {
            return None;
        }
        let alone = self.workers.is_disabled();
        if self.workers.has_room() && self.files.streams(file) {
            return self.jobs.take_demand(file, range, alone);
        }
        self.jobs.take_for(file, range, alone)
    }

    /// Stores one full buffer of a job whose transfer continues.
    pub fn land(&mut self, now: Nanos, job: &Job, part: Part) {
        if self.machine.fetch(job.fetch).is_none_or(|f| f.doomed) {
            return;
        }
        let bytes = part.start + part.chunk.bytes().len() as u64 - job.range.start();
        jobs::keep(&self.machine, &mut self.store, job, vec![part], bytes);
        let fetch = job.fetch;
        self.feed(now, Event::Progress { fetch, bytes });
    }

    /// Ends a job: stores its bytes, and reports the result to the state machine.
    pub fn complete(
        &mut self,
        now: Nanos,
        job: &Job,
        mut parts: Vec<Part>,
        result: Result<TransferReport, SourceError>,
    ) {
        match result {
            Ok(TransferReport { bytes, size }) => {
                let bytes = bytes.min(job.range.len());
                // Stored before the machine reports them as present.
                if let Some(fetch) = self.machine.fetch(job.fetch).filter(|f| !f.doomed) {
                    // Bytes that were stored earlier may have been dropped again.
                    let landed = job.range.start() + fetch.arrived;
                    parts.retain(|part| part.start >= landed);
                    jobs::keep(&self.machine, &mut self.store, job, parts, bytes);
                }
                let fetch = job.fetch;
                self.feed(now, Event::Done { fetch, bytes });
                self.grow(now, job.file, job.version, size);
            }
            Err(source_error) => {
                let is_change = matches!(source_error, SourceError::Changed { .. });
                let error = event_error(&source_error);
                self.failing = Some(Cause::new(source_error));
                if is_change {
                    self.change(now, job.file, job.version);
                }
                self.fail(now, job.fetch, error);
                // The failed reads have it.
                let cause = self.failing.take();
                let cause = cause.map(|cause| Notification::Drop(Box::new(cause)));
                self.notifications.extend(cause);
            }
        }
    }

    /// Refuses a readahead fetch because it would exceed a limit of the budget. The bytes of the fetch are not read, and no demand read
    /// fails because of this.
    pub fn refuse(&mut self, job: &Job) {
        self.fail(self.now, job.fetch, Error::Limit);
    }

    /// Handles a transfer that has ended at a queue; the source has this size.
    pub fn arrive(
        &mut self,
        now: Nanos,
        file: FileId,
        ended: CompletedTransfer,
        size: &Result<u64, SourceError>,
    ) {
        match self.queues.arrive(file, ended, size) {
            None => {}
            Some(Arrival::Failed { job, error }) => {
                self.complete(now, &job, Vec::new(), Err(error))
            }
            Some(Arrival::Landed {
                job,
                mut parts,
                bytes,
                size,
                over,
                began,
                ahead,
            }) => {
                let last = if over { parts.pop() } else { None };
                for part in parts {
                    self.land(now, &job, part);
                }
                if over {
                    self.clocked[usize::from(ahead)].record(now.since(began));
                    let report = TransferReport { bytes, size };
                    self.complete(now, &job, last.into_iter().collect(), Ok(report));
                } else {
                    // Recorded before the lock is released: a reader that is pinned to a size must not take these bytes.
                    self.grow(now, file, job.version, size);
                }
            }
        }
    }

    // ---- threads and tasks ----

    /// The threads and tasks to wake now; nearly always none.
    #[inline]
    pub fn wakeups(&mut self) -> Option<Wakeups> {
        let nothing_to_tell =
            self.notifications.is_empty() && self.jobs.is_empty() && !self.workers.timer_moved;
        if nothing_to_tell && self.is_attended() {
            None
        } else {
            self.plan()
        }
    }

    /// Whether every transfer in flight has a thread that reaps it, or no thread needs to be called for it now.
    #[inline]
    fn is_attended(&self) -> bool {
        let sleepers = self.reads.sleepers;
        if self.queues.unattended() == 0 || sleepers == 0 && self.queues.are_polled(self.now) {
            return true;
        }
        let nothing_waits = sleepers + self.queues.waiting_threads == 0;
        nothing_waits && (self.workers.polls_while_idle() || self.workers.is_disabled())
    }

    #[cold]
    fn plan(&mut self) -> Option<Wakeups> {
        let mut batches = Vec::new();
        // At the end of the driver nothing more is submitted.
        if !self.jobs.is_empty() && !self.workers.closing {
            self.fill_batches(&mut batches);
        }
        let idle_poll = self.queues.unattended() > 0
            && !self
                .queues
                .wake_reapers(self.now, &mut self.reads, &mut self.notifications);
        let notifications = std::mem::take(&mut self.notifications);
        let wakeups = Wakeups {
            batches,
            notifications,
            workers: CalledWorkers::default(),
        };
        wakeups.plan(&self.jobs, &mut self.workers, &mut self.reads, idle_poll)
    }

    /// Takes as many jobs as the queues have room for. Readahead that the budget has no room for is refused.
    fn fill_batches(&mut self, batches: &mut Vec<Batch>) {
        loop {
            let refused = self.queues.fill(&mut self.jobs, self.now, batches);
            if refused.is_empty() {
                return;
            }
            // Refused jobs may make room for others in the machine.
            refused.iter().for_each(|job| self.refuse(job));
        }
    }

    /// Reports that a task reads a file. If the file has a queue, a reaper thread is started for it.
    pub fn want_reaper_thread(&mut self, file: FileId) {
        self.queues.want_thread(file, &mut self.notifications);
    }

    pub fn task_polls(&mut self, now: Nanos, file: FileId, slot: u32) -> bool {
        self.queues
            .task_polls(file, slot, now, &mut self.notifications)
    }

    /// Ends the read of the task in this slot; the task then no longer polls the file's queue.
    pub fn end_poll(&mut self, file: FileId, slot: u32) {
        self.queues.end_poll(
            file,
            slot,
            self.now,
            &mut self.reads,
            &mut self.notifications,
        );
    }

    /// Reports that a worker could not be started.
    pub fn worker_not_spawned(&mut self) {
        self.workers.not_spawned();
        if self.workers.is_disabled() {
            // No worker asks sources for their size: the waiting tasks ask them.
            self.jobs.checks.clear();
            self.reads.wake_all_tasks(&mut self.notifications);
        }
    }

    /// Makes all workers of the driver end: each worker wakes up and ends, and no worker is started any more.
    pub fn close_workers(&mut self) {
        self.workers.close();
        self.jobs.cancel_streams();
        self.queues.interrupt_threads(&mut self.notifications);
    }
}

const CANCELLED: i32 = rustix::io::Errno::CANCELED.raw_os_error();

/// Converts an error of a source to the error type of the state machine's events.
pub fn event_error(error: &SourceError) -> Error {
    match error {
        SourceError::Io { errno, .. } | SourceError::Other { errno, .. } => Error::Io(*errno),
        SourceError::Short { .. } => Error::Short,
        SourceError::Changed { .. } => Error::Changed,
    }
}

/// The work that a thread does after it has released the lock: which threads and tasks it wakes, and which fetches it submits.
///
/// Example: one demand fetch and five readahead fetches wait, two workers are idle, and one more may be started. Two workers are notified
/// and one is started. If no worker were left for the demand fetch, a sleeping caller would be notified to run it.
#[derive(Default)]
pub struct Wakeups {
    /// Batches, which are submitted first.
    pub batches: Vec<Batch>,
    pub notifications: Notifications,
    pub workers: CalledWorkers,
}

impl Wakeups {
    /// Notifies or starts a worker for each job that has no worker yet. For demand jobs without a worker, it notifies sleeping callers, so
    /// that no demand fetch depends on a worker. No two threads are notified for the same job. If `idle_poll` is set, a worker should poll
    /// the queues.
    #[cold]
    pub fn plan(
        mut self,
        jobs: &Jobs,
        workers: &mut Workers,
        reads: &mut Reads,
        idle_poll: bool,
    ) -> Option<Wakeups> {
        self.workers = workers.call(jobs.len() + jobs.checks.len(), idle_poll);
        let left_over = jobs.demand.len().saturating_sub(workers.called as usize);
        let alone = workers.is_disabled();
        reads.notify_sleepers(
            left_over,
            |file| alone || jobs.has_demand_of(file),
            &mut self.notifications,
        );
        let none = self.notifications.is_empty()
            && self.batches.is_empty()
            && self.workers == CalledWorkers::default();
        (!none).then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::super::jobs::tests::jobs;
    use super::*;
    use foreread_core::units::FileId;

    /// Columns: (demand, ahead), (idle, called, may still be started), asleep; then workers called, workers started, callers
    /// notified.
    #[test]
    fn needed_workers_are_called_once() {
        for ((demand, ahead), (idle, called, free), asleep, want) in [
            ((0, 1), (0, 0, 2), 1, (0, 1, 0)),
            ((0, 1), (2, 0, 2), 1, (1, 0, 0)),
            ((0, 1), (2, 1, 2), 1, (0, 0, 0)),
            ((1, 0), (0, 0, 0), 1, (0, 0, 1)),
            ((1, 0), (0, 0, 0), 0, (0, 0, 0)),
            ((1, 3), (1, 0, 1), 2, (1, 1, 0)),
            ((3, 3), (1, 0, 0), 9, (1, 0, 2)),
            ((0, 5), (0, 0, 0), 9, (0, 0, 0)),
        ] {
            let mut workers = Workers::with(free, idle, called);
            let mut reads = Reads::default();
            let slots: Vec<u32> = (0..9).filter_map(|_| reads.take_slot()).collect();
            slots
                .iter()
                .take(asleep)
                .for_each(|&slot| drop(reads.falls_asleep(slot, FileId(0))));
            let plan = |workers: &mut Workers, reads: &mut Reads| {
                let wakeups = Wakeups::default()
                    .plan(&jobs(demand, ahead), workers, reads, false)
                    .unwrap_or_default();
                (
                    wakeups.workers.notified,
                    wakeups.workers.spawned,
                    wakeups.notifications.condvars(),
                )
            };
            assert_eq!(
                plan(&mut workers, &mut reads),
                want,
                "{demand} {ahead} {idle} {called} {free} {asleep}"
            );
            assert_eq!(
                (workers.called, workers.started),
                (called + want.0 + want.1, want.1)
            );
            assert_eq!(reads.sleepers as usize, asleep - want.2);
            let again = plan(&mut workers, &mut reads);
            assert_eq!((again.0, again.1), (0, 0), "workers are called once");
        }
    }
}
