//! A reader with a position: [`std::io::Read`] and [`std::io::Seek`] for programs that read sequentially.
//!
//! [`ReadCursor`] keeps a position for a [`Reader`] and advances it by the length of each read. The cursor accepts a `Reader`, `&Reader`
//! or `Arc<Reader>`. Two cursors on one reader have two positions but share one readahead state; for separate states, create each cursor
//! from its own clone of the reader ([`Reader::try_clone`]).
//!
//! ```text
//!   ReadCursor ── position 8192 ──► Reader::read_at(buf, 8192) ──► 4096 bytes ──► position 12288
//! ```
//!
//! The cursor has no buffer, because the engine's cache already contains the bytes: a read of a few bytes costs one look-up in that
//! cache. Async tasks read with [`Reader::read_at_async`]; the cursor is for threads.

use crate::reader::Reader;
use std::borrow::Borrow;
use std::io::{Error, ErrorKind, IoSliceMut, Read, Result, Seek, SeekFrom};

/// A [`Reader`] with a position, for programs that read sequentially. Created by [`Reader::cursor`] or [`ReadCursor::new`].
///
/// **Errors.** A failed read returns a [`std::io::Error`] whose kind follows from the error number
/// ([`ReadError::errno`](crate::ReadError::errno)): `NotFound` for `ENOENT`, `StaleNetworkFileHandle` for a source that has changed. The
/// error contains the [`ReadError`](crate::ReadError), so that a program can match on its [`ErrorKind`](crate::ErrorKind) and find the
/// error of the source. For the error of a failed read, `raw_os_error` returns `None`.
///
/// ```
/// use foreread::{ErrorKind, ReadError};
///
/// fn has_changed(error: &std::io::Error) -> bool {
///     let read = error.get_ref().and_then(|inner| inner.downcast_ref::<ReadError>());
///     read.is_some_and(|read| read.kind() == ErrorKind::Changed)
/// }
/// # assert!(!has_changed(&std::io::Error::other("another")));
/// ```
///
/// ```
/// use foreread::{Options, Reader, source::Mem};
/// use std::io::{Read, Seek, SeekFrom};
/// use std::sync::Arc;
///
/// let reader = Reader::open(Arc::new(Mem::new(b"head and tail".to_vec())), Options::default())?;
/// let mut cursor = reader.cursor();
/// cursor.seek(SeekFrom::End(-4))?;
/// let mut tail = String::new();
/// cursor.read_to_string(&mut tail)?;
/// assert_eq!(tail, "tail");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ReadCursor<R = Reader> {
    reader: R,
    position: u64,
}

impl<R: Borrow<Reader>> ReadCursor<R> {
    /// Creates a cursor at the first byte of `reader`.
    pub fn new(reader: R) -> ReadCursor<R> {
        ReadCursor {
            reader,
            position: 0,
        }
    }

    /// The reader of this cursor, for example to get its counters or to give hints.
    #[must_use]
    pub fn reader(&self) -> &Reader {
        self.reader.borrow()
    }

    /// The offset of the next read.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }
}

impl Reader {
    /// A [`ReadCursor`] that borrows this reader.
    #[must_use]
    pub fn cursor(&self) -> ReadCursor<&Reader> {
        ReadCursor::new(self)
    }
}

impl<R: Borrow<Reader>> Read for ReadCursor<R> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let read = self.reader.borrow().read_at(buf, self.position)?;
        self.position += read as u64;
        Ok(read)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> Result<usize> {
        let read = self.reader.borrow().read_vectored_at(bufs, self.position)?;
        self.position += read as u64;
        Ok(read)
    }
}

impl<R: Borrow<Reader>> Seek for ReadCursor<R> {
    fn seek(&mut self, to: SeekFrom) -> Result<u64> {
        let (base, by) = match to {
            SeekFrom::Start(at) => (at, 0),
            SeekFrom::End(by) => (self.reader().size(), by),
            SeekFrom::Current(by) => (self.position, by),
        };
        let outside = || {
            Error::new(
                ErrorKind::InvalidInput,
                format!("cannot seek by {by} from byte {base}: the result is not a valid offset"),
            )
        };
        self.position = base.checked_add_signed(by).ok_or_else(outside)?;
        Ok(self.position)
    }
}
