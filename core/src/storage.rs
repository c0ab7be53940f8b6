//! Request limits for remote storage: one set of numbers for the engine and the simulator's models.
//!
//! A simulation predicts a live run only if both send the same requests. The engine's table of storage kinds and the
//! simulator's presets of object stores use these limits.
//!
//! Example: a 64 MiB window of an object becomes 8 requests of 8 MiB, live and simulated. A distant store with 200 ms latency and 200
//! MB/s needs 40 MB in flight. If one connection delivers 90 MB/s, 16 connections deliver 1.4 GB/s.

/// Maximum fetch size if the kind of storage is unknown.
pub const MAX_FETCH_BYTES: u64 = 4 << 20;
/// Maximum fetch size for sources whose fetches arrive in one piece, such as a local device. With a maximum of 4 MiB instead of 1 MiB, the
/// 99th percentile of the latency of sequential reads was 1.6 times as high (measured).
pub const LOCAL_FETCH_BYTES: u64 = 1 << 20;

/// Maximum total bytes of short readahead requests in flight. While all readahead requests in flight together are at
/// most this long, the limit on their number is [`KindLimits::short_ahead_requests`] instead of
/// [`KindLimits::ahead_requests`]: 48 requests of 64 KiB instead of 16. A request costs a round trip whatever its
/// length: at 30 ms, 16 requests of 64 KiB deliver 35 MB/s, but 16 requests of 8 MiB fill any link.
pub const SHORT_AHEAD_BYTES: u64 = 3 << 20;

/// The limits of a kind of storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindLimits {
    /// Requests that the storage serves concurrently.
    pub requests: u32,
    /// How many of these may be readahead.
    pub ahead_requests: u32,
    /// How many may be readahead while all of them together are at most [`SHORT_AHEAD_BYTES`] long.
    pub short_ahead_requests: u32,
    /// Size of the largest request in bytes.
    pub max_fetch_bytes: u64,
}

impl KindLimits {
    /// The limits for an object store over HTTP. Large requests are used, because each request costs money, and the bytes of a response
    /// can be used as they arrive. Amazon's guide for S3 recommends 8 to 16 MiB. At 30 ms and 200 MB/s, reading 1 GiB sequentially takes
    /// 148 requests of 8 MiB or 270 requests of 4 MiB, in the same time.
    pub const OBJECT: KindLimits = KindLimits {
        requests: 32,
        ahead_requests: 16,
        short_ahead_requests: 48,
        max_fetch_bytes: 8 << 20,
    };
}

/// Where a run of sequential reads began: at the start of the file, right after cached bytes, or elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunKind {
    /// At the start of the file.
    Start,
    /// Right after cached bytes.
    Next,
    /// Anywhere else.
    #[default]
    Elsewhere,
}
