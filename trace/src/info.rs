//! Describes a trace: counts, sizes, streams, reuse, span, times, and missing fields.
//!
//! ```text
//!   items ──► Counter ─┬─ sizes, latency, think time (spread)      ──► Info ──► words, JSON
//!                      ├─ chains of reads (streams)
//!                      └─ blocks read again (reuse)
//! ```
//! One pass, in memory that does not grow with the trace; each part says what it estimates when there is too much.
//! Figures that the trace does not contain are null.

mod lacks;
mod reuse;
mod spread;
mod streams;

pub use spread::Summary;

use super::{Flags, Header, Import, Item, Level, Op, Record, TraceError};
use reuse::Reuse;
use serde::Serialize;
use spread::Spread;
use std::collections::{BTreeMap, HashMap, HashSet};
use streams::Streams;

/// Different opens, or threads, that are counted and followed. Beyond that there are "at least" this many.
pub const MAX_FOLLOWED: usize = 1 << 16;

/// A count of records and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// How many.
    pub records: u64,
    /// Bytes that they asked for.
    pub bytes: u64,
}

/// What is in a trace. Times in nanoseconds, sizes in bytes; null is what the trace does not tell.
#[derive(Clone, Debug, Serialize)]
pub struct Info {
    /// `foreread.trace-info/1`.
    pub schema: &'static str,
    /// The format that it was first read from.
    pub format: String,
    /// The unit of its times there.
    pub time_unit: String,
    /// The unit of its offsets there.
    pub offset_unit: String,
    /// `program`, `below-cache` or `unknown`.
    pub level: &'static str,
    /// Files.
    pub files: u64,
    /// Open descriptions; null where it does not tell. A lower bound from [`MAX_FOLLOWED`] on.
    pub opens: Option<u64>,
    /// Threads; the same.
    pub threads: Option<u64>,
    /// By what was done: `read`, `write`, `fault`, `hint`.
    pub by_op: BTreeMap<&'static str, Count>,
    /// Of the reads: readahead.
    pub ahead: Count,
    /// Of the reads: the file system's own data (inodes, folders). They are in no figure but `by_op` and the span of time.
    pub metadata: Count,
    /// Records that wait for others.
    pub dependent: u64,
    /// Sizes of reads.
    pub read_bytes: Option<Summary>,
    /// Reads of at least one byte that begin where an earlier read of the same file and open ended.
    pub sequential: Count,
    /// The same as a share of these reads.
    pub sequential_share: Option<f64>,
    /// Streams.
    pub streams: StreamInfo,
    /// Reuse.
    pub reuse: ReuseInfo,
    /// From the first start to the last end or start.
    pub span_ns: Option<u64>,
    /// The sum over files of the highest byte that a record reaches.
    pub span_bytes: u64,
    /// From start to end of a read.
    pub read_latency_ns: Option<Summary>,
    /// From the end of what a thread did last to its next read; of an open where threads are not told.
    pub think_ns: Option<Summary>,
    /// Reads that begin before what their thread did last has ended: they have no think time.
    pub overlapping: u64,
    /// What was left out on the way here, by reason.
    pub left_out: BTreeMap<String, u64>,
    /// What the importer noted.
    pub notes: Vec<String>,
    /// What it lacks and what follows from that, a sentence each.
    pub lacks: Vec<String>,
}

/// Chains of at least two reads, each of which begins where the one before it ended.
#[derive(Clone, Debug, Serialize)]
pub struct StreamInfo {
    /// How long they are; null where there is none.
    pub bytes: Option<Summary>,
    /// The most reads of one.
    pub longest_reads: u64,
    /// Chains that could not be followed further, since 65536 others were read since.
    pub forgotten: u64,
}

/// What is read again, in blocks of 4 KiB.
#[derive(Clone, Debug, Serialize)]
pub struct ReuseInfo {
    /// Bytes of the different blocks.
    pub distinct_bytes: u64,
    /// Share of the blocks that had been read before; null where nothing was read.
    pub again_share: Option<f64>,
    /// Which share of all blocks was followed: less than 1 is an estimate.
    pub followed_share: f64,
}

/// Reads a whole trace.
pub fn of(import: Import) -> Result<Info, TraceError> {
    let Import {
        header,
        items,
        left_out,
    } = import;
    let mut counter = Counter::default();
    for item in items {
        match item? {
            Item::File(_) => counter.ends.push(0),
            Item::Record(record) => counter.record(&record, &header),
        }
    }
    let mut info = counter.info(header);
    info.left_out = left_out.in_all();
    Ok(info)
}

#[derive(Default)]
struct Counter {
    /// The highest byte of each file.
    ends: Vec<u64>,
    opens: HashSet<u32>,
    threads: HashSet<u32>,
    by_op: BTreeMap<&'static str, Count>,
    ahead: Count,
    metadata: Count,
    dependent: u64,
    sizes: Spread,
    reads: u64,
    streams: Streams,
    reuse: Reuse,
    first_ns: Option<u64>,
    last_ns: u64,
    with_end: u64,
    latency: Spread,
    think: Spread,
    overlapping: u64,
    /// When each thread, or open, was done last.
    done_ns: HashMap<u32, u64>,
}

