//! A program's page cache accesses, observed by tracepoints or by samples.

use foreread_pagecache::page_bytes;
use foreread_trace::follow::event::FileKey;
use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TouchKind {
    /// By a call that reads.
    Read,
    /// By a touch of a mapping, and it was in the cache.
    Mapped,
    /// By a touch of a mapping that went to the file.
    Fault,
    /// It was not in the cache, or the kernel read it ahead.
    Miss,
}

/// The accessed pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// When, in nanoseconds of the monotonic clock.
    pub at_ns: u64,
    pub thread: u32,
    pub file: FileKey,
    /// First and last page, of the machine's size.
    pub pages: (u64, u64),
    pub kind: TouchKind,
}

impl Touch {
    pub fn bytes(&self) -> Range<u64> {
        let (first, last) = self.pages;
        let page = page_bytes();
        first.saturating_mul(page)..last.saturating_add(1).saturating_mul(page)
    }
}
