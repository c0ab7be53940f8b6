//! A second way to read a source: transfers that are handed over and end later, so that none needs a thread.
//!
//! A transfer **owns** its buffers from the moment it is handed over until it is given back, whether or not a caller still waits for it
//! then; a queue owns, with each transfer, whatever it is read from. So nothing that goes away early (a reader, a
//! source, a client) can leave a device writing into memory of another owner, or a descriptor of another file being read.
//! Never: the only way. What a queue refuses is read by [`Source::read_at`](super::Source::read_at).
//!
//! ```text
//!   submit ──► under way ──the storage answers──► ended ──reap──► given back, with its result
//!      └─ refused: given back at once, nothing was begun
//! ```

use super::SourceError;
use crate::chunk::Chunk;
use std::fmt;
use std::io::IoSliceMut;

/// Transfers under way from one source. Made by [`Source::queue`](super::Source::queue), for one owner. Dropped with transfers
/// under way it waits for them, or leaks them; it never frees what is still being written to.
pub trait Queue: Send + Sync {
    /// Transfers that may be under way at once; more are refused.
    fn depth(&self) -> usize;

    /// Takes transfers out of the front of the list and begins them, in this order. What is left in the list was refused:
    /// the queue is full, or cannot go on. Does not wait for storage.
    fn submit(&self, transfers: &mut Vec<Transfer>);

    /// True when [`Queue::reap`] has something to give without waiting. May miss it while another thread reaps. Costs next to
    /// nothing.
    fn has_ended(&self) -> bool;

    /// Adds the transfers that have ended to the list. With `wait` it comes back when there is one, when
    /// [`Queue::interrupt`] was called since it came back last, or after about a second.
    fn reap(&self, wait: bool, ended: &mut Vec<CompletedTransfer>);

    /// Makes one waiting [`Queue::reap`] come back, or the next one.
    fn interrupt(&self);
}

/// Bytes to be read, and the memory they go to.
pub struct Transfer {
    tag: u64,
    offset: u64,
    chunks: Vec<Chunk>,
}

impl Transfer {
    pub(crate) fn new(tag: u64, offset: u64, chunks: Vec<Chunk>) -> Transfer {
        Transfer {
            tag,
            offset,
            chunks,
        }
    }

    /// The first byte.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// How many bytes there is room for.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.bytes().len()).sum()
    }

    /// The buffers, in order.
    pub fn bufs(&mut self) -> Vec<IoSliceMut<'_>> {
        self.chunks
            .iter_mut()
            .map(|chunk| IoSliceMut::new(chunk.bytes_mut()))
            .collect()
    }

    /// Gives it back: this many bytes from its start were filled, as [`read_at`](super::Source::read_at) counts them, or why not.
    #[must_use]
    pub fn end(self, result: Result<usize, SourceError>) -> CompletedTransfer {
        CompletedTransfer {
            transfer: self,
            result,
        }
    }

    pub(crate) fn tag(&self) -> u64 {
        self.tag
    }

    pub(crate) fn into_chunks(self) -> Vec<Chunk> {
        self.chunks
    }
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes from {}", self.bytes(), self.offset)
    }
}

/// A transfer that has been given back.
#[derive(Debug)]
pub struct CompletedTransfer {
    pub(crate) transfer: Transfer,
    pub(crate) result: Result<usize, SourceError>,
}

/// How files are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Io {
    /// Transfers are handed to the source's queue where it has one: files by io_uring where the kernel allows it.
    #[default]
    Queue,
    /// A thread for each transfer.
    Threads,
}
