//! `foreread check bench policies`: runs policies in all cells of [`crate::evaluation`], and decides in which cells a policy is slower
//! than its best opponent. A cell is a workload, a device and a cache size.
//!
//! ```text
//!   options ──► keys ──► grid::run: all that are not in the file, on all threads ──► verdict, targets ──► Results ──► text, JSON
//! ```
//! Example: the set of cells named `fractional` has 127 cells; with `auto` and 8 opponents, these are about 3,200 runs.
//! If the benchmark is stopped after 1,000 runs, 38 cells are complete and are reported. The same command with the same
//! `--resume FILE` then executes the remaining runs.
//!
//! The result of a run depends only on the run's key: cell, policy, seed, and the recording that it reads. For a judged policy such as
//! `auto`, the key also includes the build of foreread. So if the code has changed, the runs of `auto` are repeated, but not those of its
//! opponents. To check that the change of the code did not affect the opponents, one run of each opponent (the stored run with the fewest
//! requests) is repeated. If any figure of a repeated run differs from the stored figure, `--resume FILE` is refused.

mod report;

use crate::evaluation::cells::TRACE;
use crate::evaluation::opponents;
use crate::evaluation::verdict::{self, Runs};
use crate::evaluation::{
    Cell, Design, Figures, Key, Report, Row, SCHEMA, Target, measure, targets,
};
use foreread_core::policy::SpecError;
use foreread_lab::grid::{self, CellFile, CellKey};
use foreread_lab::replay::Replay;
use foreread_os::failure::Failure;
use foreread_report::{names, progress::Progress};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// Any policy can be built for a device of this size, because the existence of a policy does not depend on the device.
const ANY_CAPACITY: u64 = 1 << 40;

#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// The design: cells, seeds and opponents.
    pub design: Design,
    pub judged: Vec<String>,
    /// Selects cells; empty: all cells.
    pub only: Vec<CellFilter>,
    /// The selected recordings of the validation.
    pub recordings: Vec<Arc<Replay>>,
    pub all_recordings: usize,
    /// Seed of the devices drawn for `validation`.
    pub draw: u64,
    pub threads: usize,
    /// The file that keeps finished runs.
    pub file: Option<PathBuf>,
    /// A text that differs between builds of foreread.
    pub build: String,
}

/// A filter that selects cells: `WORKLOAD`, `@DEVICE` or `WORKLOAD@DEVICE`. `sequential` also matches
/// `sequential:record=4K`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellFilter {
    workload: String,
    device: String,
}

impl CellFilter {
    pub fn parse(text: &str) -> CellFilter {
        // Split at the last '@', because the name of a trace may contain one.
        let (workload, device) = text.rsplit_once('@').unwrap_or((text, ""));
        CellFilter {
            workload: workload.to_string(),
            device: device.to_string(),
        }
    }

    /// Returns whether the filters `only` select the cell of a recorded workload; true if there are no filters.
    pub fn any_of(only: &[CellFilter], recording: &str, draw: u64) -> bool {
        let cells = Design::cells_of_traces([recording], draw);
        let is_named = |cell: &Cell| only.iter().any(|filter| filter.matches(cell));
        only.is_empty() || cells.iter().any(is_named)
    }

    fn matches(&self, cell: &Cell) -> bool {
        let name = cell.workload.strip_prefix(TRACE).unwrap_or(&cell.workload);
        let is_named = |w: &str| w == self.workload || w.split(':').next() == Some(&self.workload);
        (self.workload.is_empty() || is_named(name) || cell.workload == self.workload)
            && (self.device.is_empty() || cell.device == self.device)
    }
}

impl std::fmt::Display for CellFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = if self.device.is_empty() { "" } else { "@" };
        write!(f, "{}{at}{}", self.workload, self.device)
    }
}

fn refused(error: SpecError) -> Failure {
    names::refused("policy", &error, "foreread list policies")
}

#[derive(Clone, Debug)]
pub struct Results {
    design: Design,
    judged: Vec<String>,
    /// The number of finished runs, and of all runs of the design.
    runs: [usize; 2],
    cells: [usize; 2],
    report: Report,
    targets: Vec<Target>,
    notes: Vec<String>,
    /// Options that select the same cells again.
    repeated_by: String,
}

impl Results {
    /// Returns the number of finished runs, and of all runs of the benchmark.
    pub fn runs(&self) -> [usize; 2] {
        self.runs
    }

