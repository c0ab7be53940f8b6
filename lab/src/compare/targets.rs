//! The targets (storage) that a comparison can measure: a device model in virtual time, a source of the engine, or a file.
//! Each kind of target has a separate source file.
//!
//! ```text
//!   --on NAME ──parse──► TargetName ──open──► Target: describe ─► Case
//!                                                     rows, run ◄──┘
//! ```
//! To add a kind of target, add a file in `targets/` and a line to [`parse`]. All other code asks a target for its properties, never for its
//! kind. A scratch file has no name in the file system, and is deleted together with its target.

mod file;
mod model;
mod source;

pub use file::file;
pub use model::{model, preset};
pub use source::source;

use super::{
    CompareError, ComparePlan, FILE_RUNS, MIN_REMOTE_SPAN_BYTES, Reads, SCRATCH_BYTES,
    SCRATCH_MODEL, SPAN_BYTES,
};
use crate::live::{self, LiveError, Pace};
use crate::report::RowKind;
use foreread::Storage;
use foreread::eventlog::{ReplayError, check_log_among};
use foreread::source::{Defaults, Source, SourceName};
use foreread_core::policy::{PolicyDraft, PolicySpec};
use foreread_core::units::PageSize;
use foreread_history::{OPPONENTS, policies};
use foreread_os::failure::Failure;
use foreread_report::progress::Progress;
use foreread_sim::device::custom;
use foreread_sim::device::presets::Preset;
use foreread_sim::limits::bound::Bound;
use foreread_sim::simulator::{RunResult, Watch};
use foreread_sim::workload::Workload;
use std::fmt::Debug;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The component that does the readahead in a row: a policy of foreread, an imitation of another program, the kernel, librbd, or the
/// oracle.
pub enum ReadBy {
    /// A policy, or an imitation of another program.
    Policy(PolicySpec),
    /// A row that only this kind of target has: the kernel, librbd, the oracle.
    Own(RowKind),
}

impl ReadBy {
    pub fn kind(&self) -> RowKind {
        match self {
            ReadBy::Policy(spec) => RowKind::of(spec),
            ReadBy::Own(kind) => *kind,
        }
    }
}

/// A policy, and the size of the cache pages with which it runs.
#[derive(Clone, Copy)]
pub struct OnPage<'a> {
    pub policy: &'a PolicySpec,
    pub page: PageSize,
}

/// A planned row of a table.
pub struct Row {
    pub policy: String,
    pub read_by: ReadBy,
    pub page: PageSize,
}

impl Row {
    /// Returns the row's policy and the size of its cache pages, if foreread does the readahead in this row; `None` if another component
    /// does it.
    pub fn ours(&self) -> Option<OnPage<'_>> {
        let ReadBy::Policy(policy) = &self.read_by else {
            return None;
        };
        let page = self.page;
        Some(OnPage { policy, page })
    }
}

/// A target (storage to measure) that the user gave and that is not open yet.
pub trait TargetName: Debug + Send + Sync {
    /// The name for error messages.
    fn shown(&self) -> String;

    /// The path of a file or block device.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// The device model, if the target is one.
    fn preset(&self) -> Option<&'static Preset> {
        None
    }

    /// Whether its time is virtual.
    fn is_simulated(&self) -> bool {
        self.preset().is_some()
    }

    fn can_be_probed(&self) -> bool {
        self.path().is_some() || self.is_simulated()
    }

    fn open(&self) -> Result<Box<dyn Target>, CompareError>;
}

pub type CompareOn = Arc<dyn TargetName>;

/// Parses the name of a target and, if it is a file, checks that the file can be read, so that a wrong name is refused
/// before the measurement.
/// Returns an error if the model does not exist, or if the file cannot be read.
pub fn parse(name: &SourceName) -> Result<CompareOn, Failure> {
    model::parse(name)
        .or_else(|| source::parse(name))
        .unwrap_or_else(|| file::parse(name))
}

