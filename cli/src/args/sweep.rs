//! The arguments of `foreread sweep`. Never: looks at a file or a registry.

use super::values::size;
use foreread::source::SourceName;
use std::ffi::OsString;
use std::path::PathBuf;

/// Measure many traces, policies, device models and caches, over the cores
///
/// Each combination is a cell: what 'foreread compare' shows for that policy alone. A cell is one file of JSON (schema
/// foreread.sweep/1) in the directory, written when it is complete: a sweep that was ended goes on where it was, and one with
/// more traces or policies measures only what is missing. A trace whose size has changed is measured anew. A trace may be an
/// object (s3://BUCKET/KEY), which is copied to a temporary file while it is measured.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread sweep *.frt --on model:rbd,model:nvme --policy auto,linux-6.18 -o out
  foreread sweep boot-ide --on model:rbd --cache 16M,256M -o out --json -")]
pub struct SweepArgs {
    /// Traces, or workloads by name
    #[arg(value_name = "WORKLOAD|TRACE", required = true)]
    pub traces: Vec<OsString>,
    /// Device models, such as model:rbd,model:sdb.toml
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "model:rbd"
    )]
    pub on: Vec<SourceName>,
    /// Policies: a,b:key=value, or 'all' [default: none,auto,linux-6.18]
    #[arg(long, value_name = "LIST")]
    pub policy: Option<String>,
    /// Sizes of the cache, such as 16M,256M [default: the usual one]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = size)]
    pub cache: Vec<u64>,
    /// Runs of each cell
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Seed of the first run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Directory of the cells; made if needed
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Cells at once [default: the cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// Measure nothing; list the cells that are missing, as JSON, those of large traces first
    ///
    /// Each with its key and the name of its file. For programs that have other machines measure them.
    #[arg(long, hide_short_help = true)]
    pub missing: bool,
    /// Write JSON to a file, or '-' for stdout
    ///
    /// A list of all cells, those of earlier runs among them.
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<OsString>,
}
