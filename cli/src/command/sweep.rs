//! `foreread sweep`: names the cells, leaves out those that a file has, has the lab measure the rest, keeps each as a file.
//!
//! ```text
//!   DIR/0123456789abcdef.json     one cell: key and row; replaced whole, so there is never a half one
//! ```
//! A trace is loaded when its first missing cell begins, by the thread that measures it, and dropped after its last; so the threads
//! need not wait for each other between two traces. Never: measures in this thread.

use crate::args::values::size;
use crate::fail::{Fail, one_line};
use crate::out::{self, Outputs};
use crate::policy_list;
use crate::progress::Bar;
use crate::reads::{self, ReplayArgs, RequestedReads};
use crate::source;
use foreread::source::SourceName;
use foreread::{Options, Reader};
use foreread_core::policy::PolicyDraft;
use foreread_lab::sweep::{self, Cell, CellKey, CellResult, SweepReads};
use foreread_os::open::read_small;
use foreread_report::block::{self, Block, Column, Table};
use foreread_report::json;
use foreread_report::number::{mb, or_dash, three};
use foreread_report::progress::Progress;
use foreread_report::width;
use serde::Serialize;
use std::cmp::Reverse;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tempfile::NamedTempFile;

/// Measure many traces, policies, device models and caches, over the cores
///
/// Each combination is a cell: what 'foreread compare' shows for that policy alone. A cell is one file of JSON (schema
/// foreread.sweep/1) in the directory, written when it is complete: a sweep that was ended goes on where it was, and one with
/// more traces or policies measures only what is missing. A trace whose size has changed is measured anew. A trace may be an
/// object (s3://BUCKET/KEY), which is copied to a temporary file while it is measured.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread sweep *.frt --on model:rbd,model:nvme --policy auto,linux-6.18 -o out
  foreread sweep boot-ide --on model:rbd --memory 16M,256M -o out --json -")]
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
    /// Sizes of the memory for what is cached, such as 16M,256M [default: the usual one]
    #[arg(long, alias = "cache", value_name = "LIST", value_delimiter = ',', value_parser = size)]
    pub memory: Vec<u64>,
    /// Runs of each cell
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Seed of the first run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Directory of the cells; made if needed
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Cells at once [default: the cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// Measure nothing; list the cells that are missing, as JSON, those of large traces first
    ///
    /// Each with its key and the name of its file. For programs that have other machines measure them.
    #[arg(long, hide_short_help = true)]
    pub missing: bool,
    /// Write JSON to a file, or to stdout
    ///
    /// A list of all cells, those of earlier runs among them.
    #[arg(long, value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<OsString>,
}

/// What is measured where nothing is named.
const POLICIES: &str = "none,auto,linux-6.18";
/// More cells than anyone waits for: a typing error.
const MAX_CELLS: usize = 1_000_000;
/// Longest file of a cell that is believed.
const MAX_CELL_BYTES: u64 = 1 << 20;

/// A trace or a workload, and what was found of it.
struct Input {
    reads: SweepInput,
    cells: Vec<Cell>,
}

/// What an argument names.
enum SweepInput {
    Workload(String),
    Trace(PathBuf),
    /// A trace that is not a file here.
    Remote(SourceName),
}

/// What the missing cells of one input share.
struct InputProgress {
    reads: SweepInput,
    /// Cells that have not begun.
    left: usize,
    loaded: Option<SweepReads>,
}

impl InputProgress {
    /// What the next cell reads. The last one takes it along.
    fn next(&mut self) -> Result<SweepReads, Fail> {
        let reads = match self.loaded.take() {
            Some(there) => there,
            None => load(&self.reads)?,
        };
        self.left = self.left.saturating_sub(1);
        if self.left > 0 {
            self.loaded = Some(reads.clone());
        }
        Ok(reads)
    }
}

/// A cell that is to be measured elsewhere.
#[derive(Serialize)]
struct Missing {
    /// Its file, without the ending.
    name: String,
    key: CellKey,
}

