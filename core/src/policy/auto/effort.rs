//! Decides when the distance of streams may exceed four times rate x latency, and when readahead must use less of the cache.
//!
//! ```text
//!   late at the limit      the limit doubles, on trial ──rate 1/8 higher──► the next doubling may follow
//!                                                      └─no─► it is taken back, and none is tried for 512 decisions
//!   evicted before use     an eighth less of the cache for all streams;  64 decisions without such a loss: a 64th more
//! ```
//! If readahead is evicted before its reader arrives, the share of the cache that readahead of all streams may use shrinks by an eighth,
//! down to 3/8 of the usual share. After every 64 decisions of the policy without such an eviction, the share grows by a 64th of the cache.
//!
//! Example: a store whose requests take 15 ms in the median and sometimes 150 ms. A reader reaches bytes that are still in flight although
//! its distance is at the limit of 60 MB, so the limit doubles. The rate does not rise, but the reader is the only one, and has already
//! used more than 60 MB. So the limit doubles once more, again on trial.
//!
//! Source: BBR also doubles until the rate has not grown for three rounds. The constants were chosen by measuring the baseline workloads of
//! the evaluation, and sequential reads of 1 GiB.

use crate::policy::SourceView;

/// The limit may be doubled this number of times.
const MAX_RAISED: u32 = 3;
/// Decisions for each active stream until a raise is judged, and decisions after a failed raise until the next is tried.
const TRIAL: u64 = 4;
const PAUSE: u64 = 512;
/// A lone stream that has used as many bytes as it may be ahead may raise the limit again after up to this number of raises without a
/// higher rate; then the source is at its limit. On a store whose requests take up to ten times the median, the gain of one more window
/// seldom shows. Other streams get one raise.
const FAILURES: u32 = 2;
/// The number of decisions after which the share of the cache may shrink again, and the number after which it grows.
pub const SHRINKS_AFTER: u64 = 8;
const GROWS_AFTER: u64 = 64;
/// With many readers, the share shrinks only if more bytes are evicted unread than the used bytes divided by this.
const TOLERATED: u64 = 11;

/// How often the limit on the distance has been doubled, and the share of the cache that readahead may use. If some requests take much
/// longer than the median, a distance of four times rate x latency does not keep a source busy. So when a reader at the limit has to wait,
/// the limit doubles, for as long as the rate grows with it.
#[derive(Default)]
pub struct Effort {
    raised: u32,
    /// Raises in a row after which the rate was no higher.
    failed: u32,
    /// The rate before the latest raise, while that raise is on trial.
    before: Option<u64>,
    /// The limit does not change before this decision.
    until: u64,
    /// The share of the room for readahead that is not used, in parts of [`ALL`], and the decision at which it changed.
    unshared: u64,
    changed: u64,
    /// Bytes that had been evicted unread, and bytes that had been used, when the share last shrank.
    unused: u64,
    used: u64,
}

/// The value of [`Effort::share`] if readahead may use all of its cache space, that is, half of the cache.
pub const ALL: u64 = 64;
/// The smallest share. Without it, 64 readers and a booting machine took up to twice as long with a cache of 16 MiB: more reads missed
/// than the shorter readahead saved. With half of all, the compiler of the validation half took 1.2 times as long.
const LEAST_SHARE: u64 = ALL * 3 / 8;

impl Effort {
    /// Returns how often the limit on the distance has been doubled.
    pub fn raised(&self) -> u32 {
        self.raised
    }

    /// The share of the cache space for readahead (half of the cache) that may be used, in 64ths.
    pub fn share(&self) -> u64 {
        ALL - self.unshared
    }

    /// Records that a reader missed bytes which had been read ahead for it, and shrinks the share of the cache for all streams by an
    /// eighth. If `are_many` is true (the readers alone keep the source busy), the share shrinks only if many bytes were evicted unread
    /// since it last shrank. If only few bytes were evicted, the missed readahead was refused, or such misses are rare.
    pub fn thrashed(&mut self, clock: u64, are_many: bool, source: &SourceView) {
        let (unused, used) = (
            source.unused_bytes.saturating_sub(self.unused),
            source.used_bytes.saturating_sub(self.used),
        );
        if clock > self.changed && (!are_many || unused > used / TOLERATED) {
            (self.unused, self.used) = (source.unused_bytes, source.used_bytes);
            let share = (self.share() - self.share() / 8 - 1).max(LEAST_SHARE);
            self.unshared = ALL - share;
            self.changed = clock + SHRINKS_AFTER;
        }
    }

    /// Records a decision without evicted readahead. After 64 of these decisions, the share grows by 1/64.
    pub fn calm(&mut self, clock: u64) {
        if clock > self.changed + GROWS_AFTER && self.unshared > 0 {
            self.unshared -= 1;
            self.changed = clock;
        }
    }

    /// Records that a reader had to wait for readahead although its distance is at the limit. `is_proven` says that this reader is the
    /// only one, and has used at least as many bytes as the limit.
    pub fn late(&mut self, rate: u64, clock: u64, active: u64, is_proven: bool) {
        if clock < self.until {
            return;
        }
        let grew = self.before.is_none_or(|before| rate > before + before / 8);
        self.failed = if grew { 0 } else { self.failed + 1 };
        if (grew || is_proven && self.failed <= FAILURES) && self.raised < MAX_RAISED {
            self.raised += 1;
            self.before = Some(rate);
            self.until = clock + TRIAL * active;
        } else {
            self.raised = self.raised.saturating_sub(u32::from(!grew));
            (self.before, self.failed) = (None, 0);
            self.until = clock + PAUSE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A raise after which the rate is no higher is taken back.
    #[test]
    fn effort_follows_the_rate() {
        let mut effort = Effort::default();
        effort.late(100, 0, 1, false);
        assert_eq!(effort.raised, 1);
        effort.late(150, 2, 1, false);
        assert_eq!(effort.raised, 1, "on trial");
        effort.late(150, 16, 1, false);
        effort.late(150, 32, 1, false);
        assert_eq!(effort.raised, 1, "the second raise brought nothing");
        let mut effort = Effort::default();
        (0..4).for_each(|n| effort.late(100, 4 * n, 1, true));
        assert_eq!(
            effort.raised, 2,
            "a stream that has used so much tries three times"
        );
    }
}
