//! The arguments of every command, and the one line that a wrong one gets.
//!
//! `-h` shows the first paragraph of each comment and fits 24 lines of 80 columns; `--help` shows all of it.
//! Never: looks at a file or a registry. What an argument means is its command's matter.

use crate::fail::Fail;
use crate::names;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use foreread_core::units::{PageSize, SizeError, parse_size};
use foreread_lab::report::Price;
use std::ffi::OsString;
use std::path::PathBuf;

/// Measures which readahead a workload needs on a storage, and what it gains
///
/// Readahead is a guess about what will be read next. 'foreread compare' runs a workload under several published
/// readahead policies, on a file, a block device or a model of a storage, and shows what each one gains, what it
/// reads in vain, and whether the difference is more than chance.
///
/// Exit codes: 0 done, 1 a check failed, 2 bad usage or bad input.
#[derive(Debug, Parser)]
#[command(name = "foreread", version, max_term_width = 80, disable_help_subcommand = true)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  foreread compare                                 a scratch file, two models
  foreread compare boot-ide --on model:rbd
  foreread compare random --on /dev/sdb --policy none,linux-6.18:max=1M"
)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure readahead policies on a file, a disk or a model
    Compare(Box<CompareArgs>),
    /// List the policies: parameters, defaults, units, origin
    #[command(after_help = "\
Written NAME or NAME:key=value,key=value; sizes take K, M, G, T.

Example:
  foreread compare --policy linux-6.18:max=1M,rbd-plain:trigger=3,max=1M")]
    Policies(ListArgs),
    /// List the device models: what they are, origin, how far they are off
    #[command(after_help = "\
Example:
  foreread compare --on model:rbd")]
    Models(ListArgs),
    /// List the workloads: parameters, defaults, units, origin
    #[command(after_help = "\
Written NAME or NAME:key=value,key=value; sizes take K, M, G, T.

Example:
  foreread compare random:record=16K --on model:nvme")]
    Workloads(ListArgs),
    /// Feed a recorded event log to a fresh core, compare its actions
    ReplayLog(ReplayLogArgs),
    /// Check our decisions against those recorded from a running kernel
    Conform(ConformArgs),
    /// Measure foreread itself
    Bench(BenchArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Print the manual page, or write all of them
    Man(ManArgs),
}

/// Measure readahead policies on a file, a disk or a model
///
/// Without arguments it makes a scratch file, removes it again, and runs four workloads on it and on two models.
/// The runs are paired and interleaved: run i of every policy meets the same reads and, on a model, the same luck.
/// A policy is marked as the fastest only if a paired t test, corrected for the number of comparisons, says so.
///
/// On a file the storage is read past the page cache (O_DIRECT), and a row 'kernel' reads the same through it, at
/// the device's own read_ahead_kb, with the file's pages dropped before each run.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread compare sequential --on disk.img
  foreread compare --on model:rbd --policy linux-6.18:max=1M,rbd-plain
  foreread compare boot-ide --on model:rbd --json - | jq '.rows[].time_s.mean'")]
pub struct CompareArgs {
    /// NAME[:key=value,...]; see 'foreread workloads' [default: four]
    #[arg(value_name = "WORKLOAD")]
    pub workload: Option<String>,
    /// PATH, file:PATH or model:NAME; see 'foreread models'
    ///
    /// A file is only read. By default a scratch file and two models.
    #[arg(long, value_name = "SOURCE")]
    pub on: Option<OsString>,
    /// 'all', 'peers', or a,b:key=value [default: the usual]
    ///
    /// 'foreread policies' lists them; 'peers' are imitations of other programs, for models only. 'none' is added where
    /// it is missing: the others are measured against it. On a model 'oracle' may be among them, and is unless the list
    /// names others: it knows all that will be read, so it is a limit and not a choice.
    #[arg(long, value_name = "LIST")]
    pub policy: Option<String>,
    /// Runs of each policy; one run allows no test
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: Option<u32>,
    /// Size of the cache, such as 64M
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub cache: Option<u64>,
    /// Size of a cache page: a power of two from 512 to 1M
    #[arg(long, value_name = "SIZE", value_parser = page_size)]
    pub page: Option<PageSize>,
    /// Seed of the first run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Bytes that the workload spans, such as 1G
    ///
    /// It is the size of the scratch file, too. By default the size of the file, or what the workload likes.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub size: Option<u64>,
    /// Add what a run costs: requests=USD,gb=USD or s3-2026-11
    ///
    /// USD for a million reads of the source and USD for 10^9 bytes of it: S3's 0.0004 for 1,000 GETs is
    /// requests=0.40. List prices by name: s3-2026-11 (same region), s3-internet-2026-11 (out to the internet); as
    /// generally known in that month, check yours. The column takes the place of MB/s.
    #[arg(long, value_name = "PRICE", hide_short_help = true, value_parser = price)]
    pub price: Option<Box<Price>>,
    /// Write the event log of every run on a file to this directory
    ///
    /// One log a run, WORKLOAD-POLICY-RUN.log; 'foreread replay-log' checks that a fresh core decides the same. Writing
    /// it makes the runs slower.
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub event_log: Option<PathBuf>,
    /// Measure at each of several values of a parameter
    ///
    /// KEY is a parameter of the workload ('streams=1,2,4,8'), 'cache', or 'policy.KEY' for a parameter of each policy
    /// that has it ('policy.max=32K,128K,512K'). It needs one workload and one source, and takes at most 64 values.
    /// Shown is a series: a row for each value, a column for each policy, the fastest of each row marked.
    #[arg(long, value_name = "KEY=V,...")]
    pub vary: Option<String>,
    /// Draw what --vary measures to this file
    ///
    /// Throughput with 95 % intervals and bytes from the source over the values, as an SVG picture that needs nothing
    /// else. A file that is there is replaced when the picture is whole.
    #[arg(long, value_name = "FILE", requires = "vary")]
    pub svg: Option<OsString>,
    /// Write JSON to a file, or '-' for stdout
    ///
    /// Schema foreread.compare/1, or foreread.vary/1 with --vary. With '-' the JSON takes the place of the tables.
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<OsString>,
}

