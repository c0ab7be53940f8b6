//! `foreread check bench`: foreread measures itself. The numbers are the lab's.

use super::bench_policies;
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
    /// Every combination of those, every policy, 10 seeds: takes hours
    Full,
    /// Recorded programs, each on 2 devices drawn at random; 24 seeds, 12 opponents
    Validation,
}

/// Policies beside each other in many cells, lost cells first
///
/// A cell is a workload on a simulated device with a cache. The best opponent of each cell is chosen on other seeds than it is
/// judged on, and fetches at most 1.25 times the demanded bytes. A cell is lost where the judged policy takes more than 1.05
/// times as long, beyond chance. docs/evaluation.md explains how to read the result.
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
    #[arg(long, alias = "design", value_name = "DESIGN", conflicts_with = "full")]
    pub cells: Option<BenchCells>,
    /// The same as --cells full
    #[arg(long)]
    pub full: bool,
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
    /// One line of JSON a run. A file of another design, trace or version is refused. After a new build of foreread the judged
    /// policies run again, and one run of each opponent is repeated: the file is refused if a figure differs.
    #[arg(long, value_name = "FILE")]
    pub resume: Option<OsString>,
    /// Runs at once [default: the number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Write a page with heat maps and reasons to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<OsString>,
    /// Write JSON to a file, or to stdout
    ///
    /// Schema foreread.policies/1 with the key 'cells'. With '-' the JSON takes the place of the text.
    #[arg(long, value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<OsString>,
}

/// Names and numbers, in the order they are printed in. What is not defined is null.
type Figures = Vec<(String, Option<f64>)>;

/// Measures and prints: `name: number` lines, or JSON.
pub fn run(args: &BenchArgs) -> Result<(), Fail> {
    let (args, measure): (_, fn() -> Result<Figures, Fail>) = match &args.what {
        BenchWhat::Sim(args) => (args, sim),
        BenchWhat::Hit(args) => (args, hit),
        BenchWhat::Import(args) => (args, import),
        BenchWhat::Policies(args) => return bench_policies::run(args),
    };
    let outputs = Outputs::new(&[("json", args.json.as_deref())])?;
    let figures = measure()?;
    outputs.emit(|| in_words(&figures), || to_json(&figures), &[])
}

fn named(figures: &[(&str, Option<f64>)]) -> Figures {
    figures
        .iter()
        .map(|(name, n)| ((*name).to_string(), *n))
        .collect()
}

fn import() -> Result<Figures, Fail> {
    Ok(crate::bench::import::import()?)
}

fn sim() -> Result<Figures, Fail> {
    let figures =
        crate::bench::speed::sim().map_err(|error| Fail::input(error.to_string(), "", ""))?;
    Ok(named(&[
        ("hit_reads_per_s", Some(figures.hit_reads_per_s)),
        ("timed_reads_per_s", Some(figures.timed_reads_per_s)),
        ("auto_hit_reads_per_s", Some(figures.auto_hit_reads_per_s)),
        (
            "auto_timed_reads_per_s",
            Some(figures.auto_timed_reads_per_s),
        ),
        ("bytes_per_page_dense", Some(figures.bytes_per_page_dense)),
        ("bytes_per_page_sparse", Some(figures.bytes_per_page_sparse)),
    ]))
}

fn hit() -> Result<Figures, Fail> {
    let figures = crate::bench::speed::hit()?;
    Ok(named(&[
        ("ours_reads_per_s", Some(figures.ours_reads_per_s)),
        ("pread_reads_per_s", Some(figures.pread_reads_per_s)),
        ("ratio", Some(figures.ratio)),
    ]))
}

fn to_json(figures: &Figures) -> String {
    let field =
        |(name, value): &(String, Option<f64>)| format!("\"{name}\":{}", serde_json::json!(value));
    format!(
        "{{{}}}\n",
        figures.iter().map(field).collect::<Vec<_>>().join(",")
    )
}

fn in_words(figures: &Figures) -> String {
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
