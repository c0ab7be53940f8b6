//! Errors for callers. Each error has one line that says what failed, where and what to do, and an error number.
//!
//! Errors of readahead are not reported here; they are only counted.

use crate::error_kind::ErrorKind;
use crate::source::{self, Cause, SourceError, SourceOpenError, SourcePanic};
use foreread_core::event::Error;
use foreread_core::policy::SpecError;
use foreread_core::units::MAX_OFFSET;
use foreread_os::failure::{Failure, FailureKind};

/// Why a reader could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The source does not exist or cannot be read.
    #[error(transparent)]
    Source(#[from] SourceOpenError),
    /// The policy does not exist, or one of its values is invalid.
    #[error("policy: {}", refused_policy(.0))]
    Policy(SpecError),
    /// The source is larger than the largest supported offset.
    #[error("the source has {size} bytes: at most {MAX_OFFSET} are supported; serve a part of it")]
    TooLarge {
        /// The size of the source.
        size: u64,
    },
    /// The page size is invalid.
    #[error("page size of {bytes} bytes: it must be a power of two from 512 to 1M")]
    PageSize {
        /// The requested value.
        bytes: u64,
    },
    /// The policy needs another page size.
    #[error(
        "page size of {bytes} bytes: {policy} needs pages of {needed} bytes; leave the page size at {needed}"
    )]
    PolicyPage {
        /// The requested value.
        bytes: u64,
        /// The policy.
        policy: &'static str,
        /// The page size that it needs.
        needed: u64,
    },
    /// The event log cannot be written.
    #[error("event log {path}: {error}; give the path of a file that can be created")]
    EventLog {
        /// The path of the log.
        path: String,
        /// The cause.
        error: std::io::Error,
    },
    /// Too many readers of one cache are open.
    #[error("{limit} readers of one cache are open; close some")]
    Limit {
        /// The maximum number of readers.
        limit: u32,
    },
    /// Existing caches use all memory of the budget.
    #[error(
        "cache of {}, with {} of spare buffers: {} of the limit of {} are already in use; share one Engine, make caches smaller, or allow more memory",
        mib(wanted - spare), mib(*spare), mib(*used), mib(*limit)
    )]
    Budget {
        /// The requested bytes: the cache ([`Options::cache_bytes`](crate::Options::cache_bytes)) plus its spare buffers.
        wanted: u64,
        /// The part of these for buffers kept for reuse ([`Limits::spare_bytes`](crate::Limits::spare_bytes)).
        spare: u64,
        /// The bytes used by other engines.
        used: u64,
        /// The limit for all engines.
        limit: u64,
    },
    /// A listed source now has another version.
    #[error("{place}: changed since it was listed; list it again")]
    Changed {
        /// The name of the source.
        place: String,
    },
    /// The engine has stopped after an internal error.
    #[error("the engine stopped after an internal error; open the source again and report a bug")]
    Stopped,
}

/// For an unknown name, the text lists the valid names: `foreread list policies` also lists simulation-only policies.
fn refused_policy(error: &SpecError) -> String {
    match error {
        SpecError::UnknownName { name, known } => format!(
            "'{name}' is not a policy that can serve reads; use one of {} (`foreread compare` has others)",
            known.join(", ")
        ),
        SpecError::UnknownKey { known, .. } if !known.is_empty() => {
            format!("{error}; it has {}", known.join(", "))
        }
        _ => format!("{error}; `foreread list policies` lists policies and their parameters"),
    }
}

/// The source's message. If the message has no remedy, one is added: a panic is a bug and will happen again.
fn refused_read(errno: i32, source: &str, cause: Option<&Cause>) -> String {
    let text = match cause.map(|cause| cause.downcast_ref::<SourceError>()) {
        None => crate::source::errno_text(errno),
        Some(None) => cause.map(ToString::to_string).unwrap_or_default(),
        Some(Some(SourceError::Other { what, cause, .. })) if cause.is::<SourcePanic>() => {
            return format!("{what}; fix the source");
        }
        Some(Some(error)) => error.full_text(),
    };
    // The line already contains the name of the source.
    let text = text
        .strip_prefix(source)
        .and_then(|rest| rest.strip_prefix(": "))
        .unwrap_or(&text);
    if text.contains("; ") {
        return text.to_string();
    }
    format!("{text}; check the storage, or read again")
}

