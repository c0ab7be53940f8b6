//! Drives the kernel's page cache for programs that are not changed.
//!
//! Each part is a thin layer over one facility of Linux:
//!
//! ```text
//!   advisor     the decision core beside a program: its reads in, what to read ahead out
//!   handle      a file of ext4 by its inode
//!   readahead   ranges of a file into the page cache, in pieces that the kernel takes whole, and how large those are
//!   resident    which bytes of a file are there: cachestat(2), mincore(2)
//!   kept        whether what is cached outlives another open of the file
//!   inherited   signals that a command of ours gets as we got them
//!   program     how this program is started again, and commands of the user
//! ```
//! Example: 64 MiB of a file of a disk whose `read_ahead_kb` is 8192 are eight calls of readahead(2). One call for all of them
//! would cache the first 8 MiB and report success.
//!
//! Never: decides what is read, waits for a clock, or writes to a file.

pub mod advisor;
pub mod handle;
pub mod inherited;
pub mod kept;
pub mod program;
pub mod readahead;
pub mod resident;

pub use foreread_os::host::memory::page_bytes;

/// `range` with both ends moved outward to pages.
#[must_use]
pub fn whole_pages(range: &std::ops::Range<u64>) -> std::ops::Range<u64> {
    let page = page_bytes();
    let end = range
        .end
        .checked_next_multiple_of(page)
        .unwrap_or(u64::MAX / page * page);
    range.start / page * page..end
}
