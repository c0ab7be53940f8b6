//! Rates how useful it was to read a plan ahead: compares the fetched ranges with the reads of the program in a recording.
//!
//! ```text
//!   fetched  a 0..1M, arrived 5 ms      b 0..64K, arrived 9 ms      c 0..4K, arrived 9 ms
//!   read     a 0..1M at 7 ms            b 0..64K at 8 ms
//!   ──►      a used                     b used, and late            c unused
//! ```
//! The clocks of the fetches and of the recording start at most a few milliseconds apart, which limits the accuracy of the fraction of
//! bytes that came too late. For a page fault, all pages that the kernel mapped count as read by the program.

use super::filler::FillReport;
use super::state::Fetch;
use foreread_plan::runs::Intervals;
use foreread_trace::{Flags, Item, Items, Op, TraceError};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;

/// How many of the fetched bytes the program used in time, how many it needed before they arrived, and how many it did not use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FetchUse {
    pub used_bytes: u64,
    /// Used bytes that the program read before they had arrived.
    pub late_bytes: u64,
    pub unused_bytes: u64,
    /// Metadata of file systems, for which it is unknown whether it was used: counted neither as used nor as unused.
    pub metadata_bytes: u64,
    /// Total time of the reads and page faults of the program, summed over all threads.
    pub waited_ns: u64,
}

/// Fetched pieces of a file by their start, with end and arrival time in nanoseconds.
type Pieces = BTreeMap<u64, (u64, u64)>;

/// Compares the fetched ranges with the reads in a recording of the run for which they were fetched.
pub fn judge(filled: &FillReport, items: Items) -> Result<FetchUse, TraceError> {
    let plan = &filled.plan;
    let mut pieces: HashMap<u32, Pieces> = HashMap::new();
    // If a file system finds its metadata in the cache, no event shows it.
    let (mut metadata_bytes, is_device) = (0, |file: &u32| plan.files[*file as usize].is_device());
    for Fetch { file, range, at } in &filled.fetches {
        if is_device(file) {
            metadata_bytes += range.end - range.start;
            continue;
        }
        let at = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        let pieces = pieces.entry(*file).or_default();
        pieces.insert(range.start, (range.end, at));
    }
    let by_path: HashMap<&Path, u32> = (0..)
        .zip(&plan.files)
        .map(|(n, file)| (file.path.as_path(), n))
        .collect();
    let (mut names, mut seen, mut began) = (Vec::new(), HashMap::<u32, Intervals>::new(), None);
    let mut judged = FetchUse::default();
    for item in items {
        let record = match item? {
            Item::File(file) => {
                names.push(by_path.get(Path::new(&file.name)).copied());
                continue;
            }
            Item::Record(record) => record,
        };
        let start = record.start_ns.unwrap_or(0);
        let at = start.saturating_sub(*began.get_or_insert(start));
        if !matches!(record.op, Op::Read | Op::Fault) || record.flags.has(Flags::DIRECT) {
            continue;
        }
        let took_ns = record.end_ns.map_or(0, |end| end.saturating_sub(start));
        judged.waited_ns = judged.waited_ns.saturating_add(took_ns);
        let Some(file) = names.get(record.file as usize).copied().flatten() else {
            continue;
        };
        let len = record.returned.unwrap_or(record.len);
        let read = record.offset..record.offset.saturating_add(len);
        let pages = foreread_pagecache::whole_pages(&read);
        let Some(fetched) = pieces.get(&file) else {
            continue;
        };
        for new in seen.entry(file).or_default().add(&pages) {
            for (part, arrived) in shared(fetched, &new) {
                let bytes = part.end - part.start;
                judged.used_bytes += bytes;
                if arrived > at {
                    judged.late_bytes += bytes;
                }
            }
        }
    }
    judged.metadata_bytes = metadata_bytes;
    judged.unused_bytes = filled
        .counts
        .fetched_bytes
        .saturating_sub(judged.used_bytes + metadata_bytes);
    Ok(judged)
}

