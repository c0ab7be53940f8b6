//! Where a comparison reads: a file, a scratch file, any other source, a model; and what follows from that.
//!
//! Never: leaves a scratch file behind. Its name is gone before the first byte is written; it lives as long as the
//! descriptor, and `/proc/self/fd` is the way to it.

use super::{
    CompareError, CompareOn, ComparePlan, FILE_RUNS, MIN_REMOTE_SPAN_BYTES, MODEL_RUNS,
    REMOTE_RUN_SECONDS, REMOTE_SECONDS, Reads, SCRATCH_BYTES, SCRATCH_RUNS, SCRATCH_SECONDS,
    SCRATCH_SPAN_BYTES, SPAN_BYTES, SUITE_MODELS, SUITE_RUNS,
};
use crate::live::{self, LiveError, Pace};
use foreread::source::{self, Defaults, Source, SourceName};
use foreread::{OpenError, Readahead, Storage};
use foreread_core::policy::{PolicyDraft, PolicySpec};
use foreread_report::progress::Progress;
use foreread_sim::device::custom;
use foreread_sim::device::presets::Preset;
use foreread_sim::workload::Workload;
use std::path::PathBuf;
use std::sync::Arc;

/// A place, looked at and found fit.
pub enum OpenTarget {
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
    defaults: Defaults,
    /// How long a read takes there; nothing for a model, which is as fast as it says.
    pace: Option<Pace>,
}

/// How each run comes to its source.
enum Opener {
    /// One connection for all of them: the storage behind it has its own caches anyway.
    Shared(Arc<dyn Source>),
    /// A new device for each, as the simulator has one.
    Model(&'static Preset),
}

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
pub fn all(
    plan: &ComparePlan,
    scratch: bool,
    progress: &mut dyn Progress,
) -> Result<Vec<OpenTarget>, CompareError> {
    match &plan.on {
        Some(CompareOn::Model(name)) => Ok(vec![model(name)?]),
        Some(CompareOn::Preset(preset)) => Ok(vec![OpenTarget::Model(preset)]),
        Some(CompareOn::File(path)) => Ok(vec![OpenTarget::File(OnFile::open(
            path.clone(),
            path.display().to_string(),
            None,
        )?)]),
        Some(CompareOn::Source(name)) => Ok(vec![OpenTarget::Source(OnSource::open(name)?)]),
        Some(CompareOn::ModelLive(preset)) => Ok(vec![OpenTarget::Source(OnSource::model(preset))]),
        None if !scratch => SUITE_MODELS.iter().map(|name| model(name)).collect(),
        None => {
            let bytes = plan.size_bytes.unwrap_or(SCRATCH_BYTES);
            progress.stage("writing a scratch file");
            let scratch = live::Scratch::make(bytes, &mut |done| progress.step(done, bytes))?;
            let file = OnFile::open(scratch.path(), "scratch".to_string(), Some(scratch))?;
            let models = SUITE_MODELS.iter().map(|name| model(name));
            std::iter::once(Ok(OpenTarget::File(file)))
                .chain(models)
                .collect()
        }
    }
}

fn model(name: &str) -> Result<OpenTarget, CompareError> {
    custom::find(name)
        .map(OpenTarget::Model)
        .map_err(CompareError::from)
}

impl OnFile {
    fn open(
        path: PathBuf,
        name: String,
        scratch: Option<live::Scratch>,
    ) -> Result<OnFile, LiveError> {
        let look = live::look(&path)?;
        let where_ = scratch
            .as_ref()
            .map_or_else(String::new, |s| format!("in {}, ", s.dir().display()));
        let readahead = look.readahead;
        let kernel = readahead.map_or("read_ahead_kb unknown".to_string(), |b| {
            format!("read_ahead_kb {}", b / 1024)
        });
        let mut notes = look.notes;
        if readahead.is_none() {
            notes.push(
                "The device's read_ahead_kb could not be read; linux-* rows use their default"
                    .to_string(),
            );
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
        Ok(OnSource::of(
            name.clone(),
            source::open(name).map_err(OpenError::from)?,
        ))
    }

    fn of(name: SourceName, source: Arc<dyn Source>) -> OnSource {
        let notes = vec![format!(
            "{} has its own caches, which stay warm from run to run; the policies take turns, so all profit alike",
            source.describe()
        )];
        OnSource {
            name,
            size: source.size(),
            about: source.describe(),
            smallest_page: u64::from(source.alignment().offset).max(512),
            notes,
            defaults: source.defaults(),
            pace: Pace::of(&*source),
            opener: Opener::Shared(source),
        }
    }

    fn model(preset: &'static Preset) -> OnSource {
        OnSource {
            name: SourceName::from(&format!("model-live:{}", preset.name)),
            size: preset.capacity_bytes,
            about: format!("{}; it really sleeps", preset.summary),
            smallest_page: 512,
            notes: Vec::new(),
            opener: Opener::Model(preset),
            defaults: Defaults::MODEL_LIVE,
            pace: None,
        }
    }

    /// The source of the run with this seed. A model's is as large as the workload's file, as in the simulator.
    pub fn source(&self, seed: u64, workload: &Workload) -> Arc<dyn Source> {
        match &self.opener {
            Opener::Shared(source) => Arc::clone(source),
            Opener::Model(preset) => {
                Arc::new(live::ModelLive::new(preset, workload.files[0], seed))
            }
        }
    }

    /// Its name, if it is an RBD image.
    #[cfg(feature = "rbd")]
    pub fn image(&self) -> Option<&SourceName> {
        Some(&self.name).filter(|name| name.scheme() == "rbd")
    }

    /// The model behind it.
    pub fn preset(&self) -> Option<&'static Preset> {
        if let Opener::Model(preset) = self.opener {
            Some(preset)
        } else {
            None
        }
    }
}

impl OpenTarget {
    /// In the notation of `--on`.
    pub fn name(&self) -> String {
        match self {
            OpenTarget::Model(preset) => format!("model:{}", preset.name),
            OpenTarget::File(file) => file.name.clone(),
            OpenTarget::Source(source) => source.name.to_string(),
        }
    }

