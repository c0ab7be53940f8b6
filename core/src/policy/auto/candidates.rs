//! The beginnings of streams: reads of a file that go on with none of its streams.
//!
//! A *candidate* is a place where something was missed. The second read that goes on there makes it a stream; one that leaves
//! holes of up to a quarter does so too, with a third read. Reads that go on nowhere are looked at together: two equal
//! distances in a row are a stride, forwards or backwards. Candidates that become streams in the order in which they were found are those of a
//! reader that takes turns: after three, as many of the next ones become streams before their second read.
//!
//! ```text
//!   miss ──► a candidate's next bytes?  promote it                1 read before it: a run of two
//!        ──► where one went?            the same, and the tables were too small
//!        ──► two equal distances?       a strided stream          -64K, -64K: backwards
//!        ──► a new candidate            the oldest goes, and where it ended is kept
//! ```
//! The tables hold 16 streams and 32 candidates at first. Of what they displace the last 512 places are kept. Four reads of 256 that go on
//! at the end of a displaced run double them, up to 512 and 1,024: as many readers go through one file in turns.
//!
//! Example: reads at 128K, 0, 384K, 256K of 128 KiB. The second joins the first below, the third joins above and leaves a hole of
//! a quarter: a stream at 512K.
//! 16 places of a file in turns: each is missed once. In the second round the first three are missed again, the next three are read ahead by then,
//! one is missed, and so on: 7 round trips instead of 16.
//!
//! Sources: TaP (FAST 2008) for the table of candidates, Leap (ATC 2020) for strides, ZFS for holes; ARC (FAST 2003) for sizes that follow hits
//! among what was displaced.

use super::{Auto, Holding, RunKind, Stream, ahead, streams::near, survival};
use crate::policy::{Answer, Ask, Urgency};
use crate::units::ByteRange;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Streams of a file at first and at most, which is also how many displaced runs are known, and candidates for each.
const STREAMS: (usize, usize) = (16, 512);
const CANDIDATES_EACH: usize = 2;
/// How many displaced runs must go on within how many reads before the tables grow.
const GROWS_AFTER: u32 = 4;
const WITHIN: u32 = 256;
/// Candidates that became streams in turn before the next ones are taken for streams.
const MIN_IN_TURN: usize = 3;
/// A stride is at most this multiple of the read, or this, whichever is more: interleaved readers are far apart.
const MAX_STRIDE_READS: u64 = 32;
const MAX_STRIDE: u64 = 1 << 20;

/// A place where something was missed.
#[derive(Clone, Copy)]
struct Candidate {
    low: u64,
    high: u64,
    bytes: u64,
    ups: u32,
    downs: u32,
}

/// A displaced run: where it ended, up to where it was read ahead, and its bytes.
#[derive(Clone, Copy)]
pub struct DisplacedRun {
    pub pos: u64,
    pub end: u64,
    pub run: u64,
}

/// What a read that goes on with no stream is.
pub enum Detection {
    /// Nothing yet.
    Nothing,
    /// The run of `run` bytes that a candidate has become; it ends at `high`.
    Run { high: u64, run: u64 },
    /// Two equal distances.
    Stride(i64),
}

/// Those of one file.
#[derive(Default)]
pub struct Candidates {
    all: Vec<Candidate>,
    /// The latest reads that went on nowhere.
    lone: [(u64, u64); 3],
    gone: VecDeque<DisplacedRun>,
    /// How often the tables were doubled; reads since it was last looked at, and those that went on with a displaced run.
    doubled: u32,
    reads: u32,
    missed: u32,
    /// Where the candidate behind the latest one that became a stream is, and how many did so in the order in which they were found.
    next: usize,
    in_turn: usize,
}

impl Candidates {
    /// Streams that the file may have.
    pub fn max_streams(&self) -> usize {
        (STREAMS.0 << self.doubled).min(STREAMS.1)
    }

    /// A run has lost its place.
    pub fn displaced(&mut self, gone: DisplacedRun) {
        if self.gone.len() == STREAMS.1 {
            self.gone.pop_front();
        }
        self.gone.push_back(gone);
    }

    /// The displaced run in whose readahead, or where it ends, a read begins: it goes on.
    pub fn take_gone(&mut self, start: u64, end: u64) -> Option<DisplacedRun> {
        let at = self
            .gone
            .iter()
            .rposition(|gone| (gone.pos..=gone.end).contains(&start))?;
        let gone = self.gone.remove(at)?;
        // Two reads may follow each other by chance, three hardly.
        if gone.run >= 2 * (end - start) {
            self.missed += 1;
            if self.missed == GROWS_AFTER && self.max_streams() < STREAMS.1 {
                (self.doubled, self.reads, self.missed) = (self.doubled + 1, 0, 0);
            }
        }
        Some(gone)
    }

    /// A read that begins here goes on with a displaced run or a candidate.
    pub fn has(&self, start: u64) -> bool {
        self.gone
            .iter()
            .any(|gone| (gone.pos..=gone.end).contains(&start))
            || self.all.iter().any(|c| c.high == start)
    }

    /// A miss that goes on with no stream. `careful` wants one more read before a run counts.
    pub fn look(&mut self, start: u64, end: u64, careful: bool) -> Detection {
        if let Some(found) = self
            .join(start, end, careful)
            .or_else(|| self.come_back(start, end, careful))
        {
            return found;
        }
        self.is_lone(start, end);
        if let Some(stride) = self.stride() {
            self.lone = Default::default();
            return Detection::Stride(stride);
        }
        self.push(Candidate {
            low: start,
            high: end,
            bytes: end - start,
            ups: 0,
            downs: 0,
        });
        Detection::Nothing
    }

