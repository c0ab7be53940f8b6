//! Errors of this crate as [`std::io::Error`], and the way back for sources.
//!
//! The error itself is kept inside, with its line; the kind follows from its error number. Example: a read that the source
//! refused with `ENOENT` is an `io::Error` of kind `NotFound`, and `downcast::<ReadError>()` gives the [`ReadError`] back.

use crate::error::{OpenError, ReadError, WriteError};
use crate::source::{Cause, EIO, SourceError, SourceOpenError};
use std::io::Error;
use std::sync::Arc;

/// Kept whole, under the kind of its error number.
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

/// For a source that reads by `std::io`: `?` is enough. An error that a program has put into it ([`Error::other`], [`Error::new`]) is the
/// cause, so that a caller finds it by its type; the text is then the kind of the `io::Error`. Otherwise the `io::Error` is the
/// cause. `EIO` where it has no number.
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
