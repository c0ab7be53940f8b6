//! A device that serves one command at a time: a disk, a USB stick, a SATA drive without a queue.
//!
//! The time of a command of `S` bytes depends only on `S`, as in the published measurements that this model reproduces. In the published
//! measurements, one program reads in a closed loop, and each readahead window is one command. The formula for the time of a command is:
//!
//! ```text
//!   T(S) = c * ceil(S / M) + seg(S)
//!
//!   c    overhead of each transfer: command, seek, rotation; all that does not depend on S
//!   M    the longest transfer; a longer command has several, and bytes arrive at the end of each
//!   seg  time of the bytes themselves, piecewise linear over the whole command
//!
//!        seg │               ___---   a flatter slope further on: a longer request
//!            │        __.--''         keeps more channels busy
//!            │    _.-'
//!            │ _-'
//!            └────┬─────┬──────── S
//!               slopes[1].from ...
//! ```
//!
//! The distance between two commands does not matter. Every seek costs the same, and a command that continues the previous command without
//! a gap costs as much as any other command.

use super::{Arrival, Command, Device};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Divisor that converts `bytes * ps_per_kib` to nanoseconds: picoseconds per nanosecond x bytes per KiB.
pub(super) const PS_KIB: u128 = 1000 * 1024;

/// Nanoseconds that `bytes` take, rounded up.
pub(super) fn transfer_ns(bytes: u64, ps_per_kib: u64) -> u64 {
    let ns = (u128::from(bytes) * u128::from(ps_per_kib)).div_ceil(PS_KIB);
    u64::try_from(ns).unwrap_or(u64::MAX)
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskModel {
    /// `c`, in nanoseconds.
    pub command_ns: u64,
    /// `M`, in bytes, not 0; `None` if no limit is known.
    pub max_transfer_bytes: Option<u64>,
    /// `seg`, in rising order of `from_bytes`; the first begins at 0.
    #[serde(deserialize_with = "super::custom::leaked")]
    pub slopes: &'static [Slope],
}

/// The time per byte, within a range of command lengths.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slope {
    /// The slope applies to bytes of the command from this offset on.
    pub from_bytes: u64,
    /// Picoseconds for each KiB: precise enough to represent 102,400 KiB/s exactly.
    pub ps_per_kib: u64,
}

impl Slope {
    pub const fn new(from_bytes: u64, ps_per_kib: u64) -> Slope {
        Slope {
            from_bytes,
            ps_per_kib,
        }
    }
}

impl DiskModel {
    /// Returns the time in nanoseconds from the start of a command until its first `bytes` bytes have arrived, if a transfer of the command
    /// ends after these bytes.
    pub fn time_ns(&self, bytes: u64) -> u64 {
        let transfers = self.transfers(bytes);
        transfers
            .saturating_mul(self.command_ns)
            .saturating_add(self.seg_ns(bytes))
    }

    fn transfers(&self, bytes: u64) -> u64 {
        self.max_transfer_bytes
            .map_or(1, |most| bytes.div_ceil(most).max(1))
    }