    /// A message about `auto`, if a run wasted more than the credit allows.
    pub(crate) fn broken_credit(&self) -> Option<String> {
        let over = &self.report.over_credit;
        let first = over.first()?;
        let Cell {
            workload, device, ..
        } = &first.cell;
        Some(format!(
            "{} of {} runs read more unused bytes ahead than auto's limit allows; the first is {} in {}, seed {}; 'foreread check bench policies{} --only \
             {workload}@{device}' repeats it",
            over.len(),
            self.runs[0],
            first.policy,
            first.cell,
            first.seed,
            self.repeated_by,
        ))
    }

    /// Returns the results as JSON with the schema [`SCHEMA`], on one line. Undefined values are null.
    pub fn to_json(&self) -> String {
        let (choosing, judging) = self.design.seeds();
        let document = serde_json::json!({
            "schema": SCHEMA,
            "foreread": env!("CARGO_PKG_VERSION"),
            "design": self.design.name(),
            "judged": self.judged,
            "seeds_choosing": choosing,
            "seeds_judging": judging,
            "runs": self.runs[0],
            "runs_planned": self.runs[1],
            "cells_complete": self.cells[0],
            "cells_planned": self.cells[1],
            "notes": self.notes,
            "targets": self.targets,
            "totals": self.report.totals,
            "cells": self.report.rows,
        });
        document.to_string() + "\n"
    }

    /// Returns the report as text that is `width` columns wide.
    pub fn to_text(&self, width: usize) -> String {
        report::text(self, width)
    }

    /// The cells that `policy` loses, worst first.
    fn lost<'a>(&'a self, policy: &'a str) -> Vec<&'a Row> {
        self.report.of(policy).filter(|row| row.lost).collect()
    }

    /// Its cells above the limit whose difference may be due to chance, worst first.
    fn undecided<'a>(&'a self, policy: &'a str) -> Vec<&'a Row> {
        let is_slow = |row: &&Row| !row.lost && row.ratio > Some(verdict::MAX_RATIO);
        let mut rows: Vec<&Row> = self.report.of(policy).filter(is_slow).collect();
        rows.sort_by(|a, b| b.ratio.unwrap_or(0.0).total_cmp(&a.ratio.unwrap_or(0.0)));
        rows
    }

    fn title(&self) -> String {
        let (judged, cells) = (self.judged.join(", "), self.cells[0]);
        let design = self.design.name();
        format!("{judged} in the design {design}: {cells} cells")
    }
}

/// Executes the runs that are not yet in the file, until all runs are done or `stop` is set. Runs that have started are finished. After an
/// error, all finished runs are in the file.
pub fn run(
    options: &BenchOptions,
    stop: &AtomicUsize,
    progress: &mut (dyn Progress + Send),
) -> Result<Results, Failure> {
    for policy in &options.judged {
        opponents::build(policy, ANY_CAPACITY).map_err(refused)?;
    }
    let keys = options.design.keys(cells(options)?, &options.judged);
    let recorded = Recorded::of(options);
    let cell_keys: Vec<CellKey> = keys
        .iter()
        .map(|key| recorded.cell_key(options, key))
        .collect();
    let measure = |n: usize| recorded.measure(&keys[n]).map_err(refused);
    let file = options.file.as_ref().map(|path| CellFile::open(path));
    let mut file = file.transpose()?;
    if let Some(file) = &file {
        progress
            .stage("checking the results in the file: repeating its shortest run of each opponent");
        check_opponents(file, &keys, &cell_keys, options, &recorded)?;
    }
    let (file, threads) = (file.as_mut(), options.threads);
    let results = grid::run(&cell_keys, file, threads, &measure, stop, progress)?;
    Ok(results_of(options, &keys, results))
}

