//! What may be wasted: a bound for each source on the bytes that no read ever wanted.
//!
//! ```text
//!   unused <= used / 4 + demand / 64 + d + room      d = 2 x rate x latency, at least 4 MiB and at most an eighth of the cache
//! ```
//! Each byte of use earns an eighth, each byte of demand a 64th. What a stream reads ahead beyond an eighth of
//! what it made use of is a bet: it needs credit when it is made, and holds it until it is used or given up. That eighth needs none. So all
//! that can be lost beyond the credit is what streams hold at one time: the room of readahead in the cache.
//!
//! Example: 100 random files of which the first 64 KiB are read, with a bet of 1 MiB at each start. After four the 4 MiB of `d`
//! are gone; each further file earns 1 KiB of credit, so bets of 1 KiB go on. A source with latency has the larger `d`: one
//! round trip of waste at its full rate, twice.
//!
//! Source: the design of `auto`; competitive prefetching for one latency x bandwidth as the price of a bet.

/// The debt limit while rate and latency are not known, and at least: 4 MiB, one largest fetch.
const MIN_DEBT: u64 = 4 << 20;

/// What has been wasted and what has been earned.
#[derive(Default)]
pub struct Credit {
    used: u64,
    /// Evicted or dropped without use.
    unused: u64,
    /// Left behind by streams that ended, and not evicted yet.
    left: u64,
    /// Held by bets.
    bets: u64,
}

impl Credit {
    /// Bytes that a bet may have now; `product` is rate x latency, `room` the size of the cache.
    pub fn available(&self, demand: u64, product: u64, room: u64) -> u64 {
        let debt = product.saturating_mul(2).min(room / 8).max(MIN_DEBT);
        let earned = self.used / 8 + demand / 64;
        earned.saturating_add(debt).saturating_sub(self.unused + self.left + self.bets)
    }

    /// A stream's bet changes from `before` to `after` bytes.
    pub fn bet(&mut self, before: u64, after: u64) {
        self.bets = self.bets.saturating_sub(before) + after;
    }

    /// A stream ends with `bytes` bytes unread.
    pub fn leave(&mut self, bytes: u64) {
        self.left += bytes;
    }

    /// Readahead was demanded.
    pub fn used(&mut self, bytes: u64) {
        self.used += bytes;
    }

    /// Readahead left the cache unread. What a stream had left behind was counted already.
    pub fn unused(&mut self, bytes: u64) {
        self.unused += bytes;
        self.left = self.left.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bet_needs_credit_and_gives_it_back_when_used() {
        let mut credit = Credit::default();
        assert_eq!(credit.available(0, 0, 1 << 30), 4 << 20);
        credit.bet(0, 3 << 20);
        assert_eq!(credit.available(0, 0, 1 << 30), 1 << 20);
        credit.bet(3 << 20, 0);
        credit.used(3 << 20);
        assert_eq!(credit.available(6 << 20, 0, 1 << 30), (4 << 20) + (3 << 17) + (6 << 14));
        // What a stream leaves counts once, though it is evicted later.
        credit.leave(4 << 20);
        credit.unused(4 << 20);
        assert_eq!(credit.available(6 << 20, 0, 1 << 30), (3 << 17) + (6 << 14));
        assert_eq!(credit.available(0, 30 << 20, 1 << 30), (60 << 20) + (3 << 17) - (4 << 20));
    }
}
