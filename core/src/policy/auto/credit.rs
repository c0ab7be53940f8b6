//! What may be wasted: a bound for each source on the bytes that no read ever wanted.
//!
//! ```text
//!   demanded =  an eighth of the bytes that reads missed + readahead that they used
//!   unused + unread  <=  part x demanded + asked + d          d = 2 x rate x latency, the greatest so far, at most an eighth of the cache,
//!                                                             at least the less of 4 MiB and a 32nd of the cache, and 1 MiB;
//!                                                             while a run of 2 MiB or more goes on, an eighth of the cache more
//!   wasted =  unused + unread - held                          what left the cache unread, and what no active stream holds any more
//! ```
//! The second line is hard: but for the floor of a run, nothing goes out that could break it if all that is out should be wasted, whatever is expected. `part` is what
//! `max-overfetch` says beyond one: at 2, the default, a byte may be wasted for each that is demanded. Below 1.25 the debt `d` shrinks with it,
//! and at 1 nothing is read ahead. What hints ask for (`asked`) is not the policy's choice.
//!
//! What a stream has read ahead is wasted with some chance (`survival.rs`). That part of it is its *bet*, and it is made only while
//! there is free credit; the price of bets rises with what was wasted. A run in order has a floor: `part` of what it has run, up to 512 KiB, may be ahead
//! whatever the price is and whatever was wasted, so that no loss elsewhere leaves it without readahead.
//!
//! Example: 100 files of which the first 64 KiB are read by 4 KiB, with 448 KiB more read ahead at each start, at 2 and with a debt of
//! 4 MiB. Each file earns 64 KiB. After ten files the debt is wasted: then 64 KiB go out at each further one.
//!
//! Source: the design of `auto`; competitive prefetching for one latency x bandwidth as the price of a bet. The floor is the kernel's window of
//! 512 KiB, as far as the run pays for it. The default is chosen on the development half of the recordings and on the baseline (decision 0318): with 1.5,
//! 16 streams in turns of a far store take three times as long.

use super::{distance, survival};
use crate::policy::SourceView;
use crate::units::mul_div;

/// The debt: at least, and at most where rate and latency do not ask for more.
const MIN_DEBT: u64 = 1 << 20;
const USUAL_DEBT: u64 = 4 << 20;

/// What may be wasted of 1000 bytes from which on there is all of the debt.
const FULL_DEBT: u64 = 250;
/// A run of so many bytes has its floor whatever was wasted. Chosen: programs that look at a file here and there read less in a row.
const MIN_FLOOR_RUN: u64 = 128 << 10;

/// The part of what reads missed that counts as demanded.
const MISSES: u64 = 8;

/// From here on a run in order is a long one.
const LONG_RUN: u64 = 2 << 20;

/// A run in order may be ahead by `part` of what it has run up to this, whatever was wasted: the largest window of kernels that people set.
const FLOOR: u64 = 512 << 10;

/// The bytes that streams have read ahead and not yet used, and how many of them are expected to be wasted.
pub struct Credit {
    /// Bytes that active streams have read ahead and that were not read.
    held: u64,
    /// Bytes of these that are expected to be wasted.
    bets: u64,
    /// What may be wasted of 1000 bytes that are demanded.
    part: u64,
    /// The largest debt so far.
    debt: u64,
    /// Bytes of pages that reads missed, and bytes that hints asked for.
    missed: u64,
    asked: u64,
    /// Bytes that this answer has planned, which the source does not show yet.
    planned: u64,
}

impl Credit {
    /// Nothing held; at most `max_overfetch` thousandths may be fetched for each 1000 bytes, beside the free ones.
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

    /// A read missed so many bytes.
    pub fn missed(&mut self, bytes: u64) {
        self.missed = self.missed.saturating_add(bytes);
    }

    /// A hint asked for so many bytes.
    pub fn asked(&mut self, bytes: u64) {
        self.asked += bytes;
    }

