//! Memory for buffers of 256 KiB, in huge pages: what sequential reads go through.
//!
//! A device that writes into scattered pages of 4 KiB needs an entry for each, and the first touch of each is a fault: cold
//! sequential reads here took 1.6 times as long as with huge pages (measured). A slab is mapped once, cut up and never given
//! back: pieces that nobody holds wait for the next engine of the process, so it grows to the most that was ever held at
//! once and no further. That is the price of doing it without `unsafe`. Never: zeroes, or hands a piece to two.
//!
//! ```text
//!   slab 32 MiB:  [..|2 MiB|2 MiB| ... |..]   from the first to the last whole huge page
//!                     └─ 8 pieces ─┘
//!   take ──► Piece ──dropped──► free ──► take
//! ```

use memmap2::{Advice, MmapMut};
use std::sync::{Mutex, PoisonError};

/// Bytes of a piece: a group of 64 pages of 4 KiB.
pub const PIECE_BYTES: usize = 256 << 10;
/// A huge page of x86-64 and of arm64 with pages of 4 KiB.
const HUGE_BYTES: usize = 2 << 20;
/// Mapped at once. Only what is touched becomes memory.
const SLAB_BYTES: usize = 32 << 20;

static FREE: Mutex<Vec<&'static mut [u8]>> = Mutex::new(Vec::new());

/// A piece, held by one.
#[derive(Debug)]
pub struct Piece(&'static mut [u8]);

impl Piece {
    /// A piece with whatever was in it. Nothing when no more can be mapped.
    pub fn take() -> Option<Piece> {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        if free.is_empty() {
            grow(&mut free);
        }
        free.pop().map(Piece)
    }

    pub fn bytes(&self) -> &[u8] {
        self.0
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.0
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let piece = std::mem::take(&mut self.0);
        FREE.lock().unwrap_or_else(PoisonError::into_inner).push(piece);
    }
}

fn grow(free: &mut Vec<&'static mut [u8]>) {
    let Ok(slab) = MmapMut::map_anon(SLAB_BYTES) else { return };
    // Refused where there are no huge pages: then it is memory like any other. Miri has no such call.
    if !cfg!(miri) {
        let _ = slab.advise(Advice::HugePage);
    }
    let slab: &'static mut MmapMut = Box::leak(Box::new(slab));
    let from = (slab.as_ptr() as usize).wrapping_neg() % HUGE_BYTES;
    let whole = (slab.len() - from) / HUGE_BYTES * HUGE_BYTES;
    let pieces = slab[from..from + whole].chunks_exact_mut(PIECE_BYTES);
    // The last is taken first: they go out from the front.
    free.extend(pieces.rev());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces do not overlap, come back, and begin at a multiple of their size.
    #[test]
    #[cfg_attr(miri, ignore = "75 MiB, byte by byte")]
    fn nobody_shares_a_piece() {
        let mut held: Vec<Piece> = (0..300).map(|_| Piece::take().expect("300 pieces of memory")).collect();
        for (n, piece) in held.iter_mut().enumerate() {
            assert_eq!((piece.bytes().len(), piece.bytes().as_ptr() as usize % PIECE_BYTES), (PIECE_BYTES, 0));
            piece.bytes_mut().fill(n as u8);
        }
        for (n, piece) in held.iter().enumerate() {
            assert!(piece.bytes().iter().all(|byte| *byte == n as u8), "piece {n} was written by another");
        }
        let mut places: Vec<usize> = held.iter().map(|piece| piece.bytes().as_ptr() as usize).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 300);
        let last = held.pop().expect("one");
        let place = last.bytes().as_ptr();
        drop(last);
        // Another test may take it first; then it is in its hands, and not in two.
        let again = Piece::take().expect("a piece");
        assert!(again.bytes().as_ptr() == place || held.iter().all(|p| p.bytes().as_ptr() != again.bytes().as_ptr()));
    }
}
