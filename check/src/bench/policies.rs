//! `foreread check bench policies`: runs the cells of [`crate::evaluation`] and says where a policy loses, and why.
//!
//! ```text
//!   options ──► cells ──► runs, less those of the file ──threads──► each run, once over, to the file
//!                                                                  │
//!              text, JSON, page ◄── Results ◄── verdict, targets ◄─┘ of the cells whose runs are all there
//! ```
//! Example: the fractional design has 111 cells, 8 opponents and `auto`: some 2,900 runs. Stopped after 1,000 of them, 38 cells are
//! complete and are reported; the same command with the same `--resume FILE` measures the other 1,900.
//!
//! A run depends on nothing but its cell, its policy and its seed, so a report from a file is the report of an uninterrupted
//! run. `runs_file.rs` says what a file must agree with.

mod json;
mod page;
mod reason;
mod runs_file;
mod text;

use crate::evaluation::cells::TRACE;
use crate::evaluation::measure::NamedWorkload;
use crate::evaluation::opponents::Earlier;
use crate::evaluation::{
    Cell, Design, Figures, Key, Report, Row, Target, devices, measure, opponents, schedule,
    targets, verdict,
};
use foreread_core::policy::SpecError;
use foreread_lab::replay::Replay;
use foreread_os::failure::{Failure, FailureKind};
use foreread_report::{names, number, progress::Progress};
use runs_file::{RunsFile, RunsHeader};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Any policy can be built for a device of this size: whether a policy exists does not depend on the device.
const ANY_CAPACITY: u64 = 1 << 40;

#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// Which cells, seeds and opponents.
    pub design: Design,
    /// The policies that are judged.
    pub judged: Vec<String>,
    /// Only cells that one of these names; empty: all.
    pub only: Vec<CellFilter>,
    /// Recorded workloads instead of those of the design; of the design `validation`, which has no others, all of them.
    pub recordings: Vec<Arc<Replay>>,
    /// All recordings of the validation, of which those above are the chosen ones.
    pub set: Option<RecordingSet>,
    /// Seed of the devices that `validation` draws.
    pub draw: u64,
    /// How many runs at once.
    pub threads: usize,
    /// Where finished runs are kept.
    pub runs_file: Option<PathBuf>,
    /// A text that differs between builds of foreread, so that runs of another build are recognised.
    pub build: String,
}

/// What recordings there are, whether they are loaded or not.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordingSet {
    count: usize,
    digest: u64,
}

impl RecordingSet {
    /// The recordings of these files, by their names and bytes.
    pub fn of<'a>(files: impl IntoIterator<Item = (&'a str, Vec<u8>)>) -> RecordingSet {
        let (mut count, mut digest) = (0, Digest::default());
        for (name, bytes) in files {
            count += 1;
            digest.bytes(name.as_bytes());
            digest.bytes(&bytes);
        }
        RecordingSet {
            count,
            digest: digest.0,
        }
    }
}

/// Some of the cells: `WORKLOAD`, `@DEVICE` or `WORKLOAD@DEVICE`. `sequential` also means `sequential:record=4K`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellFilter {
    workload: String,
    device: String,
}

impl CellFilter {
    /// Reads a filter; every text is one.
    #[must_use]
    pub fn parse(text: &str) -> CellFilter {
        // The last '@': the name of a trace may have one.
        let (workload, device) = text.rsplit_once('@').unwrap_or((text, ""));
        CellFilter {
            workload: workload.to_string(),
            device: device.to_string(),
        }
    }

