//! Executes a single run of one policy with an observer, for `explain`. The run has the same cache page, cache size,
//! limits and random numbers as the first run of `compare`, so the explanation matches the row that `compare` shows.
//!
//! ```text
//!   model   simulator::run_watched ──────────────────────────────────────────────────► Watch
//!   file    live::engine ──event log──► a fresh machine, which decides the same ──► Watch     the log has no name
//! ```
//! The observer never slows down a run on real storage, because it reads the run's event log only after the run.

use super::{Case, CompareError, ComparePlan, possible, reads, targets};
use foreread_core::policy::{PolicyDraft, PolicySpec};
use foreread_core::units::PageSize;
use foreread_report::progress::Silent;
use foreread_sim::simulator::{RunResult, Watch};
use foreread_sim::workload::Workload;

/// The result of an observed run, and the settings of the run.
#[derive(Clone, Debug)]
pub struct WatchedRun {
    pub result: RunResult,
    pub policy: PolicySpec,
    /// The source in the notation of `--on`.
    pub source: String,
    pub source_about: String,
    pub cache_bytes: u64,
    pub page: PageSize,
    /// Notes about the result, a sentence each.
    pub notes: Vec<String>,
}

/// The note for a live run.
const BY_ITS_LOG: &str = "This was one run of the engine, explained from its event log: a replay of the logged events made \
    the same decisions; the times are those of the run";

/// Executes the reads of the plan once, under `policy` and on the first target of the plan. `watch` makes the observer for
/// the reads, the page of the cache, and where each file begins in the one file that is read (empty if each file is read separately).
/// Returns an error in the same cases as [`super::run`]. A run on real storage also fails if its event log cannot be written, or if a
/// replay of the log makes other decisions than the run made.
pub fn run<W: Watch>(
    plan: &ComparePlan,
    policy: PolicyDraft,
    watch: impl FnOnce(&Workload, PageSize, Vec<u64>) -> W,
) -> Result<(WatchedRun, W), CompareError> {
    let plan = &ComparePlan {
        policies: vec![policy.clone()],
        runs: Some(1),
        ..plan.clone()
    };
    let all = reads::all(plan)?;
    possible(plan)?;
    let targets = targets::all(plan, false, &mut Silent)?;
    let (Some(reads), Some(target)) = (all.first(), targets.first()) else {
        unreachable!("a plan has reads and targets")
    };
    let case = Case::new(plan, &**target, reads, &[], Vec::new())?;
    let workload = case.workload(0)?.into_owned();
    let name = policy.to_string();
    let row = case.rows.iter().find(|row| row.policy == name);
    let policy = row.and_then(|row| row.ours());
    let policy = policy.expect("the plan contains only this policy and 'none'");
    let place = target.describe();
    let mut notes = [&place.notes[..], &case.notes].concat();
    let apart = plan
        .replay
        .as_ref()
        .map_or(&workload, |replay| &replay.workload);
    let mut bases = Vec::new();
    if !place.is_simulated {
        notes.push(BY_ITS_LOG.to_string());
        bases = crate::replay::bases(&apart.files).0;
    }
    let mut watch = watch(apart, policy.page, bases);
    let result = target.watch(policy, &case.nth_run(&workload, 0), &mut watch)?;
    let watched = WatchedRun {
        result,
        policy: policy.policy.clone(),
        source: place.name.clone(),
        source_about: place.about.clone(),
        cache_bytes: case.cache_bytes,
        page: policy.page,
        notes,
    };
    Ok((watched, watch))
}