/// Measures what is missing and prints.
pub fn run(args: &SweepArgs) -> Result<(), Fail> {
    let outputs = Outputs::new(&[("json", args.json.as_deref())])?;
    let inputs = inputs(args)?;
    if args.missing {
        return list_missing(args, inputs);
    }
    if let Some(dir) = &args.out {
        std::fs::create_dir_all(dir).map_err(|error| {
            Fail::input(
                "cannot make the directory",
                format!("--out {}: {error}", dir.display()),
                "name another",
            )
        })?;
    }
    let all = inputs.iter().map(|input| input.cells.len()).sum::<usize>();
    let begun = Instant::now();
    let (mut results, mut measured) = (Vec::new(), 0);
    {
        let mut bar = Bar::with_time_left();
        bar.stage("cells");
        let (cells, shared) = missing(args, inputs, &mut results);
        bar.step(results.len() as u64, all as u64);
        let reads = |cell: &Cell| {
            let mut shared = shared[cell.input]
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            shared.next()
        };
        let done = |cell: CellResult| {
            keep(args.out.as_deref(), &cell)?;
            results.push(cell);
            measured += 1;
            bar.step(results.len() as u64, all as u64);
            Ok(())
        };
        sweep::run(&cells, jobs(args), reads, done)?;
    }
    let key = |cell: &CellResult| {
        (
            cell.key.trace.clone(),
            cell.key.device.clone(),
            cell.cache_bytes,
            cell.key.policy.clone(),
        )
    };
    results.sort_by_key(key);
    outputs.emit(
        || in_words(&results, measured, begun.elapsed().as_secs_f64()),
        || json::pretty(&results),
        &[],
    )
}

fn jobs(args: &SweepArgs) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    args.jobs.map_or_else(cores, |jobs| jobs as usize)
}

/// Everything that is asked for, looked at before anything is measured. Large traces come first: at the end the threads, or the
/// workers that `--missing` is for, wait for a short cell.
fn inputs(args: &SweepArgs) -> Result<Vec<Input>, Fail> {
    let policies = policies(args.policy.as_deref().unwrap_or(POLICIES))?;
    let mut devices = Vec::new();
    for name in &args.on {
        let on = source::parse(name)?;
        if !on.is_simulated() {
            return Err(Fail::input(
                "a sweep is simulated",
                format!("--on {name}"),
                "name models: model:NAME",
            ));
        }
        devices.push((name.to_string(), on));
    }
    let caches: Vec<Option<u64>> = if args.memory.is_empty() {
        vec![None]
    } else {
        args.memory.iter().copied().map(Some).collect()
    };
    let cells = args
        .traces
        .len()
        .saturating_mul(policies.len())
        .saturating_mul(devices.len() * caches.len());
    if cells > MAX_CELLS {
        return Err(Fail::input(
            "the sweep has too many cells",
            format!("{cells}, at most {MAX_CELLS}"),
            "sweep in several parts",
        ));
    }
    let mut inputs = Vec::new();
    for text in &args.traces {
        let (reads, trace_bytes) = requested(text)?;
        let mut cells = Vec::new();
        for (device, on) in &devices {
            for policy in &policies {
                for &cache_bytes in &caches {
                    let key = CellKey {
                        foreread: env!("CARGO_PKG_VERSION").to_string(),
                        trace: text.to_string_lossy().into_owned(),
                        trace_bytes,
                        policy: policy.to_string(),
                        device: device.clone(),
                        cache_bytes,
                        runs: args.runs,
                        seed: args.seed,
                    };
                    cells.push(Cell {
                        key,
                        input: 0,
                        policy: policy.clone(),
                        on: on.clone(),
                    });
                }
            }
        }
        inputs.push(Input { reads, cells });
    }
    inputs.sort_by_key(|input| Reverse(input.cells.first().map(|cell| cell.key.trace_bytes)));
    Ok(inputs)
}

/// What an argument names, and the bytes of its file.
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

/// Prints the cells that no file has.
fn list_missing(args: &SweepArgs, inputs: Vec<Input>) -> Result<(), Fail> {
    let cells = inputs
        .into_iter()
        .flat_map(|input| kept(args.out.as_deref(), input.cells).1);
    let all: Vec<Missing> = cells
        .map(|Cell { key, .. }| Missing {
            name: key.name(),
            key,
        })
        .collect();
    out::print(json::pretty(&all))
}

/// Copies a trace that is not here into a temporary file.
fn fetched(name: &SourceName) -> Result<NamedTempFile, Fail> {
    let failed = |error: &dyn std::fmt::Display| {
        Fail::input(
            "cannot read the trace",
            format!("{name}: {error}"),
            "try again",
        )
    };
    let reader = Reader::open(name.clone(), Options::default())?;
    let mut file = NamedTempFile::new().map_err(|error| failed(&error))?;
    std::io::copy(&mut reader.cursor(), &mut file).map_err(|error| failed(&error))?;
    Ok(file)
}

