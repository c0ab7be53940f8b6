//! The NBD protocol without a socket, for the server in `front` and the client in `source`, and how long either goes without a
//! sign of life.
//!
//! Never: I/O, threads or time.

pub mod handshake;
pub(crate) mod keepalive;
pub mod validate;
pub mod wire;
