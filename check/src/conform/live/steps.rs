//! Operations on a file in the notation of recordings (docs/spec/linux-readahead.md 5).
//!
//! Never: does it.

use serde::Serialize;

/// One operation. Descriptors count from 0 within an episode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub(super) enum Step {
    /// A read of `len` bytes from `off`.
    Pread { fd: u32, off: u64, len: u64 },
    /// posix_fadvise(2).
    Fadvise {
        fd: u32,
        advice: &'static str,
        off: u64,
        len: u64,
    },
    /// readahead(2).
    Readahead { fd: u32, off: u64, len: u64 },
    /// A new mapping in place of the descriptor's last: pages of the file, the number of the first one within its page table,
    /// and their madvise(2) advice.
    Mmap {
        fd: u32,
        pgoff: u64,
        npages: u64,
        va: u64,
        prot: &'static str,
        advice: u32,
    },
    /// One byte of a page of the mapping is read.
    Touch { fd: u32, page: u64 },
}

impl Step {
    pub(super) fn fd(&self) -> u32 {
        match *self {
            Step::Pread { fd, .. }
            | Step::Fadvise { fd, .. }
            | Step::Readahead { fd, .. }
            | Step::Mmap { fd, .. }
            | Step::Touch { fd, .. } => fd,
        }
    }

    /// Its outcome depends on which pages have arrived: what is under way has to be waited for first.
    pub(super) fn wants_quiet(&self) -> bool {
        matches!(
            self,
            Step::Touch { .. }
                | Step::Fadvise {
                    advice: "dontneed",
                    ..
                }
        )
    }
}

/// A file with an empty cache and fresh descriptors, and what is done to it.
#[derive(Clone, Debug)]
pub(super) struct EpisodeScript {
    /// The name of the pattern.
    pub kind: &'static str,
    /// Which file: an index into [`super::disk::SIZES`].
    pub file: usize,
    pub fds: u32,
    pub steps: Vec<Step>,
}
