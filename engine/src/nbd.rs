//! The NBD protocol without a socket, for the server in `front` and the client in `source`. The module also defines how long server and
//! client wait for a silent peer, and reads their certificate files.
//!
//! This module uses no threads and no clock, and does no I/O except reading the certificate files.

pub mod handshake;
#[cfg(feature = "tls")]
pub(crate) mod pem;
pub mod validate;
pub mod wire;
