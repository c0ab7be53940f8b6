//! `probe`: measures storage with several request sizes and queue depths, fits a device model to the results, and reports how much
//! readahead is sufficient.
//!
//! ```text
//!   source ──grid, rounds──► points ──► fit ──► FILE.toml ──► compare --on model:FILE.toml
//!                              └──────► one sentence, and the line that sets it
//! ```
//! Example: a volume answers in 0.2 ms and delivers 480 MB/s to one reader and 1,200 MB/s to 16 readers. The model that is fitted to this
//! volume has a latency of 0.200 ms, a link of 1200 MB/s, and 16 lanes (requests served at the same time) of 480 MB/s each. The probe
//! only reads from the source.
//!
//! Schema `foreread.probe/1`. Undefined values are null. MB is 10^6 bytes.

mod fit;
mod measure;
mod run;
pub mod verify;

pub use fit::Fit;
pub use run::{ProbeOptions, ProbeOutcome, probe};

pub use crate::station::{FileTimes, MIN_BYTES, Pattern, Spread, small_files, today};
use crate::verdict::{Step, Verdict};
use foreread_report::block::{self, Block};
use foreread_report::number::{or_dash, percent, size, three};
use foreread_report::width;
use serde::{Deserialize, Serialize};

/// Name and version of the JSON schema.
pub const SCHEMA: &str = "foreread.probe/1";
/// Largest width of a line, in characters.
const MAX_WIDTH: usize = 80;
/// If the median error of a model is larger than this limit, the model is too inexact to rank policies.
pub const DOUBTFUL: f64 = 0.25;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    pub schema: String,
    /// Version of foreread that measured.
    pub foreread: String,
    /// The source as the user named it, in the notation of `--on`.
    pub source: String,
    /// How it was read: `direct` or `virtual time`.
    pub source_about: String,
    /// Day of the measurement, `2026-11-30` (UTC). Null for a model.
    pub date: Option<String>,
    /// Size of the source in bytes.
    pub capacity_bytes: u64,
    /// Bytes from the start over which reads were spread.
    pub span_bytes: u64,
    /// Always true: the page cache is not involved.
    pub direct: bool,
    /// The device's present `read_ahead_kb`, in bytes. Null if unknown.
    pub readahead_bytes: Option<u64>,
    /// How long the probe took, in seconds. For a model: the sum of virtual seconds.
    pub seconds: f64,
    /// Median, over the points, of (third quartile - first) / median of the rounds. Null with fewer than three rounds.
    pub noise: Option<f64>,
    /// Notes about the result, a sentence each.
    pub notes: Vec<String>,
    /// Host time of a cache hit for each KiB, in nanoseconds.
    pub host_ns_per_kib: Spread,
    /// The measurements: sequential first, then random; by depth, then by size.
    pub points: Vec<Point>,
    pub fit: Fit,
    /// The smallest request size with which sequential reads, one at a time, reach 98 % of their best throughput ([Wu
    /// 2010b]'s mark).
    pub plateau_bytes: Option<u64>,
    /// How much readahead is enough, and the command that sets it.
    pub verdict: Verdict,
}

/// The measurements of one point: reads of one size and pattern at one queue depth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    pub pattern: Pattern,
    pub request_bytes: u64,
    /// Reads in flight at once.
    pub depth: u32,
    /// Rounds that were measured, spread over the whole time of the probe.
    pub rounds: u32,
    /// Reads of all rounds together.
    pub reads: u64,
    /// Throughput of the rounds, in 10^6 bytes a second.
    pub throughput_mb_s: Spread,
    /// Median latency of each round, in microseconds.
    pub latency_us: Spread,
    /// 99th percentile of the latencies of all rounds, in microseconds. Null with fewer than 100 reads.
    pub latency_p99_us: Option<f64>,
    /// Throughput by the model, in 10^6 bytes a second.
    pub model_mb_s: f64,
    /// `model_mb_s` / median throughput - 1.
    pub error: f64,
}

/// Formats the result of the probe as text, which ends with a newline.
pub fn render(probe: &Probe) -> String {
    let day = probe
        .date
        .as_ref()
        .map_or_else(String::new, |day| format!(", {day}"));
    let span = match probe.span_bytes < probe.capacity_bytes {
        true => format!(", the first {}", size(probe.span_bytes)),
        false => String::new(),
    };
    let mut blocks = vec![
        Block::Text(format!("{}.", probe.verdict.why)),
        Block::Gap,
        Block::Text(format!("Model: {}.", probe.fit.figures)),
        Block::Text(format!("{}.", probe.fit.error_in_words())),
        Block::Text(format!(
            "Measured: {} ({}{span}{day}), {} points in {} s, typical spread {}.",
            probe.source,
            probe.source_about,
            probe.points.len(),
            three(probe.seconds),
            or_dash(probe.noise, |noise| format!("{} %", percent(noise)))
        )),
    ];
    blocks.extend(probe.notes.iter().cloned().map(Block::Note));
    blocks.extend(probe.verdict.steps.iter().flat_map(Step::paste));
    block::text(blocks, width::columns().min(MAX_WIDTH), false)
}
