//! The readahead for an observed command: maps each read to its file and to the advisor of its storage device, and
//! starts the jobs that the advisor returns.
//!
//! ```text
//!   touches ──► files: which one? ──► advisor of its storage ──► jobs ──► pool ──► ended ──► advisor
//!                └─► lister: which files are next? ──────────────┘
//! ```
//! Storage is identified by the device numbers of files; each device has a separate advisor. The caller passes only reads from
//! storage for which readahead is worthwhile.
//!
//! This module never waits for storage.

use super::RunReport;
use super::files::{Files, NextListed, Seeker, SoughtFile, State, WatchedFile, seeker};
use super::gain::{Gain, JobTimes, Judgement, Reason};
use super::jobs::{FinishedJob, Jobs, Task, is_there, jobs};
use super::look::{WaitUnion, Waits};
use super::progress::ListingProgress;
use super::walk::Lister;
use super::watcher::Watcher;
use foreread_core::policy::PolicySpec;
use foreread_core::units::{FileId, Nanos};
use foreread_observe::sample::{bytes_read_by, process_of};
use foreread_observe::touch::{Touch, TouchKind};
use foreread_observe::tracefs;
use foreread_os::host::{DeviceNumber, Host};
use foreread_pagecache::advisor::{Advisor, Outcome};
use foreread_pagecache::readahead::{DEFAULT_PIECE_BYTES, piece_of};
use foreread_trace::follow::call::FileKey;
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most touches of a file that are kept until it is found.
const MAX_KEPT: usize = 64;
/// Most files that are searched for at once: if a file system does not answer, its other files are left alone.
const MAX_SOUGHT: usize = 4096;
/// Bytes that readahead may cache besides the program's data if the kernel does not report what is free. Chosen; otherwise it is
/// half of the free memory, because the program needs memory too.
const UNKNOWN_BYTES: u64 = 64 << 20;

struct Storage {
    advisor: Advisor,
    gain: Gain,
    waiting: WaitUnion,
    piece: u64,
}

pub struct StorageJudgement {
    pub dev: u32,
    pub judgement: Judgement,
    pub reason: Option<Reason>,
}

pub struct Ahead {
    policy: PolicySpec,
    pid: u32,
    jobs: Jobs,
    lister: Lister,
    seeker: Seeker,
    files: Files,
    /// Reads of files that are being searched for.
    kept: HashMap<FileKey, Vec<Touch>>,
    /// Whether reads that do not wait are observed as well.
    sees_hits: bool,
    progress: ListingProgress,
    storages: HashMap<u32, Storage>,
    /// Storage found since the last query that drops what is read ahead.
    dropping: Vec<u32>,
    began: Instant,
    opened: u64,
}

/// Whether storage is a disk. File systems of servers have no device number, and a query about a page may wait for them.
fn is_local(dev: u32) -> bool {
    FileKey { dev, ino: 0 }.device().0 != 0
}

impl Ahead {
    /// Creates the readahead for the command `pid`, which began at this time. If `sees_hits` is true, reads that do not wait for storage
    /// are also observed. The threads of the readahead signal `wake` when they have results.
    pub fn new(
        policy: PolicySpec,
        pid: u32,
        sees_hits: bool,
        wake: &Arc<OwnedFd>,
        began: Instant,
    ) -> Ahead {
        Ahead {
            policy,
            pid,
            jobs: jobs(Arc::clone(wake)),
            lister: Lister::new(Arc::clone(wake)),
            seeker: seeker(Arc::clone(wake)),
            files: Files::default(),
            kept: HashMap::new(),
            sees_hits,
            progress: ListingProgress::default(),
            storages: HashMap::new(),
            dropping: Vec::new(),
            began,
            opened: 0,
        }
    }

    fn nanos(&self, at: Instant) -> Nanos {
        Nanos(at.saturating_duration_since(self.began).as_nanos() as u64)
    }

    pub fn missed(&mut self, key: FileKey) {
        self.files.missed(key);
    }

    /// Processes the results of threads since the last call; must be called before the current reads are processed.
    pub fn begin_turn(&mut self) {
        self.list();
        self.found();
        for ended in self.jobs.ended() {
            self.ended(&ended);
        }
        if !self.sees_hits {
            self.guess();
        }
    }

