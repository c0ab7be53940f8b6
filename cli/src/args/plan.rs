//! The arguments of `foreread plan`, `replay` and `warm`. Never: looks at a file.

use super::values::{share, since, size};
use foreread_plan::layout::Format;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Make a plan of what a program reads, of recorded runs or headers
///
/// A plan is a text file: which ranges of which files a program needs, in which order and how soon. 'foreread replay' brings
/// them into the page cache while the program runs, 'serve --plan' and 'mount --plan' into foreread's own cache.
///
/// Of several runs only what at least two thirds of them read is taken (--at-least). With --format, no run is needed: the
/// headers of model and table files say where their parts are. A file that has changed since the recording is left out and named.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread record -o a.frt -- ./app; foreread plan a.frt -o app.plan
  foreread plan --format safetensors model/*.safetensors -o model.plan")]
pub struct PlanArgs {
    /// Recorded runs (a trace each); with --format, the files
    #[arg(value_name = "INPUT", required = true)]
    pub inputs: Vec<PathBuf>,
    /// Where to write the plan
    #[arg(short, long, value_name = "PLAN")]
    pub out: PathBuf,
    /// Take what this share of the runs read, such as 1/2
    #[arg(long, value_name = "N/M", default_value = "2/3", value_parser = share, conflicts_with = "format")]
    pub at_least: (u32, u32),
    /// Bytes at most; keeps what was waited for longest
    ///
    /// By the wait for a byte; ties by time.
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with = "format")]
    pub max: Option<u64>,
    /// Leave out what is needed later than this, such as 30s
    #[arg(long, value_name = "TIME", value_parser = since, conflicts_with = "format")]
    pub since_start: Option<Duration>,
    /// safetensors, gguf, parquet, zip or zarr: read headers
    #[arg(long, value_name = "NAME", value_parser = format)]
    pub format: Option<Format>,
    /// With --format: only parts of these names, such as 'layers.0.*'
    ///
    /// Tensors, columns, entries of an archive, or arrays of zarr.
    #[arg(
        long,
        visible_alias = "columns",
        value_name = "NAMES",
        value_delimiter = ',',
        requires = "format"
    )]
    pub tensors: Vec<String>,
    /// The format of the traces, where it is not found out
    #[arg(
        long,
        value_name = "FORMAT",
        hide_short_help = true,
        conflicts_with = "format"
    )]
    pub from: Option<String>,
    /// Print a summary in JSON
    #[arg(long, hide_short_help = true)]
    pub json: bool,
}

fn format(text: &str) -> Result<Format, String> {
    let known = foreread_plan::layout::FORMATS
        .iter()
        .find(|(name, _)| *name == text);
    known
        .map(|(_, format)| *format)
        .ok_or_else(|| "one of safetensors, gguf, parquet, zip, zarr".to_string())
}

/// Bring a plan into the page cache, while a command runs
///
/// The ranges are read in the order of the plan, as many at once as the storage takes; what is cached already is not read again. CMD
/// starts at once and has the terminal; when it ends, nothing more is read, and its exit code is the exit code (126 and 127 where it
/// cannot be started). Without CMD it returns when the plan is cached.
///
/// It reads no more than the control group and the machine have memory for, less an eighth; with CMD it goes on when CMD has used
/// what is there. Files that have changed since the plan was made are left out and named.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread replay model.plan -- python3 serve.py
  foreread replay app.plan --report -- ./app")]
pub struct ReplayPlanArgs {
    /// A plan of 'foreread plan'
    #[arg(value_name = "PLAN")]
    pub plan: PathBuf,
    /// Bytes to read at most
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max: Option<u64>,
    /// Say what was fetched, used, late, unused (records CMD: root)
    #[arg(long)]
    pub report: bool,
    /// Write the same in JSON to a file, or '-' for stdout
    ///
    /// Schema foreread.replay/1.
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<OsString>,
    /// The command and its arguments
    #[arg(value_name = "CMD", last = true)]
    pub command: Vec<OsString>,
}

/// Bring whole files into the page cache, at the storage's full rate
///
/// Folders with all that is below them. What is cached already is not read again, so a call that was ended goes on where it stopped.
/// It stops when the memory of the control group or the machine is full but for an eighth, and says so.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  foreread warm model/*.safetensors --progress")]
pub struct WarmArgs {
    /// Files and folders
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,
    /// Show a progress bar
    #[arg(long)]
    pub progress: bool,
    /// Bytes to read at most
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
