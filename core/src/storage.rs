//! Request limits for remote storage: one set of numbers for the engine and the simulator's models.
//!
//! A simulation predicts a live run only if both send the same requests. The engine's table of kinds of storage and the
//! presets of object stores take these.
//!
//! Example: a window of 64 MiB of an object is 8 requests of 8 MiB, live and simulated. 200 ms x 200 MB/s, a far store, needs
//! 40 MB in flight; at 90 MB/s a connection 16 of them deliver 1.4 GB/s.

/// Maximum fetch if the kind of storage is unknown.
pub const MAX_FETCH_BYTES: u64 = 4 << 20;
/// Bytes of the largest fetch of what lands whole, as of a device of this machine: with 4 MiB the 99th percentile of sequential
/// reads was 1.6 times as long (measured).
pub const LOCAL_FETCH_BYTES: u64 = 1 << 20;

/// Bytes of short requests of readahead that may be in flight together, beyond the number of long ones: 48 of 64 KiB. A request costs a
/// round trip whatever its length, so 16 of 64 KiB deliver 35 MB/s over 30 ms, and 16 of 8 MiB fill any link.
pub const SHORT_AHEAD_BYTES: u64 = 3 << 20;

/// The limits of a kind of storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindLimits {
    /// Requests that it answers at once.
    pub requests: u32,
    /// Of these, requests of readahead.
    pub ahead_requests: u32,
    /// The same while all of them together are at most [`SHORT_AHEAD_BYTES`] long.
    pub short_ahead_requests: u32,
    /// Bytes of the largest request.
    pub max_fetch_bytes: u64,
}

impl KindLimits {
    /// An object store over HTTP. A request costs money and answers stream: Amazon's guide for S3 advises 8 to 16 MiB. With 8 MiB
    /// 1 GiB in order takes 148 requests over 30 ms and 200 MB/s, with 4 MiB 270, in the same time.
    pub const OBJECT: KindLimits = KindLimits {
        requests: 32,
        ahead_requests: 16,
        short_ahead_requests: 48,
        max_fetch_bytes: 8 << 20,
    };
}

/// How a run of reads began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunKind {
    /// With the first bytes of its file.
    Start,
    /// Behind bytes that are cached.
    Next,
    /// Anywhere else.
    Elsewhere,
}