    /// What may be read ahead now.
    pub fn price(&mut self, source: &SourceView) -> Price {
        let product = distance::product(source);
        // A source that is not busy shows a low rate; with a debt that falls again what was wasted before would have been too much.
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

    /// The same for a run of `run` bytes in order. One that has run long may be ahead by as much again, up to an eighth of the cache: a far store is read
    /// at its rate after some round trips, and a run that ends has wasted no more than it has read.
    pub fn left_of_run(&self, run: u64, source: &SourceView) -> u64 {
        let more = if run < LONG_RUN {
            0
        } else {
            run.min(source.room / 8)
        };
        self.left(source, mul_div(more, self.part.min(FULL_DEBT), FULL_DEBT))
    }

    /// The part of its floor that a run in order has beyond the bound: none if the run is short, or if little waste is allowed.
    pub fn beyond(&self, run: u64, floor: u64) -> u64 {
        if run >= MIN_FLOOR_RUN && self.part >= FULL_DEBT {
            floor
        } else {
            0
        }
    }

    /// What a run of `run` bytes in order may be ahead whatever was wasted elsewhere.
    pub fn floor(&self, run: u64) -> u64 {
        mul_div(self.part, run, 1000).min(FLOOR)
    }

    /// Bytes that active streams have read ahead and that were not read.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Bytes that were wasted: those that left the cache unread, and those unread that no active stream holds.
    pub fn wasted(&self, source: &SourceView) -> u64 {
        source.unused_bytes + source.unread_bytes.saturating_sub(self.held)
    }

    /// Bytes that may be expected to be wasted now.
    pub fn available(&self, source: &SourceView) -> u64 {
        self.allowed(source)
            .saturating_sub(self.wasted(source) + self.bets)
    }

    /// Bytes that may be wasted altogether.
    fn allowed(&self, source: &SourceView) -> u64 {
        // Misses count less: those of readers that drive each other's bytes out would earn more of the same.
        let demanded = (self.missed / MISSES).saturating_add(source.used_bytes);
        mul_div(self.part, demanded, 1000)
            .saturating_add(self.asked)
            // Next to nothing that may be wasted is next to no debt, and none at 1.
            .saturating_add(mul_div(self.debt, self.part.min(FULL_DEBT), FULL_DEBT))
    }

    /// Bytes that may go out now if all that is out should be wasted.
    fn left(&self, source: &SourceView, more: u64) -> u64 {
        let unread = (source.unread_bytes + self.planned).max(self.held);
        let out = source.unused_bytes + unread;
        (self.allowed(source) + more).saturating_sub(out)
    }

    /// A question is asked: the source shows all that was planned before.
    pub fn begin_answer(&mut self) {
        self.planned = 0;
    }

    /// A stream's part changes.
    pub fn change(&mut self, before: Holding, after: Holding) {
        self.planned += after.held.saturating_sub(before.held);
        self.held = self.held.saturating_sub(before.held) + after.held;
        self.bets = self.bets.saturating_sub(before.bet) + after.bet;
    }

    /// Readahead that a stream holds was read.
    pub fn read(&mut self, stream: &mut Holding, bytes: u64) {
        let bytes = bytes.min(stream.held);
        stream.held -= bytes;
        self.held = self.held.saturating_sub(bytes);
    }
}

/// What a byte that is read ahead must be worth, and how many there may be.
#[derive(Clone, Copy)]
pub struct Price {
    /// Rate x latency in bytes.
    pub product: u64,
    /// Bytes that may be wasted altogether, and that were.
    allowed: u64,
    wasted: u64,
    /// Bytes that may be expected to be wasted now.
    pub free: u64,
    /// Bytes that may go out now if all that is out should be wasted.
    pub left: u64,
}

impl Price {
    /// The chance from which on readahead behind a read of `len` bytes is worth it.
    pub fn threshold(&self, len: u64) -> u64 {
        survival::threshold(len, self.product, self.wasted, self.allowed)
    }
}

/// The part of one stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct Holding {
    /// Unread bytes.
    pub held: u64,
    /// Those expected to be wasted.
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
        // A stream holds 3 MiB and expects to lose one of them.
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
        // Two are read; the stream ends and leaves one, which is evicted later.
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

    /// A hint that wasted 100 MB leaves the credit as it was, and a bet that was lost leaves a run its floor.
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
