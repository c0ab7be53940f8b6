//! Decides which of a file's streams (sequential or strided runs of reads) a read continues.
//!
//! ```text
//!   read ──► does it continue a stream?      yes: in its readahead, at most a gap beyond it, or at a step of a stride
//!        ──► no: see `candidates.rs`         does it start a stream?
//! ```
//! If a read skips some of a stream's next bytes, it continues the stream only if other reads have read at least a third of the skipped
//! bytes. Without this rule, every random read would continue a stream whose readahead covers much of the file.
//!
//! If reads that hit a stream's readahead have three equal distances in a row, they are a stride, provided that no other read is in
//! progress. So the stride is found before a read misses.
//!
//! A file has at most 16 streams at first. If the table is full, a new stream displaces an old one. A random read usually starts no stream
//! (see `candidates.rs`), so it displaces none. The position at which a displaced stream ended is remembered. If reads continue there,
//! there are too few streams, and their number may double (`candidates.rs`).
//!
//! Example: 100 clients take turns; each reads the same image sequentially. The stream of the seventeenth client displaces that of the
//! first, whose next read continues at the remembered position. After four such reads the table has room for 32 streams, and after twelve
//! for 128.
//!
//! Streams that belong together are merged: several threads of one program each read a piece of a file, then the next free piece.
//!
//! ```text
//!   [=== A ===>[= B =>            A has reached the start of B: they become one stream, which ends where B does
//!   [=== A ==[= B =>======>       B is behind A, and everything between them is cached: they become one stream
//! ```
//! The stream with the longer run stays. Another example: eight threads take pieces of 1 MiB, and read each in reads of 128 KiB. After some
//! reads, the streams of all pieces are one stream, whose readahead is as long as for a single reader: 24 MB.
//!
//! Sources: TaP (FAST 2008) for the table of candidates; ZFS for displacing first the streams that never continued.

use super::{Auto, Candidates, DisplacedRun, Regions, RunKind, survival};
use crate::policy::Ask;
use crate::units::ByteRange;
use alloc::vec::Vec;

/// A stream continues if one in this number of the bytes that a read skips was read: reads with gaps, such as the list of an archive.
const SPARSE: u64 = 3;
/// The largest distance from a read to its run: this multiple of the read's length, within these bounds.
const NEAR_READS: u64 = 4;
const NEAR: (u64, u64) = (16 << 10, 16 << 20);
/// A stream that did not continue has ended after this number of misses in its file, and at least this many for each stream that the file
/// may have.
const IDLE_MISSES: u64 = 256;
const IDLE_TURNS: u64 = 4;

pub fn near(len: u64) -> u64 {
    len.saturating_mul(NEAR_READS).clamp(NEAR.0, NEAR.1)
}

/// The distances between reads that hit a stream's readahead: three equal distances in a row are a stride.
#[derive(Clone, Copy, Debug, Default)]
pub struct Steps {
    /// The latest read.
    start: u64,
    end: u64,
    /// The latest distance, and how often it occurred in a row.
    step: u64,
    equal: u32,
}

/// Number of equal distances that make a stride.
const MIN_STEPS: u32 = 3;
/// The same for a step of a few reads, which reads with irregular gaps may repeat by chance.
const MIN_SHORT_STEPS: u32 = 8;

impl Steps {
    /// No distances yet, after a read from `start` to `end`.
    fn after(start: u64, end: u64) -> Steps {
        Steps {
            start,
            end,
            ..Steps::default()
        }
    }

    /// Records a read of `bytes` bytes at `at`.
    pub fn note(&mut self, at: u64, bytes: u64) {
        if at == self.end {
            self.end += bytes;
            return;
        }
        let step = at.saturating_sub(self.start);
        self.equal = if step > 0 && step == self.step {
            self.equal + 1
        } else {
            1
        };
        (self.start, self.end, self.step) = (at, at + bytes, step);
    }

    /// The step of the stride, if a read at `start` is its latest read or the next one.
    fn to(&self, start: u64) -> Option<u64> {
        let is_next = start == self.start || start == self.start + self.step;
        let steps = if self.step <= near(self.end.saturating_sub(self.start)) {
            MIN_SHORT_STEPS
        } else {
            MIN_STEPS
        };
        (is_next && self.step > 0 && self.equal >= steps).then_some(self.step)
    }
}

