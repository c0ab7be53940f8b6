//! Asynchronous reads of a source: submitted transfers complete later and need no threads.
//!
//! A transfer **owns** its buffers from its submission until it is returned, whether or not a caller still waits for it. The queue also
//! owns the file descriptor that a transfer reads from, until the transfer ends. So a reader, a source or a client can safely be dropped
//! early. The device never writes into memory that has a new owner, and no transfer reads from a descriptor that now refers to another
//! file. A source without a queue, and transfers that a queue refuses, are read with [`Source::read_at`](super::Source::read_at).
//!
//! ```text
//!   submit ──► in flight ──the storage replies──► ended ──reap──► returned, with its result
//!      └─ refused: returned at once, not started
//! ```

use super::SourceError;
use crate::chunk::Chunk;
use std::fmt;
use std::io::IoSliceMut;
use std::os::fd::BorrowedFd;

/// Bits of a tag that contain the number of the piece.
const PIECE_BITS: u32 = 20;

/// The tag of a transfer: a fetch and a piece of it.
pub(crate) fn tag(serial: u64, piece: u64) -> u64 {
    serial << PIECE_BITS | piece
}

/// Copies pieces of bytes into buffers, one after the other.
pub(crate) struct PieceCopier<'a, P> {
    pieces: P,
    left: &'a [u8],
}

impl<'a, P: Iterator<Item = &'a [u8]>> PieceCopier<'a, P> {
    pub fn new(pieces: impl IntoIterator<IntoIter = P>) -> PieceCopier<'a, P> {
        let (pieces, left) = (pieces.into_iter(), &[][..]);
        PieceCopier { pieces, left }
    }

    /// Copies what there is and fits to the buffers, from their byte `skip` on. Returns how many bytes that was.
    pub fn fill(&mut self, bufs: &mut [IoSliceMut<'_>], mut skip: usize) -> usize {
        let mut done = 0;
        for buf in bufs {
            let at = skip.min(buf.len());
            skip -= at;
            let mut room = &mut buf[at..];
            while !room.is_empty() {
                if self.left.is_empty() {
                    let Some(next) = self.pieces.next() else {
                        return done;
                    };
                    self.left = next;
                }
                let n = room.len().min(self.left.len());
                let (now, later) = self.left.split_at(n);
                room[..n].copy_from_slice(now);
                (room, self.left) = (&mut room[n..], later);
                done += n;
            }
        }
        done
    }
}

/// The fetch that a tag belongs to.
pub(crate) fn serial_of(tag: u64) -> u64 {
    tag >> PIECE_BITS
}

/// Which piece of its fetch a tag belongs to.
pub(crate) fn piece_of(tag: u64) -> u64 {
    tag & ((1 << PIECE_BITS) - 1)
}

