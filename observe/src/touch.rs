//! The type for one access of a program to the page cache, observed by tracepoints or by samples.

use foreread_pagecache::page_bytes;
use foreread_trace::follow::call::FileKey;
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};
use std::fs;
use std::ops::Range;
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TouchKind {
    Read,
    /// A touch of a mapped page that was in the cache.
    Mapped,
    /// A touch of a mapping for which the file was read.
    Fault,
    /// The page was not in the cache, or the kernel read it ahead.
    Miss,
}

/// One access of a program to pages of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// Time in nanoseconds of the monotonic clock.
    pub at_ns: u64,
    pub thread: u32,
    pub file: FileKey,
    /// First and last page, in pages of the machine's size.
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

// Queries the kernel about processes and files: the threads and children of a process, the device and inode of a file.
//
// Processes change while they are queried: a process that has ended has no data.

pub(crate) fn threads_of(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    tasks
        .filter_map(|task| task.file_name().to_str()?.parse().ok())
        .collect()
}

pub(crate) fn family(pid: u32) -> Vec<u32> {
    let mut all = Vec::new();
    let mut next = vec![pid];
    while let Some(pid) = next.pop() {
        let threads = threads_of(pid);
        if threads.is_empty() || all.contains(&pid) {
            continue;
        }
        all.push(pid);
        for thread in threads {
            let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/children"))
                .unwrap_or_default();
            next.extend(
                text.split_whitespace()
                    .filter_map(|word| word.parse::<u32>().ok()),
            );
        }
    }
    all
}

/// The file at `path`, with links followed, if it can be read ahead.
pub(crate) fn place_of(path: &Path) -> Option<(FileKey, u64)> {
    place(path, AtFlags::empty())
}

/// Like [`place_of`], for a descriptor's link in /proc: no server is queried, so the size may be slightly out of
/// date.
pub(crate) fn place_of_open(link: &Path) -> Option<(FileKey, u64)> {
    place(link, AtFlags::STATX_DONT_SYNC)
}

fn place(path: &Path, flags: AtFlags) -> Option<(FileKey, u64)> {
    let stat = statx(CWD, path, flags, StatxFlags::BASIC_STATS).ok()?;
    let is_file = FileType::from_raw_mode(u32::from(stat.stx_mode)) == FileType::RegularFile;
    is_file.then(|| {
        (
            FileKey::new(stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino),
            stat.stx_size,
        )
    })
}
