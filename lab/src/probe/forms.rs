//! The forms a model may have, and their figures for given points: closed formulas, so that trying many is cheap.
//!
//! ```text
//!   disk    T(S), one after the other                              2 figures, each knee +2, a longest transfer +1
//!   array   the same with an overhead for reads at random          +1
//!   net     rtt + S / connection, several at once over a link      4, with a tail +1
//!   lanes   T(S), several at once behind a gate                    those of the disk, +2 or +3
//! ```
//!
//! Never: a figure below 0, or one that the points leave open.

use super::{Pattern, Point};
use foreread_sim::device::fit::{
    Fit as Alone, Form as AloneForm, Point as Time, relative_least_squares,
};

/// Lanes that are tried; the last is as many as were ever kept busy.
pub(super) const LANES: [u32; 11] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64];
/// Of two numbers of lanes that fit about as well the larger is taken: a limit has to show.
const LANES_TIE: f64 = 1.02;
/// The second-fastest depth that takes no more than this many times the fastest shows the same bound.
const BEND: f64 = 1.25;
/// A tail is worth a figure where the 99th percentile of the latency is this many medians.
const TAIL: f64 = 1.15;

/// A model as far as its formulas go.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shape {
    /// One command alone, in order.
    pub alone: Alone,
    /// What one at random costs beside that, in nanoseconds.
    pub random_ns: f64,
    /// Several at once.
    pub deep: Option<Deep>,
    /// Which device it becomes.
    pub kind: DeviceKind,
    /// Figures that were fitted.
    pub parameters: u32,
}

/// How several commands share the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Deep {
    /// At once.
    pub lanes: u32,
    /// Nanoseconds each holds the gate for.
    pub gate_ns: f64,
    /// And for each KiB.
    pub gate_ns_per_kib: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum DeviceKind {
    Disk,
    Array,
    /// With the 99th percentile of its round trip / the median.
    Net(Option<f64>),
    Lanes,
}

impl Shape {
    /// Nanoseconds of one command alone.
    fn alone_ns(&self, pattern: Pattern, bytes: u64) -> f64 {
        self.alone.ns(bytes)
            + if pattern == Pattern::Random {
                self.random_ns
            } else {
                0.0
            }
    }

    /// What it makes of a point, in 10^6 bytes a second.
    pub(super) fn mb_per_s(&self, pattern: Pattern, bytes: u64, depth: u32) -> f64 {
        let alone_ns = self.alone_ns(pattern, bytes);
        let ns = match self.deep {
            None => alone_ns,
            Some(deep) => {
                let gate_ns = deep.gate_ns + deep.gate_ns_per_kib * bytes as f64 / 1024.0;
                (alone_ns.max(gate_ns) / f64::from(depth.min(deep.lanes))).max(gate_ns)
            }
        };
        if ns > 0.0 {
            bytes as f64 * 1e3 / ns
        } else {
            f64::INFINITY
        }
    }

    /// In one line: `disk, 2 slopes`.
    pub(super) fn name(&self) -> String {
        let slopes = match self.alone.form.knees.len() {
            0 => String::new(),
            n => format!(", {} slopes", n + 1),
        };
        let most = self.alone.form.max_transfer_bytes;
        let transfers = most.map_or_else(String::new, |most| {
            format!(", transfers of {}K", most >> 10)
        });
        let kind = match self.kind {
            DeviceKind::Disk => "disk",
            DeviceKind::Array => "array",
            DeviceKind::Net(_) => "net",
            DeviceKind::Lanes => "lanes",
        };
        let gate = self
            .deep
            .filter(|_| self.kind == DeviceKind::Lanes)
            .is_some_and(|d| d.gate_ns > 0.0);
        format!(
            "{kind}{}{slopes}{transfers}",
            if gate { " with a gate" } else { "" }
        )
    }
}

/// Nanoseconds of a read of a point, one at a time.
fn ns_of(point: &Point) -> f64 {
    point.request_bytes as f64 * 1e3 / point.throughput_mb_s.median
}

fn times<'a>(points: impl Iterator<Item = &'a Point>) -> Vec<Time> {
    points
        .filter(|p| p.depth == 1)
        .map(|p| Time {
            bytes: p.request_bytes,
            ns: ns_of(p),
        })
        .collect()
}

/// The formula of one command alone, fitted to all points of depth 1.
pub(super) fn alone(form: &AloneForm, points: &[&Point]) -> Option<Alone> {
    form.fit(&times(points.iter().copied()))
}