    pub fn about(&self) -> String {
        match self {
            OpenTarget::Model(preset) => preset.summary.to_string(),
            OpenTarget::File(file) => file.about.clone(),
            OpenTarget::Source(source) => source.about.clone(),
        }
    }

    pub fn notes(&self) -> Vec<String> {
        match self {
            OpenTarget::Model(preset) if !preset.calibrated => {
                vec![
                    "Generic model, not your storage: trust the order, not the seconds".to_string(),
                ]
            }
            OpenTarget::Model(_) => Vec::new(),
            OpenTarget::File(file) => file.notes.clone(),
            OpenTarget::Source(source) => source.notes.clone(),
        }
    }

    pub fn path(&self) -> Option<&PathBuf> {
        match self {
            OpenTarget::Model(_) | OpenTarget::Source(_) => None,
            OpenTarget::File(file) => Some(&file.path),
        }
    }

    pub fn runs(&self, plan: &ComparePlan) -> u32 {
        let usual = match self {
            OpenTarget::Model(_) if plan.on.is_none() => SUITE_RUNS,
            OpenTarget::Model(_) => MODEL_RUNS,
            OpenTarget::File(file) if file.scratch.is_some() => SCRATCH_RUNS,
            OpenTarget::File(_) | OpenTarget::Source(_) => FILE_RUNS,
        };
        plan.runs.unwrap_or(usual)
    }

    /// Bytes that a workload spans which needs `least`: what was asked for, or what is usual here, but no more than
    /// there is.
    pub fn size(&self, plan: &ComparePlan, least: u64) -> u64 {
        let (holds, usual) = match self {
            OpenTarget::Model(preset) => (preset.capacity_bytes, SPAN_BYTES.max(least)),
            OpenTarget::File(file) if file.scratch.is_some() => {
                (file.size, SCRATCH_SPAN_BYTES.max(least))
            }
            OpenTarget::File(file) => (file.size, SPAN_BYTES.max(least)),
            OpenTarget::Source(source) => (source.size, SPAN_BYTES.max(least)),
        };
        plan.size_bytes.unwrap_or(usual).min(holds)
    }

    /// The same for a workload of which only a part can be read in time: over a slow source it spans less, halved until
    /// a run without readahead takes [`REMOTE_RUN_SECONDS`]. A size that was asked for is kept.
    pub fn span(&self, plan: &ComparePlan, reads: &Reads) -> u64 {
        let mut size = self.size(plan, reads.least_bytes());
        let (
            OpenTarget::Source(OnSource {
                pace: Some(pace), ..
            }),
            None,
        ) = (self, plan.size_bytes)
        else {
            return size;
        };
        let slow = |size| {
            let workload = reads.build(self, size, plan.seed);
            workload
                .is_ok_and(|workload| pace.run_ns(&workload) > REMOTE_RUN_SECONDS * 1_000_000_000)
        };
        while size > MIN_REMOTE_SPAN_BYTES && slow(size) {
            size /= 2;
        }
        size
    }

