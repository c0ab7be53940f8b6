//! Which reads belong together: streams as they are seen from outside, by the offsets of the reads alone.
//!
//! This is what a reader does, not what a policy takes it for. Each open description keeps the tails of its latest
//! streams; a read goes on with one of them, or begins a new one.
//!
//! ```text
//!   tail        ├─ last read ─┤
//!   sequential                ├──┤        begins at its end, or less than a page behind it
//!   backward ├──┤                         ends where it begins
//!   strided     │← step →│← step →├──┤    as far from the last one as that was from the one before, of the reads
//!                                         that have gone on with nothing else
//! ```
//! Strides are looked for when all is seen, so that streams in turn at equal distances are not taken for one. Never: more
//! than 64 tails for an open description; a stream that is met again later is a new one. Strided streams that take turns
//! are not told apart.

use std::collections::{BTreeMap, HashMap};

/// Streams of one open description that are remembered: as many as the kernel's users interleave, and then some.
const MAX_TAILS: usize = 64;
/// A gap of less than a page of the page cache is no gap: the reader had the page already.
const NEAR_BYTES: u64 = 4096;
/// Fewer reads than this make no stream, unless they are a whole file.
pub const MIN_READS: u64 = 3;

/// How a stream goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    /// One read that nothing has followed yet.
    #[default]
    Single,
    /// Each read begins where the one before ended.
    Sequential,
    /// Each read ends where the one before began.
    Backward,
    /// Each read, or run of two, begins this many bytes from the one before, forward or backward.
    Strided(i64),
}

/// A stream, as far as offsets tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamSummary {
    pub file: u32,
    /// The open description.
    pub open: u32,
    /// How it goes.
    pub shape: Shape,
    pub reads: u64,
    /// Its first byte.
    pub from: u64,
    /// The end of the furthest read.
    pub end: u64,
    /// The number of its first read and of its last one, among those of its open description.
    pub first: u64,
    /// See there.
    pub last: u64,
}

#[derive(Clone, Copy)]
struct Tail {
    stream: u32,
    start: u64,
    end: u64,
}

#[derive(Default)]
struct Open {
    /// The latest one last.
    tails: Vec<Tail>,
    reads: u64,
}

/// All streams of a run.
#[derive(Default)]
pub struct Streams {
    opens: HashMap<u32, Open>,
    seen: Vec<StreamSummary>,
    /// What a stream became a part of; itself where it did not.
    part_of: Vec<u32>,
}

impl Streams {
    /// The stream that a read of `len` bytes from `offset` belongs to, before [`Streams::finish`].
    pub fn read(&mut self, file: u32, open: u32, offset: u64, len: u64) -> u32 {
        let state = self.opens.entry(open).or_default();
        let (number, end) = (state.reads, offset.saturating_add(len));
        state.reads += 1;
        let seen = &mut self.seen;
        let goes_on = |tail: &Tail| goes_on(tail, seen[tail.stream as usize].shape, offset, end);
        let Some((at, shape)) = (0..state.tails.len())
            .rev()
            .find_map(|at| Some((at, goes_on(&state.tails[at])?)))
        else {
            let stream = seen.len() as u32;
            if state.tails.len() == MAX_TAILS {
                state.tails.remove(0);
            }
            state.tails.push(Tail {
                stream,
                start: offset,
                end,
            });
            self.part_of.push(stream);
            let (from, first, last, reads) = (offset, number, number, 1);
            seen.push(StreamSummary {
                file,
                open,
                shape: Shape::Single,
                reads,
                from,
                end,
                first,
                last,
            });
            return stream;
        };
        let Tail { stream, .. } = state.tails.remove(at);
        state.tails.push(Tail {
            stream,
            start: offset,
            end,
        });
        let whole = &mut seen[stream as usize];
        (whole.shape, whole.last) = (shape, number);
        whole.reads += 1;
        (whole.from, whole.end) = (whole.from.min(offset), whole.end.max(end));
        stream
    }

    /// All reads were seen: what was left alone may lie at equal steps.
    pub fn finish(&mut self) {
        let mut alone: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (number, stream) in self
            .seen
            .iter()
            .enumerate()
            .filter(|(_, s)| s.reads < MIN_READS)
        {
            alone.entry(stream.open).or_default().push(number as u32);
        }
        for streams in alone.into_values() {
            let from = |n: usize| self.seen[streams[n] as usize].from as i64;
            let mut runs = Vec::new();
            let mut first = 0;
            while first + 2 < streams.len() {
                let step = from(first + 1) - from(first);
                let same = (first + 1..streams.len() - 1)
                    .take_while(|n| from(n + 1) - from(*n) == step)
                    .count();
                let is_run = step != 0 && same > 0;
                if is_run {
                    runs.push((first..first + 2 + same, step));
                }
                first += if is_run { 2 + same } else { 1 };
            }
            runs.into_iter()
                .for_each(|(run, step)| self.join(&streams[run], step));
        }
    }

