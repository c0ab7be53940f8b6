//! Observers of the requests of a front end: for recorders.
//!
//! Without an observer there is no cost, not even a clock read. Never: reports bytes, or reads that no
//! client asked for.
//!
//! ```text
//!   opened ──► passed ──► passed ──► ... ──► closed        of each client; those of several mix
//! ```

use std::time::Instant;

/// The request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Bytes.
    Read,
    /// That bytes be written, or zeroed.
    Write,
    /// That bytes be read ahead.
    WillNeed,
    /// A flush. It has no range.
    Flush,
}

/// A completed request, reported before its answer is sent, so that the client's next request starts later.
#[derive(Clone, Copy, Debug)]
pub struct PassedRequest {
    /// The request.
    pub asked: RequestKind,
    /// First byte.
    pub offset: u64,
    /// Bytes asked for.
    pub len: u64,
    /// Bytes returned: fewer only at the end of a file.
    pub returned: u64,
    /// Whether it succeeded. An error is reported as it is sent.
    pub done: bool,
    /// When it was taken.
    pub start: Instant,
    /// When its answer was ready.
    pub end: Instant,
}

/// Called by the threads that answer requests: while it runs, their clients wait.
pub trait Observer: Send + Sync {
    /// A client has come: a connection, an open file. The number is its own as long as the front end runs. `name` is what it
    /// reads, of `size` bytes.
    fn opened(&self, client: u64, name: &str, size: u64);
    /// It was answered.
    fn passed(&self, client: u64, passed: &PassedRequest);
    /// It has gone.
    fn closed(&self, client: u64);
}

impl std::fmt::Debug for dyn Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("observer")
    }
}