/// The properties of an open target.
pub struct Description {
    /// The name in the notation of `--on`.
    pub name: String,
    pub about: String,
    pub notes: Vec<String>,
    pub capacity_bytes: u64,
    /// The smallest cache page that it can serve.
    pub smallest_page: u64,
    /// Whether its time is virtual: then this machine's memory, its settings and event logs do not matter.
    pub is_simulated: bool,
    /// Whether larger windows are tried on it if no policy was named.
    pub is_wide: bool,
    /// Default number of runs and of bytes that a workload spans.
    pub runs: u32,
    pub span_bytes: u64,
    /// How long a read takes, if that is long and only a part may be read.
    pub pace: Option<Pace>,
    /// The device's own `read_ahead_kb`, in bytes.
    pub readahead_bytes: Option<u64>,
    /// Whether `linux-6.18` places large folios, as the kernel does on a block device.
    pub has_folios: bool,
    /// The engine's defaults for this kind of storage.
    pub defaults: Defaults,
    /// Whether a note says which of them differ from the published values.
    pub notes_defaults: bool,
    /// Rows that only this kind of target has, each with its page size, and a note about them. A model's oracle is not among them.
    pub own: Vec<(&'static str, RowKind, u64)>,
    pub own_note: Option<&'static str>,
}

impl Description {
    fn new(name: String, about: String, capacity_bytes: u64, defaults: Defaults) -> Description {
        Description {
            name,
            about,
            notes: Vec::new(),
            capacity_bytes,
            smallest_page: 512,
            is_simulated: false,
            is_wide: true,
            runs: FILE_RUNS,
            span_bytes: SPAN_BYTES,
            pace: None,
            readahead_bytes: None,
            has_folios: false,
            defaults,
            notes_defaults: true,
            own: Vec::new(),
            own_note: None,
        }
    }

    /// Returns the number of bytes that a workload spans: the size that the user gave or, if there is none, the target's default, but at
    /// least `least`. The result never exceeds the capacity of the target.
    pub fn size(&self, plan: &ComparePlan, least: u64) -> u64 {
        let usual = self.span_bytes.max(least);
        plan.size_bytes.unwrap_or(usual).min(self.capacity_bytes)
    }

    /// Like [`Description::size`], but for a workload that can also be run on fewer bytes. On a slow source the number of bytes is halved
    /// until a run without readahead takes no longer than the table's time limit allows for a run. A size that the user gave is not
    /// changed.
    pub fn span(&self, plan: &ComparePlan, reads: &Reads) -> u64 {
        let mut size = self.size(plan, reads.least_bytes());
        while size > MIN_REMOTE_SPAN_BYTES && self.is_slow(plan, reads, size) {
            size /= 2;
        }
        size
    }

    /// Whether a run without readahead takes more than its share of the table's time, if no size was given.
    fn is_slow(&self, plan: &ComparePlan, reads: &Reads, size: u64) -> bool {
        let (Some(pace), None) = (&self.pace, plan.size_bytes) else {
            return false;
        };
        let workload = reads.build(self, size, plan.seed);
        workload.is_ok_and(|workload| pace.run_ns(&workload) > plan.run_ns())
    }

    /// For a workload with a parameter for the number of reads, reduces this number if the reads would take too long.
    /// The remaining reads are spread over the same range of offsets: in a smaller range, random reads would be unrealistically close
    /// together.
    pub fn shorter(&self, plan: &ComparePlan, reads: &Reads) -> Reads {
        let Reads::Named(choice) = reads else {
            return reads.clone();
        };
        let text = choice.to_string();
        let param = choice
            .info
            .params
            .iter()
            .position(|param| param.key == COUNT);
        let Some(param) = param.filter(|_| !text.contains("count=")) else {
            return reads.clone();
        };
        let size = self.size(plan, reads.least_bytes());
        let (mut count, mut fewer) = (choice.values[param], reads.clone());
        while count > MIN_COUNT && self.is_slow(plan, &fewer, size) {
            count /= 2;
            let sign = if text.contains(':') { ',' } else { ':' };
            let Ok(choice) =
                foreread_history::parse_workload(&format!("{text}{sign}{COUNT}={count}"))
            else {
                break;
            };
            fewer = Reads::Named(choice);
        }
        fewer
    }

    pub fn runs(&self, plan: &ComparePlan) -> u32 {
        plan.runs.unwrap_or(self.runs)
    }

    /// Returns the time limit of a table in milliseconds, or `None` if the table has no time limit.
    pub fn limit_ms(&self, plan: &ComparePlan) -> Option<u64> {
        let is_timed = self.pace.is_some() && plan.runs.is_none();
        is_timed.then(|| plan.table_ms())
    }

