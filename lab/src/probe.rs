//! `probe`: measures a storage by request size and by depth, fits the simplest model that holds, and says what to set.
//!
//! Reads only. Measurements are [`Point`]s, each with its spread; the model's value for the same point is
//! beside it. Never: writes to the source, measures the page cache unawares, or gives advice that no point supports.
//!
//! ```text
//!   source ──grid, rounds──► points ──► fit ──► model ──► FILE.toml ──► compare --on model:FILE.toml
//!                              │         ▲
//!                              └► advice ┘
//! ```
//!
//! Schema `foreread.probe/1`: keys are only ever added. What is not defined is null. MB is 10^6 bytes.

mod advice;
mod fit;
mod forms;
pub mod grid;
mod live;
mod measure;
mod page;
mod run;
mod settings;
mod table;
pub mod verify;
mod virt;

pub use advice::costs;
pub use foreread_sim::device::custom::Pattern;
pub use live::glance::{Glance, glance};
pub use live::small_files::{FileTimes, small_files};
pub use live::today;
pub use measure::MIN_BYTES;
pub use page::page;
pub use run::{ProbeOptions, ProbeOutcome, model_toml, probe};
pub use table::render;

use crate::setting::Setting;
use serde::{Deserialize, Serialize};

/// Name and version of the layout below.
pub const SCHEMA: &str = "foreread.probe/1";

/// Everything that one probe found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of foreread that measured.
    pub foreread: String,
    /// The source as it was named, in the notation of `--on`.
    pub source: String,
    /// How it was read: `direct`, `through the page cache`, `virtual time`.
    pub source_about: String,
    /// Day of the measurement, `2026-11-30` (UTC). Null for a model, which knows no day.
    pub date: Option<String>,
    /// Bytes that the source holds.
    pub capacity_bytes: u64,
    /// Bytes from its start on that reads were spread over.
    pub span_bytes: u64,
    /// True when the page cache was not involved.
    pub direct: bool,
    /// The device's present `read_ahead_kb`, in bytes. Null where it cannot be known.
    pub readahead_bytes: Option<u64>,
    /// How long it took, in seconds. Of a model: virtual seconds, summed.
    pub seconds: f64,
    /// Median, over the points, of (third quartile - first) / median of the rounds. Null with fewer than three rounds.
    pub noise: Option<f64>,
    /// What a reader must know, a sentence each.
    pub notes: Vec<String>,
    /// What the host spends on a cache hit, for each KiB, in nanoseconds.
    pub host_ns_per_kib: Spread,
    /// The measurements: sequential first, then random; by depth, then by size.
    pub points: Vec<Point>,
    /// The model.
    pub fit: Fit,
    pub advice: Advice,
}

/// Reads of one size in one order, this many of them kept going at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Their order.
    pub pattern: Pattern,
    /// Bytes of each.
    pub request_bytes: u64,
    /// How many are under way at once.
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
    /// What the model says, in 10^6 bytes a second. Null without a model.
    pub model_mb_s: Option<f64>,
    /// `model_mb_s` / median throughput - 1.
    pub error: Option<f64>,
}

/// A figure that was measured several times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The middle one.
    pub median: f64,
    /// First quartile; the smallest of fewer than four.
    pub low: f64,
    /// Third quartile; the largest of fewer than four.
    pub high: f64,
}

impl Spread {
    /// Nothing.
    pub(crate) const ZERO: Spread = Spread {
        median: 0.0,
        low: 0.0,
        high: 0.0,
    };

    /// Of some values; nothing of none, or of one that is not finite.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Spread> {
        if values.is_empty() || values.iter().any(|v| !v.is_finite()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let edge = if n < 4 { 0 } else { n / 4 };
        let median = f64::midpoint(sorted[(n - 1) / 2], sorted[n / 2]);
        Some(Spread {
            median,
            low: sorted[edge],
            high: sorted[n - 1 - edge],
        })
    }

    /// (third quartile - first) / median.
    #[must_use]
    pub fn relative(&self) -> Option<f64> {
        foreread_sim::stats::ratio(self.high - self.low, self.median)
    }
}

/// The model and how well it fits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// Its kind: `disk`, `array`, `lanes` or `net`.
    pub kind: String,
    /// Its figures, in one line for people.
    pub figures: String,
    /// Whether it holds: see `fit.rs`. One that does not is the best there is all the same.
    pub holds: bool,
    /// Why it was chosen, or what does not fit, in one sentence.
    pub reason: String,
    /// Largest error of a point, without sign.
    pub worst_error: f64,
    /// Median error of a point, without sign.
    pub median_error: f64,
    /// Root mean square error of the request sizes that the figures were fitted without. Null where it was not tried.
    pub left_out_error: Option<f64>,
    /// Every form that was tried, the simplest first.
    pub tried: Vec<TriedForm>,
}

/// A form that was tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TriedForm {
    /// What it is: `disk, 2 slopes`.
    pub form: String,
    /// Figures that were fitted.
    pub parameters: u32,
    /// As in [`Fit`].
    pub worst_error: f64,
    /// As in [`Fit`].
    pub median_error: f64,
    /// As in [`Fit`].
    pub left_out_error: Option<f64>,
    /// It is the one.
    pub chosen: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// The best sequential throughput with one read at a time, in 10^6 bytes a second.
    pub best_mb_s: Option<f64>,
    /// The smallest request, read in order and one at a time, that gets 90 % of it.
    pub request_90_bytes: Option<u64>,
    /// The smallest that gets 98 % of it: the readahead size from which on a larger one gains nothing.
    pub plateau_bytes: Option<u64>,
    /// The best throughput at any size and depth that was measured, in 10^6 bytes a second.
    pub best_deep_mb_s: Option<f64>,
    /// The fewest reads at once that get 90 % of it, at any size that was measured with several depths.
    pub depth_90: Option<u32>,
    /// The size of these reads.
    pub depth_90_bytes: Option<u64>,
    /// The largest readahead for this capacity by the formula of 2010 (its later form).
    pub capacity_cap_bytes: Option<u64>,
    /// The findings, a sentence each.
    pub findings: Vec<String>,
    /// What to set, as text to paste.
    pub settings: Vec<Setting>,
}