/// Bytes as MiB.
fn mib(bytes: u64) -> String {
    let text = format!("{:.1}", bytes as f64 / f64::from(1 << 20));
    format!("{} MiB", text.strip_suffix(".0").unwrap_or(&text))
}

impl OpenError {
    /// The kind of the error, for callers that match on errors.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            OpenError::Source(error) => error.kind(),
            OpenError::Policy(_) | OpenError::PageSize { .. } | OpenError::PolicyPage { .. } => {
                ErrorKind::InvalidOption
            }
            OpenError::EventLog { .. } => ErrorKind::of_storage(self.errno()),
            OpenError::TooLarge { .. } => ErrorKind::TooLarge,
            OpenError::Limit { .. } => ErrorKind::TooManyReaders,
            OpenError::Budget { .. } => ErrorKind::NoMemory,
            OpenError::Changed { .. } => ErrorKind::Changed,
            OpenError::Stopped => ErrorKind::Stopped,
        }
    }

    /// The error number (errno): the storage's own number if it has reported one, otherwise the number of the error's kind.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            OpenError::Source(error) => error.errno,
            OpenError::EventLog { error, .. } => error.raw_os_error().unwrap_or(source::EIO),
            _ => self.kind().errno(),
        }
    }
}

/// Why a read failed. The method `source()` returns the [`SourceError`] that caused this error, if there is one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The source failed on bytes that this read needs.
    #[error("{place}: {}", refused_read(*errno, &place.source, cause.as_ref()))]
    Io {
        /// The source's error number.
        errno: i32,
        /// The source and the range.
        place: Place,
        /// The [`SourceError`]. `None` if the error comes from the engine.
        #[source]
        cause: Option<Cause>,
    },
    /// The source has a new version. From now on this reader reads the new version.
    #[error("{place}: the source has changed since it was opened or read last; start over")]
    Changed {
        /// The source and the range.
        place: Place,
        /// The [`SourceError`], for the reads that waited for the bytes.
        #[source]
        cause: Option<Cause>,
    },
    /// The source ended before its stated size.
    #[error("{place}: the source ends before its size; check that no program truncates it")]
    Short {
        /// The source and the range.
        place: Place,
        /// The [`SourceError`], if the source reported it.
        #[source]
        cause: Option<Cause>,
    },
    /// Too many reads are waiting at the same time.
    #[error(
        "{place}: {} reads are waiting already; use fewer threads",
        foreread_core::machine::MAX_READS
    )]
    Limit {
        /// The source and the range.
        place: Place,
    },
    /// The engine has stopped after an internal error.
    #[error(
        "{place}: the engine stopped after an internal error; open the source again and report a bug"
    )]
    Stopped {
        /// The source and the range.
        place: Place,
    },
}

/// The source and the range of the read that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// First byte.
    pub offset: u64,
    /// Number of bytes requested.
    pub len: usize,
    /// The source's description.
    pub source: String,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "read of {} bytes at {} of {}",
            self.len, self.offset, self.source
        )
    }
}

impl ReadError {
    pub(crate) fn new(fault: Fault, place: Place) -> ReadError {
        let (error, cause) = match fault {
            Fault::Read(error) => (error, None),
            Fault::Source(error, cause) => (error, Some(cause)),
            Fault::Stopped => return ReadError::Stopped { place },
        };
        match error {
            Error::Io(errno) => ReadError::Io {
                errno,
                place,
                cause,
            },
            Error::Changed => ReadError::Changed { place, cause },
            Error::Short => ReadError::Short { place, cause },
            Error::Limit => ReadError::Limit { place },
        }
    }

    /// The kind of the error, for callers that match on errors.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            ReadError::Io { errno, .. } => ErrorKind::of_storage(*errno),
            ReadError::Changed { .. } => ErrorKind::Changed,
            ReadError::Short { .. } => ErrorKind::Storage,
            ReadError::Limit { .. } => ErrorKind::TooManyReads,
            ReadError::Stopped { .. } => ErrorKind::Stopped,
        }
    }

    /// The error number (errno): the storage's own number if it has reported one, otherwise the number of the error's kind.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            ReadError::Io { errno, .. } => *errno,
            _ => self.kind().errno(),
        }
    }
}