    /// Sets all parameters of a policy. Those that the user did not set get the engine's values, so that the policy behaves as in `serve`
    /// and `mount`; except that `linux-6.18` has large folios where the kernel has them, because it is compared with the kernel.
    pub fn ready(&self, draft: PolicyDraft, cache_bytes: u64) -> Result<PolicySpec, CompareError> {
        let storage = Storage {
            readahead_bytes: self.readahead_bytes,
            size: Some(self.capacity_bytes),
            defaults: self.defaults,
        };
        storage
            .settle(
                draft.with_default("folios", self.has_folios.into()),
                cache_bytes,
            )
            .map_err(CompareError::policy)
    }

    /// Returns a note for the table if the policy's default parameters on this target differ from the published parameters.
    pub fn note(&self, spec: &PolicySpec) -> Option<String> {
        let published = foreread_history::parse_spec(&spec.to_string()).ok()?;
        let kind = self.defaults.kind;
        (self.notes_defaults && published.values != spec.values)
            .then(|| format!("{spec} is {} here, the default for {kind}", spec.readable()))
    }
}

/// The parameters of one run of a row.
#[derive(Clone)]
pub struct Run<'a> {
    pub workload: &'a Workload,
    pub cache_bytes: u64,
    pub seed: u64,
    pub event_log: Option<PathBuf>,
    /// The lower bound of a run with this seed, if it is known.
    pub bound: Option<Bound>,
    /// What ends a run on real storage early.
    pub cut: live::Cut<'a>,
}

/// The parameter of workloads that are a number of reads, and the fewest reads that are useful.
const COUNT: &str = "count";
const MIN_COUNT: u64 = 32;

pub trait Target {
    fn describe(&self) -> &Description;

    fn run(&self, policy: OnPage<'_>, run: &Run<'_>) -> Result<RunResult, CompareError>;

    /// Runs one of [`Description::own`]. Returns `None` if it needs too much.
    fn run_own(&self, row: &Row, _run: &Run<'_>) -> Result<Option<RunResult>, CompareError> {
        unreachable!("there is no row {} here", row.policy)
    }

    /// The lower bound of a run, if it is known.
    fn bound(&self, _page: PageSize, _run: &Run<'_>) -> Option<Bound> {
        None
    }

    /// A run with an observer. A real run is not slowed by it: the observer gets the event log after the run.
    fn watch(
        &self,
        policy: OnPage<'_>,
        run: &Run<'_>,
        watch: &mut dyn Watch,
    ) -> Result<RunResult, CompareError> {
        let place = "creating an event log in the folder for temporary files (TMPDIR selects another folder)";
        // A file without a name disappears however this ends.
        let log = tempfile::tempfile().map_err(LiveError::io(place))?;
        let event_log = Some(foreread_os::open::descriptor_path(&log));
        let result = self.run(
            policy,
            &Run {
                event_log,
                ..run.clone()
            },
        )?;
        let replayed = check_log_among(
            BufReader::new(&log),
            &[&policies(), OPPONENTS],
            Some(&mut |event, notes| {
                watch.event(event);
                watch.notes(notes);
            }),
        );
        match replayed {
            Ok(_) => Ok(result),
            Err(ReplayError::Io { error, .. }) => {
                Err(LiveError::io("reading the event log again")(error).into())
            }
            Err(error) => {
                let what = format!("broken event log: {error}");
                Err(Failure::check(what, "", "please report it").into())
            }
        }
    }
}

/// Returns the targets of a plan. If the plan contains no target, the result is a scratch file if `scratch` is true, otherwise a device
/// model.
pub fn all(
    plan: &ComparePlan,
    scratch: bool,
    progress: &mut dyn Progress,
) -> Result<Vec<Box<dyn Target>>, CompareError> {
    if let Some(on) = &plan.on {
        return Ok(vec![on.open()?]);
    }
    if !scratch {
        return Ok(vec![Box::new(model::Model::new(custom::find(
            SCRATCH_MODEL,
        )?))]);
    }
    let bytes = plan.size_bytes.unwrap_or(SCRATCH_BYTES);
    progress.stage("writing a scratch file");
    let scratch = live::Scratch::make(bytes, &mut |done| progress.step(done, bytes))?;
    Ok(vec![Box::new(file::open_scratch(scratch)?)])
}

