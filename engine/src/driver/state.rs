//! What stands behind the driver's one lock: the machine, the bytes, the reads that wait and the jobs to be run.
//!
//! Never: waits, reads a source, copies a reader's bytes or asks the time. Every method is short and leaves the
//! machine's answers all dealt with.
//!
//! ```text
//!   event ──► machine ──► Submit ──► jobs: demand, ahead      (a caller or a worker takes them)
//!      │          │  └──► Serve, Fail ──► waits[slot]         (its caller takes them)
//!      └─► log ◄──┘  └──► Drop ──► store;  Cancel ──► a job not begun is answered;  WakeAt ──► wake_at
//! ```

use crate::chunk::Chunk;
use crate::eventlog::EventLog;
use crate::source::{Source, SourceError};
use crate::store::{Lease, Store};
use foreread_core::event::{Action, Class, Error, Event};
use foreread_core::machine::{MAX_READS, Machine};
use foreread_core::units::{ByteRange, FetchId, FileId, LeaseId, Nanos, OpenId, PageSize, ReadId};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar};

/// Pages in a group of the machine's index.
pub const GROUP_PAGES: u64 = foreread_core::cache::GROUP_PAGES;

/// A fetch to be run.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    pub fetch: FetchId,
    pub file: FileId,
    pub range: ByteRange,
    /// The version of the file it was made for.
    pub version: u64,
}

/// Part of a fetch: the pages that lie in one group.
pub struct Part {
    /// First byte.
    pub start: u64,
    pub chunk: Chunk,
}

/// A served piece, ready to be copied.
pub struct Ready {
    pub lease: LeaseId,
    pub range: ByteRange,
    pub bytes: Lease,
    /// Every byte of the range is in `bytes`.
    pub whole: bool,
    pub last: bool,
}

/// One place for a read in progress; used again and again.
pub struct Wait {
    pub ready: VecDeque<Ready>,
    pub failed: Option<Error>,
    /// Its caller sleeps and nobody has rung yet.
    asleep: bool,
    bell: Arc<Condvar>,
}

/// A file, as far as the driver needs it.
pub struct File {
    pub source: Arc<dyn Source>,
    /// As told to the machine.
    pub size: u64,
    /// Counts the changes.
    pub version: u64,
}

/// See the head of this file.
pub struct State {
    machine: Machine,
    store: Store,
    page: PageSize,
    log: Option<EventLog>,
    /// The latest time seen: it never goes back, whatever order threads come in.
    now: Nanos,
    files: Vec<File>,
    /// Numbers of open descriptions in use.
    opens: Vec<Option<FileId>>,
    waits: Vec<Wait>,
    free_waits: Vec<u32>,
    reads: u64,
    demand: VecDeque<Job>,
    ahead: VecDeque<Job>,
    cancelled: Vec<Job>,
    pub running: u32,
    pub wake_at: Option<Nanos>,
    /// A worker has to look at `wake_at` again.
    wake_moved: bool,
    /// Callers whose read has something new: to be woken when the lock is given up.
    bells: Vec<Arc<Condvar>>,
    pub crew: Crew,
}

/// The worker threads. `idle + called` of them wait at their bell, or are being started.
#[derive(Default)]
pub struct Crew {
    pub most: u32,
    pub started: u32,
    pub idle: u32,
    /// Woken, not yet arrived.
    pub called: u32,
    pub closing: bool,
}

/// Whom to wake once the lock is given up.
#[derive(Default)]
pub struct Calls {
    /// Callers.
    pub bells: Vec<Arc<Condvar>>,
    /// How many idle workers.
    pub workers: u32,
    /// How many workers to start.
    pub hire: u32,
}

/// Bits of a read's number that are its place; above them a count makes each number new.
const PLACE_BITS: u32 = 16;
const _: () = assert!(MAX_READS <= 1 << PLACE_BITS);

