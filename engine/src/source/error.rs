//! Errors of opening and reading sources: one line, an error number, and the client's error as the cause.
//!
//! Example: `server said 503` of a client is the cause of a [`SourceError::Other`], and the line of the read that failed has both.

use super::{Cause, SourceName, SourcePanic};
use crate::error_kind::ErrorKind;

/// Why a read of a source failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The storage answered with an error number.
    #[error("{what}: {}", errno_text(*errno))]
    Io {
        /// The number.
        errno: i32,
        /// The operation.
        what: String,
    },
    /// Another error of the storage's client.
    #[error("{what}")]
    Other {
        /// The number that is nearest to it, for callers that go by numbers.
        errno: i32,
        /// The operation and the problem.
        what: String,
        /// That error.
        #[source]
        cause: Cause,
    },
    /// No progress before the end of the source.
    #[error("the source ends at {at}, before its size {size}")]
    Short {
        /// The end of the bytes.
        at: u64,
        /// Where they should.
        size: u64,
    },
    /// It is not the version that was accepted last.
    #[error("{what}")]
    Changed {
        /// What is different.
        what: String,
    },
}

impl SourceError {
    /// The kind, for callers that match on errors.
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

    /// The error number: the storage's own, or that of the kind.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            SourceError::Io { errno, .. } | SourceError::Other { errno, .. } => *errno,
            _ => self.kind().errno(),
        }
    }
}

impl SourceError {
    /// Its text, and that of the error behind it where the text does not have it: what one line can say. A text that ends with the
    /// words of the error number is whole.
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
            // The kind of `std::io::Error::other` says nothing.
            below
        } else {
            format!("{text}: {below}")
        }
    }
}

pub(crate) const EIO: i32 = rustix::io::Errno::IO.raw_os_error();

/// The system's words for an error number, without the number.
pub(crate) fn errno_text(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os error").next().unwrap_or(&text).to_string()
}

/// The error of opening a source: one line that says what, where and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}; {remedy}")]
pub struct SourceOpenError {
    /// The source; shown without its secrets.
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
    /// The same with the system's error of its number as the cause.
    pub(crate) fn of_system(self) -> SourceOpenError {
        let cause = std::io::Error::from_raw_os_error(self.errno);
        SourceOpenError {
            cause: Some(Cause::new(cause)),
            ..self
        }
    }

    /// The kind, for callers that match on errors.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::of_storage(self.errno)
    }
}

/// Checks the length returned by a source against the room of its buffers.
pub(crate) fn within(read: usize, room: usize, what: &str) -> Result<usize, SourceError> {
    if read > room {
        return Err(too_many(read, room, what));
    }
    Ok(read)
}

/// The error of one that says more.
pub(super) fn too_many(read: usize, room: usize, what: &str) -> SourceError {
    SourceError::Io {
        errno: EIO,
        what: format!("{what} reports {read} bytes for a buffer of {room}, a bug of the source"),
    }
}
