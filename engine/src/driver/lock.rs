//! The driver's one lock, and the proof that a thread does not hold it.
//!
//! A source may take any time to answer, so it must not be asked by a thread that holds the lock: every reader of every
//! other file would wait for it. The types see to that. A thread begins with an [`Outside`]. Taking the lock consumes it,
//! giving the lock up returns it, and the state behind the lock keeps sources and queues as [`Remote`], which only an
//! [`Outside`] opens.
//!
//! ```text
//!   enter ──► Outside ──lock──► Guard ──unlock (wakes others), release──► Outside
//!                │
//!                └─ remote.at(&outside) ──► &dyn Source     the borrow keeps the Outside from being locked
//! ```
//!
//! [`Outside::enter`] alone cannot be proven: it is called where a thread or a call from outside begins. A debug build
//! stops there, and where the last owner of a source lets go of it, when the thread holds the lock.

use super::Shared;
use super::state::State;
use crate::error::Fault;
use crate::sync::{Condvar, MutexGuard};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// See the head of this file.
pub struct Outside<'a> {
    shared: &'a Arc<Shared>,
}

impl<'a> Outside<'a> {
    /// For a thread that comes from outside of the driver.
    pub fn enter(shared: &'a Arc<Shared>) -> Outside<'a> {
        debug_assert!(!held::is(), "this thread holds the lock");
        Outside { shared }
    }

    pub fn shared(&self) -> &'a Arc<Shared> {
        self.shared
    }

    /// Takes the lock. After a panic behind it every reader gets an error instead of a guess.
    pub fn lock(self) -> Result<Guard<'a>, Fault> {
        self.try_lock().map_err(|_| Fault::Stopped)
    }

    /// The same, for a caller that goes on without it.
    pub fn try_lock(self) -> Result<Guard<'a>, Outside<'a>> {
        match self.shared.state.lock() {
            Ok(state) => Ok(Guard { state, shared: self.shared, _held: held::Mark::new() }),
            Err(_) => Err(self),
        }
    }
}

/// The state, for as long as this thread holds the lock.
pub struct Guard<'a> {
    state: MutexGuard<'a, State>,
    shared: &'a Arc<Shared>,
    _held: held::Mark,
}

impl<'a> Guard<'a> {
    /// Gives up the lock and wakes every thread that has something to do now.
    #[inline]
    pub fn unlock(mut self) -> Outside<'a> {
        let wakeups = self.state.wakeups();
        let outside = self.release();
        match wakeups {
            None => outside,
            Some(wakeups) => outside.wake(wakeups),
        }
    }

    /// Gives up the lock and wakes no thread: the next to unlock does.
    #[inline]
    pub fn release(self) -> Outside<'a> {
        let Guard { state, shared, _held } = self;
        drop(state);
        Outside { shared }
    }

    /// Gives up the lock until `condvar` is notified, at most for `time`. True when the time has passed.
    pub fn sleep_on(self, condvar: &Condvar, time: Duration) -> Result<(Guard<'a>, bool), Fault> {
        let Guard { state, shared, _held } = self;
        let (state, passed) = condvar.wait_timeout(state, time).map_err(|_| Fault::Stopped)?;
        Ok((Guard { state, shared, _held }, passed.timed_out()))
    }
}

impl Deref for Guard<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

/// A source or a queue, out of reach for a thread that holds the lock.
pub struct Remote<T: ?Sized>(Arc<T>);

impl<T: ?Sized> Remote<T> {
    pub fn new(inner: Arc<T>) -> Remote<T> {
        Remote(inner)
    }

    /// One more owner, to be used and let go without the lock.
    #[must_use = "let go of behind the lock, it could be the last owner"]
    pub fn share(&self) -> Remote<T> {
        Remote(Arc::clone(&self.0))
    }

    /// No owner: it may be let go of anywhere.
    pub fn weak(&self) -> Weak<T> {
        Arc::downgrade(&self.0)
    }

    pub fn at<'o>(&'o self, _: &'o Outside<'_>) -> &'o T {
        &self.0
    }

    /// Uses it and lets go of it.
    pub fn once<R>(self, outside: &Outside<'_>, work: impl FnOnce(&T) -> R) -> R {
        work(self.at(outside))
    }
}

impl<T: ?Sized> Drop for Remote<T> {
    fn drop(&mut self) {
        debug_assert!(Arc::strong_count(&self.0) > 1 || !held::is(), "the last owner, behind the lock");
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
            // Nothing to note in a thread that is ending.
            let _ = HELD.try_with(|held| held.set(false));
        }
    }

    pub fn is() -> bool {
        !std::thread::panicking() && HELD.try_with(Cell::get).unwrap_or(false)
    }
}

/// A release build does not ask, and under shuttle all threads are one.
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
