//! Measured speed of the disk and the store: if the disk is slower, reads bypass it.
//!
//! Bytes count as they arrive, over the time in which any read delivers data: concurrent reads count together. The time
//! before the first bytes of a read of the store is latency, which readahead hides: with it a store that is asked for one short range after the
//! other would look slow and stay so. Old times count half each second of such time.
//!
//! ```text
//!   disk not known ──► disk      slow, store not known ──► store      store faster ──► store, once a second the disk
//!                                                                     not faster ──► disk, if that is slow each 5 s 8 ranges of the store
//! ```
//! The unused side is measured now and then, so that a wrong figure does not persist.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Minimum bytes of a read for a rate measurement.
const LEAST_BYTES: u64 = 256 << 10;
/// Bytes after which a rate is known, and the time that it takes at least.
const KNOWN_BYTES: u64 = 4 << 20;
const KNOWN_TIME: Duration = Duration::from_millis(20);
/// Time after which it is known from fewer bytes.
const ENOUGH_TIME: Duration = Duration::from_millis(500);
/// Time after which what was measured counts half: a volume that gives its first megabytes faster than the others is found out soon.
const HALVED_AFTER: Duration = Duration::from_secs(1);
/// Where the store has not been measured, a disk that gives less has it measured: 8 MiB are asked of it. Chosen: below what a disk of
/// today gives a busy machine, above a hard disk that several read and the smallest volumes of clouds.
const SLOW_BYTES_PER_SECOND: u64 = 80_000_000;
/// The store must be faster by this percentage, or the disk is used.
const FASTER_PERCENT: u64 = 125;
/// How often a range is read from the disk that is passed over, so that it is noticed when that has become faster: a piece of 1 MiB.
const DISK_TRIED_EACH: Duration = Duration::from_secs(1);
/// How often, and for how many ranges, the store is asked beside a disk that is slow and yet faster.
const STORE_TRIED_EACH: Duration = Duration::from_secs(5);
const STORE_TRIES: u32 = 8;

#[derive(Default)]
struct Meter(Mutex<RateSample>);

#[derive(Default)]
struct RateSample {
    /// Reads that bring bytes.
    bringing: u32,
    since: Option<Instant>,
    busy: Duration,
    bytes: u64,
}

/// A read that is measured until it is dropped.
pub struct TimedRead<'a> {
    meter: &'a Meter,
    began: Instant,
    /// Bytes that were asked for.
    len: u64,
    /// Its first bytes have come.
    brings: bool,
}

impl TimedRead<'_> {
    /// That many bytes have arrived. The time of the first ones is latency, unless they are all.
    pub fn add(&mut self, bytes: u64) {
        let mut measured = self.meter.hold();
        measured.settle();
        if std::mem::replace(&mut self.brings, true) {
            measured.bytes += bytes;
            return;
        }
        measured.bringing += 1;
        if bytes >= self.len {
            measured.bytes += bytes;
            measured.busy += self.began.elapsed();
        }
    }
}

impl Meter {
    /// `brings`: its time counts from now on.
    fn begin(&self, len: u64, brings: bool) -> TimedRead<'_> {
        let mut measured = self.hold();
        measured.settle();
        measured.bringing += u32::from(brings);
        TimedRead {
            meter: self,
            began: Instant::now(),
            len,
            brings,
        }
    }

    /// Bytes a second, once that is known.
    fn rate(&self) -> Option<u64> {
        let measured = self.hold();
        let is_known = measured.bytes >= KNOWN_BYTES || measured.busy >= ENOUGH_TIME;
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
        if let Some(since) = self.since.replace(now).filter(|_| self.bringing > 0) {
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
        measured.bringing -= u32::from(self.brings);
    }
}

/// Of a cache: both.
#[derive(Default)]
pub struct Speeds {
    disk: Meter,
    store: Meter,
    tries: Mutex<Tries>,
}

/// The last measurement of the unused side.
#[derive(Default)]
struct Tries {
    disk: Option<Instant>,
    store: Option<Instant>,
    /// Ranges that the store is still asked for.
    store_left: u32,
}

