//! How fast storage answers: describes it, and measures a point (request size and queue depth) for one time slice.
//!
//! `probe` measures a grid of such points and fits a model; the first look at a disk (`glance`) measures two.

pub mod grid;
mod live;
mod virt;

pub use live::{FileTimes, small_files, today};
pub(crate) use live::{Lane, Live, Stop, rate};
pub(crate) use virt::OnModel;

use foreread_os::failure::Failure;
use foreread_os::host::devices::Device;
use grid::Task;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Each read begins where the one before it ended.
    Sequential,
    /// Each read begins at a multiple of its size, drawn evenly from the span.
    Random,
}

/// The median and quartiles of a figure that was measured several times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub median: f64,
    /// First quartile; the smallest value if there are fewer than four.
    pub low: f64,
    /// Third quartile; the largest value if there are fewer than four.
    pub high: f64,
}

impl Spread {
    pub(crate) const ZERO: Spread = Spread {
        median: 0.0,
        low: 0.0,
        high: 0.0,
    };

    /// Computes the median and quartiles of these values. Returns `None` if there are no values, or if a value is not finite.
    pub fn of(values: &[f64]) -> Option<Spread> {
        if values.is_empty() || values.iter().any(|v| !v.is_finite()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let edge = if n < 4 { 0 } else { n / 4 };
        Some(Spread {
            median: f64::midpoint(sorted[(n - 1) / 2], sorted[n / 2]),
            low: sorted[edge],
            high: sorted[n - 1 - edge],
        })
    }

    /// Returns the interquartile range divided by the median.
    pub fn relative(&self) -> Option<f64> {
        foreread_sim::stats::ratio(self.high - self.low, self.median)
    }
}

pub(crate) struct Slice {
    pub reads: u64,
    pub bytes_per_s: f64,
    /// The rate of the second half of the slice.
    pub late_bytes_per_s: f64,
    pub latency: Histogram<u64>,
    /// How long the slice took, with the warm-up.
    pub seconds: f64,
}

/// A real source or a model on which slices are measured.
pub(crate) trait Station {
    /// Facts that are known before measuring.
    fn about(&self) -> Result<About, Failure>;

    /// Number of bytes, from the start, that are read.
    fn span(&self) -> u64;

    fn slice(&mut self, task: Task, length: Duration, seed: u64) -> Result<Slice, Failure>;

    /// Nanoseconds of a hit of the engine's cache for each KiB: the call, the look-up and the copy.
    fn host_ns_per_kib(&self) -> Result<Spread, Failure>;

    fn is_virtual(&self) -> bool {
        false
    }
}

/// Facts that are known before measuring.
pub(crate) struct About {
    pub source: String,
    pub how: String,
    pub capacity_bytes: u64,
    pub readahead_bytes: Option<u64>,
    pub disk: Option<Device>,
}

/// Minimum size of a file or device to measure: requests of several sizes must fit into it several times.
pub const MIN_BYTES: u64 = 8 << 20;

/// The error for a source that is too small.
pub(crate) fn too_small(bytes: u64) -> Failure {
    let remedy = "name a file of at least 8 MiB on the same disk, ideally 1 GiB, or its block device (findmnt shows it)";
    Failure::input(format!("{bytes} bytes are too few to measure"), "", remedy)
}

/// The error for a source on which reads would measure the page cache.
pub(crate) fn cached(place: &str) -> Failure {
    let why = "direct I/O (O_DIRECT) is refused here, so reads would measure the page cache instead of the storage";
    let remedy = "probe the block device, or a file on another file system";
    Failure::input(place, why, remedy)
}
