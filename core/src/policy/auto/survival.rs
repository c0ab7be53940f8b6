//! How far ahead a run of reads is worth reading: what runs of its length have done before.
//!
//! For each octave of length the table counts the runs that reached it and those that ended in it. A run that reached an octave
//! ends in it with the chance `(ended + 2 x below) / (reached + 2)`, where `below` is that of the octave below and 1/2 at
//! first: a run of unknown kind goes on for as long again, and one that has passed many octaves passes the next one, too. Reading ahead to the end of an octave pays as long as the chance that the run
//! gets there is at least
//!
//! ```text
//!   least = len / (len + rate x latency)                         a wasted byte costs its transfer, a byte of use saves latency
//!   price = least + (4/5 - least) x 9/8 x wasted / allowed       4/5: use earns a quarter, so such bets pay for themselves
//! ```
//! Example: reads of 128 KiB from a store of 15 ms and 256 MB/s. The product is 3.8 MB, the least chance 1/31. After 256 KiB four
//! octaves of a chance of 1/2 each are good: 256 KiB x (2^4 - 1) = 3.8 MB are read ahead of a run from the start of its file, 1.8 MB of another once one of that
//! kind has grown. After eight runs of ten that
//! ended in this octave it and all above are passed with 1/4: two octaves, 768 KiB. When all that may be wasted is wasted, the
//! chance must be 4/5: nothing.
//!
//! Sources: STEP (Liang et al., ICDCS 2007) and competitive prefetching (Li et al.) for the cost model; Laplace's rule of
//! succession for the prior; the figures chosen on the baseline of the evaluation.

use crate::storage::RunKind;
use crate::units::mul_div;

/// Octaves from 512 bytes up: more than any run has.
const OCTAVES: usize = 64;
/// Counts are halved when they reach this, so that old runs, regions and readers are forgotten.
pub const HALVED_AT: u32 = 256;
/// Octaves that one decision may look ahead: 31 times a run from the start of its file, 7 times another one. Programs that read
/// pieces all over a file waste 31 times each piece before their ends are counted.
const MAX_AHEAD: usize = 5;
const MAX_AHEAD_ELSEWHERE: usize = 3;
/// More where runs have shown them to be passed with this chance.
const PASSED: u64 = ONE * 7 / 8;
/// And as much again as it has run while no run of its kind has grown.
const MAX_AHEAD_NEW: usize = 1;
/// The least chance for a single read behind cached bytes: three ends are enough to stop such bets.
const MIN_NEXT: u64 = ONE / 4;
/// Runs in an octave after which its chance is known.
const KNOWN_AFTER: u32 = 4;
/// The chance to end that is assumed at least of an octave that no run has reached.
const MIN_GONE: u64 = ONE / 16;
/// One in fixed point.
pub const ONE: u64 = 1 << 16;
/// The least chance that is ever enough is one in 33: see [`threshold`].
const MAX_PRODUCT: u64 = 32;

#[derive(Clone, Copy, Default)]
struct Octave {
    reached: u32,
    ended: u32,
}

pub struct Survival {
    /// Whether a run of this kind has ever grown: a source of random reads has adjacent ones now and then.
    grown: [bool; 3],
    classes: [[Octave; OCTAVES]; 3],
    /// Runs that are over, and those of them that went on after they had been found. Halved like the octaves.
    pub over: (u32, u32),
}

/// The octave of a run of `bytes` bytes.
pub fn octave(bytes: u64) -> u32 {
    (bytes >> 9).checked_ilog2().unwrap_or(0)
}

/// The chance from which on a byte is worth reading ahead, in 1/65536. `product` is rate x latency in bytes, `wasted` what was
/// wasted of the `allowed` bytes.
pub fn threshold(len: u64, product: u64, wasted: u64, allowed: u64) -> u64 {
    let len = len.max(1);
    let product = product.clamp(len, len.saturating_mul(MAX_PRODUCT));
    let least = mul_div(ONE, len, len.saturating_add(product));
    // An eighth early: bets that were made before the price rose are still to be lost.
    let wasted = wasted.saturating_add(wasted / 8).min(allowed);
    least + (ONE * 4 / 5).saturating_sub(least) * (wasted >> 9) / (allowed >> 9).max(1)
}

