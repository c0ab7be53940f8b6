//! Classifies the reads of each file as sequential, backward, strided or random, by offsets alone. Streams (series of reads with one
//! pattern) are detected separately for each open file description:
//!
//! ```text
//!   last read of a stream    ├───┤
//!   goes on forward               ├──┤     begins at its end, or less than a page after it
//!   goes on backward      ├──┤             ends where it begins
//! ```
//! A stream has at least three reads, or covers the whole file. Reads outside streams are strided if the distances
//! between their offsets are equal, otherwise random.

use foreread_sim::workload::{Request, RequestKind, Workload};
use std::collections::BTreeMap;

/// Most streams of one open description that are remembered.
const MAX_STREAMS: usize = 64;
/// A gap shorter than a page is skipped without a read: the reader already has that page.
const GAP_BYTES: u64 = 4096;
const MIN_READS: u64 = 3;

/// How many reads of a file are sequential, how many are random, and how many other accesses there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadOrder {
    pub reads: u64,
    /// Reads in forward streams.
    pub sequential: u64,
    pub random: u64,
    /// Hints, and touches of mapped pages.
    pub others: u64,
}

#[derive(Clone, Copy)]
struct Stream {
    /// First byte of the stream, and the start and end of its latest read.
    from: u64,
    start: u64,
    end: u64,
    reads: u64,
    is_backward: bool,
}

#[derive(Default)]
struct OpenReads {
    streams: Vec<Stream>,
    /// Indexes of streams that may continue, the latest last.
    latest: Vec<usize>,
}

/// Classifies the reads of each file.
pub fn of_files(workload: &Workload) -> Vec<ReadOrder> {
    let mut orders = vec![ReadOrder::default(); workload.files.len()];
    let mut opens: BTreeMap<u32, (u32, OpenReads)> = BTreeMap::new();
    for job in &workload.jobs {
        let order = &mut orders[job.file as usize];
        let (_, reads) = opens
            .entry(job.open)
            .or_insert_with(|| (job.file, OpenReads::default()));
        for request in &job.requests {
            if request.kind == RequestKind::Read {
                order.reads += 1;
                reads.add(request);
            } else {
                order.others += 1;
            }
        }
    }
    for (file, reads) in opens.into_values() {
        reads.count(workload.files[file as usize], &mut orders[file as usize]);
    }
    orders
}

impl OpenReads {
    fn add(&mut self, request: &Request) {
        let (start, end) = (request.offset, request.offset.saturating_add(request.len));
        let streams = &mut self.streams;
        let goes_on = |stream: &Stream| {
            let forward =
                stream.start < start && stream.end <= start && start - stream.end < GAP_BYTES;
            let backward = end == stream.start && start < end;
            let is_new = stream.reads == 1;
            (forward && (is_new || !stream.is_backward))
                || (backward && (is_new || stream.is_backward))
        };
        let found = self
            .latest
            .iter()
            .rposition(|stream| goes_on(&streams[*stream]));
        let number = match found {
            Some(at) => {
                let number = self.latest.remove(at);
                let stream = &mut streams[number];
                stream.is_backward = start < stream.start;
                (stream.start, stream.end) = (start, end);
                stream.reads += 1;
                number
            }
            None => {
                if self.latest.len() == MAX_STREAMS {
                    self.latest.remove(0);
                }
                let (from, reads, is_backward) = (start, 1, false);
                streams.push(Stream {
                    from,
                    start,
                    end,
                    reads,
                    is_backward,
                });
                streams.len() - 1
            }
        };
        self.latest.push(number);
    }

    fn count(&self, size: u64, order: &mut ReadOrder) {
        let is_whole = |stream: &&Stream| stream.from == 0 && stream.end >= size;
        let is_stream = |stream: &&Stream| stream.reads >= MIN_READS || is_whole(stream);
        let forward = self
            .streams
            .iter()
            .filter(|stream| is_stream(stream) && !stream.is_backward);
        order.sequential += forward.map(|stream| stream.reads).sum::<u64>();
        let alone: Vec<&Stream> = self
            .streams
            .iter()
            .filter(|stream| !is_stream(stream))
            .collect();
        let mut is_strided = vec![false; alone.len()];
        for (first, three) in alone.windows(3).enumerate() {
            let [a, b, c] = [0, 1, 2].map(|at| three[at].from as i64);
            if b - a == c - b && a != b {
                is_strided[first..first + 3].fill(true);
            }
        }
        let random = alone
            .iter()
            .zip(is_strided)
            .filter(|(_, is_strided)| !is_strided);
        order.random += random.map(|(stream, _)| stream.reads).sum::<u64>();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreread_sim::workload::Job;

    /// Reads of 4 KiB at these pages of one open description: all, sequential, random.
    fn of(pages: &[u64]) -> [u64; 3] {
        let requests = pages.iter().map(|page| Request::read(page * 4096, 4096));
        let workload = Workload {
            name: String::new(),
            files: vec![1 << 30],
            listed: false,
            page_bytes: 4096,
            jobs: vec![Job::new(0, 0, requests.collect())],
        };
        let order = of_files(&workload)[0];
        [order.reads, order.sequential, order.random]
    }

    #[test]
    fn streams_are_told_from_scattered_reads() {
        for (pages, sequential, random) in [
            (&[0, 1, 2, 3][..], 4, 0),
            (&[0, 1000, 1, 1001, 2, 1002], 6, 0),
            (&[9, 8, 7], 0, 0),
            (&[0, 16, 32, 48], 0, 0),
            (&[5, 90, 31], 0, 3),
            (&[7, 7, 7], 0, 3),
            (&[40, 41, 7], 0, 3),
        ] {
            assert_eq!(
                of(pages),
                [pages.len() as u64, sequential, random],
                "{pages:?}"
            );
        }
    }
}
