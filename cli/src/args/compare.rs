//! The arguments of `foreread compare`. Never: looks at a file or a registry.

use super::values::{page_size, price, size};
use clap::ValueEnum;
use foreread::source::SourceName;
use foreread_core::units::PageSize;
use foreread_lab::report::Price;
use std::ffi::OsString;
use std::path::PathBuf;

/// How a replay keeps time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReplayMode {
    /// As fast as possible: a reader's next read begins when the one before has ended
    #[value(alias = "afap")]
    Asap,
    /// The same, after the pause that was recorded between the two
    Closed,
    /// Each read at its recorded time; latencies count from there
    Open,
    /// Each read when what it waits for has happened, and its recorded delay has passed
    Deps,
}

/// Measure readahead policies on a file, a disk or a model
///
/// Without arguments it makes a scratch file, removes it again, and runs four workloads on it and on two models.
/// The runs are paired and interleaved: run i of every policy has the same reads and, on a model, the same random numbers.
/// A policy is called the fastest only if the difference is more than noise; --details shows how that was tested.
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
    /// NAME[:key=value,...], or a trace to replay [default: four]
    ///
    /// 'foreread workloads' lists the names, 'foreread trace formats' the formats of traces. Anything else
    /// is treated as a trace file; trace:FILE always is.
    #[arg(value_name = "WORKLOAD|TRACE")]
    pub workload: Option<OsString>,
    /// PATH, model:NAME, model-live:NAME, or nbd://, s3://...
    ///
    /// Files and block devices are only read; a path may be written file:PATH. 'foreread models' lists the models;
    /// model-live: runs the engine on a model in real time. nbd://HOST/EXPORT, nbd+unix:///EXPORT?socket=PATH and
    /// rbd:POOL/IMAGE[@SNAP] are read through the engine; http(s)://HOST/PATH and s3://BUCKET/KEY need a build with
    /// --features object. By default a scratch file and two models.
    #[arg(long, value_name = "SOURCE")]
    pub on: Option<SourceName>,
    /// 'all', 'peers', or a,b:key=value [default: the usual]
    ///
    /// 'foreread policies' lists them; 'peers' are imitations of other programs, for models only. 'none' is added where
    /// it is missing: the others are compared with it. On a model 'oracle' may be in the list, and is unless the list
    /// names others: the best schedule found with perfect foresight, an upper limit.
    #[arg(long, value_name = "LIST")]
    pub policy: Option<String>,
    /// Runs of each policy; a single run allows no test
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: Option<u32>,
    /// Size of the cache, such as 64M
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub cache: Option<u64>,
    /// Size of a cache page: a power of two from 512 to 1M
    #[arg(long, value_name = "SIZE", value_parser = page_size)]
    pub page: Option<PageSize>,
    /// How the replay of a trace keeps time [default: the best that the trace allows]
    ///
    /// Times of different modes cannot be compared.
    #[arg(long, value_name = "MODE", hide_short_help = true)]
    pub mode: Option<ReplayMode>,
    /// A factor on the recorded pauses of a trace: 0, 0.5, 1, 2
    ///
    /// In mode asap, which has none, the factor is on the gaps between the starts of reads: for a trace whose think time
    /// is unknown, 0, 0.5, 1 and 2 show how much it matters ('--vary think=0,0.5,1,2').
    #[arg(long, value_name = "FACTOR", hide_short_help = true)]
    pub think: Option<f64>,
    /// Replay only the first N records of a trace
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// Replay only the files of a trace whose names contain TEXT
    #[arg(long, value_name = "TEXT", hide_short_help = true)]
    pub only: Option<String>,
    /// The format of the trace, NAME[:key=value,...]; by default what its content shows
    #[arg(long, value_name = "FORMAT", hide_short_help = true)]
    pub format: Option<String>,
    /// Seed of the first run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Bytes that the workload spans, such as 1G
    ///
    /// Also the size of the scratch file. Default: the size of the file, or the workload's usual size.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub size: Option<u64>,
    /// Add the cost of a run: requests=USD,gb=USD or s3-2026-11
    ///
    /// USD for a million reads of the source and USD for 10^9 bytes of it: S3's 0.0004 for 1,000 GETs is
    /// requests=0.40. List prices by name: s3-2026-11 (same region), s3-internet-2026-11 (out to the internet); as
    /// generally known in that month, check yours. The column replaces MB/s.
    #[arg(long, value_name = "PRICE", hide_short_help = true, value_parser = price)]
    pub price: Option<Box<Price>>,
    /// Write the event log of every run on a file to this directory
    ///
    /// The directory is made if needed. One log a run, WORKLOAD-POLICY-RUN.log; 'foreread replay-log' checks that a fresh core decides the same. Writing
    /// it makes the runs slower.
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub event_log: Option<PathBuf>,
    /// Treat growth of the file as an append
    ///
    /// Without it growth ends the comparison if bytes that were read before have changed.
    #[arg(long, hide_short_help = true)]
    pub appending: bool,
    /// Repeat for each of several values of a parameter
    ///
    /// KEY is a parameter of the workload ('streams=1,2,4,8'), 'cache', or 'policy.KEY' for a parameter of each policy
    /// that has it ('policy.max=32K,128K,512K'). It needs one workload and one source, and takes at most 64 values.
    /// Prints a row for each value and a column for each policy, with the fastest of each row marked.
    #[arg(long, value_name = "KEY=V,...")]
    pub vary: Option<String>,
    /// Print how differences were tested
    ///
    /// A line below the table: the test, its correction, how many pairs of rows, and the level.
    #[arg(long)]
    pub details: bool,
    /// Draw the results of --vary to this file
    ///
    /// Throughput with 95 % intervals and bytes from the source over the values, as an SVG picture that needs nothing
    /// else. An existing file is replaced when the picture is complete.
    #[arg(long, value_name = "FILE", requires = "vary", hide_short_help = true)]
    pub svg: Option<OsString>,
    /// Write a page with charts to this file
    ///
    /// One file of HTML that loads nothing and runs no script: times with 95 % intervals, bytes, latencies, for models a
    /// map of the reads (hit, late, miss, unused), with --vary the plateaus; every value, and the JSON inside.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub html: Option<OsString>,
    /// Write JSON to a file, or '-' for stdout
    ///
    /// Schema foreread.compare/1, or foreread.vary/1 with --vary. With '-' the JSON replaces the tables.
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<OsString>,
}
