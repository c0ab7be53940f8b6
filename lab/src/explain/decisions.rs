//! Decisions of a policy by pattern, of a part of a run: how often readahead began, went on, was found again, and so on.
//!
//! A decision and its pattern are the core's ([`foreread_core::policy::Pattern`]); here they are counted for streams,
//! files and the whole, under names that JSON and text share. The decisions of all files together are the machine's own
//! counters (`Share::differs_from`).

use foreread_core::policy::Pattern;
use foreread_core::stats;
use serde::{Deserialize, Serialize};

/// Decisions by pattern, and their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decisions {
    /// The first window of a stream.
    pub initial: u64,
    /// The window after the latest one of a stream.
    pub subsequent: u64,
    /// A stream that cached pages or a mark tell of.
    pub context: u64,
    /// Reading around a page fault.
    pub around: u64,
    /// A hint names the bytes.
    pub hint: u64,
    /// A read larger than the largest window.
    pub oversize: u64,
    /// A read that is taken for random.
    pub random: u64,
    pub all: u64,
}

impl Decisions {
    pub(super) fn count(&mut self, pattern: Pattern) {
        *self.of_mut(pattern) += 1;
        self.all += 1;
    }

    /// Both together.
    pub(super) fn add(&mut self, other: &Decisions) {
        Pattern::ALL
            .into_iter()
            .for_each(|pattern| *self.of_mut(pattern) += other.of(pattern));
        self.all += other.all;
    }

    /// Those that are in `self` and not in `part`.
    pub(super) fn less(&self, part: &Decisions) -> Decisions {
        let mut rest = *self;
        Pattern::ALL
            .into_iter()
            .for_each(|pattern| *rest.of_mut(pattern) -= part.of(pattern));
        rest.all -= part.all;
        rest
    }

    /// Those of one pattern.
    #[must_use]
    pub fn of(&self, pattern: Pattern) -> u64 {
        let mut copy = *self;
        *copy.of_mut(pattern)
    }

    fn of_mut(&mut self, pattern: Pattern) -> &mut u64 {
        match pattern {
            Pattern::Initial => &mut self.initial,
            Pattern::Subsequent => &mut self.subsequent,
            Pattern::Context => &mut self.context,
            Pattern::Around => &mut self.around,
            Pattern::Hint => &mut self.hint,
            Pattern::Oversize => &mut self.oversize,
            Pattern::Random => &mut self.random,
        }
    }

    /// One line: every pattern that occurred, and the sum.
    #[must_use]
    pub fn words(&self) -> String {
        let one = |pattern: Pattern| {
            format!(
                "{} {}",
                foreread_report::number::count(self.of(pattern)),
                pattern.name()
            )
        };
        let met: Vec<String> = Pattern::ALL
            .into_iter()
            .filter(|p| self.of(*p) > 0)
            .map(one)
            .collect();
        let met = if met.is_empty() {
            "none".to_string()
        } else {
            met.join(", ")
        };
        format!(
            "Decisions by pattern: {met}; {} in all.",
            foreread_report::number::count(self.all)
        )
    }
}

impl From<&stats::Decisions> for Decisions {
    fn from(counted: &stats::Decisions) -> Decisions {
        let mut decisions = Decisions {
            all: counted.all(),
            ..Decisions::default()
        };
        Pattern::ALL
            .into_iter()
            .for_each(|pattern| *decisions.of_mut(pattern) = counted.of(pattern));
        decisions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pattern_is_counted_under_its_name() {
        let (mut ours, mut counted) = (Decisions::default(), stats::Decisions::default());
        for (n, pattern) in Pattern::ALL.into_iter().enumerate() {
            for _ in 0..=n {
                ours.count(pattern);
                counted.count(pattern);
            }
        }
        assert_eq!(ours, Decisions::from(&counted));
        let json = serde_json::to_value(ours).expect("numbers");
        for (n, pattern) in Pattern::ALL.into_iter().enumerate() {
            assert_eq!(json[pattern.name()], n as u64 + 1, "{}", pattern.name());
        }
        assert_eq!(
            (&json["all"], json.as_object().map(serde_json::Map::len)),
            (&28.into(), Some(8))
        );
        let mut twice = ours;
        twice.add(&ours);
        assert_eq!((twice.all, twice.less(&ours)), (56, ours));
        assert_eq!(
            Decisions::default().words(),
            "Decisions by pattern: none; 0 in all."
        );
        let text = Decisions {
            initial: 1,
            random: 2000,
            all: 2001,
            ..Decisions::default()
        }
        .words();
        assert_eq!(
            text,
            "Decisions by pattern: 1 initial, 2000 random; 2001 in all."
        );
    }
}
