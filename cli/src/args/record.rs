//! The arguments of `foreread record`. Never: looks at a file or a registry.

use super::values::size;
use std::ffi::OsString;
use std::path::PathBuf;

/// Record the reads of a program as a trace
///
/// Every read of the command and its children: read, pread, readv, preadv, sendfile, copy_file_range, splice,
/// faults of mapped pages, hints; io_uring where the page cache sees it. With file, descriptor, offset, length, times and
/// thread, from the kernel's tracepoints: it needs root and tracefs. Names are found by device and inode.
///
/// The command has the terminal, and its exit code is the exit code (128 and the signal where one ended it). Before it
/// runs: 2 bad input, 3 this machine cannot. After it: 1 with --strict and lost events, or a recording that another program
/// switched off, 2 if the trace cannot be written.
///
/// Without root: 'strace -f -ttt -T -y -o FILE CMD' and 'foreread import FILE', or import a text that root has recorded
/// with ftrace or perf.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread record -o grep.frt -- grep -r TODO src
  foreread record -o db.frt --pid 4711")]
pub struct RecordArgs {
    /// Where to write the trace
    #[arg(short, long, value_name = "TRACE")]
    pub out: PathBuf,
    /// Record this process and its children until it ends or Ctrl-C
    #[arg(long, value_name = "N", conflicts_with = "command")]
    pub pid: Option<u32>,
    /// Memory for event buffers, all CPUs together
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size)]
    pub buffer: u64,
    /// Exit code 1 if events were lost or the recording was stopped
    #[arg(long)]
    pub strict: bool,
    /// Record the kernel's own readahead too
    ///
    /// As reads with the flag 1 (readahead), which a replay skips.
    #[arg(long)]
    pub kernel_decisions: bool,
    /// Print no summary
    #[arg(short, long)]
    pub quiet: bool,
    /// Write a summary in JSON to a file, or '-' for stdout
    ///
    /// Schema foreread.record/1.
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<OsString>,
    /// The command and its arguments
    #[arg(value_name = "CMD", last = true, required_unless_present = "pid")]
    pub command: Vec<OsString>,
}
