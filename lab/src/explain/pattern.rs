//! How a file was read, by the offsets of its reads alone.
//!
//! Never: what a policy took it for.

use super::streams::StreamSummary;
use foreread_report::number;
use serde::{Deserialize, Serialize};

/// A part of the reads from which on a pattern is called by its name alone.
const NEARLY_ALL: f64 = 0.9;

/// Shares of the reads of a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pattern {
    /// In one word or two: `sequential`, `3 interleaved`, `strided 64K`, `random`, `80 % sequential`.
    pub words: String,
    /// Part of the reads in sequential streams (whole files in one read among them). Null without reads.
    pub sequential: Option<f64>,
    /// Part of the reads in backward streams.
    pub backward: Option<f64>,
    /// Part of the reads in strided streams.
    pub strided: Option<f64>,
    /// Part of the reads in no stream.
    pub random: Option<f64>,
    /// Sequential streams that were under way through one open description at once, at most.
    pub interleaved: u64,
}

/// Reads of each kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// In sequential streams.
    pub sequential: u64,
    /// In backward ones.
    pub backward: u64,
    /// In strided ones.
    pub strided: u64,
    /// In none.
    pub random: u64,
    /// The step of the strided stream with most reads.
    pub step: i64,
    /// See [`Pattern::interleaved`].
    pub interleaved: u64,
}

impl Pattern {
    /// Of these reads.
    #[must_use]
    pub fn of(tally: &Tally) -> Pattern {
        let all = tally.sequential + tally.backward + tally.strided + tally.random;
        let part = |n: u64| foreread_sim::stats::ratio(n as f64, all as f64);
        let step = number::size_b(tally.step.unsigned_abs());
        let sequential = match tally.interleaved {
            0 | 1 => "sequential".to_string(),
            n => format!("{n} interleaved"),
        };
        let kinds = [
            (tally.sequential, sequential),
            (tally.backward, "backward".to_string()),
            (tally.strided, format!("strided {step}")),
            (tally.random, "random".to_string()),
        ];
        let most = kinds.iter().max_by_key(|(n, _)| *n).filter(|(n, _)| *n > 0);
        let words = most.map_or_else(
            || "not read".to_string(),
            |(n, name)| match part(*n).unwrap_or(0.0) {
                p if p >= NEARLY_ALL => name.clone(),
                p => format!("{} % {name}", number::percent(p)),
            },
        );
        Pattern {
            words,
            sequential: part(tally.sequential),
            backward: part(tally.backward),
            strided: part(tally.strided),
            random: part(tally.random),
            interleaved: tally.interleaved,
        }
    }
}

/// How many of these streams of one open description were under way at once, at most. One that has ended before another
/// begins is not beside it.
#[must_use]
pub fn at_once(streams: &[&StreamSummary]) -> u64 {
    let mut edges: Vec<(u64, i64)> = streams
        .iter()
        .flat_map(|s| [(s.first, 1), (s.last + 1, -1)])
        .collect();
    edges.sort_unstable();
    let (mut now, mut most) = (0_i64, 0);
    for (_, change) in edges {
        now += change;
        most = most.max(now);
    }
    most as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_say_what_most_reads_are() {
        let words = |tally: Tally| Pattern::of(&tally).words;
        assert_eq!(
            words(Tally {
                sequential: 95,
                random: 5,
                ..Tally::default()
            }),
            "sequential"
        );
        assert_eq!(
            words(Tally {
                sequential: 95,
                interleaved: 3,
                ..Tally::default()
            }),
            "3 interleaved"
        );
        assert_eq!(
            words(Tally {
                strided: 60,
                step: -65_536,
                random: 40,
                ..Tally::default()
            }),
            "60 % strided 64K"
        );
        assert_eq!(
            words(Tally {
                random: 1,
                ..Tally::default()
            }),
            "random"
        );
        assert_eq!(words(Tally::default()), "not read");
        assert_eq!(Pattern::of(&Tally::default()).random, None);
    }

    #[test]
    fn streams_are_beside_each_other_while_both_go_on() {
        let seen = |first, last| StreamSummary {
            first,
            last,
            ..StreamSummary::default()
        };
        assert_eq!(at_once(&[&seen(0, 9), &seen(10, 19)]), 1);
        assert_eq!(at_once(&[&seen(0, 10), &seen(9, 19), &seen(10, 11)]), 3);
        assert_eq!(at_once(&[]), 0);
    }
}