/// A sequential or strided run of reads for which the policy reads ahead.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    pub class: RunKind,
    /// Bytes from one read to the next; `None` for a sequential stream.
    pub stride: Option<i64>,
    /// Distinguishes it from the other streams of the file.
    pub id: u32,
    /// Length of a read.
    pub len: u64,
    /// Where the run began.
    pub from: u64,
    /// Where the next read is expected; for a stride, the start of the latest read.
    pub pos: u64,
    /// The end of the readahead; for a stride, the start of its last block.
    pub end: u64,
    /// Length of the run so far, in bytes.
    pub run: u64,
    /// Bytes of readahead that its reader used.
    pub used: u64,
    /// Bytes between `pos` and `end` that reads used since `pos` was set.
    pub touched: u64,
    /// The distances between those reads.
    pub steps: Steps,
    /// How far the stream reads ahead, in bytes.
    pub distance: u64,
    /// The distance does not grow again before the reader has passed this offset.
    pub hold: u64,
    /// Bytes read ahead and not used yet.
    pub held: u64,
    /// The octave of its run that the survival table has counted.
    pub octave: u32,
    /// A read waited for readahead.
    pub late: bool,
    /// The offset of its last mark, where it reads ahead for the last time; only for sequential streams.
    pub last_mark: u64,
    /// The stream continued at least once since it was created.
    pub hit: bool,
    /// Number of misses of the file when the stream last continued.
    pub seen: u64,
    /// Number of decisions of the source when the stream last continued.
    pub clock: u64,
}

/// The streams of one file, and the policy's other state about the reads of the file.
#[derive(Default)]
pub struct Streams {
    pub all: Vec<Stream>,
    pub candidates: Candidates,
    pub regions: Regions,
    pub misses: u64,
    /// Number of streams that the file has had.
    made: u32,
    /// Size of the file in bytes.
    pub size: u64,
    /// The caller said that its reads are random.
    pub off: bool,
}

impl Stream {
    /// Creates the stream of a run of `run` bytes, read in reads of `len` bytes.
    pub fn new(class: RunKind, stride: Option<i64>, pos: u64, run: u64, len: u64) -> Stream {
        Stream {
            class,
            stride,
            len,
            from: pos.saturating_sub(run),
            pos,
            end: pos,
            run,
            steps: Steps::after(pos.saturating_sub(len), pos),
            octave: survival::octave(run),
            ..Stream::default()
        }
    }

    /// Returns whether the reader has passed `hold`: the end of the readahead at the time when the distance last grew.
    pub fn is_past_hold(&self) -> bool {
        match self.stride {
            Some(stride) if stride < 0 => self.hold == 0 || self.pos <= self.hold,
            _ => self.pos >= self.hold,
        }
    }

    /// Whether a sequential stream has a mark that its reader has not reached yet.
    pub fn has_mark_ahead(&self) -> bool {
        self.pos < self.last_mark
    }

    /// The number of bytes that were read ahead and that the reader has not reached yet.
    pub fn ahead(&self) -> u64 {
        match self.stride {
            None => self.end.saturating_sub(self.pos),
            Some(stride) => self.end.abs_diff(self.pos) / stride.unsigned_abs().max(1) * self.len,
        }
    }

    /// Whether a read of `len` bytes at `start` continues the stream, at most `gap` bytes beyond its readahead.
    fn takes(&self, start: u64, len: u64, gap: u64) -> bool {
        match self.stride {
            None => {
                let read = self.touched.saturating_mul(SPARSE);
                let jump = start
                    .saturating_sub(self.pos.min(self.end))
                    .min(self.end.saturating_sub(self.pos));
                start + near(self.len) >= self.pos
                    && start <= self.end.max(self.pos) + gap
                    && jump <= read + near(self.len.min(len))
            }
            Some(stride) => {
                let (step, away) = (stride.unsigned_abs(), start.abs_diff(self.pos));
                let onward = if stride > 0 {
                    start > self.pos
                } else {
                    start < self.pos
                };
                onward
                    && away.is_multiple_of(step)
                    && away <= self.end.abs_diff(self.pos) + 2 * step
            }
        }
    }

    /// Returns whether a read that ends at `end` lies before the stream's position.
    pub fn is_past(&self, end: u64) -> bool {
        self.stride.is_none() && end <= self.pos
    }

