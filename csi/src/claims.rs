//! Locks by key, so that two calls do not work on the same volume or path at once.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The held locks; clones share them.
#[derive(Clone, Debug)]
pub struct Claims<T>(Arc<ClaimState<T>>);

#[derive(Debug)]
struct ClaimState<T> {
    all: Mutex<BTreeSet<T>>,
    /// Signalled when a lock is released.
    freed: Notify,
}

/// A held lock, released when it is dropped.
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
    /// `None` while another call holds it.
    pub fn claim(&self, what: &T) -> Option<Claim<T>> {
        self.all().insert(what.clone()).then(|| Claim {
            all: self.clone(),
            what: what.clone(),
        })
    }

    /// Waits until it is free.
    pub async fn claimed(&self, what: &T) -> Claim<T> {
        loop {
            let mut freed = std::pin::pin!(self.0.freed.notified());
            // Registered before the check, so that a release in between is not missed.
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
