//! `tune`: recommends settings for the reads of a trace. The module measures the storage and compares policies on a model of the storage.
//! It reports how much faster the reads would be with a kernel setting, with a hint and with foreread, or that nothing would make them
//! faster.
//!
//! ```text
//!   trace ──► which storage? ──► probe ──► model ──► compare: policies of the kernel and foreread   ──► gains
//!               where its reads waited      │                                                              │
//!               longest, or --on            └──► the same reads with hints, in pairs ──────────────────────┴─► settings
//! ```
//! Everything is compared with **today**: the kernel's readahead at the storage's current setting. A change is
//! recommended if it saves at least 10 % of the time. A gain is only reported if it is significant (by a test that is
//! corrected for the number of policies), and each recommended setting is shown with its gain.
//!
//! Schema `foreread.tune/1`: new keys may be added. Undefined values are null.

mod candidates;
mod choose;
mod hints;
mod steps;
mod storage;
mod text;

pub use storage::{OnDisk, StorageFound, WorkloadChoice, find};
pub use text::render;

use crate::compare::{self, CompareOn, ComparePlan, OracleRow};
use crate::probe::{self, Probe};
use crate::replay::{Mode, is_walk};
use crate::report::Report;
use crate::verdict::{Confidence, Gain, Means, Standing, Verdict};
use choose::Choices;
use foreread_core::policy::DEFAULT;
use foreread_os::failure::Failure;
use foreread_os::host::Host;
use foreread_os::host::devices::Device;
use foreread_os::open::look;
use foreread_report::progress::Progress;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use steps::{Gains, Place};

/// Name and version of the JSON schema.
pub const SCHEMA: &str = "foreread.tune/1";
/// Number of runs of each policy: runs on a device model take little time, and a comparison of ten policies needs many
/// runs.
pub const RUNS: u32 = 10;
/// The kernel's maximum readahead that is assumed if the device's setting is unknown: the default of nearly all
/// devices.
pub const KERNEL_DEFAULT_BYTES: u64 = 128 << 10;
/// A change is recommended only if it saves at least this fraction of the current time, because a smaller gain is within the error of the
/// model.
pub const MIN_GAIN: f64 = 0.10;
/// A change is recommended only if it saves at least this many seconds, because users do not notice a smaller gain.
pub const MIN_SAVED_S: f64 = 0.1;

#[derive(Clone, Debug)]
pub struct TuneOptions {
    /// The trace, the cache, the seed and the runs. Its policies and its source are ignored.
    pub plan: ComparePlan,
    /// The storage of the files: a model, which is used as it is, or a file or block device, which is probed.
    pub storage: CompareOn,
    /// Why this storage was chosen, if it was found from the trace.
    pub chosen: Option<WorkloadChoice>,
    /// The user wants only part of the trace.
    pub partial: bool,
    /// How long a probe may take, in seconds.
    pub seconds: f64,
    /// The file system drops the cached pages of a file when it is opened: no other process can read ahead for a program.
    pub is_dropped: bool,
    /// The trace file and the recorded command, if they are known.
    pub trace: Option<PathBuf>,
    pub command: Vec<String>,
}

/// Memory is rounded to multiples of this, so that the same machine gives the same figures.
const MEMORY_GRAIN: u64 = 256 << 20;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TuneReport {
    pub schema: String,
    pub foreread: String,
    /// The trace, as the user named it.
    pub trace: String,
    /// The storage: `model:NAME`, or `file:PATH` that was probed.
    pub storage: String,
    /// Why this storage was chosen. Null if the user named it.
    pub chosen: Option<WorkloadChoice>,
    /// The measurements of the storage. Null for a model.
    pub probe: Option<Probe>,
    /// Today's policy: the kernel's, at the present setting.
    pub today: String,
    /// The largest window of that policy, in bytes.
    pub today_bytes: u64,
    /// True if it was read from the storage; false if it is the kernel's default.
    pub today_is_known: bool,
    /// The comparison, schema `foreread.compare/1`.
    pub report: Report,
    /// How long the same reads took when they were recorded. Null if the trace has no times, or is from another storage.
    pub recorded_s: Option<f64>,
    /// The program's time besides these reads, which no advice changes. 0 if the reads were not sampled: their times then include it.
    pub own_s: f64,
    /// The files that need the hint, by their names in the trace.
    pub hint_files: Vec<String>,
    /// See [`TuneOptions::is_dropped`].
    pub is_dropped: bool,
    /// What the disk should have, and how much each step gains for these reads.
    pub verdict: Verdict,
}

