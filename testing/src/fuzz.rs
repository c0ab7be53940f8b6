//! What the fuzz targets run, and the normal tests on seeded input: everything that strangers can send, and the engine's own
//! operations against a reference.
//!
//! Each function takes any input and says what was broken. Never: chance; the same input does the same, as far
//! as threads allow.
//!
//! ```text
//!   bytes ──► handshake   the server's codec: bounded, ends, answers by the book
//!   bytes ──► requests    the validator against the rules stated once more, and what is read is what was written
//!   bytes ──► conversation   a whole server behind a socket, against a model of its answers
//!   Story ──► engine      reads, hints, writes, new versions and faults, against plain vectors of bytes
//! ```

mod engine;
#[cfg(feature = "nbd")]
mod nbd;

pub use engine::{Op, Story, engine};
#[cfg(feature = "nbd")]
pub use nbd::{conversation, handshake, requests};

/// The input breaks what is promised: what, and where.
pub type BrokenPromise = String;
