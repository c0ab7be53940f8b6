//! The state under the driver's lock: the machine, the cached bytes, and the reads and fetches that wait.
//!
//! Every method is short, does not block, and applies all actions of the machine. Each part owns its own state:
//! the files, the reads, the queues, the jobs, the workers and the notifications. This file connects them.
//!
//! ```text
//!   event ──► machine ──► Submit ──► jobs: demand, ahead      (a caller, a worker or a queue takes them)
//!      │          │  └──► Serve, Fail ──► reads               (the caller takes them)
//!      └─► log ◄──┘  └──► Drop ──► store;  Cancel ──► a job not begun is answered;  WakeAt ──► the workers' timer
//! ```
//!
//! Example: `Read` of a page that is present. The machine answers with one `Serve`; the store leases the bytes, and the
//! piece is in the slot of the read when `feed` returns.

use super::files::{FileKey, Files, OpenAttempt};
use super::jobs::{self, Job, Jobs, Part, TransferReport};
use super::lock::Remote;
use super::notifications::Notifications;
use super::queue::{Arrival, Batch, NewQueue, QueueFill, Queues, TaskWait};
use super::reads::{Hit, NotedHits, Reads, Ready};
use super::workers::{CalledWorkers, Workers};
use crate::budget::Budget;
use crate::error::Fault;
use crate::eventlog::EventLog;
use crate::latency::LatencyClock;
use crate::source::{Cause, CompletedTransfer, EIO, Source, SourceError};
use crate::store::{Lease, Store};
use foreread_core::event::{Action, Error, Event};
use foreread_core::machine::{MAX_IDS, Machine};
use foreread_core::units::{ByteRange, FileId, Nanos, OpenId, ReadId};
use std::sync::Arc;

/// A source that becomes a file.
pub struct NewFile {
    pub source: Remote<dyn Source>,
    pub size: u64,
    pub streams: bool,
    pub queue: Option<NewQueue>,
    /// How long its storage took to answer when it was opened.
    pub answer_ns: Option<u64>,
}

pub struct State {
    machine: Machine,
    store: Store,
    log: Option<EventLog>,
    /// The latest time seen: it never goes back, whatever order threads come in.
    now: Nanos,
    cancelled: Vec<Job>,
    /// The error of the fetch whose end is being applied.
    failing: Option<Cause>,
    /// Scratch of a report.
    hits: Vec<Hit>,
    notifications: Notifications,
    /// Times of the sources: demand when they began, and readahead.
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

    pub fn log(&mut self) -> Option<&mut EventLog> {
        self.log.as_mut()
    }

    /// Nothing is logged from now on.
    pub fn take_log(&mut self) -> Option<EventLog> {
        self.log.take()
    }

    // ---- files and readers ----

