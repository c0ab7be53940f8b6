//! Regions of a file that are read nearly whole, in any order: a boot, a directory's blocks on a volume, a database's extent.
//!
//! A file is cut into regions of 512 KiB. The first read there that goes on with no stream makes a region *active*; all that is then
//! read of it counts. When another region needs its place, it is over, and what was read of it is known:
//!
//! ```text
//!   active, at most 64 or those that fit into the cache     [######..##]  [#.........]  [####......]
//!   over: the one that was not read for longest           sums of what was read behind the first read, and of all behind it
//!   chance = read / (all + 4 regions)                     that a byte of a region is read, once a first one was
//! ```
//! A region is read whole where the chance is at least 1/2, pays by `survival.rs`, and leaves an expected waste that the credit covers.
//! It is done only where a round trip costs as much as the transfer of half a region: elsewhere single reads are as good.
//!
//! Example: a virtual machine boots; 90 % of each zone of 8 MiB is read, in no order, 33 KB at a time. After 16 regions of which 410 KiB of
//! 480 were read behind the first 32 KiB the chance is 16 x 410 / (16 x 480 + 4 x 512), 2/3: each miss in a new region reads all of it,
//! and the next 14 reads there are hits. Blocks at random all over a file leave regions of one read each: the chance is 0.
//!
//! Source: spatial memory streaming (Somogyi et al., ISCA 2006), which remembers what of a region was read after its first read; here
//! one figure for each file. Length and limits: chosen on the baseline of the evaluation.

use super::{Auto, Holding, distance, survival};
use crate::policy::{Answer, Ask, Why};
use crate::units::ByteRange;
use alloc::vec::Vec;

/// Bytes of a region.
const REGION: u64 = 512 << 10;
/// Regions of a file that are active.
const MAX_ACTIVE: usize = 64;
/// Regions that were not read at all, counted before any is over; and regions after which the sums are halved.
const PRIOR: u64 = 4;
const HALVED_AT: u64 = 128;
/// The least chance: with less, half of the bytes would be wasted.
const MIN_CHANCE: u64 = survival::ONE / 2;
/// A region of which less than this part is missing is not worth a request.
const MIN_MISSING: u64 = 4;

/// A region that is being read.
#[derive(Clone, Copy)]
struct Region {
    index: u64,
    /// Bytes of its first read, and of all.
    first: u64,
    read: u64,
    /// What was read ahead of it.
    holding: Holding,
    /// When it was last read.
    seen: u64,
}

/// Those of one file.
#[derive(Default)]
pub struct Regions {
    active: Vec<Region>,
    /// Of the regions that are over: bytes read behind the first read, and bytes behind it.
    read: u64,
    all: u64,
    clock: u64,
}

impl Regions {
    /// Bytes at `at` were demanded: its region if it is active.
    fn demanded(&mut self, at: u64, bytes: u64) -> Option<&mut Region> {
        let region = self
            .active
            .iter_mut()
            .find(|region| region.index == at / REGION)?;
        self.clock += 1;
        region.seen = self.clock;
        region.read = (region.read + bytes.min(REGION - at % REGION)).min(REGION);
        Some(region)
    }

    /// A read of `bytes` bytes that goes on with no stream; gives back the holding of the region that is over now. `room`: the
    /// size of the cache.
    fn begin(&mut self, at: u64, bytes: u64, room: u64) -> Option<Holding> {
        let first = bytes.min(REGION - at % REGION);
        if first > REGION / 2 || self.active.iter().any(|region| region.index == at / REGION) {
            return None;
        }
        let most = usize::try_from(room / REGION)
            .unwrap_or(MAX_ACTIVE)
            .clamp(1, MAX_ACTIVE);
        let oldest = (0..self.active.len()).min_by_key(|&at| self.active[at].seen);
        let over = oldest
            .filter(|_| self.active.len() >= most)
            .map(|at| self.active.swap_remove(at));
        if let Some(over) = over {
            (self.read, self.all) = (
                self.read + over.read - over.first,
                self.all + REGION - over.first,
            );
            if self.all >= HALVED_AT * REGION {
                (self.read, self.all) = (self.read / 2, self.all / 2);
            }
        }
        self.clock += 1;
        let index = at / REGION;
        self.active.push(Region {
            index,
            first,
            read: first,
            holding: Holding::default(),
            seen: self.clock,
        });
        over.map(|over| over.holding)
    }

    /// The chance that a byte of an active region is read, in 1/65536.
    fn chance(&self) -> u64 {
        survival::ONE * (self.read >> 9) / ((self.all + PRIOR * REGION) >> 9)
    }

