//! A short measurement of a disk by direct reads. Other programs can only slow it down, so it keeps the best of its undisturbed samples.
//!
//! ```text
//!   4 KiB at random, one at a time    128 reads or 0.4 s      latency: the lower median of two samples
//!   1 MiB at random, four at a time    96 reads or 1.2 s      rate: the higher one of two samples, of their last two thirds
//!   in order, two windows in flight     8 MiB or 80 ms        for each size: the second best of eight samples
//! ```
//! A sample is disturbed if its threads waited for a processor for more than a tenth of the time, or if other programs moved more than a
//! tenth of its bytes from or to the disk. A disturbed sample does not count, and is repeated while there is time. Example: beside a
//! compiler two of three samples of 512 KiB are disturbed (390 and 450 MB/s), so further rounds are read until eight count (781, 770,
//! 790 MB/s and so on). If too few count, if the two best differ by more than a quarter, or if other programs use more than half of the
//! processors, the machine is too busy, and there is no result.
//!
//! An idle machine reads at most 449 MiB. Only the last two thirds of the large reads are measured, because storage that was idle may
//! answer the first reads faster than it can sustain. Example: a 200 MB/s link with 20 MB of burst credit delivers 490 MB/s over 33 MiB,
//! but 205 MB/s over the last two thirds of 96 MiB. The reads bypass the page cache.

use crate::station::grid::Task;
use crate::station::{Lane, Live, Stop, rate};
use foreread::source::Source;
use foreread_os::failure::Failure;
use foreread_os::host::Host;
use foreread_sim::stats::percentile_ns;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const SMALL: Task = Task::random(1, 4 << 10);
const SMALL_STOP: Stop = Stop {
    time: Duration::from_millis(400),
    reads: 128,
    warm_up: false,
};
const LARGE: Task = Task::random(4, 1 << 20);
const LARGE_STOP: Stop = Stop {
    time: Duration::from_millis(1200),
    reads: 24,
    warm_up: false,
};
/// Bytes of one sequential sample, and its time limit.
const IN_ORDER_BYTES: u64 = 8 << 20;
const IN_ORDER_TIME: Duration = Duration::from_millis(80);
/// Larger windows are no faster.
const MAX_WINDOW_BYTES: u64 = 4 << 20;

/// Most samples of pages and of large reads, and the time since the start after which no further one begins.
const PAGES: (usize, Duration) = (16, Duration::from_millis(500));
const LARGE_READS: (usize, Duration) = (3, Duration::from_millis(900));
/// Rounds over all sizes: the fewest, the most, and the time since the start after which no sample of a further one begins.
const ROUNDS: std::ops::Range<usize> = 3..16;
const ROUNDS_UNTIL: Duration = Duration::from_millis(2200);
/// Undisturbed samples of a size, after which it is not read again if the two best differ by at most [`ALIKE`].
const ENOUGH: usize = 8;
const ALIKE: f64 = 0.9;
/// If the second best sample of a size is a smaller part of the best, the machine is too busy.
const MIN_ALIKE: f64 = 0.75;
/// Largest part of a sample's time in which its threads may wait for a processor, and of its bytes that others may move.
const MAX_WAITED: f64 = 0.1;
const MAX_OTHERS: f64 = 0.1;
/// Largest part of all processors that other programs may use meanwhile.
const MAX_PROCESSORS: f64 = 0.5;

/// Why a disk was not measured.
#[derive(Debug)]
pub enum Unmeasured {
    /// Other programs disturbed the measurement until its time was over.
    Busy,
    Failed(Failure),
}

impl From<Failure> for Unmeasured {
    fn from(failure: Failure) -> Unmeasured {
        Unmeasured::Failed(failure)
    }
}

/// The reads of one sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Reads {
    /// Random pages. The figure is their median latency in microseconds.
    Pages,
    /// Large random reads. The figure is their rate in 10^6 bytes per second.
    Large,
    /// A sequential reader with readahead windows of this many bytes. The figure is its rate. Direct reads imitate the kernel, which
    /// has two windows in flight.
    InOrder(u64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub figure: f64,
    pub is_disturbed: bool,
}

