//! How far ahead a run of reads is worth reading: what runs of its length have done before.
//!
//! For each octave of length the table counts the runs that reached it and those that ended in it. A run that reached an octave
//! leaves it alive with the chance `1 - (ended + 1) / (reached + 2)`: one half while nothing is known, so that a run of
//! unknown kind goes on for as long again. Reading ahead to the end of an octave pays as long as the chance that the run
//! gets there is at least
//!
//! ```text
//!   W / (V + W) = len / (len + rate x latency)
//! ```
//! because a wasted byte costs its transfer, and a byte of use saves its part of the latency of the read that would have
//! fetched it. Example: reads of 128 KiB from a store of 15 ms and 256 MB/s. The product is 3.8 MB, the chance that is wanted
//! 1/31. After 256 KiB four octaves of a chance of 1/2 each are good: 256 KiB x (2^4 - 1) = 3.8 MB are read ahead. After eight
//! runs of ten that ended at 512 KiB, one octave with 1/4 and nothing known behind it: three octaves, 1.8 MB.
//!
//! Sources: STEP (Liang et al., ICDCS 2007) and competitive prefetching (Li et al.) for the cost model; Laplace's rule of
//! succession for the prior.

/// Octaves from 512 bytes up.
const OCTAVES: usize = 40;
/// Counts are halved when they reach this, so that old runs are forgotten.
const HALVED_AT: u32 = 256;
/// Octaves that one decision may look ahead: 31 times the run.
const MAX_AHEAD: u32 = 5;
/// One in fixed point.
const ONE: u64 = 1 << 16;
/// The least chance that is ever enough is one in 33: see [`threshold`].
const MAX_PRODUCT: u64 = 32;

/// How a run began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// With the first bytes of its file.
    Start,
    /// Anywhere else.
    Elsewhere,
}

#[derive(Clone, Copy, Default)]
struct Octave {
    reached: u32,
    ended: u32,
}

/// What runs have done.
pub struct Survival {
    classes: [[Octave; OCTAVES]; 2],
}

/// The octave of a run of `bytes` bytes.
pub fn octave(bytes: u64) -> u32 {
    (bytes >> 9).checked_ilog2().unwrap_or(0).min(OCTAVES as u32 - 1)
}

/// The chance from which on a byte is worth reading ahead, in 1/65536. `product` is rate x latency in bytes.
pub fn threshold(len: u64, product: u64) -> u64 {
    let len = len.max(1);
    let product = product.clamp(len, len.saturating_mul(MAX_PRODUCT));
    ONE * len / (len + product)
}

impl Survival {
    pub fn new() -> Survival {
        Survival { classes: [[Octave::default(); OCTAVES]; 2] }
    }

    /// A run has grown from one octave into another; `from` is none at its birth.
    pub fn grew(&mut self, class: Class, from: Option<u32>, to: u32) {
        for at in from.map_or(to, |o| o + 1)..=to {
            let octave = &mut self.classes[class as usize][at as usize];
            octave.reached += 1;
            if octave.reached >= HALVED_AT {
                (octave.reached, octave.ended) = (octave.reached / 2, octave.ended / 2);
            }
        }
    }

    /// A run has ended in this octave, and not at the end of its file.
    pub fn ended(&mut self, class: Class, at: u32) {
        self.classes[class as usize][at as usize].ended += 1;
    }

    /// Bytes beyond a run of `run` bytes that are worth reading.
    pub fn ahead(&self, class: Class, run: u64, threshold: u64) -> u64 {
        let (first, mut chance, mut octaves) = (octave(run), ONE, 0);
        while octaves < MAX_AHEAD {
            let at = (first + octaves).min(OCTAVES as u32 - 1) as usize;
            let Octave { reached, ended } = self.classes[class as usize][at];
            let gone = ONE * u64::from(ended.min(reached) + 1) / u64::from(reached + 2);
            chance = chance * (ONE - gone) / ONE;
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
        let mut table = Survival::new();
        let wanted = threshold(128 << 10, 3_840_000);
        assert_eq!(wanted, 65_536 * 131_072 / (131_072 + 3_840_000));
        assert_eq!(table.ahead(Class::Elsewhere, 256 << 10, wanted), (256 << 10) * 15);
        for run in 0..10 {
            table.grew(Class::Elsewhere, None, octave(256 << 10));
            if run < 8 {
                table.ended(Class::Elsewhere, octave(256 << 10));
            }
        }
        assert_eq!(table.ahead(Class::Elsewhere, 256 << 10, wanted), (256 << 10) * 7);
        assert_eq!(table.ahead(Class::Start, 256 << 10, wanted), (256 << 10) * 15, "another class");
    }

    /// A fast source wants one half: as much again while nothing is known, nothing when most runs end.
    #[test]
    fn without_latency_it_must_be_likely() {
        let mut table = Survival::new();
        let wanted = threshold(128 << 10, 0);
        assert_eq!(wanted, ONE / 2);
        assert_eq!(table.ahead(Class::Start, 4096, wanted), 4096);
        (0..3).for_each(|_| {
            table.grew(Class::Start, None, octave(4096));
            table.ended(Class::Start, octave(4096));
        });
        assert_eq!(table.ahead(Class::Start, 4096, wanted), 0);
    }
}
