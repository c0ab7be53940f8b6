//! `compare`: does the same reads under several policies, on a file or on a device model. So each run of a policy can be compared with
//! the same run of the other policies.
//!
//! Run `i` of every policy has the same requests and, on a model, the same random numbers. On a file, each round runs
//! every policy once and starts with a different policy, so that a short disturbance of the storage affects all
//! policies equally. This module only measures: the module `report` interprets the figures, and the commands print the results. A scratch
//! file has no name in the file system, so the kernel deletes it even if the process is killed.
//!
//! ```text
//!   plans ─► cases: (workload, place) ──► for each run, for each policy in turn ──► RunResult ──► Table
//!                                           Target::run: simulator::run, live::engine, live::kernel ...
//! ```

mod cache;
mod error;
mod reads;
mod targets;
pub mod vary;
pub(crate) mod watched;

use crate::live;
use crate::live::LiveError;
use crate::replay::{Mode, Replay};
use crate::report::row::NOTE_OF_PAGES;
use crate::report::{PolicyRuns, RowKind, SpanCut, Table};
pub use error::CompareError;
use foreread_core::policy::{DEFAULT, PolicyDraft, PolicySpec};
use foreread_core::units::PageSize;
use foreread_os::failure::Failure;
use foreread_os::output;
use foreread_report::number;
use foreread_report::progress::Progress;
use foreread_sim::limits;
use foreread_sim::limits::bound::Bound;
use foreread_sim::simulator::RunResult;
use foreread_sim::workload::Workload;
use reads::Reads;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
pub use targets::{CompareOn, file, model, parse, preset, source};
use targets::{Description, ReadBy, Row, Run, Target};

/// The parameters of a comparison. For values that the user did not set, this module chooses defaults.
#[derive(Clone, Debug, Default)]
pub struct ComparePlan {
    /// `NAME:key=value,...`; [`USUAL_WORKLOADS`] or [`SCRATCH_WORKLOADS`] if `None`.
    pub workload: Option<String>,
    /// A trace, instead of a workload.
    pub replay: Option<Arc<Replay>>,
    /// The target; a scratch file if `None`.
    pub on: Option<CompareOn>,
    /// Policies in the order of their rows; [`USUAL_POLICIES`] if empty. `none` is added if it is missing.
    pub policies: Vec<PolicyDraft>,
    /// Without a row of `none`: nothing is compared.
    pub alone: bool,
    /// Which tables get a row of the oracle.
    pub oracle: OracleRow,
    /// Runs of each policy; [`MODEL_RUNS`], [`FILE_RUNS`] or [`SCRATCH_RUNS`] if `None`.
    pub runs: Option<u32>,
    /// Size of the cache in bytes; the workload's own or [`CACHE_BYTES`] if `None`.
    pub cache_bytes: Option<u64>,
    /// Seed of the first run; run `i` has this plus `i`.
    pub seed: u64,
    /// Time in milliseconds for all tables on a named source together; [`NAMED_SECONDS`] if `None`. A given number of runs is always
    /// made, however long it takes.
    pub limit_ms: Option<u64>,
    /// Bytes that the workload spans; see [`SPAN_BYTES`].
    pub size_bytes: Option<u64>,
    /// Directory for the event log of every run on a file; it is created if missing.
    pub event_logs: Option<PathBuf>,
    /// Whether an event log may replace an existing file.
    pub replaces_logs: bool,
    pub site: Site,
    /// What `--vary` set, if the name of the workload does not say it: " with memory=1M".
    pub varied: String,
    /// If this is not 0, the comparison ends after the current run, with the results so far.
    pub stop: Arc<AtomicUsize>,
}

impl ComparePlan {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) != 0
    }

    /// Milliseconds for one table: the whole time, if it is the only one.
    fn table_ms(&self) -> u64 {
        let seconds = match self.on {
            Some(_) => NAMED_SECONDS,
            None => SCRATCH_SECONDS,
        };
        self.limit_ms.unwrap_or(seconds * 1000)
    }

    /// Nanoseconds that one run without readahead may take.
    fn run_ns(&self) -> u64 {
        self.table_ms().saturating_mul(1_000_000) / RUNS_OF_TABLE
    }
}

