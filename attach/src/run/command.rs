//! Runs a command, observes what it reads, and reads ahead for it.
//!
//! ```text
//!   tap: touches ──► which storage? ──examined───► is it slow? ──no──► ignored: no events
//!                       │                             └─yes──► ┐
//!                       └──────────read ahead from───────────► readahead
//! ```
//! A single thread does everything, except that other threads wait for the bytes. The main thread of a run sleeps until the first event,
//! processes it, and then lets events accumulate for [`PERIOD_NS`] before it reads them. So a command with many reads wakes the thread at
//! most two thousand times a second.
//!
//! Errors of foreread never reach the command. If nothing can be read ahead, the command runs as it would without foreread.

use super::ahead::Ahead;
use super::devices::Devices;
use super::gain::{Judgement, Reason};
use super::look::{Looks, Verdict};
use super::tap::{Level, Tap};
use super::watcher::{SampleTap, WatchBy, Watcher};
use super::{RunOptions, RunReport, seconds};
use foreread_core::policy::PolicySpec;
use foreread_observe::record::Followed;
use foreread_observe::record::sampled::followed;
use foreread_observe::touch::{Touch, TouchKind};
use foreread_observe::tracefs::{self, Root};
use foreread_os::failure::Failure;
use foreread_os::host::{DeviceNumber, Host};
use foreread_os::poll::readable;
use foreread_os::threads::{END_PATIENCE, Task};
use foreread_trace::follow::call::FileKey;
use rustix::event::{EventfdFlags, eventfd};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// How long events accumulate before they are processed. Chosen: half of the latency of storage with 1 ms.
const PERIOD_NS: u64 = 500_000;
/// How often to check whether there is anything to gain.
const JUDGED_EVERY: Duration = Duration::from_millis(50);
/// The longest wait: after it the command may have ended, or it may be time to check again.
const TICK_NS: u64 = 100_000_000;
/// After this time without a miss, only misses are watched.
const QUIET: Duration = Duration::from_millis(200);
/// A command that ends within this time is not watched, and no tracing instance is created for it: the first setting of an instance takes
/// the kernel that long.
const GRACE: Duration = Duration::from_millis(20);
/// Most devices in the kernel's event filter.
const MAX_FILTERED: usize = 64;

const HIDDEN: &str =
    "the program may not be inspected (setuid, PR_SET_DUMPABLE, or Yama): run it as root";
const NO_ANSWER: &str = "a file system that the command reads does not answer";

pub struct RunningCommand {
    target: Followed,
    stop: Arc<OwnedFd>,
    watcher: Task<RunReport>,
    began: Instant,
    seconds: f64,
}

pub fn start(options: &RunOptions) -> Result<RunningCommand, Failure> {
    let root = tracing(options.by)?;
    let is_sampled = root.is_none();
    let refused = |error: std::io::Error| {
        let remedy = "see 'ulimit -a' for the limits of this process";
        Failure::input("cannot watch", "", remedy).caused_by(error)
    };
    let event = || {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(Arc::new)
            .map_err(|error| refused(error.into()))
    };
    let (stop, wake) = (event()?, event()?);
    let began = Instant::now();
    let (policy, ends) = (options.policy.clone(), Arc::clone(&stop));
    let (begun, begins) = channel();
    // Start the thread before the command: if the system refuses the thread, no command is left running.
    let watcher = Task::start("foreread-run", move || match begins.recv() {
        Ok(pid) => watch(root.as_ref(), policy, pid, wake, began, &ends),
        Err(_) => RunReport::default(),
    })
    .map_err(refused)?;
    let target = match is_sampled {
        true => followed(&options.target)?,
        false => Followed::start(&options.target)?,
    };
    // The thread waits for nothing else.
    let _ = begun.send(target.pid());
    Ok(RunningCommand {
        target,
        stop,
        watcher,
        began,
        seconds: 0.0,
    })
}

