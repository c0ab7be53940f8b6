//! Estimates how far ahead of a run of reads it is worth reading, from how far earlier runs of the same length continued.
//!
//! An *octave* holds the run lengths from a power of two to the next. For each octave, a table counts the runs that reached it and the runs
//! that ended in it. A run that reached an octave ends in it with the chance `(ended + 2 x below) / (reached + 2)`. Here `below` is this
//! chance for the octave below, and 1/2 for the lowest octave. So if nothing was counted yet, a run doubles its length with a chance of
//! 1/2. If most runs passed the lower octaves, a run is expected to pass the next octave, too. Reading ahead to the end of an octave is
//! worthwhile if the chance that the run gets there is at least `least`, or `price` if readahead was wasted before:
//!
//! ```text
//!   least = len / (len + rate x latency)                         a wasted byte costs its transfer, a used byte saves latency
//!   price = least + (4/5 - least) x 9/8 x wasted / allowed       4/5: used bytes earn a quarter, so such bets pay for themselves
//! ```
//! Example: reads of 128 KiB from a store with 15 ms latency and 256 MB/s. Rate x latency is 3.8 MB, so the least chance is 1/31. After 256
//! KiB, four octaves with a chance of 1/2 each are worth reading ahead, since 1/2^4 is more than 1/31. For a run from the start of its
//! file, 256 KiB x (2^4 - 1) = 3.8 MB are read ahead. For any other run, at most 1.8 MB are read ahead, and only once another run of its
//! kind ([`RunKind`]) has grown. If eight of ten runs ended in this octave, the chance to pass it, and each octave above, is 1/4. Then two
//! octaves, 768 KiB, are read ahead. When all bytes that may be wasted have been wasted, the chance must be 4/5, so nothing is read ahead.
//!
//! Sources: STEP (Liang et al., ICDCS 2007) and competitive prefetching (Li et al.) for the cost model; Laplace's rule of succession for
//! the prior. The constants were chosen by measuring the baseline workloads of the evaluation.

use crate::storage::RunKind;
use crate::units::mul_div;

/// Number of octaves from 512 bytes up; longer runs count in the last one.
const OCTAVES: usize = 32;
/// Counts are halved when they reach this number, so that old runs, regions and readers are forgotten.
pub const HALVED_AT: u32 = 256;
/// Octaves that one decision may read ahead: 31 times the length of a run from the start of its file, 7 times that of another run. With 31
/// times, programs that read pieces all over a file would waste 31 times each piece before the ends of these runs are counted.
const MAX_AHEAD: usize = 5;
const MAX_AHEAD_ELSEWHERE: usize = 3;
/// More octaves are allowed if earlier runs passed them with at least this chance.
const PASSED: u64 = ONE * 7 / 8;
/// While no run of a kind has grown, one octave: as many bytes again as the run has.
const MAX_AHEAD_NEW: usize = 1;
/// The chance of an octave is known after this number of runs.
const KNOWN_AFTER: u32 = 4;
/// An octave that no run has reached is assumed to end a run with at least this chance.
const MIN_GONE: u64 = ONE / 16;
/// The number 1 in the fixed-point format of chances.
pub const ONE: u64 = 1 << 16;
/// A chance below one in 33 is never enough: see [`threshold`].
const MAX_PRODUCT: u64 = 32;

#[derive(Clone, Copy, Default)]
struct Octave {
    reached: u32,
    ended: u32,
}

#[derive(Default)]
pub struct Survival {
    /// Whether a run of each kind has ever grown: even random reads are adjacent now and then.
    grown: [bool; 3],
    classes: [[Octave; OCTAVES]; 3],
    /// The number of runs that are over, and of those that continued after they had been detected. Halved like the octaves.
    pub over: (u32, u32),
}

/// Returns the octave (power of two) of a run length of `bytes` bytes.
pub fn octave(bytes: u64) -> u32 {
    let octave = (bytes >> 9).checked_ilog2().unwrap_or(0);
    octave.min(OCTAVES as u32 - 1)
}

/// The least chance at which a byte is worth reading ahead, in 1/65536. `product` is rate x latency in bytes; `wasted` of the `allowed`
/// bytes were wasted.
pub fn threshold(len: u64, product: u64, wasted: u64, allowed: u64) -> u64 {
    let len = len.max(1);
    let product = product.clamp(len, len.saturating_mul(MAX_PRODUCT));
    let least = mul_div(ONE, len, len.saturating_add(product));
    // Count an eighth more, because bets made before the price rose may still be lost.
    let wasted = wasted.saturating_add(wasted / 8).min(allowed);
    least + (ONE * 4 / 5).saturating_sub(least) * (wasted >> 9) / (allowed >> 9).max(1)
}

