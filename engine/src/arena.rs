//! Page-aligned memory for the two buffer sizes of fast devices: 256 KiB, for sequential reads,
//! in huge pages; and 4 KiB, for random reads.
//!
//! A device that writes into scattered pages needs an entry for each, and the first touch of each is a fault: cold sequential
//! reads here took 1.6 times as long as with huge pages (measured). A buffer of one page from the allocator spans two pages,
//! and the allocator asks the kernel for nearly each of them: cold random reads took 4 to 10 % longer (measured; huge pages, whose
//! first touch clears 2 MiB, took longer still). A slab is mapped once, cut up and never given back: free pieces
//! wait for the next engine of the process, so each size grows to the most that was ever held of it at once and no further.
//! That is the price of doing it without `unsafe`. Never: zeroes, or hands a piece to two.
//!
//! ```text
//!   slab 32 MiB:  [..|2 MiB|2 MiB| ... |..]   from the first to the last whole huge page
//!                     └─ 8 pieces of 256 KiB, or all of the slab in pieces of 4 KiB
//!   take ──► Piece ──dropped──► free ──► take
//! ```

use crate::system;
use memmap2::{Advice, MmapMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A group of 64 pages of 4 KiB.
pub const GROUP_BYTES: usize = 256 << 10;
/// A memory page of x86-64 (of arm64 it may be a part of one), and one cache page unless the options say otherwise.
pub const PAGE_BYTES: usize = 4 << 10;
/// A huge page of x86-64 and of arm64 with pages of 4 KiB. With pages of 16 or 64 KiB it has 32 or 512 MiB, so no slab holds one; a buffer
/// is 16 or 4 pages there, and the kernel may have smaller huge pages for what asks for them.
const HUGE_BYTES: usize = 2 << 20;
/// Bytes of a mapping. Only touched pages use memory.
const SLAB_BYTES: usize = 32 << 20;

/// Pieces of one size.
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

/// The locks of all arenas.
pub type ArenaLocks = [MutexGuard<'static, Vec<&'static mut [u8]>>; 2];

/// Takes them, for a thread that is about to fork.
pub fn hold() -> ArenaLocks {
    [GROUPS.free(), PAGES.free()]
}

/// A piece, held by one.
pub struct SlabPiece {
    bytes: &'static mut [u8],
    of: &'static Arena,
}

impl SlabPiece {
    /// A piece with unspecified content. `None` for other sizes, or if no more can be mapped.
    pub fn take(bytes: usize) -> Option<SlabPiece> {
        let of = [&GROUPS, &PAGES]
            .into_iter()
            .find(|arena| arena.piece_bytes == bytes)?;
        let mut free = of.free();
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
        self.of.free().push(bytes);
    }
}

impl std::fmt::Debug for SlabPiece {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Piece({} bytes)", self.bytes.len())
    }
}

impl Arena {
    fn free(&self) -> MutexGuard<'_, Vec<&'static mut [u8]>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn grow(&self, free: &mut Vec<&'static mut [u8]>) {
        let Ok(slab) = system::map(SLAB_BYTES) else {
            return;
        };
        // It fails without huge pages; then the memory has ordinary pages. Miri lacks this call.
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
        // The last is taken first: they go out from the front.
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
        // Another test may take it first; then it is in its hands, and not in two.
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

    /// More than one slab of them.
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
