//! `foreread check store`: tests a store with a user's real account. Users can paste the output into bug reports.

use crate::store::{self, StoreOutcome};
use foreread::source::SourceName;
use foreread_cli::args::values::size;
use foreread_cli::fail::Fail;
use foreread_cli::out::Outputs;
use foreread_report::json;
use serde::Serialize;
use std::ffi::OsString;
use std::fmt::Write;

/// Hard limit of bytes read.
const MOST: u64 = 1 << 30;
/// Dollars for a million GETs and for a gigabyte of egress. Source: Amazon S3 price list, us-east-1, November 2026;
/// other providers are similar.
const DOLLARS_A_MILLION: f64 = 0.40;
const DOLLARS_A_GB: f64 = 0.09;

/// Test reads from your object store; writes nothing
///
/// Tests an object or a prefix (s3://BUCKET/PREFIX/, gs://, az://, https://), reads at most --bytes, and reports the
/// cost. The check uses the same credentials as other commands (docs/stores.md). Add its output to bug reports.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread check store s3://bucket/prefix/ --profile dev
  foreread check store https://host/big.bin --bytes 32M --json -")]
pub struct StoreArgs {
    /// An object or a prefix
    #[arg(value_name = "URL")]
    source: SourceName,
    /// Maximum bytes to read, up to 1G
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "256M")]
    bytes: u64,
    /// Write JSON to a file, or to stdout
    #[arg(long, value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    json: Option<OsString>,
}

#[derive(Serialize)]
struct StoreReport<'a> {
    schema: &'static str,
    source: String,
    dollars: f64,
    #[serde(flatten)]
    outcome: &'a StoreOutcome,
}

/// Runs the tests and prints the results; if a test fails, the check fails.
pub fn run(args: &StoreArgs) -> Result<(), Fail> {
    let outputs = Outputs::new(&[("json", args.json.as_deref())])?;
    let outcome = store::run(&args.source, args.bytes.min(MOST));
    let outcome = outcome.map_err(|error| Fail::cannot(error.why, error.what, error.remedy))?;
    let dollars = outcome.requests as f64 * DOLLARS_A_MILLION / 1e6
        + outcome.bytes as f64 * DOLLARS_A_GB / 1e9;
    let report = StoreReport {
        schema: "foreread/check-store/1",
        source: args.source.to_string(),
        dollars,
        outcome: &outcome,
    };
    outputs.emit(|| text(&report), || json::pretty(&report), &[])?;
    match outcome.checks.iter().find(|check| !check.passed) {
        Some(check) => Err(Fail::check(
            format!("test failed: {}", check.check),
            &args.source,
            "please report this output",
        )),
        None => Ok(()),
    }
}

fn text(report: &StoreReport<'_>) -> String {
    let outcome = report.outcome;
    let failed = outcome.checks.iter().filter(|check| !check.passed).count();
    let of = outcome.checks.len();
    let verdict = if failed == 0 {
        format!("{} passes all {of} tests.", report.source)
    } else {
        format!("{} fails {failed} of {of} tests.", report.source)
    };
    let mut text = format!("{verdict}\n\n");
    for check in &outcome.checks {
        let mark = if check.passed { "ok    " } else { "FAILED" };
        let _ = writeln!(text, "{mark}  {}: {}", check.check, check.seen);
    }
    let credentials = outcome.credentials.as_deref().unwrap_or("none");
    let _ = writeln!(text, "\ncredentials: {credentials}");
    if let Some(first) = outcome.first_answer {
        let _ = writeln!(text, "first answer: {:.1} ms", first * 1e3);
    }
    if let Some(rate) = outcome.rate {
        let _ = writeln!(text, "sequential: {:.1} MB/s", rate / 1e6);
    }
    let (requests, megabytes) = (outcome.requests, outcome.bytes as f64 / 1e6);
    let _ = writeln!(
        text,
        "cost: {requests} requests for the object and {megabytes:.1} MB, about {:.4} USD if read from outside the cloud",
        report.dollars
    );
    text
}
