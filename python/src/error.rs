//! Converts errors of the engine to Python exceptions: `OSError` with errno, text and file name, or `ValueError` for invalid arguments.
//!
//! [`guarded`] converts a panic to an `OSError` with EIO. Without [`guarded`], PyO3 would raise an exception that `except Exception` does
//! not catch.

use foreread::{ErrorKind, OpenError, ReadError};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `work`, and converts a panic in it to an `OSError` with EIO.
pub fn guarded<T>(work: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(of_errno(libc::EIO, PANIC, None)))
}

pub const PANIC: &str = "a panic in foreread; please report it";

/// Creates `OSError(errno, text[, name])`; depending on the errno, Python makes it a subclass such as
/// `FileNotFoundError`.
pub fn of_errno(errno: i32, text: &str, name: Option<&str>) -> PyErr {
    match name {
        Some(name) => PyOSError::new_err((errno, text.to_string(), name.to_string())),
        None => PyOSError::new_err((errno, text.to_string())),
    }
}

pub fn invalid(text: impl Into<String>) -> PyErr {
    PyValueError::new_err(text.into())
}

/// `ValueError` for an invalid option, and otherwise `OSError`, whose subclass Python chooses by errno.
fn raised(kind: ErrorKind, errno: i32, text: &str, name: &str) -> PyErr {
    match kind {
        ErrorKind::InvalidOption => invalid(text),
        _ => of_errno(errno, text, Some(name)),
    }
}

/// Creates the exception for a source that could not be opened.
pub fn of_open(error: &OpenError, name: &str) -> PyErr {
    if let OpenError::Source(source) = error {
        let text = format!("{}; {}", source.why, source.remedy);
        return raised(error.kind(), error.errno(), &text, &source.what.to_string());
    }
    raised(error.kind(), error.errno(), &error.to_string(), name)
}

/// Creates the exception for a read that failed.
pub fn of_read(error: &ReadError, name: &str) -> PyErr {
    raised(error.kind(), error.errno(), &error.to_string(), name)
}
