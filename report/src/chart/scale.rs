//! From values to places on the paper: scales, and the ticks that people like to read.
//!
//! Never: a place outside the scale's range, whatever the value (an interval may reach to infinity), and never NaN.

/// How values spread along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Equal steps for equal differences.
    Linear,
    /// Equal steps for equal factors; every value is above zero.
    Log2,
}

/// From this ratio of the largest to the smallest value on, an axis of factors reads better.
const WIDE: f64 = 8.0;
/// From this ratio on the smallest of measured values is hardly seen on an axis from zero.
const WIDE_FROM_ZERO: f64 = 50.0;

impl Spread {
    /// [`Spread::Log2`] where the values are all above zero and wide apart.
    #[must_use]
    pub fn of(values: &[f64]) -> Spread {
        let (least, most) = ends(values);
        if least > 0.0 && most / least >= WIDE {
            Spread::Log2
        } else {
            Spread::Linear
        }
    }
}

/// A map from values to places.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    spread: Spread,
    from: [f64; 2],
    to: [f64; 2],
}

impl Scale {
    /// The smallest of `values` lands on `to[0]`, the largest on `to[1]`; where they are one, it lands between.
    #[must_use]
    pub fn across(values: &[f64], spread: Spread, to: [f64; 2]) -> Scale {
        let (least, most) = ends(values);
        Scale {
            spread,
            from: [least, most],
            to,
        }
    }

    /// Zero lands on `to[0]`, the highest tick on `to[1]`.
    #[must_use]
    pub fn from_zero(ticks: &[f64], to: [f64; 2]) -> Scale {
        Scale {
            spread: Spread::Linear,
            from: [0.0, ticks.last().copied().unwrap_or(1.0)],
            to,
        }
    }

    /// Where `value` lands: at the nearer end of the range if it is outside.
    #[must_use]
    pub fn place(&self, value: f64) -> f64 {
        let measure = |v: f64| {
            if self.spread == Spread::Log2 {
                v.log2()
            } else {
                v
            }
        };
        let (low, high) = (measure(self.from[0]), measure(self.from[1]));
        let part = (measure(value) - low) / (high - low);
        let part = if part.is_nan() {
            0.5
        } else {
            part.clamp(0.0, 1.0)
        };
        self.to[0] + part * (self.to[1] - self.to[0])
    }
}

/// Smallest and largest of the finite values; 0 and 0 without any.
fn ends(values: &[f64]) -> (f64, f64) {
    let finite = || values.iter().copied().filter(|v| v.is_finite());
    finite()
        .reduce(f64::min)
        .zip(finite().reduce(f64::max))
        .unwrap_or((0.0, 0.0))
}

/// Whether measured values need a logarithmic axis: all are above zero, and the largest is 50 times the smallest or more. What is not a
/// number counts for nothing.
#[must_use]
pub fn is_wide(values: &[f64]) -> bool {
    let (least, most) = ends(values);
    least > 0.0 && most / least >= WIDE_FROM_ZERO
}

/// Ticks of a logarithmic axis: the powers of ten between its ends, which are the next 1, 2 or 5 times a power of ten below `least` and
/// above `most`. Example: 0.26 to 62.4 gives 0.2, 1, 10, 100. Empty for what is not above zero.
#[must_use]
pub fn log_ticks(least: f64, most: f64) -> Vec<f64> {
    let is_usable = |v: f64| v.is_finite() && v > f64::MIN_POSITIVE;
    if !is_usable(least) || !is_usable(most) || most < least {
        return Vec::new();
    }
    let power = |p: i32| {
        if p < 0 {
            1.0 / 10f64.powi(-p)
        } else {
            10f64.powi(p)
        }
    };
    let (low, high) = (least.log10().floor() as i32, most.log10().ceil() as i32);
    let steps = |p: i32| [1.0, 2.0, 5.0].map(|nice| nice * power(p));
    // A hair outside, so that a round value is its own tick.
    let first = steps(low)
        .into_iter()
        .rfind(|tick| *tick <= least * 1.000_001);
    let last = steps(high - 1).into_iter().chain([power(high)]);
    let last = last.into_iter().find(|tick| *tick >= most / 1.000_001);
    let first = first.unwrap_or(power(low));
    let last = last.unwrap_or(power(high)).max(first * 10.0);
    let between = (low..=high).map(power);
    let between = between.filter(|tick| *tick > first * 1.5 && *tick < last / 1.5);
    [first].into_iter().chain(between).chain([last]).collect()
}

