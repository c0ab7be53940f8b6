//! The arguments of `foreread tune`. Never: looks at a file or a registry.

use super::ReplayArgs;
use super::values::size;
use foreread::source::SourceName;
use std::ffi::OsString;
use std::path::PathBuf;

/// Record a program, measure its storage, say what to set
///
/// The whole story in one command: records what a command reads ('foreread record'), or takes a trace; measures the storage
/// where the largest of its files lives ('foreread probe'), or takes a model; compares the kernel's readahead at several
/// settings, hints and foreread's policies on a model of it, in pairs of runs ('foreread compare'); and says what to set
/// and what to expect of it, with a 95 % interval. Where there is nothing to gain it says so.
///
/// Everything is held against today: the kernel's readahead at the present read_ahead_kb of the storage. All is foretold
/// on a model, from an empty cache: 'foreread probe --verify' shows how far that can be trusted.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread tune -- grep -r TODO /srv/src
  foreread tune app.frt --on /dev/sdb
  foreread tune app.strace --on model:nvme")]
pub struct TuneArgs {
    /// A trace in any known format
    #[arg(value_name = "TRACE", required_unless_present = "command", conflicts_with = "command")]
    pub trace: Option<OsString>,
    /// Where its files live: PATH, or model:NAME [default: found]
    ///
    /// A file or block device is probed; its reads bypass the page cache. A model is taken as it is, also model:FILE.toml.
    /// By default the file of the trace that most was read of and that is on this machine.
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
    /// Keep the recorded trace here
    #[arg(short, long, value_name = "TRACE", requires = "command")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub replay: ReplayArgs,
    /// Seed of the first run
    #[arg(long, value_name = "N", default_value_t = 1, hide_short_help = true)]
    pub seed: u64,
    /// Write JSON to a file, or '-' for stdout
    ///
    /// Schema foreread.tune/1. With '-' the JSON takes the place of the text.
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<OsString>,
    /// A command to record, and its arguments
    #[arg(value_name = "CMD", last = true)]
    pub command: Vec<OsString>,
}
