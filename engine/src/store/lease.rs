//! Bytes of the store that stay readable even if their pages are dropped.
//!
//! ```text
//!   Lease ──► [piece of a chunk][piece of the next] ...      each keeps its chunk alive
//! ```
//!
//! Example: a read of 8 KiB whose pages came from two fetches gets a lease with two pieces of 4 KiB each.

use crate::chunk::Chunk;
use std::sync::Arc;

/// Contiguous bytes of one chunk, which is kept alive.
#[derive(Clone, Debug)]
pub(super) struct LeasedBytes {
    pub chunk: Arc<Chunk>,
    pub start: u32,
    pub len: u32,
}

impl LeasedBytes {
    fn bytes(&self) -> &[u8] {
        &self.chunk.bytes()[self.start as usize..self.start as usize + self.len as usize]
    }
}

/// Bytes of the store that stay readable even if their pages are dropped. A lease with only one piece, which is the usual case, allocates
/// no memory.
#[derive(Clone, Debug, Default)]
pub struct Lease {
    first: Option<LeasedBytes>,
    rest: Vec<LeasedBytes>,
}

impl Lease {
    pub(super) fn push(&mut self, piece: LeasedBytes) {
        match self.first {
            None => self.first = Some(piece),
            Some(_) => self.rest.push(piece),
        }
    }

    /// The leased bytes as slices, in the order of their offsets.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.first.iter().chain(&self.rest).map(LeasedBytes::bytes)
    }

    /// Copies all bytes to the start of `to`, as far as there is room. Returns the number of bytes copied.
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
