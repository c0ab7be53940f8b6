//! An [`Info`] for people: a line for each fact, and in a sentence each what a trace lacks.
//!
//! Never: a control character of somebody's trace.

use super::{Count, Info, Summary};
use crate::report::number::{count, latency_us, percent, printable, size, three, wrap};
use crate::report::width;
use crate::trace::{Header, Level};

/// Widest line.
const WIDTH: usize = 90;
/// Width of the first column.
const NAMES: usize = 11;

/// What a trace lacks, and what follows from that. `starts` and `ends`: whether any record had one.
pub fn lacks(header: &Header, starts: bool, ends: bool) -> Vec<String> {
    let l = header.lacks;
    let below = "taken below a cache: hits are missing and someone's readahead is already in it";
    let unknown = "it does not say where it was taken: below a cache hits would be missing";
    let all = [
        (!starts && !ends, "no times: compare runs it as fast as possible"),
        (starts && !ends, "no end times: no think time is known, so compare runs it as fast as possible"),
        (l.opens, "not which open file it was: several readers of one file look like one that jumps"),
        (l.threads, "not which thread it was: what ran side by side looks like one after the other"),
        (l.lens, "no lengths: each record stands for one block"),
        (l.ops, "not what was done: everything counts as a read"),
        (header.level == Level::BelowCache, below),
        (header.level == Level::Unknown, unknown),
    ];
    all.iter().filter(|(lacking, _)| *lacking).map(|(_, text)| (*text).to_string()).collect()
}

impl Info {
    /// As JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and texts can always be written") + "\n"
    }

    /// As lines of text.
    #[must_use]
    pub fn render(&self) -> String {
        let mut lines: Vec<(&str, String)> = Vec::new();
        lines.push(("format", format!("{}; times: {}; offsets: {}", self.format, self.time_unit, self.offset_unit)));
        lines.push(("records", self.counts()));
        let known = |n: Option<u64>, what: &str| n.map_or(String::new(), |n| format!(", {} {what}", count(n)));
        lines.push(("files", count(self.files) + &known(self.opens, "opens") + &known(self.threads, "threads")));
        self.reads(&mut lines);
        if let Some(ns) = self.span_ns {
            let reads = self.by_op.get("read").map_or(0, |c| c.records) as f64;
            let rate = if ns > 0 { format!(", {} reads/s", three(reads / (ns as f64 / 1e9))) } else { String::new() };
            lines.push(("time", format!("{}{rate}", time(ns))));
        }
        lines.push(("reach", format!("{} over all files", megabytes(self.span_bytes))));
        if let Some(s) = &self.read_latency_ns {
            lines.push((
                "latency",
                format!("p50 {}, p95 {}, p99 {}, max {}", time(s.p50), time(s.p95), time(s.p99), time(s.max)),
            ));
        }
        if let Some(s) = &self.think_ns {
            let overlapping = format!("; {} reads begin before the one before has ended", count(self.overlapping));
            let overlapping = if self.overlapping > 0 { overlapping } else { String::new() };
            lines.push((
                "think time",
                format!("p50 {}, p95 {}, max {}{overlapping}", time(s.p50), time(s.p95), time(s.max)),
            ));
        }
        self.left_out.iter().for_each(|(reason, n)| lines.push(("left out", format!("{} {reason}", count(*n)))));
        self.notes.iter().for_each(|note| lines.push(("note", note.clone())));
        self.lacks.iter().for_each(|lack| lines.push(("lacks", lack.clone())));
        let mut text = String::new();
        let mut before = "";
        for (name, fact) in &lines {
            for line in wrap(&printable(fact), width::columns().min(WIDTH) - NAMES) {
                let shown = if before == *name { "" } else { name };
                text.push_str(&format!("{shown:NAMES$}{line}\n"));
                before = name;
            }
        }
        text
    }

    fn counts(&self) -> String {
        let total: u64 = self.by_op.values().map(|c| c.records).sum();
        let one = |(op, c): (&&str, &Count)| format!("{} {op}s ({})", count(c.records), megabytes(c.bytes));
        let each: Vec<String> = self.by_op.iter().map(one).collect();
        let mut text = format!("{}: {}", count(total), each.join(", "));
        if self.by_op.is_empty() {
            text = "none".to_string();
        }
        if self.ahead.records > 0 {
            text.push_str(&format!("; of the reads {} are somebody's readahead", count(self.ahead.records)));
        }
        if self.dependent > 0 {
            text.push_str(&format!("; {} wait for others", count(self.dependent)));
        }
        text
    }

    fn reads(&self, lines: &mut Vec<(&str, String)>) {
        let Some(sizes) = &self.read_bytes else { return };
        lines.push(("read size", sizes_text(sizes)));
        if let Some(share) = self.sequential_share {
            let text = format!("{} % of reads begin where an earlier one of the same open file ended", percent(share));
            lines.push(("sequential", text));
        }
        let streams = self.streams.bytes.as_ref().map_or("none of two reads or more".to_string(), |s| {
            format!(
                "{} of two reads or more; {} each at the median, {} and {} reads at most",
                count(s.number),
                megabytes(s.p50),
                megabytes(s.max),
                count(self.streams.longest_reads)
            )
        });
        let forgotten = format!("; {} were lost sight of", count(self.streams.forgotten));
        lines.push(("streams", streams + if self.streams.forgotten > 0 { &forgotten } else { "" }));
        if let Some(again) = self.reuse.again_share {
            let followed = self.reuse.followed_share;
            let estimate = format!(" (estimated from {} % of all blocks)", three(100.0 * followed));
            let estimate = if followed < 1.0 { estimate.as_str() } else { "" };
            let distinct = megabytes(self.reuse.distinct_bytes);
            let text = format!("{} % of what is read was read before; {distinct} are different", percent(again));
            lines.push(("reuse", text + estimate + ", by blocks of 4K"));
        }
    }
}

fn sizes_text(s: &Summary) -> String {
    let one = |(bytes, n): &(u64, u64)| format!("{} ({} %)", size(*bytes), percent(*n as f64 / s.number as f64));
    let each: Vec<String> = s.commonest.iter().map(one).collect();
    let about = if s.exact { "" } else { " (rounded)" };
    format!("p50 {}, p95 {}, max {}{about}; commonest {}", size(s.p50), size(s.p95), size(s.max), each.join(", "))
}

fn megabytes(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..1_000_000_000 => format!("{} MB", three(bytes as f64 / 1e6)),
        _ => format!("{} GB", three(bytes as f64 / 1e9)),
    }
}

fn time(ns: u64) -> String {
    if ns < 1000 { format!("{ns}ns") } else { latency_us(ns as f64 / 1e3) }
}
