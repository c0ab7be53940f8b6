//! A read plan, for callers that know their future reads.
//!
//! A plan reads the ranges of a list in the order of the list. The plan prefetches the next ranges of the list, as many as fit into a
//! window. Examples are the row groups of a Parquet file, the tensors of a model, and the blocks of a query: no policy can predict which
//! of these ranges come next. The plan fetches nothing outside the list, and a failed prefetch never fails a read.
//!
//! ```text
//!   ranges:  [read] [read] [next] [wanted] [wanted] [ ... ] [ ... ]
//!                            │      └─ window: this many bytes are fetched and not read yet
//!                            └─ read_next: prefetch ranges that enter the window, then read this one
//! ```

use crate::Reader;
use crate::error::ReadError;
use std::ops::Range;

/// Default number of bytes to fetch before they are read: sixteen fetches of 1 MiB, the engine's default for readahead in flight.
const WINDOW_BYTES: u64 = 16 << 20;
/// Adjacent ranges are prefetched together up to this length.
const TOGETHER_BYTES: u64 = 1 << 20;

/// Reads a list of ranges in the order of the list, and fetches the next ranges in advance. Created by [`Reader::plan`].
///
/// ```
/// use foreread::{Options, Reader, source::Mem};
/// use std::sync::Arc;
///
/// let reader = Reader::open(Arc::new(Mem::new(vec![7; 1 << 20])), Options::default().policy("none"))?;
/// let mut plan = reader.plan([500_000..500_010, 0..100, 1 << 20..2 << 20]);
/// let mut buf = Vec::new();
/// let mut lengths = Vec::new();
/// while let Some(_range) = plan.read_next(&mut buf)? {
///     lengths.push(buf.len());
/// }
/// assert_eq!(lengths, [10, 100, 0], "the last is behind the end");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ReadPlan<'a> {
    reader: &'a Reader,
    ranges: Vec<Range<u64>>,
    /// Index of the next range to read, and of the next to prefetch.
    next: usize,
    wanted: usize,
    /// Bytes that were prefetched and not yet read, including those of the next range.
    ahead_bytes: u64,
    window_bytes: u64,
}

impl Reader {
    /// Creates a plan for these ranges, in the order in which they will be read. The ranges may overlap, and need not be sorted.
    pub fn plan(&self, ranges: impl IntoIterator<Item = Range<u64>>) -> ReadPlan<'_> {
        let ranges = ranges.into_iter().collect();
        ReadPlan {
            reader: self,
            ranges,
            next: 0,
            wanted: 0,
            ahead_bytes: 0,
            window_bytes: WINDOW_BYTES,
        }
    }
}

impl ReadPlan<'_> {
    /// Sets how many bytes are fetched ahead of the current position in the list. The default is 16 MiB. Values above half of the cache
    /// have no effect, because the engine holds no more readahead than that.
    #[must_use]
    pub fn window_bytes(mut self, bytes: u64) -> Self {
        self.window_bytes = bytes;
        self
    }

    /// Reads the next range into `buf`, and sets the length of `buf` to that of the range. The result is shorter than the range only if
    /// the source ends within the range. Returns `None` after the last range. After an error, the next call tries the same range again.
    ///
    /// # Errors
    /// Returns the errors of [`Reader::read_at`].
    pub fn read_next(&mut self, buf: &mut Vec<u8>) -> Result<Option<Range<u64>>, ReadError> {
        let Some(range) = self.ranges.get(self.next).cloned() else {
            return Ok(None);
        };
        self.prefetch()?;
        // A range may be longer than the source: memory is allocated only for existing bytes.
        let len = length(&range).min(self.reader.size().saturating_sub(range.start));
        buf.resize(usize::try_from(len).unwrap_or(usize::MAX), 0);
        let got = self.reader.read_at(buf, range.start)?;
        buf.truncate(got);
        self.ahead_bytes -= length(&range);
        self.next += 1;
        Ok(Some(range))
    }

    /// Prefetches ranges that enter the window. The current range is a demand read.
    fn prefetch(&mut self) -> Result<(), ReadError> {
        if let Some(now) = self
            .ranges
            .get(self.next)
            .cloned()
            .filter(|_| self.wanted == self.next)
        {
            self.take(&now);
        }
        while let Some(first) = self.ranges.get(self.wanted).cloned() {
            if self.ahead_bytes > 0
                && self.ahead_bytes.saturating_add(length(&first)) > self.window_bytes
            {
                break;
            }
            let mut end = first.end.max(first.start);
            self.take(&first);
            while let Some(more) = self.ranges.get(self.wanted).cloned() {
                let follows =
                    more.start == end && more.end > end && more.end - first.start <= TOGETHER_BYTES;
                if !follows || self.ahead_bytes.saturating_add(length(&more)) > self.window_bytes {
                    break;
                }
                end = more.end;
                self.take(&more);
            }
            self.reader.prefetch(first.start..end)?;
        }
        Ok(())
    }

    fn take(&mut self, range: &Range<u64>) {
        self.ahead_bytes = self.ahead_bytes.saturating_add(length(range));
        self.wanted += 1;
    }
}

