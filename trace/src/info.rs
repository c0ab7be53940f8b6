//! Describes a trace: counts of records, sizes, sequential streams, time span, latencies, and missing information.
//!
//! ```text
//!   items ──► Counter ─┬─ sizes, latency, think time (spread)      ──► Info ──► words, JSON
//!                      └─ chains of reads (streams)
//! ```
//! The trace is read once, in bounded memory; each part of this module documents what it estimates if the trace exceeds its limits. Values
//! that the trace does not contain are null.

use super::{Flags, Header, Import, Item, Level, Op, Record, TraceError};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// Maximum number of opens, or threads, that are counted and tracked. If a trace has more opens or threads, the reported count is
/// a lower bound.
pub const MAX_FOLLOWED: usize = 1 << 16;

/// A number of records, and the number of their bytes in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// How many.
    pub records: u64,
    /// Bytes that they requested.
    pub bytes: u64,
}

/// The properties of a trace. Times are in nanoseconds, sizes in bytes; null means that the trace does not contain the value.
#[derive(Clone, Debug, Serialize)]
pub struct Info {
    /// `foreread.trace-info/1`.
    pub schema: &'static str,
    /// The format that the trace was first imported from.
    pub format: String,
    /// The unit of times in that format.
    pub time_unit: String,
    /// The unit of offsets in that format.
    pub offset_unit: String,
    /// `program`, `below-cache` or `unknown`.
    pub level: &'static str,
    /// Files.
    pub files: u64,
    /// Number of open descriptions; null if the trace does not identify them. A lower bound from [`MAX_FOLLOWED`] on.
    pub opens: Option<u64>,
    /// Number of threads; null if the trace does not identify them. A lower bound from [`MAX_FOLLOWED`] on.
    pub threads: Option<u64>,
    /// Counts by operation: `read`, `write`, `fault`, `hint`.
    pub by_op: BTreeMap<&'static str, Count>,
    /// Reads that are readahead.
    pub ahead: Count,
    /// Reads of the file system's own metadata (inodes, folders). Only `by_op` and the time span include them.
    pub metadata: Count,
    /// Records that wait for others.
    pub dependent: u64,
    /// Sizes of reads.
    pub read_bytes: Option<Summary>,
    /// Reads of at least one byte that start where an earlier read of the same file and open ended.
    pub sequential: Count,
    /// The share of sequential reads in all reads of at least one byte.
    pub sequential_share: Option<f64>,
    /// Streams: chains of sequential reads.
    pub streams: StreamInfo,
    /// From the first start to the last end or start.
    pub span_ns: Option<u64>,
    /// The sum over files of the highest byte that a record reaches.
    pub span_bytes: u64,
    /// Time from start to end of a read.
    pub read_latency_ns: Option<Summary>,
    /// Time from the end of a thread's last operation to the start of its next read; if threads are unknown, of an open
    /// description.
    pub think_ns: Option<Summary>,
    /// Reads that start before the last operation of their thread has ended: they have no think time.
    pub overlapping: u64,
    /// Entries that were left out during conversion, by reason.
    pub left_out: BTreeMap<String, u64>,
    /// Notes of the importer.
    pub notes: Vec<String>,
    /// What the trace lacks and what follows from that, one sentence each.
    pub lacks: Vec<String>,
}

/// Streams: chains of at least two reads, each of which starts where the previous read ended.
#[derive(Clone, Debug, Serialize)]
pub struct StreamInfo {
    /// Bytes of each stream; null if there is none.
    pub bytes: Option<Summary>,
    /// Number of reads in the longest stream.
    pub longest_reads: u64,
    /// Chains that could not be tracked further, because 65536 others were read since.
    pub forgotten: u64,
}

/// Reads a whole trace and describes it.
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
    first_ns: Option<u64>,
    last_ns: u64,
    with_end: u64,
    latency: Spread,
    think: Spread,
    overlapping: u64,
    /// When each thread, or open, finished its last operation.
    done_ns: HashMap<u32, u64>,
}

fn add(count: &mut Count, bytes: u64) {
    (count.records, count.bytes) = (count.records + 1, count.bytes.saturating_add(bytes));
}

/// Adds `one` to the set while there is room.
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
        // A hint without a length applies to the whole file, so it does not extend the file.
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
            self.streams.read(record);
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
        // A file system's own read does not count as a read of the thread, although the thread waits for it.
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
        let continued = self.streams.continued;
        let share = |part: u64, of: u64| (of > 0).then(|| part as f64 / of as f64);
        let lacks = lacks(&header, self.first_ns.is_some(), self.with_end > 0);
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

