//! How many bytes may be wasted: for each source, a bound on the bytes that are read ahead and never read.
//!
//! ```text
//!   demanded =  an eighth of the bytes that reads missed + readahead that reads used
//!   unused + unread  <=  part x demanded + asked + d          d = 2 x rate x latency, the largest so far, at most an eighth of the cache,
//!                                                             at least the less of 4 MiB and a 32nd of the cache, and 1 MiB;
//!                                                             while a run of 2 MiB or more continues, an eighth of the cache more
//!   wasted =  unused + unread - held                          evicted unread, or unread and no longer held by an active stream
//! ```
//! The bound in the second line is hard. Except for the floor of a run, nothing is read ahead that could break it if all outstanding
//! readahead were wasted, whatever waste is expected. `part` is `max-overfetch` less one: at 2, the default, one byte may be wasted for
//! each byte that is demanded. Below 1.25 the debt `d` shrinks with it, and at 1 nothing is read ahead. The bytes that hints request
//! (`asked`) are not the policy's choice.
//!
//! Each byte that a stream has read ahead is wasted with some chance (`survival.rs`). The waste expected from that is the stream's *bet*. A
//! bet is made only while there is free credit, and the price of bets rises with the waste so far. A sequential run has a floor: `part`
//! times its length, up to 512 KiB, may be ahead regardless of the price and of earlier waste, so that no loss elsewhere leaves it without
//! readahead.
//!
//! Example: 100 files, each read in reads of 4 KiB up to 64 KiB only, with 448 KiB more read ahead at each start; `max-overfetch` is 2 and
//! the debt 4 MiB. Each file earns 64 KiB. After ten files the debt is wasted: from then on, 64 KiB are read ahead in each file.
//!
//! Source: the design of `auto`; competitive prefetching for one latency x bandwidth as the price of a bet. The floor is the kernel's
//! window of 512 KiB, as far as the run pays for it. The default was chosen on the development half of the recordings and on the baseline
//! (decision 0318): with 1.5, 16 streams in turns on a distant store take three times as long.

use super::{distance, survival};
use crate::policy::SourceView;
use crate::units::mul_div;

/// The smallest debt, and the usual debt if rate x latency does not require more.
const MIN_DEBT: u64 = 1 << 20;
const USUAL_DEBT: u64 = 4 << 20;

/// The whole debt is available if at least this number of bytes may be wasted for 1000 demanded bytes.
const FULL_DEBT: u64 = 250;
/// A run of at least this number of bytes has its floor regardless of earlier waste. The figure was chosen because programs that read a
/// file here and there read less in a row.
const MIN_FLOOR_RUN: u64 = 128 << 10;

/// Missed bytes, divided by this, count as demanded.
const MISSES: u64 = 8;

/// A sequential run of this length is a long run.
const LONG_RUN: u64 = 2 << 20;

/// A sequential run may be ahead by `part` times its length, up to this, regardless of earlier waste: the largest window that is commonly
/// set in kernels.
const FLOOR: u64 = 512 << 10;

/// The bytes that streams have read ahead and not yet used, and how many of them are expected to be wasted.
pub struct Credit {
    /// Bytes that active streams have read ahead and that were not used yet.
    held: u64,
    /// How many of these bytes are expected to be wasted.
    bets: u64,
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
    /// A credit with no bytes held. At most `max_overfetch` bytes may be fetched for 1000 demanded bytes, in addition to the debt.
    pub fn new(max_overfetch: u64) -> Credit {
        Credit {
            held: 0,
            bets: 0,
            debt: MIN_DEBT,
            missed: 0,
            asked: 0,
            planned: 0,
            part: max_overfetch.saturating_sub(1000),
        }
    }

    /// Records the bytes that a read missed.
    pub fn missed(&mut self, bytes: u64) {
        self.missed = self.missed.saturating_add(bytes);
    }

    /// Records the bytes that a hint requested.
    pub fn asked(&mut self, bytes: u64) {
        self.asked += bytes;
    }

    /// The present price of readahead, and how many bytes may be read ahead.
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

