//! Fits a model of the storage to the measured points (a point is a request size and a queue depth).
//!
//! ```text
//!   one read     T(S) = latency + S / rate             least squares of the relative errors, over the points of depth 1
//!   several      min(depth, lanes) at once, over a link that all share
//! ```
//! The fit chooses the number of lanes (requests served at the same time) from [`LANES`], and the link's rate from the rates measured at
//! high queue depths. The fit takes the pair (number of lanes and rate of the link) with the smallest sum of errors. The errors are not
//! squared, so that a short disturbance of the storage, which affects only few points, has little influence.

use super::Point;
use foreread_report::number::{percent, plural, three};
use foreread_sim::device::disk::relative_least_squares;
use foreread_sim::device::lanes::LanesModel;
use serde::{Deserialize, Serialize};

/// Numbers of lanes that are tried; the last is the largest number that a point keeps busy.
const LANES: [u32; 11] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64];
/// If two numbers of lanes fit about equally well, the larger is taken: a limit needs evidence.
const LANES_TIE: f64 = 1.02;

/// A single read that takes less than this factor times the link's time is bound by the link.
const AT_LINK: f64 = 1.1;

/// The model fitted to the measurements, and its error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// Time of a read besides its transfer.
    pub latency_ns: f64,
    /// Transfer time of a single read.
    pub ns_per_kib: f64,
    /// Reads that are served at once.
    pub lanes: u32,
    /// Transfer time over the link that all reads share.
    pub link_ns_per_kib: f64,
    /// The parameters in one line, for people.
    pub figures: String,
    /// Largest absolute error of a point.
    pub worst_error: f64,
    /// Median absolute error of a point.
    pub median_error: f64,
}

impl Fit {
    /// Returns `None` if there are too few points. Single reads bound by the link say nothing about latency: the second pass leaves them
    /// out.
    pub(super) fn of(points: &[Point]) -> Option<Fit> {
        let first = Fit::among(points, 0.0)?;
        let second = Fit::among(points, first.link_ns_per_kib * AT_LINK);
        Some(second.unwrap_or(first))
    }

    /// Fits latency and rate to the single reads that took more than `least_ns` for each KiB.
    fn among(points: &[Point], least_ns: f64) -> Option<Fit> {
        let per_kib = |point: &Point| ns_of(point) / kib(point);
        let shallow = points
            .iter()
            .filter(|point| point.depth == 1 && per_kib(point) > least_ns);
        let (rows, times): (Vec<Vec<f64>>, Vec<f64>) = shallow
            .map(|point| (vec![1.0, kib(point)], ns_of(point)))
            .unzip();
        let alone = relative_least_squares(&rows, &times)?;
        let with = |lanes, link_ns_per_kib| Fit {
            latency_ns: alone[0],
            ns_per_kib: alone[1],
            lanes,
            link_ns_per_kib,
            figures: String::new(),
            worst_error: 0.0,
            median_error: 0.0,
        };
        let deep = || points.iter().filter(|point| point.depth > 1);
        let best = points.iter().map(per_kib).min_by(f64::total_cmp)?;
        let links = deep().map(per_kib).chain([best]);
        let lanes: &[u32] = match deep().next() {
            None => &LANES[..1],
            Some(_) => &LANES,
        };
        let tried = links.flat_map(|link| lanes.iter().map(move |lanes| with(*lanes, link)));
        let scored = tried.map(|fit| (sum_of_errors(&fit, points.iter()), fit));
        let (_, least) = scored.min_by(|a, b| a.0.total_cmp(&b.0))?;
        let bound = sum_of_errors(&least, deep()) * LANES_TIE + 1e-9;
        let most_lanes = lanes
            .iter()
            .rev()
            .map(|lanes| with(*lanes, least.link_ns_per_kib));
        let mut near = most_lanes.filter(|fit| sum_of_errors(fit, deep()) <= bound);
        let mut fit = near.next()?;
        let mut errors: Vec<f64> = points.iter().map(|point| fit.error(point).abs()).collect();
        errors.sort_by(f64::total_cmp);
        (fit.median_error, fit.worst_error) = (errors[errors.len() / 2], *errors.last()?);
        fit.figures = format!(
            "latency {} ms; {} at once; {} MB/s sustained in all; the bytes of one request arrive at {} MB/s",
            three(fit.latency_ns / 1e6),
            plural(fit.lanes.into(), "request"),
            rate(fit.link_ns_per_kib),
            rate(fit.ns_per_kib)
        );
        Some(fit)
    }