fn length(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::source::{Defaults, EIO, Mem, Source, SourceError};
    use std::io::IoSliceMut;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    const SIZE: u64 = 8 << 20;

    fn bytes(range: Range<u64>) -> Vec<u8> {
        let byte = |at: u64| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8;
        range.map(byte).collect()
    }

    fn source() -> Mem {
        Mem::new(bytes(0..SIZE))
    }

    /// A source whose first read fails.
    struct FailsOnce(Mem, AtomicBool);

    impl Source for FailsOnce {
        fn size(&self) -> u64 {
            self.0.size()
        }

        fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, SourceError> {
            if self.1.swap(true, Ordering::SeqCst) {
                self.0.read_at(bufs, offset)
            } else {
                Err(SourceError::io(EIO, "a test"))
            }
        }

        fn describe(&self) -> String {
            self.0.describe()
        }

        fn defaults(&self) -> Defaults {
            self.0.defaults()
        }
    }

    fn reader() -> Reader {
        let source = Arc::new(source());
        // The cache has room for everything, so prefetched bytes are there when their turn comes, however late their fetch ended.
        Reader::open(
            source,
            Options::default().policy("none").cache_bytes(2 * SIZE),
        )
        .expect("opens")
    }

    /// Ranges back and forth, overlapping, and beyond the end: the right bytes in list order, and hits under a policy that reads
    /// nothing ahead.
    #[test]
    fn a_list_is_read_in_its_order_and_ahead() {
        let reader = reader();
        let ranges: Vec<Range<u64>> = (0..200u64)
            .map(|i| (i * 7_654_321) % SIZE..(i * 7_654_321) % SIZE + 30_000)
            .chain([5..5, SIZE..SIZE + 9])
            .collect();
        let mut plan = reader.plan(ranges.clone()).window_bytes(1 << 20);
        let mut buf = Vec::new();
        for want in &ranges {
            let range = plan
                .read_next(&mut buf)
                .expect("readable")
                .expect("one more");
            assert_eq!(
                (&range, buf.len() as u64),
                (want, length(want).min(SIZE.saturating_sub(want.start)))
            );
            assert_eq!(
                buf,
                bytes(range.start..range.start + buf.len() as u64),
                "its own bytes"
            );
            assert!(plan.ahead_bytes <= (1 << 20) + 30_000);
        }
        assert!(plan.read_next(&mut buf).expect("the end").is_none());
        assert_eq!(plan.ahead_bytes, 0);
        let stats = reader.stats();
        assert!(stats.misses <= 1 && stats.ra_ops > 100, "{stats:?}");
    }

    /// A range that failed is read again, and nothing is counted twice.
    #[test]
    fn after_an_error_the_same_range_is_tried_again() {
        let source = Arc::new(FailsOnce(source(), AtomicBool::new(false)));
        let reader =
            Reader::open(source, Options::default().policy("none").threads(0)).expect("opens");
        let mut plan = reader.plan([0..10, 1 << 20..(1 << 20) + 10]);
        let mut buf = Vec::new();
        let mut outcomes = Vec::new();
        for _ in 0..4 {
            outcomes.push(
                plan.read_next(&mut buf)
                    .map(|range| range.map(|r| r.start))
                    .map_err(|e| e.errno()),
            );
        }
        assert_eq!(outcomes, [Err(5), Ok(Some(0)), Ok(Some(1 << 20)), Ok(None)]);
        assert_eq!(plan.ahead_bytes, 0);
    }

    #[test]
    fn small_neighbours_are_wanted_together() {
        let reader = reader();
        let mut plan = reader.plan((0..100).map(|i| i * 4096..(i + 1) * 4096));
        plan.read_next(&mut Vec::new()).expect("readable");
        assert_eq!(
            reader.stats().ra_ops,
            1,
            "99 pages behind the first in one piece"
        );
    }
}
