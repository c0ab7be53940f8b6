//! The tables of seed 002: four variants of context readahead on a query load, and sysbench on four file systems.
//!
//! Never: a published figure (they stand in `published`).

use super::published::seed_002::{QPS, SYSBENCH, SYSBENCH_BYTES, SYSBENCH_READS, SYSBENCH_RECORD, Sysbench};
use super::runs::{Ask, Runs, over, time_s};
use super::{ReproduceError, Role, Row, Table};

const SEED: &str = "002";
/// The row that the density was fitted to.
const FITTED: &str = "slow-ramp";
/// How far the fitted one may be off, and the others.
const FIT: f64 = 0.02;
const CHECK: f64 = 0.15;

/// All tables of the seed.
pub fn tables(runs: &mut Runs<'_>) -> Result<Vec<Table>, ReproduceError> {
    Ok(vec![queries(runs)?, densities(runs)?, sysbench(runs)?])
}

fn policy(context: &str) -> String {
    format!("linux-3.12:context={context}")
}

/// Queries of each variant relative to `off`.
fn relative(runs: &mut Runs<'_>, workload: &str, most: u32) -> Result<[Option<f64>; 4], ReproduceError> {
    let policies = QPS.map(|(context, _)| policy(context));
    let names = policies.each_ref().map(String::as_str);
    let table = runs.table(&Ask { workload, model: "x25-m", policies: &names, runs: most, ..Ask::default() })?;
    Ok(names.map(|name| over(time_s(&table, names[0]), time_s(&table, name))))
}

fn queries(runs: &mut Runs<'_>) -> Result<Table, ReproduceError> {
    let ours = relative(runs, "dense-random", 5)?;
    let mut rows = Vec::new();
    for (at, (context, qps)) in QPS.into_iter().enumerate().skip(1) {
        let row = Row::new(context, "queries / off", Some(qps / QPS[0].1), ours[at]);
        rows.push(match context {
            FITTED => row.within(Role::Fit, FIT).because("the density was fitted to this ratio"),
            _ => row.within(Role::Check, CHECK),
        });
    }
    for at in 1..QPS.len() {
        let label = format!("{} / {}", QPS[at - 1].0, QPS[at].0);
        let row = Row::new(label, "of queries", Some(QPS[at - 1].1 / QPS[at].1), over(ours[at - 1], ours[at]));
        rows.push(row.ordered());
    }
    Ok(Table::new(SEED, "four context variants, queries a second", rows))
}

fn densities(runs: &mut Runs<'_>) -> Result<Table, ReproduceError> {
    let mut rows = Vec::new();
    for density in [5, 10, 25, 50, 80] {
        let ours = relative(runs, &format!("dense-random:density={density}"), 1)?;
        for (at, (context, qps)) in QPS.into_iter().enumerate().skip(1) {
            let row = Row::new(format!("density {density} %"), context, Some(qps / QPS[0].1), ours[at]);
            rows.push(row.because("a sweep: the density of the load is not published"));
        }
    }
    Ok(Table::new(SEED, "queries / off, by density", rows))
}

/// Direction of the change from original to conservative.
fn sysbench(runs: &mut Runs<'_>) -> Result<Table, ReproduceError> {
    let mut rows = Vec::new();
    for line in &SYSBENCH {
        rows.push(direction(runs, line)?);
    }
    Ok(Table::new(SEED, "sysbench: random reads of 64 KiB in 2 GB, after / before", rows))
}

fn direction(runs: &mut Runs<'_>, line: &Sysbench) -> Result<Row, ReproduceError> {
    let model = if line.device == "SSD" { "x25-m" } else { "hdd-7200" };
    let density = 26;
    let workload = format!("dense-random:record={SYSBENCH_RECORD},density={density}");
    let _ = SYSBENCH_READS;
    let [before, after] = [policy("original"), policy("conservative")];
    let names = [before.as_str(), after.as_str()];
    let size_bytes = Some(SYSBENCH_BYTES);
    let ask = Ask { workload: &workload, model, policies: &names, runs: 3, size_bytes, ..Ask::default() };
    let table = runs.table(&ask)?;
    let ours = over(time_s(&table, names[0]), time_s(&table, names[1]));
    let published = line.after / line.before;
    let row = Row::new(format!("{}, {}", line.device, line.fs), "of MB/s", Some(published), ours);
    Ok(row.ordered())
}
