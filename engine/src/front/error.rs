//! Errors of starting a front end.
//!
//! Example: for a server whose port is in use, the kind is [`FrontErrorKind::Address`], the place is `127.0.0.1:10809`, and the
//! source is the system's error.

use foreread_os::failure::{Failure, FailureKind};
use std::error::Error;
use std::fmt::Display;
use std::sync::Arc;

/// The kind of a [`FrontError`], for callers that match on errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FrontErrorKind {
    /// The source cannot be served in this way: for example, it cannot be written or listed.
    Source,
    /// Another program has locked the source that clients would write to.
    Locked,
    /// The server cannot listen at this address.
    Address,
    /// A certificate, its key or its authority cannot be used.
    Certificate,
    /// The directory cannot be used as a mount point.
    Directory,
    /// The system or the user lacks a resource: threads, open files, or a way to mount.
    System,
}

/// The reason why a server could not start or a mount failed, in one line.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {place}; {remedy}")]
#[non_exhaustive]
pub struct FrontError {
    /// The kind, for callers that match on errors.
    pub kind: FrontErrorKind,
    /// What failed.
    pub what: String,
    /// On what it failed.
    pub place: String,
    /// What to do.
    pub remedy: String,
    /// The underlying error.
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl FrontError {
    pub(super) fn new(
        kind: FrontErrorKind,
        what: impl Into<String>,
        place: impl Display,
        remedy: impl Into<String>,
    ) -> FrontError {
        FrontError {
            kind,
            what: what.into(),
            place: place.to_string(),
            remedy: remedy.into(),
            source: None,
        }
    }

    pub(super) fn caused_by(self, error: impl Error + Send + Sync + 'static) -> FrontError {
        FrontError {
            source: Some(Box::new(error)),
            ..self
        }
    }
}

impl From<FrontError> for Failure {
    fn from(error: FrontError) -> Failure {
        let kind = match error.kind {
            FrontErrorKind::System => FailureKind::Cannot,
            _ => FailureKind::Input,
        };
        Failure {
            source: error.source.map(Arc::from),
            ..Failure::new(kind, error.what, error.place, error.remedy)
        }
    }
}