#[cfg(test)]
mod tests;

// Describes what a trace lacks and what follows from that, one sentence each.

/// Returns sentences that say which information a trace lacks and what follows from this. `starts` and `ends` say whether any record in the
/// trace had a start or an end time.
pub fn lacks(header: &Header, starts: bool, ends: bool) -> Vec<String> {
    let l = header.lacks;
    let below = "taken below a cache: hits are missing, and upper layers' readahead is included";
    let unknown = "where it was taken is unknown: if below a cache, cache hits are missing";
    let all = [
        (
            !starts && !ends,
            "no times: compare replays the trace as fast as possible",
        ),
        (
            starts && !ends,
            "no end times: think times are unknown, so compare replays the trace as fast as possible",
        ),
        (
            l.opens,
            "no open descriptions: several readers of one file look like one random reader",
        ),
        (
            l.threads,
            "no threads: parallel reads look like sequential calls",
        ),
        (l.ops, "no operations: everything counts as a read"),
        (header.level == Level::BelowCache, below),
        (header.level == Level::Unknown, unknown),
    ];
    all.iter()
        .filter(|(lacking, _)| *lacking)
        .map(|(_, text)| (*text).to_string())
        .collect()
}

impl Info {
    /// Returns the description of the trace as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and texts can always be written") + "\n"
    }
}

/// Digits of percentiles that are exact.
const DIGITS: u8 = 3;

/// Counts how often each value occurs, for percentiles.
#[derive(Debug)]
struct Spread {
    values: Histogram<u64>,
    least: u64,
    most: u64,
    sum: u128,
}

/// A summary of a set of values: their number, the smallest and the largest value, and percentiles. A percentile is up to 0.1 % too low,
/// all other figures are exact.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// How many values.
    pub number: u64,
    /// The smallest.
    pub min: u64,
    /// Half of them are at most this.
    pub p50: u64,
    /// 95 % of them are at most this.
    pub p95: u64,
    /// 99 % of them are at most this.
    pub p99: u64,
    /// The largest.
    pub max: u64,
    /// Their mean.
    pub mean: f64,
}

impl Default for Spread {
    fn default() -> Spread {
        Spread {
            values: Histogram::new(DIGITS).expect("between 0 and 5 digits"),
            least: u64::MAX,
            most: 0,
            sum: 0,
        }
    }
}

impl Spread {
    fn add(&mut self, value: u64) {
        self.values
            .record(value)
            .expect("a histogram of three digits holds every u64");
        (self.least, self.most) = (self.least.min(value), self.most.max(value));
        self.sum += u128::from(value);
    }

    /// Returns the summary of the values; `None` if there were no values.
    fn summary(&self) -> Option<Summary> {
        let number = self.values.len();
        let at = |share| {
            let value = self.values.value_at_quantile(share);
            self.values.lowest_equivalent(value).max(self.least)
        };
        (number > 0).then(|| Summary {
            number,
            min: self.least,
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            max: self.most,
            mean: self.sum as f64 / number as f64,
        })
    }
}

// Streams: chains of reads, each of which begins exactly where the one before it ended.
//
// ```text
//   ends that were reached lately, by file and open ──► a read that begins at one continues its chain,
//                                                       any other begins a chain; from 2 reads on that is a stream
// ```
// At most [`MAX_CHAINS`] chains are tracked; the chain that was not continued for the longest time is forgotten, and counted.

/// Maximum number of chains of reads that are tracked at one time.
pub const MAX_CHAINS: usize = 1 << 16;

type Key = (u32, u32, u64);

#[derive(Clone, Copy, Debug, Default)]
struct Chain {
    reads: u64,
    bytes: u64,
    /// The number of this touch, to recognise outdated entries of the queue.
    touch: u64,
}

/// Finds chains of sequential reads.
#[derive(Debug, Default)]
pub struct Streams {
    chains: HashMap<Key, Chain>,
    order: VecDeque<(Key, u64)>,
    touches: u64,
    /// Reads that continued a chain, and their bytes.
    pub continued: (u64, u64),
    /// Bytes of each stream that has ended.
    ended: Spread,
    /// Number of reads in the longest stream.
    pub longest_reads: u64,
    /// Chains that were forgotten.
    pub forgotten: u64,
}

