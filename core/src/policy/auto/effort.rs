//! More than four products of rate and latency, where that helps, and less of the cache, where readahead leaves it unread.
//!
//! ```text
//!   late at the limit      the limit doubles, on trial ──rate 1/8 higher──► the next one may follow
//!                                                      └─no─► it is taken back, and none is tried for 512 decisions
//!   evicted before use     an eighth less of the cache for all streams;  64 decisions without that: a 64th more
//! ```
//! What is evicted before its reader comes shrinks the share of the cache that is used by an eighth, for all streams, and
//! 64 decisions without that give a 64th back.
//!
//! Example: a store whose requests take 15 ms in the median and 150 ms at times. A reader is late at its limit of 60 MB and the limit
//! doubles; no higher rate comes with it, and the reader has used more than 60 MB already: the limit doubles again, on trial.
//!
//! Sources: doubling until the rate grows no more, and three rounds before that is believed: BBR. Figures: chosen on the baseline of the
//! evaluation, and on 1 GiB in order.

use crate::policy::SourceView;

/// How often the limit may be doubled.
const MAX_RAISED: u32 = 3;
/// Decisions after which a raise is judged, for each active stream, and after which another one is tried.
const TRIAL: u64 = 4;
const PAUSE: u64 = 512;
/// Raises in a row without a higher rate after which it is the source that gives no more, for a lone stream that has used as much as it
/// may be ahead: on a store whose requests take up to ten times the median, one window more seldom shows. Others have one.
const FAILURES: u32 = 2;
/// Decisions after which the share of the cache may shrink again, and after which it grows.
pub const SHRINKS_AFTER: u64 = 8;
const GROWS_AFTER: u64 = 64;
/// Part of what is used that may leave the cache unread before the share shrinks.
const TOLERATED: u64 = 11;

/// How often the limit is doubled, and how much of the cache is used. Where requests take much longer than the median, four products of rate and latency do not
/// keep a source busy: readers that are late at the limit raise it, for as long as the rate grows with it.
pub struct Effort {
    raised: u32,
    /// Raises in a row that brought no rate.
    failed: u32,
    /// The rate before the latest raise, while that is on trial.
    before: Option<u64>,
    /// Decision before which nothing changes.
    until: u64,
    /// Part of the room of readahead that is used, of [`ALL`], and the decision at which it changed.
    share: u64,
    changed: u64,
    /// Bytes that had left the cache unread when it last shrank, and that had been used.
    unused: u64,
    used: u64,
}

/// The whole room.
pub const ALL: u64 = 64;

impl Default for Effort {
    fn default() -> Effort {
        Effort {
            raised: 0,
            failed: 0,
            before: None,
            until: 0,
            share: ALL,
            changed: 0,
            unused: 0,
            used: 0,
        }
    }
}

impl Effort {
    /// How often the limit is doubled now.
    pub fn raised(&self) -> u32 {
        self.raised
    }

    /// Part of the room of readahead that is used, in 64ths.
    pub fn share(&self) -> u64 {
        self.share
    }

    /// A reader missed what was read ahead for it. An eighth less for all, if since the last time more than a part of what was used
    /// has left the cache unread; otherwise it was refused, or such losses are rare. `are_many`: more readers than requests ahead.
    pub fn thrashed(&mut self, clock: u64, are_many: bool, source: &SourceView) {
        let (unused, used) = (
            source.unused_bytes.saturating_sub(self.unused),
            source.used_bytes.saturating_sub(self.used),
        );
        if clock > self.changed && (!are_many || unused > used / TOLERATED) {
            (self.unused, self.used) = (source.unused_bytes, source.used_bytes);
            self.share = (self.share - self.share / 8 - 1).max(1);
            self.changed = clock + SHRINKS_AFTER;
        }
    }

    /// A decision without such a loss: after 64 of them a 64th more.
    pub fn calm(&mut self, clock: u64) {
        if clock > self.changed + GROWS_AFTER && self.share < ALL {
            self.share += 1;
            self.changed = clock;
        }
    }

    /// A reader was late though it is as far ahead as it may be. `is_proven`: it is the only one, and has used as much before.
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

    /// A raise that brings no rate is taken back.
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