fn add(count: &mut Count, bytes: u64) {
    (count.records, count.bytes) = (count.records + 1, count.bytes.saturating_add(bytes));
}

/// Counts `one` while there is room.
fn follow(all: &mut HashSet<u32>, one: u32) {
    if all.len() < MAX_FOLLOWED {
        all.insert(one);
    }
}

impl Counter {
    fn record(&mut self, record: &Record, header: &Header) {
        let op = match record.op {
            Op::Read => "read",
            Op::Write => "write",
            Op::Fault => "fault",
            Op::Hint(_) => "hint",
        };
        add(self.by_op.entry(op).or_default(), record.len);
        if record.flags.has(Flags::METADATA) {
            add(&mut self.metadata, record.len);
            return self.times(record, header);
        }
        follow(&mut self.opens, record.open);
        follow(&mut self.threads, record.thread);
        self.dependent += u64::from(!record.after.is_empty());
        // A hint without a length means all of the file, and reaches nothing.
        if let Some(end) = self.ends.get_mut(record.file as usize) {
            *end = (*end).max(record.offset.saturating_add(record.len));
        }
        if matches!(record.op, Op::Read | Op::Fault) {
            self.read(record);
        }
        self.times(record, header);
    }

    fn read(&mut self, record: &Record) {
        self.sizes.add(record.len);
        if record.flags.has(Flags::AHEAD) {
            add(&mut self.ahead, record.len);
        }
        let bytes = record.returned.unwrap_or(record.len);
        if bytes > 0 {
            self.reads += 1;
            let continues = self.streams.read(record);
            self.reuse
                .read(record.file, record.offset, bytes, continues);
        }
    }

    fn times(&mut self, record: &Record, header: &Header) {
        let Some(start) = record.start_ns else { return };
        self.first_ns.get_or_insert(start);
        self.last_ns = self.last_ns.max(record.end_ns.unwrap_or(start));
        let reader = if header.lacks.threads {
            record.open
        } else {
            record.thread
        };
        let Some(end) = record.end_ns else { return };
        self.with_end += 1;
        // A file system's own read is no read of the thread, which waits for it all the same.
        let is_read =
            matches!(record.op, Op::Read | Op::Fault) && !record.flags.has(Flags::METADATA);
        if is_read {
            self.latency.add(end - start);
        }
        let room = self.done_ns.len() < MAX_FOLLOWED;
        match self.done_ns.get_mut(&reader) {
            Some(done) => {
                match start.checked_sub(*done) {
                    Some(think) if is_read => self.think.add(think),
                    None if is_read => self.overlapping += 1,
                    _ => {}
                }
                *done = (*done).max(end);
            }
            None if room => drop(self.done_ns.insert(reader, end)),
            None => {}
        }
    }

    fn info(mut self, header: Header) -> Info {
        let bytes = self.streams.end();
        let (continued, touched, distinct) = (
            self.streams.continued,
            self.reuse.touched,
            self.reuse.distinct(),
        );
        let share = |part: u64, of: u64| (of > 0).then(|| part as f64 / of as f64);
        let lacks = lacks::lacks(&header, self.first_ns.is_some(), self.with_end > 0);
        Info {
            schema: "foreread.trace-info/1",
            format: header.format,
            time_unit: header.time_unit,
            offset_unit: header.offset_unit,
            level: match header.level {
                Level::Unknown => "unknown",
                Level::Program => "program",
                Level::BelowCache => "below-cache",
            },
            files: self.ends.len() as u64,
            opens: (!header.lacks.opens).then_some(self.opens.len() as u64),
            threads: (!header.lacks.threads).then_some(self.threads.len() as u64),
            by_op: self.by_op,
            ahead: self.ahead,
            metadata: self.metadata,
            dependent: self.dependent,
            read_bytes: self.sizes.summary(),
            sequential: Count {
                records: continued.0,
                bytes: continued.1,
            },
            sequential_share: share(continued.0, self.reads),
            streams: StreamInfo {
                bytes,
                longest_reads: self.streams.longest_reads,
                forgotten: self.streams.forgotten,
            },
            reuse: ReuseInfo {
                distinct_bytes: distinct.saturating_mul(reuse::BLOCK),
                again_share: share(touched - distinct, touched),
                followed_share: (-f64::from(self.reuse.level)).exp2(),
            },
            span_ns: self.first_ns.map(|first| self.last_ns - first),
            span_bytes: self
                .ends
                .iter()
                .fold(0, |sum, end| sum.saturating_add(*end)),
            read_latency_ns: self.latency.summary(),
            think_ns: self.think.summary(),
            overlapping: self.overlapping,
            left_out: BTreeMap::new(),
            notes: header.notes,
            lacks,
        }
    }
}

/// Spreads the bits of a number (the finaliser of splitmix64, Steele and others 2014).
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

#[cfg(test)]
mod tests;
