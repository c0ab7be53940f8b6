//! How many bytes may be wasted: for each source, a bound on the bytes that are read ahead and never read.
//!
//! ```text
//!   demanded =  an eighth of the bytes that reads missed + readahead that reads used
//!   unused + unread  <=  part x demanded + asked + d          d = 2 x rate x latency, the largest so far, at most an eighth of the cache,
//!                                                             at least the less of 4 MiB and a 32nd of the cache, and 1 MiB;
//!                                                             while a run of 2 MiB or more continues, an eighth of the cache more
//!   wasted =  unused + unread - held                          evicted unread, or unread and no longer held by an active stream
//! ```
//! The inequality in the second line always holds, even if all outstanding readahead is wasted; the only exceptions are the minimum
//! readahead of a sequential run and that of a mapped file (the *floors*, see below). `part` is `max-overfetch` less one: at 2, the
//! default, one byte may be wasted for each byte that is demanded. If `max-overfetch` is below 1.25, the debt `d` shrinks with it, and a
//! long run has no more credit than a short one; if it is 1, nothing is read ahead. The bytes that hints request (`asked`) raise the bound,
//! because they are not the policy's choice.
//!
//! The more bytes were wasted so far, the higher must be the chance that the bytes of a stream are used (the *price*). Each sequential run
//! has a *floor*: `part` times its length, up to 512 KiB, may be read ahead regardless of the price and of earlier waste. So waste in other
//! streams does not leave a sequential run without readahead. Reads near each other in a file have a floor, too: `part` times the bytes
//! read from the file, minus its wasted readahead, up to 128 KiB. For this floor, missed bytes count as demanded in full. While it is 16
//! KiB or more, the price does not apply to reads near each other in this file. In a mapped file, this floor may exceed the bound until the
//! file itself has wasted 512 KiB and four times `part` of its demanded bytes.
//!
//! Example: of each of 100 files, a program reads only the first 64 KiB, in reads of 4 KiB. At the start of each file, 448 KiB more are
//! read ahead. `max-overfetch` is 2 and the debt 4 MiB. Each file earns a credit of 64 KiB. After ten files the debt is used up: from then
//! on, only 64 KiB are read ahead in each file.
//!
//! Source: the design of `auto`; competitive prefetching, which risks one latency x bandwidth. The floor's limit of 512 KiB is the largest
//! window that is commonly set in kernels. The default, 2, was chosen on the development half of the recordings and on the baseline
//! (decision 0318). With 1.5 instead of 2, 16 streams that are read alternately from a distant store take three times as long.

use super::{distance, survival};
use crate::policy::SourceView;
use crate::units::mul_div;

/// The smallest debt, and the usual debt if rate x latency does not require more.
const MIN_DEBT: u64 = 1 << 20;
const USUAL_DEBT: u64 = 4 << 20;

/// The whole debt is available if at least this number of bytes may be wasted for 1000 demanded bytes.
const FULL_DEBT: u64 = 250;

/// A run of at least two reads or this number of bytes has its floor regardless of earlier waste.
const MIN_FLOOR_RUN: u64 = 128 << 10;

/// Missed bytes, divided by this, count as demanded.
const MISSES: u64 = 8;

/// A sequential run of this length is a long run.
const LONG_RUN: u64 = 2 << 20;

/// A sequential run may be ahead by `part` times its length, up to this, regardless of earlier waste: the largest window that is commonly
/// set in kernels.
const FLOOR: u64 = 512 << 10;

/// A file whose own readahead was used may have up to this number of bytes read ahead regardless of waste elsewhere: the kernel's default.
const FILE_FLOOR: u64 = 128 << 10;

/// For a mapped file, this floor may exceed the bound on waste, until the file has wasted this number of bytes and this multiple of the
/// allowed part of its demanded bytes. The kernel's default wastes as much in libraries. Without this floor, each page fault of a starting
/// program waits for a round trip.
const MAPPED_FIRST: u64 = 512 << 10;
const MAPPED_PARTS: u64 = 4;

/// What was read near the reads of a file, and what of it was wasted.
pub struct FileWaste {
    pub is_mapped: bool,
    /// Bytes of the file that were read.
    pub demanded: u64,
    /// Bytes of its readahead that were not.
    pub lost: u64,
}

/// The bytes that streams have read ahead and not yet used, and how many bytes may be wasted.
#[derive(Default)]
pub struct Credit {
    /// Bytes that active streams have read ahead and that were not used yet.
    held: u64,
    /// Bytes that may be wasted for 1000 bytes that are demanded.
    part: u64,
    /// The largest debt so far.
    debt: u64,
    /// Bytes of pages that reads missed, and bytes that hints requested.
    missed: u64,
    asked: u64,
    /// Bytes planned by the present answer, which the source does not report yet.
    planned: u64,
}

