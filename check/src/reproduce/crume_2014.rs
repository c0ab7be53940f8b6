//! The tables of [Crume 2014]: four workloads under four strategies on an RBD volume.
//!
//! Counts of reads are met exactly by the workloads, so they are inputs. The volume was fitted to two times, lengths of
//! streams to the requests of `plain`, densities to three times; every other time, request and megabyte is a left-out row.
//! Orders are those that the post calls by its margins (12 of 24 pairs); the other 12 are pairs that must not be called:
//!
//! ```text
//!   published   |--none--|    |--plain--|        a gap: called; ours has to be on the same side
//!                    |--aligned--|               an overlap: not called; ours with the same margins has to overlap
//! ```
//!
//! Never: a published figure (they are in `published`).

use super::published::crume_2014::{
    MAX_BYTES, Pair, SIGMAS, SINGLE_SECTORS, STRATEGIES, TRIGGER, WORKLOADS, Workload, pairs,
};
use super::runs::{Ask, Runs, mean, over, time_s};
use super::{FigureKind, Paper, ReproduceError, Row, Table};
use foreread_core::policy;
use foreread_core::units::parse_size;
use foreread_lab::report;

const PAPER: Paper = Paper::Crume2014;
/// How far a time, or what is read ahead, may be off that nothing was fitted to.
const LEFT_OUT: f64 = 0.15;
/// How far a time may be off that something was fitted to, and the requests and megabytes of `plain`.
const FIT: f64 = 0.01;
const FIT_AHEAD: f64 = 0.02;
/// Times that a workload was fitted to, beside those without readahead: how densely its zones are read. No called order is
/// between two fitted times.
const DENSITIES: [(&str, &str); 3] = [
    ("boot-virtio", "eager"),
    ("grep-ide", "eager"),
    ("grep-virtio", "plain"),
];
const IN_VIEW: &str = "not fitted, but the published times were in view when the shape of the streams, the batches and the \
    cache were chosen";
const STREAMS: &str = "lengths of streams were fitted to it";
const FOLLOWS: &str = "lengths of streams were fitted to 'plain'; this follows";
const MARGIN: &str = "99.7 % of our runs of the simulator, which draws places and orders; a cluster's noise is not modelled";
const ORDERS: &str = "never between two fitted times, but batches, zones and the cache were chosen with the published \
    table in view";
const NOT_CALLED: &str = "the published margins overlap, so the post calls no difference; ours with these margins must \
    overlap, too. (z tests with Holm's correction would call four of these: grep-ide none / plain and eager / plain, \
    grep-virtio aligned / none and aligned / plain)";
const GAINS: &str = "\"boot-virtio also sees an improvement, although not nearly so dramatic\"";
/// Runs of a boot, and of a grep, which takes longer.
const RUNS: u32 = 20;

/// The settings, one table of figures for each workload, then the orders.
pub fn tables(runs: &mut Runs<'_>) -> Result<Vec<Table>, ReproduceError> {
    let (mut tables, mut raw) = (vec![settings()?], Vec::new());
    let policies = STRATEGIES.map(|(_, policy)| policy);
    for workload in &WORKLOADS {
        let ask = Ask {
            workload: workload.name,
            model: "rbd",
            policies: &policies,
            runs: RUNS,
            ..Ask::default()
        };
        let table = runs.table(&ask)?;
        tables.push(figures(workload, &table));
        raw.push(table);
    }
    tables.push(called(&raw));
    tables.push(not_called(&raw));
    Ok(tables)
}

/// What the post says of its settings and of the workload that it describes.
fn settings() -> Result<Table, ReproduceError> {
    let mut rows = Vec::new();
    for (_, name) in STRATEGIES
        .into_iter()
        .filter(|(strategy, _)| *strategy != "none")
    {
        let params = policy::ALL
            .iter()
            .find(|info| info.name == name)
            .map_or(&[][..], |info| info.params);
        for (key, column, published) in [
            ("trigger", "trigger, reads", TRIGGER),
            ("max", "max, bytes", MAX_BYTES),
            ("object", "object, bytes", MAX_BYTES),
        ] {
            let Some(param) = params.iter().find(|param| param.key == key) else {
                continue;
            };
            let ours = parse_size(param.default).ok().map(|value| value as f64);
            rows.push(
                Row::new(name, column, Some(published as f64), ours).within(FigureKind::Input, 0.0),
            );
        }
    }
    let refused = |error: policy::SpecError| ReproduceError::Asked(error.to_string());
    let boot = foreread_history::parse_workload("boot-ide").map_err(refused)?;
    let boot = boot.build(boot.info.least_bytes, 1).map_err(refused)?;
    let single = boot
        .jobs
        .iter()
        .flat_map(|job| &job.requests)
        .filter(|r| r.len == 512)
        .count();
    let row = Row::new(
        "boot-ide",
        "reads of a sector",
        Some(SINGLE_SECTORS as f64),
        Some(single as f64),
    );
    rows.push(
        row.within(FigureKind::Input, 0.001)
            .because("50,002, so that all other reads can be whole pages"),
    );
    Ok(Table::new(
        PAPER,
        "settings of the policies, and what boot-ide is made of",
        rows,
    ))
}

