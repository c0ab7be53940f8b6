//! Measures the speed of the disk and of the store; if the disk is slower, reads bypass the disk cache.
//!
//! A rate is the number of bytes that have arrived, divided by the time during which at least one read was delivering data.
//! Concurrent reads are measured together, as one rate. The time before a store read's first bytes is not counted: it is latency,
//! which readahead hides. If this latency were counted, a store from which one short range after the other is read would seem
//! slow, and would then hardly be used. The time for which the thread that reads the disk waited for a processor is not counted
//! either, because the disk would seem slow on a busy machine. The kernel is asked for this time only while the disk seems slow.
//! With each second of delivery time, the weight of older measurements is halved.
//!
//! ```text
//!   disk not known ──► disk      disk slow, store not known ──► store      store faster ──► store, and once a second the disk
//!                                                                          not faster ──► disk; if slow, the store is not known after 5 s
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
/// While a slow disk is used because the store is not faster, the store is measured anew at this interval.
const STORE_TRIED_EACH: Duration = Duration::from_secs(5);

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
    len: u64,
    /// Whether its first bytes have arrived.
    brings: bool,
    /// For how long this thread had waited for a processor when the read began, if the read is of a disk that seems slow.
    waited: Option<Duration>,
}

impl TimedRead<'_> {
    /// Counts bytes that have arrived. The time before the first bytes is latency and not counted, except if all bytes arrive at
    /// once.
    pub fn add(&mut self, bytes: u64) {
        let mut measured = lock(&self.meter.0);
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
    /// `brings`: the time counts from now on, not only from the first bytes on. Returns `None` for a short read.
    fn begin(&self, len: u64, brings: bool) -> Option<TimedRead<'_>> {
        if len < LEAST_BYTES {
            return None;
        }
        let mut measured = lock(&self.0);
        measured.settle();
        measured.bringing += u32::from(brings);
        Some(TimedRead {
            meter: self,
            began: Instant::now(),
            len,
            brings,
            waited: None,
        })
    }

    /// The rate in bytes per second. Returns `None` until it is known.
    fn rate(&self) -> Option<u64> {
        let RateSample { bytes, busy, .. } = *lock(&self.0);
        let is_known = busy >= KNOWN_TIME && bytes >= KNOWN_BYTES || busy >= ENOUGH_TIME;
        let rate = || u128::from(bytes) * 1_000_000_000 / busy.as_nanos();
        is_known.then(|| u64::try_from(rate()).unwrap_or(u64::MAX))
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
        let mut measured = lock(&self.meter.0);
        measured.settle();
        let waited = |was| waited_for_processor()?.checked_sub(was);
        if let Some(waited) = self.waited.and_then(waited) {
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
    /// When the side that is not used was measured last.
    tried: Mutex<Option<Instant>>,
}

impl Speeds {
    /// Starts to measure a long disk read; returns `None` for a short read, which is not measured.
    pub fn disk(&self, bytes: u64) -> Option<TimedRead<'_>> {
        let mut read = self.disk.begin(bytes, true)?;
        // To ask takes up to 90 us, as long as a fast disk takes for the bytes. Of a disk this fast, the waits decide nothing.
        let enough = self.store.rate().max(Some(2 * SLOW_BYTES_PER_SECOND));
        if self.disk.rate() < enough {
            read.waited = waited_for_processor();
        }
        Some(read)
    }

    /// Like [`Speeds::disk`], but for a read from the store.
    pub fn store(&self, bytes: u64) -> Option<TimedRead<'_>> {
        self.store.begin(bytes, false)
    }

    /// Returns true if this cached range should be read from the store, because the store is faster.
    pub fn passes_over_disk(&self, bytes: u64) -> bool {
        let Some(disk) = self.disk.rate().filter(|_| bytes >= LEAST_BYTES) else {
            return false;
        };
        let is_slow = disk < SLOW_BYTES_PER_SECOND;
        let now = Instant::now();
        let mut tried = lock(&self.tried);
        let mut is_due = |each| {
            let is_due = now.duration_since(*tried.get_or_insert(now)) >= each;
            if is_due {
                *tried = Some(now);
            }
            is_due
        };
        match self.store.rate() {
            Some(store) if store / FASTER_PERCENT > disk / 100 => !is_due(DISK_TRIED_EACH),
            Some(_) if is_slow && is_due(STORE_TRIED_EACH) => {
                let mut store = lock(&self.store.0);
                (store.bytes, store.busy) = (0, Duration::ZERO);
                true
            }
            Some(_) => false,
            None => {
                // The interval begins when both rates are known.
                *tried = Some(now);
                is_slow
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Speeds in MB/s; 0: unknown.
    fn speeds(disk: u64, store: u64) -> Speeds {
        let at = |rate: u64| {
            Meter(Mutex::new(RateSample {
                bytes: rate * 1_000_000,
                busy: if rate > 0 { SECOND } else { Duration::ZERO },
                ..RateSample::default()
            }))
        };
        Speeds {
            disk: at(disk),
            store: at(store),
            ..Speeds::default()
        }
    }

    impl Speeds {
        /// A disk of 50 MB/s and a store of 200 MB/s.
        pub fn of_slow_disk() -> Speeds {
            speeds(50, 200)
        }
    }

    /// A wrong rate does not persist: a range of the disk, or the store, is measured again. If the disk is fast, the store is not measured.
    #[test]
    fn a_disk_slower_than_the_store_is_passed_over_and_a_wrong_rate_is_corrected() {
        let long_ago = Instant::now().checked_sub(60 * SECOND);
        assert!(long_ago.is_some(), "a machine that runs for a minute");
        for (disk, store, wanted, later, why) in [
            (50, 200, 160, 159, "it is faster; the disk is tried"),
            (50, 60, 0, 160, "it is hardly faster; it is measured anew"),
            (50, 0, 160, 160, "it is measured"),
            (500, 0, 0, 0, "the disk is fast enough"),
            (500, 1000, 160, 159, "it is faster; the disk is tried"),
            (500, 30, 0, 0, "the disk is fast enough"),
            (0, 1000, 0, 0, "the disk is measured"),
        ] {
            for (tried, wanted) in [(None, wanted), (long_ago, later)] {
                let speeds = Speeds {
                    tried: Mutex::new(tried),
                    ..speeds(disk, store)
                };
                let passed = (0..160).filter(|_| speeds.passes_over_disk(1 << 20));
                assert_eq!(passed.count(), wanted, "{disk} {store}: {why}");
                assert!(!speeds.passes_over_disk(4096), "it waits for latency");
            }
        }
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
        for (disk, store, asked) in [
            (0, 0, true),
            (90, 0, true),
            (200, 0, false),
            (200, 300, true),
        ] {
            let speeds = speeds(disk, store);
            let read = speeds.disk(1 << 20).expect("long");
            assert_eq!(read.waited.is_some(), asked, "{disk} {store}");
        }
    }

    #[test]
    fn reads_at_the_same_time_count_together_and_as_they_arrive() {
        let speeds = Speeds::default();
        let [mut one, mut two] = [(); 2].map(|()| speeds.store(8 << 20).expect("long"));
        for read in [&mut one, &mut two] {
            read.add(1 << 20);
            read.add(4 << 20);
        }
        let bytes = |meter: &Meter| lock(&meter.0).bytes;
        assert_eq!(bytes(&speeds.store), 8 << 20, "but for what came first");
        assert_eq!(lock(&speeds.store.0).bringing, 2);
        drop((one, two));
        assert_eq!(lock(&speeds.store.0).bringing, 0);
        speeds.store(1 << 20).expect("long").add(1 << 20);
        assert_eq!(bytes(&speeds.store), 9 << 20, "all at once");
        speeds.disk(2 << 20).expect("long").add(1 << 20);
        let why = "a disk has hardly any latency";
        assert_eq!(bytes(&speeds.disk), 1 << 20, "{why}");
    }
}