impl Speeds {
    /// Starts to measure a long disk read; `None` for a short one.
    pub fn disk(&self, bytes: u64) -> Option<TimedRead<'_>> {
        (bytes >= LEAST_BYTES).then(|| self.disk.begin(bytes, true))
    }

    /// The same of the store.
    pub fn store(&self, bytes: u64) -> Option<TimedRead<'_>> {
        (bytes >= LEAST_BYTES).then(|| self.store.begin(bytes, false))
    }

    /// Is this range, which is on the disk, to be read from the store?
    pub fn passes_over_disk(&self, bytes: u64) -> bool {
        if bytes < LEAST_BYTES {
            return false;
        }
        let Some(disk) = self.disk.rate() else {
            return false;
        };
        let store = self.store.rate();
        let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        match store {
            None => {
                // Both are known a moment later.
                let now = Instant::now();
                (tries.disk, tries.store) = (Some(now), Some(now));
                disk < SLOW_BYTES_PER_SECOND
            }
            Some(store) if store / FASTER_PERCENT > disk / 100 => {
                !is_due(&mut tries.disk, DISK_TRIED_EACH)
            }
            Some(_) if disk < SLOW_BYTES_PER_SECOND => {
                if is_due(&mut tries.store, STORE_TRIED_EACH) {
                    tries.store_left = STORE_TRIES;
                }
                let is_tried = tries.store_left > 0;
                tries.store_left -= u32::from(is_tried);
                is_tried
            }
            Some(_) => false,
        }
    }
}

/// Is it time again? Then it is done now.
fn is_due(last: &mut Option<Instant>, each: Duration) -> bool {
    let now = Instant::now();
    let is_due = last.is_some_and(|last| now.duration_since(last) >= each);
    if is_due || last.is_none() {
        *last = Some(now);
    }
    is_due
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn measured(bytes: u64, busy: Duration) -> Meter {
        Meter(Mutex::new(RateSample {
            bytes,
            busy,
            ..RateSample::default()
        }))
    }

    fn at(mega_bytes: u64) -> Meter {
        measured(mega_bytes * 1_000_000, SECOND)
    }

    fn speeds(disk: Meter, store: Meter) -> Speeds {
        Speeds {
            disk,
            store,
            ..Speeds::default()
        }
    }

    fn passed_over(speeds: &Speeds) -> usize {
        (0..160)
            .filter(|_| speeds.passes_over_disk(1 << 20))
            .count()
    }

    fn unknown() -> Meter {
        Meter::default()
    }

    #[test]
    fn a_disk_slower_than_the_store_is_passed_over() {
        for (disk, store, wanted, why) in [
            (at(50), at(200), 160, "it is faster"),
            (at(50), at(60), 0, "it is hardly faster"),
            (at(50), unknown(), 160, "it is measured"),
            (at(500), unknown(), 0, "fast enough"),
            (at(500), at(1000), 160, "it is faster"),
            (unknown(), at(1000), 0, "the disk is measured"),
        ] {
            assert_eq!(passed_over(&speeds(disk, store)), wanted, "{why}");
        }
        let speeds = speeds(at(50), at(200));
        assert!(
            !speeds.passes_over_disk(4096),
            "a short read waits for latency"
        );
    }

    /// A figure that was wrong once does not stay: one range of the disk, some of the store, and those of no disk that is fast.
    #[test]
    fn the_unused_side_is_measured_now_and_then() {
        let long_ago = Instant::now().checked_sub(60 * SECOND);
        let with = |disk, store| {
            let speeds = speeds(disk, store);
            *speeds.tries.lock().expect("no panic") = Tries {
                disk: long_ago,
                store: long_ago,
                store_left: 0,
            };
            passed_over(&speeds)
        };
        assert!(long_ago.is_some(), "a machine that runs for a minute");
        assert_eq!(with(at(50), at(200)), 159);
        assert_eq!(with(at(50), at(30)), STORE_TRIES as usize);
        assert_eq!(with(at(500), at(30)), 0);
    }

    #[test]
    fn reads_at_the_same_time_count_together_and_as_they_arrive() {
        let speeds = Speeds::default();
        let [mut one, mut two] = [(); 2].map(|()| speeds.store(8 << 20).expect("long"));
        for read in [&mut one, &mut two] {
            read.add(1 << 20);
            read.add(4 << 20);
        }
        let bytes = |meter: &Meter| meter.hold().bytes;
        assert_eq!(bytes(&speeds.store), 8 << 20, "but for what came first");
        assert_eq!(speeds.store.hold().bringing, 2);
        drop((one, two));
        assert_eq!(speeds.store.hold().bringing, 0);
        speeds.store(1 << 20).expect("long").add(1 << 20);
        assert_eq!(bytes(&speeds.store), 9 << 20, "all at once");
        speeds.disk(2 << 20).expect("long").add(1 << 20);
        assert_eq!(
            bytes(&speeds.disk),
            1 << 20,
            "a disk has hardly any latency"
        );
    }
}
