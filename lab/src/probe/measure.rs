//! Measures every point (request size and queue depth) in short time slices over several rounds, so that a temporary
//! slowdown of the storage affects all points equally.
//!
//! ```text
//!   round 0   1 at a time, small to large; then deeper     measures the cost of a slice, leaves out points that take too long
//!   round 1   all points, shuffled    ┐
//!   round 2   all points, shuffled    ├ median and quartiles of each point
//!   ...                               ┘
//! ```
//!
//! Every figure is computed from several slices, unless there was time for only one round.

use super::{Pattern, Point, Spread};
use crate::station::grid::{self, Task};
use crate::station::{MIN_BYTES, Slice, Station, too_small};
use foreread_os::failure::Failure;
use foreread_report::progress::Progress;
use foreread_sim::rng::Rng;
use foreread_sim::stats::{merged, percentile_ns};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Rounds on a model: it varies at most by its random numbers, and nothing else uses it.
const ROUNDS: u32 = 9;
/// Most rounds on a real source: many short slices, so that a burst of other load spoils few of them.
const LIVE_ROUNDS: u32 = 25;
const MIN_SLICE: Duration = Duration::from_millis(4);
/// A point is left out if one slice of it would take more than this part of the whole time.
const MAX_OF_TIME: f64 = 0.05;
/// Part of the whole time in which the fastest point is read without a pause. A cloud disk with burst credit delivers more than its
/// sustained rate for a moment after each pause, and a slice is no longer than such a moment.
const LASTING_PART: f64 = 0.1;
/// The sustained throughput counts as lower than the fastest point if it is below this part of it.
pub(super) const LASTS: f64 = 0.8;
/// Fewest reads for which a 99th percentile is given.
const P99_READS: u64 = 100;

pub(super) struct MeasuredPoints {
    pub points: Vec<Point>,
    pub seconds: f64,
    /// Number of points that were left out because they would have taken too long.
    pub left_out: usize,
    /// The sustained throughput, in 10^6 bytes a second, if there was time to measure it.
    pub lasting_mb_s: Option<f64>,
}

/// Measures all points in about `seconds`.
pub(super) fn measure(
    station: &mut dyn Station,
    seconds: f64,
    progress: &mut dyn Progress,
) -> Result<MeasuredPoints, Failure> {
    let tasks = grid::tasks(station.span());
    if tasks.is_empty() || !station.is_virtual() && station.span() < MIN_BYTES {
        return Err(too_small(station.span()));
    }
    let rounds_most = if station.is_virtual() {
        ROUNDS
    } else {
        LIVE_ROUNDS
    };
    let total = tasks.len() as u64 * u64::from(rounds_most);
    let mut rounds = Rounds {
        slices: HashMap::new(),
        seconds: 0.0,
    };
    let began = Instant::now();
    let slice_s =
        |left: f64, slices: u64| (left / slices.max(1) as f64).max(MIN_SLICE.as_secs_f64());
    let mut done = 0;
    let mut step = |done: &mut u64| {
        *done += 1;
        progress.step(*done, total);
    };
    let mut kept = Vec::new();
    for &task in &tasks {
        if station.is_virtual() || rounds.affordable(task, seconds) {
            let length = Duration::from_secs_f64(slice_s(seconds, total) / 2.0).max(MIN_SLICE);
            rounds.add(task, station.slice(task, length, 0)?);
            kept.push(task);
        }
        step(&mut done);
    }
    let left_out = tasks.len() - kept.len();
    let lasting_mb_s = rounds.lasting(station, seconds)?;
    let mut order = Rng::new(1);
    for round in 1..rounds_most {
        order.shuffle(&mut kept);
        for &task in &kept {
            let left = seconds - began.elapsed().as_secs_f64();
            if left <= 0.0 && !station.is_virtual() {
                break;
            }
            let length =
                Duration::from_secs_f64(slice_s(left.max(0.0), total - done.min(total - 1)));
            rounds.add(task, station.slice(task, length, u64::from(round))?);
            step(&mut done);
        }
    }
    Ok(MeasuredPoints {
        seconds: match station.is_virtual() {
            true => rounds.seconds,
            false => began.elapsed().as_secs_f64(),
        },
        points: rounds.points(&tasks),
        left_out,
        lasting_mb_s,
    })
}

