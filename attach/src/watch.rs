//! Sets the `read_ahead_kb` of a disk by what its readers do, and puts it back.
//!
//! ```text
//!   at the start: doctor's verdict ──► what a value that is too large gives way to
//!   every 10 min: record 60 s ──► answer: which value gains what ──► decide ──► keep | once more | set
//!                 (look)          (a thread; tune's comparison)      (decide)                     │
//!                                                        guard ◄── announce ── setting ◄──────────┘
//! ```
//! The first recording begins at once. The disk is measured when the first recording has an answer to find, and again after a day;
//! with a model it is not. At the end the old value is put back, by this process or by its guard. Never: a change for a gain
//! of less than 10 %, or of a value that something else has set.

mod decide;
mod disk;
pub mod guard;
mod look;
mod setting;

pub use decide::{Decision, Harm};
pub use disk::WatchedDisk;
pub use look::Recording;
pub use setting::AtEnd;

use crate::doctor::verdict::DeviceVerdict;
use crate::doctor::{self, DoctorOptions};
use decide::{Answer, Decider};
use foreread_observe::record::active::ActiveRecording;
use foreread_os::failure::{Failure, FailureKind};
use foreread_os::host::Host;
use foreread_os::threads;
use foreread_sim::device::presets::Preset;
use look::{Counters, HarmBasis, Look, Question};
use setting::Setting;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::{Duration, Instant};

/// How often a thread that compares is asked, and a recording whether it is full.
const TICK: Duration = Duration::from_millis(50);
/// A disk is measured again after this time: it may have become another one behind the same name, or a busy one idle.
const MEASURED_FOR: Duration = Duration::from_secs(24 * 60 * 60);
/// Steps below the usual priority for all that a watcher does.
const NICE: i32 = 10;

#[derive(Clone, Debug)]
pub struct WatchOptions {
    pub disk: WatchedDisk,
    /// From the start of a recording to that of the next.
    pub every: Duration,
    /// How long each takes.
    pub length: Duration,
    /// Part of the time that a change has to save; at least [`foreread_lab::tune::MIN_GAIN`].
    pub min_gain: f64,
    /// Nothing is set.
    pub is_dry: bool,
    /// One recording, and nothing is set.
    pub once: bool,
    /// A model of the disk; otherwise it is measured.
    pub model: Option<&'static Preset>,
    /// How long that may take, in seconds.
    pub probe_seconds: f64,
    /// Where events are kept during a recording.
    pub folder: PathBuf,
}

fn gone(setting: &Path, error: std::io::Error) -> Failure {
    let remedy = "start it again when the disk is back";
    Failure::check("the disk is gone", setting.display(), remedy).caused_by(error)
}

fn not_writable(setting: &Path, error: std::io::Error) -> Failure {
    let remedy = "run it as root and outside of a container, or with --dry-run";
    Failure::cannot("cannot change it", setting.display(), remedy).caused_by(error)
}

/// A disk that cannot be recorded cannot be watched here, whatever the reason.
fn not_recorded(error: Failure) -> Failure {
    let kind = FailureKind::Cannot;
    Failure { kind, ..error }
}

/// A recording and what is decided by it.
#[derive(Debug)]
pub struct Finding<'a> {
    pub recording: &'a Recording,
    pub decision: &'a Decision,
    /// The value that was set during it, in KiB.
    pub kib: u64,
    /// The best one, and its time / that of the old one.
    pub best: Option<(u64, f64)>,
    pub harm: Option<Harm>,
}