/// The parts of `range` that overlap with pieces, each with the value of its piece.
fn shared(pieces: &Pieces, range: &Range<u64>) -> Vec<(Range<u64>, u64)> {
    let before = pieces.range(..range.start).next_back();
    let all = before.into_iter().chain(pieces.range(range.clone()));
    let parts =
        all.map(|(start, (end, value))| (range.start.max(*start)..range.end.min(*end), *value));
    parts.filter(|(part, _)| !part.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::FillCounts;
    use super::*;
    use foreread_plan::{Plan, PlanFile};
    use foreread_trace::error::TracePosition;
    use foreread_trace::{FileInfo, Record};
    use std::sync::Arc;
    use std::time::Duration;

    const MS: u64 = 1_000_000;

    /// The example at the head of this file.
    fn filled() -> FillReport {
        let files = ["a", "b", "c"].map(|name| PlanFile::sized(name, 1 << 20));
        let fetch = |file, bytes, ms| Fetch {
            file,
            range: 0..bytes,
            at: Duration::from_millis(ms),
        };
        let fetches = vec![
            fetch(0, 1 << 20, 5),
            fetch(1, 64 << 10, 9),
            fetch(2, 4 << 10, 9),
        ];
        FillReport {
            counts: FillCounts {
                fetched_bytes: (1 << 20) + (68 << 10),
                ..FillCounts::default()
            },
            plan: Arc::new(Plan {
                files: files.into(),
                ..Plan::default()
            }),
            left_out: Vec::new(),
            out_of_room: false,
            unknown_files: 0,
            latency_ns: 0,
            rate: 0,
            seconds: 0.0,
            given_up: 0,
            fetches,
        }
    }

    /// A recording of reads: file (1 is `a`, 2 is `b`), bytes from its start on, when. One of another file begins it, at 0.
    fn recording(reads: &[(u32, u64, u64)]) -> Items {
        let file = |name: &str| {
            let (name, size) = (name.to_string(), None);
            Item::File(FileInfo::new(name, size))
        };
        let read = |&(file, len, at): &(u32, u64, u64)| {
            Item::Record(Record::read(file, 0, len).between(100 * MS + at, 100 * MS + at + 7))
        };
        let reads = [(0, 10, 0)].iter().chain(reads).map(read);
        let items = ["other", "a", "b"].map(file).into_iter().chain(reads);
        Box::new(Vec::from_iter(items).into_iter().map(Ok))
    }

    fn judged(reads: &[(u32, u64, u64)]) -> FetchUse {
        judge(&filled(), recording(reads)).expect("a recording")
    }

    #[test]
    fn what_is_read_in_time_late_and_never() {
        let want = FetchUse {
            used_bytes: (1 << 20) + (64 << 10),
            late_bytes: 64 << 10,
            unused_bytes: 4 << 10,
            metadata_bytes: 0,
            waited_ns: 3 * 7,
        };
        let reads = [(1, 1 << 20, 7 * MS), (2, 64 << 10, 8 * MS)];
        assert_eq!(judged(&reads), want);
    }

    #[test]
    fn bytes_that_are_read_twice_count_once() {
        let half = 512 << 10;
        let twice = judged(&[(1, half, 7 * MS), (1, half, 8 * MS)]);
        assert_eq!((twice.used_bytes, twice.late_bytes), (half, 0));
        assert_eq!(judged(&[]).used_bytes, 0);
    }

    #[test]
    fn a_recording_that_ends_in_an_error_gives_it() {
        let place = TracePosition::Record(1);
        let error = TraceError::new(Path::new("a.frt"), place, "torn", "record it again");
        let broken: Items = Box::new(std::iter::once(Err(error)));
        assert!(judge(&filled(), broken).is_err());
    }

    #[test]
    fn of_a_block_device_is_not_known_what_is_used() {
        let mut filled = filled();
        let mut plan = Plan::clone(&filled.plan);
        plan.files[2] = PlanFile::sized("/dev/sdx", 1 << 20);
        filled.plan = Arc::new(plan);
        let judged = judge(&filled, recording(&[(1, 1 << 20, 7 * MS)])).expect("a recording");
        assert_eq!(
            (judged.metadata_bytes, judged.unused_bytes),
            (4 << 10, 64 << 10)
        );
    }
}
