//! What may be wasted: a bound for each source on the bytes that no read ever wanted.
//!
//! ```text
//!   unused + unread <= part x (16 used + demand) / 17 + d     d = 2 x rate x latency, the greatest so far, a 32nd to an eighth of the cache, at least 1 MiB
//!   wasted =  unused + unread - held                          what left the cache unread, and what no active stream holds any more
//!   free   =  part x (16 used + demand) / 17 + d - wasted - bets
//! ```
//! The first line is hard: nothing goes out that could break it if all that is out should be wasted, whatever is expected. `part` is what
//! `max-overfetch` says beyond one: at 2.5, the default, three bytes may be wasted for two that are used. Below 1.25 the debt shrinks with it,
//! and at 1 nothing is read ahead.
//!
//! What a stream has read ahead is wasted with some chance (`survival.rs`). That part of it is its *bet*, and it is made only while
//! there is free credit; the price of bets rises with what was wasted.
//!
//! Example: 100 files of which the first 64 KiB are read by 4 KiB, with 448 KiB more read ahead at each start, at 2 and with a debt of
//! 1 MiB. Each file earns 60 KiB. After two files 896 KiB are wasted of 1144: at the third 248 KiB go out, at each further one 60 KiB.
//!
//! Source: the design of `auto`; competitive prefetching for one latency x bandwidth as the price of a bet. The default is chosen on the
//! baseline of the evaluation (0.706 of the time of `linux-6.18:max=4M`, 0.77 with 1.5) and on 100 streams of a disk: with 2 they have 0.96
//! of AMP's rate, with 2.5 at least 0.98.

use super::{distance, survival};
use crate::policy::SourceView;
use crate::units::mul_div;

/// The debt limit while rate and latency are not known, and at least: 1 MiB, one region.
const MIN_DEBT: u64 = 1 << 20;

/// What may be wasted of 1000 bytes from which on there is all of the debt.
const FULL_DEBT: u64 = 250;

/// What streams hold and what of it is expected to be wasted.
pub struct Credit {
    /// Bytes that active streams have read ahead and that were not read.
    held: u64,
    /// Bytes of these that are expected to be wasted.
    bets: u64,
    /// What may be wasted of 1000 bytes that are used and demanded.
    part: u64,
    /// The largest debt limit so far.
    debt: u64,
    /// Bytes that this answer has planned, which the source does not show yet.
    planned: u64,
}

impl Credit {
    /// Nothing held; at most `max_overfetch` thousandths may be fetched for each 1000 bytes, beside the debt.
    pub fn new(max_overfetch: u64) -> Credit {
        Credit {
            held: 0,
            bets: 0,
            debt: 0,
            planned: 0,
            part: max_overfetch.saturating_sub(1000),
        }
    }

    /// The debt limit; `product` is rate x latency, `room` the size of the cache.
    pub fn debt(product: u64, room: u64) -> u64 {
        product
            .saturating_mul(2)
            .clamp(room / 32, room / 8)
            .max(MIN_DEBT)
    }

    /// The largest debt limit so far. A source that is not busy shows a low rate; with a debt that falls again what was wasted
    /// before would have been too much, and no stream would get any credit.
    fn debt_of(&mut self, product: u64, room: u64) -> u64 {
        self.debt = self.debt.max(Credit::debt(product, room));
        self.debt_now(product, room)
    }

    /// The same, for reports.
    pub fn debt_now(&self, product: u64, room: u64) -> u64 {
        // Next to nothing that may be wasted is next to no debt, and none at 1.
        let debt = self.debt.max(Credit::debt(product, room));
        mul_div(debt, self.part.min(FULL_DEBT), FULL_DEBT)
    }

    /// What may be read ahead now.
    pub fn price(&mut self, source: &SourceView) -> Price {
        let product = distance::product(source);
        let debt = self.debt_of(product, source.room);
        Price {
            product,
            allowed: self.allowed(source, debt),
            wasted: self.wasted(source),
            free: self.available(source, debt),
            left: self.left(source, debt),
        }
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
    pub fn available(&self, source: &SourceView, debt: u64) -> u64 {
        self.allowed(source, debt)
            .saturating_sub(self.wasted(source) + self.bets)
    }

    /// Bytes that may be wasted altogether.
    fn allowed(&self, source: &SourceView, debt: u64) -> u64 {
        let earned = u128::from(self.part)
            * (16 * u128::from(source.used_bytes) + u128::from(source.demand_bytes))
            / 17_000;
        u64::try_from(earned)
            .unwrap_or(u64::MAX)
            .saturating_add(debt)
    }

    /// Bytes that may go out now if all that is out should be wasted.
    fn left(&self, source: &SourceView, debt: u64) -> u64 {
        let unread = (source.unread_bytes + self.planned).max(self.held);
        let out = source.unused_bytes + unread;
        self.allowed(source, debt).saturating_sub(out)
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
        let mut credit = Credit::new(1266);
        let mut source = SourceView {
            room: 1 << 30,
            ..SourceView::default()
        };
        let debt = Credit::debt(0, source.room);
        assert_eq!(credit.available(&source, debt), 32 << 20);
        source.used_bytes = 32 << 20;
        source.demand_bytes = 32 << 20;
        let before = credit.available(&source, debt);
        // A stream holds 3 MiB and expects to lose one of them.
        let mut stream = Holding {
            held: 3 << 20,
            bet: 1 << 20,
        };
        credit.change(Holding::default(), stream);
        source.unread_bytes = 3 << 20;
        assert_eq!(
            (credit.wasted(&source), credit.available(&source, debt)),
            (0, before - (1 << 20))
        );
        credit.begin_answer();
        assert_eq!(credit.left(&source, debt), before - (3 << 20));
        // Two are read; the stream ends and leaves one, which is evicted later.
        credit.read(&mut stream, 2 << 20);
        source.unread_bytes = 1 << 20;
        assert_eq!(credit.wasted(&source), 0);
        credit.change(stream, Holding::default());
        assert_eq!(credit.wasted(&source), 1 << 20);
        (source.unread_bytes, source.unused_bytes) = (0, 1 << 20);
        assert_eq!(credit.wasted(&source), 1 << 20);
        assert_eq!(credit.available(&source, debt), before - (1 << 20));
        assert_eq!(Credit::debt(30 << 20, source.room), 60 << 20);
        let none = Credit::new(1000);
        assert_eq!(
            none.left(&source, none.debt_now(30 << 20, source.room)),
            0,
            "nothing is read ahead"
        );
    }
}
