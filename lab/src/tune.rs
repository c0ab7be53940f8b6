//! `tune`: from a trace to what to set. Measures the storage, compares policies on a model of it, and says what the kernel,
//! a hint and foreread gain over today's setting; or that nothing does.
//!
//! ```text
//!   trace ──► which storage? ──► probe ──► model ──► compare: the kernel's and our policies, in pairs ──► gains
//!               where its reads waited      │                                                              │
//!               longest, or --on            └──► the same reads with hints, in pairs ──────────────────────┴─► settings
//! ```
//! Everything is compared with **today**: the kernel's readahead at the storage's present setting. A gain is worth a change
//! from 10 % on. Never: a gain that no corrected test calls one, or a setting without its gain.
//!
//! Schema `foreread.tune/1`: keys are only ever added. What is not defined is null.

mod candidates;
mod choose;
mod disk;
mod hints;
mod order;
mod page;
mod settings;
mod storage;
mod text;

pub use disk::disk_setting;
pub use page::page;
pub use storage::{OnDisk, StorageFound, WorkloadChoice, find};
pub use text::render;

use crate::advice::{self, Means};
use crate::compare::{self, CompareOn, ComparePlan, OracleRow};
use crate::probe::{self, Probe};
use crate::report::{Report, RowKind};
use crate::setting::Setting;
use choose::Choices;
use foreread_os::failure::Failure;
use foreread_os::open::look;
use foreread_report::progress::Progress;
use foreread_sim::device::presets::Preset;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Name and version of the layout below.
pub const SCHEMA: &str = "foreread.tune/1";
/// Pairs of runs: a model is cheap, and ten rows want more than a glance.
pub const RUNS: u32 = 10;
/// The kernel's maximum where it is unknown: what it sets for nearly every device.
pub const KERNEL_DEFAULT_BYTES: u64 = 128 << 10;
/// Part of today's time that a change has to save: less is within what a model is off, and no reason to touch a system.
pub const MIN_GAIN: f64 = 0.10;
/// Seconds of a run that a change has to save: less is not noticed, and what a program reads in so short a time is mostly its start.
pub const MIN_SAVED_S: f64 = 0.01;

#[derive(Clone, Debug)]
pub struct TuneOptions {
    /// The trace, the cache, the seed and the runs. Its policies and its place are passed over.
    pub plan: ComparePlan,
    /// Where the files live: a model, taken as it is, or a file or block device, which is probed.
    pub storage: CompareOn,
    /// Why it is this one, where it was found by the trace.
    pub chosen: Option<WorkloadChoice>,
    /// Only part of the trace is used, as the user asked for.
    pub partial: bool,
    /// How long a probe may take, in seconds.
    pub seconds: f64,
    /// The file system of the storage drops what is cached of a file when that is opened: nothing can be read ahead beside a program.
    pub is_dropped: bool,
    /// Where the trace is, and the command that it is of, where they are known.
    pub trace: Option<PathBuf>,
    pub command: Vec<String>,
}

/// Everything that was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TuneReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of foreread.
    pub foreread: String,
    /// The trace, as it was named.
    pub trace: String,
    /// The storage: `model:NAME`, or `file:PATH` that was probed.
    pub storage: String,
    /// Why it is this one. Null where it was named.
    #[serde(default)]
    pub chosen: Option<WorkloadChoice>,
    /// What was measured of it. Null for a model.
    pub probe: Option<Probe>,
    /// Today: the kernel's policy at the present setting.
    pub today: String,
    /// The largest window of today, in bytes.
    pub today_bytes: u64,
    /// Whether that was read from the storage, or is the kernel's default.
    pub today_is_known: bool,
    /// The comparison, schema `foreread.compare/1`.
    pub report: Report,
    /// What the disk should have whatever is read, in bytes: what `doctor` names. Null where it was not measured.
    #[serde(default)]
    pub of_disk_bytes: Option<u64>,
    /// The best setting of the kernel. Null where none is better than today.
    pub kernel: Option<Gain>,
    /// The best hint. Null where none is better than today.
    pub hint: Option<Gain>,
    /// The files that the hint is for, by their names in the trace.
    pub hint_files: Vec<String>,
    /// The best policy of foreread. Null where none is better than today.
    pub policy: Option<Gain>,
    /// What the program gains by `foreread run`. Null where it is nothing.
    #[serde(default)]
    pub run: Option<Gain>,
    /// What it gains by `foreread replay` of a plan, where it reads the same again. Null where it is nothing.
    #[serde(default)]
    pub replay: Option<Gain>,
    /// See [`TuneOptions::is_dropped`].
    #[serde(default)]
    pub is_dropped: bool,
    /// What is advised first; its line is the first of the settings. Null where nothing is.
    #[serde(default)]
    pub first: Option<FirstMeans>,
    /// The conclusion, in a few sentences.
    pub verdict: String,
    pub settings: Vec<Setting>,
}

