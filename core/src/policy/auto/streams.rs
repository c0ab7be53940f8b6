//! The streams of a file: which read goes on with which run, and which reads are the beginning of one.
//!
//! A *candidate* is a place where something was missed. The second read that goes on there makes it a stream; one that leaves
//! holes of up to a quarter does so too, with a third read. Reads that go on nowhere are looked at together: three equal
//! distances in a row are a stride, forwards or backwards.
//!
//! ```text
//!   miss ──► a stream's next bytes?     go on                     ahead of pos up to end and a gap, or a step of a stride
//!        ──► a candidate's next bytes?  promote it                1 read before it: a run of two
//!        ──► three equal distances?     a strided stream          -64K, -64K, -64K: backwards
//!        ──► a new candidate            the oldest of 32 goes
//! ```
//! A read beyond a stream's next bytes goes on with it only if at least two thirds of what it jumps over has been read: a stream whose
//! readahead covers much of a file would otherwise take every random read for its own.
//!
//! Example: reads at 128K, 0, 384K, 256K of 128 KiB. The second joins the first below, the third joins above and leaves a hole of
//! a quarter: a stream at 512K. Only a promotion displaces a stream, so random reads displace none.
//!
//! Sources: TaP (FAST 2008) for the table of candidates, Leap (ATC 2020) for strides, ZFS for holes and never-hit first.

use super::{Class, Holding, Regions, gate};
use alloc::vec::Vec;

/// Streams of a file.
const MAX_STREAMS: usize = 16;
/// Candidates of a file.
const MAX_CANDIDATES: usize = 32;
/// How near to a run a read must be, as a multiple of its length, and within which bounds.
const NEAR_READS: u64 = 4;
const NEAR: (u64, u64) = (16 << 10, 16 << 20);
/// A stride is at most this multiple of the read, or this, whichever is more: interleaved readers are far apart.
const MAX_STRIDE_READS: u64 = 32;
const MAX_STRIDE: u64 = 1 << 20;
/// Misses of the file after which a stream that went on nowhere has ended.
const IDLE_MISSES: u64 = 256;

fn near(len: u64) -> u64 {
    len.saturating_mul(NEAR_READS).clamp(NEAR.0, NEAR.1)
}
/// A run that is read ahead.
#[derive(Clone, Debug)]
pub struct Stream {
    pub class: Class,
    /// Bytes from one read to the next; none: in order.
    pub stride: Option<i64>,
    /// Length of a read.
    pub len: u64,
    /// Where the next read is expected; for a stride the start of the latest one.
    pub pos: u64,
    /// Up to where has been read ahead; for a stride the start of the last one.
    pub end: u64,
    /// Bytes that it has run.
    pub run: u64,
    /// Bytes of readahead that it made use of.
    pub used: u64,
    /// Bytes between `pos` and `end` that reads made use of since `pos` was set.
    pub touched: u64,
    /// How far it reads ahead.
    pub distance: u64,
    /// It does not grow again before this place.
    pub hold: u64,
    /// Its part of the credit.
    pub holding: Holding,
    /// The octave of its run that is counted.
    pub octave: u32,
    /// A read waited for what was read ahead.
    pub late: bool,
    /// It went on at least once since it was made.
    pub hit: bool,
    /// Misses of the file when it last went on.
    pub seen: u64,
    /// Decisions of the source when it last went on.
    pub clock: u64,
}

/// A place where something was missed.
#[derive(Clone, Copy)]
struct Candidate {
    low: u64,
    high: u64,
    bytes: u64,
    ups: u32,
    downs: u32,
}

/// What a read that goes on with no stream is.
pub enum Found {
    /// Nothing yet.
    Nothing,
    /// The run of `run` bytes that a candidate has become; it ends at `high`.
    Run { high: u64, run: u64 },
    /// Three equal distances.
    Stride(i64),
}

/// All of one file.
#[derive(Default)]
pub struct Streams {
    pub all: Vec<Stream>,
    candidates: Vec<Candidate>,
    pub regions: Regions,
    /// The latest reads that went on nowhere.
    lone: [(u64, u64); 4],
    pub misses: u64,
    /// Bytes of the file.
    pub size: u64,
    /// The caller said that its reads are random.
    pub off: bool,
}