impl Survival {
    /// Records that a run has grown from the octave `from` into the octave `to`; `from` is `None` for a new run.
    pub fn grew(&mut self, class: RunKind, from: Option<u32>, to: u32) {
        self.grown[class as usize] |= from.is_some();
        for at in from.map_or(to, |o| o + 1)..=to {
            let octave = &mut self.classes[class as usize][at as usize];
            octave.reached += 1;
            if octave.reached >= HALVED_AT {
                (octave.reached, octave.ended) = (octave.reached / 2, octave.ended / 2);
            }
        }
    }

    /// Records that a run is over; `went_on` says whether it continued after it had been detected.
    pub fn is_over(&mut self, went_on: bool) {
        let (all, on) = self.over;
        self.over = (all + 1, on + u32::from(went_on));
        if self.over.0 >= HALVED_AT {
            self.over = (self.over.0 / 2, self.over.1 / 2);
        }
    }

    /// Records that a run has ended in this octave, before the end of its file.
    pub fn ended(&mut self, class: RunKind, at: u32) {
        self.classes[class as usize][at as usize].ended += 1;
    }

    /// For each octave from `first` on: the chance that a run which reached it passes it, and whether enough runs have reached it to know.
    /// While an octave has few runs, the chance of the octave below is used.
    fn octaves(&self, class: RunKind, first: u32) -> impl Iterator<Item = (u64, bool)> + '_ {
        let step = |gone: &mut u64, octave: &Octave| {
            let ended = ONE * u64::from(octave.ended.min(octave.reached));
            *gone = (ended + 2 * MIN_GONE.max(*gone)) / (u64::from(octave.reached) + 2);
            Some((ONE - *gone, octave.reached >= KNOWN_AFTER))
        };
        self.classes[class as usize]
            .iter()
            .scan(ONE / 2, step)
            .skip(first as usize)
    }

    /// Returns how many bytes after a run of `run` bytes are worth reading ahead.
    pub fn ahead(&self, class: RunKind, run: u64, threshold: u64) -> u64 {
        let most = if class == RunKind::Start {
            MAX_AHEAD
        } else {
            MAX_AHEAD_ELSEWHERE
        };
        let (mut chance, mut octaves) = (ONE, 0);
        let most = if class == RunKind::Start || self.grown[class as usize] {
            most
        } else {
            MAX_AHEAD_NEW
        };
        for (n, (survives, is_known)) in
            self.octaves(class, octave(run)).take(MAX_AHEAD).enumerate()
        {
            if n >= most && (!is_known || survives < PASSED) {
                break;
            }
            chance = chance * survives / ONE;
            if chance < threshold {
                break;
            }
            octaves += 1;
        }
        run.saturating_mul((1 << octaves) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the header.
    #[test]
    fn octaves_that_are_worth_it() {
        let mut table = Survival::default();
        let wanted = threshold(128 << 10, 3_840_000, 0, 4 << 20);
        assert_eq!(wanted, 65_536 * 131_072 / (131_072 + 3_840_000));
        assert_eq!(
            table.ahead(RunKind::Start, 256 << 10, wanted),
            (256 << 10) * 15
        );
        for run in 0..10 {
            table.grew(RunKind::Start, None, octave(256 << 10));
            if run < 8 {
                table.ended(RunKind::Start, octave(256 << 10));
            }
        }
        assert_eq!(
            table.ahead(RunKind::Start, 256 << 10, wanted),
            (256 << 10) * 3
        );
        assert_eq!(
            table.ahead(RunKind::Elsewhere, 256 << 10, wanted),
            256 << 10,
            "another class, of which no run has grown"
        );
        let dear = threshold(128 << 10, 3_840_000, 4 << 20, 4 << 20);
        assert_eq!(dear, ONE * 4 / 5);
        assert_eq!(table.ahead(RunKind::Start, 256 << 10, dear), 0);
    }

    /// A fast source requires a chance of 1/2: the run's length is read ahead while nothing is known, and nothing once most runs end.
    #[test]
    fn without_latency_it_must_be_likely() {
        let mut table = Survival::default();
        let wanted = threshold(128 << 10, 0, 0, 1);
        assert_eq!(wanted, ONE / 2);
        assert_eq!(table.ahead(RunKind::Start, 4096, wanted), 4096);
        (0..3).for_each(|_| {
            table.grew(RunKind::Start, None, octave(4096));
            table.ended(RunKind::Start, octave(4096));
        });
        assert_eq!(table.ahead(RunKind::Start, 4096, wanted), 0);
    }
}
