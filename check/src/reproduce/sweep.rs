//! The sweeps of `dd` over readahead sizes, [Wu 2010a] and [Wu 2010b]: a device's model beside its rows, and what the same form
//! of model predicts of a row that it did not see.
//!
//! ```text
//!   rows ── all ──► the preset (fitted once, for good) ──► fit rows
//!        └─ all but one ──► the same form, fitted here ──► the runs of that one: left-out rows
//! ```
//!
//! **Each run counts once.** Eleven runs are printed twice, and all runs can be read under two columns of labels. The
//! table of the single runs has the verdicts; a mean, a second printing and the other labels are shown beside it.
//!
//! **Two columns of labels.** Under the script's (4, 16, 32 KiB, ...) the presets stand as they are. As printed (4, 8,
//! 16, ...) every size but the first is half as large; then the same form, with its knees and its longest transfer at
//! half the size, needs one more cost that only the window of one page has. It leaves the same errors, so the tables
//! cannot tell the two apart; the script, [Wu 2010a] and the simpler model speak for the first.
//!
//! **The marks** (`==>`) follow one rule, "the first row with so much of the best row's throughput", whose figure is taken
//! from the other devices' marks.
//!
//! Never: a knee that is moved to fit, or a fit under the script's labels other than the preset's in a row `fit`.

use super::published::wu_2010b::{DD_BYTES, Labels, Run, Sweep};
use super::{FigureKind, Row};
use foreread_report::number;
use foreread_sim::device::disk::DiskModel;
use foreread_sim::device::fit::{Form, relative_least_squares};
use foreread_sim::device::presets::{Model, Preset};

/// How far a fitted row may be off: the X25-M, and the others.
const FIT_X25_M: f64 = 0.03;
const FIT: f64 = 0.06;
/// How far a row may be off that the model did not see.
const LEFT_OUT: f64 = 0.10;
/// A mark is at the first row whose mean of runs has this part of the best row's throughput.
pub const PLATEAU: f64 = 0.98;

const ONE_PAGE_KIB: u64 = 4;
const ONE_PAGE: &str =
    "this row alone gives the cost of a one-page window, which the form needs under these labels";
const OPEN: &str = "without this row nothing gives the cost of a one-page window";
/// Rows whose left-out check was dropped after it had missed [`LEFT_OUT`]: preset and KiB. It is a check again.
const KNOWN: [(&str, u64); 1] = [("usb-2g", 4)];
const SMALLEST: &str = "the smallest window alone separates the cost of a command from the rate, and its three runs differ by \
    3 %; the check had been dropped after it had missed the 10 %";
const MEAN: &str = "mean of runs that are checked one by one in the table of the runs";
const OTHER_LABELS: &str = "the same runs under the other labels, counted under the script's";

/// A sweep and the model of its device.
pub struct SweepModel<'a> {
    preset: &'a Preset,
    disk: DiskModel,
    labels: Labels,
    /// KiB of readahead and 10^6 bytes a second, as published.
    points: Vec<(u64, f64)>,
}

