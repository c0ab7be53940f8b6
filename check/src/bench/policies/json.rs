//! The JSON of `foreread check bench policies`: every row of every cell, the totals, the targets.
//!
//! Schema `foreread.policies/1`: keys are only ever added. What is not defined is null. A row of the oracle has a time and a share
//! and nothing else: the search for the best schedule holds and requests what a policy could not.

use super::Results;
use crate::evaluation::verdict::{Gains, Total};
use crate::evaluation::{Row, SCHEMA, Target};
use foreread_sim::limits::ORACLE;
use serde::Serialize;

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    foreread: &'static str,
    design: &'static str,
    trace: Option<&'a str>,
    judged: &'a [String],
    seeds_choosing: Vec<u64>,
    seeds_judging: Vec<u64>,
    runs: usize,
    runs_planned: usize,
    cells_complete: usize,
    cells_planned: usize,
    notes: &'a [String],
    targets: Vec<TargetJson<'a>>,
    totals: Vec<TotalJson<'a>>,
    cells: Vec<CellJson<'a>>,
}

#[derive(Serialize)]
struct TargetJson<'a> {
    policy: &'a str,
    target: &'static str,
    /// `at_most` or `at_least`.
    bound: &'static str,
    limit: f64,
    value: Option<f64>,
    met: Option<bool>,
    worst_workload: Option<&'a str>,
    worst_device: Option<&'a str>,
    worst_cache: Option<u64>,
}

#[derive(Serialize)]
struct TotalJson<'a> {
    policy: &'a str,
    against_max_4m: Option<f64>,
    against_max_4m_without_strided_backward: Option<f64>,
    /// Against the best opponent of each cell, and against the best within an overfetch of 1.25.
    mean_against_best: Option<f64>,
    mean_against_lean: Option<f64>,
    mean_against_unrestricted: Option<f64>,
    worst_against_unrestricted: Option<f64>,
    worst: Option<f64>,
    lost: usize,
    /// Sum of the gains / sum of the oracle's.
    oracle_share: Option<f64>,
    /// Cells in which the policy is faster than the oracle, and the least part of its time.
    beats_oracle: usize,
    least_oracle_ratio: Option<f64>,
    overfetch: Option<f64>,
}

#[derive(Serialize)]
struct CellJson<'a> {
    workload: &'a str,
    device: &'a str,
    cache: u64,
    predictable: bool,
    policy: &'a str,
    time_s: f64,
    overfetch: Option<f64>,
    requests: Option<u64>,
    unused_bytes: Option<u64>,
    p99_us: Option<f64>,
    held_byte_s: Option<f64>,
    t95_round_trips: Option<f64>,
    flaps: Option<u64>,
    oracle_share: Option<f64>,
    /// Time / the oracle's on the first judging seed.
    oracle_ratio: Option<f64>,
    stall_s: Option<f64>,
    /// The best opponent within the limit of overfetch, and the ratio of the times.
    best: Option<&'a str>,
    ratio: Option<f64>,
    ratio_ci95: Option<[f64; 2]>,
    worst_seed: Option<f64>,
    lean_ratio: Option<f64>,
    lost: bool,
    /// The best opponent of all.
    unrestricted: Option<&'a str>,
    unrestricted_ratio: Option<f64>,
}

/// The rows that `keep` keeps, as JSON. Ends with a newline.
pub fn write(results: &Results, keep: &dyn Fn(&Row) -> bool) -> String {
    let (seeds_choosing, seeds_judging) = results.design.seeds();
    let targets = results
        .targets
        .iter()
        .flat_map(|(policy, targets)| targets.iter().map(move |t| target(policy, t)));
    let document = Document {
        schema: SCHEMA,
        foreread: env!("CARGO_PKG_VERSION"),
        design: results.design.name(),
        trace: results.trace.as_deref(),
        judged: &results.judged,
        seeds_choosing,
        seeds_judging,
        runs: results.runs[0],
        runs_planned: results.runs[1],
        cells_complete: results.cells[0],
        cells_planned: results.cells[1],
        notes: &results.notes,
        targets: targets.collect(),
        totals: results.report.totals.iter().map(total).collect(),
        cells: results
            .report
            .rows
            .iter()
            .filter(|row| keep(row))
            .map(cell)
            .collect(),
    };
    serde_json::to_string(&document).expect("a struct of numbers and strings") + "\n"
}

fn target<'a>(policy: &'a str, target: &'a Target) -> TargetJson<'a> {
    let cell = target.cell.as_ref();
    TargetJson {
        policy,
        target: target.what,
        bound: if target.at_least {
            "at_least"
        } else {
            "at_most"
        },
        limit: target.limit,
        value: target.value,
        met: target.met(),
        worst_workload: cell.map(|c| c.workload.as_str()),
        worst_device: cell.map(|c| c.device.as_str()),
        worst_cache: cell.map(|c| c.cache),
    }
}

fn total(total: &Total) -> TotalJson<'_> {
    let defined = |value: f64| Some(value).filter(|v| v.is_finite() && *v > 0.0);
    TotalJson {
        policy: &total.policy,
        against_max_4m: total.against_one,
        against_max_4m_without_strided_backward: total.against_one_less,
        mean_against_best: total.mean_ratio,
        mean_against_lean: total.mean_lean_ratio,
        mean_against_unrestricted: defined(total.mean),
        worst_against_unrestricted: defined(total.worst),
        worst: total.worst_ratio,
        lost: total.lost,
        oracle_share: total.oracle_share,
        beats_oracle: total.beats_oracle,
        least_oracle_ratio: total.least_oracle_ratio.as_ref().map(|(ratio, _)| *ratio),
        overfetch: total.overfetch.filter(|_| total.policy != ORACLE),
    }
}

fn cell(row: &Row) -> CellJson<'_> {
    let (figures, policy) = (&row.figures, row.policy != ORACLE);
    CellJson {
        workload: &row.cell.workload,
        device: &row.cell.device,
        cache: row.cell.cache,
        predictable: row.cell.predictable(),
        policy: &row.policy,
        time_s: figures.time_s,
        overfetch: figures.overfetch.filter(|_| policy),
        requests: policy.then_some(figures.requests),
        unused_bytes: policy.then_some(figures.unused_bytes),
        p99_us: figures.p99_us.filter(|_| policy),
        held_byte_s: policy.then_some(figures.held_byte_s),
        t95_round_trips: figures.t95_round_trips.filter(|_| policy),
        flaps: policy.then_some(figures.flaps),
        oracle_share: row.gains.and_then(Gains::share),
        oracle_ratio: row.oracle_ratio,
        stall_s: policy.then_some(figures.stall_s),
        best: row.best.as_deref(),
        ratio: row.ratio,
        ratio_ci95: row.ratio_ci95,
        worst_seed: row.worst_seed,
        lean_ratio: row.lean_ratio,
        lost: row.lost,
        unrestricted: row.unrestricted.as_deref(),
        unrestricted_ratio: row.unrestricted_ratio,
    }
}
