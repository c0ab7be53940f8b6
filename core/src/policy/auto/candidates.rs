//! Detects new streams (sequential or strided runs of reads) among the reads of a file that continue none of its streams.
//!
//! A *candidate* is the range of a read that missed the cache. If a second read continues there, the candidate becomes a stream. A third
//! read may be needed if the reads leave out up to a quarter of the bytes (`regions.rs` detects reads with larger holes). Reads that
//! continue neither a stream nor a candidate are compared with each other. Two equal distances in a row are a stride, forward or
//! backward. A forward distance of at most four reads is no stride. If candidates become streams in the order in which they were found,
//! one reader probably alternates between these places. So after three such candidates, the next three become streams before their second
//! read.
//!
//! ```text
//!   miss ──► does it continue a candidate?        promote the candidate: a run of two reads
//!        ──► or a displaced run?                  promote it, and count: the tables are too small
//!        ──► two equal distances?                 a strided stream; -64K, -64K is backward
//!        ──► none of these: a new candidate       the oldest candidate goes, and the place where it ended is remembered
//! ```
//! At first the tables hold 16 streams and 32 candidates. If a table is full, a new entry displaces an old one; the ends of the last 512
//! displaced runs are remembered. If four of 256 reads continue at such an end, the file has more readers than the table has entries. Then
//! the tables double, up to 512 streams and 1,024 candidates. A read that follows cached bytes and continues no displaced run counts as 64
//! reads, because programs that read many pieces of a file start such streams all the time. Page faults after cached bytes do not count.
//!
//! Example: a program reads 128 KiB at each of the offsets 128K, 0, 384K and 256K. The second read ends where the first begins. The third
//! begins 128 KiB after the end of the first, and so leaves a hole of a quarter. Now the reads are a stream, and the next read is expected
//! at 512K. Another example: a reader alternates between 16 places of a file. In its first round, each of the 16 reads misses. In the
//! second round, the first three reads miss again. Then the next three places are read ahead, one more read misses, and so on: 7 round
//! trips instead of 16.
//!
//! Sources: TaP (FAST 2008) for the table of candidates; Leap (ATC 2020) for strides; ZFS for holes; ARC (FAST 2003) for tables that grow
//! when displaced entries are needed again.

use super::{Auto, Birth, RunKind, Stream, streams::near, survival};
use crate::policy::{Answer, Ask, Urgency};
use crate::units::ByteRange;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The initial and the largest number of streams of a file, and the number of candidates for each stream. The largest number is also that
/// of displaced runs that are remembered.
const STREAMS: (usize, usize) = (16, 512);
const CANDIDATES_EACH: usize = 2;
/// The tables grow if this number of displaced runs continue within this number of reads.
const GROWS_AFTER: u32 = 4;
const WITHIN: u32 = 256;
/// A stream that starts after cached bytes and continues no displaced run counts as this number of reads. With 16, `grep` over an image
/// took 1.1 times as long.
const NEW_STREAM: u32 = 64;
/// The next candidates become streams early after this number of candidates became streams in turn.
const MIN_IN_TURN: usize = 3;
/// The next candidate is read ahead if half of its bytes are at most the free credit divided by this.
const TURN_PART: u64 = 4;
/// The largest stride: this multiple of the read's length or this number of bytes, whichever is more. Interleaved readers are farther
/// apart.
const MAX_STRIDE_READS: u64 = 32;
const MAX_STRIDE: u64 = 1 << 20;

/// A place where a read missed.
#[derive(Clone, Copy)]
struct Candidate {
    low: u64,
    high: u64,
    bytes: u64,
    ups: u32,
    downs: u32,
}

/// A displaced run: where it ended, where its readahead ended, and its length.
#[derive(Clone, Copy)]
pub struct DisplacedRun {
    pub pos: u64,
    pub end: u64,
    pub run: u64,
}