impl Credit {
    /// Creates the credit of a source of which nothing was read yet. For each 1000 bytes that reads demand, at most `max_overfetch` bytes
    /// may be fetched, in addition to the debt.
    pub fn new(max_overfetch: u64) -> Credit {
        Credit {
            debt: MIN_DEBT,
            part: max_overfetch.saturating_sub(1000),
            ..Credit::default()
        }
    }

    /// Records the number of bytes of a read that were not cached.
    pub fn missed(&mut self, bytes: u64) {
        self.missed = self.missed.saturating_add(bytes);
    }

    /// Records the bytes that a hint requested.
    pub fn asked(&mut self, bytes: u64) {
        self.asked += bytes;
    }

    /// The present price of readahead (how likely a byte must be to be read), and how many bytes may be read ahead.
    pub fn price(&mut self, source: &SourceView) -> Price {
        let product = distance::product(source);
        // The debt never shrinks: an idle source shows a low rate, and with a smaller debt earlier waste would exceed the bound.
        let least = (source.room / 32).min(USUAL_DEBT);
        let debt = product
            .saturating_mul(2)
            .clamp(least, (source.room / 8).max(least));
        self.debt = self.debt.max(debt);
        Price {
            product,
            allowed: self.allowed(source),
            wasted: self.wasted(source),
            free: self.available(source),
            left: self.left(source, 0),
        }
    }

    /// Returns how many bytes may be read ahead for a sequential run of `run` bytes without breaking the bound on waste, even if all
    /// outstanding readahead is wasted. For a run of 2 MiB or more, the result is larger by up to the length of the run, but at most by
    /// an eighth of the cache. So a distant store is read at its full rate after some round trips, and when the run ends, it has wasted
    /// no more than it has read. If `max-overfetch` is below 1.25, the result is not larger: a run with gaps would use up the whole
    /// extension at once, and then have no readahead for a long time.
    pub fn left_of_run(&self, run: u64, source: &SourceView) -> u64 {
        let more = if run < LONG_RUN || self.part < FULL_DEBT {
            0
        } else {
            run.min(source.room / 8)
        };
        self.left(source, more)
    }

    /// Returns how many bytes a sequential run may have read ahead beyond the bound on waste: `floor`, or 0 if the run has only one short
    /// read, or little waste is allowed.
    pub fn beyond(&self, run: u64, len: u64, floor: u64) -> u64 {
        if run >= MIN_FLOOR_RUN.min(2 * len) && self.part >= FULL_DEBT {
            floor
        } else {
            0
        }
    }

    /// Returns the number of bytes that may always be read ahead for a sequential run of `run` bytes, whatever other streams have wasted.
    pub fn floor(&self, run: u64) -> u64 {
        mul_div(self.part, run, 1000).min(FLOOR)
    }

    /// Bytes that may be read ahead near the reads of a file regardless of waste elsewhere. Only for a mapped file, the result may exceed
    /// the bound on waste.
    pub fn floor_of_file(&self, file: &FileWaste, source: &SourceView) -> u64 {
        let &FileWaste {
            is_mapped,
            demanded,
            lost,
        } = file;
        let own = mul_div(self.part, demanded, 1000);
        let more = mul_div(self.part, self.missed - self.missed / MISSES, 1000);
        let floor = if is_mapped && self.part >= FULL_DEBT {
            (MAPPED_FIRST + MAPPED_PARTS * own).saturating_sub(lost)
        } else {
            own.saturating_sub(lost).min(self.left(source, more))
        };
        floor.min(FILE_FLOOR)
    }

    /// The number of bytes that were read ahead for active streams and are not used yet.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// The number of wasted bytes: readahead that was evicted unread, and unread readahead that belongs to no active stream.
    pub fn wasted(&self, source: &SourceView) -> u64 {
        source.unused_bytes + source.unread_bytes.saturating_sub(self.held)
    }

    /// The free credit: how many more bytes may be wasted, if all readahead of active streams is used.
    pub fn available(&self, source: &SourceView) -> u64 {
        self.allowed(source).saturating_sub(self.wasted(source))
    }

    /// Bytes that may be wasted in total.
    fn allowed(&self, source: &SourceView) -> u64 {
        // Misses count less: otherwise readers that evict each other's bytes would earn credit for more of the same.
        let demanded = (self.missed / MISSES).saturating_add(source.used_bytes);
        mul_div(self.part, demanded, 1000)
            .saturating_add(self.asked)
            // If hardly any waste is allowed, there is hardly any debt, and none at 1.
            .saturating_add(mul_div(self.debt, self.part.min(FULL_DEBT), FULL_DEBT))
    }

    /// Bytes that may be read ahead now, assuming that all outstanding readahead is wasted.
    fn left(&self, source: &SourceView, more: u64) -> u64 {
        let unread = (source.unread_bytes + self.planned).max(self.held);
        let out = source.unused_bytes + unread;
        (self.allowed(source) + more).saturating_sub(out)
    }