/// Which tables get a row for the oracle, that is, perfect foresight ([`foreread_sim::limits`]). A table of real storage never has a row
/// for the oracle, because the latencies of its reads are not known in advance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OracleRow {
    /// Tables on models, if the plan names no policies.
    #[default]
    Usual,
    OnModels,
    /// The user named the oracle: a plan with a file is refused.
    Asked,
}

/// Measures all tables of the plan.
/// If the plan cannot be carried out, nothing is measured.
pub fn run(
    plan: &ComparePlan,
    mut progress: &mut dyn Progress,
) -> Result<Vec<Table>, CompareError> {
    let mut tables = Vec::new();
    let plans = std::slice::from_ref(plan);
    run_each(plans, &mut progress, |_, table| tables.push(table))?;
    Ok(tables)
}

/// Measures the tables of several plans with the same target, such as those of [`vary::Axis::plans`], and passes each table to `each` as
/// soon as it is complete. If the plans are stopped, returns the names of the tables that were not started, such as "boot-ide on
/// model:rbd"; a table that was interrupted contains a note about it.
pub fn run_each<P: Progress>(
    plans: &[ComparePlan],
    progress: &mut P,
    mut each: impl FnMut(&mut P, Table),
) -> Result<Vec<String>, CompareError> {
    // Check the names first: a mistyped name must not cost a scratch file.
    let workloads = plans
        .iter()
        .map(reads::all)
        .collect::<Result<Vec<_>, _>>()?;
    let Some(first) = plans.first() else {
        return Ok(Vec::new());
    };
    possible(first)?;
    let no_file = reads::no_file(first, &workloads[0]);
    let places = targets::all(first, no_file.is_none(), progress)?;
    let tables = (places.len() * workloads.iter().map(Vec::len).sum::<usize>()).max(1) as u64;
    let limited = |plan: &ComparePlan| ComparePlan {
        limit_ms: Some(plan.table_ms() / tables),
        ..plan.clone()
    };
    let plans: Vec<ComparePlan> = plans.iter().map(limited).collect();
    let mut shorter = Vec::new();
    for place in &places {
        for (plan, workloads) in plans.iter().zip(&workloads) {
            let reads = workloads.iter();
            let reads = reads.map(|reads| place.describe().shorter(plan, reads));
            shorter.push((place, plan, reads.collect::<Vec<Reads>>()));
        }
    }
    let mut cases = Vec::new();
    for (place, plan, workloads) in &shorter {
        let (fit, mut left_out) = reads::fitting(plan, place.describe(), workloads);
        left_out.extend(no_file.clone());
        for workload in fit {
            cases.push(Case::new(
                plan,
                &***place,
                workload,
                &left_out,
                wide(plan, place.describe()),
            )?);
        }
    }
    make_log_folder(first, &places)?;
    let mut missing = Vec::new();
    for case in cases {
        if case.plan.is_stopped() {
            missing.push(format!("{} on {}", case.reads_name(), case.place.name));
            continue;
        }
        let table = case.run(progress)?;
        each(progress, table);
    }
    Ok(missing)
}

/// Refuses, before a scratch file is made, what only a model can do on any other target.
fn possible(plan: &ComparePlan) -> Result<(), CompareError> {
    let on = plan.on.as_ref();
    let is_simulated = on.is_some_and(|on| on.is_simulated());
    if plan.oracle == OracleRow::Asked && !is_simulated {
        let place = on.map_or_else(|| "the scratch file".to_string(), |on| on.shown());
        let what = format!(
            "the oracle needs a model, because the behaviour of {place} is not known beforehand"
        );
        return Err(Failure::input(what, "", "add --on model:NAME").into());
    }
    Ok(())
}

