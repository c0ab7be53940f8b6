//! A second request for what a read waits for, where the first takes longer than nearly all before it (hedging).
//!
//! Off unless `hedge=PERCENT` is set, since it costs requests. Never: asks a third time, or more often than PERCENT says.
//!
//! ```text
//!   request ──── first byte ──────────────────────────────► kept
//!      │ 95 % of those before were faster; a read waits; an allowance is left
//!      └──► the same request again ──► the first byte of either is kept, the other request is dropped
//! ```
//! Example: of the last 128 requests 121 had their first byte within 45 ms, so a read that has waited 45 ms asks again. With
//! `hedge=5` each answer adds 5 hundredths of an allowance, and one more request takes a whole one. Source: Dean and Barroso,
//! "The Tail at Scale", CACM 56(2), 2013: after the 95th percentile, about 5 % more requests.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Answers whose times are known. Chosen: six of them are above the 95th percentile.
const RECENT: usize = 128;
/// Answers before the first hedge. Chosen: one of them is above the 95th percentile.
const LEAST: usize = 20;
/// Hundredths of an allowance that are saved up at most: four hedges one after the other.
const MAX_SAVED: u32 = 400;

/// The times to the first byte of a server's answers, and what may be asked a second time.
#[derive(Debug, Default)]
pub struct Hedges {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Microseconds.
    recent: Vec<u32>,
    /// The place of the next, once there are [`RECENT`].
    next: usize,
    /// Hundredths of a request.
    saved: u32,
}

impl Hedges {
    /// The time after which a second request is due; nothing while too few answers are known.
    pub fn due_after(&self) -> Option<Duration> {
        let mut times = self.lock().recent.clone();
        if times.len() < LEAST {
            return None;
        }
        let at = times.len() * 95 / 100;
        let (_, time, _) = times.select_nth_unstable(at);
        Some(Duration::from_micros(u64::from(*time)))
    }

    /// The first byte of an answer came after `time`; `percent` of a request is saved up for hedges.
    pub fn answered(&self, time: Duration, percent: u32) {
        let time = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        let mut state = self.lock();
        state.saved = (state.saved + percent).min(MAX_SAVED);
        if state.recent.len() < RECENT {
            state.recent.push(time);
            return;
        }
        let at = state.next;
        state.recent[at] = time;
        state.next = (at + 1) % RECENT;
    }

    /// Leave for one more request.
    pub fn take(&self) -> bool {
        let mut state = self.lock();
        let left = state.saved.checked_sub(100);
        state.saved = left.unwrap_or(state.saved);
        left.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_that_of_the_nineteenth_of_twenty_of_the_last() {
        let hedges = Hedges::default();
        for n in 0..20 {
            assert_eq!(hedges.due_after(), None, "{n} answers");
            hedges.answered(Duration::from_millis(n + 1), 5);
        }
        assert_eq!(hedges.due_after(), Some(Duration::from_millis(20)));
        for n in 0..RECENT as u64 {
            hedges.answered(Duration::from_micros(n + 1), 5);
        }
        assert_eq!(
            hedges.due_after(),
            Some(Duration::from_micros(122)),
            "the older ones are forgotten"
        );
    }

    #[test]
    fn one_request_in_twenty_and_at_most_four_at_once() {
        let hedges = Hedges::default();
        assert!(!hedges.take(), "nothing is saved up");
        let taken = (0..1000).filter(|_| {
            hedges.answered(Duration::ZERO, 5);
            hedges.take()
        });
        assert_eq!(taken.count(), 50);
        (0..1000).for_each(|_| hedges.answered(Duration::ZERO, 5));
        assert_eq!((0..10).filter(|_| hedges.take()).count(), 4);
    }
}
