//! Why a front end does not start.
//!
//! Example: a server whose port is taken has the kind [`FrontErrorKind::Address`], the place `127.0.0.1:10809`, and the system's error
//! as its source.

use foreread_os::failure::{Failure, FailureKind};
use std::error::Error;
use std::sync::Arc;

/// What a caller can act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FrontErrorKind {
    /// The source cannot be served so: it may not be written, or cannot be listed.
    Source,
    /// Another program has locked what clients would write.
    Locked,
    /// The server cannot listen there.
    Address,
    /// A certificate, its key or its authority cannot be used.
    Certificate,
    /// The directory is no place for a mount.
    Directory,
    /// This system, or this user, lacks something: threads, open files, a way to mount.
    System,
}

/// Why a server is not started, or nothing is mounted: one line.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {place}; {remedy}")]
#[non_exhaustive]
pub struct FrontError {
    /// What a caller can act on.
    pub kind: FrontErrorKind,
    /// What is wrong.
    pub what: String,
    /// Where.
    pub place: String,
    /// What to do.
    pub remedy: String,
    /// The error behind it.
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