/// Why a replay in mode open has no oracle.
const ORACLE_IS_OF_TIME: &str = "The oracle was left out: it shows the shortest total time, but in this mode each read starts at its recorded time";

/// A planned table.
struct Case<'a> {
    plan: &'a ComparePlan,
    target: &'a dyn Target,
    place: &'a Description,
    workload: &'a Reads,
    notes: Vec<String>,
    rows: Vec<Row>,
    runs: u32,
    cache_bytes: u64,
    size: u64,
    /// The lower bound of each run; only a model has it.
    bounds: Vec<Bound>,
}

impl<'a> Case<'a> {
    fn new(
        plan: &'a ComparePlan,
        target: &'a dyn Target,
        workload: &'a Reads,
        left_out: &[String],
        more: Vec<PolicyDraft>,
    ) -> Result<Case<'a>, CompareError> {
        let place = target.describe();
        let cache_bytes = plan
            .cache_bytes
            .or(workload.cache_bytes())
            .unwrap_or(CACHE_BYTES);
        let size = place
            .span(plan, workload)
            .max(workload.least_bytes().min(place.capacity_bytes));
        let mut notes = left_out.to_vec();
        notes.extend(plan.site.notes.clone());
        notes.extend(workload.notes(place));
        if plan.size_bytes.is_some_and(|asked| asked > size) {
            let size = number::size_b(size);
            notes.push(format!(
                "{} has only {size}: --size is reduced to that",
                place.name
            ));
        }
        let runs = place.runs(plan);
        let rows = Vec::new();
        let mut case = Case {
            plan,
            target,
            place,
            workload,
            notes,
            rows,
            runs,
            cache_bytes,
            size,
            bounds: Vec::new(),
        };
        let natural = case.workload(0)?.page_bytes;
        for draft in chosen(plan).into_iter().chain(more) {
            let by_capacity = draft.wants_capacity();
            let spec = place.ready(draft, cache_bytes)?;
            case.notes
                .extend(place.note(&spec).filter(|_| !by_capacity));
            if by_capacity {
                case.notes.push(format!(
                    "{spec} is {} here: {} holds {} bytes",
                    spec.readable(),
                    place.name,
                    place.capacity_bytes
                ));
            }
            let page = case.page_for(&spec, natural)?;
            case.rows.push(Row {
                policy: spec.to_string(),
                read_by: ReadBy::Policy(spec),
                page,
            });
        }
        let unset = case.page_for(&PolicySpec::none(), natural)?;
        for &(policy, kind, page) in &place.own {
            let page = PageSize::new(page).unwrap_or(unset);
            case.add(policy, kind, page);
        }
        case.notes.extend(place.own_note.map(ToString::to_string));
        let wants_oracle = plan.oracle != OracleRow::Usual || plan.policies.is_empty();
        if place.is_simulated && wants_oracle {
            match workload.pace() {
                Some(pace) if pace.mode == Mode::Open => {
                    case.notes.push(ORACLE_IS_OF_TIME.to_string());
                }
                _ => case.add(limits::ORACLE, RowKind::Oracle, unset),
            }
        }
        if let Some(asked) = plan.cache_bytes {
            // librbd has its own cache.
            let ours = case.rows.iter();
            let ours = ours.filter(|row| row.read_by.kind() != RowKind::Librbd);
            cache::check(asked, place, ours.map(|row| row.page))?;
            if case.workload(0)?.touches() {
                let policies = case.rows.iter().filter_map(|row| row.ours());
                cache::check_windows(asked, policies.map(|ours| ours.policy.clone()))?;
            }
        }
        Ok(case)
    }

    fn add(&mut self, policy: &str, kind: RowKind, page: PageSize) {
        self.rows.push(Row {
            policy: policy.to_string(),
            read_by: ReadBy::Own(kind),
            page,
        });
    }

    fn workload(&self, run: u32) -> Result<Cow<'a, Workload>, CompareError> {
        let seed = self.plan.seed.wrapping_add(u64::from(run));
        self.workload.build(self.place, self.size, seed)
    }

    /// The page of a policy: what the policy needs, what the storage can serve, or what the workload prefers.
    fn page_for(&self, spec: &PolicySpec, natural: u64) -> Result<PageSize, CompareError> {
        let usual = natural.max(self.place.smallest_page);
        let page = spec.info.page_bytes.unwrap_or(usual);
        PageSize::new(page).ok_or_else(|| {
            let what = format!("{spec} cannot have a cache page of {page} bytes");
            Failure::input(what, "", "").into()
        })
    }

    /// The workload, and what `--vary` set beside it.
    fn reads_name(&self) -> String {
        format!("{}{}", self.workload, self.plan.varied)
    }

    fn run(mut self, progress: &mut dyn Progress) -> Result<Table, CompareError> {
        let name = self.reads_name();
        progress.stage(&format!("{name} on {}", self.place.name));
        let rows = self.rows.len();
        let total = u64::from(self.runs) * rows as u64;
        let mut results: Vec<Vec<RunResult>> = (0..rows).map(|_| Vec::new()).collect();
        let mut done = 0;
        let limit_ms = self.place.limit_ms(self.plan);
        let budget = limit_ms.map(live::Budget::milliseconds);
        let most_ms = limit_ms.map(|limit| limit / LIMITS_OF_RUN);
        let mut left_out = vec![false; rows];
        progress.step(done, total);
        'runs: for run in 0..self.runs {
            let is_over = budget.as_ref().is_some_and(|budget| {
                run >= MIN_RUNS && budget.is_too_short_for_more(run) || run > 0 && budget.is_over()
            });
            if is_over {
                break;
            }
            let workload = self.workload(run)?;
            let smallest = self.rows.iter().map(|r| r.page.bytes()).min().unwrap_or(1);
            let page = PageSize::new(smallest).unwrap_or(self.rows[0].page);
            let bound = self.target.bound(page, &self.nth_run(&workload, run));
            let bounds_before = self.bounds.len();
            self.bounds.extend(bound);
            for turn in 0..rows {
                // A Latin square: each row goes first, second, ... equally often.
                let at = (turn + run as usize) % rows;
                done += 1;
                if left_out[at] {
                    progress.step(done, total);
                    continue;
                }
                let most_until = most_ms
                    .filter(|_| run == 0)
                    .map(|most| live::Budget::milliseconds(most).end());
                let ends = budget.as_ref().map(live::Budget::end).into_iter();
                let until = ends.chain(most_until).min();
                let mut result = Err(CompareError::Live(LiveError::Cut));
                if !self.plan.is_stopped() {
                    result = self.run_once(&self.rows[at], &workload, run, until);
                }
                let policy = &self.rows[at].policy;
                match result {
                    Ok(result) => {
                        self.check(policy, result.as_ref())?;
                        results[at].extend(result);
                    }
                    Err(CompareError::Live(LiveError::Cut)) => {
                        let is_stopped = self.plan.is_stopped();
                        if is_stopped {
                            self.notes.push(interrupted(run, turn, rows, self.runs));
                        }
                        // Only whole rounds are pairs. Of the first round, keep the rows that were measured.
                        if run > 0 {
                            results
                                .iter_mut()
                                .for_each(|row| row.truncate(run as usize));
                            self.bounds.truncate(bounds_before);
                        }
                        if is_stopped || run > 0 {
                            break 'runs;
                        }
                        left_out[at] = true;
                        let why = match budget.as_ref().is_some_and(live::Budget::is_over) {
                            true => "the time was over".to_string(),
                            false => format!(
                                "a run takes more than {} s",
                                most_ms.unwrap_or_default() / 1000
                            ),
                        };
                        self.notes.push(format!(
                            "{policy} was left out: {why}; a larger --time measures it"
                        ));
                    }
                    Err(error) => return Err(error),
                }
                progress.step(done, total);
                if let Some(last) = results[at].last().filter(|_| !self.place.is_simulated) {
                    let took = number::span_s(last.time_s, None);
                    progress.found(&format!(
                        "{policy}: {took} s in run {} of {}",
                        run + 1,
                        self.runs
                    ));
                }
            }
        }
        Ok(self.table(results))
    }

    fn nth_run<'w>(&'w self, workload: &'w Workload, run: u32) -> Run<'w> {
        Run {
            workload,
            cache_bytes: self.cache_bytes,
            seed: self.plan.seed.wrapping_add(u64::from(run)),
            event_log: None,
            bound: self.bounds.last().copied(),
            cut: live::Cut {
                until: None,
                stop: &self.plan.stop,
            },
        }
    }

    /// Returns `None` for an oracle with too many reads.
    fn run_once(
        &self,
        row: &Row,
        workload: &Workload,
        run: u32,
        until: Option<Instant>,
    ) -> Result<Option<RunResult>, CompareError> {
        let mut one = self.nth_run(workload, run);
        one.cut.until = until;
        let Some(policy) = row.ours() else {
            return self.target.run_own(row, &one);
        };
        if let (Some(dir), false) = (&self.plan.event_logs, self.place.is_simulated) {
            let log = self.log_path(dir, &row.policy, run);
            let what = format!("making the event log {}", log.display());
            output::check(&log, self.plan.replaces_logs).map_err(live::LiveError::io(what))?;
            one.event_log = Some(log);
        }
        self.target.run(policy, &one).map(Some)
    }

    /// Refuses a run that is faster than possible.
    fn check(&self, policy: &str, result: Option<&RunResult>) -> Result<(), CompareError> {
        let Some((bound, result)) = self
            .bounds
            .last()
            .zip(result)
            .filter(|(bound, result)| result.time_s < bound.ns() as f64 / 1e9)
        else {
            return Ok(());
        };
        let (workload, place) = (self.workload, &self.place.name);
        let (got_ns, bound_ns) = ((result.time_s * 1e9).round() as u64, bound.ns());
        let what = format!(
            "broken model: {policy} read {workload} on {place} in {got_ns} ns, but the lower bound is {bound_ns} ns"
        );
        Err(Failure::check(what, "", "please report it").into())
    }

    /// A file name for the log of one run: each character except letters, digits, `.` and `-` becomes `_`.
    fn log_path(&self, dir: &Path, policy: &str, run: u32) -> PathBuf {
        let name = format!("{}-{policy}-{run}.log", self.reads_name());
        let plain = |c: char| {
            if c.is_ascii_alphanumeric() || ".-".contains(c) {
                c
            } else {
                '_'
            }
        };
        dir.join(name.chars().map(plain).collect::<String>())
    }

    /// How much the reads were shortened below the size of the source, so that a run without readahead ends in time.
    fn shortened(&self) -> Option<SpanCut> {
        let usual_bytes = self.place.size(self.plan, self.workload.least_bytes());
        let is_whole = self.workload.pace().is_some() || self.size >= usual_bytes;
        (!is_whole).then_some(SpanCut {
            span_bytes: self.size,
            usual_bytes,
        })
    }

    fn table(self, results: Vec<Vec<RunResult>>) -> Table {
        let (shortened, workload) = (self.shortened(), self.reads_name());
        let runs = results.iter().map(Vec::len).max().unwrap_or(0) as u32;
        let mut notes = self.place.notes.clone();
        notes.extend(self.notes);
        if self
            .rows
            .iter()
            .zip(&results)
            .any(|(row, runs)| row.read_by.kind().is_limit() && runs.is_empty())
            && !self.plan.is_stopped()
        {
            notes.push(format!(
                "The oracle was left out: it supports at most {} reads",
                limits::MAX_TOUCHES
            ));
        }
        let pages: Vec<u64> = self.rows.iter().map(|r| r.page.bytes()).collect();
        if pages.iter().any(|p| *p != pages[0]) {
            let list: Vec<String> = self
                .rows
                .iter()
                .map(|r| format!("{} {}", r.policy, r.page.bytes()))
                .collect();
            notes.push(format!("{NOTE_OF_PAGES}{}", list.join(", ")));
        }
        let rows = self.rows.into_iter().zip(results);
        let policies = rows.map(|(row, runs)| PolicyRuns {
            kind: row.read_by.kind(),
            policy: row.policy,
            runs,
        });
        Table {
            workload,
            source: self.place.name.clone(),
            source_about: self.place.about.clone(),
            runs,
            seed: self.plan.seed,
            cache_bytes: self.cache_bytes,
            page_bytes: pages[0],
            notes,
            bounds: self.bounds,
            pace: self.workload.pace(),
            policies: policies.collect(),
            shortened,
        }
    }
}