    /// A read that goes on nowhere.
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

    /// A read that goes on where a displaced run ended.
    fn come_back(&mut self, start: u64, end: u64, careful: bool) -> Option<Detection> {
        self.reads += 1;
        if self.reads == WITHIN {
            (self.reads, self.missed) = (0, 0);
        }
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
            return Some(Detection::Nothing);
        }
        Some(Detection::Run { high: end, run })
    }

    /// A candidate has become a stream.
    fn promote(&mut self, at: usize) {
        self.all.remove(at);
        self.in_turn = if at == self.next { self.in_turn + 1 } else { 0 };
        self.next = at;
    }

    /// A read goes on where a candidate ended.
    pub fn went_on(&mut self, start: u64) {
        if let Some(at) = self.all.iter().position(|c| c.high == start) {
            self.promote(at);
        }
    }

    /// The candidates that are next, where the latest ones have become streams in turn: as many again, by their ends and bytes.
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

    /// A read that goes on with a candidate, exactly or with few holes.
    fn join(&mut self, start: u64, end: u64, careful: bool) -> Option<Detection> {
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
            return Some(Detection::Run {
                high: c.high,
                run: c.bytes.min(c.high - c.low),
            });
        }
        let has_no_hole = c.bytes == c.high - c.low && c.bytes == (1 + u64::from(c.downs)) * len;
        if (c.downs >= 3 || c.downs == 2 && has_no_hole) && c.ups == 0 && c.low == start {
            self.all.remove(at);
            return i64::try_from(len).ok().map(|len| Detection::Stride(-len));
        }
        Some(Detection::Nothing)
    }

    /// Two equal distances between reads of one length.
    fn stride(&self) -> Option<i64> {
        let [a, b, c] = self.lone.map(|(start, len)| (start as i64, len));
        let step = a.0 - b.0;
        let equal = step != 0 && step == b.0 - c.0;
        let same = a.1 > 0 && [b.1, c.1].iter().all(|len| *len == a.1);
        let most = MAX_STRIDE.max(a.1.saturating_mul(MAX_STRIDE_READS));
        (equal && same && step.unsigned_abs() <= most).then_some(step)
    }
}

impl Auto {
    /// Streams that were found in turn go on in turn: the next read of each that will be one is read ahead.
    pub(super) fn begin_in_turn(&mut self, ask: &Ask<'_>, len: u64, answer: &mut Answer) {
        let Some(file) = self.files.get_mut(&ask.file.0) else {
            return;
        };
        let next: Vec<(u64, u64)> = file.candidates.take_next().collect();
        for (high, run) in next {
            let price = self.credit.price(&ask.source);
            let end = (high + len).min(ask.file_size);
            let missing = ask.probe.missing(ByteRange::between(high.min(end), end));
            if missing == 0 || missing > price.left || missing / 2 > price.free / ahead::BET_PART {
                continue;
            }
            let mut stream = Stream::new(RunKind::Elsewhere, None, high, run, len);
            (stream.end, stream.distance, stream.clock) = (end, len, self.clock);
            stream.holding = Holding {
                held: missing,
                bet: missing / 2,
            };
            self.credit.change(Holding::default(), stream.holding);
            self.survival
                .grew(RunKind::Elsewhere, None, survival::octave(run));
            let Some(file) = self.files.get_mut(&ask.file.0) else {
                return;
            };
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

    /// Three equal reads, one 512 KiB behind the other, are a stride, and so are three neighbours backwards. A hole between those needs a fourth.
    #[test]
    fn three_reads_are_a_stride() {
        let look = |reads: &[u64]| {
            let mut candidates = Candidates::default();
            let found = reads
                .iter()
                .map(|at| candidates.look(at << 10, (at << 10) + (64 << 10), false));
            found
                .map(|found| {
                    if let Detection::Stride(step) = found {
                        step >> 10
                    } else {
                        0
                    }
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(look(&[0, 512, 1024]), [0, 0, 512]);
        assert_eq!(look(&[1024, 960, 896]), [0, 0, -64]);
        assert_eq!(look(&[1024, 960, 880, 816]), [0, 0, 0, -64]);
    }

    /// The fourth of 16 places and the two behind it are expected once three went on in turn; places in another order are not.
    #[test]
    fn places_in_turn_are_expected() {
        let next = |order: [u64; 3]| {
            let mut candidates = Candidates::default();
            (0..16).for_each(|place| _ = candidates.look(place << 30, (place << 30) + 4096, false));
            order
                .into_iter()
                .for_each(|place| candidates.went_on((place << 30) + 4096));
            candidates
                .take_next()
                .map(|(high, run)| (high >> 30, run))
                .collect::<Vec<_>>()
        };
        assert_eq!(next([0, 1, 2]), [(3, 4096), (4, 4096), (5, 4096)]);
        assert_eq!(next([0, 2, 1]), []);
    }

    /// 100 readers in turns: the third read of some finds where their candidates went, and the tables grow until they hold all.
    #[test]
    fn tables_grow_with_the_readers() {
        let mut candidates = Candidates::default();
        let mut runs = 0;
        for turn in 0..6 {
            for reader in 0..100 {
                let start = (reader << 30) + turn * 4096;
                runs += usize::from(matches!(
                    candidates.look(start, start + 4096, true),
                    Detection::Run { .. }
                ));
            }
        }
        assert!(
            candidates.max_streams() >= 64 && runs >= 100,
            "{} {runs}",
            candidates.max_streams()
        );
    }

    /// Blocks at random, a few of which follow each other by chance.
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
