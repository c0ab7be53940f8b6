//! Errors from opening and reading sources. Each error has a message of one line and an errno. The cause of such an error is the error of
//! the client library, if there is one.
//!
//! Example: a client's error `server said 503` is the cause of a [`SourceError::Other`], and the message of the failed read
//! contains both.

use super::{Cause, SourceName, SourcePanic};
use crate::error_kind::ErrorKind;

/// Why a read of a source failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The storage answered with an error number.
    #[error("{what}: {}", errno_text(*errno))]
    Io {
        /// The error number.
        errno: i32,
        /// The operation.
        what: String,
    },
    /// Another error of the storage's client.
    #[error("{what}")]
    Other {
        /// The closest error number, for callers that use error numbers.
        errno: i32,
        /// The operation and the problem.
        what: String,
        /// The client's error.
        #[source]
        cause: Cause,
    },
    /// The source ended before its size.
    #[error("the source ends at {at}, before its size {size}")]
    Short {
        /// Where the bytes end.
        at: u64,
        /// Where the bytes should end.
        size: u64,
    },
    /// The source is not the version that was accepted last.
    #[error("{what}")]
    Changed {
        /// What has changed.
        what: String,
    },
}

impl SourceError {
    /// The kind of the error, for callers that match on it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            SourceError::Io { errno, .. } | SourceError::Other { errno, .. } => {
                ErrorKind::of_storage(*errno)
            }
            SourceError::Short { .. } => ErrorKind::Storage,
            SourceError::Changed { .. } => ErrorKind::Changed,
        }
    }

    /// The error number (errno): the one that the storage returned, or else a number for the kind of error.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            SourceError::Io { errno, .. } | SourceError::Other { errno, .. } => *errno,
            _ => self.kind().errno(),
        }
    }
}

impl SourceError {
    /// The error's text, followed by that of its cause unless the text already contains it: everything that fits on one line. A
    /// text that ends with the description of the error number needs no cause.
    pub(crate) fn full_text(&self) -> String {
        let text = self.to_string();
        let SourceError::Other { errno, cause, .. } = self else {
            return text;
        };
        if cause.is::<SourcePanic>() || text.ends_with(&errno_text(*errno)) {
            return text;
        }
        let below = cause.to_string().lines().collect::<Vec<_>>().join(" ");
        let [upper, lower] = [&text, &below].map(|text| text.to_lowercase());
        if upper.contains(&lower) {
            text
        } else if lower.starts_with(&upper) || upper == "other error" {
            // The kind of `std::io::Error::other` carries no information.
            below
        } else {
            format!("{text}: {below}")
        }
    }
}

pub(crate) const EIO: i32 = rustix::io::Errno::IO.raw_os_error();

/// The system's description of an error number, without the number.
pub(crate) fn errno_text(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os error").next().unwrap_or(&text).to_string()
}

/// The error of opening a source. The message of this error is one line: what failed, on which source, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}; {remedy}")]
pub struct SourceOpenError {
    /// The source; displayed without its secrets.
    pub what: SourceName,
    /// The problem.
    pub why: String,
    /// What to do.
    pub remedy: String,
    /// The error number.
    pub errno: i32,
    /// The error of the client or the system, if any.
    #[source]
    pub cause: Option<Cause>,
}

impl SourceOpenError {
    /// Sets the system's error for the number as the cause.
    pub(crate) fn of_system(self) -> SourceOpenError {
        let cause = std::io::Error::from_raw_os_error(self.errno);
        SourceOpenError {
            cause: Some(Cause::new(cause)),
            ..self
        }
    }

    /// The kind of the error, for callers that match on it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::of_storage(self.errno)
    }
}

/// Checks that the length returned by a source fits its buffers.
pub(crate) fn within(read: usize, room: usize, what: &str) -> Result<usize, SourceError> {
    if read > room {
        return Err(too_many(read, room, what));
    }
    Ok(read)
}

/// The error for a source that reports more bytes than the buffers hold.
pub(super) fn too_many(read: usize, room: usize, what: &str) -> SourceError {
    SourceError::Io {
        errno: EIO,
        what: format!(
            "{what} reports {read} bytes for a buffer of {room}, which is a bug in the source"
        ),
    }
}