/// Slices of all points so far.
struct Rounds {
    slices: HashMap<Task, Vec<Slice>>,
    seconds: f64,
}

impl Rounds {
    fn add(&mut self, task: Task, slice: Slice) {
        self.seconds += slice.seconds;
        self.slices.entry(task).or_default().push(slice);
    }

    /// Whether a slice of `task` takes a small part of `seconds`, judged by smaller reads: those of half the depth, else those at depth
    /// 1.
    fn affordable(&self, task: Task, seconds: f64) -> bool {
        let known = |depth, bytes| {
            self.slices.get(&Task {
                pattern: task.pattern,
                depth,
                bytes,
            })
        };
        let depths = (0..).map(|halvings| task.depth >> halvings);
        let same_size = depths
            .take_while(|depth| *depth >= 1)
            .find_map(|depth| Some((task.bytes, known(depth, task.bytes)?.first()?.bytes_per_s)));
        let smaller = || {
            (0..)
                .map(|halvings| task.bytes >> halvings)
                .take_while(|bytes| *bytes >= grid::MIN_BYTES)
                .find_map(|bytes| Some((bytes, known(1, bytes)?.first()?.bytes_per_s)))
        };
        let Some((bytes, rate)) = same_size.or_else(smaller) else {
            return task.bytes == grid::MIN_BYTES;
        };
        // Each thread does one read to warm up and one that counts, at that rate.
        let reads = 2.0 * f64::from(task.depth) * (task.bytes / bytes) as f64;
        reads * bytes as f64 / rate.max(1.0) <= seconds * MAX_OF_TIME
    }

    fn points(mut self, tasks: &[Task]) -> Vec<Point> {
        let mut points: Vec<Point> = tasks
            .iter()
            .filter_map(|task| point(*task, &self.slices.remove(task)?))
            .collect();
        points.sort_by_key(|p| (p.pattern != Pattern::Sequential, p.depth, p.request_bytes));
        points
    }

    /// Reads the fastest point for longer, and returns the rate of the second half. If that is far below the earlier rate, one slow
    /// moment may be the reason: the point is read again, and the better result counts.
    fn lasting(&self, station: &mut dyn Station, seconds: f64) -> Result<Option<f64>, Failure> {
        let first = |task: &Task| {
            self.slices[task]
                .first()
                .map_or(0.0, |slice| slice.bytes_per_s)
        };
        let deep = self.slices.keys().filter(|task| task.depth > 1).copied();
        let fastest = deep.max_by(|a, b| first(a).total_cmp(&first(b)).then(a.cmp(b)));
        let Some(task) = fastest.filter(|_| !station.is_virtual()) else {
            return Ok(None);
        };
        let length = Duration::from_secs_f64(seconds * LASTING_PART);
        let mut rate = station.slice(task, length, 0)?.late_bytes_per_s;
        if rate < first(&task) * LASTS {
            rate = rate.max(station.slice(task, length, 1)?.late_bytes_per_s);
        }
        Ok(Some(rate / 1e6).filter(|rate| *rate > 0.0))
    }
}

/// Returns `None` if no slice has a figure.
fn point(task: Task, slices: &[Slice]) -> Option<Point> {
    let rates: Vec<f64> = slices
        .iter()
        .map(|s| s.bytes_per_s / 1e6)
        .filter(|r| *r > 0.0)
        .collect();
    let median_us = |s: &Slice| percentile_ns(&s.latency, 50.0).map(|ns| ns as f64 / 1e3);
    let latencies: Vec<f64> = slices.iter().filter_map(median_us).collect();
    let all = merged(slices.iter().map(|slice| &slice.latency));
    let p99 = percentile_ns(&all, 99.0).filter(|_| all.len() >= P99_READS);
    Some(Point {
        pattern: task.pattern,
        request_bytes: task.bytes,
        depth: task.depth,
        rounds: slices.len() as u32,
        reads: slices.iter().map(|s| s.reads).sum(),
        throughput_mb_s: Spread::of(&rates)?,
        latency_us: Spread::of(&latencies)?,
        latency_p99_us: p99.map(|ns| ns as f64 / 1e3),
        model_mb_s: 0.0,
        error: 0.0,
    })
}
