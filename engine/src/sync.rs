//! The locks, condition variables and threads of the driver. A normal build uses the types of the standard library; a build with `--cfg
//! shuttle` uses the types of shuttle, a scheduler for tests. Shuttle runs one thread at a time, and tries interleavings that a real
//! scheduler produces once in a million runs.
//!
//! With shuttle, a timed wait never times out: a thread that is not woken is a deadlock, and the scheduler reports it. Atomics always come
//! from the standard library, because the data that they guard is also accessed under a lock.

#[cfg(shuttle)]
pub use shuttle::sync::{Condvar, Mutex, MutexGuard, RwLock};
#[cfg(shuttle)]
pub use shuttle::thread;
#[cfg(not(shuttle))]
pub use std::sync::{Condvar, Mutex, MutexGuard, RwLock};
#[cfg(not(shuttle))]
pub use std::thread;

/// Locks a mutex of the standard library, also after a thread has panicked while it held the lock.
pub(crate) fn lock<T: ?Sized>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
