//! A test sequence (episode) while it is generated: its operations so far, and the random sizes, positions and hints that all patterns use.

use crate::conform::recording::PAGE;
use foreread_sim::rng::Rng;
use serde::Serialize;

/// Longest read of any pattern.
pub(super) const LONGEST: u64 = 3 << 20;
/// Request sizes in bytes: within a page, about a page, unusual ones, and up to the maximum.
const LENGTHS: [u64; 26] = [
    1,
    100,
    512,
    4095,
    4096,
    4096,
    4096,
    4097,
    8192,
    8192,
    9338,
    12_288,
    16_384,
    16_384,
    20_480,
    32_768,
    65_536,
    65_536,
    74_697,
    100_000,
    131_072,
    200_704,
    262_144,
    320_474,
    1 << 20,
    LONGEST,
];

/// A pattern of reads.
pub(super) type DrawSteps = fn(&mut Rng, &mut Story);

/// An episode during generation.
pub(super) struct Story {
    pub size: u64,
    pub fds: u32,
    pub steps: Vec<Step>,
    /// Number of operations that it should have.
    pub wanted: usize,
    /// Minimum number of operations, if a pattern is useful only with that many.
    pub least: usize,
}

impl Story {
    pub fn read(&mut self, fd: u32, off: u64, len: u64) {
        self.steps.push(Step::Pread { fd, off, len });
    }

    pub fn advise(&mut self, fd: u32, advice: &'static str, off: u64, len: u64) {
        self.steps.push(Step::Fadvise {
            fd,
            advice,
            off,
            len,
        });
    }

    pub fn full(&self) -> bool {
        self.steps.len() >= self.wanted
    }

    pub fn pages(&self) -> u64 {
        self.size.div_ceil(PAGE)
    }
}

/// A request size; long ones are rarer than in the list, because they cost most.
pub(super) fn length(rng: &mut Rng) -> u64 {
    let len = LENGTHS[rng.below(LENGTHS.len() as u64) as usize];
    if len >= 1 << 20 && rng.below(4) > 0 {
        PAGE
    } else {
        len
    }
}

/// A byte offset in the file: near its start, at a page boundary, or anywhere.
pub(super) fn place(rng: &mut Rng, size: u64) -> u64 {
    match rng.below(4) {
        0 => 0,
        1 => rng.below(size),
        _ => rng.below(size) / PAGE * PAGE,
    }
}

/// A number below 2, 4, ... or 2 to the power of `bits`; each of these bounds has the same probability.
pub(super) fn spread(rng: &mut Rng, bits: u64) -> u64 {
    let power = 1 + rng.below(bits);
    rng.below(1 << power)
}

/// Draws a hint of one that reads or decides.
pub(super) fn hint(rng: &mut Rng, story: &mut Story) {
    let fd = rng.below(u64::from(story.fds)) as u32;
    let range = (place(rng, story.size), length(rng));
    match rng.below(6) {
        0 => story.advise(fd, "normal", 0, 0),
        1 => story.advise(fd, "sequential", 0, 0),
        2 => story.advise(fd, "random", 0, 0),
        3 => story.advise(fd, "noreuse", range.0, range.1),
        4 => story.advise(
            fd,
            "willneed",
            range.0,
            if rng.below(8) == 0 { 0 } else { range.1 },
        ),
        _ => story.advise(fd, "willneed", range.0, PAGE * (1 + rng.below(700))),
    }
}

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
