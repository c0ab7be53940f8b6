//! Bytes of a source from front to back, read piece by piece: a header is looked through without being held.
//!
//! ```text
//!   take(4) ──► the piece has them? ── no ──► one read of a piece (1 MiB, or as many as are asked for) ──► 4 bytes
//!   pass(4096) ──► nothing is read
//! ```

use super::{LayoutError, ReadAt};

pub struct Window<'a> {
    source: &'a dyn ReadAt,
    /// The byte behind the last that may be read.
    end: u64,
    /// Bytes that are read at once.
    piece_bytes: u64,
    piece: Vec<u8>,
    piece_at: u64,
    pub at: u64,
    /// The error for what goes beyond the end.
    beyond: fn() -> LayoutError,
}

impl<'a> Window<'a> {
    pub fn new(
        source: &'a dyn ReadAt,
        end: u64,
        piece_bytes: u64,
        beyond: fn() -> LayoutError,
    ) -> Window<'a> {
        Window {
            source,
            end,
            piece_bytes,
            piece: Vec::new(),
            piece_at: 0,
            at: 0,
            beyond,
        }
    }

    fn end_of(&self, len: u64) -> Result<u64, LayoutError> {
        self.at
            .checked_add(len)
            .filter(|end| *end <= self.end)
            .ok_or_else(self.beyond)
    }

    pub fn take(&mut self, len: u64) -> Result<&[u8], LayoutError> {
        let end = self.end_of(len)?;
        if self.at < self.piece_at || end > self.piece_at.saturating_add(self.piece.len() as u64) {
            let bytes = self.piece_bytes.max(len).min(self.end - self.at);
            self.piece.resize(bytes as usize, 0);
            // A piece that was read in part is none.
            self.piece_at = u64::MAX;
            self.source.read_at(&mut self.piece, self.at)?;
            self.piece_at = self.at;
        }
        let start = (self.at - self.piece_at) as usize;
        self.at = end;
        Ok(&self.piece[start..start + len as usize])
    }

    /// Passes over bytes without reading them.
    pub fn pass(&mut self, len: u64) -> Result<(), LayoutError> {
        self.at = self.end_of(len)?;
        Ok(())
    }

    pub fn u32(&mut self) -> Result<u32, LayoutError> {
        Ok(self.take(4)?.try_into().map_or(0, u32::from_le_bytes))
    }

    pub fn u64(&mut self) -> Result<u64, LayoutError> {
        Ok(self.take(8)?.try_into().map_or(0, u64::from_le_bytes))
    }
}
