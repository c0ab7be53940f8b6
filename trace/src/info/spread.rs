//! How values are spread: every value counted while there are few different ones, then rounded ones.
//!
//! Never: more than [`MAX_VALUES`] counters, or a rounded figure that is called exact.

use serde::Serialize;
use std::collections::HashMap;

/// Different values that are counted exactly. Beyond that each is rounded down to its 8 highest bits: at most 0.8 % off.
pub const MAX_VALUES: usize = 1 << 14;
const KEPT_BITS: u32 = 8;
/// Values that are named as the commonest.
const COMMONEST: usize = 3;

/// Counts values.
#[derive(Debug, Default)]
pub struct Spread {
    counts: HashMap<u64, u64>,
    rounded: bool,
    least: u64,
    most: u64,
    number: u64,
    sum: u128,
}

/// What they come to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// How many values.
    pub number: u64,
    /// The smallest, always exact.
    pub min: u64,
    /// Half of them are at most this.
    pub p50: u64,
    /// 95 % of them are at most this.
    pub p95: u64,
    /// 99 % of them are at most this.
    pub p99: u64,
    /// The largest, always exact.
    pub max: u64,
    /// Their mean, always exact.
    pub mean: f64,
    /// The commonest values, the commonest first, each with its count.
    pub commonest: Vec<(u64, u64)>,
    /// False where there were too many different ones: percentiles and the commonest are up to 0.8 % low then.
    pub exact: bool,
}

impl Spread {
    /// One more value.
    pub fn add(&mut self, value: u64) {
        (self.least, self.most) = match self.number {
            0 => (value, value),
            _ => (self.least.min(value), self.most.max(value)),
        };
        self.number += 1;
        self.sum += u128::from(value);
        let key = if self.rounded { rounded(value) } else { value };
        *self.counts.entry(key).or_default() += 1;
        if self.counts.len() > MAX_VALUES && !self.rounded {
            self.rounded = true;
            let mut counts = HashMap::new();
            self.counts
                .drain()
                .for_each(|(value, n)| *counts.entry(rounded(value)).or_default() += n);
            self.counts = counts;
        }
    }

    /// Nothing where there was no value.
    pub fn summary(&self) -> Option<Summary> {
        if self.number == 0 {
            return None;
        }
        let mut sorted: Vec<(u64, u64)> =
            self.counts.iter().map(|(value, n)| (*value, *n)).collect();
        sorted.sort_unstable();
        // The nearest rank: the smallest value that this many are not above.
        let at = |percent: u64| {
            let wanted = (u128::from(self.number) * u128::from(percent)).div_ceil(100);
            let mut seen = 0_u128;
            let found = sorted.iter().find(|(_, n)| {
                seen += u128::from(*n);
                seen >= wanted
            });
            found.map_or(self.most, |(value, _)| *value)
        };
        let (p50, p95, p99) = (at(50), at(95), at(99));
        sorted.sort_by_key(|(value, n)| (std::cmp::Reverse(*n), *value));
        sorted.truncate(COMMONEST);
        Some(Summary {
            number: self.number,
            min: self.least,
            p50,
            p95,
            p99,
            max: self.most,
            mean: self.sum as f64 / self.number as f64,
            commonest: sorted,
            exact: !self.rounded,
        })
    }
}

/// Its highest bits.
fn rounded(value: u64) -> u64 {
    let bits = u64::BITS - value.leading_zeros();
    let drop = bits.saturating_sub(KEPT_BITS);
    value >> drop << drop
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_values_are_exact_and_many_are_near() {
        let mut spread = Spread::default();
        assert_eq!(spread.summary(), None);
        for value in (1..=100).chain([7, 7, 8]) {
            spread.add(value);
        }
        let s = spread.summary().expect("values");
        assert_eq!(
            (s.number, s.min, s.p50, s.p95, s.p99, s.max),
            (103, 1, 49, 95, 99, 100)
        );
        assert_eq!(s.commonest, [(7, 3), (8, 2), (1, 1)]);
        assert!(s.exact);
        for value in 1..=MAX_VALUES as u64 + 1 {
            spread.add(value << 30 | 1);
        }
        let s = spread.summary().expect("values");
        assert!(
            !s.exact && spread.counts.len() < MAX_VALUES,
            "{}",
            spread.counts.len()
        );
        let middle = (MAX_VALUES as f64 / 2.0 - 51.0) * f64::from(1 << 30);
        assert!(
            (0.99..1.0).contains(&(s.p50 as f64 / middle)),
            "{} {middle}",
            s.p50
        );
        assert_eq!((s.min, s.max), (1, (MAX_VALUES as u64 + 1) << 30 | 1));
        assert_eq!(
            (rounded(255), rounded(511), rounded(u64::MAX)),
            (255, 510, 0xff << 56)
        );
    }
}
