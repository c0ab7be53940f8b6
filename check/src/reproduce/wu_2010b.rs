//! The tables of [Wu 2010b]: five devices by readahead size and run by run, the marks, the limits by capacity, the hint
//! that a device does not rotate, blkid.
//!
//! ```text
//!   device ──► means by size (fit) ──► each run from the other sizes (left-out) ──► marks from the other devices' marks
//! ```
//!
//! Never: a published figure (they are in `published`).

use super::published::wu_2010b::{LIMITS, LIMITS_LATER, Labels, Run, SWEEPS, Sweep};
use super::runs::{Runs, over};
use super::sweep::{PLATEAU, SweepModel, part_of_marks, plateau};
use super::{FigureKind, Paper, ReproduceError, Row, Table, blkid};
use foreread_core::policy::capacity::Cap;
use foreread_report::number;

const PAPER: Paper = Paper::Wu2010b;

/// All tables of the seed.
pub fn tables(runs: &mut Runs<'_>) -> Result<Vec<Table>, ReproduceError> {
    let mut tables = Vec::new();
    for sweep in &SWEEPS {
        for (labels, words) in [
            (Labels::Script, "labels of the script"),
            (Labels::Printed, "labels as printed"),
        ] {
            let rows = modelled(runs, sweep, labels)?.rows(None);
            tables.push(Table::new(
                PAPER,
                format!("{}: by readahead size, {words}", sweep.device),
                rows,
            ));
        }
        let rows = modelled(runs, sweep, Labels::Script)?.each_run(sweep.runs);
        tables.push(Table::new(
            PAPER,
            format!("{}: each run", sweep.device),
            rows,
        ));
    }
    tables.push(labels(runs)?);
    tables.push(marks(runs)?);
    tables.push(limits(
        "size limits, first posting",
        Cap::First,
        &LIMITS,
        FigureKind::Formula,
    ));
    tables.push(limits(
        "size limits, later posting",
        Cap::Later,
        &LIMITS_LATER,
        FigureKind::Shown,
    ));
    tables.push(hints(runs)?);
    tables.push(blkid::table(runs)?);
    Ok(tables)
}

fn modelled(
    runs: &Runs<'_>,
    sweep: &Sweep,
    labels: Labels,
) -> Result<SweepModel<'static>, ReproduceError> {
    let preset = runs.preset(sweep.preset)?;
    let not_serial = || {
        ReproduceError::Asked(format!(
            "{} is not a device of one command at a time",
            preset.name
        ))
    };
    SweepModel::of(sweep, preset, labels).ok_or_else(not_serial)
}

/// Which labels one cost and one rate can explain.
fn labels(runs: &Runs<'_>) -> Result<Table, ReproduceError> {
    let mut rows = Vec::new();
    for sweep in &SWEEPS {
        for (labels, column) in [
            (Labels::Script, "script's labels, %"),
            (Labels::Printed, "as printed, %"),
        ] {
            let error = modelled(runs, sweep, labels)?
                .serial_error()
                .map(|e| e * 100.0);
            let row = Row::new(sweep.device, column, None, error);
            rows.push(row.because(
                "largest error of T = a + S/B; what speaks for the script's labels, no target",
            ));
        }
    }
    Ok(Table::new(
        PAPER,
        "which labels a serial device explains",
        rows,
    ))
}

/// The marks: by the rule from the published runs, and from our models. And what else the post says of the curves.
fn marks(runs: &Runs<'_>) -> Result<Table, ReproduceError> {
    let mut rows = Vec::new();
    for (at, sweep) in SWEEPS.iter().enumerate() {
        let published = Some(sweep.plateau_kib as f64);
        let judge = |column: &str, kind, mark: Option<u64>| {
            let row = Row::new(sweep.device, column, published, mark.map(|kib| kib as f64));
            row.judged(kind, mark == Some(sweep.plateau_kib))
        };
        let means = means(sweep);
        let others = SWEEPS
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != at)
            .map(|(_, sweep)| sweep);
        let mark = part_of_marks(others).and_then(|part| plateau(&means, part));
        rows.push(judge("==> KiB, runs", FigureKind::LeftOut, mark).because(MARK));
        let model = modelled(runs, sweep, Labels::Printed)?.model();
        let row = judge("==> KiB, model", FigureKind::Fit, plateau(&model, PLATEAU));
        rows.push(if row.ok {
            row
        } else {
            row.because("the model is a little low before its plateau")
        });
        if let Some(second) = sweep.second_mark_kib {
            let row = Row::new(
                sweep.device,
                "--> KiB",
                Some(second as f64),
                second_mark(&means),
            );
            rows.push(row.because(SECOND));
        }
        rows.push(
            share(sweep, 32)
                .because("\"satisfiable performance with >= 32k\": the post sets no figure"),
        );
    }
    let x25_m = &SWEEPS[0];
    let up_to = |points: &[(u64, f64)]| {
        let points: Vec<f64> = points
            .iter()
            .filter(|p| p.0 <= x25_m.plateau_kib)
            .map(|p| p.1)
            .collect();
        points.windows(2).map(|w| w[1] / w[0]).reduce(f64::min)
    };
    let ours = up_to(&modelled(runs, x25_m, Labels::Printed)?.model());
    let row = Row::new(x25_m.device, "of MB/s, a step", up_to(&means(x25_m)), ours).ordered();
    rows.push(
        row.because("\"increases steadily\": the smallest gain of twice the size, up to the mark; the model is fitted"),
    );
    let percent = (PLATEAU * 100.0).round();
    Ok(Table::new(
        PAPER,
        format!("marks: first size with {percent} % of the best, labels as printed"),
        rows,
    ))
}

