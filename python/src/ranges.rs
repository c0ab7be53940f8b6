//! Reads the ranges of a list one after the other, and prefetches the next ranges as far as they fit into a window of limited size.
//!
//! ```text
//!   ranges:  [read] [read] [next] [wanted] [wanted] [ ... ]
//!                            └─ Ahead::next: ranges that enter the window are prefetched, adjacent ones as one request
//! ```

use foreread::{ReadError, Reader};

/// Maximum bytes prefetched and not yet read; at most a quarter of the cache.
const WINDOW_BYTES: u64 = 64 << 20;
/// Adjacent ranges are merged up to this length, and the window is refilled when it has room for that much. Otherwise each range
/// would be a separate request.
const TOGETHER_BYTES: u64 = 8 << 20;

/// Bytes of a part of a range. Each part is read as it arrives: the size of a request to an object store.
const PIECE_BYTES: u64 = 8 << 20;

/// Returns the ranges, without the parts beyond the end of a source of this size.
pub fn clipped(ranges: &[(u64, u64)], size: u64) -> Vec<(u64, u64)> {
    ranges
        .iter()
        .map(|&(start, length)| (start, length.min(size.saturating_sub(start))))
        .collect()
}

/// Divides each range into parts; each part is returned with the index of its range.
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

    /// Must be called before each range is read, in the order of the list. The call prefetches the ranges that follow this range, as far as
    /// they now fit into the window. The range itself is not prefetched, because it is read immediately.
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

    /// The start of the next range to prefetch, if the window has room for it.
    fn fitting(&self) -> Option<u64> {
        let &(start, length) = self.ranges.get(self.wanted)?;
        let fits =
            self.ahead_bytes == 0 || self.ahead_bytes.saturating_add(length) <= self.window_bytes;
        fits.then_some(start)
    }

    /// Counts the next range as prefetched. Returns its end.
    fn take(&mut self) -> u64 {
        let (start, length) = self.ranges.get(self.wanted).copied().unwrap_or_default();
        self.wanted += 1;
        self.ahead_bytes = self.ahead_bytes.saturating_add(length);
        start.saturating_add(length)
    }
}
