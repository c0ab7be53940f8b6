//! Every counter of the state machine, each with its definition. The lab computes ratios and percentiles from the counters.
//!
//! A byte that was read ahead is *used* once a demand read touches its page for the first time; whole pages are counted. At any moment
//! `ra_bytes = used_bytes + unused_bytes + ra_failed_bytes + unresolved_bytes`. Unresolved bytes have been read ahead and are cached or
//! in flight, but no read has touched them yet ([`crate::machine::Machine::stats`] fills in their number).

use crate::policy::Pattern;
use core::fmt;

/// The number of policy decisions by pattern. An answer counts as a decision if it has windows and its rule has a pattern
/// ([`Pattern::of`]), or if it considers the read random (see [`crate::machine::Question::pattern`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decisions([u64; Pattern::ALL.len()]);

impl Decisions {
    /// Counts one decision.
    pub fn count(&mut self, pattern: Pattern) {
        self.0[pattern as usize] += 1;
    }

    /// The number of decisions of one pattern.
    #[must_use]
    pub fn of(&self, pattern: Pattern) -> u64 {
        self.0[pattern as usize]
    }

    /// The number of decisions of all patterns.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Adds the decisions of `other`.
    pub fn add(&mut self, other: &Decisions) {
        self.0
            .iter_mut()
            .zip(other.0)
            .for_each(|(mine, theirs)| *mine += theirs);
    }
}

/// Lists each counter once, and makes of the list both the struct and the names of its fields.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters since the state machine was created. Byte counters count whole pages, clipped to the end of the file, unless stated
        /// otherwise.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            /// Decisions of policies by pattern. Not every decision reads ahead: considering a read random is also a
            /// decision.
            pub decisions: Decisions,
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Stats {
            /// Every counter except the decisions, each with the name of its field in this struct.
            #[must_use]
            pub fn counters(&self) -> [(&'static str, u64); [$(stringify!($name)),*].len()] {
                [$((stringify!($name), self.$name)),*]
            }
        }
    };
}

counters! {
    /// Finished demand reads, successful or not, of at least one byte of the file.
    demand_reads,
    /// Bytes of these reads, clipped to the end of the file; not rounded to pages.
    demand_bytes,
    /// Demand reads with all pages present.
    hits,
    /// Demand reads without a miss that waited for a page in flight.
    late_hits,
    /// Demand reads with at least one page that was neither present nor in flight.
    misses,
    /// Demand reads that ended with an error.
    failed_reads,
    /// Time that demand reads waited, from the start of the read to its last byte, hits excluded. Nanoseconds.
    stall_ns,
    /// Windows planned by a policy that reach beyond the read that caused them.
    ra_planned_ops,
    /// Bytes of these windows outside that read, as planned: not clipped to the file, and cached bytes included.
    ra_planned_bytes,
    /// Fetches submitted with at least one page that no read had demanded.
    ra_ops,
    /// Bytes of the pages that no read had demanded.
    ra_bytes,
    /// Planned bytes that were refused because memory or fetches ran out, and not read. Bytes that the driver refused
    /// to start reading ([`crate::event::Error::Limit`]) had been submitted already, so `ra_failed_bytes` counts them,
    /// too.
    ra_refused_bytes,
    /// Fetches submitted.
    source_reads,
    /// Bytes submitted.
    source_bytes,
    /// Readahead bytes that a demand read touched.
    used_bytes,
    /// Of these, bytes that were still in flight at the touch.
    late_bytes,
    /// Readahead bytes dropped or evicted before any demand touch.
    unused_bytes,
    /// Readahead bytes that failed or were discarded on arrival.
    ra_failed_bytes,
    /// Readahead bytes present or in flight that no demand read has touched yet.
    unresolved_bytes,
    /// Unused bytes that were evicted and then demanded, as long as the ghost list remembers them.
    thrash_bytes,
    /// Pages evicted to make room.
    evicted_pages,
    /// Fetches that failed, except fetches that the driver refused to start.
    failed_fetches,
    /// Fetches whose bytes were discarded because their pages were invalidated in flight.
    doomed_fetches,
}

impl Stats {
    /// Bytes of readahead that are present or in flight, but that no read has touched yet.
    #[must_use]
    pub fn unread_bytes(&self) -> u64 {
        self.ra_bytes
            .saturating_sub(self.used_bytes + self.unused_bytes + self.ra_failed_bytes)
    }

    /// Creates counters: `set` sets some of them, all others are 0. Other crates need this function, because they cannot use a struct
    /// literal: minor versions may add counters.
    ///
    /// ```
    /// let stats = foreread_core::stats::Stats::of(|stats| stats.hits = 3);
    /// assert_eq!((stats.hits, stats.misses), (3, 0));
    /// ```
    #[must_use]
    pub fn of(set: impl FnOnce(&mut Stats)) -> Stats {
        let mut stats = Stats::default();
        set(&mut stats);
        stats
    }
}

/// One line for people. Programs should use the counters, because the wording of this line may change between versions.
///
/// ```
/// let stats = foreread_core::stats::Stats::of(|stats| {
///     (stats.demand_reads, stats.hits, stats.late_hits, stats.misses) = (256, 253, 2, 1);
///     (stats.source_bytes, stats.demand_bytes) = (16 << 20, 16 << 20);
/// });
/// assert_eq!(stats.to_string(), "256 reads: 253 hits, 2 late, 1 miss; 16.0 MiB read for 16.0 MiB asked");
/// ```
impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |n: u64, many: &'static str| if n == 1 { "" } else { many };
        // Tenths of a MiB, rounded.
        let tenths = |bytes: u64| (u128::from(bytes) * 10 + (1 << 19)) >> 20;
        let [read, asked] = [self.source_bytes, self.demand_bytes].map(tenths);
        write!(
            f,
            "{} read{}: {} hit{}, {} late, {} miss{}",
            self.demand_reads,
            plural(self.demand_reads, "s"),
            self.hits,
            plural(self.hits, "s"),
            self.late_hits,
            self.misses,
            plural(self.misses, "es"),
        )?;
        if self.failed_reads > 0 {
            write!(f, ", {} failed", self.failed_reads)?;
        }
        write!(
            f,
            "; {}.{} MiB read for {}.{} MiB asked",
            read / 10,
            read % 10,
            asked / 10,
            asked % 10
        )
    }
}
