//! What one call works on, so that another does not: a volume, or a place that a thread asks.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// All that is worked on; a clone is the same one.
#[derive(Clone, Debug)]
pub struct Claims<T>(Arc<ClaimState<T>>);

#[derive(Debug)]
struct ClaimState<T> {
    all: Mutex<BTreeSet<T>>,
    /// One was given back.
    freed: Notify,
}

/// The right to work on one of them, given back when it is dropped.
pub struct Claim<T: Ord> {
    all: Claims<T>,
    what: T,
}

impl<T> Default for Claims<T> {
    fn default() -> Claims<T> {
        Claims(Arc::new(ClaimState {
            all: Mutex::default(),
            freed: Notify::new(),
        }))
    }
}

impl<T> Claims<T> {
    fn all(&self) -> MutexGuard<'_, BTreeSet<T>> {
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Ord + Clone> Claims<T> {
    /// Nothing while another has it.
    pub fn claim(&self, what: &T) -> Option<Claim<T>> {
        self.all().insert(what.clone()).then(|| Claim {
            all: self.clone(),
            what: what.clone(),
        })
    }

    /// Waits until no other has it.
    pub async fn claimed(&self, what: &T) -> Claim<T> {
        loop {
            let mut freed = std::pin::pin!(self.0.freed.notified());
            // Before the look: what is given back in between wakes it.
            freed.as_mut().enable();
            if let Some(claim) = self.claim(what) {
                return claim;
            }
            freed.await;
        }
    }
}

impl<T: Ord> Drop for Claim<T> {
    fn drop(&mut self) {
        self.all.all().remove(&self.what);
        self.all.0.freed.notify_waiters();
    }
}
