//! Errors of this crate as [`std::io::Error`], and the way back for sources.
//!
//! The error itself is kept inside, with its line; the kind follows from its error number. Example: a read that the source
//! refused with `ENOENT` is an `io::Error` of kind `NotFound`, and `downcast::<ReadError>()` gives the [`ReadError`] back.

use crate::error::{OpenError, ReadError, WriteError};
use crate::source::{Cause, EIO, SourceError, SourceOpenError};
use std::io::Error;

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

/// For a source that reads by `std::io`: the error number, the text, and the error as its cause; `EIO` where the error has no number.
impl From<Error> for SourceError {
    fn from(error: Error) -> SourceError {
        SourceError::Other {
            errno: error.raw_os_error().unwrap_or(EIO),
            what: error.to_string(),
            cause: Cause::new(error),
        }
    }
}