    /// Records that the stream's next read is from `start` to `end`.
    pub fn advance(&mut self, start: u64, end: u64) {
        match self.stride {
            None => {
                self.used += end.min(self.end).saturating_sub(self.pos);
                // Cached reads do not call the policy. Count everything up to this read as read, except a gap beyond the readahead.
                let from = if start > self.end { start } else { self.pos };
                self.touched = self.touched.saturating_sub(end.saturating_sub(self.pos));
                self.run += end.saturating_sub(from);
                self.pos = self.pos.max(end);
                self.end = self.end.max(self.pos);
            }
            Some(stride) => {
                let planned = if stride > 0 {
                    start <= self.end
                } else {
                    start >= self.end
                };
                self.used += if planned { end - start } else { 0 };
                self.run += end - start;
                self.touched = self.touched.saturating_sub(self.len);
                self.pos = start;
                self.end = if stride > 0 {
                    self.end.max(start)
                } else {
                    self.end.min(start)
                };
            }
        }
        self.hit = true;
    }

    /// Returns whether the offset `at` is in the stream's readahead, or was in it until a few reads ago.
    pub fn holds(&self, at: u64) -> bool {
        (self.pos.min(self.end).saturating_sub(near(self.len))..=self.pos.max(self.end))
            .contains(&at)
    }
}

impl Streams {
    /// Returns the nearest stream that a read at `start` continues. The gap between the stream's position and `start` is at most
    /// `max_gap`, and at most a quarter of the run's length.
    pub fn find(&self, (start, len): (u64, u64), max_gap: u64) -> Option<usize> {
        let takes = |&at: &usize| {
            let s = &self.all[at];
            s.takes(start, len, max_gap.min(s.run / 4))
        };
        let taking = (0..self.all.len()).filter(takes);
        taking.min_by_key(|&at| self.all[at].pos.abs_diff(start))
    }

    /// The stream whose readahead holds the mark at `at`.
    pub fn marked(&self, at: u64, (start, len): (u64, u64)) -> Option<usize> {
        self.find((at.max(start), len), 0)
            .or_else(|| self.find((start, len), 0))
    }

    /// Returns the stream whose readahead was read in equal steps up to `start`, and the length of a step.
    pub fn stepping(&self, start: u64) -> Option<(usize, i64)> {
        let step = |s: &Stream| s.steps.to(start).filter(|_| s.stride.is_none());
        let at = self.all.iter().position(|s| step(s).is_some())?;
        Some((at, i64::try_from(step(&self.all[at])?).ok()?))
    }

    /// Adds a stream. Returns the index of the new stream, and the displaced stream, if any: a stream that never continued, otherwise the
    /// stream that continued longest ago.
    pub fn add(&mut self, mut stream: Stream) -> (usize, Option<Stream>) {
        self.made = self.made.wrapping_add(1);
        stream.id = self.made;
        let gone = (self.all.len() >= self.candidates.max_streams()).then(|| {
            let oldest = (0..self.all.len())
                .min_by_key(|&at| (self.all[at].hit, self.all[at].seen))
                .unwrap_or(0);
            self.all.swap_remove(oldest)
        });
        if let Some(gone) = gone.as_ref().filter(|gone| gone.stride.is_none()) {
            self.candidates.displaced(DisplacedRun {
                pos: gone.pos,
                end: gone.end,
                run: gone.run,
            });
        }
        self.all.push(stream);
        (self.all.len() - 1, gone)
    }

    /// Removes and returns a stream that has not continued for a long time.
    pub fn take_idle(&mut self) -> Option<Stream> {
        let idle = IDLE_MISSES.max(IDLE_TURNS * self.candidates.max_streams() as u64);
        let at = self.all.iter().position(|s| s.seen + idle < self.misses)?;
        Some(self.all.swap_remove(at))
    }
}

impl Stream {
    /// Whether `other` is a part of this stream. `is_cached` says whether everything between two offsets is cached.
    fn takes_in(&self, other: &Stream, is_cached: impl FnOnce(u64, u64) -> bool) -> bool {
        // Reads of cached bytes do not call the policy, so the position is an estimate: up to here, two thirds of the readahead was used.
        let read = self.touched + self.touched / 2;
        let reach = self.pos.max(self.end.min(self.pos.saturating_add(read)));
        let is_near = other.pos.saturating_add(self.distance) >= self.pos;
        let begins_inside = (self.from..=reach).contains(&other.from);
        self.stride.is_none()
            && other.stride.is_none()
            && begins_inside
            && other.run <= self.run
            && (other.pos >= self.pos || is_near && is_cached(other.pos, self.pos))
    }