impl Survival {
    pub fn new() -> Survival {
        Survival {
            grown: [false; 3],
            classes: [[Octave::default(); OCTAVES]; 3],
            over: (0, 0),
        }
    }

    /// A run has grown from one octave into another; `from` is none at its birth.
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

    /// A run is over; `went_on`: after it had been found.
    pub fn is_over(&mut self, went_on: bool) {
        let (all, on) = self.over;
        self.over = (all + 1, on + u32::from(went_on));
        if self.over.0 >= HALVED_AT {
            self.over = (self.over.0 / 2, self.over.1 / 2);
        }
    }

    /// A run has ended in this octave, and not at the end of its file.
    pub fn ended(&mut self, class: RunKind, at: u32) {
        self.classes[class as usize][at as usize].ended += 1;
    }

    /// The octaves from `first` on: the chance that a run which reached one leaves it alive, and whether enough runs have
    /// reached it to know. What an octave has not shown yet is as in the one below.
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

    /// Bytes beyond a run of `run` bytes that are worth reading.
    pub fn ahead(&self, class: RunKind, run: u64, threshold: u64) -> u64 {
        let most = if class == RunKind::Start {
            MAX_AHEAD
        } else {
            MAX_AHEAD_ELSEWHERE
        };
        let (mut chance, mut octaves) = (ONE, 0);
        let threshold = if class == RunKind::Next {
            threshold.max(MIN_NEXT)
        } else {
            threshold
        };
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

    /// The part of `ahead` bytes beyond a run of `run` bytes that is expected to be wasted, in 1/65536: the chance that the run
    /// ends before them.
    pub fn waste(&self, class: RunKind, run: u64, ahead: u64) -> u64 {
        let (mut chance, mut reach, goal) = (ONE, run.max(1), run.saturating_add(ahead));
        for (survives, _) in self.octaves(class, octave(run)) {
            if reach >= goal {
                break;
            }
            let part = (goal - reach).min(reach);
            let gone = u128::from(ONE - survives) * u128::from(part) / u128::from(reach);
            chance = chance * (ONE - u64::try_from(gone).unwrap_or(ONE)) / ONE;
            reach = reach.saturating_mul(2);
        }
        ONE - chance
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the header.
    #[test]
    fn octaves_that_are_worth_it() {
        let mut table = Survival::new();
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

    /// A run of 1 MiB with the prior: half of it more is wasted with a chance of 1/4, as much again with 1/2.
    #[test]
    fn expected_waste() {
        let table = Survival::new();
        assert_eq!(table.waste(RunKind::Start, 1 << 20, 1 << 19), ONE / 4);
        assert_eq!(table.waste(RunKind::Start, 1 << 20, 1 << 20), ONE / 2);
        assert_eq!(table.waste(RunKind::Start, 1 << 20, 3 << 20), ONE * 3 / 4);
    }

    /// Random blocks that happen to follow cached ones: after three ends there are no more bets.
    #[test]
    fn a_single_read_behind_cached_bytes_must_be_likely() {
        let mut table = Survival::new();
        let wanted = threshold(4096, 1 << 30, 0, 1);
        assert_eq!(
            table.ahead(RunKind::Next, 4096, wanted),
            4096,
            "no run of the kind has grown"
        );
        table.grew(RunKind::Next, Some(0), 0);
        assert_eq!(table.ahead(RunKind::Next, 4096, wanted), 4096 * 3);
        (0..3).for_each(|_| {
            table.grew(RunKind::Next, None, octave(4096));
            table.ended(RunKind::Next, octave(4096));
        });
        assert_eq!(table.ahead(RunKind::Next, 4096, wanted), 0);
        assert_eq!(table.ahead(RunKind::Start, 4096, wanted), 4096 * 31);
    }

    /// A fast source wants one half: as much again while nothing is known, nothing when most runs end.
    #[test]
    fn without_latency_it_must_be_likely() {
        let mut table = Survival::new();
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