    /// The bytes that may be read ahead for a sequential run of `run` bytes, if all that is outstanding were wasted. A long run may be
    /// ahead by its own length more, up to an eighth of the cache: a distant store is then read at its full rate after some round trips,
    /// and a run that ends has wasted no more than it has read.
    pub fn left_of_run(&self, run: u64, source: &SourceView) -> u64 {
        let more = if run < LONG_RUN {
            0
        } else {
            run.min(source.room / 8)
        };
        self.left(source, mul_div(more, self.part.min(FULL_DEBT), FULL_DEBT))
    }

    /// The part of its floor that a sequential run has beyond the bound: 0 if the run is short, or if little waste is allowed.
    pub fn beyond(&self, run: u64, floor: u64) -> u64 {
        if run >= MIN_FLOOR_RUN && self.part >= FULL_DEBT {
            floor
        } else {
            0
        }
    }

    /// Bytes that a sequential run of `run` bytes may be ahead, regardless of waste elsewhere.
    pub fn floor(&self, run: u64) -> u64 {
        mul_div(self.part, run, 1000).min(FLOOR)
    }

    /// Bytes that active streams have read ahead and that were not used yet.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Bytes that were wasted: those evicted unread, and unread bytes that no active stream holds.
    pub fn wasted(&self, source: &SourceView) -> u64 {
        source.unused_bytes + source.unread_bytes.saturating_sub(self.held)
    }

    /// Bytes of expected waste for which there is credit now.
    pub fn available(&self, source: &SourceView) -> u64 {
        self.allowed(source)
            .saturating_sub(self.wasted(source) + self.bets)
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

    /// Starts an answer: the source reports everything that was planned before.
    pub fn begin_answer(&mut self) {
        self.planned = 0;
    }

    /// Replaces a stream's part of the credit.
    pub fn change(&mut self, before: Holding, after: Holding) {
        self.planned += after.held.saturating_sub(before.held);
        self.held = self.held.saturating_sub(before.held) + after.held;
        self.bets = self.bets.saturating_sub(before.bet) + after.bet;
    }

    /// Records that readahead which a stream holds was used.
    pub fn read(&mut self, stream: &mut Holding, bytes: u64) {
        let bytes = bytes.min(stream.held);
        stream.held -= bytes;
        self.held = self.held.saturating_sub(bytes);
    }
}

/// What a byte must be worth to be read ahead, and how many bytes may be.
#[derive(Clone, Copy)]
pub struct Price {
    /// Rate x latency in bytes.
    pub product: u64,
    /// Bytes that may be wasted in total, and bytes that were wasted.
    allowed: u64,
    wasted: u64,
    /// Bytes of expected waste for which there is credit now.
    pub free: u64,
    /// Bytes that may be read ahead now, assuming that all outstanding readahead is wasted.
    pub left: u64,
}

impl Price {
    /// The least chance at which readahead after a read of `len` bytes is worth it.
    pub fn threshold(&self, len: u64) -> u64 {
        survival::threshold(len, self.product, self.wasted, self.allowed)
    }
}

/// One stream's part of the credit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Holding {
    /// Bytes read ahead and not used yet.
    pub held: u64,
    /// How many of them are expected to be wasted.
    pub bet: u64,
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
        // A stream holds 3 MiB, of which 1 MiB is expected to be wasted.
        let mut stream = Holding {
            held: 3 << 20,
            bet: 1 << 20,
        };
        credit.change(Holding::default(), stream);
        source.unread_bytes = 3 << 20;
        assert_eq!(
            (credit.wasted(&source), credit.available(&source)),
            (0, before - (1 << 20))
        );
        credit.begin_answer();
        assert_eq!(credit.left(&source, 0), before - (3 << 20));
        // 2 MiB are used; the stream ends and leaves 1 MiB, which is evicted later.
        credit.read(&mut stream, 2 << 20);
        source.unread_bytes = 1 << 20;
        assert_eq!(credit.wasted(&source), 0);
        credit.change(stream, Holding::default());
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

    /// A hint that wasted 100 MB does not change the credit, and after a lost bet a run still has its floor.
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
        let bet = Holding {
            held: 8 << 20,
            bet: 8 << 20,
        };
        credit.change(Holding::default(), bet);
        credit.begin_answer();
        assert_eq!(credit.available(&source), 0);
        assert_eq!(
            (credit.floor(256 << 10), credit.floor(1 << 30)),
            (128 << 10, FLOOR)
        );
    }
}
