//! Units: bytes, pages, nanoseconds.
//!
//! A [`ByteRange`] is checked once, in [`ByteRange::new`]. After this check, code can add and subtract offsets without overflow, because
//! no offset exceeds [`MAX_OFFSET`]. This module uses no floating point.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;

/// The largest byte offset a file may have: `2^62`. This limit is below POSIX's `2^63 - 1`, so that sums of two offsets and doubled
/// windows fit into `u64` without a check at each addition.
pub const MAX_OFFSET: u64 = 1 << 62;

/// A point in time or a duration, in nanoseconds. The caller chooses which point in time is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The time from `earlier` to `self`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Nanos) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A half-open range of bytes, `start <= end <= MAX_OFFSET`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ByteRange {
    start: u64,
    end: u64,
}

impl ByteRange {
    /// The range of `len` bytes from `start`, or `None` if its end would be beyond [`MAX_OFFSET`].
    #[must_use]
    pub fn new(start: u64, len: u64) -> Option<ByteRange> {
        let end = start.checked_add(len)?;
        (end <= MAX_OFFSET).then_some(ByteRange { start, end })
    }

    /// The range from `start` to `end`, clipped to [`MAX_OFFSET`]; empty if `end` is before `start`.
    #[must_use]
    pub fn between(start: u64, end: u64) -> ByteRange {
        let start = start.min(MAX_OFFSET);
        ByteRange {
            start,
            end: end.clamp(start, MAX_OFFSET),
        }
    }

    /// First byte.
    #[must_use]
    pub fn start(self) -> u64 {
        self.start
    }

    /// The offset after the last byte.
    #[must_use]
    pub fn end(self) -> u64 {
        self.end
    }

    /// Number of bytes.
    #[must_use]
    pub fn len(self) -> u64 {
        self.end - self.start
    }

    /// True if the range is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// The intersection of two ranges; empty if they do not overlap.
    #[must_use]
    pub fn intersect(self, other: ByteRange) -> ByteRange {
        ByteRange::between(self.start.max(other.start), self.end.min(other.end))
    }
}

impl fmt::Debug for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{},+{})", self.start, self.len())
    }
}

/// A half-open range of cache pages of one file.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct PageRange {
    /// First page.
    pub first: u64,
    /// One past the last page; never below `first`.
    pub end: u64,
}

impl PageRange {
    /// The pages from `first` up to `end`, which must not be below `first`.
    #[must_use]
    pub const fn between(first: u64, end: u64) -> PageRange {
        PageRange { first, end }
    }

    /// The page `first` alone.
    #[must_use]
    pub const fn one(first: u64) -> PageRange {
        PageRange::between(first, first + 1)
    }

    /// Number of pages.
    #[must_use]
    pub fn len(self) -> u64 {
        self.end - self.first
    }

    /// True if the range is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.first >= self.end
    }

    /// The intersection of two ranges; empty if they do not overlap.
    #[must_use]
    pub fn intersect(self, other: PageRange) -> PageRange {
        let first = self.first.max(other.first);
        PageRange::between(first, self.end.min(other.end).max(first))
    }
}

/// Size of a cache page: a power of two from 512 B to 1 MiB.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PageSize {
    shift: u32,
}

impl PageSize {
    /// A page of `bytes` bytes, if that is a power of two between 512 and 1 MiB.
    #[must_use]
    pub fn new(bytes: u64) -> Option<PageSize> {
        (bytes.is_power_of_two() && (512..=1 << 20).contains(&bytes)).then(|| PageSize {
            shift: bytes.trailing_zeros(),
        })
    }

    /// Bytes in a page.
    #[must_use]
    pub fn bytes(self) -> u64 {
        1 << self.shift
    }

    /// The page that contains the byte at `offset`.
    #[must_use]
    pub fn page_of(self, offset: u64) -> u64 {
        offset >> self.shift
    }

    /// Offset of the first byte of `page`.
    #[must_use]
    pub fn start_of(self, page: u64) -> u64 {
        page << self.shift
    }

    /// The number of pages needed for `bytes` bytes.
    #[must_use]
    pub fn pages_for(self, bytes: u64) -> u64 {
        bytes.div_ceil(self.bytes())
    }

    /// Every page that the range touches; no page if the range is empty.
    #[must_use]
    pub fn cover(self, range: ByteRange) -> PageRange {
        let first = self.page_of(range.start());
        let end = if range.is_empty() {
            first
        } else {
            self.pages_for(range.end())
        };
        PageRange::between(first, end)
    }

    /// The pages that are completely inside the range.
    #[must_use]
    pub fn inside(self, range: ByteRange) -> PageRange {
        let first = self.pages_for(range.start());
        PageRange::between(first, self.page_of(range.end()).max(first))
    }

    /// The range of bytes in these pages.
    #[must_use]
    pub fn bytes_of(self, pages: PageRange) -> ByteRange {
        ByteRange::between(self.start_of(pages.first), self.start_of(pages.end))
    }
}

