//! The single lock of the driver, and a type that proves that a thread does not hold the lock.
//!
//! A source may take any time to answer. If a thread called a source while holding the lock, readers of all other files would wait. The
//! types of this module prevent a call of a source under the lock. Taking the lock consumes an [`UnlockedProof`], and releasing it returns
//! one. The locked state keeps sources and queues as [`Remote`], which can only be used with an [`UnlockedProof`].
//!
//! ```text
//!   enter ──► UnlockedProof ──take──► StateGuard ──release──► UnlockedProof
//!                │
//!                └─ remote.at(&unlocked) ──► &dyn Source     the borrow keeps the proof from being consumed
//! ```
//!
//! Example: a thread finds a fetch to run. The thread clones the `Remote` of the source under the lock, releases the lock, and reads the
//! source through the method `at` of the `Remote`. Then the thread takes the lock again to report the result.
//!
//! The compiler cannot check [`UnlockedProof::enter`], which creates the proof at the start of each thread and of each external call. A
//! debug build panics if a thread that holds the lock calls `enter`, or drops the last reference to a source.

use crate::error::Fault;
use crate::source::{SourceError, of_panic, report_failure};
use crate::sync::{Condvar, Mutex, MutexGuard};
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

/// Safety timeout of a sleeping thread, in case a wakeup is missed.
pub const WAKEUP_TIMEOUT: Duration = Duration::from_secs(1);

/// Proof that this thread does not hold the lock.
pub struct UnlockedProof(());

impl UnlockedProof {
    /// Creates the proof, for a thread that enters the driver.
    pub fn enter() -> UnlockedProof {
        debug_assert!(!held::is(), "this thread holds the lock");
        UnlockedProof(())
    }
}

/// The driver's lock, with the data that it guards.
pub struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    pub fn new(state: T) -> Lock<T> {
        Lock(Mutex::new(state))
    }

    /// Whether the driver has stopped because a thread panicked while it held the lock.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        // Shuttle's mutex does not report it; a panic ends the shuttle run.
        #[cfg(shuttle)]
        return false;
        #[cfg(not(shuttle))]
        self.0.is_poisoned()
    }

    /// Takes the lock. Returns an error if a thread has panicked while it held the lock.
    pub fn take(&self, unlocked: UnlockedProof) -> Result<StateGuard<'_, T>, UnlockedProof> {
        match self.0.lock() {
            Ok(state) => Ok(StateGuard {
                state,
                _held: held::Mark::new(),
            }),
            Err(_) => Err(unlocked),
        }
    }
}

/// The state, accessible while this thread holds the lock.
pub struct StateGuard<'a, T> {
    state: MutexGuard<'a, T>,
    _held: held::Mark,
}

impl<T> StateGuard<'_, T> {
    /// Releases the lock.
    #[inline]
    pub fn release(self) -> UnlockedProof {
        drop(self);
        UnlockedProof(())
    }

    /// Releases the lock until `condvar` is notified, for at most `time`. Also returns whether the wait has timed out.
    pub fn sleep_on(self, condvar: &Condvar, time: Duration) -> Result<(Self, bool), Fault> {
        let StateGuard { state, _held } = self;
        let (state, passed) = condvar
            .wait_timeout(state, time)
            .map_err(|_| Fault::Stopped)?;
        Ok((StateGuard { state, _held }, passed.timed_out()))
    }
}

impl<T> Deref for StateGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.state
    }
}

impl<T> DerefMut for StateGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.state
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
            Arc::strong_count(&self.0) > 1 || !held::is(),
            "the last owner is dropped while this thread holds the lock"
        );
    }
}

/// Whether this thread holds the lock of a driver.
#[cfg(all(debug_assertions, not(shuttle)))]
mod held {
    use std::cell::Cell;

    thread_local! {
        static HELD: Cell<bool> = const { Cell::new(false) };
    }

    pub struct Mark;

    impl Mark {
        pub fn new() -> Mark {
            HELD.set(true);
            Mark
        }
    }

    impl Drop for Mark {
        fn drop(&mut self) {
            // If the thread is ending there is nothing to record.
            let _ = HELD.try_with(|held| held.set(false));
        }
    }

    pub fn is() -> bool {
        !std::thread::panicking() && HELD.try_with(Cell::get).unwrap_or(false)
    }
}

/// A release build does not check this. Under shuttle all threads are one thread, so the check would not work.
#[cfg(not(all(debug_assertions, not(shuttle))))]
mod held {
    pub struct Mark;

    impl Mark {
        pub fn new() -> Mark {
            Mark
        }
    }

    pub fn is() -> bool {
        false
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

/// Wakes a task.
pub fn wake(waker: Waker) {
    let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
}
