//! Estimates what else will be read around the first read of a region. The block of the read is one half of a block twice as long, which is
//! again one half of a longer block. For each of these block sizes (levels), this module estimates whether the other half will be read.
//!
//! ```text
//!   page 5 is read     level 0: page 4       before     level 1: pages 6..8     after
//!                      level 2: pages 0..4   before     level 3: pages 8..16    after      ... up to 128 pages
//!   region             one bit for each page that was read ──► for each level and side, the part of the other half that was read
//!   chance             of a file: (read + 2 x chance of its kind) / (regions + 2); of a kind: likewise, its prior counts as 16 regions
//! ```
//! There are ten kinds of files: files that are read by calls and files that are mapped, each in five size classes.
//!
//! Example: in files of 1 to 16 MiB, 154 recorded programs read 85 % of the bytes after the first read, at every level, and half of the
//! bytes before it. In mapped files, they read 80 to 85 % of the 64 KiB after the first read, and 40 to 58 % of the halves farther away.
//!
//! Source: the prior chances are rounded means over the development half of the recorded programs. For files that are read by calls, the
//! prior chance is below the mean of the recordings, because most of the recorded files were read from the start. The other constants of
//! this file were chosen by measuring on the same recordings.

use super::survival;
use core::ops::Range;

/// Number of reads in a region that go forward before they are a run, the part of them that may go back, and the part of the pages up to
/// the latest read that must have been read.
const WALK_READS: u64 = 3;
const WALK_BACK: u64 = 3;
const WALK_PART: u64 = 2;
/// The size of a region in bytes; for each of its pages, a region records whether the page was read.
pub const REGION: u64 = 1 << 20;
pub const PAGE: u64 = 4 << 10;
const WORDS: usize = (REGION / PAGE / 64) as usize;
/// Number of times that the block around the first read doubles, from a page to the whole region.
const LEVELS: usize = (REGION / PAGE).ilog2() as usize;
/// Weight of the prior, as a number of regions: of the prior of a kind, and of the chance of its kind for a file.
const KIND_PRIOR: u64 = 16;
const FILE_PRIOR: u64 = 2;
/// Upper bounds of the five file sizes.
const SIZES: [u64; 5] = [64 << 10, 256 << 10, 1 << 20, 16 << 20, u64::MAX];

/// Chances in 1/100 that the other half of a block is read, by level from one page up: the half after the read, and the half before it.
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

/// Two sums over regions, for one block size (level) and one side of the first read. For each region, the first sum grows by 64 times the
/// fraction that was read of the block's other half (without the first read). The second sum grows by 64. The quotient of the sums is the
/// mean fraction (both sums are halved now and then, so that recent regions count more).
#[derive(Clone, Copy, Default)]
pub struct Sum(u64, u64);

impl Sum {
    pub fn add(&mut self, region: &Region, half: &Half) {
        let pages = half.pages.end - half.pages.start;
        *self = Sum(self.0 + 64 * region.count(&half.pages) / pages, self.1 + 64);
        if self.1 >= 64 * u64::from(survival::HALVED_AT) {
            *self = Sum(self.0 / 2, self.1 / 2);
        }
    }

    /// Returns the chance that the other half is read. The chance `prior` has the weight of `weight` observed halves.
    pub fn chance(self, prior: u64, weight: u64) -> u64 {
        (self.0 * survival::ONE + 64 * weight * prior) / (self.1 + 64 * weight)
    }
}

/// The sums of each block size and side.
#[derive(Clone, Copy, Default)]
pub struct Sums([[Sum; LEVELS]; 2]);

impl Sums {
    pub fn add(&mut self, region: &Region) {
        for (level, half) in halves(region.first.clone(), region.len) {
            self.0[usize::from(half.is_after)][level].add(region, &half);
        }
    }

    pub fn of(&self, level: usize, is_after: bool) -> Sum {
        self.0[usize::from(is_after)][level]
    }
}

/// For each kind of file: how much of the regions of such files was read.
#[derive(Default)]
pub struct Kinds([[Sums; SIZES.len()]; 2]);

/// The kind of a file: read by calls or mapped, and its size class.
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
    /// Returns the chance that, in a file of this kind, the other half of a block of this size (level) is read; `own` holds the counts of
    /// the file itself for this half.
    pub fn chance(&self, kind: Kind, own: Sum, level: usize, is_after: bool) -> u64 {
        let Prior { after, before } = kind.prior();
        let prior = if is_after { after } else { before }[level] * survival::ONE / 100;
        let kind = &self.0[usize::from(kind.is_mapped)][kind.size];
        let prior = kind.of(level, is_after).chance(prior, KIND_PRIOR);
        own.chance(prior, FILE_PRIOR)
    }

    pub fn of(&mut self, kind: Kind) -> &mut Sums {
        &mut self.0[usize::from(kind.is_mapped)][kind.size]
    }
}