/// If the model's time for today is above the recorded time by more than this factor, or below it, the model is not used for
/// advice.
const AS_RECORDED: f64 = 1.25;

impl TuneReport {
    /// The time of the reads with today's setting, by the model.
    fn today_s(&self) -> Option<f64> {
        time_of(&self.report, &self.today)
    }

    /// What the figures time. The time before the first read and after the last one is known only of a sampled program.
    fn subject(&self) -> &'static str {
        let has_pauses = self.report.mode.as_deref() != Some("afap");
        match self.recorded_s {
            _ if has_pauses => "the reads and the pauses between them take",
            Some(_) => "the program takes",
            None => "the reads take",
        }
    }

    /// The program's time if its reads take this long in the model.
    fn program_s(&self, model_s: f64) -> f64 {
        model_s * self.scale() + self.own_s
    }

    /// Recorded time / the model's time of the same reads. No promise may start from more time than was recorded.
    fn scale(&self) -> f64 {
        let times = self.recorded_s.zip(self.today_s());
        let scale = times.map(|(recorded_s, today_s)| recorded_s / today_s);
        scale
            .filter(|scale| scale.is_normal() && self.is_as_recorded())
            .unwrap_or(1.0)
    }

    /// Whether the model leaves less of the recorded time unexplained than a change has to save. Only then nothing to change is a result.
    fn explains_recorded(&self) -> bool {
        self.recorded_s
            .zip(self.today_s())
            .is_none_or(|(recorded_s, today_s)| {
                let missing_s = recorded_s - today_s;
                missing_s < MIN_SAVED_S || missing_s <= recorded_s * MIN_GAIN
            })
    }

    /// Whether the model agrees with the recorded time of the same reads.
    fn is_as_recorded(&self) -> bool {
        let times = self.recorded_s.zip(self.today_s());
        times.is_none_or(|(recorded_s, today_s)| {
            let noticed = (today_s - recorded_s).abs() >= MIN_SAVED_S;
            !noticed || (recorded_s / AS_RECORDED..=recorded_s * AS_RECORDED).contains(&today_s)
        })
    }
}

fn time_of(report: &Report, policy: &str) -> Option<f64> {
    Some(report.row(policy)?.time_s.as_ref()?.mean)
}

