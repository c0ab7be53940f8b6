//! The simplest model that holds.
//!
//! Every form of `forms.rs` is fitted to all points, and once for each request size without the points of that size, which
//! it then has to predict. Errors are those of throughput, model / measured - 1.
//!
//! - **A point is missed** where the model is more than 10 % off its median and outside its quartiles.
//! - **A model holds** where it misses at most one point in twenty.
//! - **The simplest** is the one with the fewest figures among those that predict left-out sizes nearly as well as the
//!   best (its error at most 1.25 times the best one's, and 1 % more) and whose own error is about that of the
//!   measurement. If none holds, the simplest that predicts nearly as well as the best is taken, and is said not to.
//!
//! Never: a model that was chosen because one more figure made a sum of squares a little smaller.

use super::forms::{self, DeviceKind, Shape};
use super::measure::ROUNDS;
use super::{Fit, Point, Spread, TriedForm, grid, virt};
use foreread_sim::device::array::Overhead;
use foreread_sim::device::custom::{ArrayFile, DiskFile, LanesFile, ModelFile};
use foreread_sim::device::disk::Slope;
use foreread_sim::device::fit::Form as AloneForm;
use foreread_sim::device::net::{CHUNK_BYTES, NetModel};
use foreread_sim::device::presets::{Model, Preset};

/// A point that is further off, and outside its quartiles, is missed.
const MISSED: f64 = 0.10;
/// Most points of a model that holds that may be missed, as a part of all.
const MAX_MISSED: f64 = 0.05;
/// How much worse than the best a simpler form may predict: this many times, and so much more.
const NEARLY: (f64, f64) = (1.25, 0.01);
/// The longest transfers that are tried: USB's 240 sectors, and the powers of two that hosts set.
const TRANSFERS: [u64; 5] = [120 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10];
/// A form that knows only one at a time is not tried where depth gains more than this, nor one of depth where less.
const DEPTH_GAINS: f64 = 1.10;

/// With more than this as half the spread of a typical point no form can be expected to hold.
const NOISY: f64 = 0.10;

/// A form with its errors.
struct FitCandidate {
    shape: Shape,
    worst: f64,
    median: f64,
    rms: f64,
    missed: f64,
    left_out: Option<f64>,
}

/// Fits the points; nothing where there are too few of them for any form. `in_parts`: bytes of a read came in parts.
pub(super) fn fit(points: &[Point], in_parts: bool) -> Option<(Shape, Fit)> {
    let all: Vec<&Point> = points.iter().collect();
    let several = gain(&all) > DEPTH_GAINS;
    // A source that delivers a read in parts is not a device that has all bytes at once, if the other form holds.
    let net: Family = vec![Box::new(forms::net)];
    let parts = if in_parts && several {
        best_of(&net, &all).filter(FitCandidate::holds)
    } else {
        None
    };
    let mut found: Vec<FitCandidate> = match parts {
        Some(net) => vec![net],
        None => families(several)
            .iter()
            .filter_map(|family| best_of(family, &all))
            .collect(),
    };
    found.sort_by_key(|c| c.shape.parameters);
    let predicted = |c: &FitCandidate| c.left_out.unwrap_or(c.rms);
    let best = found.iter().map(predicted).min_by(f64::total_cmp)?;
    let noise = noise(points);
    let near = |c: &&FitCandidate| predicted(c) <= best * NEARLY.0 + NEARLY.1;
    let least = found.iter().map(|c| c.rms).min_by(f64::total_cmp)?;
    let own =
        |c: &&FitCandidate| c.rms <= least * NEARLY.0 + NEARLY.1.min(noise + 0.002) + noise / 2.0;
    let at = (found.iter().position(|c| near(&c) && own(&c) && c.holds()))
        .or_else(|| found.iter().position(|c| near(&c) && c.holds()))
        .or_else(|| found.iter().position(FitCandidate::holds))
        .or_else(|| found.iter().position(|c| near(&c)))?;
    let tried = found
        .iter()
        .enumerate()
        .map(|(n, c)| c.tried(n == at))
        .collect();
    let chosen = &found[at];
    let fit = Fit {
        kind: chosen.shape.kind.word().to_string(),
        figures: figures(&chosen.shape),
        holds: chosen.holds(),
        reason: reason(&found, at, noise),
        worst_error: chosen.worst,
        median_error: chosen.median,
        left_out_error: chosen.left_out,
        tried,
    };
    Some((chosen.shape.clone(), fit))
}

