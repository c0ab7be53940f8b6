//! Why a front end cannot start.
//!
//! Example: a server whose port is taken has the kind [`FrontErrorKind::Address`], the place `127.0.0.1:10809`, and the system's error
//! as its source.

use foreread_os::failure::{Failure, FailureKind};
use std::error::Error;
use std::sync::Arc;

/// The kind, for callers that match on errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FrontErrorKind {
    /// The source cannot be served so: it may not be written, or cannot be listed.
    Source,
    /// Another program has locked the source that clients would write.
    Locked,
    /// The server cannot listen there.
    Address,
    /// A certificate, its key or its authority cannot be used.
    Certificate,
    /// The directory cannot be used as a mount point.
    Directory,
    /// This system, or this user, lacks something: threads, open files, a way to mount.
    System,
}

/// Why a server cannot start or a mount failed, in one line.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {place}; {remedy}")]
#[non_exhaustive]
pub struct FrontError {
    /// The kind, for callers that match on errors.
    pub kind: FrontErrorKind,
    /// What is wrong.
    pub what: String,
    /// Where.
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
        place: impl Into<String>,
        remedy: impl Into<String>,
    ) -> FrontError {
        FrontError {
            kind,
            what: what.into(),
            place: place.into(),
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