    /// Starts a decision. Readahead that was planned before is now included in the counts that the source reports, so it is no longer
    /// added to these counts.
    pub fn begin_answer(&mut self) {
        self.planned = 0;
    }

    /// Replaces the number of bytes that one stream has read ahead and not used.
    pub fn change(&mut self, before: u64, after: u64) {
        self.planned += after.saturating_sub(before);
        self.held = self.held.saturating_sub(before) + after;
    }

    /// Records that bytes which were read ahead for a stream were read. The stream holds `held` bytes.
    pub fn read(&mut self, held: &mut u64, bytes: u64) {
        let bytes = bytes.min(*held);
        *held -= bytes;
        self.held = self.held.saturating_sub(bytes);
    }
}

/// The conditions for readahead now: how likely a byte must be to be read, and how many bytes may be read ahead.
#[derive(Clone, Copy)]
pub struct Price {
    /// Rate x latency in bytes.
    pub product: u64,
    /// Bytes that may be wasted in total, and bytes that were wasted.
    allowed: u64,
    wasted: u64,
    /// Bytes that may still be wasted, if all readahead of active streams is used.
    pub free: u64,
    /// Bytes that may be read ahead now, assuming that all outstanding readahead is wasted.
    pub left: u64,
}

impl Price {
    /// Returns the smallest chance of being read at which a byte after a read of `len` bytes is worth reading ahead.
    pub fn threshold(&self, len: u64) -> u64 {
        survival::threshold(len, self.product, self.wasted, self.allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wasted_and_what_is_held_reduce_the_credit() {
        let mut credit = Credit::new(1500);
        let mut source = SourceView {
            room: 1 << 30,
            ..SourceView::default()
        };
        assert_eq!(credit.available(&source), MIN_DEBT);
        source.used_bytes = 24 << 20;
        credit.missed(64 << 20);
        let before = credit.available(&source);
        assert_eq!(before, MIN_DEBT + (16 << 20), "half of what was demanded");
        let mut stream = 3 << 20;
        credit.change(0, stream);
        source.unread_bytes = 3 << 20;
        assert_eq!(
            (credit.wasted(&source), credit.available(&source)),
            (0, before)
        );
        credit.begin_answer();
        assert_eq!(credit.left(&source, 0), before - (3 << 20));
        // 2 MiB are used; the stream ends and leaves 1 MiB, which is evicted later.
        credit.read(&mut stream, 2 << 20);
        source.unread_bytes = 1 << 20;
        assert_eq!(credit.wasted(&source), 0);
        credit.change(stream, 0);
        assert_eq!(credit.wasted(&source), 1 << 20);
        (source.unread_bytes, source.unused_bytes) = (0, 1 << 20);
        assert_eq!(credit.wasted(&source), 1 << 20);
        assert_eq!(credit.available(&source), before - (1 << 20));
        assert_eq!(
            Credit::new(1000).left(&source, 0),
            0,
            "nothing is read ahead"
        );
    }

    /// After a loss elsewhere, a file whose readahead was used may still read ahead; one whose readahead was wasted may not.
    #[test]
    fn a_file_has_what_its_own_reads_have_earned() {
        let source = SourceView {
            room: 32 << 20,
            unused_bytes: 8 << 20,
            ..SourceView::default()
        };
        let floor = |missed, is_mapped, demanded, lost| {
            let mut credit = Credit::new(2000);
            credit.missed(missed);
            assert_eq!(credit.left(&source, 0), 0);
            let waste = FileWaste {
                is_mapped,
                demanded,
                lost,
            };
            credit.floor_of_file(&waste, &source)
        };
        assert_eq!(floor(8 << 20, false, 1 << 20, 0), FILE_FLOOR);
        assert_eq!(floor(8 << 20, false, 64 << 10, 0), 64 << 10);
        assert_eq!(floor(8 << 20, false, 1 << 20, 1 << 20), 0);
        assert_eq!(floor(4 << 20, false, 1 << 20, 0), 0, "the bound is hard");
        assert_eq!(floor(4 << 20, true, 1 << 20, 4 << 20), FILE_FLOOR);
        assert_eq!(floor(4 << 20, true, 1 << 20, (4 << 20) + MAPPED_FIRST), 0);
    }

    /// A hint that wasted 100 MB does not change the credit, and a run has its floor.
    #[test]
    fn no_loss_elsewhere_takes_the_credit_of_a_run() {
        let mut credit = Credit::new(1500);
        let source = SourceView {
            room: 32 << 20,
            unused_bytes: 100 << 20,
            ..SourceView::default()
        };
        credit.asked(100 << 20);
        assert_eq!(credit.available(&source), MIN_DEBT);
        assert_eq!(
            (credit.floor(256 << 10), credit.floor(1 << 30)),
            (128 << 10, FLOOR)
        );
    }
}
