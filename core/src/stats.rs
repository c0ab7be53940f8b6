//! Every counter of the machine, each with its definition. The lab computes ratios and percentiles.
//!
//! A *used* readahead byte is counted at the first demand touch of its page, whole pages at a time. At any
//! moment `ra_bytes = used_bytes + unused_bytes + ra_failed_bytes + unresolved_bytes`, where unresolved is
//! cached or in flight and untouched ([`crate::machine::Machine::stats`] fills it in).

use crate::policy::Pattern;
use core::fmt;

/// Decisions of policies by pattern. A decision is an answer with windows whose rule has a pattern ([`Pattern::of`]), or
/// one that takes the read for random; [`crate::machine::Question::pattern`] has it in full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decisions([u64; Pattern::ALL.len()]);

impl Decisions {
    /// Counts one.
    pub fn count(&mut self, pattern: Pattern) {
        self.0[pattern as usize] += 1;
    }

    /// Those of one pattern.
    #[must_use]
    pub fn of(&self, pattern: Pattern) -> u64 {
        self.0[pattern as usize]
    }

    /// Those of all patterns.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Adds those of `other`.
    pub fn add(&mut self, other: &Decisions) {
        self.0
            .iter_mut()
            .zip(other.0)
            .for_each(|(mine, theirs)| *mine += theirs);
    }
}

/// The counters, each named once: the struct, and its fields by name.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters since the machine was made. Bytes are bytes of whole pages clipped to the end of the file,
        /// unless said otherwise.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            /// Decisions of policies by pattern. Not all read ahead: a read that is taken for random is a decision, too.
            pub decisions: Decisions,
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Stats {
            /// Every counter by the name of its field, without the decisions.
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
    /// Their bytes, clipped to the end of the file; not rounded to pages.
    demand_bytes,
    /// Demand reads with all pages present.
    hits,
    /// Demand reads without a miss that waited for a page in flight.
    late_hits,
    /// Demand reads that met at least one page neither present nor in flight.
    misses,
    /// Demand reads that ended with an error.
    failed_reads,
    /// Time demand reads waited, from the read to its last byte, hits excluded. Nanoseconds.
    stall_ns,
    /// Windows planned by a policy that reach beyond the read that caused them.
    ra_planned_ops,
    /// Their bytes outside that read, as planned: not clipped to the file or to cached bytes.
    ra_planned_bytes,
    /// Fetches submitted with at least one page that no read had demanded.
    ra_ops,
    /// Bytes of those pages.
    ra_bytes,
    /// Planned bytes that were refused for lack of memory or of fetches, and not read. Those that the driver refused to start
    /// ([`crate::event::Error::Limit`]) had been submitted, and count in `ra_failed_bytes` as well.
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
    /// Unused bytes that were evicted and then demanded, as far as the ghost list remembers.
    thrash_bytes,
    /// Pages evicted for lack of room.
    evicted_pages,
    /// Fetches that failed, other than those that the driver refused to start.
    failed_fetches,
    /// Fetches whose bytes were discarded because they were invalidated in flight.
    doomed_fetches,
}

impl Stats {
    /// Readahead bytes that are submitted, not touched, not dropped and not failed: those present or in flight.
    #[must_use]
    pub fn unread_bytes(&self) -> u64 {
        self.ra_bytes
            .saturating_sub(self.used_bytes + self.unused_bytes + self.ra_failed_bytes)
    }

    /// The counters that `set` sets, the others 0. Counters are added with minor versions, so other crates have no literal.
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

/// One line for people. A program takes the counters, as the line may have other words in another version.
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