/// Takes samples of a disk.
pub(crate) trait Meter {
    /// Time since the first sample could begin.
    fn elapsed(&self) -> Duration;

    /// Bytes that can be read.
    fn span(&self) -> u64;

    fn sample(&mut self, reads: Reads) -> Result<Sample, Failure>;

    /// Whether other programs have used most of the processors since the start: then also the kernel's part of a read waits.
    fn is_machine_busy(&self) -> bool;
}

/// The rate of a sequential reader with windows of one size, in 10^6 bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckedRate {
    pub readahead_bytes: u64,
    pub mb_per_s: f64,
}

/// Measures the latency of a page in microseconds, and the rate of large reads in 10^6 bytes per second.
pub(crate) fn latency_and_rate(meter: &mut impl Meter) -> Result<(f64, f64), Unmeasured> {
    let latencies = undisturbed(meter, Reads::Pages, PAGES)?;
    let rates = undisturbed(meter, Reads::Large, LARGE_READS)?;
    let lowest = latencies.into_iter().fold(f64::INFINITY, f64::min);
    Ok((lowest, rates.into_iter().fold(0.0, f64::max)))
}

/// One or two undisturbed samples.
fn undisturbed(
    meter: &mut impl Meter,
    reads: Reads,
    (most, until): (usize, Duration),
) -> Result<Vec<f64>, Unmeasured> {
    let mut figures = Vec::new();
    for n in 0..most {
        if figures.len() == 2 || n > 0 && meter.elapsed() >= until {
            break;
        }
        let sample = meter.sample(reads)?;
        figures.extend((!sample.is_disturbed).then_some(sample.figure));
    }
    match figures.is_empty() {
        true => Err(Unmeasured::Busy),
        false => Ok(figures),
    }
}

/// Measures a sequential reader with windows of each of these sizes. Empty if the disk is too small for one of them.
pub(crate) fn rates(meter: &mut impl Meter, sizes: &[u64]) -> Result<Vec<CheckedRate>, Unmeasured> {
    if sizes.iter().any(|bytes| 4 * window(*bytes) > meter.span()) {
        return Ok(Vec::new());
    }
    // For each size the undisturbed rates, the best first.
    let mut best: Vec<(u64, Vec<f64>)> = sizes.iter().map(|bytes| (*bytes, Vec::new())).collect();
    let is_settled = |rates: &[f64]| rates.len() >= ENOUGH && rates[1] >= ALIKE * rates[0];
    for round in 0..ROUNDS.end {
        for (bytes, rates) in best.iter_mut().filter(|(_, rates)| !is_settled(rates)) {
            if round >= ROUNDS.start && meter.elapsed() >= ROUNDS_UNTIL {
                break;
            }
            let sample = meter.sample(Reads::InOrder(*bytes))?;
            rates.extend((!sample.is_disturbed).then_some(sample.figure));
            rates.sort_unstable_by(|a, b| b.total_cmp(a));
        }
    }
    let second = |(readahead_bytes, rates): (u64, Vec<f64>)| match rates[..] {
        [best, second, ..] if second >= MIN_ALIKE * best => Ok(CheckedRate {
            readahead_bytes,
            mb_per_s: second,
        }),
        _ => Err(Unmeasured::Busy),
    };
    best.into_iter().map(second).collect()
}

fn window(bytes: u64) -> u64 {
    bytes.clamp(SMALL.bytes, MAX_WINDOW_BYTES)
}

/// A disk of this machine, read by its node or by a file on it.
pub(crate) struct DiskMeter<'a> {
    live: Live,
    disk: &'a str,
    began: Instant,
    /// [`Host::processor_ticks`] at the start.
    ticks: Option<(u64, u64)>,
}

