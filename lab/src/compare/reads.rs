//! The reads of a comparison: built-in workloads by their names, or a trace.
//!
//! This module only prepares the reads: other modules choose the storage to read (the target) and measure.

use super::targets::Description;
use super::{CompareError, ComparePlan, SCRATCH_WORKLOADS, SPAN_BYTES, USUAL_WORKLOADS};
use crate::live;
use crate::replay::{Replay, laid_out};
use crate::report::ReplayPace;
use crate::report::row::NOTE_OF_FILES;
use foreread_history::parse_workload;
use foreread_os::failure::Failure;
use foreread_report::number::{self, amount};
use foreread_sim::workload::{Workload, WorkloadChoice};
use std::borrow::Cow;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub enum Reads {
    /// A built-in workload, with values for all its parameters.
    Named(WorkloadChoice),
    Trace(Arc<Replay>),
}

/// Prepares the reads of a plan: those of all its workloads, or of its trace.
pub fn all(plan: &ComparePlan) -> Result<Vec<Reads>, CompareError> {
    if let Some(replay) = &plan.replay {
        return Ok(vec![Reads::Trace(replay.clone())]);
    }
    let names: Vec<&str> = match &plan.workload {
        Some(name) => vec![name],
        None if plan.on.is_none() => SCRATCH_WORKLOADS.to_vec(),
        None => USUAL_WORKLOADS.to_vec(),
    };
    let named = |name| {
        parse_workload(name)
            .map(Reads::Named)
            .map_err(CompareError::workload)
    };
    names.into_iter().map(named).collect()
}

/// If these reads are measured on a model instead of a scratch file, returns the reason, otherwise `None`.
pub fn no_file(plan: &ComparePlan, all: &[Reads]) -> Option<String> {
    if plan.on.is_some() {
        return None;
    }
    let size = plan.size_bytes.unwrap_or(SPAN_BYTES);
    let refusal = |reads: &Reads| {
        match reads {
        Reads::Trace(_) => {
            Some("a trace is replayed on models, unless --on names a file that is large enough for the trace".to_string())
        }
        Reads::Named(w) => w
            .build(size, plan.seed)
            .ok()
            .and_then(|w| live::check(&w).err())
            .map(|e| e.to_string()),
    }
    };
    let refusals: Option<Vec<String>> = all.iter().map(refusal).collect();
    refusals?
        .into_iter()
        .next()
        .map(|why| format!("No scratch file: {why}"))
}

/// Returns the reads that fit the target, and a note for each workload that does not fit. A workload that the user gave explicitly is
/// always tried.
pub fn fitting<'a>(
    plan: &ComparePlan,
    place: &Description,
    all: &'a [Reads],
) -> (Vec<&'a Reads>, Vec<String>) {
    let asked = plan.workload.is_some() || plan.replay.is_some();
    let fits = |r: &&Reads| asked || place.span(plan, r) >= r.least_bytes();
    let (fit, not): (Vec<&Reads>, Vec<&Reads>) = all.iter().partition(fits);
    let word = |r: &Reads| {
        if place.size(plan, r.least_bytes()) < r.least_bytes() {
            format!("{r} was left out: it needs {} bytes", r.least_bytes())
        } else {
            format!(
                "{r} was left out: it takes minutes on {}; name it explicitly to run it",
                place.name
            )
        }
    };
    (fit, not.into_iter().map(word).collect())
}

impl Reads {
    /// Builds the workload; if the workload does not fix the size of its file, the size is `size` bytes.
    pub fn build(
        &self,
        place: &Description,
        size: u64,
        seed: u64,
    ) -> Result<Cow<'_, Workload>, CompareError> {
        match self {
            Reads::Named(chosen) => chosen
                .build(size, seed)
                .map(Cow::Owned)
                .map_err(CompareError::workload),
            Reads::Trace(replay) if place.is_simulated => Ok(Cow::Borrowed(&replay.workload)),
            Reads::Trace(replay) => {
                let size = place.capacity_bytes;
                let too_large = |what| {
                    let what = format!("{what}, and {} has {}", place.name, amount(size));
                    let remedy =
                        "select one file of the trace with --only NAME, or use --on model:NAME";
                    CompareError::from(Failure::input(what, "", remedy))
                };
                laid_out(&replay.workload, size)
                    .map(Cow::Owned)
                    .map_err(too_large)
            }
        }
    }

    /// Returns the smallest file size with which these reads can be generated.
    pub fn least_bytes(&self) -> u64 {
        if let Reads::Named(chosen) = self {
            chosen.info.least_bytes
        } else {
            0
        }
    }

    /// Returns the size of the cache that this workload is designed for.
    pub fn cache_bytes(&self) -> Option<u64> {
        if let Reads::Named(chosen) = self {
            chosen.info.cache_bytes
        } else {
            None
        }
    }

    pub fn pace(&self) -> Option<ReplayPace> {
        let Reads::Trace(replay) = self else {
            return None;
        };
        Some(ReplayPace {
            mode: replay.mode,
            think: replay.think,
        })
    }

    /// Returns the notes that the table shows about these reads on this target.
    pub fn notes(&self, place: &Description) -> Vec<String> {
        let Reads::Trace(replay) = self else {
            return Vec::new();
        };
        let mut notes = replay.notes.clone();
        let files = &replay.workload.files;
        let capacity = place.capacity_bytes;
        if files.len() > 1 {
            let how = match place.is_simulated {
                true => "",
                false => ", one after the other, each at a multiple of 1 MiB",
            };
            let (count, name) = (files.len(), &place.name);
            notes.push(format!(
                "{NOTE_OF_FILES}{name}{how} ({count} files); --only selects some"
            ));
        }
        if place.is_simulated && files.iter().any(|size| *size > capacity) {
            notes.push(format!(
                "The trace reads beyond the {} of {}: those offsets wrap around",
                number::size_b(capacity),
                place.name
            ));
        }
        notes
    }
}

/// The text that the user wrote.
impl std::fmt::Display for Reads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reads::Named(chosen) => chosen.fmt(f),
            Reads::Trace(replay) => f.write_str(&replay.workload.name),
        }
    }
}
