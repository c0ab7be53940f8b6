//! A set of byte ranges; touching ranges are merged.
//!
//! ```text
//!   0..4K, 8K..12K   add 2K..9K   new: 4K..8K   the set: 0..12K
//! ```

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges that do not touch, by their start.
#[derive(Debug, Default)]
pub struct Intervals(BTreeMap<u64, u64>);

impl Intervals {
    /// Adds a range and gives the parts that are new, in order.
    pub fn add(&mut self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut new = Vec::new();
        if range.is_empty() {
            return new;
        }
        let (mut start, mut end, mut at) = (range.start, range.end, range.start);
        let before = self
            .0
            .range(..range.start)
            .next_back()
            .map(|(start, end)| (*start, *end));
        let first = before
            .filter(|(_, end)| *end >= range.start)
            .map_or(range.start, |(start, _)| start);
        let touched: Vec<(u64, u64)> = self
            .0
            .range(first..=range.end)
            .map(|(start, end)| (*start, *end))
            .collect();
        for (known_start, known_end) in touched {
            if known_start > at {
                new.push(at..known_start.min(range.end));
            }
            at = at.max(known_end);
            (start, end) = (start.min(known_start), end.max(known_end));
            self.0.remove(&known_start);
        }
        if at < range.end {
            new.push(at..range.end);
        }
        self.0.insert(start, end);
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_is_what_no_earlier_range_has() {
        let mut set = Intervals::default();
        // Small numbers, so that all ways of touching occur; a plain set of bytes is the judge.
        let mut bytes = [false; 64];
        let mut seed: u64 = 1;
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (start, len) = (seed >> 33 & 63, seed >> 40 & 7);
            let range = start..(start + len).min(64);
            let new: Vec<u64> = set.add(&range).into_iter().flatten().collect();
            let expected: Vec<u64> = range
                .clone()
                .filter(|byte| !bytes[*byte as usize])
                .collect();
            assert_eq!(new, expected, "{range:?}");
            range.for_each(|byte| bytes[byte as usize] = true);
            if seed.is_multiple_of(97) {
                (set, bytes) = (Intervals::default(), [false; 64]);
            }
        }
    }
}
