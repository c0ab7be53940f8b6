//! Readahead plans: which ranges of which files a program will read, in which order, and how soon.
//!
//! ```text
//!   recorded runs ──► runs    first touches of each run, merged ───────┐
//!   headers       ──► layout  safetensors, gguf, parquet, zip, zarr  ──┴─► Plan ◄──► text: a human-readable file
//! ```
//! Example: two recorded starts of a program read the first 64 KiB of `a.so`, 20 ms later 8 KiB of `b.conf`, and one of them a
//! log file. With "at least 2/2" the plan has the first two ranges, the second due 20 ms after the first.
//!
//! This crate does not read the planned bytes, check the identity of files (the caller does), or use a clock.

pub mod layout;
pub mod runs;
pub mod text;

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

pub const MAX_FILES: usize = 1 << 20;
pub const MAX_RANGES: usize = 1 << 21;
/// Bytes of a path, as PATH_MAX of Linux.
pub const MAX_PATH_BYTES: usize = 4096;
/// The last byte of a file plus one, as the kernel has it.
pub const MAX_END: u64 = i64::MAX as u64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanFile {
    /// Its path; for a plan of a mount or an export, its name there.
    pub path: PathBuf,
    /// In bytes, when the plan was made.
    pub size: u64,
    /// Modification time in nanoseconds since 1970. `None` if only the size identifies the file.
    pub mtime_ns: Option<i64>,
}

impl PlanFile {
    /// The current state of the file at `path`.
    pub fn of(path: PathBuf, meta: &Metadata) -> PlanFile {
        let mtime_ns = meta
            .mtime()
            .saturating_mul(1_000_000_000)
            .saturating_add(meta.mtime_nsec());
        PlanFile {
            path,
            size: meta.len(),
            mtime_ns: Some(mtime_ns),
        }
    }

    /// The block device at `path`, of `size` bytes. It has no modification time.
    pub fn device(path: PathBuf, size: u64) -> PlanFile {
        PlanFile {
            path,
            size,
            mtime_ns: None,
        }
    }

    /// Whether it is a block device, whose reads are metadata of a file system.
    pub fn is_device(&self) -> bool {
        self.mtime_ns.is_none() && self.path.starts_with("/dev")
    }
}

/// A range that will be read. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanRange {
    pub file: u32,
    pub offset: u64,
    pub len: u64,
    /// When it was first needed, in nanoseconds since the start of the program; `None` without a recorded run.
    pub at_ns: Option<u64>,
    /// The number of the range that the same thread needed before.
    pub after: Option<u32>,
    /// The time from that range's arrival to this need.
    pub gap_ns: Option<u64>,
    /// The number of runs that read it.
    pub runs: u32,
    /// How long the program waited for it; 0 if unknown.
    pub stall_ns: u64,
}

impl PlanRange {
    /// A range without recorded times.
    pub fn of(file: u32, range: &std::ops::Range<u64>) -> PlanRange {
        let (offset, len) = (range.start, range.end.saturating_sub(range.start));
        PlanRange {
            file,
            offset,
            len,
            at_ns: None,
            after: None,
            gap_ns: None,
            runs: 1,
            stall_ns: 0,
        }
    }

    /// The end (exclusive).
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}

/// What a program will read, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// What it was made from, for people.
    pub made_from: Vec<String>,
    /// The number of recorded runs; 0 for a plan from headers.
    pub runs: u32,
    pub files: Vec<PlanFile>,
    /// The ranges in the order of need.
    pub ranges: Vec<PlanRange>,
}

impl Plan {
    pub fn bytes(&self) -> u64 {
        self.ranges
            .iter()
            .fold(0, |sum, range| sum.saturating_add(range.len))
    }

    /// Removes files for which `keeps` returns false, with their ranges. A range whose predecessor is removed then has none.
    pub fn retain_files(&mut self, mut keeps: impl FnMut(&PlanFile) -> bool) {
        let kept: Vec<bool> = self.files.iter().map(&mut keeps).collect();
        let renumber = |kept: &[bool]| -> Vec<Option<u32>> {
            let mut numbers = 0..;
            kept.iter()
                .map(|keep| if *keep { numbers.next() } else { None })
                .collect()
        };
        let files = renumber(&kept);
        let stays = |range: &PlanRange| kept.get(range.file as usize) == Some(&true);
        let ranges = renumber(&self.ranges.iter().map(stays).collect::<Vec<_>>());
        self.ranges.retain(stays);
        for range in &mut self.ranges {
            range.file = files
                .get(range.file as usize)
                .copied()
                .flatten()
                .unwrap_or_default();
            range.after = range
                .after
                .and_then(|after| ranges.get(after as usize).copied().flatten());
            if range.after.is_none() {
                range.gap_ns = None;
            }
        }
        let mut kept = kept.into_iter();
        self.files.retain(|_| kept.next() == Some(true));
    }
}