impl DeviceKind {
    fn word(self) -> &'static str {
        match self {
            DeviceKind::Disk => "disk",
            DeviceKind::Array => "array",
            DeviceKind::Net(_) => "net",
            DeviceKind::Lanes => "lanes",
        }
    }
}

/// How a form is fitted to points.
type Fitter = Box<dyn Fn(&[&Point]) -> Option<Shape>>;

/// Forms of the same number of figures, of which the best represents all.
type Family = Vec<Fitter>;

fn families(several: bool) -> Vec<Family> {
    let knees: Vec<u64> = (1..9).map(|n| grid::MIN_BYTES << n).collect();
    let plain = vec![AloneForm {
        max_transfer_bytes: None,
        knees: Vec::new(),
    }];
    let split = TRANSFERS
        .iter()
        .map(|most| AloneForm {
            max_transfer_bytes: Some(*most),
            knees: Vec::new(),
        })
        .collect();
    let one = |most: Option<u64>| {
        knees.iter().map(move |k| AloneForm {
            max_transfer_bytes: most,
            knees: vec![*k],
        })
    };
    let two_slopes: Vec<AloneForm> = one(None).collect();
    let split_slopes: Vec<AloneForm> = TRANSFERS.iter().flat_map(|most| one(Some(*most))).collect();
    let pairs = knees
        .iter()
        .enumerate()
        .flat_map(|(n, a)| knees[n + 1..].iter().map(|b| vec![*a, *b]));
    let three_slopes: Vec<AloneForm> = pairs
        .map(|knees| AloneForm {
            max_transfer_bytes: None,
            knees,
        })
        .collect();
    let curves: [Vec<AloneForm>; 5] = [plain, split, two_slopes, split_slopes, three_slopes];
    let mut families: Vec<Family> = Vec::new();
    if !several {
        for curve in curves {
            families.push(
                curve
                    .into_iter()
                    .map(|f| Box::new(move |p: &[&Point]| forms::disk(&f, p)) as Fitter)
                    .collect(),
            );
        }
        families.push(vec![Box::new(forms::array)]);
        return families;
    }
    families.push(vec![Box::new(forms::array)]);
    // The shape of one alone is chosen first: with every gate and every transfer there would be hundreds of forms.
    for curve in curves {
        for gate in [false, true] {
            let fitter =
                |f: AloneForm| Box::new(move |p: &[&Point]| forms::lanes(&f, gate, p)) as Fitter;
            families.push(curve.iter().cloned().map(fitter).collect());
        }
    }
    families
}

/// What depth gains: the best throughput of several at once to that of one, over the sizes.
fn gain(points: &[&Point]) -> f64 {
    let rate = |p: &&Point| p.throughput_mb_s.median;
    let gain = |deep: &&Point| {
        let one = points.iter().find(|p| {
            p.depth == 1 && p.pattern == deep.pattern && p.request_bytes == deep.request_bytes
        });
        one.map_or(1.0, |one| rate(deep) / rate(one))
    };
    points
        .iter()
        .filter(|p| p.depth > 1)
        .map(gain)
        .fold(1.0, f64::max)
}

/// The one of a family that fits best, with its predictions.
fn best_of(family: &Family, points: &[&Point]) -> Option<FitCandidate> {
    let scored = family.iter().filter_map(|fitter| {
        let shape = fitter(points)?;
        let rms = rms(errors(&shape, points));
        Some((fitter, shape, rms))
    });
    let (fitter, shape, rms_all) = scored.min_by(|a, b| a.2.total_cmp(&b.2))?;
    let mut absolute: Vec<f64> = errors(&shape, points).map(f64::abs).collect();
    absolute.sort_by(f64::total_cmp);
    let missed = points
        .iter()
        .zip(errors(&shape, points))
        .filter(|(p, e)| is_missed(p, *e))
        .count();
    Some(FitCandidate {
        worst: *absolute.last()?,
        median: absolute[absolute.len() / 2],
        rms: rms_all,
        missed: missed as f64 / points.len() as f64,
        left_out: left_out(fitter, points),
        shape,
    })
}

fn errors<'a>(shape: &'a Shape, points: &'a [&Point]) -> impl Iterator<Item = f64> + 'a {
    points.iter().map(|p| {
        shape.mb_per_s(p.pattern, p.request_bytes, p.depth) / p.throughput_mb_s.median - 1.0
    })
}

