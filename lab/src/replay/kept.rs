//! A record of a trace as a replay keeps it.

use foreread_core::event::Advice;
use foreread_trace::After;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Read,
    /// It touches a page of a mapping.
    Touch,
    /// It gives a hint.
    Hint(Advice),
    /// It is passed over, and is kept for those that wait for it.
    Nothing,
}

/// A record, as far as a replay needs it.
#[derive(Clone, Debug)]
pub struct KeptRecord {
    pub what: What,
    /// An index into [`super::LoadedTrace::opens`].
    pub open: u32,
    pub thread: u32,
    pub offset: u64,
    /// Bytes. Of a touch those that are read of what was mapped with its page, see `scans.rs`.
    pub len: u64,
    pub start_ns: Option<u64>,
    pub end_ns: Option<u64>,
    pub executable: bool,
    /// It passes the page cache by (O_DIRECT).
    pub direct: bool,
    pub after: Vec<After>,
}
