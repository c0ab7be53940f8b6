//! `foreread sweep`: combines the values of its options into a grid of measurements (cells), measures the cells that
//! are not yet in the `--resume` file, and prints all cells.
//!
//! A trace is loaded by the thread that measures the first missing cell with this trace, and freed after the last cell
//! with this trace.

use crate::args::values::size;
use crate::fail::{Fail, one_line};
use crate::out::{self, Outputs};
use crate::policy_list;
use crate::progress::Bar;
use crate::reads::{self, ReplayArgs, RequestedReads};
use crate::signals;
use crate::source;
use foreread::source::SourceName;
use foreread::{Options, Reader};
use foreread_core::policy::PolicyDraft;
use foreread_lab::compare::ComparePlan;
use foreread_lab::compare::vary::Axis;
use foreread_lab::grid::{self, CellFile, CellKey, CellResult, ComparedCell};
use foreread_lab::replay::Replay;
use foreread_report::block::{self, Block, Column, Table};
use foreread_report::json;
use foreread_report::number::{mb, or_dash, plural, three};
use foreread_report::width;
use std::cmp::Reverse;
use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tempfile::NamedTempFile;

/// Simulate many traces, policies and device models on all cores
///
/// Each combination of a trace, a policy and a model is a cell; its results are those that 'foreread compare' shows for
/// that policy. --resume appends each finished cell to a file, as a line of JSON (schema foreread.cell/1). With --resume
/// an interrupted sweep continues where it stopped, and a sweep with more traces or policies measures only the missing
/// cells. A trace whose size has changed is measured again. A trace may be an object (s3://BUCKET/KEY), which is copied
/// to a temporary file during its measurement. Ctrl-C finishes the cells that are being measured.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread sweep *.frt --on model:rbd,model:nvme --resume cells.jsonl
  foreread sweep boot-ide --on model:rbd --vary memory=16M,256M --json -")]
pub struct SweepArgs {
    /// Traces, or workloads by name
    #[arg(value_name = "WORKLOAD|TRACE", required = true)]
    pub traces: Vec<OsString>,
    /// Device models, such as model:rbd,model:sdb.toml
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "model:rbd"
    )]
    pub on: Vec<SourceName>,
    /// Policies: a,b:key=value, or 'all' [default: none,auto,linux-6.18]
    #[arg(long, value_name = "LIST")]
    pub policy: Option<String>,
    /// Memory for cached data, such as 512M
    #[arg(long, alias = "cache", value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,
    /// Repeat for each of several values of a parameter
    ///
    /// Works as in 'foreread compare': KEY is 'memory', 'policy.KEY', or a parameter of the workload.
    #[arg(long, value_name = "KEY=V,...")]
    pub vary: Option<String>,
    /// Runs of each combination (cell)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Seed of the first run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Append finished cells to this file, and reuse them
    #[arg(long, value_name = "FILE")]
    pub resume: Option<OsString>,
    /// Concurrent cells [default: the number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// Measure nothing; list the keys of missing cells as JSON, large traces first
    ///
    /// Programs can use this list to distribute the cells to other machines.
    #[arg(long, hide_short_help = true)]
    pub dry_run: bool,
    /// Write JSON to a file, or to stdout
    ///
    /// Writes one line for each cell, including the cells from the file of --resume. Write a name without a
    /// dot as ./NAME.
    #[arg(long, value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<OsString>,
}

const POLICIES: &str = "none,auto,linux-6.18";
/// Maximum number of cells; more is probably a typing error.
const MAX_CELLS: usize = 1_000_000;

enum SweepInput {
    Workload(String),
    Trace(PathBuf),
    /// A trace that is not a local file.
    Remote(SourceName),
}

/// A trace or a workload, and its cells that have not started.
struct Input {
    reads: SweepInput,
    left: usize,
    loaded: Option<Arc<Replay>>,
}

/// The cells of a sweep: their keys, and for each the number of its input and a plan without a trace.
#[derive(Default)]
struct Cells {
    keys: Vec<CellKey>,
    plans: Vec<(usize, ComparePlan)>,
    inputs: Vec<Mutex<Input>>,
}

