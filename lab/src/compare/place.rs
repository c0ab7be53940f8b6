//! Where a comparison reads: a file, a scratch file, any other source, a model; and what follows from that.
//!
//! Never: leaves a scratch file behind. Its name is gone before the first byte is written; it lives as long as the
//! descriptor, and `/proc/self/fd` is the way to it.

use super::{
    CompareError, FILE_RUNS, MODEL_RUNS, Plan, SCRATCH_BYTES, SCRATCH_RUNS, SCRATCH_SPAN_BYTES, SPAN_BYTES,
    SUITE_MODELS, SUITE_RUNS, Where,
};
use crate::device::custom;
use crate::device::presets::Preset;
use crate::live::{self, LiveError};
use crate::report::Progress;
use crate::workload::Workload;
use foreread::OpenError;
use foreread::source::{self, Source, SourceName};
use foreread_core::policy::{PolicyDraft, PolicySpec};
use std::path::PathBuf;
use std::sync::Arc;

/// A place, looked at and found fit.
pub enum Place {
    /// A device model.
    Model(&'static Preset),
    /// A file or block device.
    File(OnFile),
    /// Any other source of the engine.
    Source(OnSource),
}

/// What is known of a source that is no file.
pub struct OnSource {
    name: SourceName,
    size: u64,
    about: String,
    smallest_page: u64,
    notes: Vec<String>,
    opener: Opener,
}

/// How each run comes to its source.
enum Opener {
    /// One connection for all of them: what is behind it has caches of its own anyway.
    Shared(Arc<dyn Source>),
    /// A new device for each, as the simulator has one.
    Model(&'static Preset),
}

/// What is known of a file to read.
pub struct OnFile {
    /// How to open it.
    pub path: PathBuf,
    /// How to show it.
    name: String,
    size: u64,
    about: String,
    /// Smallest cache page that direct I/O on it can serve.
    smallest_page: u64,
    /// The device's own `read_ahead_kb`, in bytes.
    readahead: Option<u64>,
    scratch: Option<live::Scratch>,
    notes: Vec<String>,
}

/// The places of a plan. Where it names none, a scratch file is among them if `scratch`.
pub fn all(plan: &Plan, scratch: bool, progress: &mut dyn Progress) -> Result<Vec<Place>, CompareError> {
    match &plan.on {
        Some(Where::Model(name)) => Ok(vec![model(name)?]),
        Some(Where::Preset(preset)) => Ok(vec![Place::Model(preset)]),
        Some(Where::File(path)) => Ok(vec![Place::File(OnFile::open(path.clone(), path.display().to_string(), None)?)]),
        Some(Where::Source(name)) => Ok(vec![Place::Source(OnSource::open(name)?)]),
        Some(Where::ModelLive(preset)) => Ok(vec![Place::Source(OnSource::model(preset))]),
        None if !scratch => SUITE_MODELS.iter().map(|name| model(name)).collect(),
        None => {
            let bytes = plan.size_bytes.unwrap_or(SCRATCH_BYTES);
            progress.stage("writing a scratch file");
            let scratch = live::Scratch::make(bytes, &mut |done| progress.step(done, bytes))?;
            let file = OnFile::open(scratch.path(), "scratch".to_string(), Some(scratch))?;
            let models = SUITE_MODELS.iter().map(|name| model(name));
            std::iter::once(Ok(Place::File(file))).chain(models).collect()
        }
    }
}

fn model(name: &str) -> Result<Place, CompareError> {
    custom::find(name).map(Place::Model).map_err(CompareError::from)
}

impl OnFile {
    fn open(path: PathBuf, name: String, scratch: Option<live::Scratch>) -> Result<OnFile, LiveError> {
        let look = live::look(&path)?;
        let where_ = scratch.as_ref().map_or_else(String::new, |s| format!("in {}, ", s.dir().display()));
        let readahead = look.readahead;
        let kernel = readahead.map_or("read_ahead_kb unknown".to_string(), |b| format!("read_ahead_kb {}", b / 1024));
        let mut notes = look.notes;
        if readahead.is_none() {
            notes.push("The device's read_ahead_kb could not be read; linux-* rows use their default".to_string());
        }
        Ok(OnFile {
            name: format!("file:{name}"),
            size: look.size,
            about: format!("{where_}{}, {kernel}", look.about),
            smallest_page: look.smallest_page,
            path,
            readahead,
            scratch,
            notes,
        })
    }
}

impl OnSource {
    fn open(name: &SourceName) -> Result<OnSource, LiveError> {
        let source = source::open(name).map_err(OpenError::from)?;
        let notes = vec![format!(
            "What {} keeps in caches of its own stays there from run to run: the rows take turns, so all profit alike",
            source.describe()
        )];
        Ok(OnSource {
            name: name.clone(),
            size: source.size(),
            about: source.describe(),
            smallest_page: u64::from(source.alignment().offset).max(512),
            notes,
            opener: Opener::Shared(source),
        })
    }

    fn model(preset: &'static Preset) -> OnSource {
        OnSource {
            name: SourceName::from(&format!("model-live:{}", preset.name)),
            size: preset.capacity_bytes,
            about: format!("{}; it really sleeps", preset.summary),
            smallest_page: 512,
            notes: Vec::new(),
            opener: Opener::Model(preset),
        }
    }

