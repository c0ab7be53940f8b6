//! The single lock of the driver, and a type that proves that a thread does not hold the lock.
//!
//! A source may take any time to answer. If a thread called a source while holding the lock, readers of all other files would wait. The
//! types of this module prevent a call of a source under the lock. Taking the lock consumes an [`UnlockedProof`], and releasing it returns
//! one. The locked state keeps sources and queues as [`Remote`], which can only be used with an [`UnlockedProof`].
//!
//! ```text
//!   enter ──► UnlockedProof ──taken──► LockHeld ──released──► UnlockedProof
//!                │
//!                └─ remote.at(&unlocked) ──► &dyn Source     the borrow keeps the proof from being consumed
//! ```
//!
//! Example: a thread finds a fetch to run. The thread clones the `Remote` of the source under the lock, releases the lock, and reads the
//! source through the method `at` of the `Remote`. Then the thread takes the lock again to report the result.
//!
//! The compiler cannot check [`UnlockedProof::enter`], which creates the proof at the start of each thread and of each external call. A
//! debug build panics if a thread that holds the lock calls `enter`, or drops the last reference to a source.

use crate::source::{SourceError, of_panic, report_failure};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

/// Safety timeout of a sleeping thread, in case a wakeup is missed.
pub const WAKEUP_TIMEOUT: Duration = Duration::from_secs(1);

/// Proof that this thread does not hold the lock.
pub struct UnlockedProof(());

impl UnlockedProof {
    pub fn enter() -> UnlockedProof {
        debug_assert!(!is_held(), "this thread holds the lock");
        UnlockedProof(())
    }

    /// Gives up the proof, because this thread has taken the lock.
    #[inline]
    pub fn taken(self) -> LockHeld {
        set_held(true);
        LockHeld(())
    }
}

/// Shows that this thread holds the lock. The proof is back when the lock is released ([`LockHeld::released`]).
pub struct LockHeld(());

impl LockHeld {
    /// Returns the proof. The caller has released the lock.
    #[inline]
    pub fn released(self) -> UnlockedProof {
        UnlockedProof(())
    }
}

/// A source or a queue, as the state under the lock stores it. A thread that holds the lock can store this value, but cannot call the
/// source or queue in it.
pub struct Remote<T: ?Sized>(Arc<T>);

impl<T: ?Sized> Remote<T> {
    pub fn new(inner: Arc<T>) -> Remote<T> {
        Remote(inner)
    }

    /// Another reference to the object; this reference, too, must be used and dropped without the lock.
    #[must_use = "dropped behind the lock, it could be the last owner"]
    pub fn share(&self) -> Remote<T> {
        Remote(Arc::clone(&self.0))
    }

    /// A weak reference, which may be dropped with or without the lock.
    pub fn weak(&self) -> Weak<T> {
        Arc::downgrade(&self.0)
    }

    pub fn at<'o>(&'o self, _: &'o UnlockedProof) -> &'o T {
        &self.0
    }

    /// Calls the source or queue once and drops this reference to it.
    pub fn once<R>(self, unlocked: &UnlockedProof, work: impl FnOnce(&T) -> R) -> R {
        work(self.at(unlocked))
    }
}

impl<T: ?Sized> Drop for Remote<T> {
    fn drop(&mut self) {
        debug_assert!(
            Arc::strong_count(&self.0) > 1 || !is_held(),
            "the last owner is dropped while this thread holds the lock"
        );
    }
}

impl Drop for LockHeld {
    fn drop(&mut self) {
        set_held(false);
    }
}

/// Whether the lock is watched. A release build does not do it. Under shuttle all threads are one thread, so it would not work.
const IS_WATCHED: bool = cfg!(all(debug_assertions, not(shuttle)));

thread_local! {
    static HELD: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread holds the lock of a driver, as far as that is watched.
fn is_held() -> bool {
    IS_WATCHED && !std::thread::panicking() && HELD.try_with(Cell::get).unwrap_or(false)
}

#[inline]
fn set_held(is_held: bool) {
    if IS_WATCHED {
        // If the thread is ending there is nothing to record.
        let _ = HELD.try_with(|held| held.set(is_held));
    }
}

// Catches panics in foreign code (a source, a task's runtime).
//
// Example: `read_at` of a source panics. The fetch fails with EIO, its readers get that error, and the thread that ran it continues
// with the next fetch.

/// Calls a source; a panic in it becomes an error of the source.
pub fn guarded<T>(work: impl FnOnce() -> Result<T, SourceError>) -> Result<T, SourceError> {
    catch_unwind(AssertUnwindSafe(work))
        .map_err(|panic| of_panic(&*panic))
        .and_then(|result| result)
        .inspect_err(report_failure)
}

pub fn wake(waker: &Waker) {
    let _ = catch_unwind(AssertUnwindSafe(|| waker.wake_by_ref()));
}
