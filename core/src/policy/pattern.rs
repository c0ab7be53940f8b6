//! The seven access patterns by which the decisions of all policies are classified. This file is not a policy.
//!
//! Each rule by which a policy decides ([`Why`]) belongs to one pattern or to none. The state machine counts decisions by pattern
//! ([`crate::stats::Decisions`]), so that one line of statistics shows what readahead did under any policy.
//!
//! ```text
//!   initial      FileStart  Sequential  Triggered  Elsewhere     the first window of a stream
//!   subsequent   NextWindow  WindowEnd  NextFile                 the window after the latest one, or the next file
//!   context      Context  FoundMark  Thrashed                    a stream found again from cached pages
//!   around       Around  Code                                    a page fault
//!   hint         Asked                                           WILLNEED, readahead(2), a prefetch of the caller
//!   oversize     Large                                           a read larger than the largest window
//!   random       NoHistory  HintRandom  Shrunk  Broken           only the requested bytes
//!   none         Off  BelowTrigger  NotYet  AllCached  EndOfFile  SpentBytes  ManyMisses
//! ```
//!
//! Example: `linux-6.18` reads pages 0, 1, 2, ... and then page 900. The decision at page 0 has the pattern "initial", the decision at
//! each readahead mark has "subsequent", and the decision at page 900 has "random". Source: the readahead statistics of the series of [Wu
//! 2010a] (2010), which has these patterns. In that series, a stream that thrashes has a separate pattern; here it has the pattern
//! "context".

use super::Why;

/// The access pattern to which a policy's decision responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pattern {
    /// The first window of a stream.
    Initial,
    /// The window after the latest one of a stream.
    Subsequent,
    /// A stream that was detected from cached pages or a mark.
    Context,
    /// Reading around a page fault.
    Around,
    /// A hint gave the bytes.
    Hint,
    /// A read larger than the maximum window.
    Oversize,
    /// A read considered random: nothing is read ahead.
    Random,
}

impl Pattern {
    /// Every pattern, in the order of reports.
    pub const ALL: [Pattern; 7] = [
        Pattern::Initial,
        Pattern::Subsequent,
        Pattern::Context,
        Pattern::Around,
        Pattern::Hint,
        Pattern::Oversize,
        Pattern::Random,
    ];

    /// The pattern's name in JSON, metrics and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Pattern::Initial => "initial",
            Pattern::Subsequent => "subsequent",
            Pattern::Context => "context",
            Pattern::Around => "around",
            Pattern::Hint => "hint",
            Pattern::Oversize => "oversize",
            Pattern::Random => "random",
        }
    }

    /// The pattern of a rule. Returns `None` if the rule only says that readahead is off, has nothing left to do, or waits for more
    /// reads.
    #[must_use]
    pub fn of(rule: Why) -> Option<Pattern> {
        match rule {
            Why::FileStart | Why::Sequential | Why::Triggered | Why::Elsewhere => {
                Some(Pattern::Initial)
            }
            Why::NextWindow | Why::WindowEnd | Why::NextFile => Some(Pattern::Subsequent),
            Why::Context | Why::FoundMark | Why::Thrashed => Some(Pattern::Context),
            Why::Around | Why::Code | Why::Region => Some(Pattern::Around),
            Why::Asked => Some(Pattern::Hint),
            Why::Large => Some(Pattern::Oversize),
            Why::NoHistory | Why::HintRandom | Why::Shrunk | Why::Broken => Some(Pattern::Random),
            Why::Off
            | Why::BelowTrigger
            | Why::NotYet
            | Why::AllCached
            | Why::EndOfFile
            | Why::RunsEnd
            | Why::NoCredit
            | Why::NoRoom
            | Why::SpentBytes
            | Why::ManyMisses => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    #[test]
    fn every_rule_that_reads_ahead_has_a_pattern_and_only_random_reads_nothing_ahead() {
        let names: BTreeSet<&str> = Pattern::ALL.iter().map(|pattern| pattern.name()).collect();
        assert_eq!(names.len(), Pattern::ALL.len());
        assert!(Pattern::ALL.is_sorted());
        for why in Why::ALL {
            let pattern = Pattern::of(why);
            assert_eq!(
                why.is_on(),
                pattern.is_some_and(|p| p != Pattern::Random),
                "{}",
                why.name()
            );
        }
        let met: BTreeSet<Pattern> = Why::ALL.into_iter().filter_map(Pattern::of).collect();
        assert_eq!(met.len(), Pattern::ALL.len(), "a pattern that no rule has");
    }
}