/// The note of an interrupted table.
fn interrupted(run: u32, turn: usize, rows: usize, runs: u32) -> String {
    match run {
        0 => format!("Interrupted: {turn} of {rows} rows were measured, each in a single run"),
        run => format!("Interrupted: {run} of {runs} runs of each row were completed"),
    }
}

#[derive(Clone, Debug, Default)]
pub struct Site {
    /// The policy that is used if none is named: it gets a row besides the usual ones.
    pub policy: Option<PolicyDraft>,
    /// Where these settings come from, a sentence each, for the notes of every table.
    pub notes: Vec<String>,
}

/// Creates the folder of event logs, if a run will write one.
fn make_log_folder(plan: &ComparePlan, targets: &[Box<dyn Target>]) -> Result<(), CompareError> {
    let live = targets.iter().any(|target| !target.describe().is_simulated);
    let Some(folder) = plan.event_logs.as_ref().filter(|_| live) else {
        return Ok(());
    };
    let failed = LiveError::io(format!(
        "creating the folder for event logs {}",
        folder.display()
    ));
    std::fs::create_dir_all(folder)
        .map_err(failed)
        .map_err(CompareError::from)
}

/// Default number of runs on a device model: these runs take little time, and an evaluation needs at least 20 seeds.
pub const MODEL_RUNS: u32 = 20;
/// Default number of runs on a file that the user gives: on real hardware, a comparison needs at least ten pairs of
/// runs.
pub const FILE_RUNS: u32 = 10;
/// Number of runs on the scratch file, which is measured if the user gives no source.
pub const SCRATCH_RUNS: u32 = 5;
/// Default time, in seconds, for all tables of a source that the user gives. Measuring a table ends when the table's part of this time is
/// used up, unless the user set the number of runs.
pub const NAMED_SECONDS: u64 = 90;
/// Assumed number of runs in a table: [`MIN_RUNS`] of six rows. A workload is shortened until a run without readahead takes at
/// most this part of the table's time.
const RUNS_OF_TABLE: u64 = 18;
/// Smallest span of a workload on such a source: in less, no readahead gets going.
const MIN_REMOTE_SPAN_BYTES: u64 = 256 << 10;
/// Like [`NAMED_SECONDS`], for the scratch file of a call without arguments; writing the file takes a few seconds
/// more.
const SCRATCH_SECONDS: u64 = 22;
/// The first run of a row may take this part (a third) of the time limit.
const LIMITS_OF_RUN: u64 = 3;
/// With fewer runs no interval has a meaning.
const MIN_RUNS: u32 = 3;
/// Default size of the cache: small enough for any machine, but larger than any readahead window.
pub const CACHE_BYTES: u64 = 256 << 20;
/// Default number of bytes that a workload spans on a device model; on a file, this number is the default maximum.
pub const SPAN_BYTES: u64 = 1 << 30;
/// Size of the scratch file: this is as much as the workload `boot-ide` needs.
pub const SCRATCH_BYTES: u64 = 1 << 30;
/// Number of bytes of the scratch file that a workload spans if it does not need more, because all workloads together
/// should take at most 30 seconds.
pub const SCRATCH_SPAN_BYTES: u64 = 128 << 20;
/// The default workloads: the common case, the case that readahead must not make slower, a case in which many policies fail, and the boot
/// of a machine. Running all workloads would take too long.
pub const USUAL_WORKLOADS: [&str; 4] = ["sequential", "random", "interleaved", "boot-ide"];
/// Like [`USUAL_WORKLOADS`], but for the scratch file, where all workloads together should take at most 30 seconds. The boot of a machine
/// alone would take that long, so it is left out.
pub const SCRATCH_WORKLOADS: [&str; 4] = ["sequential", "random", "interleaved", "list-of-archive"];
/// The model that replaces the scratch file if a workload cannot run on a file: a network volume with published figures.
pub const SCRATCH_MODEL: &str = "rbd";

