//! The blocks around a first read, each with another half, and what is known of these halves.
//!
//! ```text
//!   page 5 is read     level 0: half 4      before     level 1: half 6..8     after
//!                      level 2: half 0..4   before     level 3: half 8..16    after      ... up to 128 pages
//!   a region           a bit for each page that was read ──► for each level and side the part of that half that was read
//!   chance             (read + 2 of the kind) / (regions + 2) for a file; of a kind: 16 of the prior before what it has shown
//! ```
//! Kinds are files that are read and files that are mapped, in five sizes.
//!
//! Example: 154 recorded programs read 85 % of what is behind the first read of a file of 1 to 16 MiB, whatever the level, and half of what
//! is before it. Of mapped files it is 80 to 85 % up to 64 KiB, and 58 to 40 % beyond.
//!
//! Source: the priors are means over the development half of the recorded programs, rounded; a read is taken for less than its mean,
//! since programs read most files from the start. The other figures are chosen on the same recordings.

use super::{Holding, survival};
use core::ops::Range;

/// Bytes of a region, and of the pages of which it is known whether they were read.
pub const REGION: u64 = 1 << 20;
pub const PAGE: u64 = 4 << 10;
const WORDS: usize = (REGION / PAGE / 64) as usize;
/// Blocks around the first read double in length this often, from a page to the whole region.
const LEVELS: usize = (REGION / PAGE).ilog2() as usize;
/// Regions that a chance is taken for before any is over: of a kind, and of a file.
const KIND_PRIOR: u64 = 16;
const FILE_PRIOR: u64 = 2;
/// Upper bounds of the sizes of files of a kind.
const SIZES: [u64; 5] = [64 << 10, 256 << 10, 1 << 20, 16 << 20, u64::MAX];

/// Chances in 1/100 that the other half of a block is read, from a page up: behind what was read, and before it.
#[derive(Clone, Copy)]
struct Prior {
    after: [u64; LEVELS],
    before: [u64; LEVELS],
}

const MAPPED: Prior = Prior {
    after: [80, 80, 85, 85, 58, 50, 46, 40],
    before: [50, 45, 30, 20, 28, 26, 26, 26],
};
const SMALL: Prior = Prior {
    after: [95; LEVELS],
    before: [50; LEVELS],
};
const READ: Prior = Prior {
    after: [75; LEVELS],
    before: [40; LEVELS],
};
const READ_LARGE: Prior = Prior {
    after: [0; LEVELS],
    before: [0; LEVELS],
};

/// Halves that were read, in 1/64 of each, and how many there were, at each level: before and behind.
#[derive(Clone, Copy, Default)]
pub struct Sums([[(u64, u64); LEVELS]; 2]);

impl Sums {
    pub fn add(&mut self, region: &Region) {
        for (level, half) in region.halves() {
            let sum = &mut self.0[usize::from(half.is_after)][level];
            let pages = half.pages.end - half.pages.start;
            *sum = (sum.0 + 64 * region.count(&half.pages) / pages, sum.1 + 64);
            if sum.1 >= 64 * u64::from(survival::HALVED_AT) {
                *sum = (sum.0 / 2, sum.1 / 2);
            }
        }
    }

    /// The chance with `weight` halves of the chance `prior` before them.
    pub fn chance(&self, level: usize, is_after: bool, prior: u64, weight: u64) -> u64 {
        let (read, all) = self.0[usize::from(is_after)][level];
        (read * survival::ONE + 64 * weight * prior) / (all + 64 * weight)
    }
}

/// What the files of each kind have shown.
#[derive(Default)]
pub struct Kinds([[Sums; SIZES.len()]; 2]);

/// Which kind a file is of.
#[derive(Clone, Copy, Default)]
pub struct Kind {
    pub is_mapped: bool,
    size: usize,
}

impl Kind {
    pub fn of(is_mapped: bool, bytes: u64) -> Kind {
        let size = SIZES.iter().position(|most| bytes <= *most).unwrap_or(0);
        Kind { is_mapped, size }
    }

    fn prior(self) -> &'static Prior {
        match (self.is_mapped, self.size) {
            (true, 0) | (false, 0 | 1) => &SMALL,
            (true, _) => &MAPPED,
            (false, 2 | 3) => &READ,
            (false, _) => &READ_LARGE,
        }
    }
}

impl Kinds {
    /// The chance of a half of a file of this kind, of which `own` is known.
    pub fn chance(&self, kind: Kind, own: &Sums, level: usize, is_after: bool) -> u64 {
        let Prior { after, before } = kind.prior();
        let prior = if is_after { after } else { before }[level] * survival::ONE / 100;
        let kind = &self.0[usize::from(kind.is_mapped)][kind.size];
        let prior = kind.chance(level, is_after, prior, KIND_PRIOR);
        own.chance(level, is_after, prior, FILE_PRIOR)
    }

    pub fn of(&mut self, kind: Kind) -> &mut Sums {
        &mut self.0[usize::from(kind.is_mapped)][kind.size]
    }
}

/// The other half of a block.
pub struct Half {
    pub is_after: bool,
    /// Its pages in the region.
    pub pages: Range<u64>,
}

/// A region that is being read.
#[derive(Clone)]
pub struct Region {
    pub index: u64,
    /// Its pages, and those of its first read.
    pub len: u64,
    pub first: Range<u64>,
    /// A bit for each page that was read.
    read: [u64; WORDS],
    /// What was read ahead of it, and up to where in the file.
    pub holding: Holding,
    pub to: u64,
    /// When it began and was last read.
    pub begun: u64,
    pub seen: u64,
}