/// The tracefs, if reads are to be observed by tracing; `None` if they are sampled.
fn tracing(by: Option<WatchBy>) -> Result<Option<Root>, Failure> {
    match by {
        Some(WatchBy::Sample) => Ok(None),
        Some(WatchBy::Trace) => traced().map(Some),
        None => Ok(traced().ok()),
    }
}

fn traced() -> Result<Root, Failure> {
    let root = tracefs::root()?;
    if let Some(missing) = super::tap::NEEDED.iter().find(|event| !root.has(event)) {
        return Err(Failure::cannot(
            format!("this kernel has no tracepoint {missing}"),
            "reads cannot be seen",
            "use Linux 6.11 or later, or --by sample",
        ));
    }
    if !tracefs::knows_threads() {
        return Err(Failure::cannot(
            "cannot watch in a PID namespace",
            "the kernel's tracepoints report process ids of the host, which differ from those of the namespace",
            "run it outside of the container, or with --by sample",
        ));
    }
    Ok(root)
}

/// Watches the running command `pid`, by tracing, or without it by samples. If the kernel refuses, the command runs on without foreread.
/// No tracing instance is created for a short command.
fn watch(
    root: Option<&Root>,
    policy: PolicySpec,
    pid: u32,
    wake: Arc<OwnedFd>,
    began: Instant,
    stop: &OwnedFd,
) -> RunReport {
    let Some(root) = root else {
        let watcher = Watcher::Sample(Box::new(SampleTap::new(pid)));
        return Run::new(watcher, policy, pid, wake, began).watch(stop);
    };
    if is_written(stop, GRACE) {
        return RunReport::default();
    }
    let refused = |error: Failure| RunReport {
        refused: Some(error.to_string()),
        ..RunReport::default()
    };
    let mut tap = match Tap::create(root) {
        Ok(tap) => tap,
        Err(error) => return refused(error),
    };
    let prepared = tap.prepare(pid, || is_written(stop, Duration::ZERO));
    // Without a level, the command has ended in the meantime.
    if prepared.is_err() || tap.level().is_none() {
        tap.leave();
        return prepared.map_or_else(refused, |()| RunReport::default());
    }
    let mut run = Run::new(Watcher::Trace(tap), policy, pid, wake, began);
    let report = run.watch(stop);
    // Remove the instance before tracefs, which may be foreread's own mount.
    run.watcher.leave();
    report
}

impl RunningCommand {
    /// Returns the command's process; `None` for a process that foreread did not start.
    pub fn pid(&self) -> Option<u32> {
        match &self.target {
            Followed::Begun(child) => Some(child.id()),
            Followed::Joined(..) => None,
        }
    }

    /// Waits until the command ends. For a process that foreread did not start, and whose exit code is therefore unknown, the wait also
    /// ends when the flag `enough` is set.
    pub fn wait(&mut self, enough: &AtomicBool) -> std::io::Result<Option<ExitStatus>> {
        let status = self.target.wait(enough)?;
        self.seconds = self.began.elapsed().as_secs_f64();
        Ok(status)
    }

    /// Stops watching. This function waits at most 1.5 s for a file system that does not answer.
    pub fn finish(self) -> RunReport {
        // The write cannot fail: nothing else writes to it.
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        // The thread may be opening a file on a file system that does not answer. Then the guard removes the tracing
        // instance.
        let silent = || RunReport {
            refused: Some(NO_ANSWER.to_string()),
            ..RunReport::default()
        };
        let mut report = self.watcher.within(END_PATIENCE).unwrap_or_else(silent);
        report.seconds = self.seconds;
        // Threads may wait for two storage devices at the same time.
        report.waiting_seconds = report.waiting_seconds.min(report.seconds);
        report
    }
}

/// Whether an event descriptor is written to within a time.
fn is_written(fd: &OwnedFd, within: Duration) -> bool {
    readable([fd], within)[0]
}

struct Run {
    watcher: Watcher,
    wake: Arc<OwnedFd>,
    ahead: Ahead,
    looks: Looks,
    /// Waits for the storage from which foreread reads ahead.
    waits: Looks,
    devices: Devices,
    judged: Instant,
    /// When bytes were last read from storage.
    missed: Instant,
    report: RunReport,
}