/// The half of a block that does not contain the first read.
pub struct Half {
    pub is_after: bool,
    /// Its pages in the region.
    pub pages: Range<u64>,
}

/// A region that is being read.
#[derive(Clone)]
pub struct Region {
    pub index: u64,
    /// The number of its pages, and the pages of its first read.
    pub len: u64,
    pub first: Range<u64>,
    /// One bit for each page that was read.
    read: [u64; WORDS],
    /// Bytes read ahead in it and not used yet, and the file offset where they end.
    pub held: u64,
    pub to: u64,
    /// When it began, and when it was last read, as counts of its file.
    pub begun: u64,
    pub seen: u64,
    /// The first page of the latest read; number of reads that began after the previous one, and before it.
    latest: u64,
    ups: u64,
    downs: u64,
}

impl Region {
    /// Creates the `nth` region of a file, whose first read is `bytes` bytes long and begins at the file offset `at`.
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
            held: 0,
            to: 0,
            begun: nth,
            seen: 0,
            latest: at % REGION / PAGE,
            ups: 0,
            downs: 0,
        };
        region.touch(at, bytes);
        region
    }

    pub fn touch(&mut self, at: u64, bytes: u64) {
        let (from, to) = (at % REGION / PAGE, (at % REGION + bytes).div_ceil(PAGE));
        self.ups += u64::from(from > self.latest);
        self.downs += u64::from(from < self.latest);
        self.latest = from;
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

    /// Whether the region's reads go forward and leave out few pages. Of the `len` pages from the first read on, `read` were read, and none
    /// from page `beyond` on. For each read, less than `gap` bytes may be left out.
    pub fn goes_forward(&self, (len, read): (u64, u64), beyond: u64, gap: u64) -> bool {
        self.ups >= WALK_READS.max(WALK_BACK * self.downs)
            && read > 0
            && WALK_PART * read >= len
            && len.saturating_sub(read) * PAGE < self.ups.saturating_mul(gap)
            && self.count(&(beyond..self.len)) == 0
    }

    /// The other half of the block of this size (level) around the first read.
    pub fn half(&self, level: usize) -> Option<Half> {
        half(&self.first, self.len, level)
    }
}

/// The half of the block of this size (level) around `pages`, in a region of `len` pages, that does not contain `pages`. `None` if `pages`
/// are longer than the block, or nothing of the half is in the region.
fn half(pages: &Range<u64>, len: u64, level: usize) -> Option<Half> {
    let block = 1 << level;
    let at = pages.start / block * block;
    let is_after = at.is_multiple_of(2 * block);
    let half = if is_after {
        at + block..(at + 2 * block).min(len)
    } else {
        at - block..at
    };
    let fits = pages.end <= at + block && half.start < half.end;
    fits.then_some(Half {
        is_after,
        pages: half,
    })
}

/// Iterates over the blocks around `pages` in a region of `len` pages, from short to long: the level of each block, and the half that does
/// not contain `pages`.
pub fn halves(pages: Range<u64>, len: u64) -> impl Iterator<Item = (usize, Half)> {
    (0..LEVELS).filter_map(move |level| Some((level, half(&pages, len, level)?)))
}

/// Limits for the readahead around a read.
pub struct Purse {
    /// Halves that are less likely to be read are left out.
    pub least: u64,
    /// The largest expected waste in bytes, and the most bytes that may be read.
    pub free: u64,
    pub room: u64,
}

/// Chooses what to read around `pages` in a region of `len` pages: adds each adjacent half that is likely enough to be read. `chance`
/// returns the chance that a half is read, for its level and its side (true: after the read).
pub fn around(
    pages: Range<u64>,
    len: u64,
    purse: &Purse,
    chance: impl Fn(usize, bool) -> u64,
) -> Range<u64> {
    let (mut block, mut waste) = (pages.clone(), 0);
    for (level, half) in halves(pages, len) {
        let added = if half.is_after {
            block.end.max(half.pages.start)..half.pages.end
        } else {
            half.pages
        };
        let is_next =
            added.start < added.end && (added.start == block.end || added.end == block.start);
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
        waste += bytes * (survival::ONE - chance) / survival::ONE;
        if waste > purse.free || PAGE * (block.end - block.start) + bytes > purse.room {
            break;
        }
        block = block.start.min(added.start)..block.end.max(added.end);
    }
    block
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

    /// Halves after the read are added up to the first one that is not worth it; a half before it only if none between them is left out.
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
        assert_eq!(around(5..6, 256, &all, near), 5..16);
        let sure = |_, _| survival::ONE * 3 / 4;
        assert_eq!(around(5..6, 256, &all, sure), 0..256);
        let small = purse(0, 3 * PAGE, u64::MAX);
        assert_eq!(
            around(5..6, 256, &small, sure),
            0..8,
            "an expected waste of 7 / 4 pages"
        );
        let full = purse(0, u64::MAX, 9 * PAGE);
        assert_eq!(around(5..6, 256, &full, sure), 0..8, "no room for 16");
    }
}