/// The recordings by name, each with a hash of its reads.
struct Recorded<'a>(BTreeMap<&'a str, (&'a Replay, u64)>);

impl<'a> Recorded<'a> {
    fn of(options: &'a BenchOptions) -> Recorded<'a> {
        let entry = |replay: &'a Arc<Replay>| {
            let mut hasher = DefaultHasher::new();
            format!("{:?}", replay.workload).hash(&mut hasher);
            let name = replay.workload.name.as_str();
            (name, (&**replay, hasher.finish()))
        };
        Recorded(options.recordings.iter().map(entry).collect())
    }

    /// The recording of a key.
    fn input(&self, key: &Key) -> Option<&(&'a Replay, u64)> {
        self.0.get(key.cell.workload.strip_prefix(TRACE)?)
    }

    fn cell_key(&self, options: &BenchOptions, key: &Key) -> CellKey {
        let version = env!("CARGO_PKG_VERSION");
        let foreread = match options.judged.contains(&key.policy) {
            true => format!("{version} {}", options.build),
            false => version.to_string(),
        };
        let input = self.input(key);
        let hash = input.map_or(String::new(), |(_, hash)| format!(" {hash:016x}"));
        CellKey {
            foreread,
            trace: key.cell.workload.clone() + &hash,
            trace_bytes: 0,
            policy: key.policy.clone(),
            device: key.cell.device.clone(),
            cache_bytes: Some(key.cell.cache),
            runs: 1,
            seed: key.seed,
        }
    }

    fn measure(&self, key: &Key) -> Result<Option<Figures>, SpecError> {
        match self.input(key) {
            None => measure::measure(key),
            Some((replay, _)) => measure::measure_workload(key, &replay.workload),
        }
    }
}

/// Repeats of each opponent the shortest run that is in the file.
fn check_opponents(
    file: &CellFile<Option<Figures>>,
    keys: &[Key],
    cell_keys: &[CellKey],
    options: &BenchOptions,
    recorded: &Recorded<'_>,
) -> Result<(), Failure> {
    let mut shortest: BTreeMap<&str, (&Key, &Figures)> = BTreeMap::new();
    for (key, cell_key) in keys.iter().zip(cell_keys) {
        let Some(Some(figures)) = file.get(cell_key) else {
            continue;
        };
        if !options.judged.contains(&key.policy) {
            let least = shortest.entry(&key.policy).or_insert((key, figures));
            if figures.requests < least.1.requests {
                *least = (key, figures);
            }
        }
    }
    for (key, figures) in shortest.into_values() {
        let again = recorded.measure(key).map_err(refused)?;
        if again.as_ref() != Some(figures) {
            let now = again.map_or("not at all".to_string(), |f| format!("{} s", f.time_s));
            let (policy, cell, before) = (&key.policy, &key.cell, figures.time_s);
            let what = format!("{policy} in {cell} took {before} s, and now {now}");
            return Err(grid::unusable(file.path(), what));
        }
    }
    Ok(())
}

fn cells(options: &BenchOptions) -> Result<Vec<Cell>, Failure> {
    let recordings = options.recordings.iter();
    let names = recordings.map(|replay| replay.workload.name.as_str());
    let mut cells = options.design.cells();
    if options.design == Design::Validation {
        cells.extend(Design::cells_of_traces(names, options.draw));
        cells.extend(Design::cells_of_small_files(options.draw));
    }
    let is_missing = |filter: &&CellFilter| !cells.iter().any(|cell| filter.matches(cell));
    if let Some(filter) = options.only.iter().find(is_missing) {
        let design = options.design.name();
        let what = format!("no such cell: {filter} in the design {design}");
        let remedy = "foreread check bench policies --help says how cells are named";
        return Err(Failure::input(what, "", remedy));
    }
    let is_named = |cell: &Cell| options.only.iter().any(|filter| filter.matches(cell));
    cells.retain(|cell| options.only.is_empty() || is_named(cell));
    Ok(cells)
}

/// `results` has `None` for a run that was not executed, and no figures for a run without a row.
fn results_of(
    options: &BenchOptions,
    keys: &[Key],
    results: Vec<Option<Option<Figures>>>,
) -> Results {
    let all: BTreeSet<&Cell> = keys.iter().map(|key| &key.cell).collect();
    let with_results = || keys.iter().zip(&results);
    let missing = with_results().filter(|(_, result)| result.is_none());
    let open: BTreeSet<&Cell> = missing.clone().map(|(key, _)| &key.cell).collect();
    let done = keys.len() - missing.count();
    let mut runs = Runs::new();
    for (key, result) in with_results() {
        if let (false, Some(Some(figures))) = (open.contains(&key.cell), result) {
            let of_cell = runs.entry(key.cell.clone()).or_default();
            let of_policy = of_cell.entry(key.policy.clone()).or_default();
            of_policy.insert(key.seed, figures.clone());
        }
    }
    let report = verdict::report(&runs, options.design);
    let cells = [all.len() - open.len(), all.len()];
    let is_whole_design = options.recordings.len() == options.all_recordings;
    let is_partial = !is_whole_design || !options.only.is_empty() || done < keys.len();
    let targets = options
        .judged
        .iter()
        .flat_map(|policy| targets::targets(&report, policy, options.design, is_partial));
    let draw = match options.design {
        Design::Validation => format!(" --seed {}", options.draw),
        Design::Baseline | Design::Fractional => String::new(),
    };
    Results {
        design: options.design,
        judged: options.judged.clone(),
        runs: [done, keys.len()],
        cells,
        targets: targets.collect(),
        report,
        repeated_by: format!(" --cells {}{draw}", options.design.name()),
        notes: notes(options, [done, keys.len()], cells),
    }
}

fn notes(options: &BenchOptions, runs: [usize; 2], cells: [usize; 2]) -> Vec<String> {
    let mut notes = Vec::new();
    if runs[0] < runs[1] {
        notes.push(format!(
            "Stopped after {} of {} runs: the figures cover the {} of {} cells whose runs are all done",
            runs[0], runs[1], cells[0], cells[1]
        ));
    }
    if options.design == Design::Validation {
        notes.push(format!(
            "{} recordings, each on two devices that no other recording uses, drawn with seed {} (--seed), and 24 cells of small files read at random",
            options.all_recordings, options.draw
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run that wasted 1 GiB is reported, and its target is missed.
    #[test]
    fn a_run_beyond_the_credit_is_reported() {
        let options = BenchOptions {
            design: Design::Baseline,
            judged: vec!["auto".to_string()],
            only: vec![CellFilter::parse("sequential:depth=4@rbd")],
            recordings: Vec::new(),
            all_recordings: 0,
            draw: 1,
            threads: 1,
            file: None,
            build: String::new(),
        };
        let cells = cells(&options).expect("cells");
        let keys = options.design.keys(cells, &options.judged);
        let with = |unused_bytes, auto_s| {
            let figures = |key: &Key| Figures {
                time_s: if key.policy == "auto" { auto_s } else { 1.0 },
                overfetch: Some(1.0),
                requests: 1,
                unused_bytes: unused_bytes * u64::from(key.policy == "auto"),
                ..Figures::default()
            };
            let runs = keys.iter().map(|key| Some(Some(figures(key))));
            results_of(&options, &keys, runs.collect())
        };
        let words = |results: &Results| {
            let text = results.to_text(120);
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let (fine, over, lost) = (with(0, 1.0), with(1 << 30, 1.0), with(0, 0.5));
        assert_eq!(fine.broken_credit(), None);
        let why = over.broken_credit().expect("two caches");
        let first = "the first is auto in sequential:depth=4 on rbd, cache 16M, seed 4";
        assert!(why.contains(first), "{why}");
        let target = "runs with more unused bytes than auto's limit allows: ";
        let contains = |results: &Results, what: &str| {
            let words = words(results);
            assert!(words.contains(what), "{words}");
        };
        contains(&over, &format!("MISSED: {target}2 (at most 0"));
        // It was a part of the design.
        contains(&fine, &format!("not judged: {target}0 (at most 0"));
        // A policy that is faster than the oracle is reported.
        let beaten = "The oracle's time is not a lower bound here: auto took x0.50 of the oracle's time in sequential:depth=4 on rbd, cache ";
        contains(&lost, beaten);
        contains(&lost, "is faster than the oracle in 2 cells.");
        assert!(!words(&fine).contains("lower bound"));
    }

    #[test]
    fn filters_name_workloads_devices_or_both() {
        let matches = |filter: &str, workload: &str| {
            CellFilter::parse(filter).matches(&Cell::new(workload, "rbd", 1))
        };
        for (filter, workload) in [
            ("sequential", "sequential"),
            ("sequential", "sequential:depth=4"),
            ("sequential:depth=4@rbd", "sequential:depth=4"),
            ("@rbd", "random"),
            ("a@b.frt@rbd", "trace:a@b.frt"),
            ("trace:x", "trace:x"),
        ] {
            assert!(matches(filter, workload), "{filter} {workload}");
        }
        for (filter, workload) in [
            ("sequential:depth=4", "sequential"),
            ("sequential@nvme", "sequential"),
            ("trace:x", "x"),
        ] {
            assert!(!matches(filter, workload), "{filter} {workload}");
        }
        assert_eq!(CellFilter::parse("x@rbd").to_string(), "x@rbd");
    }
}
