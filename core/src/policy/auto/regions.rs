//! Reads ahead before and after the first read in a part of a file, such as the rest of a small file or of a mapped library.
//!
//! A file is divided into regions of 1 MiB. The first read in a region, unless it continues a stream, makes the region *active*. From then
//! on, one bit for each page of 4 KiB records what is read. The block of the first read is one half of a block twice as long, and so on up
//! to the whole region (`blocks.rs`).
//!
//! ```text
//!   active, at most 64 or as many as fit into the cache     [######..##]  [#.........]  [####......]
//!   over: the one whose last read is oldest               ──► counted for files of its kind (`blocks.rs`)
//! ```
//! If a read misses, the policy reads the block of that read. The policy goes from short to long blocks, and adds each adjacent half that
//! is likely enough to be read. The chance must be at least 9/20 (on a disk, 1/4). If the file has earned less than 16 KiB (its floor, see
//! `credit.rs`), the chance must also be at least what `survival.rs` computes from the measured costs of a wait and of a byte. The bytes
//! that are expected to be wasted use up credit (`credit.rs`). There are ten kinds of files: files that are read by calls and files that
//! are mapped, each in five size classes. A file of at most 16 MiB is treated as mapped if a read is shorter than a page, because the
//! loader of a library reads its header before it maps the file.
//!
//! A mark is placed in the middle of the pages that are read ahead. If nearly all of a range of 256 KiB or more, from the first read up to
//! a mark or a miss, was read, these reads become a sequential stream of that length. So do three reads of a file that is not mapped if
//! they go forward and leave out at most half of the pages. Fetching the pages left out must not take longer than the saved waits.
//!
//! Example: a library of 2 MiB is mapped, and the first fault is on page 5. The prior chances that the pages after page 5 are read are 80
//! to 85 % in the first 64 KiB, then 58 % in 64 KiB, 50 % in 128 KiB and 46 % in 256 KiB. For the pages before page 5, the prior chances
//! are 50, 45 and 30 %. The policy reads pages 4 to 128. Another example: a booting virtual machine reads 90 % of each zone of 8 MiB in no
//! particular order. After some regions, each miss makes the policy read its whole region. If a program reads random blocks of a large
//! file, each region has only one read, so the chances are close to 0 and nothing is read ahead.
//!
//! Source: spatial memory streaming (Somogyi et al., ISCA 2006), which remembers which parts of a region were read after its first read.
//! The prior chances are means over 154 recordings, the development half of the recorded programs; the other constants of this file were
//! chosen by measuring on the same half.

use super::{
    Auto, Birth, Readers, RunKind,
    blocks::{Kind, PAGE, Purse, REGION, Region, Sum, Sums, around},
    credit::FileWaste,
    distance, survival,
};
use crate::policy::{Answer, Ask, SourceView, Why};
use crate::units::{ByteRange, mul_div};
use alloc::vec::Vec;

/// Up to this number of streams, a source is not busy with many readers.
const FEW: u64 = 4;
/// The largest number of active regions of a file.
const MAX_ACTIVE: usize = 64;
/// An active region counts once this number of others have begun after it: most reads of a younger region are still to come.
const YOUNG: u64 = 8;
/// After this number of pages in a row, a reader in a region counts as sequential.
const MIN_RUN: u64 = 64;
/// Readahead is not worth a request if it is shorter than the read divided by this.
const MIN_MISSING: u64 = 4;

/// The least chance at which a half is read: below it, more bytes would be wasted than any price of a wait justifies. With 1/2, programs
/// take 1.06 of the time and read 0.95 of the bytes; with 2/5, 0.92 and 1.07. A chance that falls with each miss in a mapped file, and
/// reading the rest of a region once half of it is cached, cost more bytes for the same time.
const MIN_CHANCE: u64 = survival::ONE * 9 / 20;
/// The least chance for a source that one fetch at a time keeps busy, if it can transfer a region within this many waits: there a byte
/// costs only time. With 1/8 the gain is the same, with 1/3 three quarters of it. The rate is taken to be at least that of a disk, since
/// short reads show a lower one.
const MIN_CHANCE_DISK: u64 = survival::ONE / 4;
const WAITS: u64 = 4;
const DISK_RATE: u64 = 100_000_000;
/// Bytes that may be read near the reads of a file before any of them was used: the kernel's default window. For a mapped file, of which
/// programs read more, what one round trip transfers if that is more.
const MIN_TRIAL: u64 = 128 << 10;
/// A floor that is shorter is not worth a request, and leaves the price as it is.
const MIN_FILE_FLOOR: u64 = 16 << 10;
/// In a file of up to this size, a read shorter than a page is taken for a read of its header.
const HEAD_SIZE: u64 = 16 << 20;

