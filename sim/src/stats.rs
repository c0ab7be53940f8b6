//! The statistics of a comparison: a confidence interval for a mean, a significance test for a difference, and the correction for
//! multiple comparisons.
//!
//! Runs are paired: run `i` of every policy uses the same trace and seed, and real storage is measured for all policies at nearly the same
//! time. The significance test therefore uses the differences within these pairs. Undefined results are `None`, never NaN.

use crate::rng::Rng;
use hdrhistogram::Histogram;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// The accepted probability of at least one false difference in a family of comparisons. The value is the usual 5 %, and every
/// report states it.
pub const ALPHA: f64 = 0.05;

/// Two times are treated as equal if their ratio differs from 1 by at most this margin.
pub const EQUIVALENCE_MARGIN: f64 = 0.05;

/// The probability outside a 95 % interval, on both sides together.
const OUTSIDE_CI95: f64 = 0.05;

/// Significant decimal digits of a latency: three, so a percentile is at most 0.1 % from a measured value.
const LATENCY_DIGITS: u8 = 3;

/// A summary of a sample, in the sample's unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    pub n: usize,
    pub mean: f64,
    /// The middle value; if `n` is even, the mean of the two middle values.
    pub median: f64,
    /// Ends of the 95 % interval of the mean, by Student's t with `n - 1` degrees of freedom. For a single value the
    /// spread is unknown, and both ends are the value itself.
    pub ci95: [f64; 2],
}

impl Summary {
    /// Summarizes `values`. The summary is undefined (`None`) if there are no values, or if a value is not finite.
    pub fn of(values: &[f64]) -> Option<Summary> {
        if values.is_empty() || values.iter().any(|v| !v.is_finite()) {
            return None;
        }
        let n = values.len();
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let median = f64::midpoint(sorted[(n - 1) / 2], sorted[n / 2]);
        let mean = mean(values);
        let half = match standard_error(values) {
            Some(error) => error * t_quantile(n, 1.0 - OUTSIDE_CI95 / 2.0)?,
            None => 0.0,
        };
        Some(Summary {
            n,
            mean,
            median,
            ci95: [mean - half, mean + half],
        })
    }
}

/// Returns the probability of differences at least this large if there were no real difference: a two-sided t test on `a[i] -
/// b[i]`.
///
/// Deterministic device models give the same difference for all pairs. If all differences are equal, t is not defined, but the result is
/// clear: 0 if `a` and `b` differ, 1 if they do not. The result is undefined (`None`) for fewer than two pairs (one pair shows nothing
/// about chance), for samples of unequal length, and for values that are not finite.
pub fn paired_t_test(a: &[f64], b: &[f64]) -> Option<f64> {
    let differences: Vec<f64> = a.iter().zip(b).map(|(a, b)| a - b).collect();
    if a.len() != b.len() || a.len() < 2 || differences.iter().any(|d| !d.is_finite()) {
        return None;
    }
    if differences.iter().all(|d| *d == differences[0]) {
        return Some(if differences[0] == 0.0 { 1.0 } else { 0.0 });
    }
    let t = mean(&differences) / standard_error(&differences)?;
    let student = StudentsT::new(0.0, 1.0, (a.len() - 1) as f64).ok()?;
    Some((2.0 * student.sf(t.abs())).min(1.0))
}

/// Returns both ends of the 95 % confidence interval of the mean of `b[i] - a[i]`, by Student's t. The result is undefined (`None`)
/// in the same cases as that of [`paired_t_test`].
pub fn difference_ci95(a: &[f64], b: &[f64]) -> Option<[f64; 2]> {
    if a.len() != b.len() || a.len() < 2 {
        return None;
    }
    let differences: Vec<f64> = a.iter().zip(b).map(|(a, b)| b - a).collect();
    Summary::of(&differences).map(|d| d.ci95)
}

/// Returns true if mean(`b`) and mean(`a`) are known to be nearly equal, that is, if the 95 % confidence interval of their ratio is between
/// 1 / 1.05 and 1.05 (see [`EQUIVALENCE_MARGIN`]). It is not enough that a test finds no difference: for example, if run times vary between
/// 0.1 and 0.7 s, no difference is significant. The result is undefined (`None`) in the same cases as that of [`paired_t_test`], and if the
/// mean of `a` is not above 0.
///
/// The interval of the ratio is computed by Student's t on the residuals `b[i] - ratio * a[i]`, because a bootstrap interval is too narrow
/// for a few pairs. For a deterministic device model the residuals are 0, so only the ratio itself decides.
pub fn equivalent(a: &[f64], b: &[f64]) -> Option<bool> {
    paired_t_test(a, b)?;
    let base = mean(a);
    let ratio = ratio(mean(b), base).filter(|_| base > 0.0)?;
    let residuals: Vec<f64> = a.iter().zip(b).map(|(a, b)| b - ratio * a).collect();
    let error = standard_error(&residuals)? / base;
    let half = error * t_quantile(a.len(), 1.0 - OUTSIDE_CI95 / 2.0)?;
    let most = 1.0 + EQUIVALENCE_MARGIN;
    Some(ratio - half >= most.recip() && ratio + half <= most)
}

