//! Runs a command, sees what it reads, and reads ahead for it.
//!
//! ```text
//!   tap: touches ──► which storage? ──looked at──► is it slow? ──no──► passed over: no events
//!                       │                             └─yes──► ┐
//!                       └──────────read ahead from───────────► readahead
//! ```
//! One thread does all of it but waiting for bytes. It sleeps until the first event, takes what is there, and lets events gather for
//! [`PERIOD_NS`] before it looks again, so that a command which reads fast wakes it two thousand times a second at most.
//!
//! Never: an error that reaches the command. Where nothing can be read ahead the command runs as without us.

use super::ahead::Ahead;
use super::devices::Devices;
use super::gain::{Judgement, Reason};
use super::look::{Looks, Verdict};
use super::tap::{Level, Tap};
use super::watcher::{SampleTap, WatchBy, Watcher};
use super::{RunOptions, RunReport, seconds};
use foreread_core::policy::PolicySpec;
use foreread_observe::record::Followed;
use foreread_observe::record::sampled::hidden;
use foreread_observe::sample::may_look;
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

/// How long events gather before they are taken. Chosen: half of the latency of a storage that is 1 ms away.
const PERIOD_NS: u64 = 500_000;
/// How often it is judged whether there is anything to gain.
const JUDGED_EVERY: Duration = Duration::from_millis(50);
/// The longest wait: then the command's end, or time to look again, would have come.
const TICK_NS: u64 = 100_000_000;
/// Without a miss for this time only misses are watched.
const QUIET: Duration = Duration::from_millis(200);
/// A command that ends within this time is not watched, and no instance is made for it: the kernel waits as long for the first setting of one.
const GRACE: Duration = Duration::from_millis(20);
/// Devices that the kernel's filter names, at most.
const MAX_FILTERED: usize = 64;

/// Why a program is not sampled.
const HIDDEN: &str =
    "the program hides what it does (setuid, PR_SET_DUMPABLE, or Yama): run it as root";
/// Why there is no report of a run.
const NO_ANSWER: &str = "a file system that the command reads does not answer";

/// A command under way.
pub struct RunningCommand {
    target: Followed,
    stop: Arc<OwnedFd>,
    watcher: Task<RunReport>,
    began: Instant,
    /// From its start to its end.
    seconds: f64,
}

/// Begins.
///
/// # Errors
/// Not root, no tracefs, a kernel without the tracepoints, or the command cannot be run.
pub fn start(options: &RunOptions) -> Result<RunningCommand, Failure> {
    let root = tracing(options.by)?;
    let is_sampled = root.is_none();
    let refused = |error: std::io::Error| {
        let remedy = "see 'ulimit -a' for what may be open";
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
    // Before the command: where the system refuses a thread no command is left behind.
    let watcher = Task::start("foreread-run", move || match begins.recv() {
        Ok(pid) => watch(root.as_ref(), policy, pid, wake, began, &ends),
        Err(_) => RunReport::default(),
    })
    .map_err(refused)?;
    let target = Followed::start(&options.target)?;
    if let Followed::Joined(pid, _) = target
        && is_sampled
    {
        may_look(pid).map_err(|error| hidden(pid, error))?;
    }
    // It waits for nothing else.
    let _ = begun.send(target.pid());
    Ok(RunningCommand {
        target,
        stop,
        watcher,
        began,
        seconds: 0.0,
    })
}

/// Tracing, where reads are to be seen by it; nothing where they are sampled.
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
            "the kernel's tracepoints do not know the process ids that hold here",
            "run it outside of the container, or with --by sample",
        ));
    }
    Ok(root)
}

/// Watches the command `pid`, which runs already: by tracing, or without it by samples. It goes on without us where the kernel refuses. A
/// short one costs no instance.
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
    let report = match tap.prepare(pid, || is_written(stop, Duration::ZERO)) {
        Err(error) => refused(error),
        // It has ended meanwhile.
        Ok(()) if tap.level().is_none() => RunReport::default(),
        Ok(()) => {
            let mut run = Run::new(Watcher::Trace(tap), policy, pid, wake, began);
            let report = run.watch(stop);
            run.watcher.leave();
            return report;
        }
    };
    // The instance goes before tracefs, which may be our own mount.
    tap.leave();
    report
}