/// Measures the storage, compares policies on a model of the storage, and recommends settings.
/// Returns an error if the storage cannot be measured, or if the reads cannot be compared.
pub fn tune(asked: &TuneOptions, progress: &mut dyn Progress) -> Result<TuneReport, Failure> {
    let storage = &asked.storage;
    let (probe, preset) = match storage.preset() {
        Some(preset) => (None, preset),
        None => {
            let wanted = probe::ProbeOptions {
                source: storage.clone(),
                seconds: asked.seconds,
                size_bytes: None,
            };
            let found = probe::probe(&wanted, progress)?;
            (Some(found.probe), found.model.preset("measured"))
        }
    };
    let known = probe.as_ref().and_then(|p| p.readahead_bytes);
    let today_bytes = known.unwrap_or(KERNEL_DEFAULT_BYTES);
    let today = candidates::kernel(today_bytes);
    let disk = probe.as_ref().map(|probe| &probe.verdict);
    let of_disk = disk.and_then(|disk| disk.should_bytes);
    let plateau = probe.as_ref().and_then(|p| p.plateau_bytes);
    let also: Vec<u64> = plateau.into_iter().chain(of_disk).collect();
    let candidates = candidates::all(today_bytes, &also);
    let choices = Choices {
        candidates: &candidates,
        of_disk,
    };
    let replay = asked.plan.replay.as_deref();
    let loaded = replay.map(|replay| &*replay.loaded);
    let is_walk = loaded.is_some_and(is_walk);
    let is_here = asked.chosen.is_some();
    let plan = ComparePlan {
        on: Some(compare::preset(preset)),
        policies: candidates
            .iter()
            .map(|candidate| candidate.policy.clone())
            .collect(),
        oracle: OracleRow::OnModels,
        runs: Some(asked.plan.runs.unwrap_or(RUNS)),
        // The kernel caches what it has read in the memory that programs leave free.
        cache_bytes: asked
            .plan
            .cache_bytes
            .or_else(|| free_memory().filter(|_| is_here)),
        ..asked.plan.clone()
    };
    let tables = compare::run(&plan, progress)?;
    let report = tables
        .first()
        .map(Report::of)
        .unwrap_or_else(|| unreachable!("a plan with a trace has a table"));
    // The model describes one large file, so it says nothing about small files on FUSE.
    let looked = storage.path().and_then(|path| look(path).ok());
    let is_on_fuse = looked.is_some_and(|looked| looked.is_on_fuse());
    let walk = loaded
        .filter(|_| is_walk && is_on_fuse)
        .map(|trace| choose::walk(&probe::small_files(&trace.names)?, trace));
    let (hint, hint_files) = hints::best(&plan, &today, progress)?;
    let (recorded_s, own_s) = recorded(asked, time_of(&report, &today));
    let mut tuned = TuneReport {
        schema: SCHEMA.to_string(),
        foreread: env!("CARGO_PKG_VERSION").to_string(),
        trace: report.workload.clone(),
        storage: probe
            .as_ref()
            .map_or_else(|| format!("model:{}", preset.name), |p| p.source.clone()),
        chosen: asked.chosen.clone(),
        today_is_known: known.is_some(),
        recorded_s,
        own_s,
        is_dropped: asked.is_dropped,
        today,
        today_bytes,
        report,
        hint_files,
        verdict: Verdict::default(),
        probe,
    };
    let gains = gains(&tuned, asked, &choices, walk, is_walk, hint);
    tuned.verdict = verdict(&tuned, asked, gains, (known, of_disk));
    Ok(tuned)
}

/// What each means gains for the recorded reads. `walk`: the gain of a mount or of `run` for a program that reads many small files over
/// FUSE, `None` for other programs and storage; `is_walk`: whether the program reads many small files.
fn gains(
    tuned: &TuneReport,
    asked: &TuneOptions,
    choices: &Choices<'_>,
    walk: Option<Option<Gain>>,
    is_walk: bool,
    hint: Option<Gain>,
) -> Gains {
    let (report, today) = (&tuned.report, &tuned.today);
    // `run` reads ahead into the page cache.
    let replay = asked.plan.replay.as_deref();
    let by_run =
        !asked.is_dropped && replay.is_none_or(|replay| replay.loaded.is_through_page_cache());
    let known = |(means, gain): (Means, Option<Gain>)| Some((means, gain?));
    if let Some(walk) = walk {
        let gain = match asked.is_dropped {
            // The server may process the parts of a larger window out of order, and no model shows that.
            true => (Means::Policy, walk),
            // `run` lists the folders itself.
            false => {
                let walk = walk.filter(|_| by_run).map(|gain| Gain {
                    with_range_s: None,
                    ..gain
                });
                (Means::Run, walk)
            }
        };
        return known(gain).into_iter().collect();
    }
    let gains = match (tuned.is_as_recorded(), asked.is_dropped) {
        (false, _) => Vec::new(),
        (true, true) => vec![(Means::Policy, choose::ours(report, today))],
        (true, false) => {
            let run = choose::run(report, today, is_walk).filter(|_| by_run);
            // 'run' is the same policy without the cost of a mount: where it gains too little, so does a mount.
            let policy = choose::any(report, today, choices);
            let policy = policy.filter(|gain| !(by_run && gain.what == DEFAULT));
            vec![
                (Means::Setting, choose::kernel(report, today, choices)),
                (Means::Run, run),
                (Means::Hint, hint),
                (Means::Policy, policy),
                (Means::Plan, choose::foresight(report, today)),
            ]
        }
    };
    let gains = gains.into_iter().filter_map(known).collect();
    steps::of_program(gains, |model_s| tuned.program_s(model_s))
}

