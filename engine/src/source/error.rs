//! Why a source could not be opened, or failed a read: one line, an error number, and the error of the client behind it.
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
        /// What was being done.
        what: String,
    },
    /// What reads the storage has an error of another kind.
    #[error("{what}")]
    Other {
        /// The number that is nearest to it, for callers that go by numbers.
        errno: i32,
        /// What was being done, and what went wrong.
        what: String,
        /// That error.
        #[source]
        cause: Cause,
    },
    /// No progress before the end of the source.
    #[error("the source ends at {at}, before its size {size}")]
    Short {
        /// Where the bytes end.
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
    /// What a caller can act on.
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

/// Why a source could not be opened: one line that says what, where and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}; {remedy}")]
pub struct SourceOpenError {
    /// The source; shown without its secrets.
    pub what: SourceName,
    /// What is wrong with it.
    pub why: String,
    /// What to do.
    pub remedy: String,
    /// The error number.
    pub errno: i32,
    /// The error of the client or the system, where there is one.
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

    /// What a caller can act on.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::of_storage(self.errno)
    }
}

/// What a source says that it has filled, if there was room for it.
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
        what: format!("{what} says that it filled {read} bytes of {room}, a bug of the source"),
    }
}
