//! Logs the failures of sources.
//!
//! A panic in a source counts as a failure. Example: after an object is replaced, every read of its old version fails. The log then
//! has one line per minute, with the number of failed reads.

use super::{Cause, EIO, SourceError};
use crate::log::once_a_minute;
use rustix::io::Errno;
use std::any::Any;

/// A panic in a source, which is a bug in the source's code. The value has the panic's message, if that is text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the source panicked: {message}")]
pub struct SourcePanic {
    /// The text.
    pub message: String,
}

/// Converts a caught panic of a source to an error of that source.
pub(crate) fn of_panic(panic: &(dyn Any + Send)) -> SourceError {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let message = text.unwrap_or("no text").to_string();
    SourceError::Other {
        errno: EIO,
        what: format!("the source panicked: {message}"),
        cause: Cause::new(SourcePanic { message }),
    }
}

/// Logs that a source failed, or that its version changed. A cancelled fetch is not a failure.
pub(crate) fn report_failure(error: &SourceError) {
    if error.errno() == Errno::CANCELED.raw_os_error() {
        return;
    }
    let text = error.full_text();
    let Some(times) = once_a_minute(&text) else {
        return;
    };
    match error {
        SourceError::Changed { .. } => tracing::warn!(times, "source changed: {text}"),
        SourceError::Io { .. } | SourceError::Other { .. } | SourceError::Short { .. } => {
            tracing::warn!(times, "source failed: {text}")
        }
    }
}