    /// The time of a table, where its runs may be fewer than usual.
    pub fn seconds(&self, plan: &ComparePlan) -> Option<u64> {
        match self {
            OpenTarget::File(OnFile {
                scratch: Some(_), ..
            }) => Some(SCRATCH_SECONDS),
            OpenTarget::Source(OnSource { pace: Some(_), .. }) if plan.runs.is_none() => {
                Some(REMOTE_SECONDS)
            }
            _ => None,
        }
    }

    pub fn smallest_page(&self) -> u64 {
        match self {
            OpenTarget::Model(_) => 512,
            OpenTarget::File(file) => file.smallest_page,
            OpenTarget::Source(source) => source.smallest_page,
        }
    }

    /// How many bytes it holds.
    pub fn capacity(&self) -> u64 {
        match self {
            OpenTarget::Model(preset) => preset.capacity_bytes,
            OpenTarget::File(file) => file.size,
            OpenTarget::Source(source) => source.size,
        }
    }

    /// For a note.
    pub fn capacity_in_words(&self) -> String {
        format!("{} holds {} bytes", self.name(), self.capacity())
    }

    /// A policy with what is set for this machine. Not on a model: there each policy has its published values.
    pub fn configured(
        &self,
        site: &[Readahead],
        draft: PolicyDraft,
    ) -> Result<PolicyDraft, CompareError> {
        let site = if matches!(self, OpenTarget::Model(_)) {
            &[]
        } else {
            site
        };
        Readahead::apply(site, draft, Some(self.capacity())).map_err(CompareError::Policy)
    }

    /// A policy with all its values: what is left open is settled as the engine does it, so that what is measured is what
    /// `serve` and `mount` do. A model has no kind of storage; there each policy has its published values.
    pub fn ready(&self, draft: PolicyDraft, cache_bytes: u64) -> Result<PolicySpec, CompareError> {
        let (readahead_bytes, defaults) = match self {
            OpenTarget::Model(_) => (None, Defaults::MODEL_LIVE),
            OpenTarget::File(file) => (file.readahead, Defaults::FILE),
            OpenTarget::Source(source) => (None, source.defaults),
        };
        let storage = Storage {
            readahead_bytes,
            size: Some(self.capacity()),
            defaults,
        };
        storage
            .settle(draft, cache_bytes)
            .map_err(CompareError::Policy)
    }