/// The least chance at which a half is read; `product` is rate x latency in bytes.
fn least_chance(product: u64, source: &SourceView) -> u64 {
    if source.single_rate > 0 {
        return MIN_CHANCE;
    }
    let waits = of_disk(product, source).saturating_mul(WAITS);
    (survival::ONE * REGION / REGION.saturating_add(waits)).clamp(MIN_CHANCE_DISK, MIN_CHANCE)
}

/// Bytes of one round trip, with at least a disk's rate if one fetch at a time keeps the source busy.
fn of_disk(product: u64, source: &SourceView) -> u64 {
    if source.single_rate == 0 {
        product.max(mul_div(DISK_RATE, source.latency_ns, 1_000_000_000))
    } else {
        product
    }
}

/// The regions of one file: which pages were read in each part of 1 MiB.
#[derive(Default)]
pub struct Regions {
    active: Vec<Region>,
    kind: Kind,
    /// What was read in the regions that are over.
    sums: Sums,
    begun: u64,
    clock: u64,
    /// Bytes that were read ahead near reads, and how many of them were used.
    planned: u64,
    used: u64,
    /// Bytes of reads that missed.
    missed: u64,
}

impl Regions {
    /// Records that bytes at `at` were demanded. Returns their region if it is active.
    fn demanded(&mut self, at: u64, bytes: u64) -> Option<&mut Region> {
        let region = self
            .active
            .iter_mut()
            .find(|region| region.index == at / REGION)?;
        self.clock += 1;
        region.seen = self.clock;
        region.touch(at, bytes);
        Some(region)
    }

    /// Makes the region of a read of `bytes` bytes active. Returns the region that is over because of that. `room` is the size of the
    /// cache.
    fn begin(&mut self, (at, bytes): (u64, u64), file_size: u64, room: u64) -> Option<Region> {
        let index = at / REGION;
        if 2 * bytes > REGION || self.active.iter().any(|region| region.index == index) {
            return None;
        }
        let most = usize::try_from(room / REGION)
            .unwrap_or(MAX_ACTIVE)
            .clamp(1, MAX_ACTIVE);
        let oldest = (0..self.active.len()).min_by_key(|&at| self.active[at].seen);
        let over = oldest
            .filter(|_| self.active.len() >= most)
            .map(|at| self.active.swap_remove(at));
        self.clock += 1;
        self.begun += 1;
        if let Some(over) = &over {
            self.sums.add(over);
        }
        let mut region = Region::new(at, bytes, file_size, self.begun);
        region.seen = self.clock;
        self.active.push(region);
        over
    }

    /// What was read of these halves of the file's regions, except the youngest.
    fn shown(&self, level: usize, is_after: bool) -> Sum {
        let mut sum = self.sums.of(level, is_after);
        let old = |region: &&Region| region.begun + YOUNG <= self.begun;
        for region in self.active.iter().filter(old) {
            if let Some(half) = region.half(level).filter(|half| half.is_after == is_after) {
                sum.add(region, &half);
            }
        }
        sum
    }

    /// Returns the region that ends at or contains `at` if a run goes on there: nearly everything from its first read up to `at` was read,
    /// and is long enough; or reads have gone forward and left out few bytes, on average at most `gap` each, and nothing after `end` was
    /// read.
    fn run_before(&mut self, (at, end): (u64, u64), gap: u64) -> Option<&mut Region> {
        let before = at.checked_sub(1)?;
        let base = before / REGION * REGION;
        let upto = (before % REGION).div_ceil(PAGE);
        let beyond = (end - base).div_ceil(PAGE);
        let gap = if self.kind.is_mapped { 0 } else { gap };
        let mut active = self.active.iter_mut();
        let region = active.find(|region| region.index == before / REGION)?;
        let len = upto.saturating_sub(region.first.start);
        let read = region.count(&(region.first.start..upto));
        let is_run = len >= MIN_RUN && 8 * read >= 7 * len;
        (is_run || region.goes_forward((len, read), beyond, gap)).then_some(region)
    }

    /// Bytes that may be read near the next read: a first trial, plus twice the bytes that were used, less those that were not.
    fn trial(&self, source: &SourceView) -> u64 {
        let product = if self.kind.is_mapped {
            distance::product(source)
        } else {
            0
        };
        let lost = self.planned.saturating_sub(self.used);
        (product.max(MIN_TRIAL) + 2 * self.used).saturating_sub(lost)
    }