pub fn run(args: &SweepArgs) -> Result<(), Fail> {
    let mut outputs = Outputs::new(&[("json", args.json.as_deref())])?;
    let mut file = None;
    if let Some(path) = &args.resume {
        let path = out::resumable("resume", path)?;
        outputs.and("resume", path.clone())?;
        file = Some(CellFile::<ComparedCell>::open(&path)?);
    }
    let cells = cells(args, file.as_ref())?;
    let is_missing = |key: &&CellKey| file.as_ref().is_none_or(|file| file.get(key).is_none());
    let missing: Vec<&CellKey> = cells.keys.iter().filter(is_missing).collect();
    if args.dry_run {
        return out::print(json::pretty(&missing));
    }
    let (old, begun) = (cells.keys.len() - missing.len(), Instant::now());
    let signal = signals::first()?;
    let measure = |n: usize| {
        let (input, plan) = &cells.plans[n];
        let mut input = cells.inputs[*input]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let replay = input.replay()?;
        drop(input);
        let plan = ComparePlan {
            replay,
            ..plan.clone()
        };
        Ok::<_, Fail>(ComparedCell::measure(&plan)?)
    };
    let results = {
        let threads = grid::threads(args.jobs);
        let mut bar = Bar::with_time_left();
        grid::run(
            &cells.keys,
            file.as_mut(),
            threads,
            &measure,
            &signal,
            &mut bar,
        )?
    };
    let all = cells.keys.len();
    let results = cells.keys.into_iter().zip(results);
    let mut results: Vec<CellResult<ComparedCell>> = results
        .filter_map(|(key, result)| Some(CellResult::new(key, result?)))
        .collect();
    results.sort_by_key(|cell| {
        let (key, cache) = (cell.key.clone(), cell.result.cache_bytes);
        (key.trace, key.device, cache, key.policy)
    });
    let done = results.len();
    // The same command must be able to write its output files when it continues.
    if done == all || file.is_none() {
        outputs.emit(
            || in_words(&results, done - old, begun.elapsed().as_secs_f64()),
            || results.iter().map(CellResult::line).collect(),
            &[],
        )?;
    }
    if done == all {
        return Ok(());
    }
    let done = format!("{done} of {all} cells");
    Err(signals::stopped(
        &signal,
        &done,
        file.as_ref().map(CellFile::path),
    ))
}

/// All requested cells. Large traces come first, so that threads, or workers of `--dry-run`, wait only for a short cell
/// at the end.
fn cells(args: &SweepArgs, file: Option<&CellFile<ComparedCell>>) -> Result<Cells, Fail> {
    let policies = policies(args.policy.as_deref().unwrap_or(POLICIES))?;
    let axis = args.vary.as_deref().map(Axis::parse).transpose()?;
    let mut devices = Vec::new();
    for name in &args.on {
        let on = source::parse(name)?;
        if !on.is_simulated() {
            let remedy = "name models: model:NAME";
            return Err(Fail::input(
                "a sweep only simulates",
                format!("--on {name}"),
                remedy,
            ));
        }
        devices.push((name.to_string(), on));
    }
    let mut inputs = Vec::new();
    for text in &args.traces {
        let (reads, bytes) = requested(text)?;
        inputs.push((Reverse(bytes), text.to_string_lossy(), reads));
    }
    inputs.sort_by_key(|input| input.0);
    let (mut cells, mut taken) = (Cells::default(), HashSet::new());
    for (Reverse(trace_bytes), name, reads) in inputs {
        let workload = match &reads {
            SweepInput::Workload(name) => Some(name.clone()),
            SweepInput::Trace(_) | SweepInput::Remote(_) => None,
        };
        let mut left = 0;
        for (device, on) in &devices {
            let base = ComparePlan {
                workload: workload.clone(),
                on: Some(on.clone()),
                policies: policies.clone(),
                alone: true,
                runs: Some(args.runs),
                cache_bytes: args.memory,
                seed: args.seed,
                ..ComparePlan::default()
            };
            let plans = match &axis {
                Some(axis) => axis.plans(&base)?,
                None => vec![base],
            };
            for plan in plans {
                for policy in &plan.policies {
                    let trace = plan.workload.clone().unwrap_or_else(|| name.to_string());
                    let key = CellKey {
                        foreread: env!("CARGO_PKG_VERSION").to_string(),
                        trace,
                        trace_bytes,
                        policy: policy.to_string(),
                        device: device.clone(),
                        cache_bytes: plan.cache_bytes,
                        runs: args.runs,
                        seed: args.seed,
                    };
                    // A policy without the varied parameter has only one cell.
                    if !taken.insert(key.clone()) {
                        continue;
                    }
                    left += usize::from(file.is_none_or(|file| file.get(&key).is_none()));
                    cells.keys.push(key);
                    let policies = vec![policy.clone()];
                    let plan = ComparePlan {
                        policies,
                        ..plan.clone()
                    };
                    cells.plans.push((cells.inputs.len(), plan));
                }
            }
            if cells.keys.len() > MAX_CELLS {
                return Err(Fail::input(
                    "the sweep has too many cells",
                    format!("more than {MAX_CELLS}"),
                    "run several smaller sweeps",
                ));
            }
        }
        let loaded = None;
        cells.inputs.push(Mutex::new(Input {
            reads,
            left,
            loaded,
        }));
    }
    Ok(cells)
}