    /// Returns the minimum time in which a device of this kind reads `bytes` bytes. If the time per byte never rises with the length of a
    /// command, the minimum is the time of a single command. Otherwise all bytes are counted at the lowest time per byte.
    pub fn least_ns(&self, bytes: u64) -> u64 {
        if self
            .slopes
            .is_sorted_by(|a, b| a.ps_per_kib >= b.ps_per_kib)
        {
            return self.time_ns(bytes);
        }
        let cheapest = self.slopes.iter().map(|s| s.ps_per_kib).min().unwrap_or(0);
        let ns = u128::from(bytes) * u128::from(cheapest) / PS_KIB;
        let transfers = self.transfers(bytes);
        transfers
            .saturating_mul(self.command_ns)
            .saturating_add(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    fn seg_ns(&self, bytes: u64) -> u64 {
        let ends = self
            .slopes
            .iter()
            .skip(1)
            .map(|s| s.from_bytes)
            .chain([u64::MAX]);
        let cost = |(slope, end): (&Slope, u64)| {
            u128::from(bytes.min(end).saturating_sub(slope.from_bytes))
                * u128::from(slope.ps_per_kib)
        };
        let total: u128 = self.slopes.iter().zip(ends).map(cost).sum();
        u64::try_from(total.div_ceil(PS_KIB)).unwrap_or(u64::MAX)
    }
}

#[derive(Debug)]
pub struct Disk {
    model: DiskModel,
    queue: VecDeque<TimedCommand>,
    /// The end of the last queued command.
    free_ns: u64,
}

/// A command whose time is fixed: it begins when the previous one ends, because no command overtakes another.
#[derive(Debug)]
struct TimedCommand {
    command: Command,
    start_ns: u64,
    arrived_bytes: u64,
}

impl Disk {
    pub fn new(model: DiskModel) -> Disk {
        Disk {
            model,
            queue: VecDeque::new(),
            free_ns: 0,
        }
    }

    /// The current transfer of the first command: its end time, and the number of bytes that have arrived then.
    fn next_part(&self) -> Option<(u64, u64)> {
        let head = self.queue.front()?;
        let end = self
            .model
            .max_transfer_bytes
            .map(|most| head.arrived_bytes.saturating_add(most));
        let bytes = end.map_or(head.command.len, |end| end.min(head.command.len));
        Some((
            head.start_ns.saturating_add(self.model.time_ns(bytes)),
            bytes,
        ))
    }
}

impl Device for Disk {
    fn submit(&mut self, now_ns: u64, command: Command) {
        let start_ns = self.free_ns.max(now_ns);
        self.free_ns = start_ns.saturating_add(self.model.time_ns(command.len));
        self.queue.push_back(TimedCommand {
            command,
            start_ns,
            arrived_bytes: 0,
        });
    }

    fn next_time(&self) -> Option<u64> {
        self.next_part().map(|(at, _)| at)
    }

    fn advance(&mut self, now_ns: u64, out: &mut Vec<Arrival>) {
        while let Some((_, bytes)) = self.next_part().filter(|(at, _)| *at <= now_ns) {
            let Some(head) = self.queue.front_mut() else {
                return;
            };
            head.arrived_bytes = bytes;
            let done = bytes == head.command.len;
            out.push(Arrival {
                id: head.command.id,
                bytes,
                done,
            });
            if done {
                self.queue.pop_front();
            }
        }
    }
}

// Fits the figures of a device that processes one command at a time ([`super::disk`]) to measured times.
//
// The form is given, with fixed knees and a fixed longest transfer. The coefficients are those with the smallest sum of
// squared *relative* errors, and none is below 0. Relative errors, because a microsecond matters in a command of 100 us
// and not in one of 30 ms.
//
// ```text
//   T(S) = c * ceil(S / M) + w0 * (S below knee 1) + w1 * (S between knee 1 and 2) + ...
//
//   one row for each point, divided by what was measured:   [ ceil(S/M)  KiB0  KiB1 ... ] / T  ~  1
// ```
//
// Non-negative least squares by trying every set of coefficients that are not 0. There are few sets, so this is exact
// and needs no iteration. It does not search for knees, and gives no result if the points do not determine a
// coefficient.

/// Maximum number of coefficients of a fit; the maximum is small because the fit tries every subset of the coefficients.
pub const MAX_COEFFICIENTS: usize = 10;
/// If a pivot is below this, for columns scaled to length 1, the points do not determine the coefficients.
const SINGULAR: f64 = 1e-10;

/// The form of the formula for the time of a command, which must be chosen before its coefficients are fitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// `M`, in bytes, not 0; `None` if no limit is known.
    pub max_transfer_bytes: Option<u64>,
    /// Where new slopes begin, in bytes, rising; the slope from 0 is not included.
    pub knees: Vec<u64>,
}

impl Form {
    /// Returns the factor of each coefficient for a command of `bytes` bytes: first the number of transfers, then the number of KiB
    /// in the range of each slope.
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

