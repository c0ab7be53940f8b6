//! Runs a command, sees what it reads, and reads ahead for it.
//!
//! ```text
//!   tap: touches ──► files: which one? ──► advisor of its storage ──► jobs ──► pool ──► ended ──► advisor
//!                     └─► lister: which files are next? ──────────────┘
//! ```
//! One thread does all of it but waiting for bytes. It sleeps until the first event, takes what is there, and lets events gather for
//! [`PERIOD_NS`] before it looks again, so that a command which reads fast wakes it two thousand times a second at most.
//!
//! Never: an error that reaches the command. Where nothing can be read ahead the command runs as without us.

use super::files::{Files, State};
use super::gain::{Gain, Judgement};
use super::pool::{Access, Ended, Pool, Task, is_there};
use super::tap::{Level, Tap, Touch, TouchKind};
use super::walk::Lister;
use super::{RunError, RunOptions, RunReport, SLEEPS};
use crate::tracefs;
use foreread_core::policy::PolicySpec;
use foreread_core::units::{FileId, Nanos};
use foreread_pagecache::advisor::{Advisor, Job, Outcome};
use foreread_pagecache::device::{DEFAULT_PIECE_BYTES, Device};
use foreread_pagecache::memory;
use foreread_trace::follow::event::FileKey;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long events gather before they are taken. Chosen: half of the latency of a storage that is 1 ms away.
const PERIOD_NS: u64 = 500_000;
/// How often it is judged whether there is anything to gain.
const JUDGED_EVERY: Duration = Duration::from_millis(50);
/// The longest wait: then the command's end, or time to look again, would have come.
const TICK_NS: u64 = 100_000_000;
/// Without a miss for this time only misses are watched.
const QUIET: Duration = Duration::from_millis(200);
/// Devices that the kernel's filter names, at most.
const MAX_FILTERED: usize = 64;
/// Pages of Linux' page cache, as the tracepoints count them on machines with pages of 4 KiB.
const PAGE_BYTES: u64 = 4096;

/// A command under way.
pub struct Running {
    child: Child,
    stop: Arc<OwnedFd>,
    thread: JoinHandle<RunReport>,
    began: Instant,
}

/// Begins.
///
/// # Errors
/// Not root, no tracefs, a kernel without the tracepoints, or the command cannot be run.
pub fn start(options: &RunOptions) -> Result<Running, RunError> {
    let root = tracefs::root()?;
    if let Some(missing) = super::tap::NEEDED.iter().find(|event| !root.has(event)) {
        return Err(RunError::Kernel((*missing).to_string()));
    }
    if !tracefs::knows_threads() {
        return Err(RunError::Namespace);
    }
    let mut tap = Tap::create(&root)?;
    tap.set_level(Level::Misses)?;
    let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(std::io::Error::from)?);
    let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(std::io::Error::from)?);
    let began = Instant::now();
    let child = begin(&tap, options)?;
    let (policy, ends) = (options.policy.clone(), Arc::clone(&stop));
    let pid = child.id();
    let thread = std::thread::Builder::new().name("foreread-run".into()).spawn(move || {
        let mut run = Run::new(tap, policy, pid, wake);
        let report = run.watch(&ends, began);
        // The instance goes before tracefs, which may be our own mount.
        drop(run);
        drop(root);
        report
    })?;
    Ok(Running { child, stop, thread, began })
}

fn begin(tap: &Tap, options: &RunOptions) -> Result<Child, RunError> {
    let (name, rest) = options.command.split_first().ok_or(RunError::NoCommand)?;
    let mut command = Command::new(name);
    command.args(rest);
    let (_, child) = tap.instance().begin(command)?;
    child.map_err(|error| RunError::command(name, &error))
}

impl Running {
    /// The command's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the command's end; then nothing is watched any more.
    ///
    /// # Errors
    /// The system does not say how it ended.
    pub fn finish(mut self) -> std::io::Result<(ExitStatus, RunReport)> {
        let status = self.child.wait()?;
        let seconds = self.began.elapsed().as_secs_f64();
        rustix::io::write(&*self.stop, &1_u64.to_ne_bytes())?;
        let mut report = self.thread.join().expect("it does not panic");
        report.seconds = seconds;
        Ok((status, report))
    }
}

/// A storage: a device number, as files have it.
struct Storage {
    advisor: Advisor,
    gain: Gain,
    piece: u64,
    /// It is passed over until then, and has been so often.
    sleeps_until: Option<Instant>,
    slept: usize,
}

