//! The code of the fuzz targets, which normal tests also run on input generated from a seed. The targets test everything that
//! untrusted peers can send, and compare the engine's operations with a reference implementation.
//!
//! Each function accepts any input, and reports which guarantee was violated. The functions use no randomness: the same input
//! gives the same result, except for the timing of threads.
//!
//! ```text
//!   bytes ──► handshake   the server's codec: bounded, ends, valid answers
//!   bytes ──► requests    the validator compared with separately written rules; encoding and parsing agree
//!   bytes ──► conversation   a complete server behind a socket, compared with a model of its answers
//!   Story ──► engine      reads, hints, writes, new versions and faults, compared with plain vectors of bytes
//! ```

mod engine;
#[cfg(feature = "nbd")]
mod nbd;

pub use engine::{Op, Story, engine};
#[cfg(feature = "nbd")]
pub use nbd::{conversation, handshake, requests};

/// A guarantee that is violated for this input: which guarantee, and where.
pub type BrokenPromise = String;
