//! The arguments of `foreread explain`. Never: looks at a file or a registry.

use super::ReplayArgs;
use super::values::size;
use foreread::source::SourceName;
use std::ffi::OsString;

/// Show file by file what readahead did in a trace, and why
///
/// The trace is replayed on a model of a storage, or with --on on a file, a disk or another source. Every read, decision
/// and page of readahead is counted for its file and stream: what was read ahead, used, late, never read, and why readahead was
/// on or off. A reason is the rule that the policy itself named; patterns are recognised by offsets alone, and are called patterns.
/// Below, the same reads with other policies, in paired runs as 'foreread compare' makes them.
///
/// The files' figures add up to the row that 'foreread compare TRACE --on SOURCE --policy POLICY --runs 1' shows. What is
/// explained is the replay, with an empty cache at its start, not the recorded system. Its own readahead
/// is reported if the trace has it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread explain app.strace --on model:nvme --file '*.so'
  foreread explain app.frt --only data.db --on /srv/data.db
  foreread explain app.frt --policy rbd-plain --against none,linux-6.18:max=2M")]
pub struct ExplainArgs {
    /// A trace in any known format, or a workload by its name
    #[arg(value_name = "TRACE|WORKLOAD")]
    pub trace: OsString,
    /// PATH, model:NAME, model-live:NAME, or nbd://, s3://...
    ///
    /// What 'foreread compare --on' takes. A file or block device is only read, past the page cache; the files of a trace
    /// are laid out in it one after the other, so it has to be as large as all of them, or --only selects one. Such a
    /// run is explained from its event log, which is kept in an unnamed temporary file until the end. 'foreread models'
    /// lists the models; 'foreread probe PATH -o FILE.toml' makes one of a storage.
    #[arg(long, value_name = "SOURCE", default_value = "model:rbd")]
    pub on: SourceName,
    /// Policy to explain [default: auto]
    ///
    /// Without it FOREREAD_POLICY, then what a configuration file sets ('foreread serve --help'), then auto.
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<String>,
    /// Policies to compare it with: a,b:k=v [default: five]
    #[arg(long, value_name = "LIST", conflicts_with = "alone")]
    pub against: Option<String>,
    /// Compare with no other policies
    #[arg(long)]
    pub alone: bool,
    /// Show only files whose names contain this; * is any text
    ///
    /// All files are replayed and count in the sums. To replay only some, use --only.
    #[arg(long, value_name = "PATTERN")]
    pub file: Option<String>,
    /// Rows of the table of files
    ///
    /// The file with the longest stall comes first.
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
    /// Size of the cache, such as 64M
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub cache: Option<u64>,
    /// Runs of each of the other policies
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: Option<u32>,
    #[command(flatten)]
    pub replay: ReplayArgs,
    /// Seed of the run
    #[arg(long, value_name = "N", default_value_t = 1, hide_short_help = true)]
    pub seed: u64,
    /// Print intervals, and how differences were tested
    ///
    /// In the table of the other policies: the 95 % interval of each ratio, and a line with the test and its correction.
    #[arg(long)]
    pub details: bool,
    /// Write JSON to a file, or '-' for stdout
    ///
    /// Schema foreread.explain/1, with every file and stream whatever --file and --limit show. With '-' the JSON takes the
    /// place of the text.
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<OsString>,
}
