//! Fewer requests at once for a server that asks for fewer (503 SlowDown, 429 Too Many Requests).
//!
//! A request that is refused so is made again after a pause, as any other that may pass. That alone would have all requests come back
//! together, and be refused together. So the number that may be under way is halved at the first refusal, and grows by one for as
//! many answers as there may be requests: the rule by which TCP shares a link. What a read waits for goes before readahead. Never: refuses
//! a request, or limits a server that never refused one.
//!
//! ```text
//!   no limit ──503──► half of those under way ──503 of a request begun since──► half again, at least 1
//!      ▲                        └──an answer──► + 1 / limit ──┐
//!      └──────────────────────────────── MAX_LIMIT ◄──────────┘
//! ```
//! Example: 16 requests are under way, and the server takes 6. Ten are refused: the first sets the limit to 8, the other nine were
//! begun before that and change nothing. Two of the next eight are refused: 4. Then it is 5 after four answers, 6 after five more.
//! Source: additive increase, multiplicative decrease (Chiu and Jain, 1989).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// A limit that is not needed any more. Chosen: twice the requests that are made at once unless a setting says otherwise.
const MAX_LIMIT: u32 = 64;
/// How often a request that waits for its turn looks whether a read waits for it by now.
const LOOKS_EVERY: Duration = Duration::from_millis(20);
/// A limit is counted in thousandths.
const ONE: u32 = 1000;

/// The limit of one server's bucket, for all objects of it.
#[derive(Debug, Default)]
pub struct Brake {
    state: Mutex<State>,
    ended: Notify,
}

#[derive(Debug, Default)]
struct State {
    under_way: u32,
    /// In thousandths; 0 is none.
    limit: u32,
    /// Counts the times that it was halved.
    halved: u64,
    /// Requests that a read waits for and that have no turn yet.
    demand_waits: u32,
}

/// Leave for one request, until it is dropped.
#[derive(Debug)]
pub struct Turn<'a> {
    brake: &'a Brake,
    /// How often the limit had been halved when it began.
    halved: u64,
}

/// One of [`State::demand_waits`].
struct DemandWaits<'a>(&'a Brake);

impl Brake {
    /// Waits until one more request may be made. `is_awaited`: a read waits for it now.
    pub async fn turn(&self, is_awaited: impl Fn() -> bool) -> Turn<'_> {
        let mut demand = None;
        loop {
            // Made before the look: what ends in between wakes it.
            let ended = self.ended.notified();
            if let Some(turn) = self.begin(is_awaited()) {
                return turn;
            }
            if demand.is_none() && is_awaited() {
                self.lock().demand_waits += 1;
                demand = Some(DemandWaits(self));
            }
            let _ = tokio::time::timeout(LOOKS_EVERY, ended).await;
        }
    }

    fn begin(&self, is_awaited: bool) -> Option<Turn<'_>> {
        let mut state = self.lock();
        let is_free = state.limit == 0 || state.under_way < (state.limit / ONE).max(1);
        if !is_free || !is_awaited && state.demand_waits > 0 {
            return None;
        }
        state.under_way += 1;
        Some(Turn {
            brake: self,
            halved: state.halved,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn<'_> {
    /// The server has sent what was asked for.
    pub fn answered(&self) {
        let mut state = self.brake.lock();
        if let Some(more) = (ONE * ONE).checked_div(state.limit) {
            state.limit = if state.limit + more < MAX_LIMIT * ONE {
                state.limit + more
            } else {
                0
            };
        }
    }

    /// The server asks for fewer requests. How many there may be now, if this changes it.
    pub fn refused(&self) -> Option<u32> {
        let mut state = self.brake.lock();
        if state.halved != self.halved {
            return None;
        }
        let now = (state.under_way / 2).max(1);
        (state.limit, state.halved) = (now * ONE, state.halved + 1);
        Some(now)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let limited = {
            let mut state = self.brake.lock();
            state.under_way -= 1;
            state.limit > 0
        };
        if limited {
            self.brake.ended.notify_waiters();
        }
    }
}

impl Drop for DemandWaits<'_> {
    fn drop(&mut self) {
        self.0.lock().demand_waits -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many as may begin now, of readahead or of demand.
    fn begin(brake: &Brake, most: usize, awaited: bool) -> Vec<Turn<'_>> {
        std::iter::from_fn(|| brake.begin(awaited))
            .take(most)
            .collect()
    }

    /// The example of the header.
    #[test]
    fn the_limit_is_halved_once_for_those_under_way_and_grows_by_one() {
        let brake = Brake::default();
        let all = begin(&brake, 16, false);
        assert_eq!((all.len(), all[0].refused()), (16, Some(8)));
        assert!(
            all[1..].iter().all(|turn| turn.refused().is_none()),
            "begun before it"
        );
        assert!(brake.begin(true).is_none(), "sixteen are still under way");
        drop(all);
        let eight = begin(&brake, 100, false);
        assert_eq!(
            (eight.len(), eight[0].refused(), eight[1].refused()),
            (8, Some(4), None)
        );
        drop(eight);
        for limit in 4..7 {
            let turns = begin(&brake, 100, false);
            assert_eq!(turns.len(), limit);
            // Rounded down, an answer counts a little less than its part.
            turns.iter().chain(turns.first()).for_each(Turn::answered);
        }
        let one = begin(&brake, 1, false);
        (0..10).for_each(|_| _ = one[0].refused());
        (0..10_000).for_each(|_| one[0].answered());
        assert_eq!(begin(&brake, 1000, false).len(), 1000, "no limit any more");
    }

    #[test]
    fn there_is_always_one_and_demand_goes_first() {
        let brake = Brake::default();
        for _ in 0..5 {
            let one = begin(&brake, 1, false);
            assert_eq!(one[0].refused(), Some(1));
        }
        brake.lock().demand_waits += 1;
        let waits = DemandWaits(&brake);
        assert!(brake.begin(false).is_none(), "a read waits for another");
        assert_eq!(begin(&brake, 9, true).len(), 1);
        drop(waits);
        assert!(brake.begin(false).is_some());
    }
}
