//! Page-aligned memory for the two buffer sizes of fast devices: 256 KiB pieces in huge pages for sequential reads, and 4 KiB pieces
//! for random reads.
//!
//! A device that writes into scattered pages needs one DMA segment for each page, and the first touch of each page is a page fault.
//! Without huge pages, sequential reads of uncached data took 1.6 times as long (measured). A one-page buffer from the allocator is not
//! page-aligned, so it spans two pages, and for almost every such buffer the allocator calls the kernel. With one-page buffers from the
//! allocator, random reads of uncached data took 4 to 10 % longer than with page-aligned buffers (measured). If one-page buffers were in
//! huge pages, random reads took even longer, because the first touch of a huge page clears 2 MiB. A slab (a memory mapping of 32 MiB) is
//! cut into pieces and never unmapped, because unmapping would need `unsafe`. Free pieces are kept for the next engine of the process. So
//! the memory for each buffer size grows only to the maximum that was in use at one time. The arena does not zero a piece, and gives each
//! piece to only one owner at a time.
//!
//! ```text
//!   slab 32 MiB:  [..|2 MiB|2 MiB| ... |..]   from the first to the last whole huge page
//!                     └─ 8 pieces of 256 KiB, or all of the slab in pieces of 4 KiB
//!   take ──► Piece ──dropped──► free ──► take
//! ```

use crate::sync::lock;
use crate::system;
use memmap2::{Advice, MmapMut};
use std::sync::{Mutex, MutexGuard};

/// The size of a buffer for a group of 64 pages of 4 KiB each.
pub const GROUP_BYTES: usize = 256 << 10;
/// The size of a buffer for one page: the size of a memory page on x86-64, and of a cache page unless the options set another size. On
/// arm64 a memory page may be larger.
pub const PAGE_BYTES: usize = 4 << 10;
/// A huge page of x86-64, and of arm64 with 4 KiB pages. With pages of 16 or 64 KiB, a huge page has 32 or 512 MiB, so no slab
/// contains one. A buffer then has 16 or 4 pages, and the kernel may use smaller huge pages for it.
const HUGE_BYTES: usize = 2 << 20;
/// Size of one mapping in bytes. Only touched pages use memory.
const SLAB_BYTES: usize = 32 << 20;

struct Arena {
    piece_bytes: usize,
    huge: bool,
    free: Mutex<Vec<&'static mut [u8]>>,
}

static GROUPS: Arena = Arena {
    piece_bytes: GROUP_BYTES,
    huge: true,
    free: Mutex::new(Vec::new()),
};
static PAGES: Arena = Arena {
    piece_bytes: PAGE_BYTES,
    huge: false,
    free: Mutex::new(Vec::new()),
};

/// Lock guards of all arenas: the arenas stay locked until this value is dropped.
pub type ArenaLocks = [MutexGuard<'static, Vec<&'static mut [u8]>>; 2];

/// Locks all arenas, for a thread that is about to fork.
pub fn hold() -> ArenaLocks {
    [lock(&GROUPS.free), lock(&PAGES.free)]
}

/// A piece of a slab (a large memory mapping), with only one owner.
pub struct SlabPiece {
    bytes: &'static mut [u8],
    of: &'static Arena,
}

impl SlabPiece {
    /// Takes a piece of this size, with unspecified content. Returns `None` for other sizes, or if no more memory can be mapped.
    pub fn take(bytes: usize) -> Option<SlabPiece> {
        let of = [&GROUPS, &PAGES]
            .into_iter()
            .find(|arena| arena.piece_bytes == bytes)?;
        let mut free = lock(&of.free);
        if free.is_empty() {
            of.grow(&mut free);
        }
        free.pop().map(|bytes| SlabPiece { bytes, of })
    }

    pub fn bytes(&self) -> &[u8] {
        self.bytes
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes
    }
}

impl Drop for SlabPiece {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        lock(&self.of.free).push(bytes);
    }
}

impl std::fmt::Debug for SlabPiece {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Piece({} bytes)", self.bytes.len())
    }
}

impl Arena {
    fn grow(&self, free: &mut Vec<&'static mut [u8]>) {
        let Ok(slab) = system::map(SLAB_BYTES) else {
            return;
        };
        // This fails on a kernel without huge pages; the memory then has ordinary pages. Miri does not support the call.
        if self.huge && !cfg!(miri) {
            let _ = slab.advise(Advice::HugePage);
        }
        let slab: &'static mut MmapMut = Box::leak(Box::new(slab));
        let unit = if self.huge {
            HUGE_BYTES
        } else {
            self.piece_bytes
        };
        let from = (slab.as_ptr() as usize).wrapping_neg() % unit;
        let whole = (slab.len() - from) / unit * unit;
        let pieces = slab[from..from + whole].chunks_exact_mut(self.piece_bytes);
        // `take` takes the last one first, so pieces are given out from the start of the slab.
        free.extend(pieces.rev());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces do not overlap, come back, and begin at a multiple of their size.
    fn no_two_share(piece_bytes: usize, many: usize) {
        let take = || SlabPiece::take(piece_bytes).expect("memory");
        let mut held: Vec<SlabPiece> = (0..many).map(|_| take()).collect();
        for (n, piece) in held.iter_mut().enumerate() {
            assert_eq!(
                (
                    piece.bytes().len(),
                    piece.bytes().as_ptr() as usize % piece_bytes
                ),
                (piece_bytes, 0)
            );
            piece.bytes_mut().fill(n as u8);
        }
        for (n, piece) in held.iter().enumerate() {
            assert!(
                piece.bytes().iter().all(|byte| *byte == n as u8),
                "piece {n} was written by another"
            );
        }
        let mut places: Vec<usize> = held
            .iter()
            .map(|piece| piece.bytes().as_ptr() as usize)
            .collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), many);
        let last = held.pop().expect("one");
        let place = last.bytes().as_ptr();
        drop(last);
        // Another test may take this piece first; even then, only one owner has it.
        let again = take();
        assert!(
            again.bytes().as_ptr() == place
                || held
                    .iter()
                    .all(|p| p.bytes().as_ptr() != again.bytes().as_ptr())
        );
    }

    #[test]
    #[cfg_attr(miri, ignore = "75 MiB, byte by byte")]
    fn no_two_buffers_share_a_group() {
        no_two_share(GROUP_BYTES, 300);
    }

    /// Takes more than one slab of buffers.
    #[test]
    #[cfg_attr(miri, ignore = "40 MiB, byte by byte")]
    fn no_two_buffers_share_a_page() {
        no_two_share(PAGE_BYTES, 10_000);
    }

    #[test]
    fn other_sizes_are_the_allocators() {
        assert!(
            [0, 512, 8 << 10, 255 << 10]
                .into_iter()
                .all(|bytes| SlabPiece::take(bytes).is_none())
        );
    }
}
