//! `foreread check reproduce`: recomputes published tables and prints them. The command fails if one of our figures disagrees with the
//! published figure, unless the row is marked as a known miss.

use crate::reproduce::published::{PAPERS, Paper};
use crate::reproduce::{self, Options, show};
use clap::builder::PossibleValuesParser;
use foreread_cli::fail::Fail;
use foreread_cli::out::Outputs;
use foreread_cli::progress::Bar;
use std::ffi::OsString;

const ALL: &str = "all";

fn papers() -> PossibleValuesParser {
    let names = PAPERS.iter().map(|paper| paper.name);
    names.chain([ALL]).collect::<Vec<_>>().into()
}

/// Reproduce published tables next to the printed figures
///
/// The tables are from five publications and from the message of a commit in Linux 6.17. Each published figure is shown
/// with ours and their ratio. Each figure has a kind. 'blind': predicted by a model that does not use the publication's figures.
/// 'left-out': predicted by a model fitted to other rows of the table. 'formula': the model is the published formula. 'order': which
/// of two figures is larger. 'fit': a model or a workload was fitted to the figure. 'input': an input of the model. 'shown': no
/// verdict; the reason says why. The output begins with the score of each kind. The exit code is 1 if a check is missed that is not
/// listed as a known miss. bench/reproduce-real runs three of the experiments on this machine's hardware.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread check reproduce
  foreread check reproduce crume-2014
  foreread check reproduce wu-2010b --json - | jq '.tables[].rows[] | select(.ok | not)'")]
pub struct ReproduceArgs {
    /// The publication to reproduce, or 'all'
    #[arg(value_name = "PAPER", default_value = ALL, value_parser = papers())]
    pub paper: String,
    /// Maximum number of runs of each experiment
    ///
    /// Default: the number that is set for each experiment: 1 if the experiment uses no random numbers, otherwise up to 20.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: Option<u32>,
    /// Write JSON to a file, or to stdout
    ///
    /// Schema foreread.reproduce/1. With '-', the JSON replaces the tables.
    #[arg(long, value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<OsString>,
}

/// Computes the tables and prints them.
pub fn run(args: &ReproduceArgs) -> Result<(), Fail> {
    let outputs = Outputs::new(&[("json", args.json.as_deref())])?;
    let options = Options {
        // "all" is the only value that is not a paper.
        papers: Paper::named(&args.paper).into_iter().collect(),
        max_runs: args.runs,
        instead: Vec::new(),
    };
    let done = reproduce::run(&options, &mut Bar::new())?;
    outputs.emit(|| show::text(&done), || done.to_json(), &[])?;
    let Some((_, first)) = done.new_misses().next() else {
        return Ok(());
    };
    let what = format!("{} First: {}", show::verdict(&done), first.id);
    Err(Fail::check(what, "", ""))
}
