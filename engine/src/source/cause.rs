//! The underlying error of a failed fetch, shared by all reads that failed with it.
//!
//! A fetch may fail several reads, and all of them have the same cause. The error of a client library cannot be cloned, so these
//! reads share one error value.

use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The underlying error, from a client library or the operating system. All clones share one error value.
///
/// ```
/// use foreread::source::{Cause, Defaults, Source, SourceError};
/// use foreread::{Options, Reader};
/// use std::error::Error;
/// use std::io::IoSliceMut;
/// use std::sync::Arc;
///
/// #[derive(Debug, thiserror::Error)]
/// #[error("the tape is in drive {0}")]
/// struct Busy(u32);
///
/// struct Tape;
///
/// impl Source for Tape {
///     fn size(&self) -> u64 {
///         4096
///     }
///
///     fn read_at(&self, _: &mut [IoSliceMut<'_>], _: u64) -> Result<usize, SourceError> {
///         let (errno, what) = (16, self.describe());
///         Err(SourceError::Other { errno, what, cause: Cause::new(Busy(3)) })
///     }
///
///     fn describe(&self) -> String {
///         "tape".to_string()
///     }
///
///     fn defaults(&self) -> Defaults {
///         Defaults::OBJECT
///     }
/// }
///
/// let reader = Reader::open(Arc::new(Tape), Options::default())?;
/// let error = reader.read_at(&mut [0; 8], 0).expect_err("busy");
/// let below = error.source().and_then(|error| error.source());
/// assert_eq!(below.and_then(|error| error.downcast_ref()).map(|busy: &Busy| busy.0), Some(3));
/// # Ok::<(), Box<dyn Error>>(())
/// ```
#[derive(Clone)]
pub struct Cause(Arc<dyn Error + Send + Sync>);

impl Cause {
    /// Wraps an error so that it can be cloned.
    #[must_use]
    pub fn new(error: impl Error + Send + Sync + 'static) -> Cause {
        Cause(Arc::new(error))
    }
}

impl Deref for Cause {
    type Target = dyn Error + Send + Sync;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl From<Arc<dyn Error + Send + Sync>> for Cause {
    fn from(error: Arc<dyn Error + Send + Sync>) -> Cause {
        Cause(error)
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Two causes are equal if their texts are.
impl PartialEq for Cause {
    fn eq(&self, other: &Cause) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.to_string() == other.to_string()
    }
}

impl Eq for Cause {}