/// The policies compared by default: foreread's default policy, and what users have without foreread (no readahead, the kernel's readahead
/// or librbd's). `--policy all` adds the historical policies. On a device model, the table also has a row for the oracle (perfect
/// foresight), which shows what is possible at best.
pub const USUAL_POLICIES: [&str; 4] = ["none", DEFAULT, "linux-6.18", "rbd-plain"];
/// The kernel's policy with windows that are larger than its default window. These policies are added to [`USUAL_POLICIES`] on a device
/// model and on a source over a network: a store with 20 ms latency and 100 MB/s on each of many connections needs megabytes in flight.
/// The policies in this list are not tried on the scratch file, because its 30 seconds are not enough for them.
pub const WIDE_POLICIES: [&str; 2] = ["linux-6.18:max=4M", "linux-6.18:max=64M"];

/// The larger windows to try if the user named no policy.
fn wide(plan: &ComparePlan, place: &Description) -> Vec<PolicyDraft> {
    let wanted = plan.policies.is_empty() && place.is_wide;
    let own = plan.site.policy.as_ref().map(ToString::to_string);
    WIDE_POLICIES
        .iter()
        .filter(|name| wanted && own.as_deref() != Some(**name))
        .filter_map(|name| PolicyDraft::parse(name).ok())
        .collect()
}

