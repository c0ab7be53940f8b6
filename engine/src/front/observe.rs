//! Observers of the requests of a front end: for recorders.
//!
//! A front end without an observer pays for none: it does not even ask the time. Never: reports bytes, or reads that no
//! client asked for.
//!
//! ```text
//!   opened ──► passed ──► passed ──► ... ──► closed        of each client; those of several mix
//! ```

use std::time::Instant;

/// What a client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Bytes.
    Read,
    /// That bytes be written, or zeroed.
    Write,
    /// That bytes be read ahead.
    WillNeed,
    /// That what was written be made safe. It has no range.
    Flush,
}

/// A request that was answered, told before its answer sets out: what its client asks for next begins later.
#[derive(Clone, Copy, Debug)]
pub struct PassedRequest {
    /// What was asked for.
    pub asked: RequestKind,
    /// First byte.
    pub offset: u64,
    /// Bytes asked for.
    pub len: u64,
    /// Bytes that there were: fewer only behind a file's end.
    pub returned: u64,
    /// Whether it was done. An error is reported as it is sent.
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