/// The candidates of one file.
#[derive(Default)]
pub struct Candidates {
    all: Vec<Candidate>,
    /// The latest reads that continued nothing, with start and length.
    lone: [(u64, u64); 3],
    gone: VecDeque<DisplacedRun>,
    /// How often the tables were doubled; the number of reads since the count last restarted, and how many of them continued a displaced
    /// run.
    doubled: u32,
    reads: u32,
    missed: u32,
    /// The index of the candidate after the one that last became a stream, and how many became streams in the order in which they were
    /// found.
    next: usize,
    in_turn: usize,
}

impl Candidates {
    /// The number of streams that the file may have.
    pub fn max_streams(&self) -> usize {
        (STREAMS.0 << self.doubled).min(STREAMS.1)
    }

    /// Remembers a displaced run.
    pub fn displaced(&mut self, gone: DisplacedRun) {
        if self.gone.len() == STREAMS.1 {
            self.gone.pop_front();
        }
        self.gone.push_back(gone);
    }

    /// Removes and returns the displaced run that a read continues: the read begins at the end of the run, or in its readahead.
    pub fn take_gone(&mut self, start: u64, end: u64) -> Option<DisplacedRun> {
        let at = self
            .gone
            .iter()
            .rposition(|gone| (gone.pos..=gone.end).contains(&start))?;
        let gone = self.gone.remove(at)?;
        // Two reads may be adjacent by chance, but hardly three.
        if gone.run >= 2 * (end - start) {
            self.missed += 1;
            if self.missed == GROWS_AFTER && self.max_streams() < STREAMS.1 {
                (self.doubled, self.reads, self.missed) = (self.doubled + 1, 0, 0);
            }
        }
        Some(gone)
    }

    /// Returns whether a read that begins at `start` continues a displaced run or a candidate.
    pub fn has(&self, start: u64) -> bool {
        self.gone
            .iter()
            .any(|gone| (gone.pos..=gone.end).contains(&start))
            || self.all.iter().any(|c| c.high == start)
    }

    /// Returns the run that starts with a read which missed the cache and continues no stream. If `careful` is true, a run needs one more
    /// read.
    pub fn look(&mut self, start: u64, end: u64, careful: bool) -> Option<Birth> {
        if let Some(found) = self
            .join(start, end, careful)
            .or_else(|| self.come_back(start, end, careful))
        {
            return found;
        }
        self.is_lone(start, end);
        if let Some(stride) = self.stride() {
            self.lone = Default::default();
            return Some(Birth::stride(stride, (start, end)));
        }
        self.push(Candidate {
            low: start,
            high: end,
            bytes: end - start,
            ups: 0,
            downs: 0,
        });
        None
    }

    /// Records a read that continues no stream and no candidate.
    pub fn is_lone(&mut self, start: u64, end: u64) {
        self.lone.rotate_right(1);
        self.lone[0] = (start, end - start);
    }

    fn push(&mut self, candidate: Candidate) {
        if self.all.len() >= CANDIDATES_EACH * self.max_streams() {
            let oldest = self.all.remove(0);
            self.displaced(DisplacedRun {
                pos: oldest.high,
                end: oldest.high,
                run: oldest.bytes,
            });
        }
        self.all.push(candidate);
    }

    /// Counts reads. After [`WITHIN`] reads, the count of displaced runs that continued restarts.
    fn count(&mut self, reads: u32) {
        self.reads += reads;
        if self.reads >= WITHIN {
            (self.reads, self.missed) = (0, 0);
        }
    }

    /// Detects a read that continues a displaced run. Returns `Some(None)` if that is not enough for a run.
    fn come_back(&mut self, start: u64, end: u64, careful: bool) -> Option<Option<Birth>> {
        self.count(1);
        let gone = self.take_gone(start, end)?;
        let run = gone.run + end.saturating_sub(gone.pos);
        if careful && gone.run < 2 * (end - start) {
            self.push(Candidate {
                low: gone.pos.saturating_sub(gone.run),
                high: end,
                bytes: run,
                ups: 1,
                downs: 0,
            });
            return Some(None);
        }
        Some(Some(Birth::run(RunKind::Elsewhere, end, run)))
    }

    /// Removes a candidate that has become a stream.
    fn promote(&mut self, at: usize) {
        self.all.remove(at);
        self.in_turn = if at == self.next { self.in_turn + 1 } else { 0 };
        self.next = at;
    }

