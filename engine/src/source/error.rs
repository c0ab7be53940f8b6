//! Errors from opening and reading sources. Each error has a message of one line and an errno. The cause of such an error is the error of
//! the client library, if there is one.
//!
//! Example: a client's error `server said 503` is the cause of a [`SourceError::Other`], and the message of the failed read
//! contains both.

use super::SourceName;
use crate::error_kind::ErrorKind;
use crate::log::once_a_minute;
use foreread_os::failure::without_numbers;
use rustix::io::Errno;
use std::any::Any;
use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

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
    /// Creates the error of a failed call; `what` is the call and the source. The text of the error number is added.
    ///
    /// ```
    /// let twice = foreread::source::SourceError::io(111, "nbd://host: Connection refused");
    /// assert_eq!(twice.to_string(), "nbd://host: Connection refused");
    /// ```
    #[must_use]
    pub fn io(errno: i32, what: impl Into<String>) -> SourceError {
        let mut what = what.into();
        let reason = format!(": {}", errno_text(errno));
        if what.ends_with(&reason) {
            what.truncate(what.len() - reason.len());
        }
        SourceError::Io { errno, what }
    }

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

pub(crate) const EINVAL: i32 = rustix::io::Errno::INVAL.raw_os_error();
pub(crate) const EIO: i32 = rustix::io::Errno::IO.raw_os_error();

/// The system's description of an error number, without the number.
pub(crate) fn errno_text(errno: i32) -> String {
    without_numbers(&std::io::Error::from_raw_os_error(errno).to_string())
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
    pub(crate) fn new(
        what: impl Into<SourceName>,
        why: impl Into<String>,
        remedy: impl Into<String>,
        errno: i32,
    ) -> SourceOpenError {
        SourceOpenError {
            what: what.into(),
            why: why.into(),
            remedy: remedy.into(),
            errno,
            cause: None,
        }
    }

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
    SourceError::io(
        EIO,
        format!("{what} reports {read} bytes for a buffer of {room}, which is a bug in the source"),
    )
}

/// The underlying error, from a client library or the operating system. All clones share one error value.
///
/// ```
/// use foreread::source::{Cause, Defaults, Source, SourceError};
/// use foreread::{Options, Reader};
/// use std::error::Error;
/// use std::io::IoSliceMut;
/// use std::sync::Arc;
///
/// #[derive(Debug, thiserror::Error)]
/// #[error("the tape is in drive {0}")]
/// struct Busy(u32);
///
/// struct Tape;
///
/// impl Source for Tape {
///     fn size(&self) -> u64 {
///         4096
///     }
///
///     fn read_at(&self, _: &mut [IoSliceMut<'_>], _: u64) -> Result<usize, SourceError> {
///         let (errno, what) = (16, self.describe());
///         Err(SourceError::Other { errno, what, cause: Cause::new(Busy(3)) })
///     }
///
///     fn describe(&self) -> String {
///         "tape".to_string()
///     }
///
///     fn defaults(&self) -> Defaults {
///         Defaults::OBJECT
///     }
/// }
///
/// let reader = Reader::open(Arc::new(Tape), Options::default())?;
/// let error = reader.read_at(&mut [0; 8], 0).expect_err("busy");
/// let below = error.source().and_then(|error| error.source());
/// assert_eq!(below.and_then(|error| error.downcast_ref()).map(|busy: &Busy| busy.0), Some(3));
/// # Ok::<(), Box<dyn Error>>(())
/// ```
#[derive(Clone)]
pub struct Cause(Arc<dyn Error + Send + Sync>);

impl Cause {
    /// Wraps an error so that it can be cloned.
    #[must_use]
    pub fn new(error: impl Error + Send + Sync + 'static) -> Cause {
        Cause(Arc::new(error))
    }
}

impl Deref for Cause {
    type Target = dyn Error + Send + Sync;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl From<Arc<dyn Error + Send + Sync>> for Cause {
    fn from(error: Arc<dyn Error + Send + Sync>) -> Cause {
        Cause(error)
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Two causes are equal if their texts are.
impl PartialEq for Cause {
    fn eq(&self, other: &Cause) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.to_string() == other.to_string()
    }
}

impl Eq for Cause {}

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

/// For a source that reads with `std::io`: `?` is enough. If a program has put its own error into the `io::Error`
/// ([`std::io::Error::other`], [`std::io::Error::new`]), that error is the cause, so that a caller can find it by its type, and the message is
/// the kind of the `io::Error`. Otherwise the `io::Error` itself is the cause. The error number is `EIO` if the `io::Error` has
/// none.
///
/// ```
/// use foreread::source::SourceError;
/// use std::error::Error;
///
/// #[derive(Debug, thiserror::Error)]
/// #[error("server said {0}")]
/// struct Refused(u32);
///
/// let error = SourceError::from(std::io::Error::other(Refused(503)));
/// assert_eq!(error.source().and_then(|error| error.downcast_ref()).map(|refused: &Refused| refused.0), Some(503));
/// ```
impl From<std::io::Error> for SourceError {
    fn from(error: std::io::Error) -> SourceError {
        let (errno, what) = (
            error.raw_os_error().unwrap_or(EIO),
            error.kind().to_string(),
        );
        if error.get_ref().is_none() {
            let cause = Cause::new(error);
            return SourceError::Other { errno, what, cause };
        }
        match error.downcast::<SourceError>() {
            Ok(inner) => inner,
            Err(error) => match error.downcast::<std::io::Error>() {
                Ok(inner) => SourceError::from(inner),
                Err(error) => {
                    let cause = match error.into_inner() {
                        Some(inner) => Cause::from(Arc::from(inner)),
                        None => return SourceError::io(errno, what),
                    };
                    SourceError::Other { errno, what, cause }
                }
            },
        }
    }
}
