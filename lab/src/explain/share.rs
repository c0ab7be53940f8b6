//! What happened to some of a run's reads and to the readahead that was planned at them: of a stream, of a file, of all.
//!
//! Each counter means what it means in [`foreread_core::stats::Stats`]; those of all files together are that, to the byte
//! ([`Share::differs_from`]), or the explanation is wrong. Never: a ratio.

use super::decisions::Decisions;
use foreread_core::machine::Verdict;
use foreread_core::policy::Pattern;
use foreread_core::stats::Stats;
use serde::{Deserialize, Serialize};

/// Counters of a part of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Demand reads and faults.
    pub demand_reads: u64,
    /// Bytes they asked for.
    pub demand_bytes: u64,
    /// Those that found every page present.
    pub hits: u64,
    /// Those that waited for a page in flight and missed none.
    pub late_hits: u64,
    /// Those that met a page neither present nor in flight.
    pub misses: u64,
    /// Time they waited for the source, in nanoseconds.
    pub stall_ns: u64,
    /// Windows that reach beyond the read they were planned at.
    pub ra_planned_ops: u64,
    /// Their bytes beyond it, as asked for.
    pub ra_planned_bytes: u64,
    /// Of these, refused for lack of room.
    pub ra_refused_bytes: u64,
    /// Fetches with readahead in them.
    pub ra_ops: u64,
    /// Bytes read ahead.
    pub ra_bytes: u64,
    /// Of these, demanded.
    pub used_bytes: u64,
    /// Of these, still in flight at the first touch.
    pub late_bytes: u64,
    /// Read ahead, and evicted or dropped before any touch.
    pub unused_bytes: u64,
    /// Read ahead and lost in flight.
    pub ra_failed_bytes: u64,
    /// Read ahead and still untouched at the end of the run.
    pub unresolved_bytes: u64,
    /// Unused bytes that were demanded after they had been evicted. Known of a file, not of a stream.
    pub thrash_bytes: u64,
    /// Fetches. Known of a file, not of a stream.
    pub source_reads: u64,
    /// Their bytes. Known of a file, not of a stream.
    pub source_bytes: u64,
    /// What the policy decided, by pattern.
    #[serde(default)]
    pub decisions: Decisions,
}

impl Share {
    /// A read has ended.
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

    /// Both together.
    pub fn add(&mut self, other: &Share) {
        let mine = self.fields_mut();
        mine.into_iter()
            .zip(other.fields())
            .for_each(|(mine, other)| *mine += other);
        self.decisions.add(&other.decisions);
    }

    /// The readahead of this file that is none of its streams': by hints.
    #[must_use]
    pub(super) fn less_readahead_of(&self, streams: &Share) -> Share {
        Share {
            ra_planned_ops: self.ra_planned_ops - streams.ra_planned_ops,
            ra_planned_bytes: self.ra_planned_bytes - streams.ra_planned_bytes,
            ra_refused_bytes: self.ra_refused_bytes - streams.ra_refused_bytes,
            ra_ops: self.ra_ops - streams.ra_ops,
            ra_bytes: self.ra_bytes - streams.ra_bytes,
            used_bytes: self.used_bytes - streams.used_bytes,
            late_bytes: self.late_bytes - streams.late_bytes,
            unused_bytes: self.unused_bytes - streams.unused_bytes,
            ra_failed_bytes: self.ra_failed_bytes - streams.ra_failed_bytes,
            unresolved_bytes: self.unresolved_bytes - streams.unresolved_bytes,
            decisions: self.decisions.less(&streams.decisions),
            ..Share::default()
        }
    }

    /// Read ahead for nothing: unused so far, whether it has left the cache or not.
    #[must_use]
    pub fn in_vain_bytes(&self) -> u64 {
        self.unused_bytes + self.unresolved_bytes
    }

    /// The first counter in which these sums are not the machine's own, and both values.
    #[must_use]
    pub fn differs_from(&self, stats: &Stats) -> Option<(&'static str, [u64; 2])> {
        let of_machine = Share::of(stats);
        let all = NAMES.iter().zip(self.fields()).zip(of_machine.fields());
        let counters = all.map(|((name, ours), theirs)| (*name, [ours, theirs]));
        let decision = |pattern: Pattern| {
            let both = [self, &of_machine].map(|share| share.decisions.of(pattern));
            (DECISIONS[pattern as usize], both)
        };
        counters
            .chain(Pattern::ALL.into_iter().map(decision))
            .find(|(_, [ours, theirs])| ours != theirs)
    }

