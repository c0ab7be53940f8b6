//! Readahead plans: which ranges of which files a program will read, in which order, and how soon.
//!
//! ```text
//!   recorded runs ──► runs    first touches of each run, merged ───────┐
//!   headers       ──► layout  safetensors, gguf                      ──┴─► Plan ◄──► text: a human-readable file
//! ```
//! Example: in two recorded runs, a program reads the first 64 KiB of `a.so`, and 20 ms later 8 KiB of `b.conf`. In one run it also reads
//! a log file. If the plan keeps only ranges that occur in both runs, it contains these two ranges, and that of `b.conf` is needed 20 ms
//! after that of `a.so`.
//!
//! This crate does not read the planned ranges or use a clock. The caller, not this crate, checks whether a file has changed since the
//! recording.

pub mod layout;
pub mod runs;
pub mod text;

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

pub const MAX_FILES: usize = 1 << 20;
pub const MAX_RANGES: usize = 1 << 21;
/// Maximum size of a path in bytes, which is PATH_MAX of Linux.
pub const MAX_PATH_BYTES: usize = 4096;
/// Maximum size of a file in bytes, which is the limit of the kernel.
pub const MAX_END: u64 = i64::MAX as u64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanFile {
    /// Path of the file; for a plan of a mount or an export, the name within it.
    pub path: PathBuf,
    /// Size in bytes when the plan was made.
    pub size: u64,
    /// Modification time in nanoseconds since 1970. `None` if only the size identifies the file.
    pub mtime_ns: Option<i64>,
}

impl PlanFile {
    /// Describes the file at `path`, with the size and the modification time of `meta`.
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

    /// Describes a file that only its size identifies: a block device, or a file of a mount.
    pub fn sized(path: impl Into<PathBuf>, size: u64) -> PlanFile {
        PlanFile {
            path: path.into(),
            size,
            mtime_ns: None,
        }
    }

    /// Returns whether the file is a block device; the ranges of a block device are metadata of the file system on it.
    pub fn is_device(&self) -> bool {
        self.mtime_ns.is_none() && self.path.starts_with("/dev")
    }
}

/// A range of a file that the program will read; a range is never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanRange {
    pub file: u32,
    pub offset: u64,
    pub len: u64,
    /// The time when a program first needed it, in nanoseconds since the start of the program; `None` without a recorded run.
    pub at_ns: Option<u64>,
    /// The number of the range that the same thread needed before this one.
    pub after: Option<u32>,
    /// The time from the arrival of that range to the need for this one.
    pub gap_ns: Option<u64>,
    /// The number of runs that read the range.
    pub runs: u32,
    /// How long the program waited for the range; 0 if unknown.
    pub stall_ns: u64,
}

impl PlanRange {
    /// Creates a range without recorded times.
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

    /// Returns the offset of the first byte after the range.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}

/// A readahead plan: the ranges of files that a program will read, in the order in which it needs them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// A description of the sources, for people.
    pub made_from: Vec<String>,
    /// The number of recorded runs; 0 for a plan from headers.
    pub runs: u32,
    pub files: Vec<PlanFile>,
    /// Ranges in the order in which they are needed.
    pub ranges: Vec<PlanRange>,
}

impl Plan {
    pub fn bytes(&self) -> u64 {
        self.ranges
            .iter()
            .fold(0, |sum, range| sum.saturating_add(range.len))
    }

    /// Removes the files for which `keeps` returns false, and their ranges. If the predecessor of a range (the range after which it is
    /// needed) is removed, the range has no predecessor afterwards.
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