impl Stream {
    /// A run of `run` bytes with reads of `len` bytes.
    pub fn new(class: Class, stride: Option<i64>, pos: u64, run: u64, len: u64) -> Stream {
        Stream {
            class,
            stride,
            len,
            pos,
            end: pos,
            run,
            used: 0,
            touched: 0,
            distance: 0,
            hold: 0,
            holding: Holding::default(),
            octave: gate::octave(run),
            late: false,
            hit: false,
            seen: 0,
            clock: 0,
        }
    }

    /// Its reader has passed what was ahead when its distance last grew.
    pub fn is_past_hold(&self) -> bool {
        let forward = self.stride.is_none_or(|s| s > 0);
        self.hold == 0 || if forward { self.pos >= self.hold } else { self.pos <= self.hold }
    }

    /// Bytes that are read ahead and not read yet.
    pub fn ahead(&self) -> u64 {
        match self.stride {
            None => self.end.saturating_sub(self.pos),
            Some(stride) => self.end.abs_diff(self.pos) / stride.unsigned_abs().max(1) * self.len,
        }
    }

    /// Whether a read of `len` bytes at `start` goes on with it, at most `gap` beyond what was read ahead.
    fn takes(&self, start: u64, gap: u64) -> bool {
        match self.stride {
            None => {
                let read = self.touched + self.touched / 2;
                let jump = start.saturating_sub(self.pos.min(self.end)).min(self.end.saturating_sub(self.pos));
                start + near(self.len) >= self.pos
                    && start <= self.end.max(self.pos) + gap
                    && jump <= read + near(self.len)
            }
            Some(stride) => {
                let (step, away) = (stride.unsigned_abs(), start.abs_diff(self.pos));
                let onward = if stride > 0 { start > self.pos } else { start < self.pos };
                onward && away.is_multiple_of(step) && away <= self.end.abs_diff(self.pos) + 2 * step
            }
        }
    }

    /// A read that ends at `end` is behind it.
    pub fn is_past(&self, end: u64) -> bool {
        self.stride.is_none() && end <= self.pos
    }

    /// Its next read is from `start` to `end`.
    pub fn advance(&mut self, start: u64, end: u64) {
        match self.stride {
            None => {
                self.used += end.min(self.end).saturating_sub(self.pos);
                // Cached reads are not seen: all up to here has been read, but for what is beyond the readahead.
                let from = if start > self.end { start } else { self.pos };
                self.touched = self.touched.saturating_sub(end.saturating_sub(self.pos));
                self.run += end.saturating_sub(from);
                self.pos = self.pos.max(end);
                self.end = self.end.max(self.pos);
            }
            Some(stride) => {
                let planned = if stride > 0 { start <= self.end } else { start >= self.end };
                self.used += if planned { end - start } else { 0 };
                self.run += end - start;
                self.touched = self.touched.saturating_sub(self.len);
                self.pos = start;
                self.end = if stride > 0 { self.end.max(start) } else { self.end.min(start) };
            }
        }
        self.hit = true;
    }

    /// Whether readahead at `at` is one of its, or was a few reads ago.
    pub fn holds(&self, at: u64) -> bool {
        (self.pos.min(self.end).saturating_sub(near(self.len))..=self.pos.max(self.end)).contains(&at)
    }
}

impl Streams {
    /// The stream that a read at `start` goes on with: the nearest one. `gap` is of the run's own length at most a quarter.
    pub fn find(&self, start: u64, max_gap: u64) -> Option<usize> {
        let taking = |s: &&(usize, &Stream)| s.1.takes(start, max_gap.min(s.1.run / 4));
        let numbered: Vec<(usize, &Stream)> = self.all.iter().enumerate().collect();
        let nearest = numbered.iter().filter(taking).min_by_key(|(_, s)| s.pos.abs_diff(start));
        nearest.map(|(at, _)| *at)
    }

    /// The stream whose readahead holds the mark at `at`.
    pub fn marked(&self, at: u64, start: u64) -> Option<usize> {
        self.find(at.max(start), 0).or_else(|| self.find(start, 0))
    }