/// The policies that the list names. Nothing is compared, so `none` is there only if it is named.
fn policies(list: &str) -> Result<Vec<PolicyDraft>, Fail> {
    let (mut policies, _) = policy_list::parse(Some(list))?;
    let named = list == "all" || list.split(',').any(|name| name.trim() == "none");
    policies.retain(|policy| named || policy.info.name != "none");
    Ok(policies)
}

/// The cells of an input that are measured already, and those that are not.
fn kept(dir: Option<&Path>, cells: Vec<Cell>) -> (Vec<CellResult>, Vec<Cell>) {
    let (mut there, mut missing) = (Vec::new(), Vec::new());
    for cell in cells {
        // A file that is broken, or of another key, is measured anew.
        let found = dir
            .and_then(|dir| read(&file(dir, &cell.key)))
            .filter(|found| found.key == cell.key && found.schema == sweep::SCHEMA);
        match found {
            Some(found) => there.push(found),
            None => missing.push(cell),
        }
    }
    (there, missing)
}

fn file(dir: &Path, key: &CellKey) -> PathBuf {
    dir.join(key.name() + ".json")
}

fn read(path: &Path) -> Option<CellResult> {
    serde_json::from_slice(&read_small(path, MAX_CELL_BYTES).ok()?).ok()
}

fn keep(dir: Option<&Path>, cell: &CellResult) -> Result<(), Fail> {
    let Some(dir) = dir else { return Ok(()) };
    let text =
        serde_json::to_string(cell).expect("a struct of numbers and strings can always be written");
    out::replace("out", &file(dir, &cell.key), &(text + "\n"))
}

/// The cells that no file has, and what they share; `results` gets the others.
fn missing(
    args: &SweepArgs,
    inputs: Vec<Input>,
    results: &mut Vec<CellResult>,
) -> (Vec<Cell>, Vec<Mutex<InputProgress>>) {
    let (mut cells, mut shared) = (Vec::new(), Vec::new());
    for (
        input,
        Input {
            reads,
            cells: asked,
        },
    ) in inputs.into_iter().enumerate()
    {
        let (there, missing) = kept(args.out.as_deref(), asked);
        results.extend(there);
        shared.push(Mutex::new(InputProgress {
            reads,
            left: missing.len(),
            loaded: None,
        }));
        cells.extend(missing.into_iter().map(|cell| Cell { input, ..cell }));
    }
    (cells, shared)
}

fn load(reads: &SweepInput) -> Result<SweepReads, Fail> {
    match reads {
        SweepInput::Trace(path) => loaded(path),
        SweepInput::Remote(name) => loaded(fetched(name)?.path()),
        SweepInput::Workload(name) => Ok(SweepReads::Workload(name.clone())),
    }
}

fn loaded(path: &Path) -> Result<SweepReads, Fail> {
    reads::ready(path, &ReplayArgs::default())
        .map(Arc::new)
        .map(SweepReads::Trace)
}

/// A line a cell, and how fast it went.
fn in_words(results: &[CellResult], measured: usize, seconds: f64) -> String {
    type CellColumn<'a> = Column<'a, CellResult>;
    let columns = vec![
        CellColumn::new("   time s", |c| {
            or_dash(c.row.time_s.as_ref(), |time| three(time.mean))
        }),
        CellColumn::new(" ampl.", |c| or_dash(c.row.overfetch, three)),
        CellColumn::new(" cache MB", |c| mb(Some(c.cache_bytes))),
        CellColumn::new(format!("{:22}", "policy"), |c| c.key.policy.clone()).left(),
        CellColumn::new(format!("{:18}", "device"), |c| c.key.device.clone()).left(),
        CellColumn::new("trace", |c| one_line(&c.key.trace)).left(),
    ];
    let mut rate = format!("{measured} cells measured in {} s", three(seconds));
    if measured > 0 && seconds > 0.0 {
        rate += &format!(", {} an hour", three(measured as f64 * 3600.0 / seconds));
    }
    let old = results.len() - measured;
    if old > 0 {
        rate += &format!("; {old} were there");
    }
    let table = Block::Table(Table::new("", columns, results));
    block::text([table, Block::line(rate)], width::columns(), false)
}
