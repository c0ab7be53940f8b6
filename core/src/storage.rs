//! How much at once far storage is asked for: one set of numbers for the engine and for the simulator's models.
//!
//! A simulation predicts a live run only where both make the same requests. The engine's table of kinds of storage and the
//! presets of object stores take these.
//!
//! Example: a window of 64 MiB of an object is 16 requests of 4 MiB, live and simulated. 200 ms x 200 MB/s, a far store, needs
//! 40 MB in flight; at 90 MB/s a connection 16 of them deliver 1.4 GB/s.

/// The limits of a kind of storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindLimits {
    /// Requests that it answers at once.
    pub requests: u32,
    /// Of these, requests of readahead.
    pub ahead_requests: u32,
    /// Bytes of the largest request.
    pub max_fetch_bytes: u64,
}

impl KindLimits {
    /// An object store over HTTP. Chosen: a request of 4 MiB at 90 MB/s a connection takes 47 ms beside a latency of 15 to 30 ms;
    /// Amazon's guide for S3 advises 8 to 16 MiB where requests do not stream.
    pub const OBJECT: KindLimits = KindLimits { requests: 32, ahead_requests: 16, max_fetch_bytes: 4 << 20 };
}