#[derive(Debug)]
pub enum WatchEvent<'a> {
    /// It begins, at this value in KiB; what `doctor` finds about the disk, where it can look.
    Started(u64, Option<&'a DeviceVerdict>),
    Recorded(&'a Finding<'a>),
    /// A value was set: before, and now.
    Set(u64, u64),
    /// A recording or a change has failed; it goes on.
    Failed(&'a Failure),
    /// It ends; the old value in KiB, and what became of it.
    Ended(u64, AtEnd),
}

/// Watches until `stop` says something or its other end is gone.
///
/// # Errors
/// It cannot begin, or the disk is gone. After an error in between it goes on.
pub fn watch(
    options: &WatchOptions,
    stop: &Receiver<()>,
    mut tell: impl FnMut(&WatchEvent<'_>),
) -> Result<(), Failure> {
    let changes = !options.is_dry && !options.once;
    // Held, so that a tracefs that is mounted nowhere is not mounted anew for each recording.
    let _root = foreread_observe::record::active::possible()?;
    let setting = Setting::take(&options.disk.setting, changes)?;
    let _ = rustix::process::nice(NICE);
    let verdict = verdict(options);
    tell(&WatchEvent::Started(setting.old(), verdict.as_ref()));
    let decider = Decider::new(setting.old(), options.min_gain);
    let mut watcher = Watcher {
        options,
        stop,
        setting,
        decider,
        changes,
        model: None,
        basis: verdict.map(|verdict| HarmBasis {
            costs: verdict.costs,
            request_bytes: verdict.max_request_bytes,
            memory_bytes: Host::here().memory_bytes(),
        }),
    };
    let done = watcher.rounds(&mut tell);
    let old = watcher.setting.old();
    let end = watcher.setting.end();
    tell(&WatchEvent::Ended(old, end));
    done
}

/// What `doctor` finds; nothing where it cannot look. With a model the disk is not read.
fn verdict(options: &WatchOptions) -> Option<DeviceVerdict> {
    let look = DoctorOptions {
        devices: vec![options.disk.name.clone()],
        may_measure: options.model.is_none(),
        to: None,
        counted_for: Duration::ZERO,
    };
    let report = doctor::examine(&Host::here(), &look).ok()?;
    report.devices.into_iter().next()
}

struct Watcher<'a> {
    options: &'a WatchOptions,
    stop: &'a Receiver<()>,
    setting: Setting,
    decider: Decider,
    changes: bool,
    /// The model that was measured, and when.
    model: Option<(&'static Preset, Instant)>,
    basis: Option<HarmBasis>,
}

/// It is to end.
struct StopRequested;

impl Watcher<'_> {
    fn rounds(&mut self, tell: &mut impl FnMut(&WatchEvent<'_>)) -> Result<(), Failure> {
        loop {
            let began = Instant::now();
            match self.round(tell) {
                Ok(Err(StopRequested)) => return Ok(()),
                Ok(Ok(())) => {}
                Err(error) if self.options.once => return Err(error),
                Err(error) => tell(&WatchEvent::Failed(&error)),
            }
            if self.options.once {
                return Ok(());
            }
            // After a round that took longer there is a pause all the same.
            let pause = self.options.every.saturating_sub(began.elapsed()).max(TICK);
            if self.is_stopped_within(pause) {
                return Ok(());
            }
            self.setting
                .now()
                .map_err(|error| gone(&self.options.disk.setting, error))?;
        }
    }

    fn is_stopped_within(&self, time: Duration) -> bool {
        self.stop.recv_timeout(time) != Err(RecvTimeoutError::Timeout)
    }

    /// One recording and what follows from it.
    fn round(
        &mut self,
        tell: &mut impl FnMut(&WatchEvent<'_>),
    ) -> Result<Result<(), StopRequested>, Failure> {
        let before = Counters::now(&self.options.disk);
        let running = look::begin(self.options).map_err(not_recorded)?;
        let is_stopped = self.wait(&running);
        let is_cut = running.is_full();
        let captured = running.finish().map_err(not_recorded)?;
        if is_stopped {
            return Ok(Err(StopRequested));
        }
        let gone = |error| gone(&self.options.disk.setting, error);
        let now = self.setting.now().map_err(gone)?;
        let question = Question {
            captured,
            is_cut,
            disk: self.options.disk.path.clone(),
            probe_seconds: self.options.probe_seconds,
            model: self.known_model(),
            old: self.setting.old(),
            now,
            counters: Counters::now(&self.options.disk).since(before),
            basis: self.basis,
        };
        let Some(look) = self.compared(question)? else {
            return Ok(Err(StopRequested));
        };
        if let Some(model) = look.model.filter(|_| self.known_model().is_none()) {
            self.model = Some((model, Instant::now()));
        }
        self.apply(&look, tell).map(Ok)
    }

    fn known_model(&self) -> Option<&'static Preset> {
        let measured = self
            .model
            .filter(|(_, at)| at.elapsed() < MEASURED_FOR)
            .map(|(model, _)| model);
        self.options.model.or(measured)
    }

    /// Waits for the end of the recording; gives whether all is to end.
    fn wait(&self, running: &ActiveRecording) -> bool {
        let until = Instant::now() + self.options.length;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || running.is_full() {
                return false;
            }
            if self.is_stopped_within(left.min(TICK)) {
                return true;
            }
        }
    }

    /// Has a thread compare; nothing where all is to end before it has an answer. It then ends with the process.
    fn compared(&self, question: Question) -> Result<Option<Look>, Failure> {
        let (to, answers) = channel();
        threads::spawn("foreread-compare", move || {
            // Without a receiver all is to end.
            let _ = to.send(question.answer());
        })
        .map_err(|error| Failure::of(FailureKind::Input, error))?;
        loop {
            match answers.recv_timeout(TICK) {
                Ok(answer) => return answer.map(Some),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::check(
                        "the comparison ended unexpectedly",
                        "this recording",
                        "please report it",
                    ));
                }
                Err(RecvTimeoutError::Timeout)
                    if self.stop.try_recv() != Err(TryRecvError::Empty) =>
                {
                    return Ok(None);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn apply(
        &mut self,
        look: &Look,
        tell: &mut impl FnMut(&WatchEvent<'_>),
    ) -> Result<(), Failure> {
        let failed = |error| not_writable(&self.options.disk.setting, error);
        let before = self.setting.now().map_err(failed)?;
        self.decider.look(before);
        let decision = self.decider.decide(look.answer.as_ref());
        let answer = look.answer.as_ref();
        tell(&WatchEvent::Recorded(&Finding {
            recording: &look.recording,
            decision: &decision,
            kib: before,
            best: answer.and_then(|answer: &Answer| answer.best),
            harm: answer.and_then(|answer| answer.harm),
        }));
        if let Decision::Set(value) = decision
            && self.changes
        {
            let now = self.setting.set(value).map_err(failed)?;
            self.decider.set(now);
            tell(&WatchEvent::Set(before, now));
        }
        Ok(())
    }
}
