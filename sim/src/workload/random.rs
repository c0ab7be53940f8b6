//! One reader reads random records, each at most once.
//!
//! For such reads, readahead can only do harm, because a read does not help to predict the next read. All records are distinct, so caching
//! gains nothing for any policy. Without readahead, exactly the requested bytes are fetched.
//!
//! Every read is aligned to its record, and the rest of the file after the last whole record is not read.
//!
//! ```text
//!   |      |--2---|      |      |--1---|--4---|      |--3---| rest |
//! ```

use super::{Info, MAX_READS, Request, Workload, given, record, whole_records};
use crate::rng::Rng;
use foreread_core::policy::Param;
use foreread_core::policy::spec::SpecError;
use std::collections::HashMap;

pub static INFO: Info = Info {
    name: "random",
    summary: "one reader, random aligned records, each at most once",
    origin: "the case that readahead must not make slower",
    least_bytes: 1,
    cache_bytes: None,
    params: &[
        record("4K"),
        Param::count(
            "count",
            "4096",
            (1, MAX_READS),
            "reads; at most one for each record of the file",
        ),
    ],
    build,
};

fn build(values: &[u64], size: u64, seed: u64) -> Result<Workload, SpecError> {
    let [record, count] = given(values);
    let slots = whole_records(INFO.name, size, record)?;
    let read = |slot| Request::read(slot * record, record);
    let requests = distinct(slots, count.min(slots), seed).map(read).collect();
    Ok(Workload::single(INFO.name, size, 1, requests))
}

/// `count` distinct random numbers below `n`: the first part of a shuffle of all `n` numbers, of which only the swapped
/// positions are kept.
pub(super) fn distinct(n: u64, count: u64, seed: u64) -> impl Iterator<Item = u64> {
    let mut rng = Rng::new(seed);
    let mut swapped: HashMap<u64, u64> = HashMap::new();
    (0..count).map(move |i| {
        let picked = i + rng.below(n - i);
        let here = swapped.remove(&i).unwrap_or(i);
        if picked == i {
            here
        } else {
            swapped.insert(picked, here).unwrap_or(picked)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::built;

    #[test]
    fn every_record_at_most_once() {
        let mut all: Vec<u64> = distinct(1000, 1000, 3).collect();
        assert_ne!(all, (0..1000).collect::<Vec<_>>());
        all.sort_unstable();
        assert_eq!(all, (0..1000).collect::<Vec<_>>());
        assert!(distinct(1000, 10, 3).ne(distinct(1000, 10, 4)));
    }

    #[test]
    fn reads_spread_evenly() {
        let workload = built("random", 1 << 30, 1);
        let reads = workload.jobs[0].requests.iter();
        let low = reads.filter(|r| r.offset < 1 << 29).count();
        // Half of them, within five standard deviations of 32.
        assert!((1888..=2208).contains(&low), "{low}");
    }
}
