//! When a line of strace is from, in nanoseconds since the first line.
//!
//! | option | a line begins with | which is |
//! |---|---|---|
//! | `-ttt` | `1700000000.123456` | since 1970 |
//! | `-tt`, `-t` | `13:05:59.123456`, `13:05:59` | the time of day; where it falls by more than half a day, midnight has passed |
//! | `-r` | `0.000123` | since the line before, of whatever thread |
//! | none | | unknown |
//!
//! With `-t` many calls have one time. `-r` beside another time is passed over: the other is absolute.

use super::super::super::error::Fault;
use super::super::scan::{self, SECOND_NS as NS};

/// Times before 1973 are not times since 1970 but since the line before.
const OLDEST_NS: u64 = 100_000_000 * NS;
const DAY_NS: u64 = 86_400 * NS;

const BACKWARDS: Fault = (
    "time goes backwards",
    "the clock was set; cut the trace before this line",
);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// Nanoseconds since 1970.
    Epoch(u64),
    /// Nanoseconds since midnight.
    Day(u64),
    /// Nanoseconds since the line before.
    Since(u64),
}

impl Stamp {
    /// Reads a word; nothing where it is no time.
    pub fn of(word: &[u8]) -> Option<Stamp> {
        let mut parts = word.splitn(3, |b| *b == b':');
        let (first, minutes, seconds) = (parts.next()?, parts.next(), parts.next());
        let Some((minutes, seconds)) = minutes.zip(seconds) else {
            return match scan::decimal_ns(word, NS)? {
                ns if ns >= OLDEST_NS => Some(Stamp::Epoch(ns)),
                ns => Some(Stamp::Since(ns)),
            };
        };
        let (hours, minutes, ns) = (
            scan::number(first)?,
            scan::number(minutes)?,
            scan::decimal_ns(seconds, NS)?,
        );
        // A leap second is the sixtieth.
        let is_time = hours < 24 && minutes < 60 && ns < 61 * NS;
        is_time.then_some(Stamp::Day((hours * 3600 + minutes * 60) * NS + ns))
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// The first stamp, whose kind all others have.
    first: Stamp,
    /// Of the line before, from the first.
    now_ns: u64,
}

impl Clock {
    pub fn new(first: Stamp) -> Clock {
        Clock { first, now_ns: 0 }
    }

    /// The time of the next line, from the first. Nothing where it is of another kind.
    pub fn at(&mut self, stamp: Stamp, is_first: bool) -> Result<Option<u64>, Fault> {
        let at_ns = match (self.first, stamp) {
            (Stamp::Epoch(first), Stamp::Epoch(at)) => at.checked_sub(first),
            (Stamp::Day(first), Stamp::Day(at)) => {
                let (before, now) = (
                    first + self.now_ns,
                    at + (first + self.now_ns) / DAY_NS * DAY_NS,
                );
                let passed = if now + DAY_NS / 2 < before { DAY_NS } else { 0 };
                (now + passed).checked_sub(first)
            }
            (Stamp::Since(_), Stamp::Since(passed)) if !is_first => {
                Some(self.now_ns.saturating_add(passed))
            }
            (Stamp::Since(_), Stamp::Since(_)) => Some(0),
            _ => return Ok(None),
        };
        self.now_ns = at_ns.filter(|at| *at >= self.now_ns).ok_or(BACKWARDS)?;
        Ok(Some(self.now_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_every_kind() {
        let stamps = |words: &[&str]| -> Vec<Option<u64>> {
            let stamps: Vec<Stamp> = words
                .iter()
                .map(|word| Stamp::of(word.as_bytes()).expect("a time"))
                .collect();
            let mut clock = Clock::new(stamps[0]);
            stamps
                .iter()
                .enumerate()
                .map(|(i, stamp)| clock.at(*stamp, i == 0).ok().flatten())
                .collect()
        };
        assert_eq!(
            stamps(&["1700000000.5", "1700000001.25"]),
            [Some(0), Some(750_000_000)]
        );
        assert_eq!(
            stamps(&["10:00:00", "10:00:01", "10:00:01"]),
            [Some(0), Some(NS), Some(NS)]
        );
        let midnight = ["23:59:59.5", "00:00:00.25", "13:00:00", "00:00:01"];
        let one = 13 * 3600 * NS + NS / 2;
        assert_eq!(
            stamps(&midnight),
            [
                Some(0),
                Some(NS / 4 * 3),
                Some(one),
                Some(one + 11 * 3600 * NS + NS)
            ]
        );
        // The first one is since the start of strace.
        assert_eq!(
            stamps(&["0.5", "0.25", "0.000001"]),
            [Some(0), Some(NS / 4), Some(NS / 4 + 1000)]
        );
        assert_eq!(
            stamps(&["10:00:01", "10:00:00"]),
            [Some(0), None],
            "backwards"
        );
        assert_eq!(
            stamps(&["10:00:01", "0.5"]),
            [Some(0), None],
            "another kind"
        );
        for word in [
            "x", "24:00:00", "10:60:00", "10:00:61", "10:00", "1:2:3:4", ":",
        ] {
            assert_eq!(Stamp::of(word.as_bytes()), None, "{word}");
        }
    }
}