/// All of a run.
struct Run {
    tap: Tap,
    policy: PolicySpec,
    pid: u32,
    wake: Arc<OwnedFd>,
    pool: Pool,
    lister: Lister,
    files: Files,
    storages: HashMap<u32, Storage>,
    began: Instant,
    judged: Instant,
    /// When bytes were last read from a storage.
    missed: Instant,
    report: RunReport,
}

impl Run {
    fn new(tap: Tap, policy: PolicySpec, pid: u32, wake: Arc<OwnedFd>) -> Run {
        let (pool, lister, now) = (Pool::new(Arc::clone(&wake)), Lister::new(Arc::clone(&wake)), Instant::now());
        Run {
            tap,
            policy,
            pid,
            wake,
            pool,
            lister,
            files: Files::default(),
            storages: HashMap::new(),
            began: now,
            judged: now,
            missed: now,
            report: RunReport::default(),
        }
    }

    /// The time of the core.
    fn nanos(&self, at: Instant) -> Nanos {
        Nanos(at.saturating_duration_since(self.began).as_nanos() as u64)
    }

    /// Until the command has ended.
    fn watch(&mut self, stop: &OwnedFd, began: Instant) -> RunReport {
        self.began = began;
        let mut touches = Vec::new();
        let is_over = || rustix::io::read(stop, &mut [0; 8]).is_ok();
        while !is_over() {
            let wake = Arc::clone(&self.wake);
            // Jobs that end while events gather wait no longer than those.
            self.tap.wait(&[stop, &wake], TICK_NS, false);
            if self.tap.level() == Some(Level::All) {
                self.tap.wait(&[stop], PERIOD_NS, true);
            }
            let _ = rustix::io::read(&*wake, &mut [0; 8]);
            touches.clear();
            // Without events nothing is read ahead, and the command runs on.
            if self.tap.take(&mut touches).is_err() {
                break;
            }
            self.turn(&touches);
        }
        self.told()
    }

    fn turn(&mut self, touches: &[Touch]) {
        let now = Instant::now();
        match self.tap.level() {
            Some(Level::Misses) if !touches.is_empty() => {
                touches.iter().for_each(|touch| self.files.missed(touch.file));
                self.set_level(Level::All, now);
            }
            Some(Level::Misses) | None => {}
            Some(Level::All) => {
                self.list();
                for ended in self.pool.ended() {
                    self.ended(&ended);
                }
                // A read is seen before the misses that it causes.
                let misses = touches.iter().filter(|touch| touch.kind == TouchKind::Miss);
                misses.for_each(|touch| self.files.missed(touch.file));
                let asked = touches.iter().filter(|touch| touch.kind != TouchKind::Miss);
                asked.for_each(|touch| self.touched(touch));
                self.start_jobs();
                if now - self.judged >= JUDGED_EVERY {
                    self.judge(now);
                }
            }
        }
        self.report.events = self.tap.events;
        self.look_again(now);
    }

    fn set_level(&mut self, level: Level, now: Instant) {
        // What the kernel refuses here it has allowed before: an instance that another program has changed.
        let _ = self.tap.set_level(level);
        (self.judged, self.missed) = (now, now);
    }

    /// A storage where there is nothing to gain is passed over for a while, each time longer.
    fn judge(&mut self, now: Instant) {
        self.judged = now;
        let mut has_changed = false;
        for storage in self.storages.values_mut().filter(|storage| storage.sleeps_until.is_none()) {
            match storage.gain.judge(&storage.advisor.stats(), now) {
                Judgement::Quiet => {}
                Judgement::Open => self.missed = now,
                Judgement::Worth => (storage.slept, self.missed) = (0, now),
                Judgement::Vain => {
                    storage.sleeps_until = Some(now + SLEEPS[storage.slept.min(SLEEPS.len() - 1)]);
                    storage.slept += 1;
                    self.report.sleeps += 1;
                    has_changed = true;
                }
            }
        }
        if has_changed {
            self.pass_over();
        }
        if now - self.missed >= QUIET {
            self.set_level(Level::Misses, now);
        }
    }

    fn look_again(&mut self, now: Instant) {
        let mut has_changed = false;
        for storage in self.storages.values_mut() {
            if storage.sleeps_until.is_some_and(|until| until <= now) {
                storage.sleeps_until = None;
                storage.gain.begin(now);
                has_changed = true;
            }
        }
        if has_changed {
            self.pass_over();
        }
    }

