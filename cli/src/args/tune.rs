//! The arguments of `foreread tune`. Never: looks at a file or a registry.

use super::ReplayArgs;
use super::values::size;
use foreread::source::SourceName;
use std::ffi::OsString;
use std::path::PathBuf;

/// Record a program, measure its storage, advise settings
///
/// All steps in one command: records the reads of a command ('foreread record'), or takes a trace; measures the disk
/// that its reads waited for ('foreread probe'), or takes a model; compares the kernel's readahead at several settings,
/// hints and foreread's policies on a model of it, in pairs of runs ('foreread compare'); and prints what to set and what to
/// expect, with a 95 % interval. Where a change would save less than 10 % of the time it says so.
///
/// The recorded trace is kept. Ctrl-C ends the command, or the recording of --pid; the advice still follows. The exit
/// code is that of the command.
///
/// Everything is compared with today: the kernel's readahead at the present read_ahead_kb of the disk. All of it is
/// simulated, from an empty cache: 'foreread probe --verify' shows how far that can be trusted.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread tune -- grep -r TODO /srv/src
  foreread tune --pid 4711
  foreread tune app.frt --on /dev/sdb
  foreread tune app.strace --on model:nvme")]
pub struct TuneArgs {
    /// A trace in any known format
    #[arg(value_name = "TRACE", required_unless_present_any = ["command", "pid"], conflicts_with_all = ["command", "pid"])]
    pub trace: Option<OsString>,
    /// Record this process until it ends or Ctrl-C
    ///
    /// Its children are recorded too.
    #[arg(long, value_name = "N", conflicts_with = "command")]
    pub pid: Option<u32>,
    /// Storage: PATH, model:NAME [default: found by the trace]
    ///
    /// A file or block device is probed; its reads bypass the page cache. A model is taken as it is, also model:FILE.toml.
    /// By default the disk that the reads of the trace took longest on: the file there that most was read of, or the disk
    /// itself where the files are small.
    #[arg(long, value_name = "SOURCE")]
    pub on: Option<SourceName>,
    /// Time to measure the storage, in seconds
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: u32,
    /// Runs of each policy on the model
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: Option<u32>,
    /// Size of the cache, such as 64M
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub cache: Option<u64>,
    /// The recorded trace [default: foreread-CMD.frt]
    #[arg(short, long, value_name = "TRACE", conflicts_with = "trace")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub replay: ReplayArgs,
    /// Seed of the first run
    #[arg(long, value_name = "N", default_value_t = 1, hide_short_help = true)]
    pub seed: u64,
    /// Print how differences were tested
    ///
    /// A line below the table: the test, its correction, how many pairs of rows, and the level.
    #[arg(long)]
    pub details: bool,
    /// Write JSON to a file, or '-' for stdout
    ///
    /// Schema foreread.tune/1. With '-' the JSON takes the place of the text.
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<OsString>,
    /// A command to record, and its arguments
    #[arg(value_name = "CMD", last = true)]
    pub command: Vec<OsString>,
}
