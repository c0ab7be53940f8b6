//! The results of `foreread check bench policies` as text: lost cells, targets, totals.
//!
//! ```text
//!   Lost cells of auto: 2 of 111
//!   slower  95 %          workload     device       cache  best opponent       bytes  requests  p99    held
//!   x1.31   1.29 to 1.33  sequential   object-near  256M   linux-6.18:max=64M  x1.00  x3.00     x1.10  x0.06
//! ```
//! The last four columns compare the figures of the policy with those of the best opponent. They show differences, which need not be the
//! cause of the loss.

use super::Results;
use crate::evaluation::verdict::{MAX_OVERFETCH, MAX_RATIO, ONE_SETTING, Total};
use crate::evaluation::{Design, Figures, Row, Target};
use foreread_report::block::{self, Block, Column, Table};
use foreread_report::number::{self, or_dash, three};
use foreread_sim::limits::ORACLE;

type RowColumn<'a> = Column<'a, Row>;
type Part = (String, Vec<Block>);

/// Formats the whole report as text, which ends with a newline.
pub fn text(results: &Results, width: usize) -> String {
    let mut blocks = vec![Block::Text(results.title())];
    for (title, part) in parts(results) {
        blocks.extend([Block::Gap, Block::line(title)]);
        blocks.extend(part);
    }
    blocks.push(Block::Gap);
    blocks.extend(notes(results).into_iter().map(Block::Text));
    block::text(blocks, width, false)
}

fn parts(results: &Results) -> Vec<Part> {
    let mut parts = Vec::new();
    for policy in &results.judged {
        let (lost, cells) = (results.lost(policy).len(), results.cells[0]);
        let title = format!("Lost cells of {policy}: {lost} of {cells}");
        parts.push((title, lost_cells(results, policy)));
    }
    for policy in &results.judged {
        let targets = results.targets.iter().filter(|t| t.policy == *policy);
        let targets = targets.map(|target| Block::Text(verdict(target)));
        parts.push((format!("Targets of {policy}"), targets.collect()));
    }
    parts.push(("Totals".to_string(), vec![Block::Table(totals(results))]));
    parts
}

/// The cells that a policy loses, and those that it may lose.
fn lost_cells(results: &Results, policy: &str) -> Vec<Block> {
    let (rows, undecided) = (results.lost(policy), results.undecided(policy));
    let mut blocks = Vec::new();
    if !rows.is_empty() {
        blocks.push(Block::Table(ratios(results, &rows)));
    }
    if !undecided.is_empty() {
        if !blocks.is_empty() {
            blocks.push(Block::Gap);
        }
        blocks.push(Block::line(
            "Slower by more than 5 %, but perhaps by chance:",
        ));
        blocks.push(Block::Table(ratios(results, &undecided)));
    }
    blocks
}

fn ratios(results: &Results, rows: &[&Row]) -> Table {
    let range = |[low, high]: [f64; 2]| format!("{} to {}", three(low), three(high));
    let against = |figure: fn(&Figures) -> Option<f64>| {
        move |row: &Row| {
            let best = row.best.as_deref();
            let best = best.and_then(|best| results.report.row(&row.cell, best));
            let both = best.and_then(|best| figure(&row.figures).zip(figure(&best.figures)));
            let both = both.filter(|(_, best)| *best > 0.0);
            or_dash(both, |(own, best)| number::times(own / best))
        }
    };
    let columns = vec![
        RowColumn::new("slower", |row| or_dash(row.ratio, number::times)),
        RowColumn::new("95 %", move |row| or_dash(row.ratio_ci95, range)),
        RowColumn::new("workload", |row| row.cell.workload.clone()),
        RowColumn::new("device", |row| row.cell.device.clone()),
        RowColumn::new("cache", |row| number::size(row.cell.cache)),
        RowColumn::new("best opponent", |row| row.best.clone().unwrap_or_default()),
        RowColumn::new("bytes", against(|figures| figures.overfetch)),
        RowColumn::new("requests", against(|figures| Some(figures.requests as f64))),
        RowColumn::new("p99", against(|figures| figures.p99_us)),
        RowColumn::new(
            "held",
            against(|figures| Some(figures.held_byte_s / figures.time_s)),
        ),
    ];
    let table = Table::new("", columns, rows.iter().copied());
    table.left().wide().broken()
}

