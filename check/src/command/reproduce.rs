//! `foreread check reproduce`: has the lab make the published tables again, prints them, and fails where a check fails that is not
//! on record as a miss.
//!
//! Never: judges a figure.

use crate::reproduce::{self, Options, Paper, real, text};
use clap::builder::{PossibleValue, PossibleValuesParser};
use foreread_cli::fail::Fail;
use foreread_cli::out::Outputs;
use foreread_cli::progress::Bar;
use std::ffi::OsString;

/// The names of the papers; the numbers that they had before are hidden aliases.
fn papers() -> PossibleValuesParser {
    let names = Paper::ALL.map(|paper| PossibleValue::new(paper.name()).alias(paper.number()));
    names
        .into_iter()
        .chain([PossibleValue::new("all")])
        .collect::<Vec<_>>()
        .into()
}

/// Reproduce published tables beside the printed figures
///
/// The tables are those of five posts and a commit. Each printed figure is beside ours with the error and a kind: 'blind' (predicted, nothing of the model was made with the
/// post's figures), 'left-out' (predicted by a model that was fitted to other rows of the table), 'formula' (the model is
/// the published formula), 'order' (which of two is larger), 'fit' (a model or a workload was fitted to it), 'input' (we
/// put it in), 'shown' (no verdict; the reason says why). The score by kind comes first. docs/posts.md names the rows of
/// each sentence of the posts. The exit code is 1 when a check is missed that is not on record as a miss.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread check reproduce
  foreread check reproduce crume-2014
  foreread check reproduce wu-2010b --json - | jq '.tables[].rows[] | select(.kind==\"blind\")'")]
pub struct ReproduceArgs {
    /// Which publication, or all of them
    #[arg(value_name = "PAPER", default_value = "all", value_parser = papers())]
    pub paper: String,
    /// At most this many runs of each experiment
    ///
    /// By default as many as the table takes: 1 where nothing is drawn, up to 20 where something is.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: Option<u32>,
    /// Run the experiments on this machine's hardware instead
    ///
    /// dd by readahead size on a loop device that it makes itself (wu-2010b), sysbench (wu-2013), fio (bhattacharya-2003): a minute or two, on a
    /// nameless file of 128 MiB. It needs root, losetup, dd, sysbench and fio (Debian packages mount, coreutils,
    /// sysbench, fio), and exits with 3 where they are missing. It cleans up however it ends, SIGKILL among it;
    /// only a SIGKILL to its own guards leaves a device.
    #[arg(long, conflicts_with = "runs")]
    pub real: bool,
    /// Write a page with charts to this file
    ///
    /// One file of HTML that loads nothing and runs no script: each table with its errors and roles, published and ours
    /// drawn over the sizes, and the JSON inside.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub html: Option<OsString>,
    /// Write JSON to a file, or to stdout
    ///
    /// Schema foreread.reproduce/1. With '-' the JSON takes the place of the tables.
    #[arg(long, value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<OsString>,
}

/// Makes the tables and prints them.
pub fn run(args: &ReproduceArgs) -> Result<(), Fail> {
    let outputs = Outputs::new(&[
        ("json", args.json.as_deref()),
        ("html", args.html.as_deref()),
    ])?;
    // "all" is the only value that names no paper.
    let papers: Vec<Paper> = Paper::parse(&args.paper).into_iter().collect();
    let done = if args.real {
        real::run(&papers, &real::Extent::default(), &mut Bar::new())?
    } else {
        let options = Options {
            papers,
            most_runs: args.runs,
            instead: Vec::new(),
        };
        reproduce::run(&options, &mut Bar::new())?
    };
    outputs.emit(
        || text::render(&done),
        || done.to_json(),
        &[("html", &|| reproduce::page(&done))],
    )?;
    match done.new_misses().count() {
        0 => Ok(()),
        missed => Err(Fail::check(text::missed_line(&done, missed), "", "")),
    }
}
