//! What a cache on disk did for the rows of a table.
//!
//! A comparison with one has two tables. The second run of a policy finds on disk what its first run left there, in a new process whose
//! memory is empty.

use super::{PolicyRuns, Table};
use foreread_report::number;
use foreread_sim::device::disk_cache::DiskCacheCounts;
use foreread_sim::stats::{Summary, ratio};
use serde::{Deserialize, Serialize};

/// Which of the two runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheRun {
    /// The cache on disk is empty.
    First,
    /// It has what the first run left.
    Second,
}

impl CacheRun {
    pub(crate) fn name(self) -> &'static str {
        match self {
            CacheRun::First => "first run",
            CacheRun::Second => "second run",
        }
    }

    /// For the notes of its table.
    pub(crate) fn note(self) -> &'static str {
        match self {
            CacheRun::First => "First run: the disk cache is empty",
            CacheRun::Second => {
                "Second run: the cache in memory is empty again, the disk cache has what the first run of the same policy left"
            }
        }
    }
}

/// The cache on disk that a table was measured with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportDiskCache {
    /// The run that the table is of.
    pub run: CacheRun,
    pub size_bytes: u64,
    /// The model of its disk, or its folder.
    pub disk: String,
}

impl std::fmt::Display for ReportDiskCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ReportDiskCache {
            size_bytes, disk, ..
        } = self;
        write!(f, "disk cache {} on {disk}", number::size_b(*size_bytes))
    }
}

/// The same with what was counted.
#[derive(Clone, Debug)]
pub struct TableDiskCache {
    pub about: ReportDiskCache,
    /// For each policy and run.
    pub counts: Vec<Vec<DiskCacheCounts>>,
    /// The first runs, for a table of second ones.
    pub first: Vec<PolicyRuns>,
}

/// What it did for a row: means of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowDiskCache {
    /// Requests to the store.
    pub store_reads: u64,
    /// Their bytes.
    pub store_bytes: u64,
    /// Bytes that came from the disk.
    pub disk_bytes: u64,
    pub written_bytes: u64,
    /// Bytes that were not kept: the disk did not keep up, or there was no room.
    pub dropped_bytes: u64,
    pub evicted_bytes: u64,
    /// Mean time / mean time of the first run. Null for a first run.
    pub ratio_to_first: Option<f64>,
}

impl RowDiskCache {
    pub(super) fn of(table: &Table, index: usize) -> Option<RowDiskCache> {
        let cache = table.disk_cache.as_ref()?;
        let counts = cache.counts.get(index)?;
        let mean = |field: fn(&DiskCacheCounts) -> u64| {
            let sum: u128 = counts.iter().map(|one| u128::from(field(one))).sum();
            let runs = counts.len().max(1) as u128;
            u64::try_from((sum + runs / 2) / runs).unwrap_or(u64::MAX)
        };
        let judged =
            |policy: &PolicyRuns| Summary::of(&policy.judged_s(table.judge())).map(|t| t.mean);
        let first = cache.first.get(index).and_then(judged);
        let ratio_to_first = judged(&table.policies[index])
            .zip(first)
            .and_then(|(own, first)| ratio(own, first));
        Some(RowDiskCache {
            store_reads: mean(|one| one.store_reads),
            store_bytes: mean(|one| one.store_bytes),
            disk_bytes: mean(|one| one.disk_bytes),
            written_bytes: mean(|one| one.written_bytes),
            dropped_bytes: mean(|one| one.dropped_bytes),
            evicted_bytes: mean(|one| one.evicted_bytes),
            ratio_to_first,
        })
    }
}
