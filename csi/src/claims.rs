//! What one call works on, so that another does not: a volume, or a place that a thread asks.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All that is worked on; a clone is the same one.
#[derive(Clone, Debug)]
pub struct Claims<T>(Arc<Mutex<BTreeSet<T>>>);

/// The right to work on one of them, given back when it is dropped.
pub struct Claim<T: Ord> {
    all: Claims<T>,
    what: T,
}

impl<T> Default for Claims<T> {
    fn default() -> Claims<T> {
        Claims(Arc::default())
    }
}

impl<T> Claims<T> {
    fn all(&self) -> MutexGuard<'_, BTreeSet<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
}

impl<T: Ord> Drop for Claim<T> {
    fn drop(&mut self) {
        self.all.all().remove(&self.what);
    }
}
