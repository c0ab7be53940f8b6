//! A panic in another program's code (a source, a task's runtime) ends here.
//!
//! Example: `read_at` of a source panics. The fetch fails with EIO, its readers get that error, and the thread that ran
//! it goes on with the next fetch.

use crate::source::{EIO, SourceError, report_failure};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// A panic in a source is an error of that source.
pub fn guarded<T>(work: impl FnOnce() -> Result<T, SourceError>) -> Result<T, SourceError> {
    let panicked = |_| SourceError::Io {
        errno: EIO,
        what: "a panic in the source".to_string(),
    };
    catch_unwind(AssertUnwindSafe(work))
        .map_err(panicked)
        .and_then(|result| result)
        .inspect_err(report_failure)
}

/// Wakes a task.
pub fn wake(waker: Waker) {
    let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
}
