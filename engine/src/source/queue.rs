//! Asynchronous reads of a source: submitted transfers complete later and need no threads.
//!
//! A transfer **owns** its buffers from the moment it is handed over until it is given back, whether or not a caller still waits for it
//! then; a queue owns, with each transfer, whatever it is read from. So nothing that goes away early (a reader, a
//! source, a client) can leave a device writing into memory of another owner, or a descriptor of another file being read.
//! A queue is optional. Refused transfers are read by [`Source::read_at`](super::Source::read_at).
//!
//! ```text
//!   submit ──► under way ──the storage answers──► ended ──reap──► given back, with its result
//!      └─ refused: returned at once, not started
//! ```

use super::SourceError;
use crate::chunk::Chunk;
use std::fmt;
use std::io::IoSliceMut;

/// Bits of a tag that number the piece of a fetch.
const PIECE_BITS: u32 = 20;

/// The tag of a transfer: a fetch and a piece of it.
pub(crate) fn tag(serial: u64, piece: u64) -> u64 {
    serial << PIECE_BITS | piece
}

/// The fetch that a tag belongs to.
pub(crate) fn serial_of(tag: u64) -> u64 {
    tag >> PIECE_BITS
}

/// Which piece of its fetch a tag belongs to.
pub(crate) fn piece_of(tag: u64) -> u64 {
    tag & ((1 << PIECE_BITS) - 1)
}

/// Transfers under way from one source. Made by [`Source::queue`](super::Source::queue), for one owner.
///
/// **When it is used.** If a source has a queue, its fetches are submitted there. [`Source::read_at`](super::Source::read_at) is still
/// needed: a caller that blocks reads a lone miss by it on its own thread, and threads read by it what is beyond [`Queue::depth`], everything after the queue has refused or panicked once, and where
/// the program asks for [`Io::Threads`] or keeps a cache on disk. A client whose calls are futures needs no queue written by
/// hand: `from_async` (feature `tokio`) is one.
///
/// **Memory.** A [`Transfer`] owns its buffers. From [`Queue::submit`] until [`Queue::reap`] gives it back it is the queue's, and a reader
/// that gives up its read, or is dropped, takes nothing away. Each transfer is given back once.
///
/// **Its end.** The queue is dropped with the last reader of the source, also with transfers under way. It waits for them then, or
/// frees those that nothing writes to any more, or leaks them; it never frees what is still being written to. A task or a thread
/// that works for the queue may keep a transfer, and drop it whenever it likes: its result is of no use any more. The queue of the next
/// reader is another one.
///
/// ```
/// use foreread::source::{CompletedTransfer, Defaults, Queue, Source, SourceError, Transfer};
/// use foreread::{Options, Reader};
/// use std::io::IoSliceMut;
/// use std::sync::{Arc, Mutex, mpsc};
/// use std::time::Duration;
///
/// /// A device with one thread, which answers in order. Each byte is 7.
/// struct Device {
///     work: mpsc::Sender<Transfer>,
///     /// Nothing is an interrupt.
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
///                 // Where the queue is gone, the transfer is dropped here.
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
///         true // it is not known here: the caller looks by `reap`
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
    /// Transfers that may be under way at once; more are refused.
    fn depth(&self) -> usize;

    /// Takes transfers from the front of the list and starts them, in order. Those left in the list were refused:
    /// the queue is full, or cannot go on. Does not wait for storage.
    fn submit(&self, transfers: &mut Vec<Transfer>);

    /// True when [`Queue::reap`] has something to give without waiting. May miss it while another thread reaps. Costs next to
    /// nothing.
    fn has_ended(&self) -> bool;

    /// Adds the transfers that have ended to the list. With `wait` it comes back when there is one, when
    /// [`Queue::interrupt`] was called since it came back last, or after about a second.
    fn reap(&self, wait: bool, ended: &mut Vec<CompletedTransfer>);

    /// Makes a waiting [`Queue::reap`] return, or the next one.
    fn interrupt(&self);
}

/// Bytes to be read, and the memory they go to, which it owns: what holds the transfer may write there. A fetch may be several
/// transfers, submitted one after the other ([`Transfer::continues`]).
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
    /// More than there is room for is an error.
    #[must_use]
    pub fn end(self, result: Result<usize, SourceError>) -> CompletedTransfer {
        let room = self.bytes();
        let result = result.and_then(|read| super::within(read, room, "a queue"));
        CompletedTransfer {
            transfer: self,
            result,
        }
    }

    /// It is the next piece of the fetch that `before` is a piece of: one request to the storage may read both.
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
