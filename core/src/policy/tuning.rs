//! The current settings and measurements of an adaptive policy, and what limits its readahead distance.
//!
//! Reports query these figures between two events ([`crate::machine::Machine::tuning`]); the figures influence no decision. Only an
//! adaptive policy has these settings and measurements.
//!
//! Example: one reader reads sequentially from a store with 30 ms latency and 190 MB/s. The store's product of rate and latency is 5.7
//! MB. Readahead is 22.8 MB ahead of the reader. This distance is four times the product of rate and latency, which is the limit
//! [`Limit::Source`].

/// What limits the readahead distance of the stream with the longest distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// No stream is read ahead.
    Idle,
    /// Its reader does not wait for readahead, so more would not help.
    Reader,
    /// The source is at its maximum rate, so reading farther ahead would not help. The limit is computed from rate x
    /// latency.
    Source,
    /// The stream's share of the cache.
    Cache,
    /// Earlier runs of this length have ended here.
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

    /// The limit's name in metrics and JSON.
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

    /// Like [`Self::name`], but for people: the words that follow "because" in a report.
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

/// The figures. All sizes are in bytes; 0 means not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tuning {
    /// Time from a fetch to its first bytes on an idle source, in nanoseconds.
    pub latency_ns: u64,
    /// The maximum rate of the latest rounds, in bytes per second; not known until the source was busy.
    pub rate: u64,
    /// How far the farthest active stream reads ahead.
    pub distance_bytes: u64,
    /// How far one stream may read ahead now.
    pub max_distance_bytes: u64,
    /// Length of a request of the farthest stream.
    pub request_bytes: u64,
    /// Streams that continued recently.
    pub streams: u64,
    /// Readahead that was wasted since the source was opened.
    pub wasted_bytes: u64,
    /// Readahead that may be wasted from now on.
    pub credit_bytes: u64,
    /// The used part of the cache's room for readahead, in 64ths. It shrinks after reads missed inside its readahead.
    pub cache_share: u64,
    /// Runs of reads that are over; older runs are gradually forgotten.
    pub runs: u64,
    /// How many of these runs continued after they had been detected.
    pub runs_went_on: u64,
    /// What limits the distance.
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
