//! `foreread check bench`: benchmarks of foreread itself.

use super::bench_policies::{self, BenchPoliciesArgs};
use crate::bench::rates::{self, Figure};
use clap::Subcommand;
use foreread_cli::fail::Fail;
use foreread_cli::out::Outputs;
use foreread_report::number::{or_dash, three};
use std::ffi::OsString;

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
    Sim(BenchJson),
    /// Cached reads per second, compared with pread from the page cache
    Hit(BenchJson),
    // Its help is the doc comment of its arguments: a comment here would replace the long text.
    Policies(Box<BenchPoliciesArgs>),
}

/// Options for the output of the figures.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  foreread check bench sim --json -")]
pub struct BenchJson {
    /// Write JSON to a file, or to stdout
    #[arg(long, value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<OsString>,
}

/// Measures the selected benchmark, and prints the results as `name: number` lines or as JSON.
pub fn run(args: &BenchArgs) -> Result<(), Fail> {
    let json = match &args.what {
        BenchWhat::Sim(args) | BenchWhat::Hit(args) => &args.json,
        BenchWhat::Policies(args) => return bench_policies::run(args),
    };
    let outputs = Outputs::new(&[("json", json.as_deref())])?;
    let figures = match &args.what {
        BenchWhat::Hit(_) => rates::hit()?,
        _ => rates::sim().map_err(|error| Fail::input(error.to_string(), "", ""))?,
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
            ("timed_reads_per_s".to_string(), Some(1_234_567.0)),
            ("ratio".to_string(), None),
        ];
        assert_eq!(in_words(&figures), "timed_reads_per_s: 1.23M\nratio: -\n");
        assert_eq!(
            to_json(&figures),
            "{\"timed_reads_per_s\":1234567.0,\"ratio\":null}\n"
        );
    }
}
