//! The parts of the NBD protocol that the server in `front` and the client in `source` share: handshake, validation and wire
//! format (all without a socket), TCP keepalive, and the certificate files.
//!
//! This module uses no threads and no clock, and does no I/O except reading those files.

pub mod handshake;
#[cfg(feature = "tls")]
pub(crate) mod pem;
pub mod validate;
pub mod wire;
