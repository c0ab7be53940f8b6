//! Buffers: aligned memory for up to one group of pages, shared by readers and reused.
//!
//! A buffer into which a device writes directly must have the alignment that the device requires. To align a buffer without `unsafe`, the
//! pool allocates a little more than needed, and the buffer starts at the first aligned byte. The rest of the allocation is never
//! touched. A reused buffer contains old bytes until it is filled; only bytes that have been written into it since then are returned.
//! This module does not inspect the bytes, does not grow a buffer, and zeroes its memory at most once.
//!
//! ```text
//!   take ──► Chunk (one owner, writable) ──Arc::new──► shared, read only ──last Arc dropped──► spare list
//!     ▲                                                                                          │ bounded,
//!     └──────────────────────────────────────────────────────────────────────────────────────────┘ by size
//! ```

mod mapped;
mod prefault;

use crate::arena::{GROUP_BYTES, PAGE_BYTES, SlabPiece};
use crate::sync::lock;
use mapped::MappedBuffer;
use prefault::BufferPrefaulter;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Buffers of at least this size start at a memory page, so that a transfer has fewer segments.
const WHOLE_PAGES_FROM: usize = 64 << 10;
/// Pages in a group, and so the maximum for a buffer.
const MAX_PAGES: usize = 64;
/// A buffer of at least this many pages gets memory for a whole group if a slab provides it: a buffer of, for example, 56 pages from
/// the allocator is zeroed and faulted in each time. Its memory is less than twice its pages.
const WHOLE_GROUP_FROM: usize = MAX_PAGES / 2 + 1;

/// Counts the bytes of a pool's buffers that are in use, and of those kept for reuse. The counts can be read even after the pool is
/// dropped.
#[derive(Debug, Default)]
pub struct MemoryMeter {
    held: AtomicU64,
    spare: AtomicU64,
}

impl MemoryMeter {
    /// Bytes in buffers that are in use by the store, a fetch or a lease.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Bytes in buffers kept for reuse.
    #[must_use]
    pub fn spare_bytes(&self) -> u64 {
        self.spare.load(Ordering::Relaxed)
    }
}

/// Allocates buffers, and keeps released buffers for reuse.
#[derive(Debug)]
pub struct Pool {
    page_bytes: usize,
    /// The strictest alignment of any source so far; a power of two.
    align: AtomicUsize,
    most_spare: u64,
    /// Spare buffers, indexed by number of pages minus one.
    spare: Mutex<Vec<Vec<Memory>>>,
    meter: Arc<MemoryMeter>,
    /// The maximum number of bytes held at one time.
    most_held: AtomicU64,
    prefaulter: BufferPrefaulter,
}

#[derive(Debug)]
enum Memory {
    /// An allocation, and the offset of its aligned part.
    Heap { bytes: Box<[u8]>, from: usize },
    /// A piece of a slab.
    Piece(SlabPiece),
    /// A separate mapping, which is unmapped when it is dropped.
    Mapped(MappedBuffer),
}

impl Memory {
    fn of(len: usize, align: usize) -> Memory {
        if let Some(piece) = SlabPiece::take(len) {
            return Memory::Piece(piece);
        }
        if let Some(mapped) = MappedBuffer::take(len) {
            return Memory::Mapped(mapped);
        }
        let bytes = vec![0u8; len + align - 1].into_boxed_slice();
        let from = (bytes.as_ptr() as usize).wrapping_neg() % align;
        Memory::Heap { bytes, from }
    }

    /// The memory from its first aligned byte on.
    fn bytes(&self) -> &[u8] {
        match self {
            Memory::Heap { bytes, from } => &bytes[*from..],
            Memory::Piece(piece) => piece.bytes(),
            Memory::Mapped(mapped) => &mapped.0,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Memory::Heap { bytes, from } => &mut bytes[*from..],
            Memory::Piece(piece) => piece.bytes_mut(),
            Memory::Mapped(mapped) => &mut mapped.0,
        }
    }
}

impl Pool {
    /// Creates a pool for pages of `page_bytes` that keeps at most `most_spare` bytes for reuse.
    pub fn new(page_bytes: usize, align: usize, most_spare: u64) -> Arc<Pool> {
        let align = AtomicUsize::new(align.clamp(1, PAGE_BYTES).next_power_of_two());
        let spare = Mutex::new((0..MAX_PAGES).map(|_| Vec::new()).collect());
        Arc::new(Pool {
            page_bytes,
            align,
            most_spare,
            spare,
            meter: Arc::default(),
            most_held: AtomicU64::new(0),
            prefaulter: BufferPrefaulter::default(),
        })
    }

    /// Aligns all new buffers also to `align` bytes. Buffers that were allocated before this call are not reused.
    pub fn align_to(&self, align: usize) {
        let align = align.clamp(1, PAGE_BYTES).next_power_of_two();
        if self.align.fetch_max(align, Ordering::Relaxed) < align {
            let old: Vec<Vec<Memory>> =
                self.lists(|lists| lists.iter_mut().map(std::mem::take).collect());
            let bytes =
                |(i, list): (usize, &Vec<Memory>)| (list.len() * (i + 1) * self.page_bytes) as u64;
            let gone = old.iter().enumerate().map(bytes).sum();
            self.meter.spare.fetch_sub(gone, Ordering::Relaxed);
        }
    }