    /// Throughput of the model, in 10^6 bytes a second.
    pub(super) fn mb_per_s(&self, bytes: u64, depth: u32) -> f64 {
        let kib = bytes as f64 / 1024.0;
        let link = self.link_ns_per_kib * kib;
        let alone = (self.latency_ns + self.ns_per_kib * kib).max(link);
        let ns = (alone / f64::from(depth.min(self.lanes))).max(link);
        bytes as f64 * 1e3 / ns.max(1.0)
    }

    /// Error of the model at a point: model / measured - 1.
    pub(super) fn error(&self, point: &Point) -> f64 {
        self.mb_per_s(point.request_bytes, point.depth) / point.throughput_mb_s.median - 1.0
    }

    pub(super) fn model(&self) -> LanesModel {
        let whole = |value: f64| value.round().max(0.0) as u64;
        LanesModel {
            latency_ns: whole(self.latency_ns),
            ps_per_kib: whole(self.ns_per_kib * 1e3),
            lanes: self.lanes,
            link_ps_per_kib: whole(self.link_ns_per_kib * 1e3),
        }
    }

    /// Returns a sentence that says how much the model's times differ from the measured times.
    pub fn error_in_words(&self) -> String {
        let doubt = match self.median_error > super::DOUBTFUL {
            true => "Low confidence: the storage did not behave like the model. ",
            false => "",
        };
        format!(
            "{doubt}The model's throughput is off by {} % in the median and {} % at worst",
            percent(self.median_error),
            percent(self.worst_error)
        )
    }
}

fn sum_of_errors<'a>(fit: &Fit, points: impl Iterator<Item = &'a Point>) -> f64 {
    points
        .map(|point| (1.0 + fit.error(point)).ln().abs())
        .sum()
}

fn kib(point: &Point) -> f64 {
    point.request_bytes as f64 / 1024.0
}

/// Nanoseconds for each read of a point.
fn ns_of(point: &Point) -> f64 {
    point.request_bytes as f64 * 1e3 / point.throughput_mb_s.median
}

fn rate(ns_per_kib: f64) -> String {
    three(1024e3 / ns_per_kib.max(0.001))
}

#[cfg(test)]
mod tests {
    use super::super::{Pattern, Spread};
    use super::*;
    use crate::station::grid;

    /// 3.3 ms and 0.7 us a KiB, 12 at once over 200 MB/s.
    fn points(faster: impl Fn(grid::Task) -> f64) -> Vec<Point> {
        let point = |task: grid::Task| {
            let link = task.bytes as f64 * 5.0;
            let alone = (3.3e6 + 700.0 * task.bytes as f64 / 1024.0).max(link);
            let ns = (alone / f64::from(task.depth.min(12))).max(link);
            let median = task.bytes as f64 * 1e3 / ns * faster(task);
            let spread = Spread {
                median,
                low: median,
                high: median,
            };
            Point {
                pattern: task.pattern,
                request_bytes: task.bytes,
                depth: task.depth,
                rounds: 5,
                reads: 50,
                throughput_mb_s: spread,
                latency_us: spread,
                latency_p99_us: None,
                model_mb_s: 0.0,
                error: 0.0,
            }
        };
        grid::tasks(1 << 30).into_iter().map(point).collect()
    }

    /// A disk that lets more pass for a moment after a pause: some points show that, and most do not.
    #[test]
    fn a_link_is_as_wide_as_most_points_say_and_not_as_the_fastest() {
        let bursts = |task: grid::Task| match (task.pattern, task.bytes, task.depth) {
            (Pattern::Random, 4_194_304, 1) => 3.0,
            (Pattern::Random, 1_048_576, 2) => 2.0,
            (Pattern::Sequential, 131_072, 32) => 1.4,
            _ => 1.0,
        };
        let fits = [Fit::of(&points(|_| 1.0)), Fit::of(&points(bursts))];
        for (fit, most) in fits.into_iter().zip([0.02, 0.1]) {
            let fit = fit.expect("enough points");
            let link = 1024e3 / fit.link_ns_per_kib;
            assert!(
                fit.lanes == 12 && (link / 200.0 - 1.0).abs() < most,
                "{fit:?}"
            );
            assert!(fit.median_error < most, "{fit:?}");
        }
    }

    #[test]
    fn a_storage_that_was_read_one_at_a_time_has_one_lane() {
        let mut all = points(|_| 1.0);
        all.retain(|point| point.depth == 1);
        assert_eq!(Fit::of(&all).expect("enough points").lanes, 1);
        assert_eq!(Fit::of(&all[..1]), None);
    }
}
