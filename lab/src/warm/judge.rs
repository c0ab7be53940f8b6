//! What a filling was worth: its fetches beside the reads of the program, as a recording has them.
//!
//! ```text
//!   fetched  a 0..1M, there at 5 ms     b 0..64K, there at 9 ms     c 0..4K, there at 9 ms
//!   read     a 0..1M at 7 ms            b 0..64K at 8 ms
//!   ──►      a used                     b used, and late            c unused
//! ```
//! The two clocks begin a few milliseconds apart at most, so the share that is late is exact to that. A touch of a mapping counts with
//! all that the kernel mapped by it.

use super::pool::Filled;
use foreread_plan::intervals::Intervals;
use foreread_trace::{Flags, Item, Items, Op, TraceError};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Bytes of what was fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Judged {
    /// Read by the program.
    pub used_bytes: u64,
    /// Of these: read before they had arrived.
    pub late_bytes: u64,
    /// Not read by the program.
    pub unused_bytes: u64,
    /// How long the recorded runs waited for what was used and not late. Null where the plan is from headers.
    pub saved_ns: Option<u64>,
}

/// Fetched pieces of a file, by their start: end and arrival in nanoseconds.
type Pieces = BTreeMap<u64, (u64, u64)>;

/// Goes through a recording. It must be of the run that the filling was for.
///
/// # Errors
/// The recording cannot be read.
pub fn judge(filled: &Filled, items: Items) -> Result<Judged, TraceError> {
    let plan = &filled.plan;
    let mut pieces: HashMap<u32, Pieces> = HashMap::new();
    for (file, range, at) in &filled.fetches {
        let at = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        pieces.entry(*file).or_default().insert(range.start, (range.end, at));
    }
    let by_path: HashMap<&Path, u32> = (0..).zip(&plan.files).map(|(n, file)| (file.path.as_path(), n)).collect();
    let mut stalls: HashMap<u32, Pieces> = HashMap::new();
    for range in &plan.ranges {
        stalls.entry(range.file).or_default().insert(range.offset, (range.end(), range.stall_ns));
    }
    let (mut names, mut seen, mut began) = (Vec::new(), HashMap::<u32, Intervals>::new(), None);
    let (mut judged, mut saved) = (Judged::default(), 0_u128);
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
        let is_read = matches!(record.op, Op::Read | Op::Fault) && !record.flags.has(Flags::DIRECT);
        let Some(file) = names.get(record.file as usize).copied().flatten().filter(|_| is_read) else { continue };
        let pages = foreread_pagecache::whole_pages(
            &(record.offset..record.offset.saturating_add(record.returned.unwrap_or(record.len))),
        );
        for new in seen.entry(file).or_default().add(&pages) {
            for (part, arrived) in shared(pieces.get(&file), &new) {
                let bytes = part.end - part.start;
                judged.used_bytes += bytes;
                if arrived > at {
                    judged.late_bytes += bytes;
                    continue;
                }
                for (of_range, stall) in shared(stalls.get(&file), &part) {
                    let whole = stalls[&file].range(..=of_range.start).next_back().map_or(1, |(s, (e, _))| e - s);
                    saved += u128::from(stall) * u128::from(of_range.end - of_range.start) / u128::from(whole.max(1));
                }
            }
        }
    }
    judged.unused_bytes = filled.counts.fetched_bytes.saturating_sub(judged.used_bytes);
    judged.saved_ns = (plan.runs > 0).then(|| u64::try_from(saved).unwrap_or(u64::MAX));
    Ok(judged)
}

/// What `range` shares with the pieces, each part with the value of its piece.
fn shared(pieces: Option<&Pieces>, range: &std::ops::Range<u64>) -> Vec<(std::ops::Range<u64>, u64)> {
    let Some(pieces) = pieces else { return Vec::new() };
    let before = pieces.range(..range.start).next_back();
    let all = before.into_iter().chain(pieces.range(range.start..range.end));
    let parts = all.map(|(start, (end, value))| (range.start.max(*start)..range.end.min(*end), *value));
    parts.filter(|(part, _)| !part.is_empty()).collect()
}
