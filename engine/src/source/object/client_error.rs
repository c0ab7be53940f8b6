//! Keeps the error of the HTTP client, so that programs can find it as the cause of foreread's own error (a `Refusal`) and downcast
//! it.
//!
//! A `Refusal` is compared and copied; the client's error can be neither compared nor copied, so a `Refusal` cannot contain it. Instead,
//! each object stores its last client error together with the `Refusal` that was made from this error. A `Refusal` has this client error
//! as its cause if it equals the stored `Refusal`. An error never shows a URL, because the URL may be signed: the outermost error, which
//! contains the URL, is left out of the chain of causes.
//!
//! ```text
//!   object_store::Error ─► RetryError (with its URL) ─► HttpError ─► reqwest::Error ─► io::Error
//!                                                       └────── source() of ours ──────┘
//! ```

use super::refusal::Refusal;
use crate::source::Cause;
use object_store::client::HttpError;
use std::error::Error;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// The client's error of a request.
struct ClientError {
    refusal: Refusal,
    whole: object_store::Error,
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.refusal.fmt(f)
    }
}

impl fmt::Debug for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClientError").field(&self.refusal).finish()
    }
}

impl Error for ClientError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let mut link = self.whole.source();
        while let Some(error) = link {
            if error.is::<HttpError>() {
                return link;
            }
            link = error.source();
        }
        None
    }
}

/// The last error of an object's HTTP client, with the `Refusal` that was made from it.
#[derive(Debug, Default)]
pub struct LastError {
    of: Mutex<Option<RefusalCause>>,
}

#[derive(Debug)]
struct RefusalCause {
    refusal: Refusal,
    cause: Cause,
}

impl LastError {
    /// Stores an error, and converts it to a `Refusal`. If a reply was read but not accepted, its `Refusal` has no further cause.
    pub fn take(&self, whole: object_store::Error) -> Refusal {
        let refusal = Refusal::of(&whole);
        if refusal.is_of_client() {
            let error = ClientError {
                refusal: refusal.clone(),
                whole,
            };
            let cause = Cause::new(error);
            let kept = RefusalCause {
                refusal: refusal.clone(),
                cause,
            };
            *self.of.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
        }
        refusal
    }

    /// Returns the error from which this `Refusal` was made, unless another error has been stored since.
    pub fn cause_of(&self, refusal: &Refusal) -> Option<Cause> {
        if let Refusal::Foreign { cause, .. } = refusal {
            return Some(cause.clone());
        }
        let kept = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = kept.as_ref().filter(|kept| kept.refusal == *refusal)?;
        Some(kept.cause.clone())
    }
}
