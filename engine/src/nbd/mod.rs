//! The NBD protocol without a socket, for the server in `front` and the client in `source`.
//!
//! Never: I/O, threads or time.

pub mod handshake;
pub mod validate;
pub mod wire;
