//! Front ends: clients of other kinds in front of a [`crate::Reader`].
//!
//! A front end knows the reader and nothing behind it. Never: decides what is read ahead.

#[cfg(feature = "object")]
mod ahead;
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

#[cfg(feature = "object")]
pub use ahead::Ahead;
#[cfg(any(feature = "fuse", feature = "nbd"))]
pub use error::{FrontError, FrontErrorKind};
