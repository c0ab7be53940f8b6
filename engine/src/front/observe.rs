//! Observers get the requests of a front end's clients, for example to record them.
//!
//! Without an observer there is no cost, not even a clock read. Observers get neither the data nor foreread's own requests, such as
//! readahead.
//!
//! ```text
//!   opened ──► passed ──► passed ──► ... ──► closed        per client; those of several clients mix
//! ```

use std::time::Instant;

/// The kind of a client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// To read bytes.
    Read,
    /// To write or zero bytes.
    Write,
    /// To read bytes ahead.
    WillNeed,
    /// A flush. It has no range.
    Flush,
}

/// A completed request. The request is reported before its answer is sent, so that the report precedes the client's next request.
#[derive(Clone, Copy, Debug)]
pub struct PassedRequest {
    /// The request.
    pub asked: RequestKind,
    /// First byte.
    pub offset: u64,
    /// Number of bytes requested.
    pub len: u64,
    /// Number of bytes returned: fewer than requested only at the end of a file.
    pub returned: u64,
    /// Whether it succeeded. An error is reported as it is sent.
    pub done: bool,
    /// When the request was received.
    pub start: Instant,
    /// When its answer was ready.
    pub end: Instant,
}

/// Receives reports about requests, from the threads that answer them. The client waits for its answer while a call runs.
pub trait Observer: Send + Sync {
    /// A client has connected, or a file was opened. The number is unique while the front end runs. `name` is the source that it
    /// reads, which has `size` bytes.
    fn opened(&self, client: u64, name: &str, size: u64);
    /// A request was answered.
    fn passed(&self, client: u64, passed: &PassedRequest);
    /// The client has disconnected, or the file was closed.
    fn closed(&self, client: u64);
}

impl std::fmt::Debug for dyn Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("observer")
    }
}