/// A source's queue of asynchronous transfers. [`Source::queue`](super::Source::queue) creates a queue, which has only one owner.
///
/// **When a queue is used.** If a source has a queue, its fetches are submitted to that queue.
/// [`Source::read_at`](super::Source::read_at) is still needed. A blocking caller uses `read_at` on its own thread for a single miss.
/// Worker threads use `read_at` for transfers beyond [`Queue::depth`], and for all transfers once the queue has refused one or panicked,
/// or if the program requests [`Io::Threads`] or has a disk cache. For a client whose calls are futures, you need not write a queue: use
/// `from_async` (feature `tokio`).
///
/// **Memory.** A [`Transfer`] owns its buffers. The queue owns the transfer from [`Queue::submit`] until [`Queue::reap`]
/// returns it; a reader that cancels its read, or is dropped, does not take it away. Each transfer is returned once.
///
/// **Its end.** The queue is dropped with the last reader of the source, even if transfers are in flight. Dropping a queue must
/// wait for the transfers in flight, or free those to which nothing writes any more, or leak them. A queue must never free memory
/// to which something still writes. After the queue was dropped, its tasks and threads may still have transfers, and may drop them at
/// any time: their results are no longer used. The source's next reader gets a new queue.
///
/// ```
/// use foreread::source::{CompletedTransfer, Defaults, Queue, Source, SourceError, Transfer};
/// use foreread::{Options, Reader};
/// use std::io::IoSliceMut;
/// use std::sync::{Arc, Mutex, mpsc};
/// use std::time::Duration;
///
/// /// A device with one thread, which replies in order of submission. Each byte is 7.
/// struct Device {
///     work: mpsc::Sender<Transfer>,
///     /// `None` is an interrupt.
///     interrupt: mpsc::Sender<Option<CompletedTransfer>>,
///     ended: Mutex<mpsc::Receiver<Option<CompletedTransfer>>>,
/// }
///
/// impl Device {
///     fn start() -> Device {
///         let (work, to_do) = mpsc::channel::<Transfer>();
///         let (done, ended) = mpsc::channel();
///         let interrupt = done.clone();
///         std::thread::spawn(move || {
///             for mut transfer in to_do {
///                 let at = transfer.offset();
///                 let read = fill(&mut transfer.bufs(), at);
///                 // If the queue has been dropped, the transfer is dropped here.
///                 let _ = done.send(Some(transfer.end(Ok(read))));
///             }
///         });
///         Device { work, interrupt, ended: Mutex::new(ended) }
///     }
/// }
///
/// impl Queue for Device {
///     fn depth(&self) -> usize {
///         1 << 12
///     }
///
///     fn submit(&self, transfers: &mut Vec<Transfer>) {
///         transfers.drain(..).for_each(|transfer| drop(self.work.send(transfer)));
///     }
///
///     fn has_ended(&self) -> bool {
///         true // not known here: the caller checks with `reap`
///     }
///
///     fn reap(&self, wait: bool, ended: &mut Vec<CompletedTransfer>) {
///         let answers = self.ended.lock().unwrap();
///         if wait {
///             match answers.recv_timeout(Duration::from_secs(1)) {
///                 Ok(first) => ended.extend(first),
///                 Err(_) => return,
///             }
///         }
///         ended.extend(answers.try_iter().flatten());
///     }
///
///     fn interrupt(&self) {
///         let _ = self.interrupt.send(None);
///     }
/// }
///
/// const SIZE: u64 = 1 << 20;
///
/// fn fill(bufs: &mut [IoSliceMut<'_>], offset: u64) -> usize {
///     let bytes = bufs.iter_mut().flat_map(|buf| buf.iter_mut());
///     (offset..SIZE).zip(bytes).map(|(_, byte)| *byte = 7).count()
/// }
///
/// struct Disk;
///
/// impl Source for Disk {
///     fn size(&self) -> u64 {
///         SIZE
///     }
///
///     fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, SourceError> {
///         Ok(fill(bufs, offset))
///     }
///
///     fn describe(&self) -> String {
///         "disk".to_string()
///     }
///
///     fn defaults(&self) -> Defaults {
///         Defaults::NBD
///     }
///
///     fn queue(&self) -> Option<Arc<dyn Queue>> {
///         Some(Arc::new(Device::start()))
///     }
/// }
///
/// let reader = Reader::open(Arc::new(Disk), Options::default())?;
/// let mut buf = [0; 3];
/// assert_eq!((reader.read_at(&mut buf, SIZE - 3)?, buf), (3, [7; 3]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Queue: Send + Sync {
    /// Maximum transfers in flight; more are refused.
    fn depth(&self) -> usize;

    /// Takes transfers from the front of the list and starts them, first to last. Transfers left in the list were refused: the
    /// queue is full, or has failed. Does not wait for storage.
    fn submit(&self, transfers: &mut Vec<Transfer>);

    /// Whether [`Queue::reap`] has transfers to return without waiting. It may return false while another thread reaps. This
    /// call must be cheap.
    fn has_ended(&self) -> bool;

    /// Adds the transfers that have ended to the list. With `wait`, it returns when there is one, when [`Queue::interrupt`] was
    /// called since its last return, or after about a second.
    fn reap(&self, wait: bool, ended: &mut Vec<CompletedTransfer>);

    /// Makes a waiting [`Queue::reap`] return, or else the next one.
    fn interrupt(&self);

    /// A descriptor that is readable whenever [`Queue::has_ended`] is true, so that an event loop can wait for transfers and for
    /// sockets at once.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Bytes to be read, and the buffers for them. The transfer owns the buffers, and code that holds the transfer may write to them. A
/// fetch may consist of several consecutive transfers ([`Transfer::continues`]).
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

    /// Returns the offset of the first byte.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the total length of the buffers.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.bytes().len()).sum()
    }

    /// Returns the buffers, from first to last.
    pub fn bufs(&mut self) -> Vec<IoSliceMut<'_>> {
        self.chunks
            .iter_mut()
            .map(|chunk| IoSliceMut::new(chunk.bytes_mut()))
            .collect()
    }

    /// Ends the transfer. The result is the number of bytes read from its start, as for [`read_at`](super::Source::read_at), or
    /// an error. A number larger than the length of the buffers is treated as an error.
    #[must_use]
    pub fn end(self, result: Result<usize, SourceError>) -> CompletedTransfer {
        let room = self.bytes();
        let result = result.and_then(|read| super::within(read, room, "a queue"));
        CompletedTransfer {
            transfer: self,
            result,
        }
    }

    /// Returns true if this transfer follows `before` in the same fetch. One request to the storage may then read both transfers.
    #[must_use]
    pub fn continues(&self, before: &Transfer) -> bool {
        serial_of(self.tag) == serial_of(before.tag)
            && self.offset == before.offset + before.bytes() as u64
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

/// A transfer that has ended, with its result.
#[derive(Debug)]
pub struct CompletedTransfer {
    pub(crate) transfer: Transfer,
    pub(crate) result: Result<usize, SourceError>,
}

/// The I/O method for reading files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Io {
    /// Transfers are submitted to the source's queue if it has one: files use io_uring if the kernel allows it.
    #[default]
    Queue,
    /// One thread for each transfer.
    Threads,
}
