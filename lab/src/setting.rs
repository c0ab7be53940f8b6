//! Advice about a device's readahead setting: costs and gains of a value, the recommended value, and the command that sets it.
//! `doctor`, `probe` and `tune` take it from here, so that they agree.
//!
//! ```text
//!   fault    latency + size / bandwidth                  a fault of a mapping reads the whole window around it
//!   rate     ((1 / bandwidth)^1.5 + (latency / size / 2)^1.5)^(-1/1.5)  one reader in order: two windows are under way
//! ```
//! The kernel asks for the next window when the reader comes to the first page of the one that is still under way. A device that answers both in
//! turn shows the rate of one alone; so the value is chosen by that rate, and what it gains is said by the rate of two.
//!
//! The exponent: at 1 reads of a window would not overlap with those of the next at all, at 2 the most that was seen of it. Measured
//! on Linux 6.18, ext4, 0.08 ms, 2.4 GB/s, MB/s by read_ahead_kb: 128 1080, 256 1346, 512 2141, 1024 2336, 2048 2348, 8192 2438; 1.5
//! gives 1220, 1750, 2130, 2320, 2390, 2440.
//!
//! The advice is the smallest setting that one, four and sixteen readers are within 5 % of their best at, and less where it would take
//! a quarter of memory for sixteen streams, or where faults are a large part of the reads. Never: a value above 2 MiB for a device
//! that does not turn.

mod line;

pub use line::{Setting, to_set};

use foreread_report::number::{size, three};
use serde::Serialize;

/// Sizes that are tried: 128 KiB to 64 MiB.
const SIZES: std::ops::RangeInclusive<u32> = 17..=26;
const READERS: [u32; 3] = [1, 4, 16];
/// How near to its best a reader has to be.
const NEAR: f64 = 0.95;
/// How the wait for a window and its transfer overlap.
const OVERLAP: f64 = 1.5;
/// Windows of a reader in order that the kernel has under way.
const WINDOWS: f64 = 2.0;
/// The largest advice for what does not turn. A larger value of it is suspicious.
const MAX_STILL_BYTES: u64 = 2 << 20;
const MAX_TURNING_BYTES: u64 = 16 << 20;
const MIN_BYTES: u64 = 128 << 10;
/// Faults of reads from which on programs are said to read by mappings.
pub const MANY_FAULTS: f64 = 0.2;
/// Of a first read of a device that turns and is read in order: no move of the head.
const IN_ORDER_US: f64 = 100.0;
/// A disk that turns takes half a turn, 4 ms at 7200 rpm, and the move of its head: none answers a random read in less than this.
pub const MIN_TURNING_US: f64 = 1000.0;

/// What a read of a device costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StorageCosts {
    /// Of a random read of 4 KiB, in microseconds.
    pub latency_us: f64,
    /// Large reads, several at once, in 10^6 bytes a second.
    pub mb_per_s: f64,
    /// By reads of this machine; else by the class of the device.
    pub is_measured: bool,
    /// A device that turns waits for its head at each change of the reader.
    pub turns: bool,
}

/// What a value of `read_ahead_kb` costs and gains.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SizeCosts {
    pub readahead_bytes: u64,
    /// A page fault of a mapping at random, in milliseconds.
    pub fault_ms: f64,
    /// Readers in order: one, four, sixteen; in 10^6 bytes a second together.
    pub in_order_mb_per_s: [f64; 3],
    /// Memory that sixteen streams keep ahead: a window in use and one under way, each.
    pub streams_bytes: u64,
}

/// What counts beside what a read costs.
#[derive(Clone, Copy, Debug)]
pub struct SettingLimits {
    /// The largest request of the device.
    pub request_bytes: Option<u64>,
    /// Of the machine, or of the control group that limits its programs.
    pub memory_bytes: u64,
    /// Major faults / reads.
    pub faults_of_reads: Option<f64>,
}

impl SettingLimits {
    fn is_faulting(&self) -> bool {
        self.faults_of_reads.is_some_and(|part| part >= MANY_FAULTS)
    }

    /// The largest value that is ever advised.
    #[must_use]
    pub fn most_bytes(&self, costs: &StorageCosts) -> u64 {
        let most = match costs.turns {
            // The kernel's rule of 6.17: what was measured for disks that turn.
            true => self
                .request_bytes
                .unwrap_or(MIN_BYTES)
                .saturating_mul(2)
                .clamp(512 << 10, MAX_TURNING_BYTES),
            false if self.is_faulting() => MIN_BYTES,
            false => MAX_STILL_BYTES,
        };
        let of_memory = self.memory_bytes / 4 / (2 * 16);
        let mut bytes = most;
        while bytes > MIN_BYTES && bytes > of_memory {
            bytes /= 2;
        }
        bytes.max(MIN_BYTES)
    }
}

impl StorageCosts {
    /// What a value costs and gains.
    #[must_use]
    pub fn at(&self, bytes: u64) -> SizeCosts {
        SizeCosts {
            readahead_bytes: bytes,
            fault_ms: (self.latency_us + window(bytes) / self.mb_per_s) / 1e3,
            in_order_mb_per_s: self.rates(bytes, WINDOWS),
            streams_bytes: bytes.saturating_mul(2 * 16),
        }
    }

