//! The current figures of an adaptive policy, and what limits them.
//!
//! A report asks for it between events ([`crate::machine::Machine::tuning`]); it takes part in no decision. A policy with fixed
//! settings has none.
//!
//! Example: a store of 30 ms and 190 MB/s, read in order by one reader. The product is 5.7 MB, the farthest stream is
//! 22.8 MB ahead, which is the limit of four products: [`Limit::Source`].

/// The limit of the farthest stream's distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// No stream is read ahead.
    Idle,
    /// Its reader does not wait for readahead, so more would not help.
    Reader,
    /// Farther ahead the source is at its maximum rate: the limit follows from rate x latency.
    Source,
    /// Its share of the cache.
    Cache,
    /// Runs like it have ended before.
    Evidence,
    /// The waste budget is spent.
    Credit,
}

impl Limit {
    /// Every limit.
    pub const ALL: [Limit; 6] = [
        Limit::Idle,
        Limit::Reader,
        Limit::Source,
        Limit::Cache,
        Limit::Evidence,
        Limit::Credit,
    ];

    /// Its name in metrics and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Limit::Idle => "idle",
            Limit::Reader => "reader",
            Limit::Source => "source",
            Limit::Cache => "cache",
            Limit::Evidence => "evidence",
            Limit::Credit => "credit",
        }
    }

    /// The same for people: the words after "because".
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Limit::Idle => "no reads follow each other",
            Limit::Reader => "that is soon enough for its reader",
            Limit::Source => "the source is at its maximum rate",
            Limit::Cache => "the cache is full",
            Limit::Evidence => "runs like it have ended before",
            Limit::Credit => "the waste budget is spent",
        }
    }
}

/// The figures. Sizes are in bytes; 0 is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tuning {
    /// Time from a fetch to its first bytes on an idle source, in nanoseconds.
    pub latency_ns: u64,
    /// The greatest rate of the last rounds, in bytes a second; not known until the source was busy.
    pub rate: u64,
    /// How far the farthest active stream reads ahead.
    pub distance_bytes: u64,
    /// How far one stream may read ahead now.
    pub max_distance_bytes: u64,
    /// Length of a request of the farthest stream.
    pub request_bytes: u64,
    /// Streams that went on lately.
    pub streams: u64,
    /// Readahead that was wasted since the source was opened.
    pub wasted_bytes: u64,
    /// Readahead that may be expected to be wasted now.
    pub credit_bytes: u64,
    /// Part of the cache's room for readahead that is used, in 64ths: less after readahead was evicted unread.
    pub cache_share: u64,
    /// Runs of reads that are over, the older ones forgotten, and those of them that went on after they had been found.
    pub runs: u64,
    /// The second of these.
    pub runs_went_on: u64,
    /// The limit of the distance.
    pub limit: Limit,
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    #[test]
    fn each_limit_has_its_own_name_and_words() {
        let names: BTreeSet<&str> = Limit::ALL.iter().map(|limit| limit.name()).collect();
        let words: BTreeSet<&str> = Limit::ALL.iter().map(|limit| limit.words()).collect();
        assert_eq!(
            (names.len(), words.len()),
            (Limit::ALL.len(), Limit::ALL.len())
        );
    }
}
