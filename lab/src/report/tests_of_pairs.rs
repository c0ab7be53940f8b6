//! Statistical tests: which rows of a table differ, and which row is best.
//!
//! Every pair of rows is tested (by a paired t test on the times or latencies: see [`super::Judge`]). The p values of a table are corrected
//! by Holm's method, because many pairs are tested, and because the same test results also determine the best row. A row is called the best
//! only if, for every other row, a test shows that it is slower, and the two are not equal within 5 % ([`equivalent`]).

use super::Table;
use foreread_sim::stats::{ALPHA, Summary, equivalent, holm, paired_t_test};

/// The advice mentions no smaller difference, even if it is significant: on a device model, times repeat to the nanosecond. Half a per cent
/// is the last digit that the table shows.
pub const WORTH_SAYING: f64 = 0.005;

/// The statistical tests of one table.
#[derive(Clone, Debug)]
pub struct PairTests {
    rows: usize,
    /// Corrected p values of the pairs (0,1), (0,2), ..., (1,2), ...
    corrected: Vec<Option<f64>>,
    /// Rows that may be the fastest: one, or several that are tied. Empty if no test was possible.
    pub best: Vec<usize>,
}

impl PairTests {
    /// Tests every pair of rows.
    pub fn of(table: &Table) -> PairTests {
        // A limit is not a choice: it is given no times, so it is neither tested nor best.
        let of = |p: &super::PolicyRuns| {
            if p.kind.is_limit() {
                Vec::new()
            } else {
                p.judged_s(table.judge())
            }
        };
        let times: Vec<Vec<f64>> = table.policies.iter().map(of).collect();
        let rows = times.len();
        let pairs = (0..rows).flat_map(|a| (a + 1..rows).map(move |b| (a, b)));
        let family: Vec<Option<f64>> = pairs
            .map(|(a, b)| paired_t_test(&times[a], &times[b]))
            .collect();
        let mut tests = PairTests {
            rows,
            corrected: holm(&family),
            best: Vec::new(),
        };
        tests.best = tests.find_best(&times);
        tests
    }

    /// Returns the number of pairs that were tested.
    pub fn tests(&self) -> usize {
        self.corrected.iter().flatten().count()
    }

    /// Returns the corrected p value of rows `a` and `b`. Returns `None` for a row with itself, and if no test was possible.
    pub fn p_value(&self, a: usize, b: usize) -> Option<f64> {
        let (a, b) = (a.min(b), a.max(b));
        if a == b || b >= self.rows {
            return None;
        }
        // Rows before `a` have rows - 1, rows - 2, ... pairs.
        self.corrected[a * (2 * self.rows - a - 1) / 2 + (b - a - 1)]
    }

    /// Returns whether rows `a` and `b` differ significantly, at the level [`ALPHA`]. Returns `None` if [`PairTests::p_value`] is `None`.
    pub fn differ(&self, a: usize, b: usize) -> Option<bool> {
        self.p_value(a, b).map(|p| p < ALPHA)
    }

    fn find_best(&self, times: &[Vec<f64>]) -> Vec<usize> {
        let means = times.iter().map(|times| Some(Summary::of(times)?.mean));
        let means: Vec<(usize, f64)> = means
            .enumerate()
            .filter_map(|(i, mean)| Some((i, mean?)))
            .collect();
        let fastest = means.iter().min_by(|x, y| x.1.total_cmp(&y.1));
        let Some(&(fastest, _)) = fastest.filter(|_| self.tests() > 0) else {
            return Vec::new();
        };
        let tied = |i: usize| {
            self.differ(fastest, i) != Some(true)
                || equivalent(&times[fastest], &times[i]) == Some(true)
        };
        means.iter().map(|(i, _)| *i).filter(|i| tied(*i)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    fn tests(rows: &[&[f64]]) -> PairTests {
        let policies = rows
            .iter()
            .map(|times| samples::runs("p", times, 0, 0, 0))
            .collect();
        PairTests::of(&samples::table("w", "s", policies))
    }

    #[test]
    fn every_pair_has_its_place() {
        let v = tests(&[
            &[1.0, 1.125, 0.875],
            &[1.0, 1.125, 0.875],
            &[2.0, 2.125, 1.875],
            &[1.01, 1.09, 0.92],
        ]);
        assert_eq!(v.tests(), 6);
        assert_eq!(v.p_value(0, 1), Some(1.0));
        assert_eq!((v.p_value(0, 2), v.p_value(2, 0)), (Some(0.0), Some(0.0)));
        assert_eq!(
            (v.differ(1, 2), v.differ(2, 3), v.differ(0, 3)),
            (Some(true), Some(true), Some(false))
        );
        assert_eq!((v.p_value(1, 1), v.p_value(1, 4)), (None, None));
    }

    #[test]
    fn best_is_one_row_only_if_the_test_says_so() {
        assert_eq!(
            tests(&[&[3.0, 3.1, 2.9, 3.0], &[1.0, 1.1, 0.9, 1.01]]).best,
            [1]
        );
        // Faster on the mean, but the pairs do not agree.
        assert_eq!(tests(&[&[3.0, 1.0, 2.9], &[1.0, 3.1, 2.0]]).best, [0, 1]);
        // Surely faster, but by less than 5 %.
        assert_eq!(tests(&[&[1.04, 1.04], &[1.0, 1.0]]).best, [0, 1]);
        assert_eq!(tests(&[&[1.06, 1.06], &[1.0, 1.0]]).best, [1]);
    }

    #[test]
    fn one_run_or_no_row_gives_no_best() {
        assert!(tests(&[&[3.0], &[1.0]]).best.is_empty());
        assert!(tests(&[]).best.is_empty());
        assert_eq!(tests(&[&[1.0, 1.0]]).best, Vec::<usize>::new());
        assert!(tests(&[&[], &[]]).best.is_empty());
    }

    #[test]
    fn a_row_that_cannot_be_paired_is_never_beaten() {
        // Row 2 lost a run: no test with it is possible, so no row may claim to be faster than it.
        assert_eq!(
            tests(&[&[3.0, 3.1, 2.9], &[1.0, 1.1, 0.95], &[9.0, 9.0]]).best,
            [1, 2]
        );
    }
}
