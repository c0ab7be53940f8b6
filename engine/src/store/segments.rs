//! The buffers of a group's pages.
//!
//! Segments are ordered by position and do not overlap. A drawing of the segments is in `store.rs`.
//!
//! Example: a chunk of 8 pages is stored at page 0, and pages 2 and 3 are dropped. Two segments remain, pages 0..2 and 4..8, both of
//! the same chunk.

use super::lease::{Lease, LeasedBytes};
use crate::chunk::{Chunk, Pool};
use std::ops::Range;
use std::sync::Arc;

/// Pages of a group that are contiguous in one chunk.
#[derive(Clone, Debug)]
struct Segment {
    chunk: Arc<Chunk>,
    /// Index of the first page in the group.
    at: u8,
    pages: u8,
    /// Index of the first page in the chunk.
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

#[derive(Clone, Debug, Default)]
pub struct Segments(Vec<Segment>);

impl Segments {
    /// Stores all pages of a filled chunk, the first of them at page `at`. Earlier data of these pages is replaced.
    pub fn put(&mut self, at: usize, chunk: Arc<Chunk>, pool: &Arc<Pool>) {
        let pages = chunk.pages().min(64usize.saturating_sub(at));
        if pages == 0 {
            return;
        }
        let new = Segment {
            chunk,
            at: at as u8,
            pages: pages as u8,
            from: 0,
        };
        self.drop_pages(new.mask(), pool);
        let place = self.0.partition_point(|s| s.at < new.at);
        self.0.insert(place, new);
    }

    /// Adds the bytes in the range `bytes` of the group to a lease. Returns false if one of these pages is not in the store.
    pub fn lease(&self, bytes: Range<usize>, page_shift: u32, lease: &mut Lease) -> bool {
        let mut at = bytes.start;
        let mut segments = {
            let page = at >> page_shift;
            self.0[self.0.partition_point(|s| s.end() <= page)..].iter()
        };
        while at < bytes.end {
            let Some(segment) = segments.next() else {
                return false;
            };
            let starts = usize::from(segment.at) << page_shift;
            if starts > at {
                return false;
            }
            let until = bytes.end.min(segment.end() << page_shift);
            let start = at - starts + (usize::from(segment.from) << page_shift);
            lease.push(LeasedBytes {
                chunk: Arc::clone(&segment.chunk),
                start: start as u32,
                len: (until - at) as u32,
            });
            at = until;
        }
        true
    }

    /// Drops the pages whose bit in `mask` is set.
    pub fn drop_pages(&mut self, mask: u64, pool: &Arc<Pool>) {
        if self.0.iter().all(|s| s.mask() & mask == 0) {
            return;
        }
        if self.0.iter().all(|s| s.mask() & !mask == 0) {
            // Keeps its capacity for the next group with this number.
            return self.0.clear();
        }
        let mut left = Vec::with_capacity(self.0.len() + 1);
        for segment in self.0.drain(..) {
            let shift = segment.from.wrapping_sub(segment.at);
            for (at, pages) in runs(segment.mask() & !mask) {
                let chunk = Arc::clone(&segment.chunk);
                left.push(Segment {
                    chunk,
                    at,
                    pages,
                    from: at.wrapping_add(shift),
                });
            }
        }
        self.0 = left;
        self.compact(pool);
    }

    /// Moves the remaining pages of every chunk of which less than half remains.
    fn compact(&mut self, pool: &Arc<Pool>) {
        let (group, page) = (&mut self.0, pool.page_bytes());
        for first in 0..group.len() {
            let chunk = Arc::clone(&group[first].chunk);
            let same = |s: &&mut Segment| Arc::ptr_eq(&s.chunk, &chunk);
            let alive: usize = group
                .iter_mut()
                .filter(same)
                .map(|s| usize::from(s.pages))
                .sum();
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

/// A mask in which `pages` bits (at least one) are set, the lowest of them bit `at`.
pub fn run_mask(at: u8, pages: u8) -> u64 {
    (u64::MAX >> (64 - u32::from(pages))) << at
}

/// The runs of set bits, as first bit and length.
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