    /// What a policy is here, if that is another than published.
    pub fn note(&self, spec: &PolicySpec) -> Option<String> {
        let OpenTarget::Source(source) = self else {
            return None;
        };
        let published = foreread_history::parse_spec(&spec.to_string()).ok()?;
        let kind = source.defaults.kind;
        (published.values != spec.values)
            .then(|| format!("{spec} is {} here, the default for {kind}", spec.readable()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreread::source::SourceError;
    use foreread::{Largest, Options, Reader};
    use std::io::IoSliceMut;

    #[test]
    fn a_workload_spans_what_it_needs_if_there_is_so_much() {
        let file = |size| {
            let [name, about] = [String::new(), String::new()];
            let (path, notes) = (PathBuf::new(), Vec::new());
            let place = OnFile {
                path,
                name,
                size,
                about,
                smallest_page: 512,
                readahead: None,
                scratch: None,
                notes,
            };
            OpenTarget::File(place)
        };
        let model = model("rbd").expect("a preset");
        let (plan, least) = (ComparePlan::default(), 5 << 30);
        for place in [&file(8 << 30), &model] {
            assert_eq!(
                (place.size(&plan, 1), place.size(&plan, least)),
                (SPAN_BYTES, least)
            );
        }
        assert_eq!(file(2 << 30).size(&plan, least), 2 << 30);
        let asked = ComparePlan {
            size_bytes: Some(6 << 30),
            ..ComparePlan::default()
        };
        assert_eq!(model.size(&asked, least), 6 << 30);
    }

    /// A source of a kind, whose bytes are of no matter.
    struct Far(Defaults);

    impl Source for Far {
        fn size(&self) -> u64 {
            4 << 30
        }

        fn read_at(&self, bufs: &mut [IoSliceMut<'_>], _: u64) -> Result<usize, SourceError> {
            Ok(bufs.iter().map(|buf| buf.len()).sum())
        }

        fn defaults(&self) -> Defaults {
            self.0
        }

        fn describe(&self) -> String {
            "far".to_string()
        }
    }

    /// A row of `compare --on` has the values that the engine takes when it serves the same source, and a note says them.
    #[test]
    fn what_is_measured_is_what_is_served() {
        for defaults in [
            Defaults::OBJECT,
            Defaults::NBD,
            Defaults::RBD,
            Defaults::FILE,
            Defaults::OBJECT.with_requests(7),
        ] {
            let source = Arc::new(Far(defaults));
            let place = OpenTarget::Source(OnSource::of(
                "far".into(),
                Arc::clone(&source) as Arc<dyn Source>,
            ));
            for (policy, cache_bytes) in [
                ("linux-6.18", 256 << 20),
                ("linux-3.12", 8 << 20),
                ("rbd-plain", 256 << 20),
            ] {
                let settled = |site: &[Readahead]| {
                    let draft = place
                        .configured(site, foreread_history::parse(policy).expect("one"))
                        .expect("it fits");
                    place.ready(draft, cache_bytes).expect("settled")
                };
                let site = vec![Readahead {
                    max: Largest::parse("96K+capacity").ok(),
                    ..Readahead::default()
                }];
                let (measured, set) = (settled(&[]), settled(&site));
                let draft = foreread_history::parse(policy).expect("one");
                let options = Options::default().policy(draft).cache_bytes(cache_bytes);
                let served = Reader::open(Arc::clone(&source), options.clone().readahead(site))
                    .expect("opened with settings");
                assert_eq!(
                    set.values,
                    served.policy().values,
                    "{policy} on {}, with settings",
                    defaults.kind
                );
                assert!(set.values.contains(&(96 << 10)), "{set}");
                let served = Reader::open(Arc::clone(&source), options).expect("opened");
                assert_eq!(
                    measured.values,
                    served.policy().values,
                    "{policy} on {}",
                    defaults.kind
                );
                let says = place.note(&measured).unwrap_or_default();
                let other =
                    measured.values != foreread_history::parse_spec(policy).expect("one").values;
                assert_eq!(says.contains(&measured.readable()), other, "{says}");
            }
        }
    }

    /// Over 30 ms a read, three runs of three rows fit into a minute; what was asked for is kept.
    #[test]
    fn a_slow_source_is_read_in_part() {
        let mut on = OnSource::of("far".into(), Arc::new(Far(Defaults::OBJECT)));
        let named = |name: &str| Reads::Named(foreread_history::parse_workload(name).expect("one"));
        let plan = ComparePlan::default();
        for (read_ns, sequential, random) in [
            (1_000, SPAN_BYTES, SPAN_BYTES),
            (30_000_000, 16 << 20, 512 << 10),
            (10_000_000_000, 256 << 10, 256 << 10),
        ] {
            on.pace = Some(Pace { read_ns, kib_ns: 0 });
            let place = OpenTarget::Source(OnSource {
                notes: Vec::new(),
                ..on
            });
            assert_eq!(
                place.span(&plan, &named("sequential")),
                sequential,
                "{read_ns} ns a read"
            );
            assert_eq!(
                place.span(&plan, &named("random")),
                random,
                "{read_ns} ns a read"
            );
            assert_eq!(
                (place.seconds(&plan), place.runs(&plan)),
                (Some(REMOTE_SECONDS), FILE_RUNS)
            );
            let asked = ComparePlan {
                size_bytes: Some(1 << 30),
                runs: Some(20),
                ..ComparePlan::default()
            };
            assert_eq!(place.span(&asked, &named("sequential")), 1 << 30);
            assert_eq!((place.seconds(&asked), place.runs(&asked)), (None, 20));
            let boot = [named("boot-ide")];
            let (fit, left_out) = crate::compare::reads::fitting(&plan, &place, &boot);
            assert_eq!(
                (fit.len(), left_out.len()),
                if read_ns > 1_000 { (0, 1) } else { (1, 0) },
                "{left_out:?}"
            );
            let OpenTarget::Source(back) = place else {
                unreachable!("it is one")
            };
            on = back;
        }
    }
}
