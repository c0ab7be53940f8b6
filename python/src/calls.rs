//! Counts the calls of Python functions by threads of the engine, so that no such call is running when the interpreter
//! ends.
//!
//! An ending interpreter stops each thread that tries to attach to it, even if the thread is in the middle of a Rust
//! function. Therefore a function registered with `atexit` first forbids new calls, which then fail with EIO, and waits
//! for running calls for at most [`PATIENCE`].

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long the end of a program waits for running fetches.
const PATIENCE: Duration = Duration::from_secs(5);

static ENDING: AtomicBool = AtomicBool::new(false);
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// A running call of a Python function; the call counts as ended when this value is dropped.
pub struct Call(());

impl Call {
    /// Starts a call. Returns `None` if the interpreter is ending.
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

/// Forbids new calls of Python functions and waits for the running calls. The calling thread must be detached from the
/// interpreter.
pub fn end() {
    ENDING.store(true, Ordering::SeqCst);
    let begun = Instant::now();
    while RUNNING.load(Ordering::SeqCst) > 0 && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Resets the counter of calls in a forked child, in which only this thread runs.
pub fn forget() {
    RUNNING.store(0, Ordering::SeqCst);
}
