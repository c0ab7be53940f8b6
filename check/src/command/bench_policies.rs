//! `foreread check bench policies`: checks its options, runs the benchmark, and prints the results as text or writes
//! them as JSON.
//!
//! The first signal stops the benchmark: no new simulation starts, running simulations finish, complete cells are reported, and the exit
//! code is 128 plus the number of the signal. The second signal ends the process at once. With `--resume`, finished runs are kept after the
//! first and after the second signal.

use crate::bench::policies::{self, BenchOptions, CellFilter};
use crate::evaluation::{Design, verdict};
use foreread_cli::fail::Fail;
use foreread_cli::out::{self, Outputs};
use foreread_cli::progress::Bar;
use foreread_cli::reads::{self, ReplayArgs, RequestedReads};
use foreread_cli::signals;
use foreread_lab::grid;
use foreread_lab::replay::Replay;
use foreread_pagecache::program;
use foreread_report::width;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum size of the list of recordings; a line has about 100 bytes.
const MAX_INDEX_BYTES: u64 = 1 << 20;
/// The folder of the recordings in a clone.
const RECORDINGS: &str = "check/recordings";

/// Compare policies in many cells; shows lost cells first
///
/// A cell is a workload on a simulated device with a cache. In each cell, the judged policy is compared with the best
/// of several other policies (the opponents) that fetches at most 1.25 times the demanded bytes. That opponent is
/// chosen with other seeds than those of the comparison. A cell is lost if the judged policy takes more than 1.05 times
/// as long as that opponent, with statistical significance. docs/benchmarks.md explains how to read the result.
///
/// Ctrl-C finishes running simulations and reports complete cells; the exit code is then 128 plus the number of
/// the signal.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread check bench policies --resume runs.jsonl
  foreread check bench policies --cells validation --seed 7")]
pub struct BenchPoliciesArgs {
    /// The set of cells [default: fractional]
    #[arg(long, value_name = "DESIGN")]
    pub cells: Option<Design>,
    /// Only these cells: WORKLOAD, @DEVICE or WORKLOAD@DEVICE
    ///
    /// May be repeated. If WORKLOAD is written without its parameters, the cells of this workload are selected for all
    /// values of the parameters.
    #[arg(long, value_name = "CELLS")]
    pub only: Vec<String>,
    /// The recordings of --cells validation [default: check/recordings]
    ///
    /// A folder with index.csv, as check/record-programs makes it.
    #[arg(long, value_name = "FOLDER", hide_short_help = true)]
    pub recordings: Option<PathBuf>,
    /// Seed of the devices of --cells validation [default: 1]
    #[arg(long, value_name = "SEED", hide_short_help = true)]
    pub seed: Option<u64>,
    /// The policy to judge [default: auto]
    ///
    /// May be repeated. The policies to compare it with (the opponents) are fixed by the set of cells.
    #[arg(long, value_name = "POLICY")]
    pub policy: Vec<String>,
    /// Append finished runs to this file, and reuse those in it
    ///
    /// The file has one line of JSON for each run. With a new build of foreread, only the judged policies run
    /// again. One run of each opponent is repeated as a test: if a figure differs from the file, the file is
    /// refused.
    #[arg(long, value_name = "FILE")]
    pub resume: Option<OsString>,
    /// Number of concurrent runs [default: the number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// Write JSON to a file, or to stdout
    ///
    /// Schema foreread.policies/1 with the key 'cells'. With '-', the JSON replaces the text.
    #[arg(long, value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<OsString>,
}

/// Runs the benchmark and prints its report.
pub fn run(args: &BenchPoliciesArgs) -> Result<(), Fail> {
    let mut outputs = Outputs::new(&[("json", args.json.as_deref())])?;
    let resume = args.resume.as_deref();
    let resume = resume
        .map(|path| out::resumable("resume", path))
        .transpose()?;
    if let Some(path) = &resume {
        outputs.and("resume", path.clone())?;
    }
    let only: Vec<CellFilter> = args
        .only
        .iter()
        .map(|text| CellFilter::parse(text))
        .collect();
    let draw = args.seed.unwrap_or(1);
    let (recordings, all_recordings) = recordings(args, &only, draw)?;
    let options = BenchOptions {
        design: args.cells.unwrap_or(Design::Fractional),
        judged: if args.policy.is_empty() {
            vec![verdict::JUDGED.to_string()]
        } else {
            args.policy.clone()
        },
        only,
        recordings,
        all_recordings,
        draw,
        threads: grid::threads(args.jobs),
        file: resume,
        build: build(),
    };
    let signal = signals::first()?;
    let results = {
        let mut bar = Bar::with_time_left();
        policies::run(&options, &signal, &mut bar)?
    };
    outputs.emit(
        || results.to_text(width::columns()),
        || results.to_json(),
        &[],
    )?;
    let [done, all] = results.runs();
    if done == all {
        return results
            .broken_credit()
            .map_or(Ok(()), |why| Err(Fail::check(why, "", "")));
    }
    let done = format!("{done} of {all} runs");
    Err(signals::stopped(&signal, &done, options.file.as_deref()))
}