/// One after the other.
pub(super) fn disk(form: &AloneForm, points: &[&Point]) -> Option<Shape> {
    let alone = alone(form, points)?;
    let parameters = 2 + 2 * form.knees.len() as u32 + u32::from(form.max_transfer_bytes.is_some());
    Some(Shape {
        alone,
        random_ns: 0.0,
        deep: None,
        kind: DeviceKind::Disk,
        parameters,
    })
}

/// One after the other, with an overhead for reads at random.
pub(super) fn array(points: &[&Point]) -> Option<Shape> {
    let form = AloneForm {
        max_transfer_bytes: None,
        knees: Vec::new(),
    };
    let shallow: Vec<&Point> = points.iter().copied().filter(|p| p.depth == 1).collect();
    let row = |p: &&Point| {
        let random = f64::from(u8::from(p.pattern == Pattern::Random));
        vec![1.0, p.request_bytes as f64 / 1024.0, random]
    };
    let rows: Vec<Vec<f64>> = shallow.iter().map(row).collect();
    let targets: Vec<f64> = shallow.iter().map(|p| ns_of(p)).collect();
    let found = relative_least_squares(&rows, &targets)?;
    let alone = Alone {
        form,
        command_ns: found[0],
        ns_per_kib: vec![found[1]],
    };
    Some(Shape {
        alone,
        random_ns: found[2],
        deep: None,
        kind: DeviceKind::Array,
        parameters: 3,
    })
}

/// Several at once over a link. Only for sources that deliver the bytes of a read in parts.
pub(super) fn net(points: &[&Point]) -> Option<Shape> {
    let form = AloneForm {
        max_transfer_bytes: None,
        knees: Vec::new(),
    };
    let alone = alone(&form, points)?;
    let smallest = points
        .iter()
        .filter(|p| p.depth == 1 && p.pattern == Pattern::Random)
        .min_by_key(|p| p.request_bytes)?;
    let tail = smallest
        .latency_p99_us
        .map(|p99| p99 / smallest.latency_us.median)
        .filter(|ratio| *ratio > TAIL);
    let deep = share(&alone, points, false)?;
    let parameters = 4 + u32::from(tail.is_some());
    Some(Shape {
        alone,
        random_ns: 0.0,
        deep: Some(deep),
        kind: DeviceKind::Net(tail),
        parameters,
    })
}

/// Several at once behind a gate, which has a part that does not depend on the length if `gate`.
pub(super) fn lanes(form: &AloneForm, gate: bool, points: &[&Point]) -> Option<Shape> {
    let disk = disk(form, points)?;
    let deep = share(&disk.alone, points, gate)?;
    let parameters = disk.parameters + 2 + u32::from(gate);
    Some(Shape {
        deep: Some(deep),
        kind: DeviceKind::Lanes,
        parameters,
        ..disk
    })
}

