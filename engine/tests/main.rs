//! The engine's tests as one binary, because linking is the slow part of a test build. The tests of thread
//! interleavings are separate (`shuttle.rs`), because they need another build of the driver.

#![allow(
    clippy::disallowed_methods,
    reason = "a test may panic if a thread cannot be started"
)]

#[cfg(feature = "tokio")]
mod async_source;
mod budget;
mod bytes;
mod common;
mod conformance;
#[cfg(feature = "object")]
mod credentials;
#[cfg(feature = "disk-cache")]
mod disk_bucket;
#[cfg(feature = "disk-cache")]
mod disk_cache;
#[cfg(feature = "disk-cache")]
mod disk_fill;
#[cfg(feature = "disk-cache")]
mod disk_latest;
#[cfg(feature = "disk-cache")]
mod disk_names;
#[cfg(feature = "nbd")]
mod edges;
mod engine;
mod faults;
mod files;
#[cfg(feature = "fuse")]
mod fuse;
#[cfg(feature = "nbd")]
mod fuzz;
mod hits;
#[cfg(feature = "object")]
mod hub;
mod io;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(all(feature = "nbd", feature = "object"))]
mod mix;
#[cfg(feature = "nbd")]
mod nbd;
#[cfg(feature = "nbd")]
mod nbd_flights;
#[cfg(feature = "tls")]
mod nbd_tls;
#[cfg(feature = "tls")]
mod nbd_tls_source;
#[cfg(feature = "nbd")]
mod nbd_turns;
#[cfg(feature = "object")]
mod object;
mod own_sources;
#[cfg(feature = "rbd")]
mod rbd;
#[cfg(feature = "object")]
mod redirects;
#[cfg(feature = "nbd")]
mod replay;
#[cfg(all(feature = "object", feature = "fuse"))]
mod servers_mounted;
mod spans;
#[cfg(feature = "object")]
mod stores;
mod stream;
mod tasks;
#[cfg(feature = "uring")]
mod uring;
#[cfg(feature = "nbd")]
mod writes;
