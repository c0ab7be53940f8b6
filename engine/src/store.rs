//! The bytes of the pages: one entry for each group of the machine's page index, under the group's own number.
//!
//! Never: decides what stays (the machine says so), reads a source, or waits. It knows places in a group, not
//! offsets in a file. Bytes that were leased stay readable through their `Arc` after the page is dropped.
//!
//! ```text
//!   slot ──► segments, ordered, disjoint:  [at 0, 8 pages]──┐     [at 40, 24 pages]──┐
//!                                                           ▼                        ▼
//!                                            Chunk ████████            Chunk ████████████████
//!   drop pages 2..4:  [at 0, 2] and [at 4, 4], both into the same chunk; when less than half of a chunk's room
//!   is alive, the living pages move to a smaller one, so that memory follows the number of pages (at most twice).
//! ```

use crate::chunk::{Chunk, Pool};
use foreread_core::units::GroupSlot;
use std::ops::Range;
use std::sync::Arc;

/// Pages of a group that lie in a row in one chunk.
#[derive(Debug)]
struct Segment {
    chunk: Arc<Chunk>,
    /// First page, counted in the group.
    at: u8,
    /// How many.
    pages: u8,
    /// First page, counted in the chunk.
    from: u8,
}

impl Segment {
    fn end(&self) -> usize {
        usize::from(self.at) + usize::from(self.pages)
    }

    fn mask(&self) -> u64 {
        run_mask(self.at, self.pages)
    }
}

/// The bits of `pages` (at least one) pages from `at`.
fn run_mask(at: u8, pages: u8) -> u64 {
    (u64::MAX >> (64 - u32::from(pages))) << at
}

/// See the head of this file.
#[derive(Debug)]
pub struct Store {
    page_shift: u32,
    groups: Vec<Vec<Segment>>,
    pool: Arc<Pool>,
}

impl Store {
    /// An empty store whose buffers come from `pool`.
    #[must_use]
    pub fn new(pool: Arc<Pool>) -> Store {
        Store { page_shift: pool.page_bytes().trailing_zeros(), groups: Vec::new(), pool }
    }

    /// Puts in all pages of a filled chunk, the first of them at page `at` of the group. What was there is gone.
    pub fn put(&mut self, slot: GroupSlot, at: usize, chunk: Arc<Chunk>) {
        let pages = chunk.pages().min(64usize.saturating_sub(at));
        if pages == 0 {
            return;
        }
        let index = slot.0 as usize;
        if self.groups.len() <= index {
            self.groups.resize_with(index + 1, Vec::new);
        }
        let new = Segment { chunk, at: at as u8, pages: pages as u8, from: 0 };
        self.drop_pages(slot, new.mask());
        let group = &mut self.groups[index];
        let place = group.partition_point(|s| s.at < new.at);
        group.insert(place, new);
    }

    /// Adds the bytes at `bytes` of the group to a lease. False when a page of them is not here.
    pub fn lease(&self, slot: GroupSlot, bytes: Range<usize>, lease: &mut Lease) -> bool {
        let Some(group) = self.groups.get(slot.0 as usize) else { return bytes.is_empty() };
        let mut at = bytes.start;
        let mut segments = {
            let page = at >> self.page_shift;
            group[group.partition_point(|s| s.end() <= page)..].iter()
        };
        while at < bytes.end {
            let Some(segment) = segments.next() else { return false };
            let starts = usize::from(segment.at) << self.page_shift;
            if starts > at {
                return false;
            }
            let until = bytes.end.min(segment.end() << self.page_shift);
            let start = at - starts + (usize::from(segment.from) << self.page_shift);
            lease.push(Piece { chunk: Arc::clone(&segment.chunk), start: start as u32, len: (until - at) as u32 });
            at = until;
        }
        true
    }

    /// Forgets the pages whose bit is set.
    pub fn drop_pages(&mut self, slot: GroupSlot, mask: u64) {
        let Some(group) = self.groups.get_mut(slot.0 as usize) else { return };
        if group.iter().all(|s| s.mask() & mask == 0) {
            return;
        }
        if group.iter().all(|s| s.mask() & !mask == 0) {
            // Keeps its capacity for the next group of this number.
            return group.clear();
        }
        let mut left = Vec::with_capacity(group.len() + 1);
        for segment in group.drain(..) {
            let shift = segment.from.wrapping_sub(segment.at);
            for (at, pages) in runs(segment.mask() & !mask) {
                let chunk = Arc::clone(&segment.chunk);
                left.push(Segment { chunk, at, pages, from: at.wrapping_add(shift) });
            }
        }
        *group = left;
        Store::compact(group, &self.pool);
    }