impl Streams {
    /// Adds a read of at least one byte; returns whether it continues a chain.
    pub fn read(&mut self, record: &Record) -> bool {
        let bytes = record.returned.unwrap_or(record.len);
        let key = |at| (record.file, record.open, at);
        let before = self.chains.remove(&key(record.offset));
        let mut chain = before.unwrap_or_default();
        if before.is_some() {
            self.continued = (self.continued.0 + 1, self.continued.1 + bytes);
        }
        self.touches += 1;
        chain = Chain {
            reads: chain.reads + 1,
            bytes: chain.bytes.saturating_add(bytes),
            touch: self.touches,
        };
        let end = key(record.offset.saturating_add(bytes));
        // If two chains reach the same end, they continue as one.
        if let Some(other) = self.chains.insert(end, chain) {
            self.close(other);
        }
        self.order.push_back((end, self.touches));
        self.bound();
        before.is_some()
    }

    fn bound(&mut self) {
        let alive = |chains: &HashMap<Key, Chain>, entry: &(Key, u64)| {
            chains
                .get(&entry.0)
                .is_some_and(|chain| chain.touch == entry.1)
        };
        while self.chains.len() > MAX_CHAINS {
            let Some(oldest) = self.order.pop_front() else {
                return;
            };
            if alive(&self.chains, &oldest)
                && let Some(chain) = self.chains.remove(&oldest.0)
            {
                self.forgotten += 1;
                self.close(chain);
            }
        }
        if self.order.len() > 2 * MAX_CHAINS {
            let chains = &self.chains;
            self.order.retain(|entry| alive(chains, entry));
        }
    }

    fn close(&mut self, chain: Chain) {
        if chain.reads >= 2 {
            self.ended.add(chain.bytes);
            self.longest_reads = self.longest_reads.max(chain.reads);
        }
    }

    /// Returns the summary of the streams' sizes in bytes; must be called at the end of the trace.
    pub fn end(&mut self) -> Option<Summary> {
        let left: Vec<Chain> = self.chains.drain().map(|(_, chain)| chain).collect();
        left.into_iter().for_each(|chain| self.close(chain));
        self.ended.summary()
    }
}

#[cfg(test)]
mod part_tests {
    use super::*;

    #[test]
    fn percentiles_are_of_all_values() {
        let mut spread = Spread::default();
        assert_eq!(spread.summary(), None);
        for value in (1..=100).chain([7, 7, 8]) {
            spread.add(value);
        }
        let s = spread.summary().expect("values");
        let all = (s.number, s.min, s.p50, s.p95, s.p99, s.max);
        assert_eq!(all, (103, 1, 49, 95, 99, 100));
        assert_eq!(s.mean, 5072.0 / 103.0);
        (0..200).for_each(|_| spread.add(u64::MAX));
        let s = spread.summary().expect("values");
        assert!(s.p50 > u64::MAX / 1000 * 999 && s.max == u64::MAX);
    }

    #[test]
    fn interleaved_readers_are_distinguished_and_memory_is_bounded() {
        let mut streams = Streams::default();
        for i in 0..100_u64 {
            for reader in 0..3_u32 {
                let record = Record {
                    open: reader,
                    ..Record::read(0, i * 10, 10)
                };
                assert_eq!(streams.read(&record), i > 0);
            }
            // Random reads: no read continues another.
            assert!(!streams.read(&Record::read(1, i * 1000, 10)));
        }
        assert_eq!(streams.continued, (297, 2970));
        // After a short read, the next read continues where it stopped.
        streams.read(&Record {
            returned: Some(4),
            ..Record::read(2, 0, 10)
        });
        assert!(streams.read(&Record::read(2, 4, 10)));
        for i in 0..3 * MAX_CHAINS as u64 {
            streams.read(&Record::read(3, i * 1000, 10));
            assert!(streams.chains.len() <= MAX_CHAINS && streams.order.len() <= 2 * MAX_CHAINS);
        }
        assert_eq!(streams.forgotten, 2 * MAX_CHAINS as u64 + 104);
        let bytes = streams.end().expect("streams");
        assert_eq!(
            (bytes.number, bytes.min, bytes.max, streams.longest_reads),
            (4, 14, 1000, 100)
        );
    }

    /// A single chain that is never continued must not keep the queue from being cleared.
    #[test]
    fn an_idle_chain_costs_nothing() {
        let mut streams = Streams::default();
        streams.read(&Record::read(0, 1 << 40, 10));
        for i in 0..5 * MAX_CHAINS as u64 {
            streams.read(&Record::read(0, i * 10, 10));
            assert!(streams.order.len() <= 2 * MAX_CHAINS);
        }
        assert!(streams.read(&Record::read(0, (1 << 40) + 10, 10)));
    }
}