impl Run {
    fn new(
        watcher: Watcher,
        policy: PolicySpec,
        pid: u32,
        wake: Arc<OwnedFd>,
        began: Instant,
    ) -> Run {
        let now = Instant::now();
        let by = watcher.by();
        Run {
            watcher,
            ahead: Ahead::new(policy, pid, by == WatchBy::Trace, &wake, began),
            wake,
            looks: Looks::keeping(),
            waits: Looks::default(),
            devices: Devices::default(),
            judged: now,
            missed: now,
            report: RunReport {
                is_watched: true,
                by,
                ..RunReport::default()
            },
        }
    }

    fn watch(&mut self, stop: &OwnedFd) -> RunReport {
        let is_over = || is_written(stop, Duration::ZERO);
        let mut touches = Vec::new();
        while !is_over() {
            let wake = Arc::clone(&self.wake);
            // Jobs that end while events accumulate wait no longer than those.
            self.watcher
                .wait(&[stop, &wake], self.longest_wait_ns(), false);
            if self.watcher.level() == Some(Level::All) {
                self.watcher.wait(&[stop], PERIOD_NS, true);
            }
            let _ = rustix::io::read(&*wake, &mut [0; 8]);
            touches.clear();
            // Without events nothing is read ahead, and the command runs on.
            if let Err(error) = self.watcher.take(&mut touches, &self.devices) {
                if error.kind() == ErrorKind::PermissionDenied {
                    self.report.refused = Some(HIDDEN.to_string());
                }
                break;
            }
            self.turn(&mut touches);
        }
        self.told()
    }

    /// How long to wait: without events, until the next check or the command's end.
    fn longest_wait_ns(&self) -> u64 {
        match (self.watcher.level(), self.devices.next_look()) {
            (Some(Level::Nothing), Some(until)) => {
                let left = until.saturating_duration_since(Instant::now()).as_nanos();
                u64::try_from(left).unwrap_or(TICK_NS)
            }
            _ => TICK_NS,
        }
    }

    fn turn(&mut self, touches: &mut [Touch]) {
        let now = Instant::now();
        match self.watcher.level() {
            Some(Level::Misses) if !touches.is_empty() => {
                touches
                    .iter()
                    .for_each(|touch| self.ahead.missed(touch.file));
                self.set_level(Level::All, now);
            }
            Some(Level::Misses | Level::Nothing) | None => {}
            Some(Level::All) => {
                self.ahead.begin_turn();
                self.leave_dropping(now);
                self.touched(touches);
                self.look(now);
                self.ahead.start_jobs();
                if now - self.judged >= JUDGED_EVERY {
                    self.judge(now);
                }
            }
        }
        self.report.events = self.watcher.seen().0;
        if self.devices.wake(now) {
            self.filter();
            if self.watcher.level() == Some(Level::Nothing) {
                self.set_level(Level::Misses, now);
            }
        }
    }

    fn leave_dropping(&mut self, now: Instant) {
        let dropping = self.ahead.dropping();
        for dev in &dropping {
            self.devices.pass_over(*dev, Some(Reason::Dropped), now);
            self.report.sleeps += 1;
            if self.report.dropped_by.is_none() {
                let (major, minor) = FileKey { dev: *dev, ino: 0 }.device();
                let mut mounts = Host::here().mounts().into_iter();
                let mount = mounts.find(|mount| mount.number == DeviceNumber { major, minor });
                self.report.dropped_by = Some(mount.map_or_else(String::new, |mount| mount.kind));
            }
        }
        if !dropping.is_empty() {
            self.pass_over();
        }
    }