    /// Records that a read after cached bytes starts a stream: the candidate that ended at `start` becomes a stream, or a displaced run
    /// continues.
    pub fn went_on(&mut self, start: u64, end: u64, is_mapped: bool) {
        if let Some(at) = self.all.iter().position(|c| c.high == start) {
            self.promote(at);
        } else if !is_mapped && self.take_gone(start, end).is_none() {
            self.count(NEW_STREAM);
        }
    }

    /// If the latest candidates became streams in the order in which they were found, removes as many of the next candidates, and returns
    /// the end and length of each.
    pub fn take_next(&mut self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let many = if self.in_turn >= MIN_IN_TURN {
            self.in_turn
        } else {
            0
        };
        let from = self.next.min(self.all.len());
        self.all
            .drain(from..(from + many).min(self.all.len()))
            .map(|c| (c.high, c.bytes.min(c.high - c.low)))
    }

    /// Detects a read that continues a candidate, exactly or with small holes. Returns `Some(None)` if that is not enough for a run.
    fn join(&mut self, start: u64, end: u64, careful: bool) -> Option<Option<Birth>> {
        let len = end - start;
        let fits = |c: &Candidate| {
            let span = c.high.max(end) - c.low.min(start);
            let apart = start.saturating_sub(c.high) + c.low.saturating_sub(end);
            apart == 0 || (apart <= near(len) && 2 * (c.bytes + len) >= span)
        };
        let apart = |c: &Candidate| start.saturating_sub(c.high) + c.low.saturating_sub(end);
        let found = (0..self.all.len()).filter(|&at| fits(&self.all[at]));
        let at = found.min_by_key(|&at| apart(&self.all[at]))?;
        let c = &mut self.all[at];
        (c.ups, c.downs) = (
            c.ups + u32::from(end > c.high),
            c.downs + u32::from(start < c.low),
        );
        (c.low, c.high, c.bytes) = (c.low.min(start), c.high.max(end), c.bytes + len);
        let c = *c;
        if 4 * c.bytes >= 3 * (c.high - c.low) && c.ups > u32::from(careful) {
            self.promote(at);
            let run = c.bytes.min(c.high - c.low);
            return Some(Some(Birth::run(RunKind::Elsewhere, c.high, run)));
        }
        let has_no_hole = c.bytes == c.high - c.low && c.bytes == (1 + u64::from(c.downs)) * len;
        if (c.downs >= 3 || c.downs == 2 && has_no_hole) && c.ups == 0 && c.low == start {
            self.all.remove(at);
            let len = i64::try_from(len).ok()?;
            return Some(Some(Birth::stride(-len, (start, end))));
        }
        Some(None)
    }

    /// Detects two equal distances between reads of the same length.
    fn stride(&self) -> Option<i64> {
        let [a, b, c] = self.lone.map(|(start, len)| (start as i64, len));
        let step = a.0 - b.0;
        let equal = step != 0 && step == b.0 - c.0;
        let same = a.1 > 0 && [b.1, c.1].iter().all(|len| *len == a.1);
        let most = MAX_STRIDE.max(a.1.saturating_mul(MAX_STRIDE_READS));
        // A reader that leaves out a little is better read as a run.
        let is_short = step > 0 && step.unsigned_abs() <= near(a.1);
        (equal && same && !is_short && step.unsigned_abs() <= most).then_some(step)
    }
}

