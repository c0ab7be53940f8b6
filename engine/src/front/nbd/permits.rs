//! A counting semaphore shared by all clients: it limits helper threads, or the bytes buffered for slow clients.
//!
//! ```text
//!   take ──► used + n <= most? ── yes ──► used += n ──give──► used -= n
//!                           └─ no: the caller goes on without
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub struct Permits {
    used: AtomicU64,
    most: u64,
}

/// An amount taken from a semaphore ([`Permits`]); the amount is returned when this value is dropped.
pub struct Permit {
    of: Arc<Permits>,
    n: u64,
}

impl Permits {
    pub fn new(most: u64) -> Permits {
        Permits {
            used: AtomicU64::new(0),
            most,
        }
    }

    pub fn take(&self, n: u64) -> bool {
        let more = |used: u64| used.checked_add(n).filter(|used| *used <= self.most);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    pub fn give(&self, n: u64) {
        self.used.fetch_sub(n, Ordering::Relaxed);
    }

    /// Like [`Permits::take`]; the amount is returned when the permit is dropped.
    pub fn hold(self: &Arc<Permits>, n: u64) -> Option<Permit> {
        self.take(n).then(|| Permit {
            of: Arc::clone(self),
            n,
        })
    }

    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.of.give(self.n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_so_many_and_no_more() {
        let permits = Arc::new(Permits::new(10));
        let held = permits.hold(7);
        assert!(held.is_some() && !permits.take(4) && permits.take(3) && !permits.take(u64::MAX));
        assert!(
            permits.hold(1).is_none() && permits.used() == 10,
            "what was refused is not given back"
        );
        drop(held);
        assert_eq!(permits.used(), 3);
        permits.give(3);
        assert!(permits.take(10) && !permits.take(1));
    }
}
