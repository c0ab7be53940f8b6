//! Converts errors of this crate to [`std::io::Error`], and converts the `io::Error` of a source's own code to a `SourceError`.
//!
//! The `io::Error` contains the original error and its message; its kind follows from the error number. Example: a read that
//! the source refused with `ENOENT` is an `io::Error` of kind `NotFound`, and `downcast::<ReadError>()` returns the
//! [`ReadError`].

use crate::error::{OpenError, ReadError, WriteError};
use crate::source::{Cause, EIO, SourceError, SourceOpenError};
use std::io::Error;
use std::sync::Arc;

/// Wraps the error in an `io::Error` whose kind follows from the error number.
fn wrap(errno: i32, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(Error::from_raw_os_error(errno).kind(), error)
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Error {
        wrap(error.errno(), error)
    }
}

impl From<ReadError> for Error {
    fn from(error: ReadError) -> Error {
        wrap(error.errno(), error)
    }
}

impl From<WriteError> for Error {
    fn from(error: WriteError) -> Error {
        wrap(error.errno(), error)
    }
}

impl From<SourceError> for Error {
    fn from(error: SourceError) -> Error {
        wrap(error.errno(), error)
    }
}

impl From<SourceOpenError> for Error {
    fn from(error: SourceOpenError) -> Error {
        wrap(error.errno, error)
    }
}

/// For a source that reads with `std::io`: `?` is enough. If a program has put its own error into the `io::Error`
/// ([`Error::other`], [`Error::new`]), that error is the cause, so that a caller can find it by its type, and the message is
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
impl From<Error> for SourceError {
    fn from(error: Error) -> SourceError {
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
            Err(error) => match error.downcast::<Error>() {
                Ok(inner) => SourceError::from(inner),
                Err(error) => {
                    let cause = match error.into_inner() {
                        Some(inner) => Cause::from(Arc::from(inner)),
                        None => return SourceError::Io { errno, what },
                    };
                    SourceError::Other { errno, what, cause }
                }
            },
        }
    }
}