    /// These are one strided stream.
    fn join(&mut self, parts: &[u32], step: i64) {
        let first = parts[0];
        for part in &parts[1..] {
            let part_seen = self.seen[*part as usize];
            self.part_of[*part as usize] = first;
            let whole = &mut self.seen[first as usize];
            whole.reads += part_seen.reads;
            (whole.from, whole.end) =
                (whole.from.min(part_seen.from), whole.end.max(part_seen.end));
            whole.last = whole.last.max(part_seen.last);
        }
        self.seen[first as usize].shape = Shape::Strided(step);
    }

    /// Where a stream ended up: it may have become a part of an earlier one.
    pub fn whole(&self, stream: u32) -> u32 {
        self.part_of[stream as usize]
    }

    /// A stream by its number.
    pub fn get(&self, stream: u32) -> &StreamSummary {
        &self.seen[stream as usize]
    }

    /// How many numbers were given.
    pub fn len(&self) -> usize {
        self.seen.len()
    }
}

/// What a stream with this tail is if the read goes on with it.
fn goes_on(tail: &Tail, shape: Shape, offset: u64, end: u64) -> Option<Shape> {
    let forward = tail.start < offset && offset >= tail.end && offset - tail.end < NEAR_BYTES;
    let backward = end == tail.start && end > offset;
    match shape {
        Shape::Single | Shape::Sequential if forward => Some(Shape::Sequential),
        Shape::Single | Shape::Backward if backward => Some(Shape::Backward),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The streams of reads of 4 KiB at these pages of one open description: shapes, and how many reads of each.
    fn of(pages: &[u64]) -> Vec<(Shape, u64)> {
        let mut streams = Streams::default();
        let numbers: Vec<u32> = pages
            .iter()
            .map(|page| streams.read(0, 0, page * 4096, 4096))
            .collect();
        streams.finish();
        let wholes = (0..streams.len() as u32).filter(|s| streams.whole(*s) == *s);
        let all: Vec<(Shape, u64)> = wholes
            .map(|s| (streams.get(s).shape, streams.get(s).reads))
            .collect();
        assert_eq!(
            all.iter().map(|(_, reads)| reads).sum::<u64>(),
            numbers.len() as u64,
            "each read has one stream"
        );
        all
    }

    #[test]
    fn each_shape_is_seen() {
        assert_eq!(of(&[0, 1, 2, 3]), [(Shape::Sequential, 4)]);
        assert_eq!(of(&[9, 8, 7]), [(Shape::Backward, 3)]);
        assert_eq!(of(&[0, 16, 32, 48]), [(Shape::Strided(65_536), 4)]);
        assert_eq!(of(&[48, 32, 16]), [(Shape::Strided(-65_536), 3)]);
        assert_eq!(of(&[5, 90, 31]), [(Shape::Single, 1); 3]);
        assert_eq!(
            of(&[7, 7, 7]),
            [(Shape::Single, 1); 3],
            "the same again is no stream"
        );
    }

    #[test]
    fn interleaved_streams_are_kept_apart() {
        let (mut streams, mut reads) = (Streams::default(), Vec::new());
        for i in 0..5 {
            for stream in [0, 1000, 2000] {
                reads.push(streams.read(0, 0, (stream + i) * 4096, 4096));
            }
        }
        assert_eq!(reads[..3], [0, 1, 2]);
        assert!(reads.chunks(3).all(|round| round == &reads[..3]));
        streams.finish();
        assert_eq!(
            (
                streams.get(1).reads,
                streams.get(1).shape,
                streams.get(2).last
            ),
            (5, Shape::Sequential, 14)
        );
        // Each open description has its own streams.
        assert_ne!(streams.read(0, 1, 5 * 4096, 4096), 0);
    }

    #[test]
    fn what_is_forgotten_begins_anew() {
        let mut pages: Vec<u64> = (0..=MAX_TAILS as u64).map(|n| n * n * 1000).collect();
        pages.push(1);
        assert_eq!(of(&pages).len(), MAX_TAILS + 2);
    }

    #[test]
    fn a_gap_within_a_page_is_none() {
        let mut streams = Streams::default();
        let reads = [(0, 100), (4000, 100), (8000, 100), (13_000, 100)];
        let numbers: Vec<u32> = reads
            .iter()
            .map(|(at, len)| streams.read(0, 0, *at, *len))
            .collect();
        assert_eq!(numbers, [0, 0, 0, 1]);
    }
}
