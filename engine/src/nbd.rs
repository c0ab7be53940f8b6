//! The NBD protocol without a socket, for the server in `front` and the client in `source`. It also has the silence timeouts of both
//! sides, and reads their certificate files.
//!
//! This module uses no threads and no clock, and does no I/O except on those files.

pub mod handshake;
#[cfg(feature = "tls")]
pub(crate) mod pem;
pub mod validate;
pub mod wire;
