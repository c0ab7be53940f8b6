//! How fast the disk and the store are, as far as reads have shown: a disk that is slower than the store is passed over.
//!
//! What counts is the time in which at least one read is under way. Old times count half each two seconds of such time.

/// Reads of fewer bytes say nothing of a rate.
const LEAST_BYTES: u64 = 256 << 10;
/// Bytes and time after which a rate is known.
const KNOWN_BYTES: u64 = 8 << 20;
const KNOWN_NS: u64 = 20_000_000;
/// Time after which what was measured counts half.
const HALVED_AFTER_NS: u64 = 2_000_000_000;
/// Where the store has not been measured, a disk that gives less has it measured.
const SLOW_BYTES_PER_S: u64 = 80_000_000;
/// The store has to be faster by that, in percent.
const FASTER_PERCENT: u64 = 125;
/// Of that many ranges one is read from the disk that is passed over.
const TRIED_EACH: u32 = 16;

/// Where a part of a command comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    Disk,
    Store,
}

#[derive(Debug, Default)]
pub struct Speeds {
    disk: Meter,
    store: Meter,
    decisions: u32,
}

#[derive(Debug, Default)]
struct Meter {
    under_way: u32,
    since_ns: u64,
    busy_ns: u64,
    bytes: u64,
}

impl Speeds {
    fn meter(&mut self, tier: Tier) -> &mut Meter {
        match tier {
            Tier::Disk => &mut self.disk,
            Tier::Store => &mut self.store,
        }
    }

    /// A read of that many bytes begins.
    pub fn begin(&mut self, tier: Tier, now_ns: u64, bytes: u64) {
        if bytes >= LEAST_BYTES {
            let meter = self.meter(tier);
            meter.settle(now_ns);
            meter.under_way += 1;
        }
    }

    /// It has ended.
    pub fn end(&mut self, tier: Tier, now_ns: u64, bytes: u64) {
        if bytes >= LEAST_BYTES {
            let meter = self.meter(tier);
            meter.settle(now_ns);
            meter.under_way -= 1;
            meter.bytes += bytes;
        }
    }

    /// Is this range, which is on the disk, to be read from the store?
    pub fn passes_over_disk(&mut self, bytes: u64) -> bool {
        let Some(disk) = self.disk.rate().filter(|_| bytes >= LEAST_BYTES) else {
            return false;
        };
        match self.store.rate() {
            Some(store) if store / FASTER_PERCENT > disk / 100 => {
                self.decisions += 1;
                !(self.decisions - 1).is_multiple_of(TRIED_EACH)
            }
            Some(_) => false,
            None => disk < SLOW_BYTES_PER_S,
        }
    }
}

impl Meter {
    /// Counts the time until now.
    fn settle(&mut self, now_ns: u64) {
        if self.under_way > 0 {
            self.busy_ns += now_ns.saturating_sub(self.since_ns);
        }
        self.since_ns = now_ns;
        if self.busy_ns > HALVED_AFTER_NS {
            self.busy_ns /= 2;
            self.bytes /= 2;
        }
    }

    /// Bytes a second, once that is known.
    fn rate(&self) -> Option<u64> {
        let is_known = self.bytes >= KNOWN_BYTES || self.busy_ns >= HALVED_AFTER_NS / 4;
        let rate = u128::from(self.bytes) * 1_000_000_000 / u128::from(self.busy_ns.max(1));
        (is_known && self.busy_ns >= KNOWN_NS).then(|| u64::try_from(rate).unwrap_or(u64::MAX))
    }
}
