//! What can go wrong, in the caller's words: one line that says what, where and what to do, and one error number.
//!
//! Never: an error that a readahead met. Those are counted, not reported.

use crate::source::{self, SourceError, SourceOpenError};
use foreread_core::event::Error;
use foreread_core::policy::SpecError;
use foreread_core::units::MAX_OFFSET;
use foreread_os::failure::{Failure, FailureKind};

/// Why a reader could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The source is not there, or is nothing that can be read.
    #[error(transparent)]
    Source(#[from] SourceOpenError),
    /// The policy does not exist, or a value of it does not fit.
    #[error("policy: {}", refused_policy(.0))]
    Policy(SpecError),
    /// The source is larger than offsets are counted here.
    #[error("a source of {size} bytes: only {MAX_OFFSET} can be counted; serve a part of it")]
    TooLarge {
        /// Its size.
        size: u64,
    },
    /// The page size is not one.
    #[error("page of {bytes} bytes: a page is a power of two from 512 to 1M")]
    PageSize {
        /// What was asked for.
        bytes: u64,
    },
    /// The policy needs another page size.
    #[error(
        "page of {bytes} bytes: {policy} counts in pages of {needed}; leave the page size at {needed}"
    )]
    PolicyPage {
        /// What was asked for.
        bytes: u64,
        /// The policy.
        policy: &'static str,
        /// The page it needs.
        needed: u64,
    },
    /// The event log cannot be written.
    #[error("event log {path}: {error}; name a file that can be created")]
    EventLog {
        /// Which.
        path: String,
        /// Why not.
        error: std::io::Error,
    },
    /// More readers of one cache than there are numbers for them.
    #[error("{limit} readers of one cache are open; close some")]
    Limit {
        /// How many there may be.
        limit: u32,
    },
    /// The caches that are there take all the memory there may be.
    #[error(
        "cache of {wanted} bytes: {used} of {limit} are in use; make the other caches smaller or allow more memory"
    )]
    Budget {
        /// What was asked for.
        wanted: u64,
        /// What the others have.
        used: u64,
        /// What all of them may have.
        limit: u64,
    },
    /// A listed source is another version now.
    #[error("{place}: changed since it was listed; list it again")]
    Changed {
        /// Which.
        place: String,
    },
    /// The engine has had an internal error and reads no more.
    #[error("the engine stopped after an internal error; open the source anew and report a bug")]
    Stopped,
}

/// With the names where the name is wrong: `foreread policies` lists more than those that serve.
fn refused_policy(error: &SpecError) -> String {
    match error {
        SpecError::UnknownName { name, known } => format!(
            "there is no '{name}' that serves reads; name one of {} (`foreread compare` has others)",
            known.join(", ")
        ),
        _ => format!("{error}; `foreread policies` lists policies and their parameters"),
    }
}

impl OpenError {
    /// The error number.
    #[must_use]
    pub fn errno(&self) -> i32 {
        use rustix::io::Errno;
        match self {
            OpenError::Source(error) => error.errno,
            OpenError::Policy(_) | OpenError::PageSize { .. } | OpenError::PolicyPage { .. } => {
                Errno::INVAL.raw_os_error()
            }
            OpenError::EventLog { error, .. } => error.raw_os_error().unwrap_or(source::EIO),
            OpenError::TooLarge { .. } => Errno::FBIG.raw_os_error(),
            OpenError::Limit { .. } => Errno::MFILE.raw_os_error(),
            OpenError::Budget { .. } => Errno::NOMEM.raw_os_error(),
            OpenError::Changed { .. } => source::ESTALE,
            OpenError::Stopped => source::EIO,
        }
    }
}

/// Why a read failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The source failed on bytes that this read needs.
    #[error("{place}: {}; check the storage, or read again", source::errno_text(*errno))]
    Io {
        /// The source's error number.
        errno: i32,
        /// What was read, and where.
        place: Place,
    },
    /// The source is a new version; this reader reads that one from now on.
    #[error("{place}: the source has changed since it was opened or read last; start over")]
    Changed {
        /// What was read, and where.
        place: Place,
    },
    /// The source ends before its size says so.
    #[error("{place}: the source ends before its size; check that no program truncates it")]
    Short {
        /// What was read, and where.
        place: Place,
    },
    /// Too many reads wait at once.
    #[error(
        "{place}: {} reads wait already; use fewer threads",
        foreread_core::machine::MAX_READS
    )]
    Limit {
        /// What was read, and where.
        place: Place,
    },
    /// The engine has had an internal error and reads no more.
    #[error(
        "{place}: the engine stopped after an internal error; open the source anew and report a bug"
    )]
    Stopped {
        /// What was read, and where.
        place: Place,
    },
}

/// What was read, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// First byte.
    pub offset: u64,
    /// How many were asked for.
    pub len: usize,
    /// The source, as it describes itself.
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
        match fault {
            Fault::Read(Error::Io(errno)) => ReadError::Io { errno, place },
            Fault::Read(Error::Changed) => ReadError::Changed { place },
            Fault::Read(Error::Short) => ReadError::Short { place },
            Fault::Read(Error::Limit) => ReadError::Limit { place },
            Fault::Stopped => ReadError::Stopped { place },
        }
    }

    /// The error number.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            ReadError::Io { errno, .. } => *errno,
            ReadError::Changed { .. } => source::ESTALE,
            ReadError::Short { .. } | ReadError::Stopped { .. } => source::EIO,
            ReadError::Limit { .. } => rustix::io::Errno::AGAIN.raw_os_error(),
        }
    }
}

/// Why a write failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The source refused it, or failed.
    #[error("{what}; check that it may be written, and that the storage is sound")]
    Io {
        /// The source's error number.
        errno: i32,
        /// What was being done.
        what: String,
    },
    /// The source is another version than the reader's: writing would mix the two.
    #[error("{what}; open it anew")]
    Changed {
        /// What is different.
        what: String,
    },
    /// A source is not made longer.
    #[error("write of {len} bytes at {offset}: the source has {size} bytes; write inside them")]
    Beyond {
        /// First byte.
        offset: u64,
        /// How many.
        len: usize,
        /// Size of the source.
        size: u64,
    },
    /// The engine has had an internal error.
    #[error("the engine stopped after an internal error; open the source anew and report a bug")]
    Stopped,
}

impl WriteError {
    /// The error number.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            WriteError::Io { errno, .. } => *errno,
            WriteError::Changed { .. } => source::ESTALE,
            WriteError::Beyond { .. } => rustix::io::Errno::NOSPC.raw_os_error(),
            WriteError::Stopped => source::EIO,
        }
    }
}

/// A failed read without the name of its source yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The machine, or the source behind it, refused.
    Read(Error),
    /// A thread panicked in the middle of a change: nothing behind the lock can be trusted.
    Stopped,
}

/// What a command shows of them.
macro_rules! into_failure {
    ($($error:ty),*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Failure {
                Failure::of(FailureKind::Input, error)
            }
        }
    )*};
}

into_failure!(
    OpenError,
    ReadError,
    WriteError,
    SourceOpenError,
    SourceError
);
