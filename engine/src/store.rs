//! The store: the data of the cached pages. The store has one entry for each group of the state machine's page index, under the group's
//! slot number.
//!
//! The state machine, not the store, decides which pages are kept. The store does not read sources, and does not wait. The store uses
//! positions within a group, not file offsets. Leased bytes stay readable through their `Arc` after the page is dropped.
//!
//! ```text
//!   slot ──► segments, ordered, disjoint:  [at 0, 8 pages]──┐     [at 40, 24 pages]──┐
//!                                                           ▼                        ▼
//!                                            Chunk ████████            Chunk ████████████████
//!   drop pages 2..4:  [at 0, 2] and [at 4, 4], both into the same chunk; when less than half of a chunk's room
//!   is in use, its pages move to a smaller chunk, so that memory is at most twice that of the pages.
//!
//!   show ──► a copy of the segments in the table `Shown`, for readers without the lock; any change hides it first
//! ```

mod lease;
mod segments;
mod shown;

use crate::chunk::{Chunk, Pool};
use foreread_core::machine::SettledGroup;
use foreread_core::units::{FileId, GroupSlot};
pub use lease::Lease;
use segments::Segments;
pub use shown::{ShownGroups, SizedVersion};
use std::ops::Range;
use std::sync::Arc;

/// The segments of a group, and the file and group that they are published under.
#[derive(Debug, Default)]
struct Group {
    segments: Segments,
    shown_as: Option<(FileId, u64)>,
}

pub struct Store {
    page_shift: u32,
    groups: Vec<Group>,
    pool: Arc<Pool>,
    shown: Arc<ShownGroups>,
}

impl Store {
    /// Creates an empty store that takes buffers from `pool` and publishes groups in `shown`.
    pub fn new(pool: Arc<Pool>, shown: Arc<ShownGroups>) -> Store {
        Store {
            page_shift: pool.page_bytes().trailing_zeros(),
            groups: Vec::new(),
            pool,
            shown,
        }
    }

    /// Stores all pages of a filled chunk, the first of them at page `at` of the group. Earlier data of these pages is replaced.
    pub fn put(&mut self, slot: GroupSlot, at: usize, chunk: Arc<Chunk>) {
        let index = slot.0 as usize;
        if self.groups.len() <= index {
            self.groups.resize_with(index + 1, Group::default);
        }
        self.hide(slot);
        self.groups[index].segments.put(at, chunk, &self.pool);
    }

    /// Adds the bytes in the range `bytes` of a group to a lease. Returns false if one of these pages is not in the store.
    pub fn lease(&self, slot: GroupSlot, bytes: Range<usize>, lease: &mut Lease) -> bool {
        let Some(group) = self.groups.get(slot.0 as usize) else {
            return bytes.is_empty();
        };
        group.segments.lease(bytes, self.page_shift, lease)
    }

    /// Drops the pages whose bit in `mask` is set.
    pub fn drop_pages(&mut self, slot: GroupSlot, mask: u64) {
        self.hide(slot);
        if let Some(group) = self.groups.get_mut(slot.0 as usize) {
            group.segments.drop_pages(mask, &self.pool);
        }
    }

    /// Publishes a group, so that readers can read it without the driver's lock until one of its pages is stored or dropped.
    pub fn show(&mut self, settled: SettledGroup, known: SizedVersion) {
        let Some(group) = self.groups.get_mut(settled.slot.0 as usize) else {
            return;
        };
        group.shown_as = Some((settled.file, settled.number));
        self.shown.show(settled, known, group.segments.clone());
    }

    /// Withdraws all published groups, because a file has grown, and readers that are pinned to its old size must no longer find its
    /// groups.
    pub fn outdate(&self) {
        self.shown.outdate();
    }