/// What is advised first, and what it gains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FirstMeans {
    pub means: Means,
    pub gain: Gain,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// What: a policy with its values, or a hint.
    pub what: String,
    /// What the row of a policy is. Null for a hint.
    #[serde(default)]
    pub kind: Option<RowKind>,
    /// The kernel's maximum that it sets, in bytes. Null for all but a setting of the kernel.
    #[serde(default)]
    pub max_bytes: Option<u64>,
    /// Its mean time (in mode open: latency) / that of today.
    pub ratio: f64,
    /// Ends of the 95 % interval of it, by bootstrap over the pairs. Null with one run.
    pub ratio_ci95: Option<[f64; 2]>,
    /// Means in seconds: today, and with it.
    pub today_s: f64,
    /// See there.
    pub with_s: f64,
    /// Bytes that it reads from the source / those of today.
    pub bytes_ratio: Option<f64>,
}

impl Gain {
    /// It is gained by no readahead at all.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.kind == Some(RowKind::NoReadahead)
    }
}

/// Measures a storage, in about this many seconds: what was measured, and the model that fits it. The model is kept for the life of the
/// process.
fn probed(
    source: CompareOn,
    seconds: f64,
    progress: &mut dyn Progress,
) -> Result<(Probe, &'static Preset), Failure> {
    let wanted = probe::ProbeOptions {
        source,
        seconds,
        size_bytes: None,
        buffered: false,
    };
    let found = probe::probe(&wanted, progress)?;
    Ok((found.probe, found.model.preset("measured")))
}

/// Measures, compares and advises.
///
/// # Errors
/// The storage cannot be measured, or the reads cannot be compared.
pub fn tune(asked: &TuneOptions, progress: &mut dyn Progress) -> Result<TuneReport, Failure> {
    let storage = &asked.storage;
    let (probe, preset) = match storage.preset().filter(|_| storage.is_simulated()) {
        Some(preset) => (None, preset),
        None => {
            let (probe, preset) = probed(storage.clone(), asked.seconds, progress)?;
            (Some(probe), preset)
        }
    };
    let known = probe.as_ref().and_then(|p| p.readahead_bytes);
    let today_bytes = known.unwrap_or(KERNEL_DEFAULT_BYTES);
    let today = candidates::kernel(today_bytes);
    let plateau = probe.as_ref().and_then(|p| p.plateau_bytes);
    let of_disk = probe.as_ref().and_then(|p| settings::of_disk(p, storage));
    let also: Vec<u64> = plateau.into_iter().chain(of_disk).collect();
    let candidates = candidates::all(today_bytes, &also);
    let choices = Choices {
        candidates: &candidates,
        of_disk,
    };
    let loaded = asked.plan.replay.as_ref().map(|replay| &*replay.loaded);
    let is_walk = loaded.is_some_and(advice::is_walk);
    let plan = ComparePlan {
        on: Some(compare::preset(preset)),
        policies: candidates
            .iter()
            .map(|candidate| candidate.policy.clone())
            .collect(),
        oracle: OracleRow::OnModels,
        runs: Some(asked.plan.runs.unwrap_or(RUNS)),
        ..asked.plan.clone()
    };
    let tables = compare::run(&plan, progress)?;
    let report = tables
        .first()
        .map(Report::of)
        .unwrap_or_else(|| unreachable!("a plan with a trace has a table"));
    // Of small files of FUSE the model says nothing: it is of one large file.
    let is_on_fuse = storage
        .path()
        .and_then(|path| look(path).ok())
        .is_some_and(|looked| looked.is_on_fuse());
    let walk = loaded
        .filter(|_| is_walk && is_on_fuse)
        .map(|trace| choose::walk(&probe::small_files(&trace.names)?, trace));
    let (hint, hint_files) = hints::best(&plan, &today, progress)?;
    let mut tuned = TuneReport {
        schema: SCHEMA.to_string(),
        foreread: env!("CARGO_PKG_VERSION").to_string(),
        trace: report.workload.clone(),
        storage: probe
            .as_ref()
            .map_or_else(|| format!("model:{}", preset.name), |p| p.source.clone()),
        chosen: asked.chosen.clone(),
        today_is_known: known.is_some(),
        // Such a server may not take the parts of a larger window in order, and no model shows it.
        kernel: choose::kernel(&report, &today, &choices).filter(|_| !asked.is_dropped),
        policy: match &walk {
            Some(gain) if asked.is_dropped => gain.clone(),
            None if asked.is_dropped => choose::run(&report, &today, false)
                .filter(|gain| choose::is_as_recorded(gain.today_s, loaded)),
            _ => choose::any(&report, &today, &choices),
        },
        run: match &walk {
            Some(gain) => gain.clone(),
            None => choose::run(&report, &today, is_walk),
        }
        .filter(|_| advice::can_run(loaded) && !asked.is_dropped),
        replay: choose::foresight(&report, &today).filter(|_| !asked.is_dropped),
        is_dropped: asked.is_dropped,
        of_disk_bytes: of_disk,
        probe,
        today,
        today_bytes,
        report,
        hint: hint.filter(|_| !asked.is_dropped),
        hint_files,
        first: None,
        verdict: String::new(),
        settings: Vec::new(),
    };
    tuned.first = text::first(&tuned);
    tuned.verdict = text::verdict(&tuned);
    tuned.settings = settings::for_paste(&tuned, asked);
    Ok(tuned)
}
