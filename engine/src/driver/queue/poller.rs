//! The task that polls a queue, so that its answer comes without another thread.
//!
//! A task must not wait, and without this its answer takes three threads: the kernel ends a transfer in the thread that submitted
//! it, which sleeps in its runtime; the thread that reaps wakes up, and wakes the task. So a task that waits has itself
//! polled again for a moment, and looks into the queue each time, for all tasks of the file. Other tasks of its thread run
//! between two looks. It does not poll on one core, or where that brought nothing: a storage that answers later than in [`MOMENT`].
//!
//! Example: tasks A and B miss on one file. A polls; B leaves its waker. A looks and finds B's transfer, which wakes B; it
//! looks again, finds its own, and ends. Task C waits as well: it is woken and polls from now on.
//!
//! A transfer for each task is submitted at once: left to the task that polls, to be submitted together, 32 reads at once were 0.66
//! of as many threads instead of 0.81.
//!
//! ```text
//!   none ──a task waits──► polls ──its read ends──► another task that waits polls, or none
//!    ▲                       ├─ nothing ended for MOMENT ──► none: the reaper thread; the third time in a row: rest
//!    └── rest: REST reads ◄──┘  not polled itself for STALE: the reaper thread, or another task
//! ```

use foreread_core::units::Nanos;
use std::time::Duration;

/// How long a task polls while nothing ends. A fast device answers one read in 70 us, and 32 at once in bursts 400 us apart.
const MOMENT: Duration = Duration::from_micros(500);
/// A task that was not polled for so long is taken for stalled.
pub const STALE: Duration = Duration::from_millis(1);
/// Moments without an answer before it rests.
const MAX_EMPTY: u32 = 3;
/// Reads that do not poll then.
const REST: u32 = 256;
/// A rest without an end.
const FOREVER: u32 = u32::MAX;
/// Under shuttle no time passes: looks instead of a moment.
const MAX_LOOKS: u32 = if cfg!(shuttle) { 3 } else { u32::MAX };

/// See the head of this file.
#[derive(Debug, Default)]
pub struct Poller {
    /// The slot of the read whose task polls.
    slot: Option<u32>,
    /// When it began, or found something.
    since: Nanos,
    /// When it looked last.
    last: Nanos,
    looks: u32,
    empty: u32,
    rest: u32,
}

impl Poller {
    /// A task polls.
    pub fn is_active(&self) -> bool {
        self.slot.is_some()
    }

    pub fn is(&self, slot: u32) -> bool {
        self.slot == Some(slot)
    }

    /// A task has looked a moment ago.
    pub fn is_fresh(&self, now: Nanos) -> bool {
        cfg!(shuttle) && self.is_active() || !cfg!(shuttle) && is_within(now, self.last, STALE)
    }

    /// A task polls, and has looked a moment ago: a runtime may stop to poll a task that it keeps.
    pub fn attends(&self, now: Nanos) -> bool {
        self.is_active() && self.is_fresh(now)
    }

    /// The task of this slot may begin. False while it rests.
    pub fn begin(&mut self, slot: u32, now: Nanos) -> bool {
        let rests = self.rest > 0;
        self.rest -= u32::from(rests && self.rest != FOREVER);
        if !rests {
            self.pass_on(slot, now);
        }
        !rests
    }

    /// The task of this slot polls from now on.
    pub fn pass_on(&mut self, slot: u32, now: Nanos) {
        (self.slot, self.since, self.last, self.looks) = (Some(slot), now, now, 0);
    }

    /// It looks once more. False when its moment is over.
    pub fn look(&mut self, now: Nanos) -> bool {
        (self.last, self.looks) = (now, self.looks + 1);
        let goes_on =
            self.looks < MAX_LOOKS && (cfg!(shuttle) || is_within(now, self.since, MOMENT));
        if !goes_on {
            // Nothing is expected of it any more.
            (self.slot, self.last) = (None, Nanos(0));
            self.empty += 1;
            if self.empty >= MAX_EMPTY {
                (self.empty, self.rest) = (0, self.rest.max(REST));
            }
        }
        goes_on
    }

    /// A transfer has ended.
    pub fn found(&mut self, now: Nanos) {
        (self.since, self.looks, self.empty) = (now, 0, 0);
    }

    pub fn end(&mut self) {
        self.slot = None;
    }

    /// No task polls any more.
    pub fn forbid(&mut self) {
        (self.slot, self.rest) = (None, FOREVER);
    }
}

fn is_within(now: Nanos, since: Nanos, time: Duration) -> bool {
    u128::from(now.since(since)) < time.as_nanos()
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    /// Microseconds.
    fn us(us: u64) -> Nanos {
        Nanos(us * 1000)
    }

    #[test]
    fn it_polls_while_transfers_end_and_rests_when_none_do() {
        let mut poller = Poller::default();
        assert!(poller.begin(7, us(0)) && poller.is(7) && !poller.is(8));
        assert!(poller.look(us(450)));
        poller.found(us(450));
        assert!(poller.look(us(900)), "a moment from what it found");
        assert!(!poller.look(us(960)) && !poller.is_active());
        assert!(!poller.is_fresh(us(10_000)), "a thread goes on at once");
        poller.pass_on(9, us(10_000));
        assert!(poller.is(9) && poller.is_fresh(us(10_900)) && !poller.is_fresh(us(11_100)));
        for _ in 1..MAX_EMPTY {
            assert!(poller.begin(7, us(12_000)) && !poller.look(us(12_600)));
        }
        assert_eq!((0..REST).filter(|_| poller.begin(7, us(13_000))).count(), 0);
        assert!(poller.begin(7, us(14_000)), "and tries again");
        poller.forbid();
        assert!(!poller.is_active() && (0..2 * REST).all(|_| !poller.begin(7, us(15_000))));
    }
}