    fn fits(&self, memory: &Memory) -> bool {
        let begins = memory.bytes().as_ptr() as usize;
        begins.is_multiple_of(self.align.load(Ordering::Relaxed))
    }

    /// The counters of this pool's memory.
    pub fn meter(&self) -> &Arc<MemoryMeter> {
        &self.meter
    }

    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// The number of pages that a buffer of `pages` pages has memory for.
    fn room(&self, pages: usize) -> usize {
        let whole = pages >= WHOLE_GROUP_FROM && self.page_bytes * MAX_PAGES == GROUP_BYTES;
        if whole { MAX_PAGES } else { pages }
    }

    /// Takes a buffer for 1 to 64 pages, with unspecified content.
    pub fn take(self: &Arc<Pool>, pages: usize) -> Chunk {
        let used = pages.clamp(1, MAX_PAGES);
        let pages = self.room(used);
        let len = pages * self.page_bytes;
        let (found, left) = self.lists(|lists| (lists[pages - 1].pop(), lists[pages - 1].len()));
        if found.is_some() {
            self.meter.spare.fetch_sub(len as u64, Ordering::Relaxed);
        }
        let held = self.meter.held.fetch_add(len as u64, Ordering::Relaxed) + len as u64;
        if self.grows(held) && left < prefault::ready(len) / 2 {
            self.prefaulter.ring(self, pages, found.is_none());
        }
        let memory = found.unwrap_or_else(|| self.allocate(len));
        let used = used * self.page_bytes;
        Chunk {
            memory: Some(memory),
            len: used as u32,
            room: len as u32,
            pool: Arc::clone(self),
        }
    }

    /// Whether `held` exceeds the maximum held so far, or the maximum since memory was last returned to the system. If it does not,
    /// buffers come back as fast as others are taken, and buffers made ready would displace spare ones: half of the mappings with
    /// 256 clients.
    fn grows(&self, held: u64) -> bool {
        let most = self.most_held.load(Ordering::Relaxed);
        let grows = held > most || held + self.most_spare < most;
        if grows {
            self.most_held.store(held, Ordering::Relaxed);
        }
        grows
    }

    fn allocate(&self, len: usize) -> Memory {
        let align = if len >= WHOLE_PAGES_FROM {
            PAGE_BYTES
        } else {
            self.align.load(Ordering::Relaxed)
        };
        Memory::of(len, align)
    }

    /// Allocates and touches one more spare buffer of `pages` pages, unless enough are ready. Returns false if enough are ready.
    pub(crate) fn make_ready(&self, pages: usize) -> bool {
        let len = pages * self.page_bytes;
        let size = len as u64;
        let wanted = |lists: &[Vec<Memory>]| {
            lists[pages - 1].len() < prefault::ready(len)
                && self.meter.spare_bytes() + size <= self.most_spare
        };
        if !self.lists(|lists| wanted(lists)) {
            return false;
        }
        let mut memory = self.allocate(len);
        // The value is not zero, because a compiler may omit writing a zero that the allocator has already written.
        memory
            .bytes_mut()
            .iter_mut()
            .step_by(PAGE_BYTES)
            .for_each(|byte| *byte = 1);
        // Checked again: buffers may have been returned meanwhile.
        self.lists(|lists| {
            let still = wanted(lists) && self.fits(&memory);
            if still {
                lists[pages - 1].push(memory);
                self.meter.spare.fetch_add(size, Ordering::Relaxed);
            }
            still
        })
    }

    fn give(&self, memory: Memory, len: usize) {
        self.meter.held.fetch_sub(len as u64, Ordering::Relaxed);
        let size = len as u64;
        if size > self.most_spare || !self.fits(&memory) {
            return;
        }
        let pages = len / self.page_bytes;
        // Dropped after the lock is released, because freeing large memory takes time.
        let mut surplus = Vec::new();
        self.lists(|lists| {
            // The pool is full of buffers of another size that are no longer used: free those.
            while self.meter.spare_bytes() + size > self.most_spare {
                let Some(fullest) = (0..MAX_PAGES).max_by_key(|&i| lists[i].len() * (i + 1)) else {
                    break;
                };
                let Some(old) = lists[fullest].pop() else {
                    break;
                };
                self.meter
                    .spare
                    .fetch_sub(((fullest + 1) * self.page_bytes) as u64, Ordering::Relaxed);
                surplus.push(old);
            }
            lists[pages - 1].push(memory);
            self.meter.spare.fetch_add(size, Ordering::Relaxed);
        });
    }

    fn lists<T>(&self, work: impl FnOnce(&mut Vec<Vec<Memory>>) -> T) -> T {
        work(&mut lock(&self.spare))
    }
}

/// A buffer for consecutive pages of one group.
#[derive(Debug)]
pub struct Chunk {
    /// `None` only during the drop.
    memory: Option<Memory>,
    len: u32,
    /// Size of its memory in bytes.
    room: u32,
    pool: Arc<Pool>,
}