/// The recorded time of the reads, and the program's own time: if the storage was found from the trace, and the replay keeps the recorded
/// pauses, or there are none because the reads were sampled. Then the reads took at least the observed waits and at most the whole time,
/// and the model's time counts if it is between these.
fn recorded(asked: &TuneOptions, today_s: Option<f64>) -> (Option<f64>, f64) {
    let replay = asked.plan.replay.as_deref();
    let like_it = replay.filter(|r| r.think.unwrap_or(1.0) == 1.0 && asked.chosen.is_some());
    let whole_s = like_it.and_then(|replay| replay.loaded.seconds());
    let (Some(replay), Some(whole_s)) = (like_it, whole_s) else {
        return (None, 0.0);
    };
    match (replay.mode, today_s) {
        (Mode::Closed | Mode::Deps, _) => (Some(whole_s), 0.0),
        (Mode::Asap, Some(today_s)) if replay.loaded.header.sampled_ns.is_some() => {
            let reads_s = today_s.clamp(replay.loaded.waited_s().min(whole_s), whole_s);
            (Some(reads_s), whole_s - reads_s)
        }
        _ => (None, 0.0),
    }
}

/// The verdict that follows from the gains. `sizes`: the readahead that the disk has, and what it should have.
fn verdict(
    tuned: &TuneReport,
    asked: &TuneOptions,
    gains: Gains,
    (has_bytes, should_bytes): (Option<u64>, Option<u64>),
) -> Verdict {
    let path = asked.storage.path();
    let device = match path {
        Some(path) => Host::here().device_of(path).ok(),
        // A model has no device, but the files of the trace may be on a mount, which has a setting.
        None => on_mount(asked),
    };
    let disk = tuned.probe.as_ref().map(|probe| &probe.verdict);
    let (steps, ways) = steps::all(tuned, asked, gains, &Place { device, disk });
    let is_doubtful = tuned
        .probe
        .as_ref()
        .is_some_and(|probe| probe.fit.median_error > probe::DOUBTFUL);
    Verdict {
        why: text::verdict(tuned, &steps, ways),
        confidence: match is_doubtful
            || !tuned.is_as_recorded()
            || ways == 0 && !tuned.explains_recorded()
        {
            true => Confidence::Low,
            false => Confidence::Simulated,
        },
        steps,
        device: disk.map_or_else(|| tuned.storage.clone(), |disk| disk.device.clone()),
        has_bytes,
        should_bytes,
        standing: disk.map_or(Standing::Fine, |disk| disk.standing),
    }
}

/// The mount without a disk from which the trace was read, if it is on this machine.
fn on_mount(asked: &TuneOptions) -> Option<Device> {
    let loaded = &asked.plan.replay.as_deref()?.loaded;
    let mut names = loaded.names.iter().map(Path::new);
    let name = names.find(|name| name.is_absolute())?;
    let device = Host::here().device_of(name).ok()?;
    device.name.is_none().then_some(device)
}

/// How much the page cache may hold: the memory of this machine or of the control group, without what is in use.
fn free_memory() -> Option<u64> {
    let room = Host::here().memory_room()?;
    let bytes = room.free_bytes / MEMORY_GRAIN * MEMORY_GRAIN;
    Some(bytes.max(compare::CACHE_BYTES / 4))
}