impl<'a> SweepModel<'a> {
    /// The preset must be a device that does one command after the other; none where it is not.
    #[must_use]
    pub fn new(
        preset: &'a Preset,
        labels: Labels,
        points: Vec<(u64, f64)>,
    ) -> Option<SweepModel<'a>> {
        let Model::Disk(disk) = preset.model else {
            return None;
        };
        Some(SweepModel {
            preset,
            disk,
            labels,
            points,
        })
    }

    /// The rows of a device of [Wu 2010b].
    #[must_use]
    pub fn of(sweep: &Sweep, preset: &'a Preset, labels: Labels) -> Option<SweepModel<'a>> {
        let points = sweep
            .runs
            .iter()
            .map(|run| (run.kib(labels), run.mb_per_s()))
            .collect();
        SweepModel::new(preset, labels, points)
    }

    /// What the model that was fitted to all rows makes of each: KiB and 10^6 bytes a second.
    #[must_use]
    pub fn model(&self) -> Vec<(u64, f64)> {
        let whole = (self.labels == Labels::Printed)
            .then(|| self.refit(None))
            .flatten();
        let ours = |kib: u64| match &whole {
            Some(coefficients) => self.predicted(coefficients, kib),
            None => mb_per_s(kib, self.disk.time_ns(kib << 10) as f64),
        };
        self.points
            .iter()
            .map(|(kib, _)| (*kib, ours(*kib)))
            .collect()
    }

    /// Each row beside the model that was fitted to all of them, then each as predicted from the others. Rows under the
    /// script's labels are of the kind `fit`; all others are shown, with `again` as the reason where there is one.
    #[must_use]
    pub fn rows(&self, again: Option<&str>) -> Vec<Row> {
        let again = again.or((self.labels == Labels::Printed).then_some(OTHER_LABELS));
        let most = if self.preset.name == "x25-m" {
            FIT_X25_M
        } else {
            FIT
        };
        let fitted = self
            .points
            .iter()
            .zip(self.model())
            .map(|(&(kib, published), (_, ours))| {
                let row = row(kib, "MB/s, fitted", published, Some(ours));
                match again {
                    Some(_) if self.is_alone(kib) => row.because(ONE_PAGE),
                    Some(why) => row.because(why),
                    None => row.within(FigureKind::Fit, most),
                }
            });
        let left_out = self
            .points
            .iter()
            .enumerate()
            .map(|(at, &(kib, published))| {
                let ours = self.left_out(at);
                let why = if ours.is_none() {
                    OPEN
                } else {
                    again.unwrap_or(MEAN)
                };
                row(kib, "MB/s, left out", published, ours).because(why)
            });
        fitted.chain(left_out).collect()
    }

    /// The seconds of each run as predicted from the rows of the other sizes, and the printed rate as it follows from the
    /// seconds. `runs` are those that the points are means of.
    #[must_use]
    pub(crate) fn each_run(&self, runs: &[Run]) -> Vec<Row> {
        let mut rows = Vec::new();
        for (at, run) in runs.iter().enumerate() {
            let kib = run.kib(self.labels);
            let ours = self.left_out(at).map(|mb_per_s| DD_BYTES / mb_per_s / 1e6);
            for (number, (&seconds, printed)) in run.seconds.iter().zip(run.printed).enumerate() {
                let label = format!("{}, run {}", number::size(kib << 10), number + 1);
                let row = Row::new(&label, "s, left out", Some(seconds), ours)
                    .within(FigureKind::LeftOut, LEFT_OUT);
                rows.push(if self.is_known(kib) {
                    row.because(SMALLEST).known()
                } else {
                    row
                });
                let rate = Row::new(
                    &label,
                    "MB/s, printed",
                    printed.parse().ok(),
                    Some(DD_BYTES / seconds / 1e6),
                );
                rows.push(rate.digits(FigureKind::Formula, printed));
            }
        }
        rows
    }

    fn left_out(&self, at: usize) -> Option<f64> {
        self.refit(Some(at))
            .map(|coefficients| self.predicted(&coefficients, self.points[at].0))
    }

    /// The largest error of throughput that one cost and one rate leave, fitted to all rows.
    #[must_use]
    pub fn serial_error(&self) -> Option<f64> {
        let terms: Vec<Vec<f64>> = self
            .points
            .iter()
            .map(|(kib, _)| vec![1.0, *kib as f64])
            .collect();
        let found = relative_least_squares(&terms, &self.ns(None))?;
        let error = |&(kib, published): &(u64, f64)| {
            mb_per_s(kib, found[0] + found[1] * kib as f64) / published - 1.0
        };
        Some(
            self.points
                .iter()
                .map(|p| error(p).abs())
                .fold(0.0, f64::max),
        )
    }

    /// Whether a row has a cost that no other row has.
    fn is_alone(&self, kib: u64) -> bool {
        self.labels == Labels::Printed && kib == ONE_PAGE_KIB
    }

    /// Whether what the other rows say of this one was found out of bounds before.
    fn is_known(&self, kib: u64) -> bool {
        self.labels == Labels::Script && KNOWN.contains(&(self.preset.name, kib))
    }

    /// What each coefficient is multiplied by for a row.
    fn terms(&self, kib: u64) -> Vec<f64> {
        let half = if self.labels == Labels::Printed { 2 } else { 1 };
        let knees = self
            .disk
            .slopes
            .iter()
            .skip(1)
            .map(|s| s.from_bytes / half)
            .collect();
        let max_transfer_bytes = self.disk.max_transfer_bytes.map(|bytes| bytes / half);
        let mut terms = Form {
            max_transfer_bytes,
            knees,
        }
        .terms(kib << 10);
        if self.labels == Labels::Printed {
            terms.push(f64::from(u8::from(self.is_alone(kib))));
        }
        terms
    }

    /// Nanoseconds of each window, those of `without` left out.
    fn ns(&self, without: Option<usize>) -> Vec<f64> {
        let kept = self
            .points
            .iter()
            .enumerate()
            .filter(|(at, _)| Some(*at) != without);
        kept.map(|(_, &(kib, mb_per_s))| (kib << 10) as f64 / mb_per_s * 1e3)
            .collect()
    }

    /// The coefficients for all rows but one.
    fn refit(&self, without: Option<usize>) -> Option<Vec<f64>> {
        let kept = self
            .points
            .iter()
            .enumerate()
            .filter(|(at, _)| Some(*at) != without);
        let terms: Vec<Vec<f64>> = kept.map(|(_, &(kib, _))| self.terms(kib)).collect();
        relative_least_squares(&terms, &self.ns(without))
    }

    fn predicted(&self, coefficients: &[f64], kib: u64) -> f64 {
        mb_per_s(
            kib,
            self.terms(kib)
                .iter()
                .zip(coefficients)
                .map(|(t, c)| t * c)
                .sum(),
        )
    }
}

