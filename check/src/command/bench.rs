//! `foreread check bench`: benchmarks of foreread itself.

use super::bench_policies::{self, BenchPoliciesArgs};
use crate::bench::rates;
use clap::Subcommand;
use foreread_cli::fail::Fail;
use foreread_cli::out;
use foreread_report::number::three;

/// Measure foreread itself
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread check bench sim
  foreread check bench policies --resume runs.jsonl")]
pub struct BenchArgs {
    /// What to measure.
    #[command(subcommand)]
    pub what: BenchWhat,
}

/// What to measure of foreread itself.
#[derive(Debug, Subcommand)]
pub enum BenchWhat {
    /// Simulated reads per second
    Sim,
    /// Cached reads per second, compared with pread from the page cache
    Hit,
    // Its help is the doc comment of its arguments: a comment here would replace the long text.
    Policies(Box<BenchPoliciesArgs>),
}

/// Measures the selected benchmark; the figures of `sim` and `hit` are printed as `name: number` lines.
pub fn run(args: &BenchArgs) -> Result<(), Fail> {
    let figures = match &args.what {
        BenchWhat::Policies(args) => return bench_policies::run(args),
        BenchWhat::Hit => rates::hit()?,
        BenchWhat::Sim => rates::sim().map_err(|error| Fail::input(error.to_string(), "", ""))?,
    };
    let line = |(name, value): &rates::Figure| format!("{name}: {}\n", three(*value));
    out::print(figures.iter().map(line).collect::<String>())
}