    /// Returns the storage devices that were found, since the last call, to have a file system which drops pages that were read
    /// ahead.
    pub fn dropping(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.dropping)
    }

    fn list(&mut self) {
        for listed in self.lister.listed() {
            let dev = listed.key.dev;
            let after = listed.after.and_then(|after| self.files.id(after));
            let size = listed.size;
            let Some(file) = self.files.list(listed) else {
                continue;
            };
            let now = self.nanos(Instant::now());
            if let Some(storage) = self.storages.get_mut(&dev) {
                storage.advisor.list(now, file, size, after);
            }
        }
    }

    /// Records that a read of the command waited for the storage device from `waited.start` to `waited.end`: the tracepoint of a read
    /// comes after this wait, when its pages are in the cache.
    pub fn waited(&mut self, dev: u32, waited: &Range<u64>) {
        if let Some(storage) = self.storages.get_mut(&dev) {
            storage.waiting.add(waited.start, waited.end);
            let time = Duration::from_nanos(waited.end.saturating_sub(waited.start));
            storage.gain.waited_for(time);
        }
    }

    /// Processes a read of the command. If `has_waited` is true, pages of this read that are cached say nothing about the storage.
    pub fn touched(&mut self, touch: &Touch, has_waited: bool) {
        let now = Instant::now();
        let is_mapped = touch.kind != TouchKind::Read;
        let state = self.files.look(touch.file, now);
        let file = match state {
            State::Ignored => return,
            State::Known(file) => file,
            State::Listed(file, size, number) => {
                if !self.sees_hits {
                    self.come_to(touch, size, number);
                }
                self.lister.reached(number);
                self.open(touch.file, file, size);
                file
            }
            State::Unknown | State::Sought => return self.seek(touch, is_mapped, state),
        };
        let range = touch.bytes();
        let at = self.nanos(now);
        let Some(storage) = self.storages.get_mut(&touch.file.dev) else {
            return;
        };
        if let Some(size) = self.files.grown(file, range.end) {
            storage.advisor.grew(at, file, size);
        }
        let range = range.start..range.end.min(self.files.size(file));
        if range.is_empty() {
            return;
        }
        storage.advisor.read(at, file, range.clone());
        if let Some(closed) = self.files.used(file, range.end) {
            storage.advisor.close(at, closed);
        }
        let asked_ns = if has_waited { 0 } else { touch.at_ns };
        self.collect(touch.file.dev, now, asked_ns);
    }

    fn seek(&mut self, touch: &Touch, is_mapped: bool, state: State) {
        let key = touch.file;
        if state == State::Unknown {
            if self.kept.len() >= MAX_SOUGHT {
                return;
            }
            self.files.seek(key);
            let read = touch.bytes();
            self.seeker.add(SoughtFile {
                key,
                thread: touch.thread,
                is_mapped,
                // A fault is observed before its page has been read.
                read: (touch.kind == TouchKind::Read).then_some(read),
            });
        }
        let kept = self.kept.entry(key).or_default();
        if kept.len() < MAX_KEPT {
            kept.push(*touch);
        }
    }

    fn found(&mut self) {
        for search in self.seeker.ended() {
            let key = search.key;
            let kept = self.kept.remove(&key).unwrap_or_default();
            if search.is_dropping && !self.dropping.contains(&key.dev) {
                self.dropping.push(key.dev);
            }
            if let Some(WatchedFile { file, size, path }) = self.files.found(search, Instant::now())
            {
                path.iter().for_each(|path| self.lister.read(path));
                self.open(key, file, size);
                kept.iter().for_each(|touch| self.touched(touch, false));
            }
        }
    }

    /// The command reads a file of the listing: the files before it were read as well, if as many bytes were read.
    fn come_to(&mut self, touch: &Touch, size: u64, number: u64) {
        // A file that is read again says nothing about the position in the listing, and without the number of bytes
        // nothing is known.
        let read_bytes = bytes_read_by(touch.thread).filter(|_| number > 0);
        let Some(read_bytes) = read_bytes else {
            return;
        };
        let between = self.files.listed_before(number);
        let bytes = between.iter().map(|listed| listed.size).sum();
        let thread = touch.thread;
        let known = self.progress.process_of(thread);
        let process = known.or_else(|| process_of(thread));
        if self.progress.seen(thread, process, read_bytes, size, bytes) {
            between.iter().for_each(|listed| self.has_read(listed));
        }
        self.files.pass_listed(number);
    }

    /// Finds files of the listing that the command must have read by now, judged by the number of bytes it has read.
    fn guess(&mut self) {
        let Some(read_bytes) = self.progress.thread().and_then(bytes_read_by) else {
            return;
        };
        while let Some(listed) = self.files.next_listed()
            && self.progress.guess(read_bytes, listed.size)
        {
            self.has_read(&listed);
            self.lister.reached(listed.number);
        }
    }

    /// Records that a file of the listing was read, although no sample saw it.
    fn has_read(&mut self, listed: &NextListed) {
        let now = Instant::now();
        let State::Listed(file, size, _) = self.files.look(listed.key, now) else {
            return;
        };
        self.open(listed.key, file, size);
        let at = self.nanos(now);
        if size > 0
            && let Some(storage) = self.storages.get_mut(&listed.key.dev)
        {
            storage.advisor.read(at, file, 0..size);
            if let Some(closed) = self.files.used(file, size) {
                storage.advisor.close(at, closed);
            }
        }
    }

    /// Adds a file that is new to the core.
    fn open(&mut self, key: FileKey, file: FileId, size: u64) {
        let now = self.nanos(Instant::now());
        let (policy, pid, sees_hits) = (&self.policy, self.pid, self.sees_hits);
        let storage = self.storages.entry(key.dev).or_insert_with(|| {
            let host = Host::here();
            let room = host.memory_room_of(pid).or_else(|| host.memory_room());
            let room = room.map_or(UNKNOWN_BYTES, |room| room.free_bytes / 2);
            // The device is identified by its number: a file system that does not answer is not queried.
            let (major, minor) = key.device();
            let device = host.device(DeviceNumber { major, minor });
            let piece = piece_of(&device);
            let kernel = device.read_ahead.unwrap_or(DEFAULT_PIECE_BYTES);
            Storage {
                advisor: Advisor::new(policy.clone(), room),
                gain: Gain::new(kernel, sees_hits, Instant::now()),
                waiting: WaitUnion::default(),
                piece,
            }
        });
        storage.advisor.open(now, file, size);
        self.opened += 1;
    }

    /// Jobs that need no thread are answered here; the others wait until all events have been processed.
    fn collect(&mut self, dev: u32, now: Instant, asked_ns: u64) {
        let at = self.nanos(now);
        let Some(storage) = self.storages.get_mut(&dev) else {
            return;
        };
        let since_ns = tracefs::now_ns().saturating_sub(asked_ns);
        let (mut later, mut opened) = (Vec::new(), None);
        let piece = storage.piece;
        while let Some(job) = storage.advisor.next_job() {
            let mut at_hand = job.is_demand && is_local(dev);
            if at_hand {
                let file = match opened.take() {
                    Some((of, file)) if of == job.file => file,
                    _ => self.files.access(job.file).open(),
                };
                let last = job.range.end.min(self.files.size(job.file)) - 1;
                let is_whole =
                    |file: &File| is_there(file, job.range.start) && is_there(file, last);
                at_hand = file.as_ref().is_some_and(is_whole);
                opened = Some((job.file, file));
            }
            if at_hand {
                storage.gain.at_hand(since_ns);
                storage.advisor.done(at, &job, Outcome::AtHand);
            } else {
                later.push(job);
            }
        }
        // These wait for a thread, which gets them when all events have been processed.
        for job in later {
            self.jobs.add(Task {
                dev,
                access: self.files.access(job.file),
                job,
                piece,
                since: now,
            });
        }
    }

    /// Passes new jobs of the decision core to the threads.
    pub fn start_jobs(&mut self) {
        for dev in Vec::from_iter(self.storages.keys().copied()) {
            self.collect(dev, Instant::now(), 0);
        }
    }

    fn ended(&mut self, ended: &FinishedJob) {
        let Task {
            dev, job, since, ..
        } = &ended.task;
        let (asked, at) = (self.nanos(*since), self.nanos(ended.at));
        if let Some(storage) = self.storages.get_mut(dev) {
            let times = JobTimes {
                first: ended.result.first.saturating_duration_since(*since),
                all: ended.at.saturating_duration_since(*since),
            };
            let outcome = ended.result.outcome;
            if job.is_demand && outcome == Outcome::Arrived {
                storage.waiting.add(asked.0, at.0);
            }
            let bytes = ended.result.asked;
            storage.gain.ended(job.is_demand, outcome, times, bytes);
            storage.advisor.done(at, job, outcome);
        }
    }

    /// Decides, for each storage device for which `is_active` returns true, whether readahead is still worthwhile.
    pub fn judge(
        &mut self,
        now: Instant,
        is_active: impl Fn(u32) -> bool,
        waited: impl Fn(u32) -> Option<Waits>,
    ) -> Vec<StorageJudgement> {
        let active = self.storages.iter_mut().filter(|(dev, _)| is_active(**dev));
        let judged = active.map(|(dev, storage)| {
            if let Some(waited) = waited(*dev) {
                storage
                    .gain
                    .has_waited(Duration::from_nanos(waited.threads_ns));
            }
            let judgement = storage.gain.judge(&storage.advisor.stats(), now);
            StorageJudgement {
                dev: *dev,
                judgement,
                reason: storage.gain.reason(),
            }
        });
        judged.collect()
    }

    pub fn begin(&mut self, dev: u32, now: Instant) {
        if let Some(storage) = self.storages.get_mut(&dev) {
            storage.gain.begin(now);
        }
    }

    /// Adds the results of the readahead to `report`. If reads are sampled, `watcher` provides how long threads waited for a
    /// storage device, and how many bytes of the reads are only inferred.
    pub fn report(&mut self, report: &mut RunReport, now: Instant, watcher: &Watcher) {
        for (dev, storage) in &mut self.storages {
            let stats = storage.advisor.stats();
            storage.gain.judge(&stats, now);
            let waited = watcher.waited(Some(*dev));
            let waited = waited.unwrap_or(storage.waiting.sum);
            report.add(&stats, &storage.gain, waited, watcher.guessed(*dev));
        }
        report.files = self.opened;
        let guessed = self.progress.guessed_bytes().min(report.used_bytes);
        report.used_bytes -= guessed;
        report.guessed_bytes += guessed;
        report.unknown_files = self.files.unknown();
    }
}
