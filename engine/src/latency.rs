//! Latencies of sources: a histogram with fixed buckets. The driver counts transfers in the histogram, and reports show it.
//!
//! This module does not read the clock. Every transfer is counted in exactly one bucket.

use std::sync::atomic::{AtomicU64, Ordering};

/// Upper bound of the first bucket in nanoseconds; each following bound is twice as large.
const FIRST_NS: u64 = 16_384;
/// Number of bounded buckets, up to 8.6 s. Longer latencies are counted in one additional bucket.
const BOUNDS: usize = 20;

/// A snapshot of a latency histogram of sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// Each entry has an upper bound in nanoseconds, and the number of transfers up to this bound and above the previous one. The
    /// last bound is `u64::MAX`.
    pub buckets: Vec<(u64, u64)>,
    /// Total of all latencies in nanoseconds.
    pub sum_ns: u64,
}

impl Latencies {
    /// Number of transfers.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

#[derive(Debug, Default)]
pub struct LatencyClock {
    buckets: [AtomicU64; BOUNDS + 1],
    sum_ns: AtomicU64,
}

impl LatencyClock {
    pub fn record(&self, ns: u64) {
        let bucket = (0..BOUNDS).find(|&i| ns <= FIRST_NS << i).unwrap_or(BOUNDS);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    pub fn now(&self) -> Latencies {
        let bound = |i: usize| if i < BOUNDS { FIRST_NS << i } else { u64::MAX };
        let bucket = |(i, count): (usize, &AtomicU64)| (bound(i), count.load(Ordering::Relaxed));
        let buckets = self.buckets.iter().enumerate().map(bucket).collect();
        Latencies {
            buckets,
            sum_ns: self.sum_ns.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_one_bucket() {
        let clocked = LatencyClock::default();
        [
            0,
            FIRST_NS,
            FIRST_NS + 1,
            1_000_000,
            u64::from(u32::MAX) * 100,
        ]
        .iter()
        .for_each(|&ns| clocked.record(ns));
        let now = clocked.now();
        let filled: Vec<(u64, u64)> = now.buckets.iter().copied().filter(|b| b.1 > 0).collect();
        assert_eq!(
            filled,
            [(16_384, 2), (32_768, 1), (1_048_576, 1), (u64::MAX, 1)]
        );
        assert_eq!(now.count(), 5);
    }
}
