//! Helpers for text parsers: parse words, numbers and times from bytes without copying.
//!
//! Floating-point numbers are never used: seconds with a fraction are parsed as decimals, because the 53 bits of a double are not
//! sufficient for nanoseconds since 1970. Numbers that do not fit into their type are refused.

use crate::error::TraceError;
use crate::format::Pairs;
use crate::{FileInfo, Item};
use std::collections::{HashMap, VecDeque};
use std::path::Path;

/// Maximum size of all file names of a trace together, because a hostile trace may have a million files, and each name is stored.
pub const MAX_NAMES_BYTES: usize = 64 << 20;
/// The size of a sector in bytes. Block traces use sectors of this size for every device, even if its real sectors are larger.
pub const SECTOR: u64 = 512;
pub const US_NS: u64 = 1_000;
pub const MS_NS: u64 = 1_000_000;
pub const SECOND_NS: u64 = 1_000_000_000;

/// Removes the next word from `rest` and returns it; words are separated by spaces and tabs. Returns an empty word at the end of `rest`.
pub fn word<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let start = rest
        .iter()
        .position(|b| !matches!(b, b' ' | b'\t'))
        .unwrap_or(rest.len());
    let tail = &rest[start..];
    let end = tail
        .iter()
        .position(|b| matches!(b, b' ' | b'\t'))
        .unwrap_or(tail.len());
    *rest = &tail[end..];
    &tail[..end]
}

/// Parses a decimal number; it must consist of digits only and fit into 64 bits.
pub fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 20 {
        return None;
    }
    let mut value = 0_u64;
    for digit in text {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// Parses a decimal number that fits into 32 bits.
pub fn small(text: &[u8]) -> Option<u32> {
    u32::try_from(number(text)?).ok()
}

/// Returns the complete lines in the first bytes of a file, without a last line that has no line end.
pub fn whole_lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let end = head.iter().rposition(|b| *b == b'\n').unwrap_or(head.len());
    head[..end].split(|b| *b == b'\n')
}

/// Parses a decimal number of units of `unit_ns` nanoseconds, and returns nanoseconds; fractions of a nanosecond are cut off.
pub fn decimal_ns(text: &[u8], unit_ns: u64) -> Option<u64> {
    let dot = text.iter().position(|b| *b == b'.').unwrap_or(text.len());
    let whole = number(&text[..dot])?.checked_mul(unit_ns)?;
    let Some(decimals) = text.get(dot + 1..) else {
        return Some(whole);
    };
    if decimals.is_empty() || !decimals.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // Nine digits are enough for the largest unit, a second.
    let counted = &decimals[..decimals.len().min(9)];
    let scale = 10_u64.pow(u32::try_from(counted.len()).ok()?);
    whole.checked_add(number(counted)? * unit_ns / scale)
}

/// Evaluates a key that has a fixed set of values. Returns the index of the key's value, or `None` if the key is not given.
pub fn choice(
    pairs: &Pairs,
    key: &str,
    of: &[&str],
    path: &Path,
) -> Result<Option<usize>, TraceError> {
    let Some(value) = pairs.get(key) else {
        return Ok(None);
    };
    of.iter()
        .position(|known| *known == value)
        .map(Some)
        .ok_or_else(|| {
            let what = format!("'{key}={value}' is not known");
            let remedy = format!("one of {key}={}", of.join(", "));
            TraceError::whole(path, what, remedy)
        })
}

/// Assigns a number to each name, in the order in which names first occur.
#[derive(Default)]
pub struct Names {
    numbers: HashMap<Box<[u8]>, u32>,
    bytes: usize,
    /// The latest name, because most traces use a file several times in a row.
    latest: Option<(Vec<u8>, u32)>,
}

impl Names {
    /// Returns the number of `name`, or `None` if it has no number yet.
    pub fn get(&mut self, name: &[u8]) -> Option<u32> {
        if let Some((latest, number)) = &self.latest
            && latest == name
        {
            return Some(*number);
        }
        let number = *self.numbers.get(name)?;
        let latest = self.latest.get_or_insert_default();
        latest.0.clear();
        latest.0.extend_from_slice(name);
        latest.1 = number;
        Some(number)
    }

    /// Returns the number of the file `name`. For a new name, `file` creates an item for the file, which is added to `out`.
    pub fn file(
        &mut self,
        name: &[u8],
        out: &mut VecDeque<Item>,
        file: impl FnOnce() -> FileInfo,
    ) -> Option<u32> {
        if let Some(number) = self.get(name) {
            return Some(number);
        }
        out.push_back(Item::File(file()));
        self.add(name)
    }

    /// Gives `name` the next number; returns `None` if the names become too many ([`MAX_NAMES_BYTES`]).
    pub fn add(&mut self, name: &[u8]) -> Option<u32> {
        self.bytes += name.len();
        let number = u32::try_from(self.numbers.len()).ok()?;
        if self.bytes > MAX_NAMES_BYTES {
            return None;
        }
        self.numbers.insert(name.into(), number);
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_numbers_and_decimals() {
        let mut rest = &b"  one\ttwo  "[..];
        for expected in ["one", "two", ""] {
            assert_eq!(word(&mut rest), expected.as_bytes());
        }
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        let long = "000000000000000000001";
        for bad in ["", "18446744073709551616", "-1", "+1", "1x", long] {
            assert_eq!(number(bad.as_bytes()), None, "{bad}");
        }
        for (text, unit_ns, ns) in [
            ("1700000000.123456", SECOND_NS, 1_700_000_000_123_456_000),
            ("0.0000000019", SECOND_NS, 1),
            ("7", SECOND_NS, 7 * SECOND_NS),
            ("663.00000", US_NS, 663_000),
            ("18446744073709551615", 1, u64::MAX),
        ] {
            assert_eq!(decimal_ns(text.as_bytes(), unit_ns), Some(ns), "{text}");
        }
        for bad in "1. .5 -1 1.-1 1e9 18446744074.0 1.2.3"
            .split(' ')
            .chain([""])
        {
            assert_eq!(decimal_ns(bad.as_bytes(), SECOND_NS), None, "{bad}");
        }
    }

    #[test]
    fn names_are_kept_once_and_up_to_a_limit() {
        let mut names = Names::default();
        assert_eq!(names.get(b"a"), None);
        assert_eq!((names.add(b"a"), names.add(b"b")), (Some(0), Some(1)));
        assert_eq!(
            [b"b", b"b", b"a"].map(|name| names.get(name)),
            [1, 1, 0].map(Some)
        );
        names.bytes = MAX_NAMES_BYTES - 1;
        assert_eq!((names.add(b"c"), names.add(b"d")), (Some(2), None));
    }
}
