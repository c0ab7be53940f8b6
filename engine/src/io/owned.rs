//! Reads that return [`bytes::Bytes`], for callers that pass the bytes on.
//!
//! The buffer is made here, as long as the read; a read that reaches the end of the source is shorter. One copy, from the
//! cache: a `Bytes` does not hold pages of the cache, so keeping it costs the cache no room.

use crate::error::ReadError;
use crate::reader::Reader;
use bytes::Bytes;

impl Reader {
    /// Like [`Reader::read_at`], but returns a buffer of the length read. Empty at the end of the source.
    ///
    /// ```
    /// use foreread::{Options, Reader, source::Mem};
    /// use std::sync::Arc;
    ///
    /// let reader = Reader::open(Arc::new(Mem::new(b"head and tail".to_vec())), Options::default())?;
    /// assert_eq!(reader.read_bytes_at(0, 4)?, "head");
    /// assert_eq!(reader.read_bytes_at(9, 100)?, "tail");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Reader::read_at`].
    pub fn read_bytes_at(&self, offset: u64, len: usize) -> Result<Bytes, ReadError> {
        let mut buf = self.room(offset, len);
        let read = self.read_at(&mut buf, offset)?;
        buf.truncate(read);
        Ok(buf.into())
    }

    /// The same for a task, as [`Reader::read_at_async`].
    ///
    /// # Errors
    /// As [`Reader::read_at`].
    pub async fn read_bytes_at_async(&self, offset: u64, len: usize) -> Result<Bytes, ReadError> {
        let mut buf = self.room(offset, len);
        let read = self.read_at_async(&mut buf, offset).await?;
        buf.truncate(read);
        Ok(buf.into())
    }

    /// A buffer for a read: no longer than the source goes on, except that the last byte is always asked for, so that a
    /// source that has grown is noticed.
    fn room(&self, offset: u64, len: usize) -> Vec<u8> {
        let left = self.size().saturating_sub(offset).saturating_add(1);
        vec![0; len.min(usize::try_from(left).unwrap_or(usize::MAX))]
    }
}