/// A list of what there is.
#[derive(Debug, clap::Args)]
pub struct ListArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Feed a recorded event log to a fresh core, compare its actions
///
/// The engine can write every event it feeds to its core and every action it gets. A fresh core fed with the same
/// events must give the same actions; then what the simulator says is what the engine does.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints 'identical: N events, M actions', or the first difference (exit code 1).

Example:
  foreread replay-log run.log")]
pub struct ReplayLogArgs {
    /// The event log
    #[arg(value_name = "LOG")]
    pub log: PathBuf,
}

/// Whose decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ConformWhat {
    /// The Linux kernel's, against linux-6.18
    Linux,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ConformLevel {
    /// Pages brought in, and marks
    Pages,
    /// Every decision, folio, mark and state
    Full,
}

/// Check our decisions against those recorded from a running kernel
///
/// Every operation of the recording is carried out by linux-6.18. After a difference the check goes on with the next
/// episode; the predictions go on from our own state. What the recording does not answer is not compared.
///
/// At the level 'full' each operation must agree with the kernel's in its decisions, in the folios inserted and their
/// order, in the marks and in the state of the descriptor; the cache is probed as the kernel probes it. It covers every
/// recording. At the level 'pages' the operations go to the engine's own machine, with exact probes, and the pages
/// brought in and the marks must agree. It covers reads and hints without large folios (ext4 with data=journal).
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints 'decisions N divergences M'; any divergence is exit code 1.

Example:
  foreread conform linux --check ext4-128.jsonl.gz --predict ours.jsonl")]
pub struct ConformArgs {
    /// Whose decisions
    #[arg(value_name = "WHAT")]
    pub what: ConformWhat,
    /// The recording, .jsonl or .jsonl.gz
    #[arg(long, value_name = "REC")]
    pub check: PathBuf,
    /// What is compared
    #[arg(long, value_name = "LEVEL", default_value = "full")]
    pub level: ConformLevel,
    /// Write our own decisions, a JSON line for each operation
    #[arg(long, value_name = "OUT")]
    pub predict: Option<PathBuf>,
}

/// What to measure of foreread itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BenchWhat {
    /// Reads a second that the core and the simulator decide
    Sim,
    /// Cached reads a second, against pread from the page cache
    Hit,
}

/// Measure foreread itself
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread bench sim
  foreread bench hit --json -")]
pub struct BenchArgs {
    /// What to measure
    #[arg(value_name = "WHAT")]
    pub what: BenchWhat,
    /// Write JSON to a file, or '-' for stdout
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<OsString>,
}

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  foreread completions bash > /etc/bash_completion.d/foreread")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// Print the manual page, or write all of them
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread man | man -l -
  foreread man ~/.local/share/man/man1")]
pub struct ManArgs {
    /// Write foreread.1 and a page for each command to this directory
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

fn size(text: &str) -> Result<u64, String> {
    match parse_size(text) {
        Ok(0) => Err("nothing can be done with zero bytes".to_string()),
        Ok(bytes) => Ok(bytes),
        Err(SizeError::NotASize) => Err("it is not a size such as 512, 128K or 2G".to_string()),
        Err(SizeError::TooLarge) => Err("it is too large; a file has at most 4194304T".to_string()),
    }
}

fn price(text: &str) -> Result<Box<Price>, String> {
    Price::parse(text).map(Box::new).map_err(|error| error.to_string())
}

fn page_size(text: &str) -> Result<PageSize, String> {
    PageSize::new(size(text)?).ok_or_else(|| "it is not a power of two from 512 to 1M".to_string())
}

/// Answers what the parser refused: help and version are results, everything else is one line.
pub fn refuse(error: &clap::Error) -> Result<(), Fail> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => error.print().map_err(|e| match e.kind() {
            std::io::ErrorKind::BrokenPipe => Fail::Closed,
            _ => Fail::input("cannot write", format!("stdout: {e}"), "free some space or write elsewhere"),
        }),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // The help screen is what a bare `foreread` asks for; it goes to stderr, since nothing was done.
            let _ = error.print();
            Err(Fail::Said)
        }
        ErrorKind::InvalidSubcommand => {
            let name = match error.get(ContextKind::InvalidSubcommand) {
                Some(ContextValue::String(name)) => name.as_str(),
                _ => "",
            };
            let command = Args::command();
            let known: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
            Err(names::unknown("command", name, &known, "foreread -h"))
        }
        _ => Err(Fail::Input(in_one_line(error))),
    }
}

/// The parser's complaint and its tips without its usage, and the command that helps.
fn in_one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let mut parts = Vec::new();
    for paragraph in text.split("\n\n") {
        let line = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some(what) = line.strip_prefix("error: ") {
            parts.push(what.to_string());
        } else if let Some(tip) = line.strip_prefix("tip: ") {
            parts.push(tip.to_string());
        }
    }
    parts.push(format!("see 'foreread{} -h'", command_asked()));
    parts.join("; ")
}

/// ` compare`, if that is the command that was asked for. The parser does not always tell.
fn command_asked() -> String {
    let asked = std::env::args_os().nth(1).unwrap_or_default();
    let known = Args::command().get_subcommands().any(|c| asked == c.get_name());
    if known { format!(" {}", asked.display()) } else { String::new() }
}
