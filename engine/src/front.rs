//! Front ends serve a [`crate::Reader`] over other protocols.
//!
//! A front end uses only the reader's interface, and does not decide what to read ahead.

#[cfg(any(feature = "fuse", feature = "nbd"))]
mod error;
#[cfg(feature = "fuse")]
pub mod fuse;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(feature = "nbd")]
pub mod nbd;
pub mod observe;
#[cfg(any(feature = "fuse", feature = "nbd"))]
mod unix;

#[cfg(any(feature = "fuse", feature = "nbd"))]
pub use error::{FrontError, FrontErrorKind};
