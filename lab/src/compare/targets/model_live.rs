//! A device model that really sleeps, read by the engine: a new one for each run, as the simulator has.

#[cfg(feature = "disk-cache")]
use super::{CachedRun, disk_cache::LiveDiskCache};
use super::{CompareOn, Description, NameError, Run, Target, TargetName, engine, model_behind};
use crate::compare::CompareError;
use crate::compare::rows::OnPage;
use crate::live;
use foreread::Limits;
use foreread::source::{Defaults, Source, SourceName};
use foreread_sim::device::presets::Preset;
use foreread_sim::simulator::RunResult;
use std::sync::Arc;

/// Threads that sleep, at most.
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

    #[cfg(feature = "disk-cache")]
    fn open_cached(&self, text: &str) -> Result<Box<dyn Target>, CompareError> {
        let cache = LiveDiskCache::parse(text)?;
        let mut model = SleepingModel::new(self.0);
        cache.describe(&mut model.about);
        model.disk_cache = Some(cache);
        Ok(Box::new(model))
    }
}

struct SleepingModel {
    preset: &'static Preset,
    about: Description,
    #[cfg(feature = "disk-cache")]
    disk_cache: Option<LiveDiskCache>,
}

impl SleepingModel {
    fn new(preset: &'static Preset) -> SleepingModel {
        let name = format!("model-live:{}", preset.name);
        let about = format!("{}; it really sleeps", preset.summary);
        let about = Description::new(name, about, preset.capacity_bytes, Defaults::MODEL_LIVE);
        SleepingModel {
            preset,
            about,
            #[cfg(feature = "disk-cache")]
            disk_cache: None,
        }
    }

    /// It is as large as the workload's file.
    fn source(&self, run: &Run<'_>) -> Arc<dyn Source> {
        let size = run.workload.files[0];
        Arc::new(live::ModelLive::new(self.preset, size, run.seed))
    }

    /// It has the limits that a simulated run has, with a thread for each readahead in flight.
    fn read(
        &self,
        source: Arc<dyn Source>,
        policy: OnPage<'_>,
        run: &Run<'_>,
    ) -> Result<RunResult, CompareError> {
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

impl Target for SleepingModel {
    fn describe(&self) -> &Description {
        &self.about
    }

    fn run(&self, policy: OnPage<'_>, run: &Run<'_>) -> Result<RunResult, CompareError> {
        self.read(self.source(run), policy, run)
    }

    #[cfg(feature = "disk-cache")]
    fn run_cached(
        &self,
        policy: OnPage<'_>,
        run: &Run<'_>,
    ) -> Result<[CachedRun; 2], CompareError> {
        let cache = self
            .disk_cache
            .as_ref()
            .expect("a cache on disk was opened");
        cache.run(|| self.source(run), |source| self.read(source, policy, run))
    }
}
