//! Counters of the reads and the readahead of one file, or of all files together.

use foreread_core::machine::Verdict;
use foreread_core::stats::Stats;
use serde::{Deserialize, Serialize};

/// Defines the struct, its sum, and its comparison with the machine's counters of the same names.
macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of the reads and readahead of a file. Each counter is defined like the counter of the same name in [`Stats`].
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counts {
            pub fn add(&mut self, other: &Counts) {
                $(self.$name += other.$name;)*
            }

            /// Returns the name of the first counter whose value differs from the counter in `stats`, with both values.
            #[must_use]
            pub fn differs_from(&self, stats: &Stats) -> Option<(&'static str, [u64; 2])> {
                let both = [$((stringify!($name), [self.$name, stats.$name]),)*];
                both.into_iter().find(|(_, [ours, machine])| ours != machine)
            }
        }
    };
}

counts! {
    /// Demand reads and faults.
    demand_reads,
    demand_bytes,
    /// Reads that found every page present.
    hits,
    /// Reads that waited for a page in flight and missed none.
    late_hits,
    /// Reads with at least one page neither present nor in flight.
    misses,
    stall_ns,
    /// Windows that extend beyond the read that caused them.
    ra_planned_ops,
    ra_planned_bytes,
    /// Bytes of these windows refused for lack of room.
    ra_refused_bytes,
    /// Fetches that contain readahead.
    ra_ops,
    ra_bytes,
    /// Bytes of these fetches that were demanded.
    used_bytes,
    /// Used bytes that were still in flight at the first touch.
    late_bytes,
    /// Bytes read ahead, and evicted or dropped before any touch.
    unused_bytes,
    /// Bytes read ahead that failed in flight.
    ra_failed_bytes,
    /// Bytes read ahead, and untouched at the end of the run.
    unresolved_bytes,
    /// Unused bytes that were demanded after they had been evicted.
    thrash_bytes,
    /// Fetches that begin in this file.
    source_reads,
    source_bytes,
}

impl Counts {
    /// Counts a read that has ended.
    pub(super) fn served(&mut self, bytes: u64, verdict: Verdict, stall_ns: u64) {
        self.demand_reads += 1;
        self.demand_bytes += bytes;
        self.stall_ns += stall_ns;
        match verdict {
            Verdict::Hit => self.hits += 1,
            Verdict::Late => self.late_hits += 1,
            Verdict::Miss => self.misses += 1,
        }
    }

    /// Returns the number of bytes that were read ahead and never read, whether or not they were evicted.
    #[must_use]
    pub fn never_read_bytes(&self) -> u64 {
        self.unused_bytes + self.unresolved_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_differs_is_named() {
        let stats = Stats::of(|stats| stats.used_bytes = 7);
        let mut counts = Counts::default();
        assert_eq!(counts.differs_from(&stats), Some(("used_bytes", [0, 7])));
        let used_bytes = 7;
        counts.add(&Counts {
            used_bytes,
            ..counts
        });
        assert_eq!(counts.differs_from(&stats), None);
    }
}