    /// Removes all active regions, because the file is closed.
    fn take(&mut self) -> Vec<Region> {
        core::mem::take(&mut self.active)
    }
}

impl Auto {
    /// Records that cached bytes of a file were demanded. Returns whether they are readahead of a region.
    pub(super) fn used_by_region(&mut self, file: u32, at: u64, bytes: u64) -> bool {
        let region = self
            .files
            .get_mut(&file)
            .and_then(|file| file.regions.demanded(at, bytes));
        let Some(region) = region.filter(|region| region.held > 0) else {
            return false;
        };
        self.credit.read(&mut region.held, bytes);
        if let Some(file) = self.files.get_mut(&file) {
            file.regions.used += bytes;
        }
        true
    }

    /// Records that bytes which are neither cached nor in flight were demanded.
    pub(super) fn missed_in_region(&mut self, file: u32, start: u64, end: u64) {
        if let Some(file) = self.files.get_mut(&file) {
            file.regions.missed += end - start;
            file.regions.demanded(start, end - start);
        }
    }

    /// Ends the regions of a file that is closed.
    pub(super) fn regions_end(&mut self, mut regions: Regions) {
        for region in regions.take() {
            self.kinds.of(regions.kind).add(&region);
            self.credit.change(region.held, 0);
        }
    }

    /// Makes the reader of a region a stream if nearly everything up to `start` was read. Returns whether it did.
    pub(super) fn run_from_region(
        &mut self,
        ask: &Ask<'_>,
        (start, end): (u64, u64),
        answer: &mut Answer,
    ) -> bool {
        let gap = of_disk(distance::shown(&ask.source), &ask.source);
        let Some(region) = self.file(ask).regions.run_before((start, end), gap) else {
            return false;
        };
        let held = core::mem::take(&mut region.held);
        let first = region.index * REGION + region.first.start * PAGE;
        let ahead = (region.to, held);
        let class = if first == 0 {
            RunKind::Start
        } else {
            RunKind::Elsewhere
        };
        self.begin(ask, Birth::run(class, end, end - first), ahead, answer);
        true
    }

    /// The limits for readahead near a read of `len` bytes.
    fn purse(&mut self, len: u64, own: &FileWaste, source: &SourceView) -> Purse {
        let price = self.credit.price(source);
        let held = source.unread_bytes.min(self.credit.held());
        let floor = self.credit.floor_of_file(own, source);
        // The price that other files have raised does not apply to what this file has earned.
        let priced = if floor < MIN_FILE_FLOOR {
            price.threshold(len)
        } else {
            0
        };
        let room = (source.room / 2).saturating_sub(held);
        Purse {
            least: priced.max(least_chance(price.product, source)),
            free: price.free.max(floor),
            room: room.min(price.left.max(floor)),
        }
    }