fn figures(workload: &Workload, table: &report::Table) -> Table {
    let reads = mean(table, "none", |r| r.stats.demand_reads as f64);
    let mb = mean(table, "none", |r| {
        (r.stats.demand_bytes as f64 / 1e6).round()
    });
    let mut rows = vec![
        Row::new("all", "read ops", Some(workload.reads as f64), reads)
            .within(FigureKind::Input, 0.0),
        Row::new("all", "read MB", Some(workload.mb as f64), mb).within(FigureKind::Input, 0.0),
    ];
    for ((strategy, policy), line) in STRATEGIES.into_iter().zip(&workload.lines) {
        let row = Row::new(
            strategy,
            "time, s",
            Some(line.time_s),
            time_s(table, policy),
        );
        rows.push(match (strategy, workload.name) {
            ("none", _) => row
                .within(FigureKind::Fit, FIT)
                .because("the volume or the waits were fitted to it"),
            (strategy, name) if DENSITIES.contains(&(name, strategy)) => row
                .within(FigureKind::Fit, FIT)
                .because("how densely the zones are read was fitted to it"),
            _ => row.within(FigureKind::LeftOut, LEFT_OUT).because(IN_VIEW),
        });
        rows.push(
            Row::new(
                strategy,
                "margin, s",
                Some(line.margin_s),
                margin_s(table, policy),
            )
            .because(MARGIN),
        );
        let ops = mean(table, policy, |r| r.stats.ra_planned_ops as f64);
        let mb = mean(table, policy, |r| r.stats.ra_planned_bytes as f64 / 1e6);
        for (column, published, ours) in [("RA ops", line.ra_ops, ops), ("RA MB", line.ra_mb, mb)] {
            let row = Row::new(strategy, column, Some(published), ours);
            rows.push(match strategy {
                "none" => row.judged(FigureKind::Formula, ours == Some(0.0)),
                "plain" => row.within(FigureKind::Fit, FIT_AHEAD).because(STREAMS),
                _ => row.within(FigureKind::LeftOut, LEFT_OUT).because(FOLLOWS),
            });
        }
    }
    Table::new(PAPER, workload.name, rows)
}

/// The margin of error of our mean time, as the post has it: three standard errors. None with fewer than two runs.
fn margin_s(table: &report::Table, policy: &str) -> Option<f64> {
    let runs = &table.policies.iter().find(|p| p.policy == policy)?.runs;
    let (n, mean) = (runs.len() as f64, time_s(table, policy)?);
    let squares: f64 = runs.iter().map(|run| (run.time_s - mean).powi(2)).sum();
    (runs.len() > 1).then(|| SIGMAS * (squares / (n - 1.0) / n).sqrt())
}

struct PairTimes {
    label: String,
    /// The published ratio.
    published: f64,
    ours: [Option<f64>; 2],
}

fn times_of(pair: Pair, raw: &[report::Table]) -> PairTimes {
    let (workload, table) = (&WORKLOADS[pair.workload], &raw[pair.workload]);
    let [slow, fast] = [pair.slower, pair.faster].map(|at| (STRATEGIES[at], &workload.lines[at]));
    let label = format!("{}: {} / {}", workload.name, slow.0.0, fast.0.0);
    PairTimes {
        label,
        published: slow.1.time_s / fast.1.time_s,
        ours: [slow, fast].map(|of| time_s(table, of.0.1)),
    }
}

/// Every order that the margins call: the slower strategy's time over the faster one's. And which boot gains more.
fn called(raw: &[report::Table]) -> Table {
    let row = |pair: Pair| {
        let PairTimes {
            label,
            published,
            ours: [slow, fast],
        } = times_of(pair, raw);
        Row::new(label, "of times", Some(published), over(slow, fast))
            .ordered()
            .because(ORDERS)
    };
    let mut rows: Vec<Row> = pairs()
        .into_iter()
        .filter(|pair| pair.called)
        .map(row)
        .collect();
    let gain = |at: usize| over(time_s(&raw[at], "none"), time_s(&raw[at], "rbd-plain"));
    let published = |at: usize| WORKLOADS[at].lines[0].time_s / WORKLOADS[at].lines[1].time_s;
    let row = Row::new(
        "boot-ide / boot-virtio",
        "of gains by plain",
        Some(published(0) / published(1)),
        over(gain(0), gain(1)),
    );
    rows.push(row.ordered().because(GAINS));
    Table::new(PAPER, "orders that the margins call", rows)
}

/// Every pair that the margins do not call.
fn not_called(raw: &[report::Table]) -> Table {
    let row = |pair: Pair| {
        let PairTimes {
            label,
            published,
            ours: [slow, fast],
        } = times_of(pair, raw);
        let [a, b] =
            [pair.slower, pair.faster].map(|at| WORKLOADS[pair.workload].lines[at].margin_s);
        let overlap = slow
            .zip(fast)
            .is_some_and(|(slow, fast)| (slow - fast).abs() <= a + b);
        let row = Row::new(
            label,
            "of times, overlap",
            Some(published),
            over(slow, fast),
        );
        row.judged(FigureKind::Order, overlap).because(NOT_CALLED)
    };
    Table::new(
        PAPER,
        "pairs that the margins do not call",
        pairs().into_iter().filter(|p| !p.called).map(row).collect(),
    )
}
