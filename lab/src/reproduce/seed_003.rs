//! The table of seed 003: 64 KiB random reads, 64 outstanding, by four kernels.
//!
//! The order is checked on a disk of today that saw none of the figures; `disk-2003` was fitted to three of them, so
//! its rows are no checks. The fourth, past the cache, is slower than the fixed kernel in the posting. A disk alone
//! cannot tell the two apart, as both send it the same commands; aio-stress can: it reads at any page and so reads some
//! pages again, which a cache serves (`aio-random:places=again`).
//!
//! Never: a published figure (they stand in `published`).

use super::published::seed_003::{AIO, DEPTH, FILE_BYTES, RECORD};
use super::runs::{Ask, Runs, bytes_per_s, over};
use super::{Kind, ReproduceError, Row, Table};

const SEED: &str = "003";
const SYNC: &str = "the disk was fitted to whole records one at a time, 8.8 MiB/s; the policy reads some in pieces";
const CHOSEN: &str = "the disk was fitted to none of them, but 'places=again' was chosen with the published order in \
    view: where each record is read once, direct and fixed send the same commands";
/// How far a fitted row may be off.
const FIT: f64 = 0.10;
/// A cache that holds the file, and one that holds little more than what is outstanding: past the cache.
const BUFFERED: u64 = 2 << 30;
const DIRECT: u64 = 16 << 20;
/// The disk that was fitted to the table, and one that was not.
const FITTED: &str = "disk-2003";
const OTHER: &str = "hdd-7200";

/// Each row of the published table: depth, policy, cache.
const KERNELS: [(u32, &str, u64); 4] = [
    (1, "linux-2.6.0", BUFFERED),
    (DEPTH, "linux-2.6.0-mm", BUFFERED),
    (DEPTH, "linux-2.6.0-mm-fix", BUFFERED),
    (DEPTH, "none", DIRECT),
];

/// The table, and its order on a disk that was not fitted to it.
pub fn tables(runs: &mut Runs<'_>) -> Result<Vec<Table>, ReproduceError> {
    let once = rates(runs, FITTED, "once", 2)?;
    let again = rates(runs, FITTED, "again", 1)?;
    let mut rows = Vec::new();
    for (at, (label, mib_per_s, _)) in AIO.into_iter().enumerate() {
        let row = Row::new(label, "MiB/s", Some(mib_per_s), once[at]);
        rows.push(match label {
            "direct" => row.because("each record once: a disk gets the same commands as from the fixed kernel"),
            "sync" => row.within(Kind::Fit, FIT).because(SYNC),
            _ => row.within(Kind::Fit, FIT),
        });
    }
    for (at, (label, mib_per_s, _)) in AIO.into_iter().enumerate() {
        let to = |rate: [Option<f64>; 4]| over(rate[at], rate[3]);
        let published = Some(mib_per_s / AIO[3].1);
        rows.push(Row::new(label, "/ direct", published, to(once)).because("each record once"));
        rows.push(
            Row::new(label, "/ direct, any page", published, to(again)).because("reads overlap, as aio-stress's"),
        );
    }
    let other = rates(runs, OTHER, "again", 1)?;
    Ok(vec![
        Table::new(SEED, "64 KiB random reads, 64 outstanding, 1 GiB", rows),
        Table::new(SEED, format!("order of the four on {OTHER}, which was fitted to none of them"), order(&other)),
    ])
}

/// MiB/s of the four rows in their order on `model`.
fn rates(runs: &mut Runs<'_>, model: &str, places: &str, most: u32) -> Result<[Option<f64>; 4], ReproduceError> {
    let mut rates = [None; 4];
    for (rate, (depth, policy, cache)) in rates.iter_mut().zip(KERNELS) {
        let count = FILE_BYTES / RECORD;
        let workload = format!("aio-random:count={count},depth={depth},record={RECORD},places={places}");
        let (cache_bytes, size_bytes) = (Some(cache), Some(FILE_BYTES));
        let ask = Ask { workload: &workload, model, policies: &[policy], runs: most, cache_bytes, size_bytes };
        *rate = bytes_per_s(&runs.table(&ask)?, policy).map(|rate| rate / f64::from(1 << 20));
    }
    Ok(rates)
}

/// Each row against the next faster one of the posting.
fn order(rates: &[Option<f64>; 4]) -> Vec<Row> {
    let mut slowest: Vec<usize> = (0..AIO.len()).collect();
    slowest.sort_by(|&a, &b| AIO[a].1.total_cmp(&AIO[b].1));
    let row = |pair: &[usize]| {
        let [slow, fast] = [pair[0], pair[1]];
        let label = format!("{} / {}", AIO[fast].0, AIO[slow].0);
        let row = Row::new(label, "of MiB/s", Some(AIO[fast].1 / AIO[slow].1), over(rates[fast], rates[slow]));
        row.ordered().because(CHOSEN)
    };
    slowest.windows(2).map(row).collect()
}