    /// Whether a recording has a cell that one of `only` names; without any it has.
    #[must_use]
    pub fn any_of(only: &[CellFilter], recording: &str, draw: u64) -> bool {
        let cells = Design::Validation.cells_of_traces([recording], draw);
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

/// Why nothing could be measured, or no further.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A policy that does not exist.
    #[error("{0}")]
    Policy(SpecError),
    /// A filter that leaves no cell.
    #[error(
        "no such cell: {filter} in the design {design}; foreread check bench policies --help says how cells are named"
    )]
    NoCell {
        filter: String,
        design: &'static str,
    },
    /// The file of finished runs.
    #[error("{0}")]
    Runs(String),
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Failure {
        match error {
            BenchError::Policy(error) => names::refused("policy", &error, "foreread list policies"),
            error => Failure::of(FailureKind::Input, error),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Results {
    design: Design,
    trace: Option<String>,
    judged: Vec<String>,
    /// Runs that are over, and all runs of the design.
    runs: [usize; 2],
    cells: [usize; 2],
    report: Report,
    /// Where the row of a policy in a cell is.
    places: BTreeMap<Cell, BTreeMap<String, usize>>,
    targets: Vec<(String, Vec<Target>)>,
    notes: Vec<String>,
    /// Options that choose the same cells again.
    repeated_by: String,
}

impl Results {
    /// Runs that are over, and all runs of the design.
    #[must_use]
    pub fn runs(&self) -> [usize; 2] {
        self.runs
    }

    /// What is wrong with `auto`, if a run wasted more than its credit allows.
    #[must_use]
    pub(crate) fn broken_credit(&self) -> Option<String> {
        let over = &self.report.over_credit;
        let first = over.first()?;
        Some(format!(
            "more wasted than the credit allows: {} of {} runs, first {} in {}, seed {}; 'foreread check bench policies{} --only \
             {}@{}' repeats it",
            over.len(),
            self.runs[0],
            first.policy,
            cell_name(&first.cell),
            first.seed,
            self.repeated_by,
            first.cell.workload,
            first.cell.device
        ))
    }

    /// JSON of the schema [`crate::evaluation::SCHEMA`]. Ends with a newline.
    #[must_use]
    pub fn to_json(&self) -> String {
        json::write(self, &|_| true)
    }

    /// For people, `width` columns wide.
    #[must_use]
    pub fn to_text(&self, width: usize) -> String {
        text::write(self, width)
    }

    /// One page of HTML.
    #[must_use]
    pub fn to_html(&self) -> String {
        page::write(self)
    }

    /// The cells that `policy` loses, the worst first.
    fn lost<'a>(&'a self, policy: &'a str) -> impl Iterator<Item = &'a Row> {
        self.report
            .rows
            .iter()
            .filter(move |r| r.lost && r.policy == policy)
    }

    /// Its cells above the limit whose difference may be chance, the worst first.
    fn undecided(&self, policy: &str) -> Vec<&Row> {
        let is_slow = |r: &&Row| {
            r.policy == policy && !r.lost && r.ratio.is_some_and(|x| x > verdict::MAX_RATIO)
        };
        let mut rows: Vec<&Row> = self.report.rows.iter().filter(is_slow).collect();
        rows.sort_by(|a, b| b.ratio.unwrap_or(0.0).total_cmp(&a.ratio.unwrap_or(0.0)));
        rows
    }

    fn row(&self, cell: &Cell, policy: &str) -> Option<&Row> {
        Some(&self.report.rows[*self.places.get(cell)?.get(policy)?])
    }

    fn title(&self) -> String {
        let judged = self.judged.join(", ");
        match &self.trace {
            Some(name) => format!("{judged} in the trace {name}: {} cells", self.cells[0]),
            None => format!(
                "{judged} in the design {}: {} cells",
                self.design.name(),
                self.cells[0]
            ),
        }
    }
}

/// `sequential on rbd, cache 256M`.
fn cell_name(cell: &Cell) -> String {
    format!(
        "{} on {}, cache {}",
        cell.workload,
        cell.device,
        number::size(cell.cache)
    )
}

/// Runs what the file has not, on all threads, until all is done or `stop` is set. Runs that were begun are ended.
///
/// # Errors
/// [`BenchError`]; what was measured is in the file.
pub fn run(
    options: &BenchOptions,
    stop: &AtomicBool,
    progress: &mut (dyn Progress + Send),
) -> Result<Results, BenchError> {
    for policy in &options.judged {
        // Other designs have no second sessions.
        let name = match options.design {
            Design::Validation => opponents::session(policy).0,
            _ => policy,
        };
        opponents::build(name, ANY_CAPACITY).map_err(BenchError::Policy)?;
    }
    let cells = cells(options)?;
    let keys = schedule::keys(&cells, options.design, &options.judged);
    let recorded: BTreeMap<&str, &Replay> = options
        .recordings
        .iter()
        .map(|replay| (replay.workload.name.as_str(), &**replay))
        .collect();
    let measure = |key: &Key| {
        let name = key.cell.workload.strip_prefix(TRACE).unwrap_or_default();
        let Some(replay) = recorded.get(name) else {
            return measure::measure(key);
        };
        let (policy, earlier) = opponents::session(&key.policy);
        let Some(earlier) = earlier else {
            return measure::measure_workload(key, &replay.workload);
        };
        match first_session(&recorded, name, earlier) {
            Some(first) => {
                let first = NamedWorkload::new(&first.workload, &first.loaded.names);
                let second = NamedWorkload::new(&replay.workload, &replay.loaded.names);
                measure::measure_second(key, policy, &first, &second)
            }
            None => Ok(None),
        }
    };
    let mut file = options
        .runs_file
        .as_ref()
        .map(|path| RunsFile::open(path, header(options)))
        .transpose()?;
    let mut runs = BTreeMap::new();
    if let Some(file) = &file {
        progress.stage("checking the runs of another build");
        runs = file.usable(&keys, &options.judged, &measure)?;
    }
    let left: Vec<Key> = keys
        .iter()
        .filter(|key| !runs.contains_key(*key))
        .cloned()
        .collect();
    progress.stage("runs");
    progress.step(runs.len() as u64, keys.len() as u64);
    let mut failed = None;
    let mut each = |(key, figures): schedule::FinishedRun| {
        let written = file
            .as_mut()
            .map_or(Ok(()), |file| file.append(&key, figures.as_ref()));
        runs.insert(key, figures);
        progress.step(runs.len() as u64, keys.len() as u64);
        failed = failed.take().or(written.err());
        if failed.is_some() || stop.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    if !stop.load(Ordering::Relaxed) {
        schedule::run(&left, options.threads, &measure, &mut each).map_err(BenchError::Policy)?;
    }
    failed.map_or_else(|| Ok(results(options, &keys, &runs)), Err)
}

/// The program of a recording: `cc` of `cc-a.frt`.
fn program(recording: &str) -> Option<&str> {
    Some(recording.trim_end_matches(".frt").rsplit_once('-')?.0)
}

/// The recording that is read in the session before `name`: of the same program, or of the next one. None where it is not there.
fn first_session<'a>(
    recorded: &BTreeMap<&str, &'a Replay>,
    name: &str,
    earlier: Earlier,
) -> Option<&'a Replay> {
    let own = program(name);
    let all = recorded.iter().map(|(name, replay)| (*name, *replay));
    let mut round = all
        .clone()
        .filter(|it| it.0 > name)
        .chain(all.filter(|it| it.0 < name));
    round
        .find(|it| (program(it.0) == own) == (earlier == Earlier::Again))
        .map(|it| it.1)
}

/// The cells of the options.
fn cells(options: &BenchOptions) -> Result<Vec<Cell>, BenchError> {
    let names = options
        .recordings
        .iter()
        .map(|replay| replay.workload.name.as_str());
    let mut cells = if options.recordings.is_empty() {
        options.design.cells()
    } else {
        options.design.cells_of_traces(names, options.draw)
    };
    if let Some(filter) = options
        .only
        .iter()
        .find(|filter| !cells.iter().any(|cell| filter.matches(cell)))
    {
        return Err(BenchError::NoCell {
            filter: filter.to_string(),
            design: options.design.name(),
        });
    }
    cells.retain(|cell| {
        options.only.is_empty() || options.only.iter().any(|filter| filter.matches(cell))
    });
    Ok(cells)
}

fn header(options: &BenchOptions) -> RunsHeader {
    let trace = match (options.set, options.recordings.first()) {
        (Some(set), _) => Some(format!(
            "{} recordings on the draw {} {:016x}",
            set.count, options.draw, set.digest
        )),
        (None, Some(replay)) => {
            let mut digest = Digest::default();
            write!(digest, "{:?}", replay.workload).expect("a digest takes every text");
            Some(format!("{} {:016x}", replay.workload.name, digest.0))
        }
        (None, None) => None,
    };
    RunsHeader::new(options.design, trace, options.build.clone())
}

/// FNV-1a of a text, so that a trace is recognised by what is read and not by its name.
/// <https://datatracker.ietf.org/doc/html/draft-eastlake-fnv> has offset and prime.
struct Digest(u64);

impl Default for Digest {
    fn default() -> Digest {
        Digest(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    fn bytes(&mut self, bytes: &[u8]) {
        let step =
            |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        self.0 = bytes.iter().fold(self.0, step);
    }
}

impl std::fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.bytes(text.as_bytes());
        Ok(())
    }
}

fn results(options: &BenchOptions, keys: &[Key], runs: &BTreeMap<Key, Option<Figures>>) -> Results {
    let all: BTreeSet<&Cell> = keys.iter().map(|key| &key.cell).collect();
    let open: BTreeSet<&Cell> = keys
        .iter()
        .filter(|key| !runs.contains_key(*key))
        .map(|key| &key.cell)
        .collect();
    let known = |key: &&Key| !open.contains(&key.cell);
    let whole = keys
        .iter()
        .filter(known)
        .filter_map(|key| Some((key.clone(), runs.get(key)?.clone()?)));
    let report = verdict::report(&whole.collect(), options.design);
    let mut places: BTreeMap<Cell, BTreeMap<String, usize>> = BTreeMap::new();
    for (at, row) in report.rows.iter().enumerate() {
        places
            .entry(row.cell.clone())
            .or_default()
            .insert(row.policy.clone(), at);
    }
    let done = keys.iter().filter(|key| runs.contains_key(*key)).count();
    let cells = [all.len() - open.len(), all.len()];
    let is_partial = !is_of_design(options) || done < keys.len();
    let targets = |policy: &String| {
        let targets = targets::targets(&report, policy, options.design, is_partial);
        (policy.clone(), targets)
    };
    let targets = options.judged.iter().map(targets).collect();
    Results {
        design: options.design,
        trace: trace_name(options),
        judged: options.judged.clone(),
        runs: [done, keys.len()],
        cells,
        report,
        places,
        targets,
        repeated_by: match options.design {
            Design::Validation => format!(" --cells validation --draw {}", options.draw),
            design => format!(" --cells {}", design.name()),
        },
        notes: notes(options, [done, keys.len()], cells, &all),
    }
}

/// Whether the cells are all those of the design: none is left out, and no recording takes their place.
fn is_of_design(options: &BenchOptions) -> bool {
    let recordings = options.recordings.len();
    let is_whole = match (options.design, options.set) {
        (Design::Validation, Some(set)) => recordings == set.count,
        (Design::Validation, None) => true,
        _ => recordings == 0,
    };
    options.only.is_empty() && is_whole
}

/// The name of the one recording that was asked for.
fn trace_name(options: &BenchOptions) -> Option<String> {
    match (options.design, &options.recordings[..]) {
        (Design::Validation, _) => None,
        (_, all) => all.first().map(|replay| replay.workload.name.clone()),
    }
}

fn notes(
    options: &BenchOptions,
    runs: [usize; 2],
    cells: [usize; 2],
    all: &BTreeSet<&Cell>,
) -> Vec<String> {
    let mut notes = Vec::new();
    if runs[0] < runs[1] {
        notes.push(format!(
            "Stopped after {} of {} runs: the figures are of the {} of {} cells whose runs are all done",
            runs[0], runs[1], cells[0], cells[1]
        ));
    }
    if options.design == Design::Validation {
        notes.push(format!(
            "{} recordings, each on two devices that no other has, drawn from seed {} (--draw)",
            options
                .set
                .map_or(options.recordings.len(), |set| set.count),
            options.draw
        ));
        return notes;
    }
    let Some(replay) = options.recordings.first() else {
        return notes;
    };
    notes.extend(replay.notes.iter().cloned());
    let too_small = |cell: &&&Cell| {
        let capacity = devices::find(&cell.device).map_or(u64::MAX, |d| d.preset.capacity_bytes);
        replay.workload.files.iter().any(|size| *size > capacity)
    };
    let small: BTreeSet<&str> = all
        .iter()
        .filter(too_small)
        .map(|cell| cell.device.as_str())
        .collect();
    if !small.is_empty() {
        let small: Vec<&str> = small.into_iter().collect();
        notes.push(format!(
            "The trace reads beyond the end of {}: those offsets wrap around",
            small.join(", ")
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
            set: None,
            draw: 1,
            threads: 1,
            runs_file: None,
            build: String::new(),
        };
        let keys = schedule::keys(
            &cells(&options).expect("cells"),
            options.design,
            &options.judged,
        );
        let with = |unused_bytes, auto_s| {
            let figures = |key: &Key| Figures {
                time_s: if key.policy == "auto" { auto_s } else { 1.0 },
                stall_s: 1.0,
                overfetch: Some(1.0),
                requests: 1,
                unused_bytes: if key.policy == "auto" {
                    unused_bytes
                } else {
                    0
                },
                p99_us: Some(1.0),
                held_byte_s: 0.0,
                t95_round_trips: None,
                flaps: 0,
                demand_bytes: 1,
                used_bytes: 0,
            };
            let runs = keys
                .iter()
                .map(|key| (key.clone(), Some(figures(key))))
                .collect();
            super::results(&options, &keys, &runs)
        };
        let results = |unused_bytes| with(unused_bytes, 1.0);
        assert_eq!(results(0).broken_credit(), None);
        let over = results(1 << 30);
        let why = over.broken_credit().expect("two caches");
        assert!(
            why.contains(
                "2 of 56 runs, first auto in sequential:depth=4 on rbd, cache 16M, seed 4"
            ),
            "{why}"
        );
        assert!(
            over.to_text(120)
                .contains("MISSED: runs that waste more than the credit allows: 2 (at most 0")
        );
        assert!(
            results(0)
                .to_text(120)
                .contains("not judged: runs that waste more than the credit allows: 0 (at most 0)"),
            "of 56 runs, and not of the design"
        );
        let html = over.to_html();
        assert!(
            html.contains("auto loses 0 of 2 cells and misses 1 target; ")
                && html.contains(" are not judged, as only a part of the design was run."),
            "{html}"
        );
        // A policy that is faster than the oracle is named.
        let beaten = "The oracle is no bound here: auto took x0.50 of its time in sequential:depth=4 on rbd, cache ";
        let words = |results: &Results| {
            let text = results.to_text(120);
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let lost = with(0, 0.5);
        assert!(words(&lost).contains(beaten) && words(&lost).contains("is faster in 2 cells."));
        assert!(!words(&results(0)).contains("no bound"));
    }

    #[test]
    fn filters_name_workloads_devices_or_both() {
        let cell = |workload: &str| Cell {
            workload: workload.into(),
            device: "rbd".into(),
            cache: 1,
        };
        let matches =
            |filter: &str, workload: &str| CellFilter::parse(filter).matches(&cell(workload));
        assert!(matches("sequential", "sequential") && matches("sequential", "sequential:depth=4"));
        assert!(
            matches("sequential:depth=4@rbd", "sequential:depth=4") && matches("@rbd", "random")
        );
        assert!(
            !matches("sequential:depth=4", "sequential")
                && !matches("sequential@nvme", "sequential")
        );
        assert!(
            matches("a@b.frt@rbd", "trace:a@b.frt")
                && matches("trace:x", "trace:x")
                && !matches("trace:x", "x")
        );
        assert_eq!(CellFilter::parse("x@rbd").to_string(), "x@rbd");
    }
}
