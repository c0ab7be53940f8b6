//! The position of the next byte in a [`Sink`], for bytes that arrive in pieces, and a sink that fills the buffers of a read.

use super::Sink;
use std::io::IoSliceMut;

/// The position of the next byte in a sink, whose buffers are filled by several parts of one read, one after the other.
pub struct FillPlace<'s, S: Sink + ?Sized = dyn Sink + 's> {
    sink: &'s mut S,
    /// Offset in the source.
    pub at: u64,
    /// Bytes already filled in the sink's current buffer.
    filled: usize,
}

impl<'s, S: Sink + ?Sized> FillPlace<'s, S> {
    pub fn new(sink: &'s mut S, at: u64) -> FillPlace<'s, S> {
        FillPlace {
            sink,
            at,
            filled: 0,
        }
    }

    pub fn at_hand(&mut self) {
        self.sink.at_hand();
    }

    pub fn is_awaited(&self) -> bool {
        self.sink.is_awaited()
    }

    pub fn is_cancelled(&self) -> bool {
        self.sink.is_cancelled()
    }

    /// Returns true if the sink accepts more bytes.
    pub fn has_room(&mut self) -> bool {
        self.sink.room().is_some()
    }

    /// Returns the buffer for the next bytes, at most `most` bytes long. Returns `None` if the sink accepts no more bytes.
    pub fn room(&mut self, most: u64) -> Option<&mut [u8]> {
        let filled = self.filled;
        let room = self.sink.room()?;
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let end = room.len().min(filled.saturating_add(most));
        Some(&mut room[filled..end])
    }

    /// Records that the caller has filled `bytes` more bytes of the buffer.
    pub fn advance(&mut self, bytes: usize) {
        self.filled += bytes;
        self.at += bytes as u64;
        let is_full = self
            .sink
            .room()
            .is_some_and(|room| room.len() == self.filled);
        if is_full {
            self.sink.filled(std::mem::take(&mut self.filled));
        }
    }

    /// Copies bytes into the sink's buffers. Returns their number, which is less if the sink accepts no more.
    pub fn put(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        while let Some(room) = self.room(rest.len() as u64).filter(|room| !room.is_empty()) {
            let (now, later) = rest.split_at(room.len());
            room.copy_from_slice(now);
            self.advance(now.len());
            rest = later;
        }
        bytes.len() - rest.len()
    }

    /// Passes the last bytes to the sink.
    pub fn end(&mut self) {
        if self.filled > 0 {
            self.sink.filled(std::mem::take(&mut self.filled));
        }
    }
}

/// A sink that fills the buffers of a read.
pub struct Slices<'a, 'b> {
    slices: &'a mut [IoSliceMut<'b>],
    at: usize,
}

impl<'a, 'b> Slices<'a, 'b> {
    pub fn new(slices: &'a mut [IoSliceMut<'b>]) -> Slices<'a, 'b> {
        Slices { slices, at: 0 }
    }
}

impl Sink for Slices<'_, '_> {
    fn room(&mut self) -> Option<&mut [u8]> {
        while self
            .slices
            .get(self.at)
            .is_some_and(|slice| slice.is_empty())
        {
            self.at += 1;
        }
        self.slices.get_mut(self.at).map(|slice| &mut slice[..])
    }

    fn filled(&mut self, _: usize) {
        self.at += 1;
    }

    fn is_awaited(&self) -> bool {
        true
    }
}