    /// The source of the run with this seed. A model's is as large as the workload's file, as in the simulator.
    pub fn source(&self, seed: u64, workload: &Workload) -> Arc<dyn Source> {
        match &self.opener {
            Opener::Shared(source) => Arc::clone(source),
            Opener::Model(preset) => Arc::new(live::ModelLive::new(preset, workload.files[0], seed)),
        }
    }

    /// Its name, if it is an RBD image.
    #[cfg(feature = "rbd")]
    pub fn image(&self) -> Option<&SourceName> {
        Some(&self.name).filter(|name| name.scheme() == "rbd")
    }

    /// The model that stands behind it.
    pub fn preset(&self) -> Option<&'static Preset> {
        if let Opener::Model(preset) = self.opener { Some(preset) } else { None }
    }
}

impl Place {
    /// In the notation of `--on`.
    pub fn name(&self) -> String {
        match self {
            Place::Model(preset) => format!("model:{}", preset.name),
            Place::File(file) => file.name.clone(),
            Place::Source(source) => source.name.to_string(),
        }
    }

    pub fn about(&self) -> String {
        match self {
            Place::Model(preset) => preset.summary.to_string(),
            Place::File(file) => file.about.clone(),
            Place::Source(source) => source.about.clone(),
        }
    }

    pub fn notes(&self) -> Vec<String> {
        match self {
            Place::Model(preset) if !preset.calibrated => {
                vec!["This model is not calibrated: read the shape, not the figures".to_string()]
            }
            Place::Model(_) => Vec::new(),
            Place::File(file) => file.notes.clone(),
            Place::Source(source) => source.notes.clone(),
        }
    }

    pub fn path(&self) -> Option<&PathBuf> {
        match self {
            Place::Model(_) | Place::Source(_) => None,
            Place::File(file) => Some(&file.path),
        }
    }

    pub fn runs(&self, plan: &Plan) -> u32 {
        let usual = match self {
            Place::Model(_) if plan.on.is_none() => SUITE_RUNS,
            Place::Model(_) => MODEL_RUNS,
            Place::File(file) if file.scratch.is_some() => SCRATCH_RUNS,
            Place::File(_) | Place::Source(_) => FILE_RUNS,
        };
        plan.runs.unwrap_or(usual)
    }

    /// Bytes that a workload spans which needs `least`: what was asked for, or what is usual here, but no more than
    /// there is.
    pub fn size(&self, plan: &Plan, least: u64) -> u64 {
        let (holds, usual) = match self {
            Place::Model(preset) => (preset.capacity_bytes, SPAN_BYTES.max(least)),
            Place::File(file) if file.scratch.is_some() => (file.size, SCRATCH_SPAN_BYTES.max(least)),
            Place::File(file) => (file.size, SPAN_BYTES.max(least)),
            Place::Source(source) => (source.size, SPAN_BYTES.max(least)),
        };
        plan.size_bytes.unwrap_or(usual).min(holds)
    }

    pub fn is_scratch(&self) -> bool {
        matches!(self, Place::File(OnFile { scratch: Some(_), .. }))
    }

    pub fn smallest_page(&self) -> u64 {
        match self {
            Place::Model(_) => 512,
            Place::File(file) => file.smallest_page,
            Place::Source(source) => source.smallest_page,
        }
    }

    /// How many bytes it holds.
    pub fn capacity(&self) -> u64 {
        match self {
            Place::Model(preset) => preset.capacity_bytes,
            Place::File(file) => file.size,
            Place::Source(source) => source.size,
        }
    }

    /// For a note.
    pub fn capacity_in_words(&self) -> String {
        format!("{} holds {} bytes", self.name(), self.capacity())
    }

    /// A policy with all its values: `linux-*` without a `max` of its own gets the device's, and what goes by the
    /// capacity goes by that of this place.
    pub fn ready(&self, draft: PolicyDraft) -> Result<PolicySpec, CompareError> {
        let draft = match self {
            Place::File(OnFile { readahead: Some(bytes), .. }) if draft.info.name.starts_with("linux-") => {
                draft.with_default("max", *bytes)
            }
            _ => draft,
        };
        draft.ready(Some(self.capacity())).map_err(CompareError::Policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_spans_what_it_needs_if_there_is_so_much() {
        let file = |size| {
            let [name, about] = [String::new(), String::new()];
            let (path, notes) = (PathBuf::new(), Vec::new());
            let place = OnFile { path, name, size, about, smallest_page: 512, readahead: None, scratch: None, notes };
            Place::File(place)
        };
        let model = model("rbd").expect("a preset");
        let (plan, least) = (Plan::default(), 5 << 30);
        for place in [&file(8 << 30), &model] {
            assert_eq!((place.size(&plan, 1), place.size(&plan, least)), (SPAN_BYTES, least));
        }
        assert_eq!(file(2 << 30).size(&plan, least), 2 << 30);
        let asked = Plan { size_bytes: Some(6 << 30), ..Plan::default() };
        assert_eq!(model.size(&asked, least), 6 << 30);
    }
}
