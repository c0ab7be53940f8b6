//! A small deterministic random number generator.
//!
//! Two rules make simulated runs comparable. First, the random number for a fetch depends only on a **key** (seed, file, first byte, number
//! of earlier fetches of that byte), not on the order of calls. Every policy that requests the same bytes from the device therefore gets
//! the same random numbers. Second, the generator is implemented here, so an upgrade of a crate cannot change the meaning of a seed.
//!
//! The generator uses no system entropy, no time and no threads. Whole numbers and uniform random numbers are the same on every
//! machine. Normal and lognormal random numbers use the platform's `ln`, `cos` and `exp`, which may differ in the last bit.
//!
//! ```text
//!   seed ──► state ──(+ GOLDEN)──► state ──(+ GOLDEN)──► ...
//!                        │mix          │mix
//!                        ▼             ▼
//!                     64 bits       64 bits
//! ```

/// The step between states: 2^64 divided by the golden ratio, made odd (Steele, Lea and Flood, "Fast splittable
/// pseudorandom number generators", OOPSLA 2014).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The 0.99 quantile of the standard normal distribution.
pub const Z99: f64 = 2.326_347_874_040_841;

/// Scrambles 64 bits so that each bit of the result depends on each bit of `x`. Different inputs give different results. This
/// function is the finaliser of splitmix64 (Stafford's variant 13).
pub fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Creates the generator for the `nth` fetch (0 for the first) that begins at byte `first_byte` of `file`.
pub fn keyed(seed: u64, file: u32, first_byte: u64, nth: u64) -> Rng {
    let words = [u64::from(file), first_byte, nth];
    Rng {
        state: words
            .into_iter()
            .fold(mix(seed.wrapping_add(GOLDEN)), |h, word| {
                mix(h.wrapping_add(GOLDEN) ^ word)
            }),
    }
}

/// Returns a lower bound for the results of [`Rng::lognormal`]: the smallest uniform random number above 0 is 2^-53, so no normal
/// random number is below `-sqrt(2 * 53 * ln 2)`.
pub fn least_lognormal(median: f64, p99: f64) -> f64 {
    let farthest = -(2.0 * 53.0 * std::f64::consts::LN_2).sqrt();
    median * ((p99 / median).ln() / Z99 * farthest).exp()
}

/// A splitmix64 generator, with a period of 2^64. This generator is for simulations, not for secrets.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// Creates a generator that starts from `seed`. All seeds are equally good.
    pub fn new(seed: u64) -> Rng {
        Rng { state: seed }
    }

    /// Returns the next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        mix(self.state)
    }

    /// Returns a random whole number from 0 up to but not including `n`; 0 if `n` is 0. The probabilities of two values differ by
    /// at most a factor of 1 + `n / 2^64`.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// Returns a uniform random number in `[0, 1)`, which is a multiple of 2^-53.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (-53_f64).exp2()
    }

    /// Returns a random number from the normal distribution with mean 0 and standard deviation 1 (the cosine half of Box and Muller
    /// 1958). This function uses 128 random bits.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Returns a random number from the lognormal distribution in which half of all values are below `median`, and 99 % are below
    /// `p99`.
    ///
    /// # Panics
    /// Panics unless `0 < median <= p99`; both values are constants of a device model.
    pub fn lognormal(&mut self, median: f64, p99: f64) -> f64 {
        assert!(
            0.0 < median && median <= p99,
            "a lognormal needs 0 < median <= p99, not {median} and {p99}"
        );
        median * ((p99 / median).ln() / Z99 * self.normal()).exp()
    }

    /// Puts `items` into random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference outputs of splitmix64 for the seed 1234567, as other implementations list them.
    #[test]
    fn bits_are_those_of_splitmix64() {
        let mut rng = Rng::new(1_234_567);
        let drawn: [u64; 3] = std::array::from_fn(|_| rng.bits());
        let listed = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(drawn, listed);
    }

    #[test]
    fn below_covers_its_range_evenly() {
        let mut rng = Rng::new(7);
        let mut seen = [0_u32; 10];
        for _ in 0..100_000 {
            seen[rng.below(10) as usize] += 1;
        }
        // 10,000 are expected in each class, with a standard deviation of 95; five of these are allowed in both
        // directions.
        let is_even = seen.iter().all(|n| (9_525..=10_475).contains(n));
        assert!(is_even, "{seen:?}");
        assert_eq!([rng.below(0), rng.below(1)], [0, 0]);
    }

    #[test]
    fn unit_and_normal_have_their_moments() {
        let mut rng = Rng::new(3);
        let n = 200_000;
        let units: Vec<f64> = (0..n).map(|_| rng.unit()).collect();
        assert!(units.iter().all(|u| (0.0..1.0).contains(u)));
        assert!((units.iter().sum::<f64>() / f64::from(n) - 0.5).abs() < 0.004);
        let normals: Vec<f64> = (0..n).map(|_| rng.normal()).collect();
        assert!((normals.iter().sum::<f64>() / f64::from(n)).abs() < 0.012);
        assert!((normals.iter().map(|z| z * z).sum::<f64>() / f64::from(n) - 1.0).abs() < 0.02);
    }

    #[test]
    fn lognormal_has_its_median_and_p99() {
        let mut rng = Rng::new(5);
        let mut drawn: Vec<f64> = (0..100_000).map(|_| rng.lognormal(15.0, 75.0)).collect();
        drawn.sort_by(f64::total_cmp);
        for (at, expected, within) in [(50_000, 15.0, 0.02), (99_000, 75.0, 0.05)] {
            let error: f64 = drawn[at] / expected - 1.0;
            assert!(error.abs() < within, "{}", drawn[at]);
        }
        assert_eq!(rng.lognormal(15.0, 15.0), 15.0);
    }

    /// The same key gives the same numbers, and any other key gives other numbers.
    #[test]
    fn keyed_draws_depend_on_the_whole_key_only() {
        let first = |seed, file, byte, nth| keyed(seed, file, byte, nth).bits();
        assert_eq!(first(1, 2, 4096, 0), first(1, 2, 4096, 0));
        let drawn = std::collections::HashSet::from([
            first(1, 2, 4096, 0),
            first(2, 2, 4096, 0),
            first(1, 3, 4096, 0),
            first(1, 2, 512, 0),
            first(1, 2, 4096, 1),
        ]);
        assert_eq!(drawn.len(), 5, "{drawn:?}");
    }

    #[test]
    fn shuffle_keeps_every_item_and_moves_them() {
        let mut items: Vec<u32> = (0..100).collect();
        Rng::new(9).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
