//! What a trace lacks, in a sentence each, and what follows from that.

use super::Info;
use crate::{Header, Level};

/// What a trace lacks, and what follows from that. `starts` and `ends`: whether any record had one.
pub fn lacks(header: &Header, starts: bool, ends: bool) -> Vec<String> {
    let l = header.lacks;
    let below = "taken below a cache: hits are missing and someone's readahead is already in it";
    let unknown = "it does not say where it was taken: below a cache hits would be missing";
    let all = [
        (
            !starts && !ends,
            "no times: compare runs it as fast as possible",
        ),
        (
            starts && !ends,
            "no end times: no think time is known, so compare runs it as fast as possible",
        ),
        (
            l.opens,
            "not which open file it was: several readers of one file look like one that jumps",
        ),
        (
            l.threads,
            "not which thread it was: what ran side by side looks like one after the other",
        ),
        (l.ops, "not what was done: everything counts as a read"),
        (header.level == Level::BelowCache, below),
        (header.level == Level::Unknown, unknown),
    ];
    all.iter()
        .filter(|(lacking, _)| *lacking)
        .map(|(_, text)| (*text).to_string())
        .collect()
}

impl Info {
    /// As JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and texts can always be written") + "\n"
    }
}
