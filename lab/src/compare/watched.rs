//! One run of one policy of a comparison, with somebody looking on: the run that `compare` would make first, with the
//! same page, cache, limits and luck. So what is explained of it is what stands in its row.
//!
//! Never: another way to set up a run than [`super::Case`]'s.

use super::{Case, CompareError, Plan, Who, place, reads};
use crate::device::presets::Preset;
use crate::report::{RunResult, Silent};
use crate::sim::{self, Watch};
use crate::workload::Workload;
use foreread_core::policy::{PolicyDraft, PolicySpec};
use foreread_core::units::PageSize;
use place::Place;

/// A run, and what it was made with.
#[derive(Clone, Debug)]
pub struct Watched {
    /// What came out.
    pub result: RunResult,
    /// The policy with its values.
    pub policy: String,
    /// In the notation of `--on`.
    pub source: String,
    /// One line about it.
    pub source_about: String,
    /// Size of the cache in bytes.
    pub cache_bytes: u64,
    /// Its page.
    pub page: PageSize,
    /// What a reader must know, a sentence each.
    pub notes: Vec<String>,
}

/// Runs `policy` once on the plan's reads at the first place of the plan, which is to be a model. `watch` is made for the
/// workload and the page of the run.
///
/// # Errors
/// As [`super::run`]; and a place that is no model is refused.
pub fn run<W: Watch>(
    plan: &Plan,
    policy: PolicyDraft,
    watch: impl FnOnce(&Workload, PageSize, &PolicySpec) -> W,
) -> Result<(Watched, W), CompareError> {
    let plan = &Plan { policies: vec![policy.clone()], runs: Some(1), ..plan.clone() };
    let all = reads::all(plan)?;
    let places = place::all(plan, false, &mut Silent)?;
    let (Some(reads), Some(place)) = (all.first(), places.first()) else { unreachable!("a plan has reads and places") };
    let Place::Model(preset) = place else { return Err(CompareError::NoModel(place.name())) };
    let mut case = Case::new(plan, place, reads, &[])?;
    let workload = case.workload(0)?.into_owned();
    let name = policy.to_string();
    let row = case.rows.iter().position(|row| row.policy == name);
    let row = case.rows.swap_remove(row.expect("the plan has this policy alone, and none"));
    let Who::Policy(spec) = &row.who else { unreachable!("a named policy is one of ours") };
    let mut watch = watch(&workload, row.page, spec);
    let result = case.watch(preset, (spec, row.page), &workload, &mut watch);
    let notes = place.notes().into_iter().chain(case.notes.clone()).collect();
    let (source, source_about, cache_bytes) = (place.name(), place.about(), case.cache_bytes);
    Ok((
        Watched { result, policy: row.policy.clone(), source, source_about, cache_bytes, page: row.page, notes },
        watch,
    ))
}

impl Case<'_> {
    fn watch(
        &self,
        preset: &Preset,
        (policy, page): (&PolicySpec, PageSize),
        workload: &Workload,
        watch: &mut dyn Watch,
    ) -> RunResult {
        let (config, host_ns_per_kib) = (self.config(preset, page), preset.host_ns_per_kib);
        let setup = sim::Setup { workload, policy, config, host_ns_per_kib };
        sim::run_watched(&setup, preset.build(self.plan.seed), watch)
    }
}
