//! Fits the figures of a device that does one command after the other ([`super::disk`]) to measured times.
//!
//! The form is given, its knees and its longest transfer fixed; the coefficients are those of the least sum of squared
//! *relative* errors, none below 0. A microsecond matters to a command of 100 us and not to one of 30 ms.
//!
//! ```text
//!   T(S) = c * ceil(S / M) + w0 * (S below knee 1) + w1 * (S between knee 1 and 2) + ...
//!
//!   one row for each point, divided by what was measured:   [ ceil(S/M)  KiB0  KiB1 ... ] / T  ~  1
//! ```
//!
//! Non-negative least squares by trying every set of coefficients that are not 0: there are few, so that is exact and
//! needs no iteration. Never: a search for knees, or an answer where the points leave a coefficient open.

/// The most coefficients: every subset of them is tried.
pub const MAX_COEFFICIENTS: usize = 10;
/// A pivot below this, of columns scaled to length 1, means that the points do not determine the coefficients.
const SINGULAR: f64 = 1e-10;

/// What is fixed: the shape of the formula.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// `M`, in bytes, not 0; none where no limit is known.
    pub max_transfer_bytes: Option<u64>,
    /// Where a new slope begins, in bytes, rising; the slope from 0 on is not among them.
    pub knees: Vec<u64>,
}

impl Form {
    /// What each coefficient is multiplied by for a command of `bytes`: transfers, then KiB of each slope.
    pub fn terms(&self, bytes: u64) -> Vec<f64> {
        let starts = std::iter::once(0).chain(self.knees.iter().copied());
        let ends = self.knees.iter().copied().chain(std::iter::once(u64::MAX));
        let kib = starts
            .zip(ends)
            .map(|(start, end)| bytes.min(end).saturating_sub(start) as f64 / 1024.0);
        let transfers = self
            .max_transfer_bytes
            .map_or(1, |most| bytes.div_ceil(most).max(1));
        std::iter::once(transfers as f64).chain(kib).collect()
    }

    /// Nanoseconds of a command by its bytes, fitted to measured ones: bytes and nanoseconds. None as in [`relative_least_squares`].
    pub fn fit(self, measured: impl Iterator<Item = (u64, f64)>) -> Option<impl Fn(u64) -> f64> {
        let (terms, times): (Vec<_>, Vec<f64>) =
            measured.map(|(bytes, ns)| (self.terms(bytes), ns)).unzip();
        let fitted = relative_least_squares(&terms, &times)?;
        Some(move |bytes| {
            let own = self.terms(bytes);
            own.iter().zip(&fitted).map(|(term, c)| term * c).sum()
        })
    }
}

/// The coefficients, none below 0, that make `terms * coefficients / target - 1` smallest in the sum of its squares.
/// Each row of `terms` is as long as the others. None for more than [`MAX_COEFFICIENTS`], for a target that is not
/// above 0, and where the rows leave a coefficient open.
pub fn relative_least_squares(terms: &[Vec<f64>], targets: &[f64]) -> Option<Vec<f64>> {
    let width = terms.first()?.len();
    if width == 0 || width > MAX_COEFFICIENTS || terms.len() != targets.len() {
        return None;
    }
    if terms.iter().any(|row| row.len() != width)
        || targets.iter().any(|t| !(t.is_finite() && *t > 0.0))
    {
        return None;
    }
    let rows: Vec<Vec<f64>> = terms
        .iter()
        .zip(targets)
        .map(|(row, target)| row.iter().map(|term| term / target).collect())
        .collect();
    let all: u32 = (1 << width) - 1;
    // The whole set first: if it is open, so is the answer, whatever a part of it would give.
    let whole = solve(&rows, all)?;
    if whole.iter().all(|c| *c >= 0.0) {
        return Some(whole);
    }
    let fits = (1..all)
        .filter_map(|set| solve(&rows, set))
        .filter(|c| c.iter().all(|c| *c >= 0.0));
    fits.min_by(|a, b| squares(&rows, a).total_cmp(&squares(&rows, b)))
}

fn squares(rows: &[Vec<f64>], coefficients: &[f64]) -> f64 {
    let error = |row: &Vec<f64>| {
        row.iter()
            .zip(coefficients)
            .map(|(t, c)| t * c)
            .sum::<f64>()
            - 1.0
    };
    rows.iter().map(|row| error(row) * error(row)).sum()
}

