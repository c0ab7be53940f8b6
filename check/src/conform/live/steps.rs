//! Operations on a file in the notation of recordings (docs/spec/linux-readahead.md 5).
//!
//! This module only describes operations; the player executes them.

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
    /// A new mapping that replaces the descriptor's previous one: pages of the file, the number of the first page
    /// within its page table, and the advice for madvise(2).
    Mmap {
        fd: u32,
        pgoff: u64,
        npages: u64,
        va: u64,
        prot: &'static str,
        advice: u32,
    },
    /// Reads one byte of a page of the mapping.
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

    /// Its outcome depends on which pages have arrived, so all reads in flight must finish first.
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

/// A file with an empty cache and new descriptors, and the operations on it.
#[derive(Clone, Debug)]
pub(super) struct EpisodeScript {
    /// The name of the pattern.
    pub kind: &'static str,
    /// The file: an index into [`super::disk::SIZES`].
    pub file: usize,
    pub fds: u32,
    pub steps: Vec<Step>,
}