    /// Fits the coefficients of the formula `T(S)`, whose form is `self`, to measured pairs: the bytes of a command and its time in
    /// nanoseconds. Returns a model that gives the time of a command of any length, or `None` in the same cases as
    /// [`relative_least_squares`].
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

/// Returns the coefficients for which the sum of squares of `terms * coefficients / target - 1` is smallest; no coefficient is
/// negative. All rows of `terms` must have the same length. Returns `None` if there are more than [`MAX_COEFFICIENTS`]
/// coefficients, if a target is not above 0, or if the rows do not determine a coefficient.
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
    // Solve for the whole set first: if it is not determined, there is no result, whatever a subset would give.
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
    // The normal equations, with columns of length 1 and the right side as the last entry of each row.
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

/// Gaussian elimination with partial pivoting.
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
    use crate::device::run_dry;

    /// 100 us for each transfer of at most 8 KiB, 1 us for each KiB up to 4 KiB, and 0.5 us for each KiB after that.
    const MODEL: DiskModel = DiskModel {
        command_ns: 100_000,
        max_transfer_bytes: Some(8192),
        slopes: &[Slope::new(0, 1_000_000), Slope::new(4096, 500_000)],
    };

    fn command(id: u64, len: u64) -> Command {
        Command::new(id, 0, 0, len)
    }

    #[test]
    fn time_of_a_command() {
        let times = [0, 1024, 4096, 8192, 8193, 20480].map(|bytes| MODEL.time_ns(bytes));
        let expected = [100_000, 101_000, 104_000, 106_000, 206_001, 312_000];
        assert_eq!(times, expected);
        let mut single = MODEL;
        single.max_transfer_bytes = Some(1);
        assert_eq!(single.time_ns(u64::MAX), u64::MAX);
    }

    #[test]
    fn a_long_command_arrives_in_parts() {
        let mut disk = Disk::new(MODEL);
        disk.submit(1000, command(7, 20480));
        let arrival = |bytes, done| Arrival { id: 7, bytes, done };
        let expected = [
            (107_000, arrival(8192, false)),
            (211_000, arrival(16384, false)),
            (313_000, arrival(20480, true)),
        ];
        assert_eq!(run_dry(&mut disk), expected);
        assert_eq!(disk.next_time(), None);
    }

    #[test]
    fn commands_wait_for_each_other_in_order() {
        let mut disk = Disk::new(MODEL);
        disk.submit(0, command(1, 4096));
        disk.submit(50, command(2, 4096));
        disk.submit(60, command(3, 0));
        let at = run_dry(&mut disk).into_iter().map(|(at, a)| (at, a.id));
        assert!(at.eq([(104_000, 1), (208_000, 2), (308_000, 3)]));
        // The disk is idle since 308 us. The next command begins when it is submitted, not when the disk became idle.
        disk.submit(1_000_000, command(4, 4096));
        assert_eq!(disk.next_time(), Some(1_104_000));
    }

    #[test]
    fn advance_takes_all_up_to_and_at_now() {
        let mut disk = Disk::new(MODEL);
        (1..=3).for_each(|id| disk.submit(0, command(id, 4096)));
        let mut out = Vec::new();
        disk.advance(103_999, &mut out);
        assert_eq!(out, []);
        disk.advance(208_000, &mut out);
        assert_eq!(out.iter().map(|a| a.id).collect::<Vec<_>>(), [1, 2]);
    }

    /// Generates times of commands with these sizes in KiB from the given coefficients, and returns the fitted
    /// coefficients.
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

    /// If a straight line through the points would begin below 0, the fitted line goes through 0.
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
        // No point on the second slope, fewer points than coefficients, and none.
        for sizes in [&[4, 8, 64][..], &[4, 128], &[]] {
            assert_eq!(found(&form, &put_in, sizes), None, "{sizes:?}");
        }
        for ns in [0.0, f64::NAN] {
            let terms = vec![with_knees(&[]).terms(4096); 4];
            assert_eq!(relative_least_squares(&terms, &[ns; 4]), None, "{ns}");
        }
    }

    #[test]
    fn the_number_of_coefficients_is_limited() {
        for (width, is_fitted) in [(MAX_COEFFICIENTS, true), (MAX_COEFFICIENTS + 1, false)] {
            let mut rows = vec![vec![1.0; width]; width];
            (0..width).for_each(|n| rows[n][n] = 2.0);
            let fit = relative_least_squares(&rows, &vec![1.0; width]);
            assert_eq!(fit.is_some(), is_fitted, "{width}");
        }
    }
}
