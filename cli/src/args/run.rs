//! The arguments of `foreread run`. Never: looks at a file or a registry.

use foreread::OpenError;
use foreread_core::policy::PolicySpec;
use std::ffi::OsString;

/// Read ahead for a program that is not changed, while it runs
///
/// The reads and page faults of the command and its children are watched through the kernel's tracepoints, and what comes next is read into
/// the page cache: of files that are read or mapped, and the next files of a folder. The kernel's own readahead stays on, and what is cached
/// is not read again. Needs root and tracefs. Where there is nothing to gain it stops watching, and says so at the end.
///
/// The command has the terminal, and its exit code is the exit code (128 and the signal where one ended it); 127 and 126 where it cannot
/// be found or run. Before it runs: 2 bad input, 3 this machine cannot.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread run -- python3 serve.py --model /mnt/models/7b
  foreread run -- grep -r TODO /mnt/src")]
pub struct RunArgs {
    /// Which policy decides; see 'foreread policies'
    #[arg(long, value_name = "POLICY", default_value = "auto", value_parser = policy)]
    pub policy: PolicySpec,
    /// Withdrawn: says why
    #[arg(long, hide = true)]
    pub preload: bool,
    /// Print no summary
    #[arg(short, long)]
    pub quiet: bool,
    /// Write a summary in JSON to a file, or '-' for stdout
    ///
    /// Schema foreread.run/1.
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<OsString>,
    /// The command and its arguments
    #[arg(value_name = "CMD", last = true, required = true)]
    pub command: Vec<OsString>,
}

fn policy(text: &str) -> Result<PolicySpec, String> {
    PolicySpec::parse(text).map_err(|error| OpenError::Policy(error).to_string())
}