    /// The holdings of all active regions: the file is closed.
    pub fn holdings(&self) -> impl Iterator<Item = Holding> + '_ {
        self.active.iter().map(|region| region.holding)
    }
}

impl Auto {
    /// Bytes of a region were demanded that were cached; true if they are of its readahead.
    pub(super) fn used_by_region(&mut self, file: u32, at: u64, bytes: u64) -> bool {
        let region = self
            .files
            .get_mut(&file)
            .and_then(|file| file.regions.demanded(at, bytes));
        let Some(region) = region.filter(|region| region.holding.held > 0) else {
            return false;
        };
        self.credit.read(&mut region.holding, bytes);
        true
    }

    /// Bytes that are neither here nor in flight were demanded.
    pub(super) fn missed_in_region(&mut self, file: u32, start: u64, end: u64) {
        if let Some(file) = self.files.get_mut(&file) {
            file.regions.demanded(start, end - start);
        }
    }

    /// A read that goes on with no stream: true if all of its region is read ahead.
    pub(super) fn read_region(
        &mut self,
        ask: &Ask<'_>,
        (start, end): (u64, u64),
        answer: &mut Answer,
    ) -> bool {
        let source = &ask.source;
        let Some(file) = self.files.get_mut(&ask.file.0) else {
            return false;
        };
        if ask.file_size <= REGION {
            return false;
        }
        if let Some(over) = file.regions.begin(start, end - start, source.room) {
            self.credit.change(over, Holding::default());
        }
        let (chance, product) = (file.regions.chance(), distance::product(source));
        // The latency of a source whose fetches arrive whole has some of the transfer in it.
        let least = if source.single_rate == 0 {
            REGION
        } else {
            REGION / 2
        };
        if chance < MIN_CHANCE || product < least || distance::known_rate(source) == 0 {
            return false;
        }
        let debt = self.credit.debt_of(product, source.room);
        let (allowed, wasted) = (
            self.credit.allowed(source, debt),
            self.credit.wasted(source),
        );
        if chance < survival::threshold(end - start, product, wasted, allowed) {
            return false;
        }
        let from = start / REGION * REGION;
        let to = (from + REGION).min(ask.file_size);
        let missing = ask
            .probe
            .missing(ByteRange::between(from, to))
            .saturating_sub(end - start);
        let bet = missing * (survival::ONE - chance) / survival::ONE;
        let is_little = MIN_MISSING * missing < REGION;
        if is_little
            || bet > self.credit.available(source, debt)
            || source.unread_bytes.min(self.credit.held()) + missing > source.room / 2
        {
            return false;
        }
        let Some(region) = file
            .regions
            .active
            .iter_mut()
            .find(|region| region.index == start / REGION)
        else {
            return false;
        };
        let had = region.holding;
        region.holding = Holding {
            held: had.held + missing,
            bet: had.bet + bet,
        };
        self.credit.change(had, region.holding);
        answer.max_fetch = REGION;
        answer.read(from, to - from, None);
        answer.why = Some(Why::Region);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the header.
    #[test]
    fn regions_that_are_read_whole_are_known_by_those_before() {
        let mut regions = Regions::default();
        let mut zone = |first: u64, reads: u64| {
            for at in first..first + 80 {
                _ = regions.begin(at * REGION, 32 << 10, 1 << 30);
                (0..reads)
                    .for_each(|n| _ = regions.demanded(at * REGION + n * (48 << 10), 41 << 10));
            }
            regions.chance()
        };
        assert_eq!(zone(0, 10) * 100 / survival::ONE, 67, "16 of 80 are over");
        assert!(zone(1000, 10) * 100 / survival::ONE > 80);
        _ = zone(2000, 0);
        assert!(
            zone(3000, 0) < MIN_CHANCE,
            "blocks at random: one read each"
        );
    }

    /// A long read says nothing of what is near it, and a small cache keeps few regions.
    #[test]
    fn limits() {
        let mut regions = Regions::default();
        _ = regions.begin(0, 400 << 10, 1 << 30);
        assert!(regions.active.is_empty());
        (0..100).for_each(|at| _ = regions.begin(at * REGION, 4096, 16 << 20));
        assert_eq!((regions.active.len(), regions.chance()), (32, 0));
        (0..100).for_each(|at| _ = regions.begin(at * REGION, 4096, 1 << 40));
        assert_eq!(regions.active.len(), MAX_ACTIVE);
    }
}