impl RunningCommand {
    /// The command's process; nothing of a process that was there before.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        match &self.target {
            Followed::Begun(child) => Some(child.id()),
            Followed::Joined(..) => None,
        }
    }

    /// Waits for the end of the command, or until it is `enough` of a process that was there before, whose exit code is not ours to know.
    ///
    /// # Errors
    /// The system does not say how it ended.
    pub fn wait(&mut self, enough: &AtomicBool) -> std::io::Result<Option<ExitStatus>> {
        let status = self.target.wait(enough)?;
        self.seconds = self.began.elapsed().as_secs_f64();
        Ok(status)
    }

    /// Ends the watching. A file system that does not answer is waited for 1.5 s.
    #[must_use]
    pub fn finish(self) -> RunReport {
        // It cannot fail: nothing else writes to it.
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        // It may be opening a file of a file system that does not answer. The guard takes the instance of tracefs away then.
        let silent = || RunReport {
            refused: Some(NO_ANSWER.to_string()),
            ..RunReport::default()
        };
        let mut report = self.watcher.within(END_PATIENCE).unwrap_or_else(silent);
        report.seconds = self.seconds;
        // Two storages may be waited for at the same time.
        report.waiting_seconds = report.waiting_seconds.min(report.seconds);
        report
    }
}

/// Whether an event descriptor is written to, within a time.
fn is_written(fd: &OwnedFd, within: Duration) -> bool {
    readable([fd], within)[0]
}

struct Run {
    watcher: Watcher,
    wake: Arc<OwnedFd>,
    ahead: Ahead,
    looks: Looks,
    devices: Devices,
    judged: Instant,
    /// When bytes were last read from a storage.
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
            looks: Looks::default(),
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

    /// Until the command has ended.
    fn watch(&mut self, stop: &OwnedFd) -> RunReport {
        let is_over = || is_written(stop, Duration::ZERO);
        let mut touches = Vec::new();
        while !is_over() {
            let wake = Arc::clone(&self.wake);
            // Jobs that end while events gather wait no longer than those.
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

    /// Without events nothing comes before the next look, or the command's end.
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
        self.report.events = self.watcher.seen().events;
        if self.devices.wake(now) {
            self.filter();
            if self.watcher.level() == Some(Level::Nothing) {
                self.set_level(Level::Misses, now);
            }
        }
    }

    /// Storages that drop what is read ahead are passed over.
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
        // A read is seen before the misses that it causes.
        let misses = touches.iter().filter(|touch| touch.kind == TouchKind::Miss);
        misses.for_each(|touch| self.ahead.missed(touch.file));
        if touches
            .iter()
            .any(|touch| self.devices.is_looked_at(touch.file.dev))
        {
            // Each CPU's events come by themselves, and a thread may have changed between them.
            touches.sort_by_key(|touch| touch.at_ns);
        }
        for touch in touches.iter() {
            if self.devices.is_looked_at(touch.file.dev) {
                self.looks.touch(touch);
            } else if touch.kind != TouchKind::Miss && self.devices.is_active(touch.file.dev) {
                self.ahead.touched(touch);
            }
        }
    }

    /// Storages that are slow are read ahead from, the others passed over.
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
                    kept.iter().for_each(|touch| self.ahead.touched(touch));
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
        (self.judged, self.missed) = (now, now);
    }

    /// A storage where there is nothing to gain is passed over for a while, each time longer.
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

    /// Storages are passed over from now on. Where no other one is of interest the kernel makes no events at all: one that it leaves out
    /// costs as much as one that it keeps.
    fn pass_over(&mut self) {
        if self.devices.has_active() || self.looks.has_misses() {
            self.filter();
        } else {
            self.set_level(Level::Nothing, Instant::now());
        }
    }

    /// The kernel leaves out events of storages that are passed over.
    fn filter(&mut self) {
        let passed_over: Vec<u32> = self.devices.passed_over().take(MAX_FILTERED).collect();
        self.watcher.pass_over(passed_over);
    }

    fn told(&mut self) -> RunReport {
        let mut report = std::mem::take(&mut self.report);
        let Run {
            ahead,
            devices,
            watcher,
            ..
        } = self;
        ahead.report(&mut report, Instant::now(), watcher);
        devices
            .all()
            .for_each(|device| report.look(device.waits, device.reason));
        // Looks have seen a part of it.
        if let Some(waited) = watcher.waited(None) {
            report.waited_seconds = seconds(waited.threads_ns);
            report.waiting_seconds = seconds(waited.time_ns);
        }
        report.lost_events = watcher.seen().gaps;
        report
    }
}