impl State {
    pub fn new(machine: Machine, store: Store, log: Option<EventLog>, workers: u32) -> State {
        State {
            page: machine.config().page,
            machine,
            store,
            log,
            now: Nanos(0),
            files: Vec::new(),
            opens: Vec::new(),
            waits: Vec::new(),
            free_waits: Vec::new(),
            reads: 0,
            demand: VecDeque::new(),
            ahead: VecDeque::new(),
            cancelled: Vec::new(),
            running: 0,
            wake_at: None,
            wake_moved: false,
            bells: Vec::new(),
            crew: Crew { most: workers, ..Crew::default() },
        }
    }

    // ---- getters ----

    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    pub fn file(&self, file: FileId) -> &File {
        &self.files[file.0 as usize]
    }

    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Jobs that nobody has begun.
    pub fn queued(&self) -> usize {
        self.demand.len() + self.ahead.len()
    }

    /// Reads that have not returned.
    pub fn waiting(&self) -> usize {
        self.waits.len() - self.free_waits.len()
    }

    pub fn log(&mut self) -> Option<&mut EventLog> {
        self.log.as_mut()
    }

    // ---- files and readers ----

    pub fn add_file(&mut self, source: Arc<dyn Source>) -> FileId {
        let size = source.size();
        self.files.push(File { source, size, version: 0 });
        FileId((self.files.len() - 1) as u32)
    }

    /// The number of a new reader, or nothing when there are `limit` already.
    pub fn open(&mut self, now: Nanos, file: FileId, limit: u32) -> Option<OpenId> {
        let free = self.opens.iter().position(Option::is_none).unwrap_or(self.opens.len());
        let open = u32::try_from(free).ok().filter(|&n| n < limit).map(OpenId)?;
        if free == self.opens.len() {
            self.opens.push(None);
        }
        self.opens[free] = Some(file);
        let size = self.file(file).size;
        self.feed(now, Event::Open { open, file, size });
        Some(open)
    }

    pub fn close(&mut self, now: Nanos, open: OpenId) {
        if self.opens.get_mut(open.0 as usize).and_then(Option::take).is_some() {
            self.feed(now, Event::Close { open });
        }
    }

    // ---- events in ----

    /// Tells the machine one event and deals with its answers.
    pub fn feed(&mut self, now: Nanos, event: Event) {
        self.now = self.now.max(now);
        if let Some(log) = &mut self.log {
            log.event(self.now, &event);
        }
        self.machine.handle(self.now, event);
        while let Some(action) = self.machine.poll() {
            self.obey(&action);
        }
        while let Some(job) = self.cancelled.pop() {
            // Nobody wants it and nobody has begun it: answered here, without a transfer.
            self.feed(now, Event::Failed { fetch: job.fetch, error: Error::Io(CANCELLED) });
        }
    }

    /// A read comes in. Nothing when too many wait already.
    pub fn begin(&mut self, now: Nanos, open: OpenId, range: ByteRange) -> Option<u32> {
        let place = match self.free_waits.pop() {
            Some(place) => place,
            None if self.waits.len() >= MAX_READS => return None,
            None => {
                let (ready, bell) = (VecDeque::new(), Arc::new(Condvar::new()));
                self.waits.push(Wait { ready, failed: None, asleep: false, bell });
                (self.waits.len() - 1) as u32
            }
        };
        self.reads += 1;
        let read = ReadId(self.reads << PLACE_BITS | u64::from(place));
        self.feed(now, Event::Read { read, open, range, random: false });
        Some(place)
    }

    /// The place of a read that has ended is free.
    pub fn end(&mut self, place: u32) {
        let wait = &mut self.waits[place as usize];
        wait.failed = None;
        wait.asleep = false;
        self.free_waits.push(place);
    }

    pub fn wait(&mut self, place: u32) -> &mut Wait {
        &mut self.waits[place as usize]
    }

    /// Its caller sleeps from now on. Whoever rings takes that note away.
    pub fn fall_asleep(&mut self, place: u32) -> Arc<Condvar> {
        let wait = &mut self.waits[place as usize];
        wait.asleep = true;
        Arc::clone(&wait.bell)
    }

    pub fn wake_up(&mut self, place: u32) {
        self.waits[place as usize].asleep = false;
    }

    // ---- jobs ----