/// The ticks of a logarithmic axis in words: `0.05`, `10`, `2k`.
#[must_use]
pub fn log_labels(ticks: &[f64]) -> Vec<String> {
    let label = |tick: &f64| {
        let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
        let (unit, letter) = units
            .into_iter()
            .find(|(unit, _)| tick * 1.000_001 >= *unit)
            .unwrap_or((1.0, ""));
        match tick / unit {
            value if !(1e-4..1e4).contains(&value) => format!("{tick:.0e}"),
            // Its one digit, without what a binary fraction adds to it.
            value => {
                let decimals = (-value.log10()).ceil().clamp(0.0, 9.0) as usize;
                format!("{value:.decimals$}{letter}")
            }
        }
    };
    ticks.iter().map(label).collect()
}

/// Ticks from zero to `most` or a little above, 1, 2 or 5 times a power of ten apart: at most `steps` of them.
#[must_use]
pub fn ticks_to(most: f64, steps: u32) -> Vec<f64> {
    let most = if most.is_finite() && most > f64::MIN_POSITIVE {
        most
    } else {
        1.0
    };
    // A hair below, so that 0.6 is six steps of 0.1.
    let least = most / f64::from(steps) * (1.0 - 1e-9);
    let decade = 10f64.powf(least.log10().floor());
    let nice = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|nice| nice * decade >= least)
        .unwrap_or(10.0);
    let step = nice * decade;
    let count = (most / step - 1e-9).ceil().max(1.0) as u32;
    (0..=count).map(|i| f64::from(i) * step).collect()
}

/// The ticks in words, all with the decimals and the unit (thousands, millions, ...) that their step asks for.
#[must_use]
pub fn labels(ticks: &[f64]) -> Vec<String> {
    let most = ticks.last().copied().unwrap_or(0.0);
    let step = ticks.get(1).copied().unwrap_or(1.0);
    if !(1e-4..1e15).contains(&most) {
        return ticks
            .iter()
            .map(|t| {
                if *t == 0.0 {
                    "0".to_string()
                } else {
                    format!("{t:.1e}")
                }
            })
            .collect();
    }
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")];
    // Ten thousand and more is "10k": four digits are the most that are read at a glance.
    let (unit, letter) = units
        .into_iter()
        .find(|(unit, _)| most >= *unit)
        .map_or((1.0, ""), |(unit, letter)| {
            (if letter == "k" { 1e3 } else { unit }, letter)
        });
    let decimals = (-(step / unit).log10() - 1e-9).ceil().clamp(0.0, 9.0) as usize;
    ticks
        .iter()
        .map(|t| {
            if *t == 0.0 {
                "0".to_string()
            } else {
                format!("{:.decimals$}{letter}", t / unit)
            }
        })
        .collect()
}