    /// A new file; nothing when there are too many. It stays until its last reader is closed.
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
        let file = self.files.add(source, size, streams, MAX_IDS)?;
        self.files.answered(file, answer_ns);
        if let Some(queue) = queue {
            self.queues.add(file, queue, self.files.known(file).version);
        }
        Some(file)
    }

    /// A new file without a reader, which a listing has behind `after`; nothing when there are too many. It stays until it is
    /// not listed any more and its last reader is closed.
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

    /// No listing has the file any more.
    pub fn unlist(&mut self, now: Nanos, key: FileKey) {
        if let Some(file) = self.files.unlist(key) {
            self.forget(now, file);
        }
    }

    /// A new reader, or nothing when there are too many.
    pub fn open(&mut self, now: Nanos, file: FileId) -> Option<OpenId> {
        match self.files.open(file, MAX_IDS) {
            OpenAttempt::Yes { open, size } => {
                self.feed(now, Event::Open { open, file, size });
                if let Some(ns) = self.files.take_answer_ns(file) {
                    self.feed(now, Event::Answered { ns });
                }
                Some(open)
            }
            OpenAttempt::No => None,
            OpenAttempt::NoReader => {
                self.forget(now, file);
                None
            }
        }
    }

    /// The reader is gone, and with the last one of a file everything that is kept of it.
    pub fn close(&mut self, now: Nanos, open: OpenId) {
        let Some(closed) = self.files.close(open) else {
            return;
        };
        self.feed(now, Event::Close { open });
        if closed.last {
            self.forget(now, closed.file);
        }
    }

    /// Drops a file's pages and gives its number back. Transfers that run end as they like: their fetches are doomed. What is
    /// submitted is answered here, and its queue, when it is dropped, waits for it.
    fn forget(&mut self, now: Nanos, file: FileId) {
        self.feed(now, Event::Forget { file });
        for fetch in self.queues.remove(file, &mut self.notifications) {
            self.feed(
                now,
                Event::Failed {
                    fetch,
                    error: Error::Io(EIO),
                },
            );
        }
        if let Some(source) = self.files.remove(file) {
            self.notifications.drop_source(source);
        }
    }

    /// This version of the source may be larger than the machine knows.
    pub fn grow(&mut self, now: Nanos, file: FileId, version: u64, size: u64) {
        if self.files.grow(file, version, size) {
            self.store.outdate();
            self.feed(now, Event::Grown { file, size });
        }
    }

    /// The source is another version than `version`. The first to say so drops everything of the old one.
    pub fn change(&mut self, now: Nanos, file: FileId, version: u64) {
        if self.files.change(file, version) {
            self.feed(now, Event::Changed { file, size: 0 });
        }
    }

    /// The source has said how large it is since it changed.
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
            self.feed(
                now,
                Event::Failed {
                    fetch: job.fetch,
                    error: Error::Io(CANCELLED),
                },
            );
        }
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
                let mut ready = Ready {
                    lease,
                    range,
                    bytes: Lease::default(),
                    whole: true,
                    last,
                };
                ready.whole = jobs::fill(&self.machine, &self.store, file, range, &mut ready.bytes);
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
                let version = self.files.known(file).version;
                self.jobs.push(
                    Job {
                        fetch,
                        file,
                        range,
                        version,
                    },
                    class,
                );
            }
            Action::Drop { slot, pages, .. } => self.store.drop_pages(slot, pages),
            Action::Cancel { fetch } => self.cancelled.extend(self.jobs.cancel(fetch)),
            Action::WakeAt { at } => self.workers.set_timer(at),
        }
    }

    /// A read begins that has its slot.
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

    /// The pages of a read that need no question are shown: the next such read needs no lock.
    fn show(&mut self, open: OpenId, range: ByteRange) {
        let pages = self.machine.config().page.cover(range);
        let Some(settled) = self.machine.settled(open, pages) else {
            return;
        };
        self.store.show(settled, self.files.known(settled.file));
    }

    /// Reports the reads that were served without the lock to the machine. Nothing is measured from the time of a hit: it is
    /// that of the event before.
    #[cold]
    pub fn report_hits(&mut self, noted: &NotedHits) {
        let mut scratch = std::mem::take(&mut self.hits);
        noted.take(&mut scratch, |Hit { open, range }| {
            let read = self.reads.number();
            self.feed(self.now, Event::Hit { read, open, range });
        });
        self.hits = scratch;
    }

    /// The time that the machine asked for has come.
    #[inline]
    pub fn ring_timer(&mut self, now: Nanos) {
        if self.workers.take_due_timer(now) {
            self.feed(now, Event::Timer);
        }
    }

    // ---- fetches ----

    /// A job for a caller that waits for `range`. Readahead that arrives piece by piece is left to a worker, if one can
    /// take it: a caller that ran it would have to stay to its end, and not only for the bytes it waits for.
    pub fn take_job(&mut self, file: FileId, range: ByteRange) -> Option<Job> {
        // Several are better submitted together: the next time the lock is given up they are, demand first.
        if self.jobs.has_several_of(file) && self.queues.has_room_for_several(file) {
            return None;
        }
        let alone = self.workers.is_disabled();
        if self.workers.has_room() && self.files.streams(file) {
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
        jobs::keep(&self.machine, &mut self.store, job, vec![part], bytes);
        self.feed(
            now,
            Event::Progress {
                fetch: job.fetch,
                bytes,
            },
        );
    }

    /// The end of a job: bytes into the store, the event to the machine.
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
                // In place before the machine says that they are.
                if let Some(fetch) = self.machine.fetch(job.fetch).filter(|f| !f.doomed) {
                    // What has landed before may have been dropped again.
                    let landed = job.range.start() + fetch.arrived;
                    parts.retain(|part| part.start >= landed);
                    jobs::keep(&self.machine, &mut self.store, job, parts, bytes);
                }
                self.feed(
                    now,
                    Event::Done {
                        fetch: job.fetch,
                        bytes,
                    },
                );
                self.grow(now, job.file, job.version, size);
            }
            Err(source_error) => {
                let is_change = matches!(source_error, SourceError::Changed { .. });
                let error = event_error(&source_error);
                self.failing = Some(Cause::new(source_error));
                if is_change {
                    self.change(now, job.file, job.version);
                }
                let fetch = job.fetch;
                self.feed(now, Event::Failed { fetch, error });
                self.forget_cause();
            }
        }
    }

    /// The reads that fail by an error of the source have it. It is dropped without the lock, as it may be the source's own type.
    fn forget_cause(&mut self) {
        if let Some(cause) = self.failing.take() {
            self.notifications.drop_cause(cause);
        }
    }

    /// The budget has nothing left for a readahead: it is not read, and no demand read fails by it.
    pub fn refuse(&mut self, job: &Job) {
        self.feed(
            self.now,
            Event::Failed {
                fetch: job.fetch,
                error: Error::Limit,
            },
        );
    }

    /// A transfer has ended at a queue, and the source has this size.
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
                over: Some(over),
            }) => {
                self.clocked[usize::from(over.ahead)].record(now.since(over.began));
                let last = parts.pop();
                parts
                    .into_iter()
                    .for_each(|part| self.land(now, &job, part));
                self.complete(
                    now,
                    &job,
                    last.into_iter().collect(),
                    Ok(TransferReport { bytes, size }),
                );
            }
            Some(Arrival::Landed {
                job,
                parts,
                size,
                over: None,
                ..
            }) => {
                parts
                    .into_iter()
                    .for_each(|part| self.land(now, &job, part));
                // Known before the lock is given up: a reader that is pinned to a size must not take these bytes.
                self.grow(now, file, job.version, size);
            }
        }
    }

    // ---- threads and tasks ----

    /// The threads and tasks to wake now; nearly always none.
    #[inline]
    pub fn wakeups(&mut self) -> Option<Wakeups> {
        let nothing_to_tell =
            self.notifications.is_empty() && self.jobs.is_empty() && !self.workers.timer_moved();
        if nothing_to_tell && self.is_attended() {
            None
        } else {
            self.plan()
        }
    }

    /// Every transfer in flight has a thread that reaps it, or no thread is to be called for it now.
    #[inline]
    fn is_attended(&self) -> bool {
        let sleepers = self.reads.sleepers();
        if self.queues.unattended() == 0 || sleepers == 0 && self.queues.are_polled(self.now) {
            return true;
        }
        let nothing_waits = sleepers + self.queues.waiting_threads() == 0;
        nothing_waits && (self.workers.polls_while_idle() || self.workers.is_disabled())
    }

    #[cold]
    fn plan(&mut self) -> Option<Wakeups> {
        let mut filled = QueueFill::default();
        // At the end of the driver nothing more is submitted.
        if !self.jobs.is_empty() && !self.workers.is_closing() {
            self.fill_batches(&mut filled);
        }
        let idle_poll = self.queues.unattended() > 0
            && !self
                .queues
                .wake_reapers(self.now, &mut self.reads, &mut self.notifications);
        let notifications = std::mem::take(&mut self.notifications);
        let wakeups = Wakeups {
            batches: filled.batches,
            notifications,
            workers: CalledWorkers::default(),
        };
        wakeups.plan(&self.jobs, &mut self.workers, &mut self.reads, idle_poll)
    }

    /// Takes what the queues have room for out of the jobs. Readahead for which the budget has nothing left is refused.
    fn fill_batches(&mut self, filled: &mut QueueFill) {
        loop {
            self.queues.fill(&mut self.jobs, self.now, filled);
            let refused = std::mem::take(&mut filled.refused);
            if refused.is_empty() {
                return;
            }
            // Refused ones may make room for others in the machine.
            refused.iter().for_each(|job| self.refuse(job));
        }
    }

    /// A task reads a file: a thread reaps its queue, if it has one.
    pub fn want_reaper_thread(&mut self, file: FileId) {
        self.queues.want_thread(file, &mut self.notifications);
    }

    /// How the task of this slot, which has nothing yet, goes on.
    pub fn task_waits(&mut self, now: Nanos, file: FileId, slot: u32) -> TaskWait {
        self.queues
            .task_waits(file, slot, now, &mut self.notifications)
    }

    /// The read of this slot is over: its task polls no longer.
    pub fn end_poll(&mut self, file: FileId, slot: u32) {
        self.queues.end_poll(
            file,
            slot,
            self.now,
            &mut self.reads,
            &mut self.notifications,
        );
    }

    /// A worker could not be started.
    pub fn worker_not_spawned(&mut self) {
        self.workers.not_spawned();
        if self.workers.is_disabled() {
            self.jobs.clear_checks();
            self.reads.wake_all_tasks(&mut self.notifications);
        }
    }

    /// The driver ends: each thread of it looks up, ends, and calls no other thread.
    pub fn close_workers(&mut self) {
        self.workers.close();
        self.jobs.cancel_streams();
        self.queues.interrupt_threads(&mut self.notifications);
    }
}

