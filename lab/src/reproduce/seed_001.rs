//! The tables of seed 001: five devices by readahead size, the marks, the limits by capacity, blkid.
//!
//! Never: a published figure (they stand in `published`).

use super::published::seed_001::{LIMITS, LIMITS_LATER, Labels, SWEEPS, Sweep};
use super::runs::Runs;
use super::sweep::{Modelled, PLATEAU, plateau};
use super::{ReproduceError, Role, Row, Table, blkid};
use crate::report::number;
use foreread_core::policy::capacity::Cap;

const SEED: &str = "001";

/// All tables of the seed.
pub fn tables(runs: &mut Runs<'_>) -> Result<Vec<Table>, ReproduceError> {
    let mut tables = Vec::new();
    for sweep in &SWEEPS {
        for (labels, words) in [(Labels::Script, "labels of the script"), (Labels::Printed, "labels as printed")] {
            let rows = modelled(runs, sweep, labels)?.rows();
            tables.push(Table::new(SEED, format!("{}: by readahead size, {words}", sweep.device), rows));
        }
    }
    tables.push(labels(runs)?);
    tables.push(marks(runs)?);
    tables.push(limits("size limits, first posting", Cap::First, &LIMITS));
    tables.push(limits("size limits, later posting", Cap::Later, &LIMITS_LATER));
    tables.push(blkid::table(runs)?);
    Ok(tables)
}

fn modelled(runs: &Runs<'_>, sweep: &Sweep, labels: Labels) -> Result<Modelled<'static>, ReproduceError> {
    let preset = runs.preset(sweep.preset)?;
    let not_serial = || ReproduceError::Asked(format!("{} is not a device of one command at a time", preset.name));
    Modelled::of(sweep, preset, labels).ok_or_else(not_serial)
}

/// Which labels one cost and one rate can explain.
fn labels(runs: &Runs<'_>) -> Result<Table, ReproduceError> {
    let mut rows = Vec::new();
    for sweep in &SWEEPS {
        for (labels, column) in [(Labels::Script, "script's labels, %"), (Labels::Printed, "as printed, %")] {
            let error = modelled(runs, sweep, labels)?.serial_error().map(|e| e * 100.0);
            let row = Row::new(sweep.device, column, None, error);
            rows.push(row.because("largest error of T = a + S/B; what speaks for the script's labels, no target"));
        }
    }
    Ok(Table::new(SEED, "which labels a serial device explains", rows))
}

/// The marks: by the rule from the published runs, and from our models.
fn marks(runs: &Runs<'_>) -> Result<Table, ReproduceError> {
    let mut rows = Vec::new();
    for sweep in &SWEEPS {
        let published = Some(sweep.plateau_kib as f64);
        let judge = |column: &str, role, points: &[(u64, f64)]| {
            let at = plateau(points);
            Row::new(sweep.device, column, published, at.map(|kib| kib as f64))
                .judged(role, at == Some(sweep.plateau_kib))
                .exact()
        };
        let means: Vec<(u64, f64)> = sweep.runs.iter().map(|r| (r.printed_kib, r.mb_per_s())).collect();
        rows.push(judge("==> KiB, the runs", Role::Check, &means));
        let model = modelled(runs, sweep, Labels::Printed)?.model();
        let row = judge("==> KiB, our model", Role::Fit, &model);
        rows.push(if row.ok { row } else { row.because("the model is a little low before its plateau") });
        if let Some(second) = sweep.second_mark_kib {
            let row = Row::new(sweep.device, "--> KiB", Some(second as f64), second_mark(&means));
            rows.push(row.because(SECOND));
        }
    }
    let percent = (PLATEAU * 100.0).round();
    Ok(Table::new(SEED, format!("marks: first size with {percent} % of the best, labels as printed"), rows))
}

const SECOND: &str = "not explained in the posting; ours is the first size that the next one does not beat by 1 %";

/// The first size after which twice as much gains less than 1 %.
fn second_mark(means: &[(u64, f64)]) -> Option<f64> {
    means.windows(2).find(|w| w[1].1 < 1.01 * w[0].1).map(|w| w[0].0 as f64)
}

fn limits(name: &str, cap: Cap, published: &[(u64, u64)]) -> Table {
    let row = |&(capacity, kib): &(u64, u64)| {
        let ours = cap.bytes(capacity).map(|bytes| bytes / 1024);
        Row::new(number::size(capacity), "readahead, KiB", Some(kib as f64), ours.map(|k| k as f64))
            .judged(Role::Check, ours == Some(kib))
    };
    Table::new(SEED, name, published.iter().map(row).collect())
}
