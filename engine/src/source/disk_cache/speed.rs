//! Measures the speed of the disk and of the store; if the disk is slower, reads bypass the disk cache.
//!
//! A rate is the number of bytes that have arrived, divided by the time during which at least one read was delivering data.
//! Concurrent reads are measured together, as one rate. The time before a store read's first bytes is not counted: it is latency,
//! which readahead hides. If this latency were counted, a store from which one short range after the other is read would seem
//! slow, and would then hardly be used. The time for which the thread that reads the disk waited for a processor is not counted
//! either: on a busy machine, the disk would seem slow. With each second of delivery time, the weight of older measurements is halved.
//!
//! ```text
//!   disk not known ──► disk      disk slow, store not known ──► store      store faster ──► store, and once a second the disk
//!                                                                          not faster ──► disk; if slow, 8 ranges from the store every 5 s
//! ```
//! If reads now use only the disk or only the store, the speed of the other is still measured from time to time, so that a wrong rate is
//! corrected.

use crate::sync::lock;
use foreread_os::threads::waited_for_processor;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Shorter reads are not measured.
const LEAST_BYTES: u64 = 256 << 10;
/// A rate is known after this many bytes; `KNOWN_TIME` is the least delivery time for it.
const KNOWN_BYTES: u64 = 4 << 20;
const KNOWN_TIME: Duration = Duration::from_millis(20);
/// After this much delivery time, a rate is known even from fewer bytes.
const ENOUGH_TIME: Duration = Duration::from_millis(500);
/// After this much delivery time, earlier measurements count half. So a volume that is fast only for its first megabytes is soon detected.
const HALVED_AFTER: Duration = Duration::from_secs(1);
/// While the store's rate is unknown, a disk slower than this has the store measured: about 8 MiB are read from the store. Chosen: below
/// the rate of a current disk in a busy machine, and above that of a hard disk with several readers or of the smallest cloud volumes.
const SLOW_BYTES_PER_SECOND: u64 = 80_000_000;
/// The store is used if its rate is more than this percentage of the disk's rate.
const FASTER_PERCENT: u64 = 125;
/// While the disk is bypassed, one range is read from it at this interval, to notice if it has become faster.
const DISK_TRIED_EACH: Duration = Duration::from_secs(1);
/// While a slow disk is used because the store is not faster, `STORE_TRIES` ranges are read from the store at this interval.
const STORE_TRIED_EACH: Duration = Duration::from_secs(5);
const STORE_TRIES: u32 = 8;

#[derive(Default)]
struct Meter(Mutex<RateSample>);

#[derive(Default)]
struct RateSample {
    /// Number of reads that are delivering data now.
    bringing: u32,
    since: Option<Instant>,
    busy: Duration,
    bytes: u64,
}

/// A read whose speed is measured; the measurement ends when this value is dropped.
pub struct TimedRead<'a> {
    meter: &'a Meter,
    began: Instant,
    /// Bytes requested.
    len: u64,
    /// Whether its first bytes have arrived.
    brings: bool,
    /// For how long this thread had waited for a processor when the read began; only for a disk read, which runs in one thread.
    waited: Option<Duration>,
}

impl TimedRead<'_> {
    /// Counts bytes that have arrived. The time before the first bytes is latency and not counted, except if all bytes arrive at
    /// once.
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
    /// `brings`: the time counts from now on, not only from the first bytes on.
    fn begin(&self, len: u64, brings: bool) -> TimedRead<'_> {
        let mut measured = self.hold();
        measured.settle();
        measured.bringing += u32::from(brings);
        TimedRead {
            meter: self,
            began: Instant::now(),
            len,
            brings,
            waited: brings.then(waited_for_processor).flatten(),
        }
    }

    /// The rate in bytes per second. Returns `None` until it is known.
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
        lock(&self.0)
    }
}

impl RateSample {
    /// Adds the time until now.
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

    /// Subtracts the time for which one of the current reads waited for a processor. The other reads are assumed to have waited too.
    fn leave_out(&mut self, waited: Duration) {
        self.busy = self.busy.saturating_sub(waited / self.bringing.max(1));
    }
}

impl Drop for TimedRead<'_> {
    fn drop(&mut self) {
        let mut measured = self.meter.hold();
        measured.settle();
        if let Some(waited) = self
            .waited
            .and_then(|was| waited_for_processor()?.checked_sub(was))
        {
            measured.leave_out(waited);
        }
        measured.bringing -= u32::from(self.brings);
    }
}

/// The measured rates of a cache: those of the disk and of the store.
#[derive(Default)]
pub struct Speeds {
    disk: Meter,
    store: Meter,
    tries: Mutex<Tries>,
}

/// When the side that is not used was measured last.
#[derive(Default)]
struct Tries {
    disk: Option<Instant>,
    store: Option<Instant>,
    /// Number of ranges that are still to be read from the store.
    store_left: u32,
}

impl Speeds {
    /// Starts to measure a long disk read; returns `None` for a short read, which is not measured.
    pub fn disk(&self, bytes: u64) -> Option<TimedRead<'_>> {
        (bytes >= LEAST_BYTES).then(|| self.disk.begin(bytes, true))
    }

    /// Like [`Speeds::disk`], but for a read from the store.
    pub fn store(&self, bytes: u64) -> Option<TimedRead<'_>> {
        (bytes >= LEAST_BYTES).then(|| self.store.begin(bytes, false))
    }

    /// Returns true if this cached range should be read from the store, because the store is faster.
    pub fn passes_over_disk(&self, bytes: u64) -> bool {
        if bytes < LEAST_BYTES {
            return false;
        }
        let Some(disk) = self.disk.rate() else {
            return false;
        };
        let store = self.store.rate();
        let mut tries = lock(&self.tries);
        match store {
            None => {
                // The first interval of both tries begins when both rates are known.
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

/// Whether the interval has passed. If so, the next interval begins now.
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

    impl Speeds {
        /// A disk of 50 MB/s and a store of 200 MB/s.
        pub fn of_slow_disk() -> Speeds {
            speeds(at(50), at(200))
        }
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

    /// A wrong rate does not persist: one range of the disk and some of the store are measured again. If the disk is fast, the store is not
    /// measured.
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
    fn waits_for_a_processor_do_not_count() {
        let mut measured = RateSample {
            bringing: 2,
            busy: SECOND,
            ..RateSample::default()
        };
        measured.leave_out(SECOND / 2);
        assert_eq!(measured.busy, SECOND * 3 / 4, "of two reads");
        measured.leave_out(SECOND * 10);
        assert_eq!(measured.busy, Duration::ZERO);
        assert!(waited_for_processor().is_some(), "this kernel tells it");
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