/// Of ratios, so that a half and a double are equally wrong.
fn rms(errors: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = errors.fold((0.0, 0), |(sum, n), e| {
        (sum + (1.0 + e).ln().powi(2), n + 1)
    });
    (sum / f64::from(n.max(1))).sqrt()
}

fn is_missed(point: &Point, error: f64) -> bool {
    let model = point.throughput_mb_s.median * (1.0 + error);
    let inside = (point.throughput_mb_s.low..=point.throughput_mb_s.high).contains(&model);
    error.abs() > MISSED && !inside
}

/// The error of each size, between the smallest and the largest, predicted from the others.
fn left_out(fitter: &Fitter, points: &[&Point]) -> Option<f64> {
    let mut sizes: Vec<u64> = points.iter().map(|p| p.request_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let inner = sizes.get(1..sizes.len().checked_sub(1)?)?;
    let mut errors_all = Vec::new();
    for size in inner {
        let (out, rest): (Vec<&Point>, Vec<&Point>) = points
            .iter()
            .copied()
            .partition(|p| p.request_bytes == *size);
        // Where the others leave a figure open the form says nothing about this size.
        if let Some(shape) = fitter(&rest) {
            errors_all.extend(errors(&shape, &out));
        }
    }
    (!errors_all.is_empty()).then(|| rms(errors_all.into_iter()))
}

/// Half the spread of a typical point.
fn noise(points: &[Point]) -> f64 {
    let mut spreads: Vec<f64> = points
        .iter()
        .filter_map(|p| p.throughput_mb_s.relative())
        .collect();
    spreads.sort_by(f64::total_cmp);
    spreads.get(spreads.len() / 2).map_or(0.0, |s| s / 2.0)
}

impl FitCandidate {
    fn holds(&self) -> bool {
        self.missed <= MAX_MISSED
    }

    fn tried(&self, chosen: bool) -> TriedForm {
        TriedForm {
            form: self.shape.name(),
            parameters: self.shape.parameters,
            worst_error: self.worst,
            median_error: self.median,
            left_out_error: self.left_out,
            chosen,
        }
    }
}

fn reason(found: &[FitCandidate], at: usize, noise: f64) -> String {
    let percent = |part: f64| format!("{:.1} %", part * 100.0);
    let chosen = &found[at];
    if !chosen.holds() && noise > NOISY {
        return format!(
            "the machine was too busy to tell which form holds: half the spread of a typical point is {}",
            percent(noise)
        );
    }
    if !chosen.holds() {
        return format!(
            "no form holds; this one misses {} of the points, by more than 10 %",
            percent(chosen.missed)
        );
    }
    let error = chosen.left_out.unwrap_or(chosen.rms);
    match found[..at].iter().min_by(|a, b| a.rms.total_cmp(&b.rms)) {
        None => format!(
            "the simplest form holds; sizes left out are predicted within {} (rms)",
            percent(error)
        ),
        Some(simpler) => format!(
            "sizes left out are predicted within {} (rms); the best simpler form, {}, is {} off (rms) against {}",
            percent(error),
            simpler.shape.name(),
            percent(simpler.rms),
            percent(chosen.rms)
        ),
    }
}

/// The figures for people.
fn figures(shape: &Shape) -> String {
    let us = |ns: f64| format!("{:.3} us", ns / 1e3);
    let mut text = us(shape.alone.command_ns);
    let starts = std::iter::once(&0).chain(&shape.alone.form.knees);
    for (from, cost) in starts.zip(&shape.alone.ns_per_kib) {
        let place = if *from > 0 {
            format!(" from {}K on", from >> 10)
        } else {
            String::new()
        };
        text += &format!(" + {:.3} us/KiB{place}", cost / 1e3);
    }
    if let Some(most) = shape.alone.form.max_transfer_bytes {
        text += &format!(", transfers of {}K", most >> 10);
    }
    if shape.random_ns > 0.0 {
        text += &format!("; at random {} more", us(shape.random_ns));
    }
    match shape.deep {
        None => text + "; one after the other",
        Some(deep) => {
            let rate = if deep.gate_ns_per_kib > 0.0 {
                1024e3 / deep.gate_ns_per_kib
            } else {
                f64::INFINITY
            };
            let gate = if deep.gate_ns > 0.0 {
                format!("{} each and ", us(deep.gate_ns))
            } else {
                String::new()
            };
            text + &format!("; {} at once, in all {gate}{rate:.0} MB/s", deep.lanes)
        }
    }
}

/// The shape as a model file, whose other keys are those of `file`.
pub(super) fn model_file(shape: &Shape, mut file: ModelFile) -> ModelFile {
    let alone = &shape.alone;
    let whole = |ns: f64| ns.round().max(0.0) as u64;
    let ps = |ns_per_kib: f64| whole(ns_per_kib * 1000.0);
    let command_ns = whole(alone.command_ns);
    let max_transfer_bytes = alone.form.max_transfer_bytes;
    let starts = std::iter::once(0).chain(alone.form.knees.iter().copied());
    let slope = |(from_bytes, cost): (u64, &f64)| Slope::new(from_bytes, ps(*cost));
    let slopes: Vec<Slope> = starts.zip(&alone.ns_per_kib).map(slope).collect();
    let rate = |ns_per_kib: f64| (1024e9 / ns_per_kib.max(1.024)).round().clamp(1e3, 1e12) as u64;
    match (shape.kind, shape.deep) {
        (DeviceKind::Net(tail), Some(deep)) => {
            let connection = rate(alone.ns_per_kib[0]);
            let link = rate(deep.gate_ns_per_kib).max(connection);
            let rtt_ns = command_ns.max(1);
            // The mean of a lognormal is above its median; what was fitted is the mean.
            let median_ns = tail
                .map_or(rtt_ns, |ratio| {
                    (rtt_ns as f64 / mean_of_lognormal(ratio)).round() as u64
                })
                .max(1);
            file.net = Some(NetModel {
                rtt_ns: median_ns,
                rtt_p99_ns: tail.map(|ratio| (median_ns as f64 * ratio).round() as u64),
                connection_bytes_per_s: connection,
                link_bytes_per_s: link,
                connections: deep.lanes,
                chunk_bytes: Some(CHUNK_BYTES),
            });
        }
        (DeviceKind::Lanes, Some(deep)) => {
            let (gate_ns, gate_ps_per_kib) = (whole(deep.gate_ns), ps(deep.gate_ns_per_kib));
            let lanes = deep.lanes;
            file.lanes = Some(LanesFile {
                lanes,
                command_ns,
                max_transfer_bytes,
                gate_ns,
                gate_ps_per_kib,
                slopes,
            });
        }
        (DeviceKind::Array, _) => {
            let rows = [
                (1, alone.command_ns),
                (2, alone.command_ns + shape.random_ns),
            ];
            let overhead = rows
                .map(|(from_readers, ns)| Overhead::new(from_readers, whole(ns)))
                .into();
            file.array = Some(ArrayFile {
                ps_per_kib: ps(alone.ns_per_kib[0]),
                overhead,
            });
        }
        _ => {
            file.disk = Some(DiskFile {
                command_ns,
                max_transfer_bytes,
                slopes,
            })
        }
    }
    file
}

/// The mean of a lognormal distribution of median 1 whose 99th percentile is `p99`.
fn mean_of_lognormal(p99: f64) -> f64 {
    let sigma = p99.max(1.0).ln() / foreread_sim::rng::Z99;
    (sigma * sigma / 2.0).exp()
}

/// Writes beside each point what `preset` makes of it, by virtual time: the median of as many rounds as were measured
/// where it is random.
pub(super) fn predict(preset: &Preset, span: u64, points: &mut [Point]) {
    let rounds = if matches!(
        preset.model,
        Model::Net(NetModel {
            rtt_p99_ns: Some(_),
            ..
        })
    ) {
        ROUNDS
    } else {
        1
    };
    for point in points {
        let task = grid::Task {
            pattern: point.pattern,
            depth: point.depth,
            bytes: point.request_bytes,
        };
        let mb_per_s =
            |round: u32| virt::slice(preset, task, span, u64::from(round)).bytes_per_s / 1e6;
        let of_rounds: Vec<f64> = (0..rounds).map(mb_per_s).collect();
        point.model_mb_s = Spread::of(&of_rounds)
            .map(|s| s.median)
            .filter(|m| *m > 0.0);
        point.error = point
            .model_mb_s
            .map(|m| m / point.throughput_mb_s.median - 1.0);
    }
}
