//! The locks, condition variables and threads of the driver: the standard ones, or, in a build with `--cfg shuttle`, those of a scheduler
//! that runs one thread at a time and tries orders that a real one takes once in a million runs.
//!
//! There a timed wait never times out: a thread that is not woken is a deadlock, and the scheduler reports it. Atomics stay
//! the standard ones: the guarded data is accessed under a lock too.

#[cfg(shuttle)]
pub use shuttle::sync::{Condvar, Mutex, MutexGuard, RwLock};
#[cfg(shuttle)]
pub use shuttle::thread;
#[cfg(not(shuttle))]
pub use std::sync::{Condvar, Mutex, MutexGuard, RwLock};
#[cfg(not(shuttle))]
pub use std::thread;
