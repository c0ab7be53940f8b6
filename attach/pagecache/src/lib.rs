//! Controls the kernel's page cache for unmodified programs.
//!
//! Each module is a thin layer over one facility of Linux:
//!
//! ```text
//!   advisor     the decision core for a program: takes its reads, says what to read ahead
//!   handle      opens a file on ext4 by its inode
//!   readahead   reads ranges of a file into the page cache, in pieces that the kernel does not shorten
//!   resident    which bytes of a file are cached: cachestat(2), mincore(2)
//!   kept        whether cached pages outlive another open of the file
//!   inherited   signals that child commands get as foreread got them
//!   program     starts this program again, and commands of the user
//! ```
//! Example: reading 64 MiB of a file on a disk with a `read_ahead_kb` of 8192 takes eight calls of readahead(2). A single call for all 64
//! MiB would read the first 8 MiB, and still report success.
//!
//! This crate does not decide what is read, uses no clock, and writes to no file.

pub mod advisor;
pub mod handle;
pub mod inherited;
pub mod kept;
pub mod program;
pub mod readahead;
pub mod resident;

pub use foreread_os::host::memory::page_bytes;

/// Returns the smallest range of whole pages that contains `range`.
pub fn whole_pages(range: &std::ops::Range<u64>) -> std::ops::Range<u64> {
    let page = page_bytes();
    let end = range
        .end
        .checked_next_multiple_of(page)
        .unwrap_or(u64::MAX / page * page);
    range.start / page * page..end
}