/// Why a write failed. The method `source()` returns the [`SourceError`] that caused this error, if there is one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The source refused it, or failed.
    #[error("{what}; check write permission and the health of the storage")]
    Io {
        /// The source's error number.
        errno: i32,
        /// The operation.
        what: String,
        /// The [`SourceError`].
        #[source]
        cause: Cause,
    },
    /// The source has another version than this reader knows; writing would mix the two.
    #[error("{what}; open it again")]
    Changed {
        /// What has changed.
        what: String,
        /// The [`SourceError`], if this write caused it.
        #[source]
        cause: Option<Cause>,
    },
    /// The write goes beyond the end of the source. A write does not extend a source.
    #[error(
        "write of {len} bytes at {offset}: the source has {size} bytes; write within this size"
    )]
    Beyond {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: usize,
        /// The size of the source.
        size: u64,
    },
    /// The engine has stopped after an internal error.
    #[error("the engine stopped after an internal error; open the source again and report a bug")]
    Stopped,
}

impl WriteError {
    /// The kind of the error, for callers that match on errors.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            WriteError::Io { errno, .. } => ErrorKind::of_storage(*errno),
            WriteError::Changed { .. } => ErrorKind::Changed,
            WriteError::Beyond { .. } => ErrorKind::BeyondEnd,
            WriteError::Stopped => ErrorKind::Stopped,
        }
    }

    /// The error number (errno): the storage's own number if it has reported one, otherwise the number of the error's kind.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            WriteError::Io { errno, .. } => *errno,
            _ => self.kind().errno(),
        }
    }
}

/// A failed read, before the name of its source is added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The machine refused the read, or the source failed without giving an error.
    Read(Error),
    /// The source failed with an error.
    Source(Error, Cause),
    /// A thread panicked while it changed the locked state, so that state cannot be trusted.
    Stopped,
}

/// The text that a command shows, and an `io::Error` with the error in it, whose kind follows from the error number: a read that the
/// source refused with `ENOENT` is an `io::Error` of kind `NotFound`, and `downcast::<ReadError>()` returns the [`ReadError`].
macro_rules! conversions {
    ($($error:ty, $errno:expr;)*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Failure {
                Failure::of(FailureKind::Input, error)
            }
        }

        impl From<$error> for std::io::Error {
            fn from(error: $error) -> std::io::Error {
                let errno: fn(&$error) -> i32 = $errno;
                let kind = std::io::Error::from_raw_os_error(errno(&error)).kind();
                std::io::Error::new(kind, error)
            }
        }
    )*};
}

conversions! {
    OpenError, OpenError::errno;
    ReadError, ReadError::errno;
    WriteError, WriteError::errno;
    SourceError, SourceError::errno;
    SourceOpenError, |error| error.errno;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_an_error_and_its_number() {
        let stored = |kind: ErrorKind| {
            let (errno, what) = (kind.errno(), String::new());
            let error = SourceError::io(errno, what);
            (error.kind(), error.errno())
        };
        let opened = |error: OpenError| (error.kind(), error.errno());
        let written = |error: WriteError| (error.kind(), error.errno());
        let (offset, size) = (1, 1);
        let place = Place {
            offset,
            len: 1,
            source: String::new(),
        };
        let late = ReadError::Limit { place };
        let budget = OpenError::Budget {
            wanted: 2,
            spare: 1,
            used: 0,
            limit: 1,
        };
        let beyond = WriteError::Beyond {
            offset,
            len: 1,
            size,
        };
        let errors = [
            opened(OpenError::PageSize { bytes: 3 }),
            stored(ErrorKind::Refused),
            stored(ErrorKind::NotFound),
            stored(ErrorKind::PermissionDenied),
            stored(ErrorKind::ReadOnly),
            stored(ErrorKind::Unsupported),
            stored(ErrorKind::Changed),
            stored(ErrorKind::Storage),
            opened(OpenError::TooLarge { size }),
            opened(OpenError::Limit { limit: 1 }),
            (late.kind(), late.errno()),
            opened(budget),
            written(beyond),
            written(WriteError::Stopped),
        ];
        let all: Vec<_> = ErrorKind::ALL
            .iter()
            .map(|kind| (*kind, kind.errno()))
            .collect();
        assert_eq!(errors.to_vec(), all);
    }
}
