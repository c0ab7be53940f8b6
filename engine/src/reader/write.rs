//! Writes through a reader: the bytes are written to the source, then the range is dropped from the cache.
//!
//! The cache contains no unwritten bytes, and a read that starts after the write has returned gets no old bytes.
//!
//! ```text
//!   write_at ── source.write_at ── Invalidate: present pages are dropped, fetches in flight doomed ── returns
//!                   │                          (reads that wait for such a fetch repeat it)
//!                   └─ another version: Changed, nothing is written
//! ```

use super::Reader;
use crate::driver::{SizedVersion, guarded};
use crate::error::WriteError;
use crate::source::{self, Cause, SourceError};
use foreread_core::units::ByteRange;

impl Reader {
    /// Prepares the source for writes. No write through this reader is possible before this call.
    ///
    /// # Errors
    /// Returns an error if the source is read-only, or this user may not write it.
    pub fn allow_writes(&self) -> Result<(), WriteError> {
        source::writing_of(&*self.source)
            .and_then(|writing| writing.allow_writes())
            .map_err(|error| self.refuse(error))
    }

    /// Locks the source against other writers, for as long as this process has it open. A file gets an advisory lock, like the lock of
    /// QEMU; a block device is opened exclusively (`O_EXCL`), which fails if the device is mounted. Call this method after
    /// [`Reader::allow_writes`].
    ///
    /// # Errors
    /// Returns an error if another program holds the lock (`EAGAIN`, `EBUSY`), or the source cannot be locked.
    pub fn lock(&self) -> Result<(), WriteError> {
        source::writing_of(&*self.source)
            .and_then(|writing| writing.lock_writes())
            .map_err(|error| self.refuse(error))
    }

    /// Writes all of `buf` from `offset` on, within the source's size. Blocks until the source has accepted the bytes;
    /// [`Reader::flush`] makes them durable. Reads that start later, through any reader, see the new bytes.
    ///
    /// # Errors
    /// See [`WriteError`]. After an error, the content of the range is unspecified.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), WriteError> {
        let stopped = |_| WriteError::Stopped;
        let SizedVersion { size, version } =
            self.engine.driver().known(self.at.file).map_err(stopped)?;
        if !self.seen.knows(version) || self.seen.size().is_some_and(|pinned| pinned != size) {
            return Err(WriteError::Changed {
                what: format!("{}: the source has changed", self.describe()),
                cause: None,
            });
        }
        let end = offset
            .checked_add(buf.len() as u64)
            .filter(|end| *end <= size);
        let Some(end) = end else {
            return Err(WriteError::Beyond {
                offset,
                len: buf.len(),
                size,
            });
        };
        if buf.is_empty() {
            return Ok(());
        }
        let written = guarded(|| source::writing_of(&*self.source)?.write_at(buf, offset));
        // Also after an error, because it is unknown how much was written.
        self.engine
            .driver()
            .invalidate(self.at.file, ByteRange::between(offset, end))
            .map_err(stopped)?;
        if let Err(SourceError::Changed { .. }) = written {
            self.source_changed(version).map_err(stopped)?;
        }
        written.map_err(|error| self.refuse(error))
    }

    /// Returns when all earlier writes are durable. After a failure, all further flushes of this source fail, for all its readers,
    /// because the system does not report which bytes were lost. To flush again, open the source again.
    ///
    /// # Errors
    /// Returns the first error that occurred; see [`WriteError`].
    pub fn flush(&self) -> Result<(), WriteError> {
        self.flushes
            .run(|| guarded(|| source::writing_of(&*self.source)?.flush()))
            .map_err(|error| self.refuse(error))
    }

    #[cold]
    fn refuse(&self, error: SourceError) -> WriteError {
        let (what, errno) = (error.to_string(), error.errno());
        let is_change = matches!(error, SourceError::Changed { .. });
        let cause = Cause::new(error);
        if is_change {
            let cause = Some(cause);
            WriteError::Changed { what, cause }
        } else {
            WriteError::Io { errno, what, cause }
        }
    }
}