/// The requested recorded workloads, and the number of recordings in the validation.
fn recordings(
    args: &BenchPoliciesArgs,
    only: &[CellFilter],
    draw: u64,
) -> Result<(Vec<Arc<Replay>>, usize), Fail> {
    if args.cells != Some(Design::Validation) {
        if args.recordings.is_some() || args.seed.is_some() {
            let remedy = "add --cells validation";
            return Err(Fail::input(
                "these options work only with --cells validation",
                "--recordings, --seed",
                remedy,
            ));
        }
        return Ok((Vec::new(), 0));
    }
    let folder = args.recordings.as_deref().unwrap_or(Path::new(RECORDINGS));
    let index = folder.join("index.csv");
    let remedy = "give the folder of the recordings with --recordings; check/record-programs makes such a folder";
    let refused = |what: &str, why: &dyn std::fmt::Display| {
        Fail::input(what, format!("{}: {why}", index.display()), remedy)
    };
    let text = foreread_os::open::read_small_text(&index, MAX_INDEX_BYTES)
        .map_err(|error| refused("cannot read the list of recordings", &error))?;
    let names = traces_of(&text).map_err(|why| refused("no list of recordings", &why))?;
    let chosen = names
        .iter()
        .filter(|name| CellFilter::any_of(only, name, draw));
    let replays = chosen.map(|name| trace(&folder.join(name)));
    Ok((replays.collect::<Result<_, _>>()?, names.len()))
}

/// The names in the column `trace` of an index, sorted: each is a file in the folder of the index.
fn traces_of(text: &str) -> Result<BTreeSet<&str>, String> {
    let mut lines = text.lines();
    let heads = lines.next().unwrap_or_default();
    let Some(column) = heads.split(',').position(|head| head == "trace") else {
        return Err("its first line has no column 'trace'".to_string());
    };
    let mut names = BTreeSet::new();
    for (n, line) in lines.enumerate() {
        let name = line.split(',').nth(column).unwrap_or_default();
        let is_plain = !name.is_empty() && !name.starts_with('.') && !name.contains('/');
        if !is_plain || !names.insert(name) {
            return Err(format!(
                "line {}: '{name}' is listed twice, or is not a plain file name",
                n + 2
            ));
        }
    }
    if names.is_empty() {
        return Err("it lists no recording".to_string());
    }
    Ok(names)
}

/// Loads the recorded workload of a file.
fn trace(path: &Path) -> Result<Arc<Replay>, Fail> {
    let marked: OsString = [OsStr::new("trace:"), path.as_os_str()]
        .into_iter()
        .collect();
    let RequestedReads::Trace(path) = reads::parse(Some(&marked))? else {
        return Err(Fail::input(
            "not a trace",
            path.display(),
            "give the path of a trace file",
        ));
    };
    reads::ready(&path, &ReplayArgs::default()).map(Arc::new)
}

/// Identifies a build by size and time of the binary. A copy counts as another build, which only repeats some runs.
fn build() -> String {
    let meta = std::fs::metadata(program::file());
    meta.map_or_else(
        |_| "unknown".to_string(),
        |m| format!("{} {}.{:09}", m.len(), m.mtime(), m.mtime_nsec()),
    )
}

#[cfg(test)]
mod tests {
    use super::traces_of;

    #[test]
    fn an_index_names_files_of_its_folder_once() {
        let index = |rows: &str| format!("kind,trace,reads\n{rows}");
        let text = index("a,y.frt,1\nb,x.frt,2\n");
        let names: Vec<&str> = traces_of(&text).expect("two").into_iter().collect();
        assert_eq!(names, ["x.frt", "y.frt"]);
        for name in ["../x.frt", "/x.frt", "", ".."] {
            let rows = format!("a,{name},1\n");
            assert!(traces_of(&index(&rows)).is_err(), "{rows}");
        }
        for rows in ["", "\n", "a,x,1\na,x,1\n"] {
            assert!(traces_of(&index(rows)).is_err(), "{rows}");
        }
        assert!(traces_of("kind,reads\na,1\n").is_err() && traces_of("").is_err());
    }
}
