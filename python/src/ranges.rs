//! Many ranges at once: each is prefetched before it is read, as many as fit into a window.
//!
//! ```text
//!   ranges:  [read] [read] [next] [wanted] [wanted] [ ... ]
//!                            └─ Ahead::next: what comes into the window is prefetched, neighbours as one
//! ```
//! As `foreread::ReadPlan`, but the caller reads into memory of Python's.

use foreread::{ReadError, Reader};

/// Bytes that are prefetched and not read yet; at most a quarter of the cache.
const WINDOW_BYTES: u64 = 64 << 20;
/// Ranges that follow each other are wanted together up to this length, and the window is filled when it has room for as much:
/// one by one they would be as many requests.
const TOGETHER_BYTES: u64 = 8 << 20;

/// Bytes of a piece of a range that is read into memory as it arrives: what one request of an object store has.
const PIECE_BYTES: u64 = 8 << 20;

/// The ranges as far as a source of this size has them.
pub fn clipped(ranges: &[(u64, u64)], size: u64) -> Vec<(u64, u64)> {
    ranges
        .iter()
        .map(|&(start, length)| (start, length.min(size.saturating_sub(start))))
        .collect()
}

/// Each range in pieces, with the number of its range.
pub fn pieces(ranges: &[(u64, u64)]) -> Vec<(usize, (u64, u64))> {
    let of = |(number, &(start, length)): (usize, &(u64, u64))| {
        let parts = length.div_ceil(PIECE_BYTES);
        (0..parts).map(move |part| {
            let done = part * PIECE_BYTES;
            (
                number,
                (start.saturating_add(done), PIECE_BYTES.min(length - done)),
            )
        })
    };
    ranges.iter().enumerate().flat_map(of).collect()
}

pub struct Ahead<'a> {
    reader: &'a Reader,
    ranges: &'a [(u64, u64)],
    read: usize,
    wanted: usize,
    ahead_bytes: u64,
    window_bytes: u64,
}

impl<'a> Ahead<'a> {
    pub fn new(reader: &'a Reader, ranges: &'a [(u64, u64)]) -> Ahead<'a> {
        let window_bytes = WINDOW_BYTES.min(reader.engine().cache_bytes() / 4);
        Ahead {
            reader,
            ranges,
            read: 0,
            wanted: 0,
            ahead_bytes: 0,
            window_bytes,
        }
    }

    /// Before a range is read, in the order of the list: wants what comes into the window behind it. The range itself is a
    /// demand read and needs no word.
    ///
    /// # Errors
    /// Only when the engine has stopped.
    pub fn next(&mut self) -> Result<(), ReadError> {
        let before = self
            .read
            .checked_sub(1)
            .map_or(0, |last| self.ranges[last].1);
        self.ahead_bytes = self.ahead_bytes.saturating_sub(before);
        if self.wanted == self.read {
            self.take();
        }
        self.read += 1;
        let step = TOGETHER_BYTES.min(self.window_bytes / 4);
        if self.ahead_bytes > self.window_bytes - step {
            return Ok(());
        }
        while let Some(start) = self.fitting() {
            let mut end = self.take();
            while self.fitting() == Some(end) && end - start < TOGETHER_BYTES {
                end = self.take();
            }
            if end > start {
                self.reader.prefetch(start..end)?;
            }
        }
        Ok(())
    }

    /// The start of the next range to be wanted, if the window has room for it.
    fn fitting(&self) -> Option<u64> {
        let &(start, length) = self.ranges.get(self.wanted)?;
        let fits =
            self.ahead_bytes == 0 || self.ahead_bytes.saturating_add(length) <= self.window_bytes;
        fits.then_some(start)
    }

    /// Counts the next range as wanted. Returns its end.
    fn take(&mut self) -> u64 {
        let (start, length) = self.ranges.get(self.wanted).copied().unwrap_or_default();
        self.wanted += 1;
        self.ahead_bytes = self.ahead_bytes.saturating_add(length);
        start.saturating_add(length)
    }
}