    /// One, four, sixteen readers in order, with so many windows of each under way.
    fn rates(&self, bytes: u64, windows: f64) -> [f64; 3] {
        READERS.map(|readers| {
            let wait_us = if self.turns && readers == 1 {
                IN_ORDER_US
            } else {
                self.latency_us
            };
            // Bytes in a microsecond are MB/s.
            let (transfer, wait) = (1.0 / self.mb_per_s, wait_us / window(bytes) / windows);
            let one = (transfer.powf(OVERLAP) + wait.powf(OVERLAP)).powf(-1.0 / OVERLAP);
            if self.turns {
                one
            } else {
                (one * f64::from(readers)).min(self.mb_per_s)
            }
        })
    }

    /// The smallest value that is good enough.
    #[must_use]
    pub fn best(&self, limits: &SettingLimits) -> SizeCosts {
        let all: Vec<(u64, [f64; 3])> = SIZES
            .map(|bits| (1 << bits, self.rates(1 << bits, 1.0)))
            .collect();
        let most =
            [0, 1, 2].map(|n: usize| all.iter().map(|(_, rates)| rates[n]).fold(0.0, f64::max));
        let is_near = |(_, rates): &&(u64, [f64; 3])| {
            let mut pairs = rates.iter().zip(most);
            pairs.all(|(rate, most)| *rate >= NEAR * most)
        };
        let near = all
            .iter()
            .find(is_near)
            .map_or(u64::MAX, |(bytes, _)| *bytes);
        self.at(near.min(limits.most_bytes(self)))
    }

    /// Whether a value is more than faults of mappings should pay for, and more than readers in order need.
    #[must_use]
    pub fn is_too_large(&self, bytes: u64, best: &SizeCosts) -> bool {
        let large = if self.turns {
            MAX_TURNING_BYTES
        } else {
            MAX_STILL_BYTES
        };
        bytes > large && bytes > best.readahead_bytes
    }

    /// `measured: 0.2 ms, 1200 MB/s`
    #[must_use]
    pub fn in_words(&self) -> String {
        let word = if self.is_measured {
            "measured"
        } else {
            "assumed"
        };
        format!(
            "{word}: {} ms, {} MB/s",
            three(self.latency_us / 1e3),
            three(self.mb_per_s)
        )
    }
}

/// A fault reads a page at least.
fn window(bytes: u64) -> f64 {
    bytes.max(4096) as f64
}

/// What a page fault costs with one value and with another, a sentence without its end.
#[must_use]
pub fn fault_in_words(now: &SizeCosts, to: &SizeCosts) -> String {
    let [value, other] = [now.readahead_bytes, to.readahead_bytes].map(size);
    format!(
        "With {value} a page fault of a mapping takes {} ms, with {other} {} ms",
        three(now.fault_ms),
        three(to.fault_ms)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK_DISK: StorageCosts = StorageCosts {
        latency_us: 200.0,
        mb_per_s: 1000.0,
        is_measured: true,
        turns: false,
    };
    const LIMITS: SettingLimits = SettingLimits {
        request_bytes: Some(1 << 20),
        memory_bytes: 16 << 30,
        faults_of_reads: None,
    };

    #[test]
    fn the_smallest_value_within_its_part_of_the_best_is_advised() {
        let best = QUICK_DISK.best(&LIMITS);
        assert_eq!(best.readahead_bytes, 2 << 20);
        let smaller = QUICK_DISK.rates(best.readahead_bytes / 2, 1.0);
        assert!(smaller[0] < NEAR * QUICK_DISK.rates(64 << 20, 1.0)[0]);
        let near = StorageCosts {
            latency_us: 60.0,
            ..QUICK_DISK
        };
        assert_eq!(near.best(&LIMITS).readahead_bytes, 512 << 10);
    }

    /// `dd` from ext4 on a disk 5 ms away that brings 120 MB/s: 2 MiB is 2.7 times as fast as 128 KiB, and 4.9 times if one window is under way.
    #[test]
    fn the_gain_counts_two_windows_under_way() {
        let far = StorageCosts {
            latency_us: 5000.0,
            mb_per_s: 120.0,
            ..QUICK_DISK
        };
        let rate = |bytes| far.at(bytes).in_order_mb_per_s[0];
        let times = rate(2 << 20) / rate(128 << 10);
        assert!((2.4..2.9).contains(&times), "{times}");
    }

    #[test]
    fn faults_and_small_memory_take_a_smaller_one() {
        let faulting = SettingLimits {
            faults_of_reads: Some(0.3),
            ..LIMITS
        };
        assert_eq!(QUICK_DISK.best(&faulting).readahead_bytes, 128 << 10);
        let small = SettingLimits {
            memory_bytes: 64 << 20,
            ..LIMITS
        };
        assert_eq!(QUICK_DISK.best(&small).readahead_bytes, 512 << 10);
    }

    #[test]
    fn a_value_above_the_limit_of_its_kind_is_too_large() {
        let best = QUICK_DISK.best(&LIMITS);
        assert!(
            !QUICK_DISK.is_too_large(2 << 20, &best) && QUICK_DISK.is_too_large(4 << 20, &best)
        );
        let turning = StorageCosts {
            latency_us: 12_000.0,
            mb_per_s: 180.0,
            turns: true,
            ..QUICK_DISK
        };
        let best = turning.best(&LIMITS);
        assert_eq!(best.readahead_bytes, 2 << 20);
        assert!(!turning.is_too_large(8 << 20, &best) && turning.is_too_large(64 << 20, &best));
    }
}