    /// A job for a caller that waits for `range`: one that brings bytes of it, else any that somebody waits for.
    pub fn job_for(&mut self, file: FileId, range: ByteRange) -> Option<Job> {
        let brings = |job: &Job| job.file == file && !job.range.intersect(range).is_empty();
        if let Some(i) = self.demand.iter().position(brings) {
            return self.demand.remove(i);
        }
        if let Some(i) = self.ahead.iter().position(brings) {
            return self.ahead.remove(i);
        }
        self.demand.pop_front()
    }

    /// The next job of a worker.
    pub fn any_job(&mut self) -> Option<Job> {
        self.demand.pop_front().or_else(|| self.ahead.pop_front())
    }

    /// Who has to be woken now; nobody, nearly always. Each is called once for each thing to do.
    pub fn calls(&mut self) -> Option<Calls> {
        if self.bells.is_empty() && self.demand.is_empty() && self.ahead.is_empty() && !self.wake_moved {
            return None;
        }
        let mut calls = Calls { bells: std::mem::take(&mut self.bells), ..Calls::default() };
        let crew = &mut self.crew;
        let jobs = (self.demand.len() + self.ahead.len() + usize::from(self.wake_moved)) as u32;
        let wanted = jobs.saturating_sub(crew.called);
        calls.workers = wanted.min(crew.idle);
        if !crew.closing {
            calls.hire = (wanted - calls.workers).min(crew.most - crew.started);
        }
        crew.idle -= calls.workers;
        crew.started += calls.hire;
        crew.called += calls.workers + calls.hire;
        // Workers take demand first. What they cannot take falls to callers that sleep, so nothing waits for a worker.
        let uncalled = (self.demand.len() as u32).saturating_sub(crew.called);
        self.wake_moved = false;
        for wait in self.waits.iter_mut().filter(|w| w.asleep).take(uncalled as usize) {
            wait.asleep = false;
            calls.bells.push(Arc::clone(&wait.bell));
        }
        (!calls.bells.is_empty() || calls.workers + calls.hire > 0).then_some(calls)
    }

    /// A worker could not be started: no more are tried.
    pub fn not_hired(&mut self) {
        self.crew.started -= 1;
        self.crew.called = self.crew.called.saturating_sub(1);
        self.crew.most = self.crew.started;
    }

    /// The end of a job: bytes into the store, the event to the machine.
    pub fn complete(&mut self, now: Nanos, job: &Job, parts: Vec<Part>, result: Result<usize, SourceError>) {
        match result {
            Ok(read) => {
                let bytes = (read as u64).min(job.range.len());
                let doomed = self.machine.fetch(job.fetch).is_none_or(|f| f.doomed || f.arrived > 0);
                if !doomed {
                    self.keep(job, parts, bytes);
                }
                self.feed(now, Event::Done { fetch: job.fetch, bytes });
                let size = self.file(job.file).source.size();
                self.grown(now, job.file, size);
            }
            Err(error) => {
                if let SourceError::Changed { .. } = error {
                    self.changed(now, job.file, job.version);
                }
                self.feed(now, Event::Failed { fetch: job.fetch, error: event_error(&error) });
            }
        }
    }

    /// Puts what has arrived in place: whole pages, and the last one of the file.
    fn keep(&mut self, job: &Job, parts: Vec<Part>, bytes: u64) {
        let arrived = job.range.start() + bytes;
        for part in parts {
            let page = self.page.page_of(part.start);
            let end = part.start + part.chunk.bytes().len() as u64;
            if arrived < end.min(job.range.end()) {
                // An early end is rare: the part is given up, and with it what follows.
                return self.keep_front(job.file, page, part.chunk, arrived - part.start.min(arrived));
            }
            if let Some(slot) = self.machine.group_slot(job.file, page / GROUP_PAGES) {
                self.store.put(slot, (page % GROUP_PAGES) as usize, Arc::new(part.chunk));
            }
        }
    }

