//! Reuse: how much of what is read has been read before, in blocks of 4 KiB.
//!
//! ```text
//!   (file, 64 blocks) ──► a bit for each block, exact for MAX_GROUPS groups
//!                         beyond that: of all groups those whose hash ends in this many zeros, and one zero more each time
//! ```
//! A read that goes on within the block in which the one before it ended does not read that block again. Never: more
//! than [`MAX_GROUPS`] groups, or work without bound for one hostile record.

use super::mix;
use std::collections::HashMap;

/// What is counted: a page.
pub const BLOCK: u64 = 4096;
/// Groups of 64 blocks whose bits are kept: exact up to 32 GiB that are read in order, or 512 MiB at random.
pub const MAX_GROUPS: usize = 1 << 17;
/// Of one read this much is followed.
pub const MAX_FOLLOWED: u64 = 1 << 30;

/// Counts blocks.
#[derive(Debug, Default)]
pub struct Reuse {
    groups: HashMap<(u32, u64), u64>,
    /// One of 2^this groups is followed.
    pub level: u32,
    /// Blocks that were read, again or not.
    pub touched: u64,
}

impl Reuse {
    /// A read of at least one byte; `continues` one that ended where it begins.
    pub fn read(&mut self, file: u32, offset: u64, len: u64, continues: bool) {
        let len = len.min(MAX_FOLLOWED);
        let half = u64::from(continues && !offset.is_multiple_of(BLOCK));
        let first = offset / BLOCK + half;
        let end = offset.saturating_add(len).div_ceil(BLOCK);
        self.touched += end.saturating_sub(first);
        let mut at = first;
        while at < end {
            let group = at / 64;
            let stop = end.min((group + 1) * 64);
            if mix(u64::from(file) << 40 ^ group).trailing_zeros() >= self.level {
                let bits = u64::MAX >> (64 - (stop - at)) << (at % 64);
                *self.groups.entry((file, group)).or_default() |= bits;
            }
            at = stop;
        }
        while self.groups.len() > MAX_GROUPS {
            self.level += 1;
            let level = self.level;
            self.groups.retain(|(file, group), _| {
                mix(u64::from(*file) << 40 ^ group).trailing_zeros() >= level
            });
        }
    }

    /// Different blocks: exact at level 0, an estimate above.
    pub fn distinct(&self) -> u64 {
        let kept: u64 = self
            .groups
            .values()
            .map(|bits| u64::from(bits.count_ones()))
            .sum();
        // Nothing can be more often different than it was read.
        kept.saturating_mul(1 << self.level.min(63))
            .min(self.touched)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreread_sim::rng::Rng;

    #[test]
    fn blocks_are_counted_once() {
        let mut reuse = Reuse::default();
        // 512 bytes at a time, in order: no block is read again.
        (0..80).for_each(|i| reuse.read(0, i * 512, 512, i > 0));
        assert_eq!((reuse.touched, reuse.distinct()), (10, 10));
        reuse.read(0, 4095, 2, false);
        assert_eq!((reuse.touched, reuse.distinct()), (12, 10));
        reuse.read(1, 0, 1 << 20, false);
        reuse.read(1, 4096 * 63, 4096 * 2, false);
        assert_eq!((reuse.touched, reuse.distinct()), (270, 266));
        reuse.read(2, u64::MAX - 5000, 5000, false);
        assert_eq!(reuse.distinct(), 268);
    }

    #[test]
    fn a_large_trace_is_estimated_in_bounded_memory() {
        let (mut reuse, mut rng) = (Reuse::default(), Rng::new(1));
        // 2^21 blocks of which half a million are drawn: 2^21 * (1 - exp(-1/4)) are different.
        for _ in 0..1 << 19 {
            reuse.read(0, rng.below(1 << 21) * 64 * BLOCK, 1, false);
            assert!(reuse.groups.len() <= MAX_GROUPS);
        }
        let expected = f64::from(1 << 21) * (1.0 - (-0.25_f64).exp());
        let ratio = reuse.distinct() as f64 / expected;
        assert!(
            reuse.level == 2 && (0.98..1.02).contains(&ratio),
            "{} {ratio}",
            reuse.level
        );
        reuse.read(0, 0, u64::MAX, false);
        assert_eq!(reuse.touched, (1 << 19) + MAX_FOLLOWED / BLOCK);
    }
}