impl Auto {
    /// Streams that were found in turn continue in turn. For each of the next candidates, starts a stream and reads its next read ahead.
    pub(super) fn begin_in_turn(&mut self, ask: &Ask<'_>, len: u64, answer: &mut Answer) {
        let next: Vec<(u64, u64)> = self.file(ask).candidates.take_next().collect();
        for (high, run) in next {
            let price = self.credit.price(&ask.source);
            let end = (high + len).min(ask.file_size);
            let missing = ask.probe.missing(ByteRange::between(high.min(end), end));
            if missing == 0 || missing > price.left || missing / 2 > price.free / TURN_PART {
                continue;
            }
            let mut stream = Stream::new(RunKind::Elsewhere, None, high, run, len);
            (stream.end, stream.distance, stream.clock) = (end, len, self.clock);
            stream.held = missing;
            self.credit.change(0, missing);
            self.survival
                .grew(RunKind::Elsewhere, None, survival::octave(run));
            let file = self.file(ask);
            stream.seen = file.misses;
            let (at, gone) = file.add(stream);
            answer.urgency = Some(Urgency {
                stream: file.all[at].id,
                away: 0,
            });
            gone.iter().for_each(|gone| self.ends(gone, ask.file_size));
            answer.read(high, end - high, Some(high));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three equal reads at distances of 512 KiB are a stride, and so are three adjacent reads backward. With a hole between adjacent
    /// reads, a fourth read is needed.
    #[test]
    fn three_reads_are_a_stride() {
        let look = |reads: &[u64]| {
            let mut candidates = Candidates::default();
            let found = reads
                .iter()
                .map(|at| candidates.look(at << 10, (at << 10) + (64 << 10), false));
            found
                .map(|found| found.and_then(|birth| birth.stride).unwrap_or(0) >> 10)
                .collect::<Vec<_>>()
        };
        assert_eq!(look(&[0, 512, 1024]), [0, 0, 512]);
        assert_eq!(look(&[1024, 960, 896]), [0, 0, -64]);
        assert_eq!(look(&[1024, 960, 880, 816]), [0, 0, 0, -64]);
    }

    /// After three of 16 places continued in turn, the next three are expected; if they continued in another order, none are.
    #[test]
    fn places_in_turn_are_expected() {
        let next = |order: [u64; 3]| {
            let mut candidates = Candidates::default();
            (0..16).for_each(|place| _ = candidates.look(place << 30, (place << 30) + 4096, false));
            order.into_iter().for_each(|place| {
                candidates.went_on((place << 30) + 4096, (place << 30) + 8192, false)
            });
            candidates
                .take_next()
                .map(|(high, run)| (high >> 30, run))
                .collect::<Vec<_>>()
        };
        assert_eq!(next([0, 1, 2]), [(3, 4096), (4, 4096), (5, 4096)]);
        assert_eq!(next([0, 2, 1]), []);
    }

    /// 100 readers in turns: the third read of some continues a displaced candidate, and the tables grow until they hold all readers.
    #[test]
    fn tables_grow_with_the_readers() {
        let mut candidates = Candidates::default();
        let mut runs = 0;
        for turn in 0..6 {
            for reader in 0..100 {
                let start = (reader << 30) + turn * 4096;
                let found = candidates.look(start, start + 4096, true);
                runs += usize::from(found.is_some_and(|birth| birth.stride.is_none()));
            }
        }
        assert!(
            candidates.max_streams() >= 64 && runs >= 100,
            "{} {runs}",
            candidates.max_streams()
        );
    }

    /// Four displaced runs continue after cached bytes: the tables grow, unless as many new streams start, or the file is mapped.
    #[test]
    fn tables_grow_when_displaced_runs_continue() {
        let most = |is_mapped, new_streams: u64| {
            let mut candidates = Candidates::default();
            for at in (0..4).map(|reader| reader << 30) {
                candidates.displaced(DisplacedRun {
                    pos: at,
                    end: at + (64 << 10),
                    run: 32 << 10,
                });
                candidates.went_on(at + (64 << 10), at + (80 << 10), is_mapped);
                (1..=new_streams)
                    .for_each(|n| candidates.went_on(at + (n << 20), at + (n << 20) + 1, false));
            }
            candidates.max_streams()
        };
        assert_eq!(
            (most(false, 0), most(false, 2), most(true, 0)),
            (32, 16, 16)
        );
    }

    /// Random blocks, a few of which are adjacent by chance.
    #[test]
    fn random_reads_do_not_grow_them() {
        let (mut candidates, mut at) = (Candidates::default(), 1_u64);
        for _ in 0..100_000 {
            at = at
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let start = (at >> 33) % 65_536 * 4096;
            _ = candidates.look(start, start + 4096, true);
        }
        assert_eq!(candidates.max_streams(), STREAMS.0);
    }
}