    /// Keeps the whole pages at the front of a chunk.
    fn keep_front(&mut self, file: FileId, page: u64, chunk: Chunk, bytes: u64) {
        let whole = self.page.page_of(bytes);
        let gone = (chunk.pages() as u64).saturating_sub(whole);
        let Some(slot) = self.machine.group_slot(file, page / GROUP_PAGES).filter(|_| whole > 0) else { return };
        let at = page % GROUP_PAGES;
        self.store.put(slot, at as usize, Arc::new(chunk));
        if gone > 0 {
            self.store.drop_pages(slot, (u64::MAX >> (GROUP_PAGES - gone)) << (at + whole));
        }
    }

    /// The source is larger than the machine knows.
    pub fn grown(&mut self, now: Nanos, file: FileId, size: u64) {
        let entry = &mut self.files[file.0 as usize];
        if size > entry.size {
            entry.size = size;
            self.feed(now, Event::Grown { file, size });
        }
    }

    /// The source is another version than `version`. The first to say so drops everything of the old one.
    pub fn changed(&mut self, now: Nanos, file: FileId, version: u64) {
        let entry = &mut self.files[file.0 as usize];
        if entry.version == version {
            entry.version += 1;
            entry.size = entry.source.accept();
            let size = entry.size;
            self.feed(now, Event::Changed { file, size });
        }
    }

    /// The time that was asked for has come.
    pub fn ring_timer(&mut self, now: Nanos) {
        if self.wake_at.is_some_and(|at| at <= now) {
            self.wake_at = None;
            self.feed(now, Event::Timer);
        }
    }

    // ---- actions out ----

    fn obey(&mut self, action: &Action) {
        if let Some(log) = &mut self.log {
            log.action(action);
        }
        match *action {
            Action::Serve { read, lease, file, range, last } => {
                let (bytes, whole) = self.lease(file, range);
                self.answer(read, |wait| wait.ready.push_back(Ready { lease, range, bytes, whole, last }));
            }
            Action::Fail { read, error } => self.answer(read, |wait| wait.failed = Some(error)),
            Action::Submit { fetch, file, range, class } => {
                let job = Job { fetch, file, range, version: self.file(file).version };
                match class {
                    Class::Demand => self.demand.push_back(job),
                    Class::Ahead => self.ahead.push_back(job),
                }
            }
            Action::Drop { slot, pages, .. } => self.store.drop_pages(slot, pages),
            Action::Cancel { fetch } => {
                for queue in [&mut self.demand, &mut self.ahead] {
                    if let Some(i) = queue.iter().position(|j| j.fetch == fetch) {
                        self.cancelled.extend(queue.remove(i));
                    }
                }
            }
            Action::WakeAt { at } => {
                if self.wake_at.is_none_or(|old| at < old) {
                    self.wake_at = Some(at);
                    self.wake_moved = true;
                }
            }
        }
    }

    fn answer(&mut self, read: ReadId, note: impl FnOnce(&mut Wait)) {
        let place = (read.0 & ((1 << PLACE_BITS) - 1)) as usize;
        let Some(wait) = self.waits.get_mut(place) else { return };
        note(wait);
        if wait.asleep {
            wait.asleep = false;
            self.bells.push(Arc::clone(&wait.bell));
        }
    }

    /// The bytes of a range whose pages are all present.
    fn lease(&self, file: FileId, range: ByteRange) -> (Lease, bool) {
        let mut lease = Lease::default();
        let group_bytes = self.page.bytes() * GROUP_PAGES;
        let mut at = range.start();
        while at < range.end() {
            let number = at / group_bytes;
            let base = number * group_bytes;
            let end = range.end().min(base + group_bytes);
            let Some(slot) = self.machine.group_slot(file, number) else { return (lease, false) };
            if !self.store.lease(slot, (at - base) as usize..(end - base) as usize, &mut lease) {
                return (lease, false);
            }
            at = end;
        }
        (lease, true)
    }
}

const CANCELLED: i32 = rustix::io::Errno::CANCELED.raw_os_error();

fn event_error(error: &SourceError) -> Error {
    match error {
        SourceError::Io { errno, .. } => Error::Io(*errno),
        SourceError::Short { .. } => Error::Short,
        SourceError::Changed { .. } => Error::Changed,
    }
}