/// Least squares of `row * coefficients ~ 1` with the coefficients of `set` only, the others 0.
fn solve(rows: &[Vec<f64>], set: u32) -> Option<Vec<f64>> {
    let width = rows[0].len();
    let columns: Vec<usize> = (0..width).filter(|i| set & (1 << i) != 0).collect();
    let length = |&i: &usize| rows.iter().map(|r| r[i] * r[i]).sum::<f64>().sqrt();
    let lengths: Vec<f64> = columns.iter().map(length).collect();
    if lengths.iter().any(|l| !(l.is_finite() && *l > 0.0)) {
        return None;
    }
    let n = columns.len();
    // The normal equations, of columns of length 1, with the right side as the last entry of each.
    let mut matrix = vec![vec![0.0; n + 1]; n];
    for (i, &a) in columns.iter().enumerate() {
        for (j, &b) in columns.iter().enumerate() {
            matrix[i][j] = rows.iter().map(|r| r[a] * r[b]).sum::<f64>() / lengths[i] / lengths[j];
        }
        matrix[i][n] = rows.iter().map(|r| r[a]).sum::<f64>() / lengths[i];
    }
    let scaled = eliminate(matrix)?;
    let mut found = vec![0.0; width];
    for ((&column, length), value) in columns.iter().zip(&lengths).zip(scaled) {
        found[column] = value / length;
    }
    Some(found)
}

/// Gauss's elimination with the largest pivot of each column.
fn eliminate(mut matrix: Vec<Vec<f64>>) -> Option<Vec<f64>> {
    let n = matrix.len();
    for at in 0..n {
        let pivot = (at..n).max_by(|&a, &b| matrix[a][at].abs().total_cmp(&matrix[b][at].abs()))?;
        if matrix[pivot][at].abs() < SINGULAR {
            return None;
        }
        matrix.swap(at, pivot);
        let top = matrix[at].clone();
        for (i, row) in matrix.iter_mut().enumerate() {
            let factor = row[at] / top[at];
            if i != at && factor != 0.0 {
                row.iter_mut()
                    .zip(&top)
                    .for_each(|(value, above)| *value -= factor * above);
            }
        }
    }
    Some((0..n).map(|i| matrix[i][n] / matrix[i][i]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The coefficients that are found for what these ones make of commands of so many KiB.
    fn found(form: &Form, put_in: &[f64], sizes: &[u64]) -> Option<Vec<f64>> {
        let terms: Vec<Vec<f64>> = sizes.iter().map(|kib| form.terms(kib << 10)).collect();
        let ns = |terms: &Vec<f64>| terms.iter().zip(put_in).map(|(t, c)| t * c).sum();
        let targets: Vec<f64> = terms.iter().map(ns).collect();
        relative_least_squares(&terms, &targets)
    }

    fn with_knees(knees: &[u64]) -> Form {
        Form {
            max_transfer_bytes: None,
            knees: knees.to_vec(),
        }
    }

    #[test]
    fn values_come_out_as_put_in() {
        let form = Form {
            max_transfer_bytes: Some(120 << 10),
            ..with_knees(&[16 << 10, 256 << 10])
        };
        let put_in = [410_000.0, 48_250.0, 39_220.0, 30_000.0];
        let got = found(&form, &put_in, &[4, 16, 32, 64, 128, 256, 512, 1024]);
        let got = got.expect("determined");
        let is_near = |(a, b): (&f64, f64)| (a / b - 1.0).abs() < 1e-6;
        assert!(got.iter().zip(put_in).all(is_near), "{got:?}");
    }

    /// A straight line through points that would put its foot below 0 goes through 0.
    #[test]
    fn no_coefficient_is_negative() {
        let line = with_knees(&[]);
        let got = found(&line, &[-3_000.0, 1_000.0], &[4, 8, 16, 64]).expect("determined");
        assert_eq!(got[0], 0.0);
        assert!(got[1] > 250.0 && got[1] < 1_000.0, "{got:?}");
    }

    #[test]
    fn underdetermined_fits_have_no_answer() {
        let form = with_knees(&[64 << 10]);
        let put_in = [1.0, 2.0, 3.0];
        assert_eq!(
            found(&form, &put_in, &[4, 8, 64]),
            None,
            "no point on the second slope"
        );
        assert_eq!(
            found(&form, &put_in, &[4, 128]),
            None,
            "fewer points than coefficients"
        );
        assert_eq!(found(&form, &put_in, &[]), None);
        for ns in [0.0, f64::NAN] {
            let terms = vec![with_knees(&[]).terms(4096); 4];
            assert_eq!(relative_least_squares(&terms, &[ns; 4]), None, "{ns}");
        }
    }

    #[test]
    fn the_number_of_coefficients_is_limited() {
        let row = |width: usize, n: usize| {
            (0..width)
                .map(|i| if i == n % width { 2.0 } else { 1.0 })
                .collect()
        };
        let rows = |width: usize| (0..width).map(|n| row(width, n)).collect::<Vec<Vec<f64>>>();
        let ones = vec![1.0; MAX_COEFFICIENTS + 1];
        assert!(relative_least_squares(&rows(MAX_COEFFICIENTS), &ones[1..]).is_some());
        assert_eq!(
            relative_least_squares(&rows(MAX_COEFFICIENTS + 1), &ones),
            None
        );
    }
}