impl Region {
    /// Begun by a read of `bytes` bytes at `at`, as the `nth` of its file.
    pub fn new(at: u64, bytes: u64, file_size: u64, nth: u64) -> Region {
        let index = at / REGION;
        let len = REGION
            .min(file_size.saturating_sub(index * REGION))
            .div_ceil(PAGE);
        let mut region = Region {
            index,
            len,
            first: at % REGION / PAGE..(at % REGION + bytes).div_ceil(PAGE).min(len),
            read: [0; WORDS],
            holding: Holding::default(),
            to: 0,
            begun: nth,
            seen: 0,
        };
        region.touch(at, bytes);
        region
    }

    pub fn touch(&mut self, at: u64, bytes: u64) {
        let (from, to) = (at % REGION / PAGE, (at % REGION + bytes).div_ceil(PAGE));
        for page in from..to.min(self.len) {
            self.read[(page / 64) as usize] |= 1 << (page % 64);
        }
    }

    pub fn count(&self, pages: &Range<u64>) -> u64 {
        let mut sum = 0;
        for (word, bits) in self.read.iter().enumerate() {
            let at = 64 * word as u64;
            let (from, to) = (pages.start.max(at), pages.end.min(at + 64));
            if from < to {
                let mask = (u64::MAX >> (64 - (to - from))) << (from - at);
                sum += u64::from((bits & mask).count_ones());
            }
        }
        sum
    }

    /// The other halves of the blocks around the first read.
    fn halves(&self) -> impl Iterator<Item = (usize, Half)> + '_ {
        halves(self.first.clone(), self.len)
    }
}

/// The other halves of the blocks around `pages` of a region of `len` pages, level by level.
pub fn halves(pages: Range<u64>, len: u64) -> impl Iterator<Item = (usize, Half)> {
    (0..LEVELS).filter_map(move |level| {
        let block = 1 << level;
        let at = pages.start / block * block;
        let is_after = at.is_multiple_of(2 * block);
        let half = if is_after {
            at + block..(at + 2 * block).min(len)
        } else {
            at - block..at
        };
        let fits = pages.end <= at + block && half.start < half.end;
        fits.then_some((
            level,
            Half {
                is_after,
                pages: half,
            },
        ))
    })
}

/// What a block may cost.
pub struct Purse {
    /// The least chance of a half.
    pub least: u64,
    /// Bytes that may be expected to be wasted, and bytes that may be read.
    pub free: u64,
    pub room: u64,
}

/// Pages to read, and the bytes of them that are expected to be wasted.
pub struct Block {
    pub pages: Range<u64>,
    pub bet: u64,
}

impl Block {
    /// The block of `pages` in a region of `len` pages, with each half next to it that is worth it: `chance` of its level and side.
    pub fn around(
        pages: Range<u64>,
        len: u64,
        purse: &Purse,
        chance: impl Fn(usize, bool) -> u64,
    ) -> Block {
        let mut block = Block {
            pages: pages.clone(),
            bet: 0,
        };
        for (level, half) in halves(pages, len) {
            let (from, to) = (block.pages.start, block.pages.end);
            let added = if half.is_after {
                to.max(half.pages.start)..half.pages.end
            } else {
                half.pages
            };
            let is_next = added.start < added.end && (added.start == to || added.end == from);
            if !is_next {
                continue;
            }
            let chance = chance(level, half.is_after);
            if chance < purse.least {
                if half.is_after {
                    break;
                }
                continue;
            }
            let bytes = PAGE * (added.end - added.start);
            let bet = block.bet + bytes * (survival::ONE - chance) / survival::ONE;
            if bet > purse.free || PAGE * (to - from) + bytes > purse.room {
                break;
            }
            block = Block {
                pages: from.min(added.start)..to.max(added.end),
                bet,
            };
        }
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// The halves of the example.
    #[test]
    fn blocks_double_around_the_first_read() {
        let all: Vec<(usize, bool, Range<u64>)> = halves(5..6, 256)
            .map(|(level, half)| (level, half.is_after, half.pages))
            .collect();
        assert_eq!(
            all[..4],
            [
                (0, false, 4..5),
                (1, true, 6..8),
                (2, false, 0..4),
                (3, true, 8..16)
            ]
        );
        assert_eq!((all.len(), &all[7]), (LEVELS, &(7, true, 128..256)));
        let short: Vec<Range<u64>> = halves(0..3, 5).map(|(_, half)| half.pages).collect();
        assert_eq!(
            (short.len(), &short[0]),
            (1, &(4..5)),
            "to the end of the file, no farther"
        );
    }

    /// Halves behind the read up to the first one that is not worth it; one before it only as long as no other is left out between.
    #[test]
    fn a_block_grows_by_what_is_worth_it() {
        let purse = |least, free, room| Purse { least, free, room };
        let all = purse(survival::ONE / 2, u64::MAX, u64::MAX);
        let near = |level: usize, is_after: bool| {
            if is_after && level < 4 {
                survival::ONE
            } else {
                0
            }
        };
        assert_eq!(Block::around(5..6, 256, &all, near).pages, 5..16);
        let sure = |_, _| survival::ONE * 3 / 4;
        let whole = Block::around(5..6, 256, &all, sure);
        assert_eq!((whole.pages, whole.bet), (0..256, 255 * PAGE / 4));
        let small = purse(0, 3 * PAGE, u64::MAX);
        assert_eq!(
            Block::around(5..6, 256, &small, sure).pages,
            0..8,
            "a bet of 7 / 4 pages"
        );
        let full = purse(0, u64::MAX, 9 * PAGE);
        assert_eq!(
            Block::around(5..6, 256, &full, sure).pages,
            0..8,
            "no room for 16"
        );
    }
}