const MARK: &str = "the rule 'first size with so much of the best' with the figure that the other four devices' marks leave";
const SECOND: &str =
    "not explained in the posting; ours is the first size that the next one does not beat by 1 %";

/// Sizes as printed and the mean rate of the runs.
fn means(sweep: &Sweep) -> Vec<(u64, f64)> {
    sweep
        .runs
        .iter()
        .map(|run| (run.printed_kib, run.mb_per_s()))
        .collect()
}

/// The first size after which twice as much gains less than 1 %.
fn second_mark(means: &[(u64, f64)]) -> Option<f64> {
    means
        .windows(2)
        .find(|w| w[1].1 < 1.01 * w[0].1)
        .map(|w| w[0].0 as f64)
}

/// What part of the best rate the device has, by its published runs, at a size as printed.
fn share(sweep: &Sweep, kib: u64) -> Row {
    let best = sweep.runs.iter().map(Run::mb_per_s).reduce(f64::max);
    let there = sweep
        .runs
        .iter()
        .find(|run| run.printed_kib == kib)
        .map(Run::mb_per_s);
    let percent = over(there, best).map(|part| part * 100.0);
    Row::new(
        sweep.device,
        format!("% of best at {}", number::size(kib << 10)),
        None,
        percent,
    )
}

fn limits(name: &str, cap: Cap, published: &[(u64, u64)], kind: FigureKind) -> Table {
    let row = |&(capacity, kib): &(u64, u64)| {
        let ours = cap.bytes(capacity).map(|bytes| bytes / 1024);
        let row = Row::new(
            number::size(capacity),
            "readahead, KiB",
            Some(kib as f64),
            ours.map(|k| k as f64),
        );
        match kind {
            FigureKind::Shown => {
                row.because("of a later posting of the same patch, which is none of the five")
            }
            kind => row.judged(kind, ours == Some(kib)),
        }
    };
    Table::new(PAPER, name, published.iter().map(row).collect())
}

const BY_CAPACITY: &str = "\"the formula shall not limit\" below a plateau: what the published runs lose at the limit; the \
    post excepts the Intel drive, and sets no bound";
const BY_ATTRIBUTE: &str = "1: the device says that it does not rotate (general knowledge: SATA SSDs of the time did, USB \
    sticks did not); so this hint decides one thing for both SSDs and nothing for the sticks";
const ONE_LIMIT: &str = "a limit by the attribute is one figure for both SSDs: the SanDisk's mark holds the Intel drive \
    here, and the Intel drive's mark limits nothing";

/// What the size of a device decides, and what the attribute "non-rotational" would have decided.
fn hints(runs: &Runs<'_>) -> Result<Table, ReproduceError> {
    let mut rows = Vec::new();
    for sweep in &SWEEPS {
        let limit = Cap::First
            .bytes(runs.preset(sweep.preset)?.capacity_bytes)
            .map_or(0, |bytes| bytes / 1024);
        let row = Row::new(sweep.device, "KiB by capacity", None, Some(limit as f64));
        rows.push(
            row.because("what the formula decides; the post prints it for round sizes alone"),
        );
        rows.push(share(sweep, limit).because(BY_CAPACITY));
        let says = if sweep.device.starts_with("SSD") {
            1.0
        } else {
            0.0
        };
        rows.push(Row::new(sweep.device, "non-rotational", None, Some(says)).because(BY_ATTRIBUTE));
    }
    rows.push(share(&SWEEPS[0], SWEEPS[1].plateau_kib).because(ONE_LIMIT));
    Ok(Table::new(
        PAPER,
        "non-rotational hint beside the limit by capacity",
        rows,
    ))
}