fn row(kib: u64, column: &str, published: f64, ours: Option<f64>) -> Row {
    Row::new(number::size(kib << 10), column, Some(published), ours)
}

fn mb_per_s(kib: u64, ns: f64) -> f64 {
    (kib << 10) as f64 / ns * 1e3
}

/// The first of `rows`, (size, throughput), that has `part` of the best.
#[must_use]
pub fn plateau(rows: &[(u64, f64)], part: f64) -> Option<u64> {
    let best = rows.iter().map(|r| r.1).fold(0.0, f64::max);
    rows.iter().find(|r| r.1 >= part * best).map(|r| r.0)
}

/// The part of the best at which [`plateau`] finds the marks of all these sweeps: the middle of the parts that do. None
/// where no part does.
#[must_use]
pub(crate) fn part_of_marks<'s>(sweeps: impl Iterator<Item = &'s Sweep>) -> Option<f64> {
    let (mut above, mut upto) = (0.0_f64, 1.0_f64);
    for sweep in sweeps {
        let best = sweep.runs.iter().map(Run::mb_per_s).fold(0.0, f64::max);
        for run in sweep
            .runs
            .iter()
            .take_while(|run| run.printed_kib <= sweep.plateau_kib)
        {
            let part = run.mb_per_s() / best;
            (above, upto) = if run.printed_kib == sweep.plateau_kib {
                (above, upto.min(part))
            } else {
                (above.max(part), upto)
            };
        }
    }
    (above < upto).then(|| f64::midpoint(above, upto))
}

#[cfg(test)]
mod tests {
    use super::super::published::wu_2010b::SWEEPS;
    use super::*;

    #[test]
    fn a_plateau_begins_at_its_part_of_the_best() {
        assert_eq!(plateau(&[(4, 97.9), (8, 98.0), (16, 100.0)], 0.98), Some(8));
        assert_eq!(plateau(&[(4, 98.0), (8, 99.0), (16, 100.0)], 0.98), Some(4));
        assert_eq!(plateau(&[], 0.98), None);
    }

    /// The marks of all five devices leave 97.7 to 98.6 %; those of a sweep with its mark at the second row would leave none.
    #[test]
    fn the_marks_bound_their_own_rule() {
        let part = part_of_marks(SWEEPS.iter()).expect("a part");
        assert!((0.977..0.986).contains(&part), "{part}");
        let early = Sweep {
            plateau_kib: 8,
            ..SWEEPS[1]
        };
        assert_eq!(part_of_marks(SWEEPS.iter().chain([&early])), None);
    }
}