    fn touched(&mut self, touches: &mut [Touch]) {
        // A read is recorded before the misses that it causes.
        let misses = touches.iter().filter(|touch| touch.kind == TouchKind::Miss);
        misses.for_each(|touch| self.ahead.missed(touch.file));
        let is_of_use = |touch: &Touch| !self.devices.is_passed_over(touch.file.dev);
        if touches.iter().any(is_of_use) {
            // Events are ordered only within a CPU, and a thread may have moved between CPUs.
            touches.sort_by_key(|touch| touch.at_ns);
        }
        let by = self.watcher.by();
        for touch in touches.iter() {
            if self.devices.is_looked_at(touch.file.dev) {
                self.looks.touch(touch);
            } else if self.devices.is_active(touch.file.dev) {
                // Samples see how long threads wait.
                let waited = match by {
                    WatchBy::Trace => self.waits.touch(touch),
                    WatchBy::Sample => None,
                };
                if let Some(waited) = &waited {
                    self.ahead.waited(touch.file.dev, waited);
                }
                if touch.kind != TouchKind::Miss {
                    self.ahead.touched(touch, waited.is_some());
                }
            }
        }
    }

    /// Reads ahead from slow storage, and ignores the rest.
    fn look(&mut self, now: Instant) {
        if self.looks.has_misses() {
            self.missed = now;
        }
        let mut has_changed = false;
        for looked in self.looks.verdicts(tracefs::now_ns()) {
            let dev = looked.dev;
            self.devices.waited(dev, looked.waits);
            match looked.verdict {
                Verdict::Fast => {
                    self.devices.pass_over(dev, Some(Reason::Fast), now);
                    self.report.sleeps += 1;
                    has_changed = true;
                }
                Verdict::Slow(kept) => {
                    self.devices.begin(dev);
                    self.ahead.begin(dev, now);
                    kept.iter()
                        .for_each(|touch| self.ahead.touched(touch, false));
                }
            }
        }
        if has_changed {
            self.pass_over();
        }
    }

    fn set_level(&mut self, level: Level, now: Instant) {
        self.watcher.set_level(level);
        self.looks.clear();
        self.waits.clear();
        (self.judged, self.missed) = (now, now);
    }

    /// Ignores storage on which there is nothing to gain for a while, longer each time.
    fn judge(&mut self, now: Instant) {
        self.judged = now;
        let mut has_changed = false;
        let Run {
            ahead,
            devices,
            watcher,
            ..
        } = self;
        let is_active = |dev| devices.is_active(dev);
        for judged in ahead.judge(now, is_active, |dev| watcher.waited(Some(dev))) {
            match judged.judgement {
                Judgement::Quiet => {}
                Judgement::Open => self.missed = now,
                Judgement::Worth => {
                    self.devices.helped(judged.dev);
                    self.missed = now;
                }
                Judgement::Vain => {
                    self.devices.pass_over(judged.dev, judged.reason, now);
                    self.report.sleeps += 1;
                    has_changed = true;
                }
            }
        }
        if has_changed {
            self.pass_over();
        }
        if self.watcher.level() == Some(Level::All) && now - self.missed >= QUIET {
            self.set_level(Level::Misses, now);
        }
    }

    /// Ignores storage from now on. If no other storage is of interest, the kernel is set to make no events at all, because an event
    /// that the filter discards costs as much as one that it keeps.
    fn pass_over(&mut self) {
        if self.devices.has_active() || self.looks.has_misses() {
            self.filter();
        } else {
            self.set_level(Level::Nothing, Instant::now());
        }
    }

    fn filter(&mut self) {
        let passed_over: Vec<u32> = self.devices.passed_over().take(MAX_FILTERED).collect();
        self.watcher.pass_over(passed_over);
    }

    fn told(&mut self) -> RunReport {
        let mut report = std::mem::take(&mut self.report);
        self.ahead
            .report(&mut report, Instant::now(), &self.watcher);
        let devices = self.devices.all();
        devices.for_each(|device| report.look(device.waits, device.reason));
        // The sampler has seen a part of it.
        if let Some(waited) = self.watcher.waited(None) {
            report.waited_seconds = seconds(waited.threads_ns);
            report.waiting_seconds = seconds(waited.time_ns);
        }
        report.lost_events = self.watcher.seen().1;
        report
    }
}
