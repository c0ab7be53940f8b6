//! The readahead of a run: which of its files are read, by which advisor, and the jobs of these.
//!
//! ```text
//!   touches ──► files: which one? ──► advisor of its storage ──► jobs ──► pool ──► ended ──► advisor
//!                └─► lister: which files are next? ──────────────┘
//! ```
//! Storages are device numbers, as files have them; each has an advisor for it alone. What is touched here was found worth it before.
//!
//! Never: a wait for a storage.

use super::RunReport;
use super::files::{Files, State, WatchedFile};
use super::gain::{Gain, Judgement, Reason};
use super::jobs::{Access, FinishedJob, Jobs, Task, is_there};
use super::walk::Lister;
use foreread_core::policy::PolicySpec;
use foreread_core::units::{FileId, Nanos};
use foreread_observe::touch::{Touch, TouchKind};
use foreread_observe::tracefs;
use foreread_os::host::Host;
use foreread_pagecache::advisor::{Advisor, Job, Outcome};
use foreread_pagecache::readahead::{DEFAULT_PIECE_BYTES, piece_of};
use foreread_trace::follow::PAGE_BYTES;
use foreread_trace::follow::event::FileKey;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What readahead beside a program may fill where the kernel does not say what is free. Chosen; otherwise it is half of that, as the
/// program needs memory, too.
const UNKNOWN_BYTES: u64 = 64 << 20;

struct Storage {
    advisor: Advisor,
    gain: Gain,
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
    files: Files,
    storages: HashMap<u32, Storage>,
    began: Instant,
    opened: u64,
}

impl Ahead {
    /// For the command `pid`, which has begun then. Writes to `wake` when there is something to do.
    pub fn new(policy: PolicySpec, pid: u32, wake: &Arc<OwnedFd>, began: Instant) -> Ahead {
        let (jobs, lister) = (Jobs::new(Arc::clone(wake)), Lister::new(Arc::clone(wake)));
        let (files, storages) = (Files::default(), HashMap::new());
        Ahead {
            policy,
            pid,
            jobs,
            lister,
            files,
            storages,
            began,
            opened: 0,
        }
    }

    /// The time of the core.
    fn nanos(&self, at: Instant) -> Nanos {
        Nanos(at.saturating_duration_since(self.began).as_nanos() as u64)
    }

    /// A page of a file was missed.
    pub fn missed(&mut self, key: FileKey) {
        self.files.missed(key);
    }