const CANCELLED: i32 = rustix::io::Errno::CANCELED.raw_os_error();

/// An error of a source as events have it.
pub fn event_error(error: &SourceError) -> Error {
    match error {
        SourceError::Io { errno, .. } | SourceError::Other { errno, .. } => Error::Io(*errno),
        SourceError::Short { .. } => Error::Short,
        SourceError::Changed { .. } => Error::Changed,
    }
}

/// What a thread does once it has given up the lock: which threads and tasks it wakes, and what it submits.
///
/// Example: one demand fetch and five readahead fetches wait, two workers are idle and one may still be started. Two are
/// notified and one is started. With no worker left for the demand fetch, a sleeping caller would be notified to run it.
#[derive(Default)]
pub struct Wakeups {
    /// What is submitted first.
    pub batches: Vec<Batch>,
    pub notifications: Notifications,
    pub workers: CalledWorkers,
}

impl Wakeups {
    /// Calls a worker for each job for which none has been called, and callers that sleep for demand that is left
    /// over: no demand fetch waits for a worker. No thread is called twice for one thing. `idle_poll`: a worker should
    /// poll the queues.
    #[cold]
    pub fn plan(
        mut self,
        jobs: &Jobs,
        workers: &mut Workers,
        reads: &mut Reads,
        idle_poll: bool,
    ) -> Option<Wakeups> {
        self.workers = workers.call(jobs.len() + jobs.checks(), idle_poll);
        let left_over = jobs.demand_len().saturating_sub(workers.called() as usize);
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

    /// (demand, ahead), (idle, called, may still be started), asleep; then workers called, started, callers notified.
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
                (workers.called(), workers.started()),
                (called + want.0 + want.1, want.1)
            );
            assert_eq!(reads.sleepers() as usize, asleep - want.2);
            let again = plan(&mut workers, &mut reads);
            assert_eq!((again.0, again.1), (0, 0), "workers are called once");
        }
    }
}