    /// Returns whether the stream has passed the offset `at` by no more than its distance, so that another thread of the program may still
    /// read there.
    pub fn is_behind(&self, at: u64) -> bool {
        self.stride.is_none()
            && (self.from..self.pos).contains(&at)
            && at.saturating_add(self.distance) >= self.pos
    }

    fn take_in(&mut self, other: &Stream) {
        self.used += other.used;
        self.late |= other.late;
        self.held += other.held;
        self.seen = self.seen.max(other.seen);
        self.clock = self.clock.max(other.clock);
        self.run += other.pos.saturating_sub(self.pos);
        self.pos = self.pos.max(other.pos);
        self.end = self.end.max(other.end);
        self.touched += other.touched;
        self.distance = self.distance.max(other.distance);
        self.hold = self.hold.max(other.hold);
        self.last_mark = self.last_mark.max(other.last_mark);
        self.hit = true;
    }
}

impl Auto {
    /// Absorbs the streams that belong to a stream that has continued. Returns the stream's index afterwards.
    pub(super) fn join(&mut self, ask: &Ask<'_>, mut at: usize) -> usize {
        let file = self.file(ask);
        let is_cached = |from, to| ask.probe.missing(ByteRange::between(from, to)) == 0;
        let mut other = 0;
        while other < file.all.len() {
            let (this, that) = (&file.all[at], &file.all[other]);
            let (into, from) = if other != at && this.takes_in(that, is_cached) {
                (at, other)
            } else if other != at && that.takes_in(this, is_cached) {
                (other, at)
            } else {
                other += 1;
                continue;
            };
            let part = file.all[from].clone();
            file.all[into].take_in(&part);
            file.all.swap_remove(from);
            at = if into == file.all.len() { from } else { into };
            other = 0;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With readahead from 64K to 1M, a read at 512K does not continue the stream unless the bytes before it were read.
    #[test]
    fn a_jump_over_unread_bytes_is_no_continuation() {
        let mut stream = Stream::new(RunKind::Start, None, 64 << 10, 64 << 10, 4096);
        stream.end = 1 << 20;
        let takes = |stream: &Stream, kib: u64| stream.takes(kib << 10, 4096, 0);
        assert!(takes(&stream, 64) && !takes(&stream, 512));
        stream.touched = 150 << 10;
        assert!(takes(&stream, 512) && !takes(&stream, 900));
    }

    const MIB: u64 = 1 << 20;

    /// A run of 128 KiB reads from one offset to another, which reads 8 MiB ahead.
    fn run(from: u64, pos: u64) -> Stream {
        let mut stream = Stream::new(RunKind::Elsewhere, None, pos, pos - from, 128 << 10);
        (stream.end, stream.distance) = (pos + 8 * MIB, 8 * MIB);
        stream
    }

    #[test]
    fn a_run_takes_in_the_one_that_it_has_come_to() {
        let (first, second) = (run(0, 2 * MIB), run(2 * MIB, 3 * MIB));
        assert!(first.takes_in(&second, |_, _| false));
        assert!(!second.takes_in(&first, |_, _| true), "it began before");
        assert!(!run(0, MIB).takes_in(&second, |_, _| true), "not there yet");
        let longer = run(2 * MIB, 20 * MIB);
        assert!(!first.takes_in(&longer, |_, _| true), "another reader");
        let mut joined = first;
        joined.take_in(&second);
        assert_eq!(
            (joined.from, joined.pos, joined.run, joined.end),
            (0, 3 * MIB, 3 * MIB, 11 * MIB)
        );
    }

    /// A thread that is not done yet; a second reader, if bytes between the two were evicted; and a reader far behind.
    #[test]
    fn a_run_that_is_behind_is_taken_in_where_all_is_cached() {
        let first = run(0, 20 * MIB);
        let behind = run(14 * MIB, 15 * MIB);
        assert!(first.takes_in(&behind, |_, _| true) && !first.takes_in(&behind, |_, _| false));
        assert!(!first.takes_in(&run(MIB, 2 * MIB), |_, _| true));
    }

    /// Most of the readahead up to the other stream was read, without reaching a mark.
    #[test]
    fn cached_reads_count_by_their_bytes() {
        let (mut first, second) = (run(0, MIB), run(2 * MIB, 3 * MIB / 2 + MIB));
        assert!(!first.takes_in(&second, |_, _| true));
        first.touched = 3 * MIB / 4;
        assert!(first.takes_in(&second, |_, _| true));
    }
}