/// The number of a file, chosen by the caller of the state machine. File numbers should start at 0 and have few gaps, because they are used
/// as indexes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// An open file description: a reader handle, an NBD connection, or a descriptor in a trace. The numbers of descriptions should start at
/// 0 and have few gaps, because they are used as indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpenId(pub u32);

/// One demand read. The caller chooses the number, and the state machine's answer contains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub u64);

/// One fetch, numbered by the state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FetchId(pub u64);

/// One served piece of a read, numbered by the state machine; `Event::Release` returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u32);

/// The number of a group of up to 64 pages in the page index; valid until the group's pages are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupSlot(pub u32);

/// The reason why a text is not a valid size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SizeError {
    /// Not digits with an optional unit.
    NotASize,
    /// More than [`MAX_OFFSET`] bytes.
    TooLarge,
}

/// Maximum number of decimals of a size.
const MAX_DECIMALS: u32 = 9;

/// Parses a size in bytes: a number and an optional unit `B`, `K`, `M`, `G`, `T` (also `KiB`, `kB`, ...). Every unit is
/// a power of two: `128K` is 131072. With a unit, the number may have up to nine decimals; the result is rounded down:
/// `1.5K` is 1536.
///
/// # Errors
/// Returns [`SizeError`] if the text is not a size, or the size is too large.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let digits_of = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, rest) = text.split_at(digits_of(text));
    let after_point = rest.strip_prefix('.').unwrap_or("");
    let (decimals, unit) = match after_point.split_at(digits_of(after_point)) {
        ("", _) => ("", rest),
        split => split,
    };
    let unit = unit.trim();
    let shift = match unit.as_bytes().first().map(u8::to_ascii_uppercase) {
        None | Some(b'B') => 0,
        Some(b'K') => 10,
        Some(b'M') => 20,
        Some(b'G') => 30,
        Some(b'T') => 40,
        Some(_) => return Err(SizeError::NotASize),
    };
    let tail = unit.get(1..).unwrap_or("");
    let is_unit = tail.is_empty()
        || (shift > 0 && (tail.eq_ignore_ascii_case("ib") || tail.eq_ignore_ascii_case("b")));
    let places = u32::try_from(decimals.len()).unwrap_or(u32::MAX);
    let is_number = !whole.is_empty() && places <= MAX_DECIMALS && (places == 0 || shift > 0);
    if !is_unit || !is_number {
        return Err(SizeError::NotASize);
    }
    let whole: u64 = whole.parse().map_err(|_| SizeError::TooLarge)?;
    let part: u64 = match decimals {
        "" => 0,
        digits => digits.parse().map_err(|_| SizeError::NotASize)?,
    };
    let bytes = whole
        .checked_mul(1 << shift)
        .and_then(|bytes| bytes.checked_add(mul_div(part, 1 << shift, 10_u64.pow(places))));
    bytes
        .filter(|&b| b <= MAX_OFFSET)
        .ok_or(SizeError::TooLarge)
}

/// Formats a size in bytes with the largest unit that gives a whole number: `64M`, `512`, `4K`. [`parse_size`] parses the result.
#[must_use]
pub fn format_size(bytes: u64) -> String {
    for (shift, unit) in [(40, "T"), (30, "G"), (20, "M"), (10, "K")] {
        if bytes >> shift > 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// `value` x `by` / `of`, rounded down, at most [`u64::MAX`]. If `of` is zero, divides by one.
pub(crate) fn mul_div(value: u64, by: u64, of: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(by) / u128::from(of.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("4K", 4096),
            ("4KiB", 4096),
            ("1m", 1 << 20),
            ("2GB", 2 << 30),
            ("1.5M", 3 << 19),
            ("0.1 KiB", 102),
            ("5.1G", 5_476_083_302),
            ("7.999999999T", (8 << 40) - 1100),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "K",
            "-1",
            "4Q",
            "4KK",
            "12Bytes",
            "4 K i",
            "1.5",
            "1.5B",
            ".5K",
            "1.K",
            "1..5K",
            "1.5.5K",
            "1,5K",
            "1.0000000001K",
        ] {
            assert_eq!(parse_size(text), Err(SizeError::NotASize), "{text}");
        }
        for text in ["99999999999999999999", "9999999999999T"] {
            assert_eq!(parse_size(text), Err(SizeError::TooLarge), "{text}");
        }
    }

    #[test]
    fn ranges_at_the_edges() {
        assert_eq!(ByteRange::new(u64::MAX, 1), None);
        assert_eq!(ByteRange::new(MAX_OFFSET, 1), None);
        assert!(ByteRange::new(MAX_OFFSET, 0).is_some_and(ByteRange::is_empty));
        let page = PageSize::new(4096).expect("4096 is a power of two");
        let cover = page.cover(ByteRange::between(4095, 4097));
        assert_eq!((cover.first, cover.end), (0, 2));
        assert!(page.inside(ByteRange::between(4095, 4097)).is_empty());
        assert_eq!(PageSize::new(256), None);
        assert_eq!(PageSize::new(3000), None);
    }
}
