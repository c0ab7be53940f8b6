//! Reads a source sequentially in pieces, so that a header is scanned without holding it in memory.
//!
//! ```text
//!   take(4) ──► in the current piece? ── no ──► read the next piece (1 MiB, or the requested length) ──► 4 bytes
//!   pass(4096) ──► nothing is read
//! ```

use super::{LayoutError, ReadAt};

pub struct Window<'a> {
    source: &'a dyn ReadAt,
    /// The end of the readable range.
    end: u64,
    piece_bytes: u64,
    piece: Vec<u8>,
    piece_at: u64,
    pub at: u64,
    /// The error for reads beyond the end.
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
            // A partly read piece is discarded.
            self.piece_at = u64::MAX;
            self.source.read_at(&mut self.piece, self.at)?;
            self.piece_at = self.at;
        }
        let start = (self.at - self.piece_at) as usize;
        self.at = end;
        Ok(&self.piece[start..start + len as usize])
    }

    /// Skips bytes without reading them.
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
