//! What the system that was recorded had read ahead, as the trace says it: reads that are flagged as readahead.
//!
//! A byte of it counts as read by the program where a later demand read of the trace asks for it; how late it came cannot
//! be told. Never: mixed with what our policy does, which does not see these records.

use crate::replay::Replay;
use foreread_sim::workload::RequestKind;
use serde::{Deserialize, Serialize};

/// The recorded system's readahead.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecordedReadahead {
    /// Reads flagged as readahead.
    pub ra_ops: u64,
    /// Their bytes.
    pub ra_bytes: u64,
    /// Of these, bytes that some demand read of the trace asks for as well.
    pub wanted_bytes: u64,
    /// Of each file with any, the largest first.
    pub files: Vec<RecordedFile>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecordedFile {
    /// As the trace names it.
    pub name: String,
    /// Reads flagged as readahead.
    pub ra_ops: u64,
    /// Their bytes.
    pub ra_bytes: u64,
    /// Of these, bytes that some demand read of the trace asks for as well.
    pub wanted_bytes: u64,
}

impl RecordedReadahead {
    /// What the trace says; nothing where no record is flagged.
    #[must_use]
    pub fn of(replay: &Replay) -> Option<RecordedReadahead> {
        let loaded = &replay.loaded;
        if loaded.recorded.is_empty() {
            return None;
        }
        let mut demand: Vec<Vec<(u64, u64)>> = vec![Vec::new(); loaded.files.len()];
        for job in &replay.workload.jobs {
            let reads = job.requests.iter().filter(|r| r.demands());
            let page = |at: u64| at & !(foreread_sim::workload::Workload::PAGE_BYTES - 1);
            let range = |r: &foreread_sim::workload::Request| match r.kind {
                RequestKind::Touch => (
                    page(r.offset),
                    page(r.offset) + foreread_sim::workload::Workload::PAGE_BYTES,
                ),
                _ => (r.offset, r.offset + r.len),
            };
            demand[job.file as usize].extend(reads.map(range));
        }
        let demand: Vec<Vec<(u64, u64)>> = demand.into_iter().map(union).collect();
        let mut files = vec![RecordedFile::default(); loaded.files.len()];
        for read in &loaded.recorded {
            let file = &mut files[read.file as usize];
            file.ra_ops += 1;
            file.ra_bytes += read.len;
            file.wanted_bytes += shared(
                &demand[read.file as usize],
                read.offset,
                read.offset.saturating_add(read.len),
            );
        }
        let mut all = RecordedReadahead::default();
        for (number, mut file) in files
            .into_iter()
            .enumerate()
            .filter(|(_, file)| file.ra_ops > 0)
        {
            all.ra_ops += file.ra_ops;
            all.ra_bytes += file.ra_bytes;
            all.wanted_bytes += file.wanted_bytes;
            file.name = loaded.names[number].clone();
            all.files.push(file);
        }
        all.files
            .sort_by_key(|file| std::cmp::Reverse(file.ra_bytes));
        Some(all)
    }
}

/// The same bytes in ranges that do not meet, in order.
fn union(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut out: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match out.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => out.push((start, end)),
        }
    }
    out
}

/// Bytes of `[start, end)` that lie in the ranges.
fn shared(ranges: &[(u64, u64)], start: u64, end: u64) -> u64 {
    let first = ranges.partition_point(|(_, e)| *e <= start);
    ranges[first..]
        .iter()
        .take_while(|(s, _)| *s < end)
        .map(|(s, e)| e.min(&end) - s.max(&start))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_both_are_counted_once() {
        let ranges = union(vec![(10, 20), (0, 5), (15, 30), (30, 31), (40, 50)]);
        assert_eq!(ranges, [(0, 5), (10, 31), (40, 50)]);
        assert_eq!(shared(&ranges, 3, 45), 2 + 21 + 5);
        assert_eq!(
            (
                shared(&ranges, 5, 10),
                shared(&ranges, 60, 90),
                shared(&[], 0, 9)
            ),
            (0, 0, 0)
        );
    }
}
