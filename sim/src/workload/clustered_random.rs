//! One reader reads random records of one cluster, then of another: random reads whose neighbours are also read soon.
//!
//! Wu Fengguang's posting of 2013 states that context readahead helps such reads on a disk: "actually benefits clustered random reads on
//! HDD whose seek cost is pretty high". The posting gives no figures and names no program. Examples are reads of a table's rows by key
//! range, and of the files of a directory.
//!
//! ```text
//!   cluster   |--3--|     |--1--|--5--|     |--4--|--2--|     |      next, anywhere   |     |--6--|--8--| ...
//!             └────── `percent` of its records, any order ────┘
//! ```
//!
//! With the defaults, a cluster of 256 KiB has 64 records of 4 KiB, of which 32 are read. The reader visits one in ten of the file's
//! clusters. Each record is read at most once, and each cluster is visited at most once.
//!
//! Nothing is fitted: the defaults are round figures that were chosen before the first run.

use super::random::distinct;
use super::{Info, Request, Workload, check_reads, given, record, too_small};
use crate::rng::Rng;
use foreread_core::policy::Param;
use foreread_core::policy::spec::SpecError;
use foreread_core::units::MAX_OFFSET;

pub static INFO: Info = Info {
    name: "clustered-random",
    summary: "one reader, random aligned records of one cluster, then of another cluster anywhere",
    origin: "Wu Fengguang 2013, on conservative context readahead: clustered random reads on HDD",
    least_bytes: 256 << 10,
    cache_bytes: None,
    params: &[
        record("4K"),
        Param::bytes("cluster", "256K", (1, MAX_OFFSET), "bytes of a cluster"),
        Param::count(
            "percent",
            "50",
            (1, 100),
            "percent of a cluster's records that are read",
        ),
        Param::count(
            "visited",
            "10",
            (1, 100),
            "percent of the file's clusters that are visited",
        ),
    ],
    build,
};

fn build(values: &[u64], size: u64, seed: u64) -> Result<Workload, SpecError> {
    let [record, cluster, percent, visited] = given(values);
    let (records, clusters) = (cluster / record, size / cluster);
    if records == 0 || clusters == 0 {
        let why = format!(
            "is less than one cluster of {cluster} bytes, or that less than one record of {record}"
        );
        return Err(too_small(INFO.name, size, why));
    }
    let part = |of: u64, percent: u64| (u128::from(of) * u128::from(percent)).div_ceil(100) as u64;
    let (wanted, visits) = (part(records, percent), part(clusters, visited));
    check_reads(INFO.name, record, wanted.saturating_mul(visits))?;
    let mut rng = Rng::new(seed);
    let mut requests = Vec::with_capacity((wanted * visits) as usize);
    for place in distinct(clusters, visits, seed) {
        let start = place * cluster;
        requests.extend(
            distinct(records, wanted, rng.bits())
                .map(|n| Request::read(start + n * record, record)),
        );
    }
    Ok(Workload::single(INFO.name, size, 1, requests))
}

#[cfg(test)]
mod tests {
    use crate::workload::built;
    use std::collections::{HashMap, HashSet};

    #[test]
    fn half_of_each_cluster_and_each_once() {
        let workload = built("clustered-random", 64 << 20, 1);
        let reads = &workload.jobs[0].requests;
        let mut order = Vec::new();
        let mut count: HashMap<u64, u32> = HashMap::new();
        for cluster in reads.iter().map(|r| r.offset / (256 << 10)) {
            if order.last() != Some(&cluster) {
                order.push(cluster);
            }
            *count.entry(cluster).or_default() += 1;
        }
        assert_eq!(order.len(), count.len(), "a cluster is left for good");
        assert!(count.values().all(|n| *n == 32));
        let pairs = reads.windows(2);
        let next = pairs
            .filter(|w| w[0].offset + w[0].len == w[1].offset)
            .count();
        assert!(next < reads.len() / 20, "{next} follow each other");
        // The positions within a cluster differ from cluster to cluster.
        let firsts = reads.chunks(32).map(|of| of[0].offset % (256 << 10));
        let firsts: HashSet<u64> = firsts.collect();
        assert!(firsts.len() > 10, "{firsts:?}");
    }
}
