//! The compact form in which a replay keeps each record of a trace in memory.

use foreread_core::event::Advice;
use foreread_trace::After;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Read,
    /// A touch of a page of a mapping.
    Touch,
    /// A hint.
    Hint(Advice),
    /// A skipped record, kept for the records that wait for it.
    Nothing,
}

/// A record, with the fields that a replay needs.
#[derive(Clone, Debug)]
pub struct KeptRecord {
    pub what: What,
    /// An index into [`super::LoadedTrace::opens`].
    pub open: u32,
    pub thread: u32,
    pub offset: u64,
    /// Length in bytes. For a touch: how many of the bytes mapped with its page are read, see `scans.rs`.
    pub len: u64,
    pub start_ns: Option<u64>,
    pub end_ns: Option<u64>,
    pub executable: bool,
    /// Whether it bypasses the page cache (O_DIRECT).
    pub direct: bool,
    pub after: Vec<After>,
}
