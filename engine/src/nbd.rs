//! The NBD protocol without a socket, for the server in `front` and the client in `source`; how long either goes without a
//! sign of life, and the files of their certificates.
//!
//! Never: threads or time, or I/O other than those files.

pub mod handshake;
#[cfg(feature = "tls")]
pub(crate) mod pem;
pub mod validate;
pub mod wire;
