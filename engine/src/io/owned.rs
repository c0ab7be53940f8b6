//! Reads that return [`bytes::Bytes`], for callers that pass the bytes on.
//!
//! Each read allocates a buffer of its length; if the read reaches the end of the source, the result is shorter. The bytes are copied once,
//! from the cache. A `Bytes` does not hold pages of the cache, so keeping it uses no cache memory.

use crate::error::ReadError;
use crate::reader::Reader;
use bytes::Bytes;

impl Reader {
    /// Like [`Reader::read_at`], but returns the bytes in a new buffer. At the end of the source, the returned buffer is empty.
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
    /// Returns the errors of [`Reader::read_at`].
    pub fn read_bytes_at(&self, offset: u64, len: usize) -> Result<Bytes, ReadError> {
        let mut buf = self.room(offset, len);
        let read = self.read_at(&mut buf, offset)?;
        buf.truncate(read);
        Ok(buf.into())
    }

    /// Like [`Reader::read_bytes_at`], but asynchronous, like [`Reader::read_at_async`].
    ///
    /// # Errors
    /// Returns the errors of [`Reader::read_at`].
    pub async fn read_bytes_at_async(&self, offset: u64, len: usize) -> Result<Bytes, ReadError> {
        let mut buf = self.room(offset, len);
        let read = self.read_at_async(&mut buf, offset).await?;
        buf.truncate(read);
        Ok(buf.into())
    }

    /// Allocates the buffer of a read. It is limited to the rest of the source plus one byte, so that the read notices if the
    /// source has grown.
    fn room(&self, offset: u64, len: usize) -> Vec<u8> {
        let left = self.size().saturating_sub(offset).saturating_add(1);
        vec![0; len.min(usize::try_from(left).unwrap_or(usize::MAX))]
    }
}