    fn pass_over(&mut self) {
        let asleep = self.storages.iter().filter(|(_, storage)| storage.sleeps_until.is_some());
        let devices: Vec<u32> = asleep.map(|(dev, _)| *dev).take(MAX_FILTERED).collect();
        let _ = self.tap.pass_over(&devices);
    }

    /// What the lister has found.
    fn list(&mut self) {
        for listed in self.lister.listed() {
            let dev = listed.key.dev;
            let after = listed.after.and_then(|after| self.files.id(after));
            let size = listed.size;
            let Some(file) = self.files.list(listed) else { continue };
            let now = self.nanos(Instant::now());
            if let Some(storage) = self.storages.get_mut(&dev) {
                storage.advisor.list(now, file, size, after);
            }
        }
    }

    /// The command reads.
    fn touched(&mut self, touch: &Touch) {
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
                Some((file, size, path)) => {
                    path.iter().for_each(|path| self.lister.read(path));
                    self.open(touch.file, file, size);
                    file
                }
                None => return,
            },
        };
        let (first, last) = touch.pages;
        let range = first.saturating_mul(PAGE_BYTES)..last.saturating_add(1).saturating_mul(PAGE_BYTES);
        let at = self.nanos(now);
        let Some(storage) = self.storages.get_mut(&touch.file.dev) else { return };
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
            let room = memory::half(memory::room_of(pid).or_else(memory::room));
            let device = files.handle(file).and_then(|file| Device::of(&*file).ok());
            let piece = device.as_ref().map_or(DEFAULT_PIECE_BYTES, Device::piece_bytes);
            let kernel = device.and_then(|device| device.read_ahead).unwrap_or(DEFAULT_PIECE_BYTES);
            let (advisor, gain) = (Advisor::new(policy.clone(), room), Gain::new(kernel, Instant::now()));
            Storage { advisor, gain, piece, sleeps_until: None, slept: 0 }
        });
        storage.advisor.open(now, file, size);
        self.report.files += 1;
    }

    /// Jobs that need no thread are answered here; the others wait for a look at all events.
    fn collect(&mut self, dev: u32, now: Instant, asked_ns: u64) {
        let at = self.nanos(now);
        let Some(storage) = self.storages.get_mut(&dev) else { return };
        let since_ns = tracefs::now_ns().saturating_sub(asked_ns);
        let mut later = Vec::new();
        while let Some(job) = storage.advisor.next_job() {
            let at_hand = self.files.handle(job.file).is_some_and(|file| {
                let is_there = |at| is_there(&file, at);
                job.is_demand && is_there(job.range.start) && is_there(job.range.end.min(self.files.size(job.file)) - 1)
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

    fn start_jobs(&mut self) {
        let devices: Vec<u32> = self.storages.keys().copied().collect();
        devices.into_iter().for_each(|dev| self.collect(dev, Instant::now(), 0));
    }

    fn give(&mut self, dev: u32, job: Job, since: Instant) {
        let at = self.nanos(since);
        let Some(storage) = self.storages.get_mut(&dev) else { return };
        let access = match (self.files.handle(job.file), self.files.place(job.file)) {
            (Some(file), _) => Access::Open(file),
            (None, Some((path, key))) => Access::Path(path, key),
            (None, None) => return storage.advisor.done(at, &job, Outcome::Failed),
        };
        self.pool.run(Task { dev, job, access, piece: storage.piece, since });
    }

    fn ended(&mut self, ended: &Ended) {
        let at = self.nanos(ended.at);
        let Task { dev, job, since, .. } = &ended.task;
        if let Some(storage) = self.storages.get_mut(dev) {
            storage.gain.ended(job.is_demand, ended.outcome, ended.at.saturating_duration_since(*since), ended.asked);
            storage.advisor.done(at, job, ended.outcome);
        }
    }

    fn told(&mut self) -> RunReport {
        let mut report = std::mem::take(&mut self.report);
        let now = Instant::now();
        for storage in self.storages.values_mut() {
            let stats = storage.advisor.stats();
            storage.gain.judge(&stats, now);
            report.add(&stats, &storage.gain);
        }
        report.lost_events = self.tap.gaps;
        report.unknown_files = self.files.unknown();
        report
    }
}
