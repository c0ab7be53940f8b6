//! Errors that are found in traces. An error message is one line that says which record is wrong, why, and what to do.
//!
//! An error message never quotes a whole record, which may contain megabytes of user data.

use foreread_os::failure::Failure;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A position in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracePosition {
    /// The trace as a whole.
    Whole,
    /// A line of text, counted from 1.
    Line(u64),
    /// The record that starts at this byte of the decompressed data.
    Byte {
        /// Number of the record, counted from 1.
        record: u64,
        /// Its first byte.
        byte: u64,
    },
    /// A record, counted from 1, without its position.
    Record(u64),
}

impl std::fmt::Display for TracePosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TracePosition::Whole => Ok(()),
            TracePosition::Line(line) => write!(f, ", line {line}"),
            TracePosition::Byte { record, byte } => write!(f, ", record {record} at byte {byte}"),
            TracePosition::Record(record) => write!(f, ", record {record}"),
        }
    }
}

/// The two parts of an error message: what is wrong with a line or an event, and what to do about it.
pub type Fault = (&'static str, &'static str);

/// The error if a trace cannot be read or written, shown as `WHAT: FILE, record N; REMEDY`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {}{place}; {remedy}", path.display())]
pub struct TraceError {
    /// What is wrong, in a few words.
    pub what: String,
    /// The file.
    pub path: PathBuf,
    /// Position in the file.
    pub place: TracePosition,
    /// What to do about it.
    pub remedy: String,
}

impl TraceError {
    /// Creates an error at the position `place` in the file `path`.
    #[must_use]
    pub fn new(
        path: &Path,
        place: TracePosition,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> TraceError {
        TraceError {
            what: what.into(),
            path: path.to_path_buf(),
            place,
            remedy: remedy.into(),
        }
    }

    /// Creates an error that concerns the file as a whole.
    #[must_use]
    pub fn whole(path: &Path, what: impl Into<String>, remedy: impl Into<String>) -> TraceError {
        TraceError::new(path, TracePosition::Whole, what, remedy)
    }

    /// Creates the error for a file that cannot be read, or cannot be unpacked: then the error has no number of the system.
    #[must_use]
    pub fn io(path: &Path, place: TracePosition, error: &std::io::Error) -> TraceError {
        let (what, remedy) = match error.raw_os_error() {
            None if error.kind() != ErrorKind::Unsupported => (
                format!("cannot be unpacked ({error})"),
                "the compressed data is damaged: copy the file again",
            ),
            _ => (
                format!("cannot be read ({error})"),
                "check the file and its permissions",
            ),
        };
        TraceError::new(path, place, what, remedy)
    }

    /// Creates the error for a file that cannot be written.
    #[must_use]
    pub fn not_written(path: &Path, error: &std::io::Error) -> TraceError {
        let what = format!("cannot be written ({error})");
        TraceError::whole(path, what, "free some space or write elsewhere")
    }
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Failure {
        let place = format!("{}{}", error.path.display(), error.place);
        Failure::input(error.what, place, error.remedy)
    }
}
