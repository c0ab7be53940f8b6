//! How fast the disk and the store are, as far as reads have shown: a disk that is slower than the store is passed over.
//!
//! RateSample is the time in which at least one read is under way, so that many reads at once count as what they give together. Old times
//! count half each two seconds of such time.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Reads of fewer bytes say nothing of a rate.
const LEAST_BYTES: u64 = 256 << 10;
/// Bytes and time after which a rate is known.
const KNOWN_BYTES: u64 = 8 << 20;
const KNOWN_TIME: Duration = Duration::from_millis(20);
/// Time after which what was measured counts half.
const HALVED_AFTER: Duration = Duration::from_secs(2);
/// Where the store has not been measured, a disk that gives less has it measured: 8 MiB are asked of it. Chosen: below what a disk of
/// today gives a busy machine, above a hard disk that several read and the smallest volumes of clouds.
const SLOW_BYTES_PER_SECOND: u64 = 80_000_000;
/// The store has to be faster by that, in percent: else the disk is read.
const FASTER_PERCENT: u64 = 125;
/// Of that many ranges one is read from the disk that is passed over, so that it is noticed when that has become faster.
const TRIED_EACH: u32 = 16;

#[derive(Default)]
struct Meter(Mutex<RateSample>);

#[derive(Default)]
struct RateSample {
    under_way: u32,
    since: Option<Instant>,
    busy: Duration,
    bytes: u64,
}

/// A read that is measured until it is dropped.
pub struct TimedRead<'a> {
    meter: &'a Meter,
    pub bytes: u64,
}

impl Meter {
    fn begin(&self) -> TimedRead<'_> {
        let mut measured = self.hold();
        measured.settle();
        measured.under_way += 1;
        TimedRead {
            meter: self,
            bytes: 0,
        }
    }

    /// Bytes a second, once that is known.
    fn rate(&self) -> Option<u64> {
        let measured = self.hold();
        let is_known = measured.bytes >= KNOWN_BYTES || measured.busy >= HALVED_AFTER / 4;
        let is_known = is_known && measured.busy >= KNOWN_TIME;
        is_known.then(|| {
            let rate = u128::from(measured.bytes) * 1_000_000_000 / measured.busy.as_nanos().max(1);
            u64::try_from(rate).unwrap_or(u64::MAX)
        })
    }

    fn hold(&self) -> std::sync::MutexGuard<'_, RateSample> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RateSample {
    /// Counts the time until now.
    fn settle(&mut self) {
        let now = Instant::now();
        if let Some(since) = self.since.replace(now).filter(|_| self.under_way > 0) {
            self.busy += now.duration_since(since);
        }
        if self.busy > HALVED_AFTER {
            self.busy /= 2;
            self.bytes /= 2;
        }
    }
}

impl Drop for TimedRead<'_> {
    fn drop(&mut self) {
        let mut measured = self.meter.hold();
        measured.settle();
        measured.under_way -= 1;
        measured.bytes += self.bytes;
    }
}

/// Of a cache: both.
#[derive(Default)]
pub struct Speeds {
    disk: Meter,
    store: Meter,
    decisions: AtomicU32,
}

impl Speeds {
    /// A long read of the disk begins; nothing for a short one.
    pub fn disk(&self, bytes: u64) -> Option<TimedRead<'_>> {
        (bytes >= LEAST_BYTES).then(|| self.disk.begin())
    }

    /// The same of the store.
    pub fn store(&self, bytes: u64) -> Option<TimedRead<'_>> {
        (bytes >= LEAST_BYTES).then(|| self.store.begin())
    }

    /// Is this range, which is on the disk, to be read from the store?
    pub fn passes_over_disk(&self, bytes: u64) -> bool {
        if bytes < LEAST_BYTES {
            return false;
        }
        let Some(disk) = self.disk.rate() else {
            return false;
        };
        match self.store.rate() {
            Some(store) if store / FASTER_PERCENT > disk / 100 => !self
                .decisions
                .fetch_add(1, Ordering::Relaxed)
                .is_multiple_of(TRIED_EACH),
            Some(_) => false,
            None => disk < SLOW_BYTES_PER_SECOND,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(bytes: u64, busy: Duration) -> Meter {
        Meter(Mutex::new(RateSample {
            bytes,
            busy,
            ..RateSample::default()
        }))
    }

    fn passed_over(disk: Meter, store: Meter) -> usize {
        let speeds = Speeds {
            disk,
            store,
            ..Speeds::default()
        };
        (0..160)
            .filter(|_| speeds.passes_over_disk(1 << 20))
            .count()
    }

    #[test]
    fn a_disk_slower_than_the_store_is_passed_over_and_tried_now_and_then() {
        let second = Duration::from_secs(1);
        let at = |mega_bytes: u64| measured(mega_bytes * 1_000_000, second);
        assert_eq!(passed_over(at(50), at(200)), 150);
        assert_eq!(passed_over(at(50), at(60)), 0, "it is hardly faster");
        assert_eq!(passed_over(at(50), Meter::default()), 160, "it is measured");
        assert_eq!(passed_over(at(500), Meter::default()), 0, "fast enough");
        assert_eq!(passed_over(at(500), at(1000)), 150);
        assert_eq!(passed_over(Meter::default(), at(1000)), 0);
        let speeds = Speeds {
            disk: at(50),
            store: at(200),
            ..Speeds::default()
        };
        assert!(
            !speeds.passes_over_disk(4096),
            "a short read waits for latency"
        );
    }

    #[test]
    fn reads_at_the_same_time_count_together() {
        let meter = Meter::default();
        let (mut one, mut two) = (meter.begin(), meter.begin());
        (one.bytes, two.bytes) = (KNOWN_BYTES, KNOWN_BYTES);
        drop(one);
        drop(two);
        let measured = meter.hold();
        assert_eq!((measured.under_way, measured.bytes), (0, 2 * KNOWN_BYTES));
    }
}
