//! A device model that delays reads in real time, read by the engine. Each run gets a new device, as in the simulator.

use super::{CompareOn, Description, NameError, Run, Target, TargetName, engine, model_behind};
use crate::compare::CompareError;
use crate::compare::rows::OnPage;
use crate::live;
use foreread::Limits;
use foreread::source::{Defaults, SourceName};
use foreread_sim::device::presets::Preset;
use foreread_sim::simulator::RunResult;
use std::sync::Arc;

/// Most threads that sleep.
const MAX_SLEEPERS: u32 = 256;

pub fn model_live(preset: &'static Preset) -> CompareOn {
    Arc::new(ModelLiveName(preset))
}

pub(super) fn parse(name: &SourceName) -> Option<Result<CompareOn, NameError>> {
    model_behind("model-live:", name).map(|found| found.map(model_live))
}

#[derive(Debug)]
struct ModelLiveName(&'static Preset);

impl TargetName for ModelLiveName {
    fn shown(&self) -> String {
        format!("the live run of model:{}", self.0.name)
    }

    fn preset(&self) -> Option<&'static Preset> {
        Some(self.0)
    }

    fn open(&self) -> Result<Box<dyn Target>, CompareError> {
        Ok(Box::new(SleepingModel::new(self.0)))
    }
}

struct SleepingModel {
    preset: &'static Preset,
    about: Description,
}

impl SleepingModel {
    fn new(preset: &'static Preset) -> SleepingModel {
        let name = format!("model-live:{}", preset.name);
        let about = format!("{}; it really sleeps", preset.summary);
        let about = Description::new(name, about, preset.capacity_bytes, Defaults::MODEL_LIVE);
        SleepingModel { preset, about }
    }
}

impl Target for SleepingModel {
    fn describe(&self) -> &Description {
        &self.about
    }

    /// The source is as large as the workload's file. It has the limits of a simulated run, with a thread for each readahead in
    /// flight.
    fn run(&self, policy: OnPage<'_>, run: &Run<'_>) -> Result<RunResult, CompareError> {
        let size = run.workload.files[0];
        let source = Arc::new(live::ModelLive::new(self.preset, size, run.seed));
        let config = self.preset.config(policy.page, run.cache_bytes);
        let limits = Limits {
            max_fetch_bytes: Some(config.max_fetch_bytes),
            max_in_flight: config.max_in_flight,
            max_ahead_in_flight: Some(config.max_ahead_in_flight),
            max_piggyback_bytes: config.max_piggyback_bytes,
            ..Limits::default()
        };
        let threads = config.max_ahead_in_flight.clamp(1, MAX_SLEEPERS);
        engine(source, policy, run, Some((limits, threads)))
    }
}