impl Chunk {
    pub fn bytes(&self) -> &[u8] {
        self.memory
            .as_ref()
            .map_or(&[], |m| &m.bytes()[..self.len as usize])
    }

    /// The buffer's bytes, to be filled.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let len = self.len as usize;
        self.memory
            .as_mut()
            .map_or(&mut [], |m| &mut m.bytes_mut()[..len])
    }

    /// The number of pages for which the buffer was taken.
    pub fn pages(&self) -> usize {
        self.len as usize / self.pool.page_bytes
    }

    /// The number of pages that fit into the buffer's memory.
    pub fn room_pages(&self) -> usize {
        self.room as usize / self.pool.page_bytes
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.pool.give(memory, self.room as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_come_back() {
        let pool = Pool::new(4096, 512, 1 << 20);
        let small = pool.take(1);
        let large = pool.take(64);
        assert_eq!(small.bytes().as_ptr() as usize % 512, 0);
        assert_eq!(large.bytes().as_ptr() as usize % 4096, 0);
        assert_eq!((small.pages(), large.pages()), (1, 64));
        assert_eq!(pool.meter().held_bytes(), 65 * 4096);
        let address = large.bytes().as_ptr();
        drop((small, large));
        assert_eq!(
            (pool.meter().held_bytes(), pool.meter().spare_bytes()),
            (0, 65 * 4096)
        );
        assert_eq!(
            pool.take(64).bytes().as_ptr(),
            address,
            "the same memory again"
        );
    }

    /// If several sources share a pool, the strictest alignment applies, and a buffer from before is not reused.
    #[test]
    fn alignment_grows_with_the_strictest_source() {
        let pool = Pool::new(512, 1, 1 << 20);
        let aligned =
            |chunk: &Chunk, to: usize| (chunk.bytes().as_ptr() as usize).is_multiple_of(to);
        let out: Vec<Chunk> = (0..40).map(|_| pool.take(3)).collect();
        drop((0..40).map(|_| pool.take(2)).collect::<Vec<_>>());
        pool.align_to(4096);
        drop(out);
        pool.align_to(512);
        let taken: Vec<Chunk> = (0..80).map(|n| pool.take(2 + n % 2)).collect();
        assert!(taken.iter().all(|chunk| aligned(chunk, 4096)));
    }

    #[test]
    fn nearly_a_group_is_a_piece_of_a_slab() {
        let pool = Pool::new(4096, 512, 1 << 20);
        let (whole, half) = (pool.take(33), pool.take(32));
        assert_eq!(
            (whole.pages(), whole.bytes().len(), whole.room_pages()),
            (33, 33 * 4096, 64)
        );
        assert_eq!((half.pages(), half.room_pages()), (32, 32));
        assert_eq!(
            pool.meter().held_bytes(),
            (64 + 32) * 4096,
            "memory is counted, not pages"
        );
        let address = whole.bytes().as_ptr();
        drop(whole);
        assert_eq!(
            pool.take(57).bytes().as_ptr(),
            address,
            "the same memory for another number of pages"
        );
        assert_eq!(
            Pool::new(512, 512, 0).take(63).room_pages(),
            63,
            "no piece is of that size"
        );
    }

    #[test]
    fn a_reader_that_takes_many_finds_them_ready() {
        let pool = Pool::new(4096, 512, 1 << 20);
        let taken: Vec<Chunk> = (0..80).map(|_| pool.take(1)).collect();
        // Give the thread up to a minute.
        for _ in 0..6000 {
            if pool.meter().spare_bytes() >= 32 * 4096 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let ready = pool.meter().spare_bytes();
        assert!(
            (32 * 4096..=64 * 4096).contains(&ready),
            "{ready} bytes ready"
        );
        drop(taken);
        assert!(pool.meter().spare_bytes() <= 1 << 20);
    }

    /// A pool that has reached its maximum prepares no more buffers, also with varying use; after memory was returned it may grow
    /// again.
    #[test]
    fn buffers_are_made_ready_while_more_and_more_are_held() {
        let pool = Pool::new(4096, 512, 100);
        assert!(pool.grows(1000) && pool.grows(1010));
        assert!(
            [1010, 990, 1005, 910]
                .into_iter()
                .all(|held| !pool.grows(held))
        );
        assert!(pool.grows(1011));
        assert!(
            pool.grows(910) && !pool.grows(905) && pool.grows(911),
            "memory went back"
        );
    }

    #[test]
    fn spare_memory_is_bounded_and_makes_room_for_other_sizes() {
        let pool = Pool::new(4096, 512, 64 * 4096);
        drop((0..100).map(|_| pool.take(1)).collect::<Vec<_>>());
        assert_eq!(pool.meter().spare_bytes(), 64 * 4096);
        drop(pool.take(64));
        assert_eq!(pool.meter().spare_bytes(), 64 * 4096);
        assert!(pool.lists(|l| l[0].is_empty() && l[63].len() == 1));
        let none = Pool::new(4096, 512, 0);
        drop(none.take(3));
        assert_eq!(none.meter().spare_bytes(), 0);
    }
}