    /// A miss that goes on with no stream. `careful` wants one more read before a run counts.
    pub fn look(&mut self, start: u64, end: u64, careful: bool) -> Found {
        self.misses += 1;
        if let Some(found) = self.join(start, end, careful) {
            return found;
        }
        self.lone.rotate_right(1);
        self.lone[0] = (start, end - start);
        if let Some(stride) = self.stride() {
            self.lone = Default::default();
            return Found::Stride(stride);
        }
        if self.candidates.len() == MAX_CANDIDATES {
            self.candidates.remove(0);
        }
        self.candidates.push(Candidate { low: start, high: end, bytes: end - start, ups: 0, downs: 0 });
        Found::Nothing
    }

    /// A read that goes on with a candidate, exactly or with few holes.
    fn join(&mut self, start: u64, end: u64, careful: bool) -> Option<Found> {
        let len = end - start;
        let fits = |c: &Candidate| {
            let span = c.high.max(end) - c.low.min(start);
            let apart = start.saturating_sub(c.high) + c.low.saturating_sub(end);
            apart == 0 || (apart <= near(len) && 2 * (c.bytes + len) >= span)
        };
        let apart = |c: &Candidate| start.saturating_sub(c.high) + c.low.saturating_sub(end);
        let found = (0..self.candidates.len()).filter(|&at| fits(&self.candidates[at]));
        let at = found.min_by_key(|&at| apart(&self.candidates[at]))?;
        let c = &mut self.candidates[at];
        (c.ups, c.downs) = (c.ups + u32::from(end > c.high), c.downs + u32::from(start < c.low));
        (c.low, c.high, c.bytes) = (c.low.min(start), c.high.max(end), c.bytes + len);
        let c = *c;
        if 4 * c.bytes >= 3 * (c.high - c.low) && c.ups > u32::from(careful) {
            self.candidates.remove(at);
            return Some(Found::Run { high: c.high, run: c.bytes.min(c.high - c.low) });
        }
        if c.downs >= 3 && c.ups == 0 && c.low == start {
            self.candidates.remove(at);
            return i64::try_from(len).ok().map(|len| Found::Stride(-len));
        }
        Some(Found::Nothing)
    }

    /// Three equal distances between reads of one length.
    fn stride(&self) -> Option<i64> {
        let [a, b, c, d] = self.lone.map(|(start, len)| (start as i64, len));
        let step = a.0 - b.0;
        let equal = step != 0 && step == b.0 - c.0 && step == c.0 - d.0;
        let same = a.1 > 0 && [b.1, c.1, d.1].iter().all(|len| *len == a.1);
        let most = MAX_STRIDE.max(a.1.saturating_mul(MAX_STRIDE_READS));
        (equal && same && step.unsigned_abs() <= most).then_some(step)
    }

    /// Adds a stream; gives back the one that has to go for it: one that never went on, else the one that did so longest ago.
    pub fn add(&mut self, stream: Stream) -> (usize, Option<Stream>) {
        let gone = (self.all.len() == MAX_STREAMS).then(|| {
            let oldest = (0..self.all.len()).min_by_key(|&at| (self.all[at].hit, self.all[at].seen)).unwrap_or(0);
            self.all.swap_remove(oldest)
        });
        self.all.push(stream);
        (self.all.len() - 1, gone)
    }

    /// A stream that has not gone on for long.
    pub fn take_idle(&mut self) -> Option<Stream> {
        let at = self.all.iter().position(|s| s.seen + IDLE_MISSES < self.misses)?;
        Some(self.all.swap_remove(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Read ahead from 64K to 1M: a read at 512K is another one's unless the bytes before it were read.
    #[test]
    fn a_jump_over_unread_bytes_is_no_continuation() {
        let mut stream = Stream::new(Class::Start, None, 64 << 10, 64 << 10, 4096);
        stream.end = 1 << 20;
        assert!(stream.takes(64 << 10, 0) && !stream.takes(512 << 10, 0));
        stream.touched = 300 << 10;
        assert!(stream.takes(512 << 10, 0) && !stream.takes(900 << 10, 0));
    }
}
