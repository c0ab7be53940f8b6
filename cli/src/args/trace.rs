//! The arguments of `foreread import`, `export` and `trace`. Never: looks at a file or a registry.

use super::ListArgs;
use clap::Subcommand;
use std::ffi::OsString;
use std::path::PathBuf;

/// Convert a trace of any known format to foreread's format
///
/// The format is recognised by its content; where that would be a guess it has to be named. Nothing is lost: units
/// become nanoseconds and bytes, what the format lacks is noted in the header, what was passed over is counted.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread import disk.vscsi.gz
  foreread import sda.blktrace.* -o sda.frt
  foreread import spc.csv --format spc -o spc.frt")]
pub struct ImportArgs {
    /// The trace; several files only for traces with one file per CPU
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// The output file, or '-' for stdout [default: FILE.frt]
    #[arg(short, long, value_name = "OUT")]
    pub out: Option<PathBuf>,
    /// NAME[:key=value,...]; see 'foreread trace formats'
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
}

/// Write a trace in another format
///
/// Records that the format cannot express are left out and counted.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread export disk.frt --format csv -o disk.csv
  foreread export disk.vscsi.gz --format fio -o - | head")]
pub struct ExportArgs {
    /// A trace in any known format
    #[arg(value_name = "TRACE", required = true)]
    pub files: Vec<PathBuf>,
    /// The output file, or '-' for stdout
    #[arg(short, long, value_name = "OUT")]
    pub out: PathBuf,
    /// The new format, NAME[:key=value,...]; see 'foreread trace formats'
    #[arg(long, value_name = "FORMAT")]
    pub format: String,
    /// The format of TRACE, NAME[:key=value,...]
    #[arg(long, value_name = "FORMAT")]
    pub from: Option<String>,
}

/// Describe a trace, list the trace formats
#[derive(Debug, clap::Args)]
pub struct TraceArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: TraceCommand,
}

/// Commands for traces.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Describe a trace: sizes, streams, latency, what it lacks
    Info(InfoArgs),
    /// List the formats: what is read and written, units, keys
    #[command(after_help = "\
Example:
  foreread import spc.csv --format spc")]
    Formats(ListArgs),
}

/// Describe a trace: sizes, streams, latency, what it lacks
///
/// Counts, sizes, streams, reuse, span, latency. Memory is bounded: for a large trace some figures become an
/// estimate, and are called one.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread trace info disk.frt
  foreread trace info disk.vscsi.gz --json - | jq .streams")]
pub struct InfoArgs {
    /// A trace in any known format
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// NAME[:key=value,...]; see 'foreread trace formats'
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// Write JSON to a file, or '-' for stdout
    ///
    /// Schema foreread.trace-info/1.
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<OsString>,
}