fn engine(
    source: Arc<dyn Source>,
    OnPage { policy, page }: OnPage<'_>,
    run: &Run<'_>,
) -> Result<RunResult, CompareError> {
    let setup = live::Setup {
        cut: run.cut,
        policy,
        cache_bytes: run.cache_bytes,
        page_bytes: page.bytes(),
        event_log: run.event_log.clone(),
    };
    Ok(live::engine(source, run.workload, &setup)?)
}

#[cfg(test)]
mod tests {
    use super::source::OnSource;
    use super::*;
    use foreread::source::SourceError;
    use foreread::{Options, Reader};
    use std::io::IoSliceMut;

    #[test]
    fn large_folios_are_those_of_the_kernel_unless_they_are_written() {
        for (has_folios, name, folios) in [
            (false, "linux-6.18", "folios=off"),
            (true, "linux-6.18", "folios=on"),
            (true, "linux-6.18:folios=off", "folios=off"),
        ] {
            let place = Description {
                has_folios,
                ..Description::new(String::new(), String::new(), 1 << 30, Defaults::FILE)
            };
            let draft = PolicyDraft::parse(name).expect("a policy");
            let spec = place.ready(draft, 1 << 30).expect("it fits");
            let whole = spec.readable();
            assert!(whole.contains(folios), "{whole}");
        }
    }

    #[test]
    fn a_workload_spans_what_it_needs_if_there_is_so_much() {
        let file = |size| Description::new(String::new(), String::new(), size, Defaults::FILE);
        let model = model("rbd")
            .and_then(|model| model.open())
            .expect("a preset");
        let model = model.describe();
        let (plan, least) = (ComparePlan::default(), 5 << 30);
        for place in [&file(8 << 30), model] {
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
            let target = OnSource::new("far".into(), Arc::clone(&source) as Arc<dyn Source>);
            let place = target.describe();
            for (policy, cache_bytes) in [
                ("linux-6.18", 256 << 20),
                ("linux-3.12", 8 << 20),
                ("rbd-plain", 256 << 20),
            ] {
                let draft = foreread_history::parse(policy).expect("one");
                let measured = place.ready(draft, cache_bytes).expect("settled");
                let draft = foreread_history::parse(policy).expect("one");
                let options = Options::default().policy(draft).cache_bytes(cache_bytes);
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

    /// Over 30 ms a read, three runs of six rows fit into 90 s; what was asked for is kept.
    #[test]
    fn a_slow_source_is_read_in_part() {
        let mut on = OnSource::new("far".into(), Arc::new(Far(Defaults::OBJECT)));
        let named = |name: &str| Reads::Named(foreread_history::parse_workload(name).expect("one"));
        let plan = ComparePlan {
            on: model("rbd").ok(),
            ..ComparePlan::default()
        };
        for (read_ns, sequential, random) in [
            (1_000, SPAN_BYTES, SPAN_BYTES),
            (30_000_000, 16 << 20, 512 << 10),
            (10_000_000_000, 256 << 10, 256 << 10),
        ] {
            on.about.pace = Some(Pace { read_ns, kib_ns: 0 });
            let place = on.describe();
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
                (place.limit_ms(&plan), place.runs(&plan)),
                (Some(90_000), FILE_RUNS)
            );
            let fewer = place.shorter(&plan, &named("random")).to_string();
            let wanted = match read_ns {
                1_000 => "random",
                30_000_000 => "random:count=128",
                _ => "random:count=32",
            };
            assert_eq!(fewer, wanted, "{read_ns} ns a read");
            for kept in ["random:count=4096", "sequential"] {
                assert_eq!(place.shorter(&plan, &named(kept)).to_string(), kept);
            }
            let asked = ComparePlan {
                size_bytes: Some(1 << 30),
                runs: Some(20),
                ..ComparePlan::default()
            };
            assert_eq!(place.span(&asked, &named("sequential")), 1 << 30);
            assert_eq!((place.limit_ms(&asked), place.runs(&asked)), (None, 20));
            let boot = [named("boot-ide")];
            let (fit, left_out) = crate::compare::reads::fitting(&plan, place, &boot);
            assert_eq!(
                (fit.len(), left_out.len()),
                if read_ns > 1_000 { (0, 1) } else { (1, 0) },
                "{left_out:?}"
            );
        }
    }
}