    /// Handles a read that continues no stream. Returns whether bytes near it are read ahead.
    pub(super) fn read_region(
        &mut self,
        ask: &Ask<'_>,
        (start, end): (u64, u64),
        is_mapped: bool,
        answer: &mut Answer,
    ) -> bool {
        let source = &ask.source;
        // With many readers, streams share the room by `distance.rs`, and a region for each would fill it. With a single slot, few readers
        // already use all slots.
        let is_crowd = |active: Readers| active.link > FEW && active.are_many(source);
        if !is_mapped && is_crowd(self.active()) {
            return false;
        }
        let file = self.file(ask);
        if !is_mapped && file.candidates.has(start) {
            return false;
        }
        let regions = &mut file.regions;
        regions.kind = Kind::of(
            is_mapped
                || regions.kind.is_mapped
                || ask.request.len() < PAGE && ask.file_size <= HEAD_SIZE,
            ask.file_size,
        );
        let kind = regions.kind;
        if let Some(over) = regions.begin((start, end - start), ask.file_size, source.room) {
            self.kinds.of(kind).add(&over);
            self.credit.change(over.held, 0);
        }
        if self.run_from_region(ask, (start, end), answer) {
            return true;
        }
        let base = start / REGION * REGION;
        let len = REGION.min(ask.file_size - base).div_ceil(PAGE);
        let pages = (start - base) / PAGE..(end - base).div_ceil(PAGE).min(len);
        let own = &self.file(ask).regions;
        let waste = FileWaste {
            is_mapped: kind.is_mapped,
            demanded: own.missed + own.used,
            lost: own.planned.saturating_sub(own.used),
        };
        let trial = own.trial(source);
        let mut purse = self.purse(end - start, &waste, source);
        // A program that starts at the beginning of a file usually reads all of it.
        if start > 0 {
            purse.room = purse.room.min(trial);
        }
        let own = self.files.get(&ask.file.0).map(|file| &file.regions);
        let block = around(pages, len, &purse, |level, is_after| {
            let shown = own.map_or(Sum::default(), |own| own.shown(level, is_after));
            self.kinds.chance(kind, shown, level, is_after)
        });
        let (from, to) = (
            base + block.start * PAGE,
            (base + block.end * PAGE).min(ask.file_size),
        );
        let missing = ask
            .probe
            .missing(ByteRange::between(from, to))
            .saturating_sub(end - start);
        if MIN_MISSING * missing < end - start {
            return false;
        }
        let own = &mut self.file(ask).regions;
        let mut active = own.active.iter_mut();
        let Some(region) = active.find(|region| region.index == start / REGION) else {
            return false;
        };
        region.held += missing;
        region.to = to;
        own.planned += missing;
        self.credit.change(0, missing);
        answer.max_fetch = REGION;
        // When half of the bytes after the read have been read, it may be the start of a run.
        let mark = (to > end + MIN_RUN * PAGE).then(|| end + (to - end) / 2 / PAGE * PAGE);
        answer.read(from, to - from, mark);
        answer.why = Some(Why::Region);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const SIZE: u64 = 1 << 30;

    fn chance(regions: &Regions, level: usize, is_after: bool) -> u64 {
        regions.shown(level, is_after).chance(0, 2) * 100 / survival::ONE
    }

    /// Regions that are read whole raise the chance for the next ones; regions with one read each lower it to nothing.
    #[test]
    fn regions_that_are_read_whole_are_known_by_those_before() {
        let mut regions = Regions::default();
        let mut zone = |first: u64, reads: u64| {
            for at in first..first + 80 {
                _ = regions.begin((at * REGION, 32 << 10), SIZE, SIZE);
                (0..reads)
                    .for_each(|n| _ = regions.demanded(at * REGION + n * (64 << 10), 64 << 10));
            }
            (chance(&regions, 3, true), chance(&regions, 7, true))
        };
        let (near, far) = zone(0, 16);
        assert!(near > 95 && far > 95, "{near} {far}");
        let (near, far) = zone(100, 8);
        assert!(
            near > 95 && far < 60,
            "the first half of each: {near} {far}"
        );
        for zone_of in 2..5 {
            _ = zone(100 * zone_of, 0);
        }
        let (near, far) = zone(600, 0);
        assert!(near < 45 && far < 20, "blocks at random: {near} {far}");
    }

    /// The bytes read up to an offset are a run if they are long and have no holes.
    #[test]
    fn a_region_read_in_order_is_a_run() {
        let mut regions = Regions::default();
        _ = regions.begin((MIB, 4096), SIZE, SIZE);
        let is_run = |regions: &mut Regions, at| regions.run_before((at, at + 4096), 0).is_some();
        assert!(!is_run(&mut regions, MIB + 4096), "short");
        _ = regions.demanded(MIB + 4096, 508 << 10);
        assert!(is_run(&mut regions, MIB + (512 << 10)));
        assert!(!is_run(&mut regions, 2 * MIB), "half of it was read");
    }

    /// A disk with 10 ms latency reads as much in four waits as four regions are long; NBD or RBD at 0.7 ms and 62 MB/s does not. On other
    /// sources, bytes cost more than time.
    #[test]
    fn bytes_of_a_disk_are_cheap() {
        let disk = |latency_ns, single_rate| SourceView {
            latency_ns,
            single_rate,
            ..SourceView::default()
        };
        assert_eq!(least_chance(4 << 10, &disk(10_000_000, 0)), MIN_CHANCE_DISK);
        assert_eq!(least_chance(43_000, &disk(690_000, 0)), MIN_CHANCE);
        assert_eq!(least_chance(1 << 20, &disk(10_000_000, 1)), MIN_CHANCE);
    }

    /// A long read starts no region, and with a small cache few regions are active.
    #[test]
    fn limits() {
        let mut regions = Regions::default();
        _ = regions.begin((0, 800 << 10), SIZE, SIZE);
        assert!(regions.active.is_empty());
        (0..100).for_each(|at| _ = regions.begin((at * REGION, 4096), SIZE, 16 << 20));
        assert_eq!(regions.active.len(), 16);
        (0..100).for_each(|at| _ = regions.begin((at * REGION, 4096), SIZE, 1 << 40));
        assert_eq!(regions.active.len(), MAX_ACTIVE);
    }
}
