//! Infers which reads of a trace waited for which other reads, if the trace contains only when each read started and
//! ended.
//!
//! A read is assumed to depend on all reads that ended before it began, except for reads on which it already depends indirectly, through
//! another of these reads. `rbd-replay-prep` has the same rule, so a replay without pauses issues the same reads in the same order as
//! `rbd-replay` at full speed. If the trace has only one read in flight at a time, each read waits for the previous read. Otherwise the
//! replay has at most as many reads in flight as the trace. A read never waits for another read that was still in flight when it began.
//!
//! ```text
//!   a ├────┤
//!   b ├──────┤                c waits for the ends of a and b
//!   c          ├────┤
//!   d            ├────────┤   so does d: c is in flight
//!   e                 ├──┤    waits for c alone, which had waited for a and b
//! ```

use super::KeptRecord;
use foreread_trace::After;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Returns for each record the records for whose ends it waits, with the time from each of these ends to the record's start.
pub fn waits(records: &[KeptRecord]) -> Vec<Vec<After>> {
    let mut waits: Vec<Vec<After>> = Vec::with_capacity(records.len());
    let mut running: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    // Records that have ended, and for which no ended record has waited.
    let mut recent: Vec<(usize, u64)> = Vec::new();
    for (number, record) in records.iter().enumerate() {
        let start = record.start_ns.unwrap_or(0);
        while let Some(&Reverse((end, ended))) =
            running.peek().filter(|Reverse((end, _))| *end <= start)
        {
            running.pop();
            let implied = &waits[ended];
            recent.retain(|(other, _)| implied.iter().all(|after| after.record != *other as u64));
            recent.push((ended, end));
        }
        let after = |&(other, end): &(usize, u64)| After::new(other as u64, true, start - end);
        waits.push(recent.iter().map(after).collect());
        running.push(Reverse((record.end_ns.unwrap_or(start), number)));
    }
    waits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(&(start, end): &(u64, u64)) -> KeptRecord {
        KeptRecord {
            len: 1,
            start_ns: Some(start),
            end_ns: Some(end),
            ..KeptRecord::default()
        }
    }

    fn of(times: &[(u64, u64)]) -> Vec<Vec<(u64, u64)>> {
        let records: Vec<KeptRecord> = times.iter().map(kept).collect();
        let pairs = |all: &Vec<After>| {
            all.iter()
                .map(|after| (after.record, after.delay_ns))
                .collect()
        };
        waits(&records).iter().map(pairs).collect()
    }

    #[test]
    fn one_at_a_time_is_a_chain() {
        assert_eq!(
            of(&[(0, 10), (10, 20), (25, 30)]),
            [vec![], vec![(0, 0)], vec![(1, 5)]]
        );
    }

    #[test]
    fn what_was_waited_for_by_others_is_not_waited_for_again() {
        // a and b side by side; c after both; d while c runs; e after c and d.
        let found = of(&[(0, 10), (0, 12), (20, 30), (21, 40), (41, 50)]);
        assert_eq!(
            found,
            [
                vec![],
                vec![],
                vec![(0, 10), (1, 8)],
                vec![(0, 11), (1, 9)],
                vec![(2, 11), (3, 1)]
            ]
        );
    }

    #[test]
    fn no_record_waits_for_one_that_runs_on() {
        let found = of(&[(0, 100), (1, 2), (3, 4), (5, 6)]);
        assert_eq!(found, [vec![], vec![], vec![(1, 1)], vec![(2, 1)]]);
    }
}
