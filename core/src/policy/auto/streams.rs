//! The streams of a file: which read goes on with which run.
//!
//! ```text
//!   read ──► a stream's next bytes?     go on                     ahead of pos up to end and a gap, or a step of a stride
//!        ──► else `candidates.rs`       the beginning of one?
//! ```
//! A read beyond a stream's next bytes goes on with it only if at least two thirds of what it jumps over has been read: a stream whose
//! readahead covers much of a file would otherwise take every random read for its own.
//!
//! Three equal distances between reads of what was read ahead are a stride, if nothing else reads: three reads that miss would show it later.
//!
//! A file has at first 16 streams. Only a promotion displaces one, so random reads displace none. One that was displaced is kept as the place
//! where it ended; when reads go on there the streams are too few, and there may be twice as many (`candidates.rs`).
//!
//! Example: 100 clients of one image read in order, in turns. The seventeenth displaces the first, whose next read finds the place where it
//! ended. After four such reads there are 32 streams, and after twelve 128.
//!
//! Sources: TaP (FAST 2008) for the table of candidates, ZFS for never-hit first.

use super::{Candidates, DisplacedRun, Holding, Pace, Regions, RunKind, survival};
use alloc::vec::Vec;

/// How near to a run a read must be, as a multiple of its length, and within which bounds.
const NEAR_READS: u64 = 4;
const NEAR: (u64, u64) = (16 << 10, 16 << 20);
/// Misses of the file after which a stream that went on nowhere has ended: this many, and this many times the streams that it may have.
const IDLE_MISSES: u64 = 256;
const IDLE_TURNS: u64 = 4;

pub fn near(len: u64) -> u64 {
    len.saturating_mul(NEAR_READS).clamp(NEAR.0, NEAR.1)
}

/// How far reads of what is read ahead were apart: three equal distances are a stride.
#[derive(Clone, Copy, Debug, Default)]
pub struct Steps {
    /// The latest read.
    start: u64,
    end: u64,
    /// The latest distance, and how often it came in a row.
    step: u64,
    equal: u32,
}

/// Distances that make a stride.
const MIN_STEPS: u32 = 3;

impl Steps {
    /// None, behind a read.
    fn after(start: u64, end: u64) -> Steps {
        Steps {
            start,
            end,
            ..Steps::default()
        }
    }

    /// Bytes at `at` were read.
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

    /// The step, where a read at `start` is the latest one of a stride or the next one.
    fn to(&self, start: u64) -> Option<u64> {
        let is_next = start == self.start || start == self.start + self.step;
        (is_next && self.step > 0 && self.equal >= MIN_STEPS).then_some(self.step)
    }
}

/// A run that is read ahead.
#[derive(Clone, Debug)]
pub struct Stream {
    pub class: RunKind,
    /// Bytes from one read to the next; none: in order.
    pub stride: Option<i64>,
    /// Distinguishes it from the other streams of the file.
    pub id: u32,
    /// Length of a read.
    pub len: u64,
    /// Where it began.
    pub from: u64,
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
    /// How those reads were apart.
    pub steps: Steps,
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
    /// Where it asks for more for the last time; in order alone.
    pub last_mark: u64,
    /// How fast its reader is.
    pub pace: Pace,
    /// It went on at least once since it was made.
    pub hit: bool,
    /// Misses of the file when it last went on.
    pub seen: u64,
    /// Decisions of the source when it last went on.
    pub clock: u64,
}

/// All of one file.
#[derive(Default)]
pub struct Streams {
    pub all: Vec<Stream>,
    pub candidates: Candidates,
    pub regions: Regions,
    pub misses: u64,
    /// Streams that it has had.
    made: u32,
    /// Bytes of the file.
    pub size: u64,
    /// The caller said that its reads are random.
    pub off: bool,
}

