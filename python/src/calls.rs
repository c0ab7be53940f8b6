//! Calls into Python from the engine's threads, counted, so that none runs when the interpreter ends.
//!
//! An interpreter that ends stops threads that ask for it, in the middle of Rust frames. So a function registered with
//! `atexit` first forbids new calls, which then fail with EIO, and waits for those that run, for at most [`PATIENCE`].

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long the end of a program waits for a fetch that runs.
const PATIENCE: Duration = Duration::from_secs(5);

static ENDING: AtomicBool = AtomicBool::new(false);
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// A call that runs.
pub struct Call(());

impl Call {
    /// Nothing when the interpreter ends.
    pub fn begin() -> Option<Call> {
        RUNNING.fetch_add(1, Ordering::SeqCst);
        let call = Call(());
        (!ENDING.load(Ordering::SeqCst)).then_some(call)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// No calls any more. Waits for those that run, so it needs the interpreter released.
pub fn end() {
    ENDING.store(true, Ordering::SeqCst);
    let begun = Instant::now();
    while RUNNING.load(Ordering::SeqCst) > 0 && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// In a forked child no thread runs but this one.
pub fn forget() {
    RUNNING.store(0, Ordering::SeqCst);
}
