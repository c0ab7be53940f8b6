//! The arguments of `foreread watch`. Never: looks at a file or a registry.

use super::values::{gain, time};
use foreread::source::SourceName;
use std::path::PathBuf;
use std::time::Duration;

/// Set read_ahead_kb of a disk by what its readers do
///
/// A daemon: now and then it records what every process reads of files on the disk (kernel's tracepoints: root, tracefs), compares settings as
/// 'foreread tune' does, and sets what saves at least 10 % of the time that reads take. Two recordings one after the other
/// have to say the same. The old value comes back when the gain is gone, and at the end: by Ctrl-C, SIGTERM, or a guard process after SIGKILL. A
/// value that another program sets meanwhile stays.
///
/// Files that are open keep the old value. Reads of the device itself (a virtual machine's disk) and past the page cache are not
/// seen. A recording costs the machine's system calls half a microsecond each while it runs.
///
/// Before it begins: 2 bad input, 3 this machine cannot.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread watch /dev/sdb --dry-run
  foreread watch /dev/sdb --every 30m --on model:sdb.toml")]
pub struct WatchArgs {
    /// The disk, such as /dev/sdb
    #[arg(value_name = "DEVICE")]
    pub device: PathBuf,
    /// From the start of a recording to the next
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = time)]
    pub every: Duration,
    /// How long to record
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = time)]
    pub length: Duration,
    /// Part of the reads' time that a change has to save
    #[arg(long, value_name = "PERCENT", default_value = "10%", value_parser = gain)]
    pub min_gain: f64,
    /// A model of the disk [default: it is measured]
    ///
    /// model:NAME or model:FILE.toml, which 'foreread probe DEVICE -o FILE.toml' writes. By default the disk is measured when a recording has
    /// enough reads, and again after a day: 15 seconds of direct reads.
    #[arg(long, value_name = "MODEL")]
    pub on: Option<SourceName>,
    /// Say what would be set, and set nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Make one recording, say what it shows, set nothing
    #[arg(long)]
    pub once: bool,
    /// Print a line of JSON for each event
    ///
    /// Schema foreread.watch/1.
    #[arg(long)]
    pub json: bool,
}