    /// What has come in since the last call, before what is touched now.
    pub fn begin_turn(&mut self) {
        self.list();
        for ended in self.jobs.ended() {
            self.ended(&ended);
        }
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

    /// The command reads.
    pub fn touched(&mut self, touch: &Touch) {
        let now = Instant::now();
        let is_mapped = touch.kind != TouchKind::Read;
        let state = self.files.look(touch.file, now);
        let file = match state {
            State::Ignored => return,
            State::Known(file) => file,
            State::Listed(file, size, number) => {
                self.lister.reached(number);
                self.open(touch.file, file, size);
                file
            }
            State::Unknown => match self.files.find(touch.thread, touch.file, is_mapped, now) {
                Some(WatchedFile { file, size, path }) => {
                    path.iter().for_each(|path| self.lister.read(path));
                    self.open(touch.file, file, size);
                    file
                }
                None => return,
            },
        };
        let (first, last) = touch.pages;
        let range =
            first.saturating_mul(PAGE_BYTES)..last.saturating_add(1).saturating_mul(PAGE_BYTES);
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
        self.collect(touch.file.dev, now, touch.at_ns);
    }

    /// A file of which the core has not heard.
    fn open(&mut self, key: FileKey, file: FileId, size: u64) {
        let now = self.nanos(Instant::now());
        let (policy, pid, files) = (&self.policy, self.pid, &self.files);
        let storage = self.storages.entry(key.dev).or_insert_with(|| {
            let host = Host::here();
            let room = host.memory_room_of(pid).or_else(|| host.memory_room());
            let room = room.map_or(UNKNOWN_BYTES, |room| room.free_bytes / 2);
            let device = files.handle(file);
            let device = device.and_then(|file| host.device_of_file(&*file).ok());
            let piece = device.as_ref().map_or(DEFAULT_PIECE_BYTES, piece_of);
            let kernel = device
                .and_then(|device| device.read_ahead)
                .unwrap_or(DEFAULT_PIECE_BYTES);
            let (advisor, gain) = (
                Advisor::new(policy.clone(), room),
                Gain::new(kernel, Instant::now()),
            );
            Storage {
                advisor,
                gain,
                piece,
            }
        });
        storage.advisor.open(now, file, size);
        self.opened += 1;
    }

    /// Jobs that need no thread are answered here; the others wait for a look at all events.
    fn collect(&mut self, dev: u32, now: Instant, asked_ns: u64) {
        let at = self.nanos(now);
        let Some(storage) = self.storages.get_mut(&dev) else {
            return;
        };
        let since_ns = tracefs::now_ns().saturating_sub(asked_ns);
        let mut later = Vec::new();
        while let Some(job) = storage.advisor.next_job() {
            let at_hand = self.files.handle(job.file).is_some_and(|file| {
                let is_there = |at| is_there(&file, at);
                job.is_demand
                    && is_there(job.range.start)
                    && is_there(job.range.end.min(self.files.size(job.file)) - 1)
            });
            if at_hand {
                storage.gain.at_hand(since_ns);
                storage.advisor.done(at, &job, Outcome::AtHand);
            } else {
                later.push(job);
            }
        }
        later.into_iter().for_each(|job| self.give(dev, job, now));
    }

    /// Gives jobs to the threads that the core has found meanwhile.
    pub fn start_jobs(&mut self) {
        let devices: Vec<u32> = self.storages.keys().copied().collect();
        devices
            .into_iter()
            .for_each(|dev| self.collect(dev, Instant::now(), 0));
    }

    fn give(&mut self, dev: u32, job: Job, since: Instant) {
        let at = self.nanos(since);
        let Some(storage) = self.storages.get_mut(&dev) else {
            return;
        };
        let access = match (self.files.handle(job.file), self.files.place(job.file)) {
            (Some(file), _) => Access::Open(file),
            (None, Some((path, key))) => Access::Path(path, key),
            (None, None) => return storage.advisor.done(at, &job, Outcome::Failed),
        };
        self.jobs.run(Task {
            dev,
            job,
            access,
            piece: storage.piece,
            since,
        });
    }

    fn ended(&mut self, ended: &FinishedJob) {
        let at = self.nanos(ended.at);
        let Task {
            dev, job, since, ..
        } = &ended.task;
        if let Some(storage) = self.storages.get_mut(dev) {
            storage.gain.ended(
                job.is_demand,
                ended.outcome,
                ended.at.saturating_duration_since(*since),
                ended.asked,
            );
            storage.advisor.done(at, job, ended.outcome);
        }
    }

    /// What the readahead of a storage that is `active` has shown.
    pub fn judge(
        &mut self,
        now: Instant,
        is_active: impl Fn(u32) -> bool,
    ) -> Vec<StorageJudgement> {
        let active = self.storages.iter_mut().filter(|(dev, _)| is_active(**dev));
        let judged = active.map(|(dev, storage)| {
            let judgement = storage.gain.judge(&storage.advisor.stats(), now);
            StorageJudgement {
                dev: *dev,
                judgement,
                reason: storage.gain.reason(),
            }
        });
        judged.collect()
    }

    /// A storage is read ahead from again.
    pub fn begin(&mut self, dev: u32, now: Instant) {
        if let Some(storage) = self.storages.get_mut(&dev) {
            storage.gain.begin(now);
        }
    }

    /// Adds what came of it; `alone` has how long a read waits that no other delays.
    pub fn report(
        &mut self,
        report: &mut RunReport,
        now: Instant,
        alone: impl Fn(u32) -> Option<Duration>,
    ) {
        let time = now.saturating_duration_since(self.began);
        for (dev, storage) in &mut self.storages {
            let stats = storage.advisor.stats();
            storage.gain.judge(&stats, now);
            report.add(&stats, &storage.gain, alone(*dev), time);
        }
        report.files = self.opened;
        report.unknown_files = self.files.unknown();
    }
}
