//! `foreread check bench`: foreread measures itself. The numbers are the lab's.

use super::bench_policies;
use crate::bench::import::{self, Figure};
use crate::bench::speed;
use clap::{Subcommand, ValueEnum};
use foreread_cli::fail::Fail;
use foreread_cli::out::Outputs;
use foreread_report::number::{or_dash, three};
use std::ffi::OsString;
use std::path::PathBuf;

/// Measure foreread itself
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread check bench sim
  foreread check bench hit --json -
  foreread check bench policies --resume runs.jsonl --html policies.html")]
pub struct BenchArgs {
    /// What to measure.
    #[command(subcommand)]
    pub what: BenchWhat,
}

/// What to measure of foreread itself.
#[derive(Debug, Subcommand)]
pub enum BenchWhat {
    /// Simulated reads a second
    Sim(BenchJson),
    /// Cached reads a second, against pread from the page cache
    Hit(BenchJson),
    /// Trace records a second, imported and exported, and their memory
    Import(BenchJson),
    // The comment of its arguments is its help: one here would replace the long text.
    Policies(Box<BenchPoliciesArgs>),
}

/// Where the figures go.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  foreread check bench hit --json -")]
pub struct BenchJson {
    /// Write JSON to a file, or to stdout
    #[arg(long, value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<OsString>,
}

/// Which cells `bench policies` measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BenchCells {
    /// 7 devices, 21 workloads, 2 caches, 12 settings and an imitation of mountpoint-s3
    Baseline,
    /// 12 devices, 37 workloads, each workload on 3 devices; 8 opponents
    Fractional,
    /// Recorded programs, each on 2 devices drawn at random; 24 seeds, 12 opponents
    Validation,
}

/// Policies beside each other in many cells, lost cells first
///
/// A cell is a workload on a simulated device with a cache. The best opponent of each cell is chosen on other seeds than it is
/// judged on, and fetches at most 1.25 times the demanded bytes. A cell is lost if the judged policy takes more than 1.05
/// times as long, beyond chance. docs/benchmarks.md explains how to read the result.
///
/// Ctrl-C ends the runs that have begun and reports the cells whose runs are all done; the exit code is then 128 and the number of
/// the signal.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread check bench policies --resume runs.jsonl --html policies.html
  foreread check bench policies --cells validation --draw 7
  foreread check bench policies --trace app.frt --only @nvme")]
pub struct BenchPoliciesArgs {
    /// Which cells [default: fractional]
    #[arg(long, value_name = "DESIGN")]
    pub cells: Option<BenchCells>,
    /// Only these cells: WORKLOAD, @DEVICE or WORKLOAD@DEVICE
    ///
    /// May be given several times. A workload without parameters also means the same workload with any.
    #[arg(long, value_name = "CELLS")]
    pub only: Vec<String>,
    /// Run a recorded workload on each device and cache instead
    ///
    /// A trace in any known format, replayed as 'foreread compare' replays it by default.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// The recordings of --cells validation [default: check/recordings]
    ///
    /// A folder with index.csv, as check/record-programs makes it.
    #[arg(long, value_name = "FOLDER", hide_short_help = true)]
    pub recordings: Option<PathBuf>,
    /// Seed of the devices of --cells validation [default: 1]
    #[arg(long, value_name = "SEED", hide_short_help = true)]
    pub draw: Option<u64>,
    /// The policy to judge [default: auto]
    ///
    /// May be given several times. The opponents are those of the design. In the validation auto@again is auto after the other
    /// recording of each program, and auto@other after another program.
    #[arg(long, value_name = "POLICY")]
    pub policy: Vec<String>,
    /// Keep finished runs in this file, and use those in it
    ///
    /// One line of JSON a run. After a new build of foreread the judged policies run again. One run of each opponent is repeated: the
    /// file is refused if a figure differs.
    #[arg(long, value_name = "FILE")]
    pub resume: Option<OsString>,
    /// Runs at once [default: the number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// Write a page with all reasons to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<OsString>,
    /// Write JSON to a file, or to stdout
    ///
    /// Schema foreread.policies/1 with the key 'cells'. With '-' the JSON takes the place of the text.
    #[arg(long, value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<OsString>,
}

/// Measures and prints: `name: number` lines, or JSON.
pub fn run(args: &BenchArgs) -> Result<(), Fail> {
    let json = match &args.what {
        BenchWhat::Sim(args) | BenchWhat::Hit(args) | BenchWhat::Import(args) => &args.json,
        BenchWhat::Policies(args) => return bench_policies::run(args),
    };
    let outputs = Outputs::new(&[("json", json.as_deref())])?;
    let figures = match &args.what {
        BenchWhat::Hit(_) => speed::hit()?,
        BenchWhat::Import(_) => import::import()?,
        _ => speed::sim().map_err(|error| Fail::input(error.to_string(), "", ""))?,
    };
    outputs.emit(|| in_words(&figures), || to_json(&figures), &[])
}

fn to_json(figures: &[Figure]) -> String {
    let field =
        |(name, value): &(String, Option<f64>)| format!("\"{name}\":{}", serde_json::json!(value));
    format!(
        "{{{}}}\n",
        figures.iter().map(field).collect::<Vec<_>>().join(",")
    )
}

fn in_words(figures: &[Figure]) -> String {
    figures
        .iter()
        .map(|(name, value)| format!("{name}: {}\n", or_dash(*value, three)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_for_people_and_for_programs() {
        let figures = vec![
            ("ours_reads_per_s".to_string(), Some(1_234_567.0)),
            ("ratio".to_string(), None),
        ];
        assert_eq!(in_words(&figures), "ours_reads_per_s: 1.23M\nratio: -\n");
        assert_eq!(
            to_json(&figures),
            "{\"ours_reads_per_s\":1234567.0,\"ratio\":null}\n"
        );
    }
}