/// Every how-manieth of labels of these widths at these places (ascending) can be shown `gap` apart: 1 is all of them.
#[must_use]
pub fn stride(places: &[f64], widths: &[f64], gap: f64) -> usize {
    let fits = |stride: &usize| {
        let shown: Vec<usize> = (0..places.len()).step_by(*stride).collect();
        shown.windows(2).all(|w| {
            let (a, b) = (w[0], w[1]);
            places[b] - places[a] >= f64::midpoint(widths[a], widths[b]) + gap
        })
    };
    (1..=places.len()).find(fits).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_reach_over_the_top() {
        for (most, want) in [
            (83.0, vec!["0", "20", "40", "60", "80", "100"]),
            (14.2, vec!["0", "5", "10", "15"]),
            (1.0, vec!["0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
            (
                0.3,
                vec!["0", "0.05", "0.10", "0.15", "0.20", "0.25", "0.30"],
            ),
            (0.6, vec!["0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6"]),
            (
                1074.0,
                vec!["0", "200", "400", "600", "800", "1000", "1200"],
            ),
            (21_000.0, vec!["0", "5k", "10k", "15k", "20k", "25k"]),
            (2.5e6, vec!["0", "0.5M", "1.0M", "1.5M", "2.0M", "2.5M"]),
            (
                3e-7,
                vec![
                    "0", "5.0e-8", "1.0e-7", "1.5e-7", "2.0e-7", "2.5e-7", "3.0e-7",
                ],
            ),
            (
                1e300,
                vec!["0", "2.0e299", "4.0e299", "6.0e299", "8.0e299", "1.0e300"],
            ),
            (0.0, vec!["0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        ] {
            assert_eq!(labels(&ticks_to(most, 6)), want, "{most}");
        }
    }

    /// Over thirty decades: the step is 1, 2 or 5 of its decade, the top is reached within one step, the labels differ.
    #[test]
    fn every_size_has_nice_ticks() {
        let mut most = 3.7e-9;
        while most < 1e15 {
            let ticks = ticks_to(most, 6);
            let step = ticks[1] / 10f64.powf(ticks[1].log10().floor());
            assert!(
                [1.0, 2.0, 5.0, 10.0]
                    .iter()
                    .any(|nice| (step - nice).abs() < 1e-6),
                "{most}: {step}"
            );
            let top = ticks[ticks.len() - 1];
            assert!(
                top >= most * (1.0 - 1e-9)
                    && top - ticks[1] < most
                    && (4..=7).contains(&ticks.len()),
                "{most}"
            );
            let mut words = labels(&ticks);
            words.dedup();
            assert!(
                words.len() == ticks.len() && words.iter().all(|w| w.len() <= 7),
                "{words:?}"
            );
            most *= 1.7;
        }
        for odd in [f64::NAN, f64::INFINITY, -3.0, 5e-324] {
            assert_eq!(ticks_to(odd, 6), ticks_to(1.0, 6));
        }
        assert_eq!(labels(&[]), Vec::<String>::new());
    }

    #[test]
    fn factors_are_equal_steps_where_values_are_wide_apart() {
        let values = [1.0, 2.0, 4.0, 8.0];
        assert_eq!(Spread::of(&values), Spread::Log2);
        let scale = Scale::across(&values, Spread::of(&values), [0.0, 30.0]);
        assert_eq!(
            values.map(|v| scale.place(v).round()),
            [0.0, 10.0, 20.0, 30.0]
        );
        for close in [&[1.0, 7.9][..], &[0.0, 100.0], &[-1.0, 8.0], &[5.0], &[]] {
            assert_eq!(Spread::of(close), Spread::Linear, "{close:?}");
        }
        let scale = Scale::across(&[0.0, 4.0], Spread::Linear, [10.0, 50.0]);
        assert_eq!([0.0, 1.0, 4.0].map(|v| scale.place(v)), [10.0, 20.0, 50.0]);
    }

    #[test]
    fn times_that_differ_by_fifty_have_a_logarithmic_axis() {
        assert!(is_wide(&[50.0, 1.0, f64::NAN]) && !is_wide(&[49.0, 1.0]));
        assert!(!is_wide(&[0.0, 50.0]) && !is_wide(&[]));
        for (ends, labels) in [
            ([0.26, 62.4], vec!["0.2", "1", "10", "100"]),
            ([0.01, 100.0], vec!["0.01", "0.1", "1", "10", "100"]),
            ([3.0, 3.0], vec!["2", "10", "20"]),
            (
                [1.5, 4e5],
                vec!["1", "10", "100", "1k", "10k", "100k", "500k"],
            ),
            ([2e-7, 1e-5], vec!["2e-7", "1e-6", "1e-5"]),
        ] {
            let ticks = log_ticks(ends[0], ends[1]);
            assert_eq!(log_labels(&ticks), labels, "{ticks:?}");
        }
        for odd in [
            [0.0, 1.0],
            [f64::NAN, 1.0],
            [1.0, f64::INFINITY],
            [2.0, 1.0],
        ] {
            assert!(log_ticks(odd[0], odd[1]).is_empty(), "{odd:?}");
        }
    }

    #[test]
    fn nothing_lands_outside() {
        for spread in [Spread::Linear, Spread::Log2] {
            let scale = Scale::across(&[2.0, 64.0], spread, [100.0, 20.0]);
            for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0, 1e300] {
                assert!(
                    (20.0..=100.0).contains(&scale.place(odd)),
                    "{spread:?} {odd}"
                );
            }
            assert_eq!(
                Scale::across(&[7.0], spread, [0.0, 8.0]).place(7.0),
                4.0,
                "one value is in the middle"
            );
        }
        assert_eq!(
            Scale::from_zero(&ticks_to(90.0, 6), [100.0, 0.0]).place(50.0),
            50.0
        );
    }

    #[test]
    fn labels_that_would_touch_are_left_out_evenly() {
        let places: Vec<f64> = (0..9).map(|i| f64::from(i) * 10.0).collect();
        assert_eq!(stride(&places, &[6.0; 9], 4.0), 1);
        assert_eq!(stride(&places, &[6.1; 9], 4.0), 2);
        assert_eq!(stride(&places, &[600.0; 9], 4.0), 9);
        assert_eq!(stride(&[], &[], 4.0), 1);
    }
}