/// The input given by an argument, and the size of its file.
fn requested(text: &OsString) -> Result<(SweepInput, u64), Fail> {
    let name = SourceName::from(text.clone());
    if foreread::source::is_remote(&name) {
        let source = foreread::source::open(&name)?;
        return Ok((SweepInput::Remote(name), source.size()));
    }
    match reads::parse(Some(text))? {
        RequestedReads::Trace(path) => {
            let bytes = std::fs::metadata(&path).map_or(0, |meta| meta.len());
            Ok((SweepInput::Trace(path), bytes))
        }
        RequestedReads::Workload(name) => Ok((SweepInput::Workload(name), 0)),
        RequestedReads::Usual => Err(Fail::input("no trace is named", "''", "name one")),
    }
}

/// The policies of the list. A sweep has no baseline, so `none` is included only if the user lists it.
fn policies(list: &str) -> Result<Vec<PolicyDraft>, Fail> {
    let (mut policies, _) = policy_list::parse(Some(list))?;
    let named = list == "all" || list.split(',').any(|name| name.trim() == "none");
    policies.retain(|policy| named || policy.info.name != "none");
    Ok(policies)
}

impl Input {
    /// The trace for the next cell; the last cell takes ownership of it.
    fn replay(&mut self) -> Result<Option<Arc<Replay>>, Fail> {
        let replay = match (self.loaded.take(), &self.reads) {
            (_, SweepInput::Workload(_)) => return Ok(None),
            (Some(there), _) => there,
            (None, SweepInput::Trace(path)) => loaded(path)?,
            (None, SweepInput::Remote(name)) => loaded(fetched(name)?.path())?,
        };
        self.left = self.left.saturating_sub(1);
        self.loaded = (self.left > 0).then(|| Arc::clone(&replay));
        Ok(Some(replay))
    }
}

fn loaded(path: &Path) -> Result<Arc<Replay>, Fail> {
    reads::ready(path, &ReplayArgs::default()).map(Arc::new)
}

/// Copies a remote trace into a temporary file.
fn fetched(name: &SourceName) -> Result<NamedTempFile, Fail> {
    let failed = |error: &dyn std::fmt::Display| {
        let place = format!("{name}: {error}");
        Fail::input("cannot read the trace", place, "try again")
    };
    let reader = Reader::open(name.clone(), Options::default())?;
    let mut file = NamedTempFile::new().map_err(|error| failed(&error))?;
    std::io::copy(&mut reader.cursor(), &mut file).map_err(|error| failed(&error))?;
    Ok(file)
}

/// Prints a line for each cell, and the rate.
fn in_words(results: &[CellResult<ComparedCell>], measured: usize, seconds: f64) -> String {
    type CellColumn<'a> = Column<'a, CellResult<ComparedCell>>;
    let columns = vec![
        CellColumn::new("   time s", |c| {
            or_dash(c.result.row.time_s.as_ref(), |time| three(time.mean))
        }),
        CellColumn::new(" read ampl.", |c| or_dash(c.result.row.overfetch, three)),
        CellColumn::new(" cache MB", |c| mb(Some(c.result.cache_bytes))),
        CellColumn::new(format!("{:22}", "policy"), |c| c.key.policy.clone()).left(),
        CellColumn::new(format!("{:18}", "device"), |c| c.key.device.clone()).left(),
        CellColumn::new("trace", |c| one_line(&c.key.trace)).left(),
    ];
    let mut rate = format!(
        "{} measured in {} s",
        plural(measured as u64, "cell"),
        three(seconds)
    );
    if measured > 0 && seconds >= 60.0 {
        rate += &format!(", {} an hour", three(measured as f64 * 3600.0 / seconds));
    }
    let old = results.len() - measured;
    if old > 0 {
        rate += &format!("; {old} were in the file");
    }
    let table = Block::Table(Table::new("", columns, results));
    block::text([table, Block::line(rate)], width::columns(), false)
}