    fn hide(&mut self, slot: GroupSlot) {
        if let Some(group) = self.groups.get_mut(slot.0 as usize)
            && let Some(shown_as) = group.shown_as.take()
        {
            self.shown.hide(shown_as, slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::segments::run_mask;
    use super::*;
    use foreread_core::units::PageSize;

    const PAGE: usize = 512;
    const SLOT: GroupSlot = GroupSlot(3);

    /// A chunk in which every page is filled with `tag` plus its number in the chunk.
    fn chunk(pool: &Arc<Pool>, pages: usize, tag: u8) -> Arc<Chunk> {
        let mut chunk = pool.take(pages);
        chunk
            .bytes_mut()
            .chunks_mut(PAGE)
            .zip(tag..)
            .for_each(|(page, tag)| page.fill(tag));
        Arc::new(chunk)
    }

    fn store(pool: &Arc<Pool>) -> Store {
        let page = PageSize::new(PAGE as u64).expect("a page");
        Store::new(Arc::clone(pool), Arc::new(ShownGroups::new(page, 0)))
    }

    fn page_of(store: &Store, page: usize) -> Option<u8> {
        let mut lease = Lease::default();
        store
            .lease(SLOT, page * PAGE..(page + 1) * PAGE, &mut lease)
            .then(|| {
                let mut bytes = [0; PAGE];
                assert_eq!(lease.copy_to(&mut bytes), PAGE);
                assert!(bytes.iter().all(|b| *b == bytes[0]));
                bytes[0]
            })
    }

    #[test]
    fn pages_are_found_at_their_position() {
        let pool = Pool::new(PAGE, 1, 0);
        let mut store = store(&pool);
        store.put(SLOT, 0, chunk(&pool, 8, 0));
        store.put(SLOT, 40, chunk(&pool, 24, 100));
        store.put(SLOT, 4, chunk(&pool, 2, 200));
        let want = |p| match p {
            4 | 5 => Some(200 + p as u8 - 4),
            0..8 => Some(p as u8),
            40..64 => Some(100 + p as u8 - 40),
            _ => None,
        };
        (0..64).for_each(|p| assert_eq!(page_of(&store, p), want(p), "page {p}"));
        let mut lease = Lease::default();
        assert!(store.lease(SLOT, 3 * PAGE + 7..7 * PAGE + 9, &mut lease));
        assert_eq!(lease.slices().count(), 3);
        let mut bytes = vec![0; 4 * PAGE + 2];
        assert_eq!(lease.copy_to(&mut bytes), bytes.len());
        assert_eq!((bytes[0], bytes[PAGE], bytes[4 * PAGE + 1]), (3, 200, 7));
        assert!(!store.lease(SLOT, 7 * PAGE..9 * PAGE, &mut Lease::default()));
        assert!(!store.lease(GroupSlot(9), 0..1, &mut Lease::default()));
    }

    #[test]
    fn memory_follows_the_pages_and_leases_outlive_them() {
        let pool = Pool::new(PAGE, 1, 0);
        let mut store = store(&pool);
        store.put(SLOT, 0, chunk(&pool, 64, 0));
        let mut lease = Lease::default();
        assert!(store.lease(SLOT, 0..64 * PAGE, &mut lease));
        let keep = 0b1001_0000_0110_u64;
        store.drop_pages(SLOT, !keep);
        for page in 0..64 {
            assert_eq!(
                page_of(&store, page),
                (keep >> page & 1 != 0).then_some(page as u8)
            );
        }
        assert_eq!(
            pool.meter().held_bytes(),
            (64 + 4) * PAGE as u64,
            "the leased chunk and the small one"
        );
        let mut bytes = vec![0; 64 * PAGE];
        assert_eq!(lease.copy_to(&mut bytes), bytes.len());
        assert!(
            bytes
                .chunks(PAGE)
                .enumerate()
                .all(|(i, c)| c[0] == i as u8 && c[PAGE - 1] == i as u8)
        );
        drop(lease);
        assert_eq!(pool.meter().held_bytes(), 4 * PAGE as u64);
        store.drop_pages(SLOT, u64::MAX);
        assert_eq!(pool.meter().held_bytes(), 0);
    }

    /// Random sequences of puts and drops are compared with a plain array. Memory is never more than twice that of the remaining
    /// pages.
    #[test]
    fn like_a_plain_array() {
        let pool = Pool::new(PAGE, 1, 0);
        let mut store = store(&pool);
        let mut plain = [None; 64];
        let mut seed = 1u64;
        for _ in 0..if cfg!(miri) { 100 } else { 20_000 } {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let (at, len) = ((seed >> 33) as usize % 64, (seed >> 40) as usize % 64 + 1);
            let end = (at + len).min(64);
            if seed >> 60 & 1 == 0 {
                let tag = (seed >> 50) as u8 / 2;
                store.put(SLOT, at, chunk(&pool, end - at, tag));
                (at..end).for_each(|p| plain[p] = Some(tag + (p - at) as u8));
            } else {
                store.drop_pages(SLOT, run_mask(at as u8, (end - at) as u8));
                plain[at..end].fill(None);
            }
            (0..64).for_each(|p| assert_eq!(page_of(&store, p), plain[p]));
            let alive = plain.iter().flatten().count() * PAGE;
            assert!(pool.meter().held_bytes() <= 2 * alive as u64);
        }
    }
}
