//! A device model, in virtual time. In addition to the rows for policies, its table has a row for the oracle (perfect foresight).

use super::{CompareOn, Description, OnPage, Row, Run, Target, TargetName};
use crate::compare::{CompareError, MODEL_RUNS};
use foreread::source::{Defaults, SourceName};
use foreread_core::units::PageSize;
use foreread_os::failure::Failure;
use foreread_sim::device::custom;
use foreread_sim::device::presets::Preset;
use foreread_sim::limits::{bound::Bound, oracle};
use foreread_sim::simulator::{self, RunResult, Watch};
use std::sync::Arc;

/// Finds a device model by its name.
pub fn model(name: &str) -> Result<CompareOn, CompareError> {
    Ok(preset(custom::find(name)?))
}

pub fn preset(preset: &'static Preset) -> CompareOn {
    Arc::new(ModelName(preset))
}

pub(super) fn parse(name: &SourceName) -> Option<Result<CompareOn, Failure>> {
    let name = name.unredacted().as_encoded_bytes();
    let name = name.strip_prefix(b"model:")?;
    Some(model(&String::from_utf8_lossy(name)).map_err(Failure::from))
}

#[derive(Debug)]
struct ModelName(&'static Preset);

impl TargetName for ModelName {
    fn shown(&self) -> String {
        format!("model:{}", self.0.name)
    }

    fn preset(&self) -> Option<&'static Preset> {
        Some(self.0)
    }

    fn open(&self) -> Result<Box<dyn Target>, CompareError> {
        Ok(Box::new(Model::new(self.0)))
    }
}

pub(super) struct Model {
    preset: &'static Preset,
    pub(super) about: Description,
}

impl Model {
    pub(super) fn new(preset: &'static Preset) -> Model {
        let (name, about) = (format!("model:{}", preset.name), preset.summary.to_string());
        let generic = "Generic model, not your storage: trust the ranking, not the times";
        let notes = (!preset.calibrated).then(|| generic.to_string());
        let about = Description {
            notes: Vec::from_iter(notes),
            is_simulated: true,
            runs: MODEL_RUNS,
            notes_defaults: false,
            ..Description::new(name, about, preset.capacity_bytes, Defaults::MODEL_LIVE)
        };
        Model { preset, about }
    }

    fn setup<'a>(
        &self,
        OnPage { policy, page }: OnPage<'a>,
        run: &Run<'a>,
    ) -> simulator::Setup<'a> {
        simulator::Setup::new(
            run.workload,
            policy,
            self.preset.config(page, run.cache_bytes),
            self.preset.host_ns_per_kib,
        )
    }
}

impl Target for Model {
    fn describe(&self) -> &Description {
        &self.about
    }

    fn run(&self, policy: OnPage<'_>, run: &Run<'_>) -> Result<RunResult, CompareError> {
        Ok(simulator::run(
            &self.setup(policy, run),
            self.preset.build(run.seed),
        ))
    }

    fn run_own(&self, row: &Row, run: &Run<'_>) -> Result<Option<RunResult>, CompareError> {
        Ok(oracle::run(&oracle::Setup {
            workload: run.workload,
            config: self.preset.config(row.page, run.cache_bytes),
            preset: self.preset,
            seed: run.seed,
            bound: run.bound.unwrap_or_default(),
        }))
    }

    fn bound(&self, page: PageSize, run: &Run<'_>) -> Option<Bound> {
        let config = self.preset.config(page, run.cache_bytes);
        Some(Bound::of_run(run.workload, self.preset, &config, run.seed))
    }

    fn watch(
        &self,
        policy: OnPage<'_>,
        run: &Run<'_>,
        watch: &mut dyn Watch,
    ) -> Result<RunResult, CompareError> {
        let device = self.preset.build(run.seed);
        Ok(simulator::run_watched(
            &self.setup(policy, run),
            device,
            watch,
        ))
    }
}