impl Stream {
    /// A run of `run` bytes with reads of `len` bytes.
    pub fn new(class: RunKind, stride: Option<i64>, pos: u64, run: u64, len: u64) -> Stream {
        Stream {
            class,
            stride,
            id: 0,
            len,
            from: pos.saturating_sub(run),
            pos,
            end: pos,
            run,
            used: 0,
            touched: 0,
            steps: Steps::after(pos.saturating_sub(len), pos),
            distance: 0,
            hold: 0,
            holding: Holding::default(),
            octave: survival::octave(run),
            late: false,
            last_mark: 0,
            pace: Pace::default(),
            hit: false,
            seen: 0,
            clock: 0,
        }
    }

    /// Its reader has passed what was ahead when its distance last grew.
    pub fn is_past_hold(&self) -> bool {
        let forward = self.stride.is_none_or(|s| s > 0);
        self.hold == 0
            || if forward {
                self.pos >= self.hold
            } else {
                self.pos <= self.hold
            }
    }

    /// A stream in order is asked about again before its reader has passed all of it.
    pub fn has_mark_ahead(&self) -> bool {
        self.pos < self.last_mark
    }

    /// Bytes that are read ahead and not read yet.
    pub fn ahead(&self) -> u64 {
        match self.stride {
            None => self.end.saturating_sub(self.pos),
            Some(stride) => self.end.abs_diff(self.pos) / stride.unsigned_abs().max(1) * self.len,
        }
    }

    /// Whether a read of `len` bytes at `start` goes on with it, at most `gap` beyond what was read ahead.
    fn takes(&self, start: u64, len: u64, gap: u64) -> bool {
        match self.stride {
            None => {
                let read = self.touched + self.touched / 2;
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

    /// Whether readahead at `at` is one of its, or was a few reads ago.
    pub fn holds(&self, at: u64) -> bool {
        (self.pos.min(self.end).saturating_sub(near(self.len))..=self.pos.max(self.end))
            .contains(&at)
    }
}

impl Streams {
    /// The stream that a read at `start` goes on with: the nearest one. `gap` is of the run's own length at most a quarter.
    pub fn find(&self, (start, len): (u64, u64), max_gap: u64) -> Option<usize> {
        let taking = self
            .all
            .iter()
            .enumerate()
            .filter(|(_, s)| s.takes(start, len, max_gap.min(s.run / 4)));
        taking
            .min_by_key(|(_, s)| s.pos.abs_diff(start))
            .map(|(at, _)| at)
    }

    /// The stream whose readahead holds the mark at `at`.
    pub fn marked(&self, at: u64, (start, len): (u64, u64)) -> Option<usize> {
        self.find((at.max(start), len), 0)
            .or_else(|| self.find((start, len), 0))
    }

    /// The stream of whose readahead equal steps were read up to `start`, and the step.
    pub fn stepping(&self, start: u64) -> Option<(usize, i64)> {
        let step = |s: &Stream| s.steps.to(start).filter(|_| s.stride.is_none());
        let at = self.all.iter().position(|s| step(s).is_some())?;
        Some((at, i64::try_from(step(&self.all[at])?).ok()?))
    }

    /// Adds a stream; gives back the one that has to go for it: one that never went on, else the one that did so longest ago.
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

    /// A stream that has not gone on for long.
    pub fn take_idle(&mut self) -> Option<Stream> {
        let idle = IDLE_MISSES.max(IDLE_TURNS * self.candidates.max_streams() as u64);
        let at = self.all.iter().position(|s| s.seen + idle < self.misses)?;
        Some(self.all.swap_remove(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Read ahead from 64K to 1M: a read at 512K is another one's unless the bytes before it were read.
    #[test]
    fn a_jump_over_unread_bytes_is_no_continuation() {
        let mut stream = Stream::new(RunKind::Start, None, 64 << 10, 64 << 10, 4096);
        stream.end = 1 << 20;
        let takes = |stream: &Stream, kib: u64| stream.takes(kib << 10, 4096, 0);
        assert!(takes(&stream, 64) && !takes(&stream, 512));
        stream.touched = 300 << 10;
        assert!(takes(&stream, 512) && !takes(&stream, 900));
    }
}