impl DiskMeter<'_> {
    /// Opens a device or a file on `disk`. Returns `None` if direct reads are refused or if it is too small.
    pub fn open<'a>(path: &Path, disk: &'a str) -> Result<Option<DiskMeter<'a>>, Failure> {
        let live = Live::open(path, u64::MAX)?;
        let source = &live.source;
        let is_large = source.size() >= 2 * u64::from(LARGE.depth) * LARGE.bytes;
        let is_for_it = source.is_direct() && is_large;
        Ok(is_for_it.then(|| DiskMeter {
            live,
            disk,
            began: Instant::now(),
            ticks: Host::here().processor_ticks(),
        }))
    }

    /// Bytes that all programs have read from the disk and written to it.
    fn moved_bytes(&self) -> u64 {
        let counters = Host::here().disk_counters(self.disk).unwrap_or_default();
        counters.read_bytes.saturating_add(counters.written_bytes)
    }
}

impl Meter for DiskMeter<'_> {
    fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    fn span(&self) -> u64 {
        self.live.source.size()
    }

    fn is_machine_busy(&self) -> bool {
        let both = self.ticks.zip(Host::here().processor_ticks());
        both.is_some_and(|((used, all), (now_used, now_all))| {
            let [used, all] = [(used, now_used), (all, now_all)].map(|(a, b)| b.saturating_sub(a));
            used as f64 > MAX_PROCESSORS * all as f64
        })
    }

    fn sample(&mut self, reads: Reads) -> Result<Sample, Failure> {
        let (task, stop) = match reads {
            Reads::Pages => (SMALL, SMALL_STOP),
            Reads::Large => (LARGE, LARGE_STOP),
            Reads::InOrder(bytes) => {
                let task = Task::sequential(2, window(bytes));
                let bytes = IN_ORDER_BYTES.min(self.span() / 2);
                let stop = Stop {
                    time: IN_ORDER_TIME,
                    reads: (bytes / task.bytes / 2) as usize,
                    warm_up: false,
                };
                (task, stop)
            }
        };
        let before = self.moved_bytes();
        let lanes = self.live.lanes(task, stop, seed())?;
        let moved = self.moved_bytes().saturating_sub(before);
        let reads_done: usize = lanes.iter().map(|lane| lane.done.len()).sum();
        let own = reads_done as u64 * task.bytes;
        let waited: f64 = lanes.iter().map(|lane| lane.waited.as_secs_f64()).sum();
        let took = lanes.iter().map(|lane| lane.ended - lane.began);
        let took: f64 = took.map(|time| time.as_secs_f64()).sum();
        // A few large reads of others hardly move a median of pages.
        let has_others =
            reads != Reads::Pages && moved.saturating_sub(own) as f64 > MAX_OTHERS * own as f64;
        Ok(Sample {
            figure: match reads {
                Reads::Pages => {
                    let median = percentile_ns(&lanes[0].latency, 50.0);
                    median.unwrap_or_default() as f64 / 1e3
                }
                Reads::Large => lasting_rate(&lanes),
                Reads::InOrder(_) => rate(&lanes, task.bytes) / 1e6,
            },
            is_disturbed: has_others || waited > MAX_WAITED * took,
        })
    }
}

/// A seed that differs each time: the device or its host may have cached the offsets of the last time.
fn seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(1, |since| since.as_nanos() as u64)
}

fn lasting_rate(lanes: &[Lane]) -> f64 {
    let began = lanes.iter().map(|lane| lane.began).min();
    let ends = lanes.iter().flat_map(|lane| &lane.done);
    lasting_rate_of(ends.filter_map(|end| Some(*end - began?)).collect())
}

/// Rate of large reads by the times at which they ended, in 10^6 bytes a second. The first third is left out if
/// enough remains.
fn lasting_rate_of(mut ends: Vec<Duration>) -> f64 {
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
        let rate = lasting_rate_of(saved);
        assert!((rate - 1.048_576 / 0.005).abs() < 5.0, "{rate}");
        let slow = vec![ms(1000), ms(1000), ms(2000), ms(2000)];
        assert!((lasting_rate_of(slow) - 4.0 * 1.048_576 / 2.0).abs() < 0.01);
    }
}