/// `MISSED: geometric mean ...: 0.953 (at most 0.75)`.
fn verdict(target: &Target) -> String {
    let word = match (target.met, target.value) {
        (Some(true), _) => "met",
        (Some(false), _) => "MISSED",
        (None, Some(_)) => "not judged",
        (None, None) => "not measured",
    };
    // Digits: none for a count that must be 0, otherwise three for a ratio.
    let digits = if target.limit == 0.0 { 0 } else { 3 };
    let value = target.value.map(|value| format!(": {value:.digits$}"));
    let cell = target.cell.as_ref().map(|cell| format!("; {cell}"));
    let bound = if target.at_least {
        "at least"
    } else {
        "at most"
    };
    format!(
        "{word}: {}{} ({bound} {}{})",
        target.target,
        value.unwrap_or_default(),
        target.limit,
        cell.unwrap_or_default()
    )
}

/// The oracle comes last: it is a limit, loses no cell, and its fetches are not possible for a policy.
fn totals(results: &Results) -> Table {
    type TotalColumn<'a> = Column<'a, Total>;
    let is_limit = |total: &Total| total.policy == ORACLE;
    let mut rows: Vec<&Total> = results.report.totals.iter().collect();
    let mean = |total: &Total| total.against_max_4m.unwrap_or(f64::MAX);
    rows.sort_by(|a, b| {
        let limits_last = is_limit(a).cmp(&is_limit(b));
        limits_last.then(mean(a).total_cmp(&mean(b)))
    });
    let unless_limit = move |total: &Total, text: String| match is_limit(total) {
        true => number::UNDEFINED.to_string(),
        false => text,
    };
    let places = |value: f64| format!("{value:.3}");
    let name =
        move |total: &Total| total.policy.clone() + if is_limit(total) { " (a limit)" } else { "" };
    let columns = vec![
        TotalColumn::new("policy", name).left(),
        TotalColumn::new("mean against max=4M", move |t| {
            or_dash(t.against_max_4m, places)
        }),
        TotalColumn::new("worst against best", move |t| {
            unless_limit(t, or_dash(t.worst, number::times))
        }),
        TotalColumn::new("lost", move |t| unless_limit(t, t.lost.to_string())),
        TotalColumn::new("oracle's gain %", |t| {
            or_dash(t.oracle_share, |share| format!("{:.1}", share * 100.0))
        }),
        TotalColumn::new("read ampl.", move |t| {
            unless_limit(t, or_dash(t.overfetch, places))
        }),
    ];
    Table::new("", columns, rows.iter().copied())
        .wide()
        .broken()
}

fn notes(results: &Results) -> Vec<String> {
    let (choose, judge) = results.design.seeds();
    let seeds = |seeds: &[u64]| match seeds {
        [one] => format!("seed {one}"),
        [first, .., last] => format!("seeds {first} to {last}"),
        [] => "no seed".to_string(),
    };
    let tested = match judge.len() {
        1 => "measured with only one seed, so without a significance test",
        _ => {
            "and the difference is statistically significant (paired t test, Holm's correction over the cells)"
        }
    };
    let (more, shared) = match results.design {
        Design::Validation => (
            ", or as much as the judged policy fetched in that cell",
            "all cells that have an oracle",
        ),
        Design::Baseline | Design::Fractional => ("", "predictable workloads"),
    };
    let mut notes = vec![
        format!(
            "A cell is lost if a policy takes more than {MAX_RATIO} times as long as the best opponent, {tested}. The best \
             opponent is the fastest that fetches at most {MAX_OVERFETCH} times the demanded bytes{more}. It is chosen from runs with {}; \
             all policies are judged by runs with {}. Bytes, requests, p99 latency and \
             readahead held unread are those of the policy relative to the best opponent.",
            seeds(&choose),
            seeds(&judge)
        ),
        format!(
            "Mean: geometric mean, over the cells, of the policy's time relative to {ONE_SETTING}. Oracle's gain: the sum of \
             ln(none / policy) divided by the sum of ln(none / oracle), over {shared}. All times are simulated."
        ),
    ];
    notes.extend(oracle_beaten(results));
    notes.extend(results.notes.iter().map(|note| format!("Note: {note}.")));
    notes
}

/// How far the oracle is from being a bound, for the policy that beats it most.
fn oracle_beaten(results: &Results) -> Option<String> {
    let totals = results.report.totals.iter();
    let beaten = totals.filter(|total| total.beats_oracle > 0);
    let ratio = |total: &Total| total.least_oracle_ratio.unwrap_or(1.0);
    let total = beaten.min_by(|a, b| ratio(a).total_cmp(&ratio(b)))?;
    Some(format!(
        "The oracle's time is not a lower bound here: {} took {} of the oracle's time in {}, seed {}, and is faster than the oracle \
         in {}. A policy's requests draw other random latencies than the oracle's; where the policy is faster, its share of the \
         oracle's gain is above 100 %.",
        total.policy,
        number::times(ratio(total)),
        total.least_oracle_cell.as_ref()?,
        results.design.seeds().1[0],
        number::plural(total.beats_oracle as u64, "cell")
    ))
}