    /// Moves the living pages of every chunk of which less than half is alive.
    fn compact(group: &mut [Segment], pool: &Arc<Pool>) {
        let page = pool.page_bytes();
        for first in 0..group.len() {
            let chunk = Arc::clone(&group[first].chunk);
            let same = |s: &&mut Segment| Arc::ptr_eq(&s.chunk, &chunk);
            let alive: usize = group.iter_mut().filter(same).map(|s| usize::from(s.pages)).sum();
            if alive * 2 >= chunk.room_pages() {
                continue;
            }
            let mut smaller = pool.take(alive);
            let mut to = 0;
            let mut places = [0u8; 64];
            for segment in group.iter_mut().filter(same) {
                let (from, pages) = (usize::from(segment.from), usize::from(segment.pages));
                let bytes = &chunk.bytes()[from * page..(from + pages) * page];
                smaller.bytes_mut()[to * page..(to + pages) * page].copy_from_slice(bytes);
                places[usize::from(segment.at)] = to as u8;
                to += pages;
            }
            let smaller = Arc::new(smaller);
            for segment in group.iter_mut().filter(same) {
                segment.from = places[usize::from(segment.at)];
                segment.chunk = Arc::clone(&smaller);
            }
        }
    }
}

/// The runs of set bits: first and length.
fn runs(mut mask: u64) -> impl Iterator<Item = (u8, u8)> {
    std::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let at = mask.trailing_zeros() as u8;
        let pages = (mask >> at).trailing_ones() as u8;
        mask &= !run_mask(at, pages);
        Some((at, pages))
    })
}

/// Bytes in a row in one chunk, kept alive.
#[derive(Debug)]
struct Piece {
    chunk: Arc<Chunk>,
    start: u32,
    len: u32,
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        &self.chunk.bytes()[self.start as usize..self.start as usize + self.len as usize]
    }
}

/// Bytes of the store that stay readable. The usual case, one piece, allocates nothing.
#[derive(Debug, Default)]
pub struct Lease {
    first: Option<Piece>,
    rest: Vec<Piece>,
}

impl Lease {
    fn push(&mut self, piece: Piece) {
        match self.first {
            None => self.first = Some(piece),
            Some(_) => self.rest.push(piece),
        }
    }

    /// The bytes, in order.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.first.iter().chain(&self.rest).map(Piece::bytes)
    }

    /// Copies all into the front of `to`, as far as there is room. Returns how many bytes that was.
    pub fn copy_to(&self, to: &mut [u8]) -> usize {
        let mut done = 0;
        for bytes in self.slices() {
            let len = bytes.len().min(to.len() - done);
            to[done..done + len].copy_from_slice(&bytes[..len]);
            done += len;
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 512;
    const SLOT: GroupSlot = GroupSlot(3);

    /// A chunk whose every page is filled with `tag` + its number in the chunk.
    fn chunk(pool: &Arc<Pool>, pages: usize, tag: u8) -> Arc<Chunk> {
        let mut chunk = pool.take(pages);
        chunk.bytes_mut().chunks_mut(PAGE).zip(tag..).for_each(|(page, tag)| page.fill(tag));
        Arc::new(chunk)
    }

    fn page_of(store: &Store, page: usize) -> Option<u8> {
        let mut lease = Lease::default();
        store.lease(SLOT, page * PAGE..(page + 1) * PAGE, &mut lease).then(|| {
            let mut bytes = [0; PAGE];
            assert_eq!(lease.copy_to(&mut bytes), PAGE);
            assert!(bytes.iter().all(|b| *b == bytes[0]));
            bytes[0]
        })
    }

    #[test]
    fn pages_are_found_where_they_were_put() {
        let pool = Pool::new(PAGE, 1, 0);
        let mut store = Store::new(Arc::clone(&pool));
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
        let mut store = Store::new(Arc::clone(&pool));
        store.put(SLOT, 0, chunk(&pool, 64, 0));
        let mut lease = Lease::default();
        assert!(store.lease(SLOT, 0..64 * PAGE, &mut lease));
        let keep = 0b1001_0000_0110_u64;
        store.drop_pages(SLOT, !keep);
        for page in 0..64 {
            assert_eq!(page_of(&store, page), (keep >> page & 1 != 0).then_some(page as u8));
        }
        assert_eq!(pool.meter().held_bytes(), (64 + 4) * PAGE as u64, "the leased chunk and the small one");
        let mut bytes = vec![0; 64 * PAGE];
        assert_eq!(lease.copy_to(&mut bytes), bytes.len());
        assert!(bytes.chunks(PAGE).enumerate().all(|(i, c)| c[0] == i as u8 && c[PAGE - 1] == i as u8));
        drop(lease);
        assert_eq!(pool.meter().held_bytes(), 4 * PAGE as u64);
        store.drop_pages(SLOT, u64::MAX);
        assert_eq!(pool.meter().held_bytes(), 0);
    }

    /// Any order of puts and drops against a plain array; memory is never more than twice the living pages.
    #[test]
    fn like_a_plain_array() {
        let pool = Pool::new(PAGE, 1, 0);
        let mut store = Store::new(Arc::clone(&pool));
        let mut plain = [None; 64];
        let mut seed = 1u64;
        for _ in 0..if cfg!(miri) { 100 } else { 20_000 } {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
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