/// Holm's step-down correction for a family of comparisons: adjusts each p value. If each adjusted value is compared with
/// [`ALPHA`], the probability of one false result in the whole family is at most [`ALPHA`]. Undefined p values stay undefined, and
/// are not members of the family.
pub fn holm(family: &[Option<f64>]) -> Vec<Option<f64>> {
    let mut order: Vec<(usize, f64)> = family
        .iter()
        .enumerate()
        .filter_map(|(i, p)| p.map(|p| (i, p)))
        .collect();
    order.sort_by(|x, y| x.1.total_cmp(&y.1));
    let mut corrected = vec![None; family.len()];
    let mut floor = 0.0_f64;
    for (rank, (i, p)) in order.iter().enumerate() {
        floor = floor.max(p * (order.len() - rank) as f64).min(1.0);
        corrected[*i] = Some(floor);
    }
    corrected
}

/// Returns `part / whole`; undefined (`None`) if `whole` is 0.
pub fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole != 0.0)
        .then_some(part / whole)
        .filter(|r| r.is_finite())
}

/// Creates an empty histogram of latencies in nanoseconds, which grows as needed.
pub fn latency_histogram() -> Histogram<u64> {
    Histogram::new(LATENCY_DIGITS).expect("three digits are among the 0 to 5 that there are")
}

/// Returns a histogram with the latencies of all of them.
pub fn merged<'a>(parts: impl IntoIterator<Item = &'a Histogram<u64>>) -> Histogram<u64> {
    let mut all = latency_histogram();
    for part in parts {
        all.add(part)
            .expect("a growing histogram accepts every other histogram");
    }
    all
}

/// Adds one latency of `ns` nanoseconds.
pub fn record_latency(histogram: &mut Histogram<u64>, ns: u64) {
    // The histogram grows as needed, and refuses only if its index would not fit this machine; then the largest value
    // counts.
    if histogram.record(ns).is_err() {
        histogram.saturating_record(ns);
    }
}

