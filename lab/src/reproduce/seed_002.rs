//! The tables of seed 002: four variants of context readahead on a query load, and sysbench on two file systems and
//! two devices.
//!
//! **Queries.** One figure was fitted, the ratio of `original`, by one parameter, the density; the other ratios and the
//! order follow. What the load was is not published, so a sweep over the density stands beside it.
//!
//! **sysbench.** btrfs and ext4 differ in how far the kernel reads ahead there: btrfs raises the limit of its own
//! device to 4 MiB, ext4 leaves the 128 KiB of the disk (general knowledge of the two). Nothing else is told apart, and
//! nothing is fitted: the cache holds the file, 10,000 reads come to 26 % of its records.
//!
//! Never: a published figure (they stand in `published`).

use super::published::seed_002::{QPS, SYSBENCH, SYSBENCH_BYTES, SYSBENCH_READS, SYSBENCH_RECORD, Sysbench};
use super::runs::{Ask, Runs, over, time_s};
use super::{Kind, ReproduceError, Row, Table};

const SEED: &str = "002";
/// The row that the density was fitted to, the density in percent, and those that are shown.
const FITTED: &str = "original";
const DENSITY: u64 = 8;
const DENSITIES: [u64; 6] = [4, 6, 10, 25, 50, 80];
/// How far the fitted one may be off (a whole per cent of density), and the others.
const FIT: f64 = 0.02;
const CHECK: f64 = 0.15;
const FOLLOWS: &str = "follows from the density that was fitted to 'original'; the published figures were known then";
const LIMITS: &str = "only the direction; fitted to nothing, but the limits of the file systems (btrfs 4 MiB, ext4 \
    128 KiB) were put in with the published figures known";
/// Runs of the main table.
const RUNS: u32 = 5;

/// All tables of the seed.
pub fn tables(runs: &mut Runs<'_>) -> Result<Vec<Table>, ReproduceError> {
    Ok(vec![queries(runs)?, densities(runs)?, sysbench(runs)?])
}

/// Queries of each variant relative to `off`.
fn relative(runs: &mut Runs<'_>, density: u64, most: u32) -> Result<[Option<f64>; 4], ReproduceError> {
    let policies = QPS.map(|(context, _)| format!("linux-3.12:context={context}"));
    let names = policies.each_ref().map(String::as_str);
    let workload = format!("dense-random:density={density}");
    let table =
        runs.table(&Ask { workload: &workload, model: "x25-m", policies: &names, runs: most, ..Ask::default() })?;
    Ok(names.map(|name| over(time_s(&table, names[0]), time_s(&table, name))))
}

fn queries(runs: &mut Runs<'_>) -> Result<Table, ReproduceError> {
    let ours = relative(runs, DENSITY, RUNS)?;
    let mut rows = Vec::new();
    for (at, (context, qps)) in QPS.into_iter().enumerate().skip(1) {
        let row = Row::new(context, "queries / off", Some(qps / QPS[0].1), ours[at]);
        rows.push(match context {
            FITTED => row.within(Kind::Fit, FIT).because("the density, in whole per cents, was fitted to this ratio"),
            _ => row.within(Kind::LeftOut, CHECK).because(FOLLOWS),
        });
    }
    for at in 1..QPS.len() {
        let label = format!("{} / {}", QPS[at - 1].0, QPS[at].0);
        let published = Some(QPS[at - 1].1 / QPS[at].1);
        rows.push(Row::new(label, "of queries", published, over(ours[at - 1], ours[at])).ordered().because(FOLLOWS));
    }
    Ok(Table::new(SEED, format!("four context variants, density {DENSITY} %"), rows))
}

fn densities(runs: &mut Runs<'_>) -> Result<Table, ReproduceError> {
    let mut rows = Vec::new();
    for density in DENSITIES {
        let ours = relative(runs, density, 1)?;
        for (at, (context, qps)) in QPS.into_iter().enumerate().skip(1) {
            let row = Row::new(format!("density {density} %"), context, Some(qps / QPS[0].1), ours[at]);
            rows.push(row.because("a sweep: the density of the load is not published"));
        }
    }
    Ok(Table::new(SEED, "queries / off, by density", rows))
}

/// Direction of the change from the original rule to the conservative one.
fn sysbench(runs: &mut Runs<'_>) -> Result<Table, ReproduceError> {
    let rows: Result<Vec<Row>, ReproduceError> = SYSBENCH.iter().map(|line| direction(runs, line)).collect();
    Ok(Table::new(SEED, "sysbench, random 64 KiB of 2 GB: after / before", rows?))
}

/// The part of the records that so many reads with replacement meet, in whole per cents.
fn density_of(reads: u64, records: u64) -> u64 {
    ((1.0 - (-(reads as f64) / records as f64).exp()) * 100.0).round() as u64
}

fn direction(runs: &mut Runs<'_>, line: &Sysbench) -> Result<Row, ReproduceError> {
    let model = if line.device == "SSD" { "x25-m" } else { "hdd-7200" };
    let max = if line.fs == "btrfs" { "4M" } else { "128K" };
    let density = density_of(SYSBENCH_READS, SYSBENCH_BYTES / SYSBENCH_RECORD);
    let workload = format!("dense-random:record={SYSBENCH_RECORD},density={density}");
    let policies = ["original", "conservative"].map(|context| format!("linux-3.12:max={max},context={context}"));
    let names = policies.each_ref().map(String::as_str);
    let (size_bytes, cache_bytes) = (Some(SYSBENCH_BYTES), Some(2 * SYSBENCH_BYTES));
    let table = runs.table(&Ask { workload: &workload, model, policies: &names, runs: 5, cache_bytes, size_bytes })?;
    let ours = over(time_s(&table, names[0]), time_s(&table, names[1]));
    let label = format!("{}, {}", line.device, line.fs);
    Ok(Row::new(label, "of MB/s", Some(line.after / line.before), ours).ordered().because(LIMITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_thousand_reads_meet_26_percent() {
        assert_eq!(density_of(SYSBENCH_READS, SYSBENCH_BYTES / SYSBENCH_RECORD), 26);
        assert_eq!((density_of(0, 5), density_of(1_000, 1)), (0, 100));
    }
}