/// The gate through the best throughput of each size that was read at several depths, and the lanes that fit best.
fn share(alone: &Alone, points: &[&Point], gate: bool) -> Option<Deep> {
    let deep: Vec<&Point> = points.iter().copied().filter(|p| p.depth > 1).collect();
    let mut sizes: Vec<u64> = deep.iter().map(|p| p.request_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let row = |bytes: u64| {
        let kib = bytes as f64 / 1024.0;
        if gate { vec![kib, 1.0] } else { vec![kib] }
    };
    let best = |bytes: &u64| {
        let mut of_size: Vec<f64> = deep
            .iter()
            .filter(|p| p.request_bytes == *bytes)
            .map(|p| ns_of(p))
            .collect();
        of_size.sort_by(f64::total_cmp);
        // Two that are about as fast show a bend; one alone that is faster may still rise.
        match of_size.as_slice() {
            [first, second, ..] if *second <= first * BEND => Some(f64::midpoint(*first, *second)),
            all => all.first().copied(),
        }
    };
    // A gate goes through all sizes. A link alone is as wide as what went through it: which of the points shows that, the others say.
    let gates: Vec<(f64, f64)> = if gate {
        let rows: Vec<Vec<f64>> = sizes.iter().map(|bytes| row(*bytes)).collect();
        let found =
            relative_least_squares(&rows, &sizes.iter().filter_map(best).collect::<Vec<f64>>())?;
        vec![(found[0], found[1])]
    } else {
        let per_kib = |p: &&Point| ns_of(p) * 1024.0 / p.request_bytes as f64;
        let best = points.iter().map(per_kib).min_by(f64::total_cmp);
        let tried = deep.iter().map(per_kib).chain(best);
        tried.map(|ns_per_kib| (ns_per_kib, 0.0)).collect()
    };
    let with = |lanes, (gate_ns_per_kib, gate_ns)| Deep {
        lanes,
        gate_ns,
        gate_ns_per_kib,
    };
    // The sum of the errors and not of their squares: a storage that delivers more for a moment, and points that were disturbed, are few.
    let errors = |deep_with: Deep, of: &[&Point]| -> f64 {
        let shape = Shape {
            alone: alone.clone(),
            random_ns: 0.0,
            deep: Some(deep_with),
            kind: DeviceKind::Lanes,
            parameters: 0,
        };
        let error = |p: &&Point| {
            (shape.mb_per_s(p.pattern, p.request_bytes, p.depth) / p.throughput_mb_s.median)
                .ln()
                .abs()
        };
        of.iter().map(error).sum()
    };
    let all = gates
        .iter()
        .flat_map(|gate| LANES.iter().map(|lanes| with(*lanes, *gate)));
    let (_, least) = all
        .map(|deep_with| (errors(deep_with, points), deep_with))
        .min_by(|a, b| a.0.total_cmp(&b.0))?;
    let of_gate = |lanes| with(lanes, (least.gate_ns_per_kib, least.gate_ns));
    let bound = errors(least, &deep) * LANES_TIE + 1e-9;
    LANES
        .into_iter()
        .rev()
        .map(of_gate)
        .find(|d| errors(*d, &deep) <= bound)
}

#[cfg(test)]
mod tests {
    use super::super::Spread;
    use super::*;

    /// 3.3 ms and 0.7 us a KiB, 12 at once over 200 MB/s.
    fn points(faster: impl Fn(Pattern, u64, u32) -> f64) -> Vec<Point> {
        let alone = |bytes: u64| 3.3e6 + 700.0 * bytes as f64 / 1024.0;
        let point = |pattern: Pattern, bytes: u64, depth: u32| {
            let gate = bytes as f64 * 5.0;
            let ns = (alone(bytes).max(gate) / f64::from(depth.min(12))).max(gate);
            let mb_s = bytes as f64 * 1e3 / ns * faster(pattern, bytes, depth);
            let spread = |median| Spread {
                median,
                low: median,
                high: median,
            };
            Point {
                pattern,
                request_bytes: bytes,
                depth,
                rounds: 5,
                reads: 50,
                throughput_mb_s: spread(mb_s),
                latency_us: spread(ns * f64::from(depth) / 1e3),
                latency_p99_us: None,
                model_mb_s: None,
                error: None,
            }
        };
        let mut all = Vec::new();
        for pattern in [Pattern::Sequential, Pattern::Random] {
            let alone = (12..24).map(|n| (1 << n, 1));
            let deep = [4 << 10, 32 << 10, 128 << 10, 1 << 20];
            let deep = deep
                .into_iter()
                .filter(|bytes| pattern == Pattern::Random || *bytes == 128 << 10);
            let deep = deep.flat_map(|bytes| [2, 4, 8, 16, 32].map(|depth| (bytes, depth)));
            all.extend(
                alone
                    .chain(deep)
                    .map(|(bytes, depth)| point(pattern, bytes, depth)),
            );
        }
        all
    }

    fn found(points: &[Point]) -> (u32, f64) {
        let form = AloneForm {
            max_transfer_bytes: None,
            knees: Vec::new(),
        };
        let points: Vec<&Point> = points.iter().collect();
        let deep = lanes(&form, false, &points).and_then(|shape| shape.deep);
        let deep = deep.expect("there are deep points");
        (deep.lanes, 1024e3 / deep.gate_ns_per_kib)
    }

    /// A disk that lets more pass for a moment after a pause: some points show that, and most do not.
    #[test]
    fn a_link_is_as_wide_as_most_points_say_and_not_as_the_fastest() {
        let (lanes, mb_s) = found(&points(|_, _, _| 1.0));
        assert!(
            lanes == 12 && (mb_s / 200.0 - 1.0).abs() < 0.02,
            "{lanes}, {mb_s}"
        );
        let bursts = |pattern: Pattern, bytes: u64, depth: u32| match (pattern, bytes, depth) {
            (Pattern::Random, 4_194_304, 1) => 3.0,
            (Pattern::Random, 1_048_576, 2) => 2.0,
            (Pattern::Sequential, 131_072, 32) => 1.4,
            _ => 1.0,
        };
        let (lanes, mb_s) = found(&points(bursts));
        assert!(
            lanes == 12 && (mb_s / 200.0 - 1.0).abs() < 0.1,
            "{lanes}, {mb_s}"
        );
    }
}