    /// The counters of a whole run.
    #[must_use]
    pub fn of(stats: &Stats) -> Share {
        Share {
            demand_reads: stats.demand_reads,
            demand_bytes: stats.demand_bytes,
            hits: stats.hits,
            late_hits: stats.late_hits,
            misses: stats.misses,
            stall_ns: stats.stall_ns,
            ra_planned_ops: stats.ra_planned_ops,
            ra_planned_bytes: stats.ra_planned_bytes,
            ra_refused_bytes: stats.ra_refused_bytes,
            ra_ops: stats.ra_ops,
            ra_bytes: stats.ra_bytes,
            used_bytes: stats.used_bytes,
            late_bytes: stats.late_bytes,
            unused_bytes: stats.unused_bytes,
            ra_failed_bytes: stats.ra_failed_bytes,
            unresolved_bytes: stats.unresolved_bytes,
            thrash_bytes: stats.thrash_bytes,
            source_reads: stats.source_reads,
            source_bytes: stats.source_bytes,
            decisions: Decisions::from(&stats.decisions),
        }
    }

    fn fields(&self) -> [u64; 19] {
        let mut copy = *self;
        copy.fields_mut().map(|field| *field)
    }

    /// In the order of [`NAMES`].
    fn fields_mut(&mut self) -> [&mut u64; 19] {
        [
            &mut self.demand_reads,
            &mut self.demand_bytes,
            &mut self.hits,
            &mut self.late_hits,
            &mut self.misses,
            &mut self.stall_ns,
            &mut self.ra_planned_ops,
            &mut self.ra_planned_bytes,
            &mut self.ra_refused_bytes,
            &mut self.ra_ops,
            &mut self.ra_bytes,
            &mut self.used_bytes,
            &mut self.late_bytes,
            &mut self.unused_bytes,
            &mut self.ra_failed_bytes,
            &mut self.unresolved_bytes,
            &mut self.thrash_bytes,
            &mut self.source_reads,
            &mut self.source_bytes,
        ]
    }
}

const NAMES: [&str; 19] = [
    "demand_reads",
    "demand_bytes",
    "hits",
    "late_hits",
    "misses",
    "stall_ns",
    "ra_planned_ops",
    "ra_planned_bytes",
    "ra_refused_bytes",
    "ra_ops",
    "ra_bytes",
    "used_bytes",
    "late_bytes",
    "unused_bytes",
    "ra_failed_bytes",
    "unresolved_bytes",
    "thrash_bytes",
    "source_reads",
    "source_bytes",
];

/// The same of [`Decisions`], in the order of [`Pattern::ALL`].
const DECISIONS: [&str; Pattern::ALL.len()] = [
    "decisions (initial)",
    "decisions (subsequent)",
    "decisions (context)",
    "decisions (around)",
    "decisions (hint)",
    "decisions (oversize)",
    "decisions (random)",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_has_its_name_and_its_place() {
        let mut share = Share::default();
        for (n, field) in share.fields_mut().into_iter().enumerate() {
            *field = n as u64 + 1;
        }
        let json = serde_json::to_value(share).expect("numbers");
        for (n, name) in NAMES.iter().enumerate() {
            assert_eq!(json[name], n as u64 + 1, "{name}");
        }
        assert_eq!(
            json.as_object().map(serde_json::Map::len),
            Some(NAMES.len() + 1),
            "and the decisions"
        );
        let mut sum = share;
        sum.add(&share);
        assert_eq!(sum.fields().map(|v| v / 2), share.fields());
        let stats = Stats::of(|stats| stats.used_bytes = 7);
        assert_eq!(
            Share::default().differs_from(&stats),
            Some(("used_bytes", [0, 7]))
        );
        assert_eq!(Share::of(&stats).differs_from(&stats), None);
        let mut stats = Stats::default();
        stats.decisions.count(Pattern::Hint);
        assert_eq!(
            Share::default().differs_from(&stats),
            Some(("decisions (hint)", [0, 1]))
        );
        for (pattern, name) in Pattern::ALL.into_iter().zip(DECISIONS) {
            assert_eq!(name, format!("decisions ({})", pattern.name()));
        }
    }
}
