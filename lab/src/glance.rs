//! A short measurement of a device by a few dozen direct reads: the latency of a random page and the rate of large
//! reads.
//!
//! ```text
//!   4 KiB at random, one at a time     256 at most, 0.8 s     the median is the latency
//!   1 MiB at random, four at a time     96 at most, 1.2 s     the rate is that of the last two thirds
//! ```
//! The two measurements together read at most 97 MiB. Only the last two thirds of the large reads are measured, because storage that was
//! idle may answer the first reads faster than it can sustain. Example: a 200 MB/s link with 20 MB of burst credit delivers 490 MB/s over
//! 33 MiB, but 205 MB/s over the last two thirds of 96 MiB. The reads bypass the page cache.

use crate::station::grid::Task;
use crate::station::{Live, Pattern, Stop, rate};
use foreread::source::Source;
use foreread_os::failure::Failure;
use foreread_sim::stats::percentile_ns;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SMALL: Task = Task {
    pattern: Pattern::Random,
    depth: 1,
    bytes: 4 << 10,
};
const SMALL_STOP: Stop = Stop {
    time: Duration::from_millis(800),
    reads: 256,
    warm_up: false,
};
const LARGE: Task = Task {
    pattern: Pattern::Random,
    depth: 4,
    bytes: 1 << 20,
};
const LARGE_STOP: Stop = Stop {
    time: Duration::from_millis(1200),
    reads: 24,
    warm_up: false,
};

/// The result of a short measurement: latency and rate of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Glance {
    /// Median latency of random reads of a page, in microseconds.
    pub latency_us: f64,
    /// Rate of large reads, in 10^6 bytes a second.
    pub mb_per_s: f64,
}

/// A seed that differs each time: the device or its host may have cached the offsets of the last time.
fn seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(1, |since| since.as_nanos() as u64)
}

/// Opens a device. Returns `None` if it refuses direct reads or is smaller than `least`.
fn opened(path: &Path, least: u64) -> Result<Option<Live>, Failure> {
    let live = Live::open(path, u64::MAX)?;
    let source = &live.source;
    Ok((source.is_direct() && source.size() >= least).then_some(live))
}

/// Measures a device. Returns `None` if direct reads are refused or the device is too small.
///
/// # Errors
/// Returns an error if the device cannot be opened or read.
pub fn glance(path: &Path) -> Result<Option<Glance>, Failure> {
    let Some(mut live) = opened(path, 2 * u64::from(LARGE.depth) * LARGE.bytes)? else {
        return Ok(None);
    };
    let small = live.lanes(SMALL, SMALL_STOP, seed())?;
    let median = percentile_ns(&small[0].latency, 50.0).unwrap_or_default();
    let large = live.lanes(LARGE, LARGE_STOP, seed())?;
    let began = large.iter().map(|lane| lane.began).min();
    let ends = large.iter().flat_map(|lane| &lane.done);
    let ends = ends.filter_map(|end| Some(*end - began?)).collect();
    Ok(Some(Glance {
        latency_us: median as f64 / 1e3,
        mb_per_s: lasting_rate(ends),
    }))
}

/// Bytes of one sequential measurement, and its time limit.
const IN_ORDER_BYTES: u64 = 8 << 20;
const IN_ORDER_TIME: Duration = Duration::from_millis(80);
/// Larger windows are no faster.
const MAX_WINDOW_BYTES: u64 = 4 << 20;

/// Measures the rate of a sequential reader with readahead windows of this size, in 10^6 bytes per second. Direct reads
/// imitate the kernel's readahead, which has two windows in flight. Returns `None` if direct reads are refused or the
/// file is too small.
///
/// # Errors
/// Returns an error if the file cannot be opened or read.
pub fn in_order(path: &Path, window_bytes: u64) -> Result<Option<f64>, Failure> {
    let task = Task {
        pattern: Pattern::Sequential,
        depth: 2,
        bytes: window_bytes.clamp(SMALL.bytes, MAX_WINDOW_BYTES),
    };
    let Some(mut live) = opened(path, 4 * task.bytes)? else {
        return Ok(None);
    };
    let bytes = IN_ORDER_BYTES.min(live.source.size() / 2);
    let stop = Stop {
        time: IN_ORDER_TIME,
        reads: (bytes / task.bytes / 2) as usize,
        warm_up: false,
    };
    let lanes = live.lanes(task, stop, seed())?;
    Ok(Some(rate(&lanes, task.bytes) / 1e6))
}

/// Rate of large reads by the times at which they ended, in 10^6 bytes a second. The first third is left out if
/// enough remains.
fn lasting_rate(mut ends: Vec<Duration>) -> f64 {
    ends.sort_unstable();
    let (skipped, since) = match ends.len() / 3 {
        third if third > LARGE.depth as usize => (third, ends[third - 1]),
        _ => (0, Duration::ZERO),
    };
    let until = ends.last().copied().unwrap_or_default();
    let bytes = (ends.len() - skipped) as u64 * LARGE.bytes;
    bytes as f64 / 1e6 / (until - since).as_secs_f64().max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 20 MB at once, then 200 MB/s; and a storage that is too slow for more than a few reads.
    #[test]
    fn the_rate_is_the_one_that_lasts() {
        let ms = Duration::from_millis;
        let ends = |n: u64| ms(1 + 5 * n.saturating_sub(20));
        let saved: Vec<Duration> = (0..96).map(ends).collect();
        let rate = lasting_rate(saved);
        assert!((rate - 1.048_576 / 0.005).abs() < 5.0, "{rate}");
        let slow = vec![ms(1000), ms(1000), ms(2000), ms(2000)];
        assert!((lasting_rate(slow) - 4.0 * 1.048_576 / 2.0).abs() < 0.01);
    }
}