/// Returns the latency in nanoseconds that `percent` % of the reads did not exceed. The result is undefined if there are no reads.
pub fn percentile_ns(histogram: &Histogram<u64>, percent: f64) -> Option<u64> {
    (!histogram.is_empty()).then(|| histogram.value_at_percentile(percent))
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Standard error of the mean. Undefined for fewer than two values.
fn standard_error(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let (n, mean) = (values.len() as f64, mean(values));
    let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
    Some((squares / (n - 1.0) / n).sqrt())
}

/// Quantile `q` of Student's t for a sample of `n`.
fn t_quantile(n: usize, q: f64) -> Option<f64> {
    let student = StudentsT::new(0.0, 1.0, (n - 1) as f64).ok()?;
    Some(student.inverse_cdf(q)).filter(|t| t.is_finite())
}

// The bootstrap: a confidence interval for a ratio of two means that makes no assumption about the distribution.
//
// The pairs are drawn repeatedly with replacement, each time as many as there are. The interval spans the middle 95 %
// of the resulting ratios (Efron 1979, the percentile method). Pairs stay together, so a slow minute that hits both
// rows of a pair does not widen the interval. With few pairs it is too narrow, like every bootstrap: with five pairs it
// covers about 80 to 85 % (measured in the test below). So it only describes, and the t test decides. It uses no
// entropy; the same runs give the same interval.

/// Number of times the pairs are drawn; 50 values are then beyond each end of a 95 % interval.
const RESAMPLES: usize = 2000;

/// A fixed seed, so that two reports of the same runs have equal figures.
const SEED: u64 = 0;

/// Returns both ends of the 95 % confidence interval of mean(`b`) / mean(`a`), where `a[i]` and `b[i]` are a pair. The result is
/// undefined for fewer than two pairs, for samples of unequal length, for values that are not finite, and if a mean of `a` is not
/// above 0.
pub fn ratio_ci95(a: &[f64], b: &[f64]) -> Option<[f64; 2]> {
    let fit = a.len() == b.len()
        && a.len() >= 2
        && a.iter().chain(b).all(|v| v.is_finite())
        && mean(a) > 0.0;
    if !fit {
        return None;
    }
    let mut rng = Rng::new(SEED);
    let mut ratios: Vec<f64> = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        let (mut below, mut above) = (0.0, 0.0);
        for _ in 0..a.len() {
            let pair = rng.below(a.len() as u64) as usize;
            below += a[pair];
            above += b[pair];
        }
        ratios.push(above / below);
    }
    if ratios.iter().any(|r| !r.is_finite()) {
        return None;
    }
    ratios.sort_by(f64::total_cmp);
    let outside = RESAMPLES / 40;
    Some([ratios[outside], ratios[RESAMPLES - 1 - outside]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(got: f64, want: f64, within: f64) {
        assert!((got - want).abs() <= within, "{got}, not {want}");
    }

    /// 0.429 s against 0.105 s: the difference is not significant, but the times are far from equal.
    #[test]
    fn equality_needs_a_narrow_interval() {
        let (slow, fast) = ([0.143, 0.859, 0.285], [0.104, 0.106, 0.105]);
        assert!(paired_t_test(&fast, &slow).is_some_and(|p| p > ALPHA));
        assert_eq!(equivalent(&fast, &slow), Some(false));
        let narrow = [0.106, 0.105, 0.105];
        assert_eq!(equivalent(&fast, &narrow), Some(true));
        let tenth: Vec<f64> = fast.iter().map(|s| s * 1.1).collect();
        assert_eq!(equivalent(&fast, &tenth), Some(false));
        // A deterministic model: the ratio itself decides.
        for (time, is_equal) in [
            (1.0, true),
            (1.049, true),
            (0.953, true),
            (1.051, false),
            (0.95, false),
        ] {
            assert_eq!(equivalent(&[1.0; 3], &[time; 3]), Some(is_equal), "{time}");
        }
        // The runs differ, but each pair is equal.
        assert_eq!(equivalent(&[1.0, 3.0], &[1.0, 3.0]), Some(true));
        assert_eq!(equivalent(&[1.0], &[1.0]), None);
        assert_eq!(equivalent(&[0.0; 2], &[0.0; 2]), None);
    }

    #[test]
    fn students_quantiles_are_those_of_the_printed_tables() {
        let printed = [12.706, 4.303, 2.776, 2.262, 2.045, 1.962];
        for (n, t) in [2, 3, 5, 10, 30, 1000].into_iter().zip(printed) {
            near(t_quantile(n, 0.975).expect("defined"), t, 0.001);
        }
        // "Student t at 99.73 %" in the evaluation notes, the correct replacement for 3 sigma.
        for (n, t) in [(3, 19.2), (5, 6.6), (10, 4.1), (30, 3.3)] {
            near(t_quantile(n, 1.0 - 0.0027 / 2.0).expect("defined"), t, 0.05);
        }
    }

    #[test]
    fn a_summary_of_five_a_pair_one_and_none() {
        let five = Summary::of(&[1.0, 2.0, 3.0, 4.0, 100.0]).expect("defined");
        assert_eq!((five.n, five.mean, five.median), (5, 22.0, 3.0));
        // sd 43.617, standard error 19.506, t 2.776.
        near(five.ci95[1] - five.mean, 54.158, 0.01);
        assert_eq!(Summary::of(&[1.0, 3.0]).expect("defined").median, 2.0);
        let one = Summary::of(&[7.0]).expect("defined");
        assert_eq!(one.ci95, [7.0, 7.0]);
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
        assert_eq!(Summary::of(&[1.0, f64::INFINITY]), None);
    }

    #[test]
    fn the_paired_test_looks_at_pairs() {
        // A drift of the storage hides the difference from an unpaired comparison; within each pair the difference is
        // about 0.1.
        let (a, b) = ([1.0, 2.0, 3.0, 4.0], [1.1, 2.11, 3.09, 4.1]);
        assert!(paired_t_test(&a, &b).expect("defined") < 0.001);
        // Differences 1, 2, 3: t = 2 / (1 / sqrt 3) = 3.4641 with 2 degrees of freedom.
        let p = paired_t_test(&[2.0, 4.0, 6.0], &[1.0, 2.0, 3.0]);
        near(p.expect("defined"), 0.07418, 0.0001);
    }

    #[test]
    fn the_interval_of_a_difference_is_that_of_the_pairs() {
        // Differences 1, 2, 3: 2 with a standard error of 0.57735 and t = 4.303.
        let [low, high] = difference_ci95(&[1.0, 2.0, 3.0], &[2.0, 4.0, 6.0]).expect("defined");
        near(low, 2.0 - 2.4842, 0.001);
        near(high, 2.0 + 2.4842, 0.001);
        assert_eq!(difference_ci95(&[1.0, 2.0], &[2.0, 3.0]), Some([1.0, 1.0]));
        assert_eq!(difference_ci95(&[1.0], &[2.0]), None);
        assert_eq!(difference_ci95(&[1.0, 2.0], &[2.0]), None);
    }

    #[test]
    fn deterministic_pairs_and_pairs_that_are_none() {
        assert_eq!(paired_t_test(&[1.0, 2.0], &[1.0, 2.0]), Some(1.0));
        assert_eq!(paired_t_test(&[2.0, 3.0], &[1.0, 2.0]), Some(0.0));
        assert_eq!(paired_t_test(&[2.0], &[1.0]), None);
        assert_eq!(paired_t_test(&[2.0, 3.0], &[1.0]), None);
        assert_eq!(paired_t_test(&[], &[]), None);
        assert_eq!(paired_t_test(&[f64::NAN, 1.0], &[1.0, 2.0]), None);
    }

    #[test]
    fn holm_by_hand() {
        let got = holm(&[Some(0.01), None, Some(0.04), Some(0.03), Some(0.005)]);
        // Sorted: 0.005 x 4, 0.01 x 3, 0.03 x 2, then 0.04 x 1, raised to the value before it.
        let want = [Some(0.03), None, Some(0.06), Some(0.06), Some(0.02)];
        for (got, want) in got.iter().zip(want) {
            match (got, want) {
                (Some(g), Some(w)) => near(*g, w, 1e-12),
                (g, w) => assert_eq!(*g, w),
            }
        }
        assert_eq!(holm(&[Some(0.9), Some(0.8)]), [Some(1.0), Some(1.0)]);
        assert!(holm(&[]).is_empty());
    }

    #[test]
    fn ratios_and_percentiles_without_anything_are_undefined() {
        assert_eq!(ratio(1.0, 0.0), None);
        assert_eq!(ratio(1.0, 2.0), Some(0.5));
        let mut latency = latency_histogram();
        assert_eq!(percentile_ns(&latency, 99.0), None);
        for ns in 0..=1000 {
            record_latency(&mut latency, ns);
        }
        assert_eq!(percentile_ns(&latency, 50.0), Some(500));
        assert_eq!(percentile_ns(&latency, 99.0), Some(990));
        record_latency(&mut latency, u64::MAX);
        let highest = percentile_ns(&latency, 100.0).expect("defined");
        near(highest as f64 / u64::MAX as f64, 1.0, 0.001);
    }

    /// A drift that both rows of a pair share does not widen the interval, as it would if the rows were drawn
    /// separately.
    #[test]
    fn pairs_stay_together() {
        let a: Vec<f64> = (1..=20).map(f64::from).collect();
        let factors = [1.09, 1.11].into_iter().cycle();
        let b: Vec<f64> = a.iter().zip(factors).map(|(v, by)| v * by).collect();
        let [low, high] = ratio_ci95(&a, &b).expect("defined");
        let is_narrow = (1.09..1.1).contains(&low) && high > 1.1 && high <= 1.11;
        assert!(is_narrow, "{low} {high}");
        // Equal pairs have an interval of no width.
        let equal = ratio_ci95(&[2.0, 4.0, 8.0], &[1.0, 2.0, 4.0]);
        assert_eq!(equal, Some([0.5, 0.5]));
    }

    #[test]
    fn undefined_statistics() {
        for (a, b) in [
            (&[1.0][..], &[1.0][..]),
            (&[1.0, 2.0], &[1.0]),
            (&[0.0, 0.0], &[1.0, 1.0]),
            (&[1.0, f64::NAN], &[1.0, 1.0]),
            (&[], &[]),
        ] {
            assert_eq!(ratio_ci95(a, b), None);
        }
    }

    /// How often the interval contains the true ratio: nearly as often as stated with 30 pairs, less often with 5.
    #[test]
    fn its_coverage_is_known() {
        let covers = |pairs: usize| {
            let mut rng = Rng::new(9);
            let mut draw = |mean: f64| mean * (1.0 + 0.1 * rng.normal());
            let holds = (0..400).filter(|_| {
                let sample: Vec<(f64, f64)> = (0..pairs).map(|_| (draw(10.0), draw(8.0))).collect();
                let (a, b): (Vec<f64>, Vec<f64>) = sample.into_iter().unzip();
                ratio_ci95(&a, &b).is_some_and(|[low, high]| low <= 0.8 && 0.8 <= high)
            });
            holds.count() as f64 / 400.0
        };
        let (five, thirty) = (covers(5), covers(30));
        let is_known = (0.75..0.90).contains(&five) && (0.90..0.98).contains(&thirty);
        assert!(is_known, "{five} {thirty}");
    }
}
