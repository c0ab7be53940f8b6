//! Errors of the engine as Python's: `OSError` with errno, text and name, or `ValueError` for what was asked wrongly.
//!
//! [`guarded`] keeps panics on this side: one is an `OSError` with EIO, not an exception that `except Exception` misses.

use foreread::{OpenError, ReadError};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a call. A panic is EIO.
///
/// # Errors
/// Those of the call.
pub fn guarded<T>(work: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(of_errno(libc::EIO, PANIC, None)))
}

/// What is said of a panic.
pub const PANIC: &str = "a panic in foreread; please report it";

/// `OSError(errno, text[, name])`, which Python makes a `FileNotFoundError` and others of.
pub fn of_errno(errno: i32, text: &str, name: Option<&str>) -> PyErr {
    match name {
        Some(name) => PyOSError::new_err((errno, text.to_string(), name.to_string())),
        None => PyOSError::new_err((errno, text.to_string())),
    }
}

/// What was asked for does not exist or does not fit.
pub fn invalid(text: impl Into<String>) -> PyErr {
    PyValueError::new_err(text.into())
}

/// A source that could not be opened.
pub fn of_open(error: &OpenError, name: &str) -> PyErr {
    match error {
        OpenError::Source(source) => of_errno(
            source.errno,
            &format!("{}; {}", source.why, source.remedy),
            Some(&source.what.to_string()),
        ),
        OpenError::Policy(_) | OpenError::PageSize { .. } | OpenError::PolicyPage { .. } => {
            invalid(error.to_string())
        }
        _ => of_errno(error.errno(), &error.to_string(), Some(name)),
    }
}

/// A read that failed.
pub fn of_read(error: &ReadError, name: &str) -> PyErr {
    of_errno(error.errno(), &error.to_string(), Some(name))
}