/// The policies of a plan, with `none` first if it is missing. A plan that names none gets the usual ones and the
/// policy that is set for this machine.
fn chosen(plan: &ComparePlan) -> Vec<PolicyDraft> {
    let usual = || {
        USUAL_POLICIES
            .iter()
            .filter_map(|name| PolicyDraft::parse(name).ok())
            .collect()
    };
    let mut named: Vec<PolicyDraft> = if plan.policies.is_empty() {
        usual()
    } else {
        plan.policies.clone()
    };
    if plan.policies.is_empty()
        && let Some(own) = plan
            .site
            .policy
            .as_ref()
            .filter(|own| named.iter().all(|p| p.to_string() != own.to_string()))
    {
        named.push(own.clone());
    }
    let has_none = plan.alone || named.iter().any(|p| p.info.name == "none");
    let none = (!has_none).then(|| PolicySpec::none().into());
    none.into_iter().chain(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_as_many_runs_as_its_rows_though_the_first_was_left_out() {
        let plan = ComparePlan {
            workload: Some("sequential".to_string()),
            size_bytes: Some(1 << 20),
            ..ComparePlan::default()
        };
        let target = model("rbd").and_then(|on| on.open()).expect("a model");
        let reads = reads::all(&plan).expect("a workload");
        let case = Case::new(&plan, &*target, &reads[0], &[], Vec::new()).expect("rows");
        let workload = case.workload(0).expect("reads");
        let mut results: Vec<Vec<RunResult>> = case.rows.iter().map(|_| Vec::new()).collect();
        let run = case.run_once(&case.rows[1], &workload, 0, None);
        results[1].extend(run.expect("measured"));
        assert_eq!(case.table(results).runs, 1);
    }
}
