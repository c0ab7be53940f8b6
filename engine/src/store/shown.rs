//! Published groups of pages, which readers access without the driver's lock.
//!
//! The driver publishes a group when its pages are read again ([`foreread_core::machine::Machine::settled`]). The store withdraws the
//! publication before it changes the group in any way. So published data always equals the store's data, and a read that starts after a
//! change of a group does not find it published. This module does not decide what to publish, does not keep dropped data, and never makes a
//! reader wait for a copy.
//!
//! ```text
//!   file, group ──► cell (one of a few thousand) ──► { which group, its pages, version and size of the file, segments }
//!   reader: takes a lease of the bytes under the cell's lock, which is held for nanoseconds, and copies without it
//!   store:  put, drop_pages ──► hide
//!   driver: show ──► replaces the cell's content;  the file grew ──► everything is outdated
//! ```
//!
//! Example: 16 threads read pages that are all cached. The second read of a page publishes its group. A later read of the published group
//! takes one of many small locks instead of the driver's lock. Two threads contend only if they read the same group at the same moment.

use super::lease::Lease;
use super::segments::Segments;
use crate::sync::RwLock;
use foreread_core::machine::{GROUP_PAGES, SettledGroup, mask_of, one_group};
use foreread_core::units::{ByteRange, FileId, GroupSlot, PageSize};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

/// Pages of the cache per cell. That is two cells for a whole group, so that groups of several files seldom share a cell.
const PAGES_A_CELL: u64 = 32;
/// Minimum and maximum number of cells. A cell has 128 bytes: at most 8 MiB, for a cache of 8 GiB and more.
const CELLS: std::ops::RangeInclusive<u64> = 64..=1 << 16;

struct Group {
    settled: SettledGroup,
    /// The state of its file when the group was published.
    known: SizedVersion,
    /// The generation of the table when the group was published.
    generation: u64,
    segments: Segments,
}

/// Aligned so that nothing else shares its cache lines; two lines, because processors fetch lines in pairs.
#[repr(align(128))]
struct Cell(RwLock<Option<Group>>);

/// Published groups of pages, which readers access without the driver's lock.
pub struct ShownGroups {
    page: PageSize,
    /// The number of cells is a power of two.
    cells: Box<[Cell]>,
    /// Incremented by each event that outdates all published groups.
    generation: AtomicU64,
}

/// The version and the size of a file, as far as known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizedVersion {
    /// The size that the machine knows.
    pub size: u64,
    /// Incremented by each change; no other version of any file has this number.
    pub version: u64,
}

impl ShownGroups {
    /// Creates the table of published groups for a cache of this many pages.
    pub fn new(page: PageSize, capacity_pages: u64) -> ShownGroups {
        let cells = (capacity_pages / PAGES_A_CELL)
            .clamp(*CELLS.start(), *CELLS.end())
            .next_power_of_two();
        let cells = (0..cells).map(|_| Cell(RwLock::new(None))).collect();
        ShownGroups {
            page,
            cells,
            generation: AtomicU64::new(0),
        }
    }

    /// Neighbouring groups have neighbouring cells, so groups of one file do not share a cell unless the file is larger than the
    /// cache.
    fn cell(&self, file: FileId, number: u64) -> &Cell {
        // 2^64 divided by the golden ratio, so that files start far apart.
        let start = u64::from(file.0).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.cells[(start.wrapping_add(number) as usize) & (self.cells.len() - 1)]
    }

    /// Adds bytes of a published group to `lease`, if `allows` permits the reader to read this version and size of the file. Returns
    /// false if the read must go through the driver.
    #[inline]
    pub fn lease(
        &self,
        file: FileId,
        range: ByteRange,
        allows: impl Fn(SizedVersion) -> bool,
        lease: &mut Lease,
    ) -> bool {
        let pages = self.page.cover(range);
        let Some(number) = one_group(pages) else {
            return false;
        };
        let cell = self
            .cell(file, number)
            .0
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(group) = cell.as_ref() else {
            return false;
        };
        let wanted = mask_of(number, pages.first, pages.end);
        let is_it = group.settled.file == file
            && group.settled.number == number
            && wanted & !group.settled.pages == 0;
        let is_current = group.generation == self.generation.load(Ordering::Acquire);
        if !is_it || !is_current || range.end() > group.known.size || !allows(group.known) {
            return false;
        }
        let base = self.page.start_of(number * GROUP_PAGES);
        let bytes = (range.start() - base) as usize..(range.end() - base) as usize;
        group
            .segments
            .lease(bytes, self.page.bytes().trailing_zeros(), lease)
    }

    /// Publishes a group in place of the previous content of its cell.
    pub(super) fn show(&self, settled: SettledGroup, known: SizedVersion, segments: Segments) {
        let generation = self.generation.load(Ordering::Relaxed);
        self.set(settled.file, settled.number, |_| {
            Some(Group {
                settled,
                known,
                generation,
                segments,
            })
        });
    }

    /// Withdraws this group.
    pub(super) fn hide(&self, (file, number): (FileId, u64), slot: GroupSlot) {
        self.set(file, number, |shown| {
            shown.filter(|group| group.settled.slot != slot)
        });
    }

    fn set(&self, file: FileId, number: u64, change: impl FnOnce(Option<Group>) -> Option<Group>) {
        let mut cell = self
            .cell(file, number)
            .0
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let old = cell.take();
        *cell = change(old);
    }

    /// Withdraws all published groups, because the size of a file has changed.
    pub fn outdate(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }
}
