//! More than four products of rate and latency, where that helps.
//!
//! ```text
//!   late at the limit      the limit doubles, on trial ──rate 1/8 higher──► the next one may follow
//!                                                      └─no─► it is taken back, and none is tried for 512 decisions
//! ```
//! Example: a store whose requests take 15 ms in the median and 150 ms at times. A reader is late at its limit of 60 MB and the limit
//! doubles; no higher rate comes with it, and the reader has used more than 60 MB already: the limit doubles again, on trial.
//!
//! Sources: doubling until the rate grows no more, and three rounds before that is believed: BBR. Figures: chosen on the baseline of the
//! evaluation, and on 1 GiB in order.

/// How often the limit may be doubled.
const MAX_RAISED: u32 = 3;
/// Decisions after which a raise is judged, for each active stream, and after which another one is tried.
const TRIAL: u64 = 4;
const PAUSE: u64 = 512;
/// Raises in a row without a higher rate after which it is the source that gives no more, for a lone stream that has used as much as it
/// may be ahead: on a store whose requests take up to ten times the median, one window more seldom shows. Others have one.
const FAILURES: u32 = 2;
/// How often the limit is doubled. Where requests take much longer than the median, four products of rate and latency do not
/// keep a source busy: readers that are late at the limit raise it, for as long as the rate grows with it.
#[derive(Default)]
pub struct Effort {
    raised: u32,
    /// Raises in a row that brought no rate.
    failed: u32,
    /// The rate before the latest raise, while that is on trial.
    before: Option<u64>,
    /// Decision before which nothing changes.
    until: u64,
}

impl Effort {
    /// How often the limit is doubled now.
    pub fn raised(&self) -> u32 {
        self.raised
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
