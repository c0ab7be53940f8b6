//! The results of `foreread check bench policies` as text: lost cells with reasons, targets, totals.
//!
//! ```text
//!   Lost cells of auto: 2 of 111
//!   slower  95 %          workload     device       cache  best opponent       without a limit
//!   x1.31   1.29 to 1.33  sequential   object-near  256M   linux-6.18:max=64M  x1.31 linux-6.18:max=64M
//! ```
//! The reason for a lost cell compares the figures of the policy with those of the best opponent, and names each figure
//! that differs by more than its limit. The report shows differences, which need not be the cause of the loss:
//!
//! ```text
//!   auto made 3 times as many requests and read ahead less far: it held 0.2 MiB unread on average, linux-6.18:max=4M 3.1 MiB.
//! ```

use super::Results;
use crate::evaluation::verdict::{MAX_OVERFETCH, MAX_RATIO, ONE_SETTING, Total};
use crate::evaluation::{Design, Figures, Row, Target};
use foreread_report::block::{self, Block, Column, Table};
use foreread_report::number::{self, or_dash, three};
use foreread_sim::limits::ORACLE;

/// Maximum number of lost cells whose reasons are shown; the JSON has the figures of all.
const MAX_REASONS: usize = 10;

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
        let why = match rows.len() > MAX_REASONS {
            true => format!(
                "Reasons for the worst {MAX_REASONS} cells (--json has the figures of all cells):"
            ),
            false => "Why:".to_string(),
        };
        let reason = |row: &Row| format!("{}: {}", row.cell, why_lost(results, row));
        let first = rows.iter().take(MAX_REASONS);
        let first = first.map(|row| Block::Text(reason(row)));
        blocks.extend([
            Block::Table(ratios(&rows)),
            Block::Gap,
            Block::Text(why),
            Block::Indented(2, first.collect()),
        ]);
    }
    if !undecided.is_empty() {
        if !blocks.is_empty() {
            blocks.push(Block::Gap);
        }
        blocks.push(Block::line(
            "Slower by more than 5 %, but perhaps by chance:",
        ));
        blocks.push(Block::Table(ratios(&undecided)));
    }
    blocks
}

fn ratios(rows: &[&Row]) -> Table {
    let range = |[low, high]: [f64; 2]| format!("{} to {}", three(low), three(high));
    let unrestricted = |row: &Row| {
        let best = row.unrestricted.as_ref().zip(row.unrestricted_ratio);
        or_dash(best, |(policy, ratio)| {
            format!("{} {policy}", number::times(ratio))
        })
    };
    let columns = vec![
        RowColumn::new("slower", |row| or_dash(row.ratio, number::times)),
        RowColumn::new("95 %", move |row| or_dash(row.ratio_ci95, range)),
        RowColumn::new("workload", |row| row.cell.workload.clone()),
        RowColumn::new("device", |row| row.cell.device.clone()),
        RowColumn::new("cache", |row| number::size(row.cell.cache)),
        RowColumn::new("best opponent", |row| row.best.clone().unwrap_or_default()),
        RowColumn::new("without a limit", unrestricted),
    ];
    let table = Table::new("", columns, rows.iter().copied());
    table.left().wide().broken()
}

/// The sentence that compares a row with its best opponent.
fn why_lost(results: &Results, row: &Row) -> String {
    let best = row.best.as_deref();
    let best = best.and_then(|best| results.report.row(&row.cell, best));
    best.map_or_else(String::new, |best| {
        reason(&row.policy, &row.figures, &best.policy, &best.figures)
    })
}

/// Factors above which a figure is named. 1.05 times the bytes can explain the smallest loss; the other figures vary
/// more between policies that are equally fast.
const MIN_BYTES: f64 = 1.05;
const MIN_REQUESTS: f64 = 1.5;
const MIN_HELD: f64 = 1.5;
const MIN_P99: f64 = 2.0;
/// A difference counts only if one of the two holds at least this much unread readahead: a page or two for each of
/// several readers.
const MIN_HELD_BYTES: f64 = 65_536.0;

fn reason(policy: &str, own: &Figures, best_policy: &str, best: &Figures) -> String {
    let mut parts = Vec::new();
    let factor = |own: Option<f64>, best: Option<f64>, least: f64| {
        let (own, best) = own.zip(best).filter(|(_, best)| *best > 0.0)?;
        Some(own / best).filter(|factor| *factor >= least)
    };
    if let Some(bytes) = factor(own.overfetch, best.overfetch, MIN_BYTES) {
        parts.push(format!("fetched {} times the bytes", three(bytes)));
    }
    let requests = own.requests.max(1) as f64 / best.requests.max(1) as f64;
    if requests >= MIN_REQUESTS {
        parts.push(format!("made {} times as many requests", three(requests)));
    } else if requests <= 1.0 / MIN_REQUESTS {
        let (own, best) = (own.requests, best.requests);
        parts.push(format!("made {own} requests ({best_policy} {best})"));
    }
    if let Some(p99) = factor(own.p99_us, best.p99_us, MIN_P99) {
        parts.push(format!("had {} times the p99", three(p99)));
    }
    let [ours, theirs] = [own, best].map(|figures| figures.held_byte_s / figures.time_s);
    let is_more = |more: f64, less: f64| more >= MIN_HELD_BYTES && more >= less * MIN_HELD;
    let how_far = match (is_more(theirs, ours), is_more(ours, theirs)) {
        (true, _) => Some("less far"),
        (_, true) => Some("further"),
        _ => None,
    };
    parts.extend(how_far.map(|how_far| {
        let [ours, theirs] = [ours, theirs].map(|bytes| three(bytes / f64::from(1 << 20)));
        format!(
            "read ahead {how_far}: it held {ours} MiB unread on average, {best_policy} {theirs} MiB"
        )
    }));
    match &parts[..] {
        [] => {
            format!("no figure of {policy} differs enough from {best_policy} to explain the time.")
        }
        [one] => format!("{policy} {one}."),
        [first @ .., last] => format!("{policy} {} and {last}.", first.join(", ")),
    }
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
             all policies are judged by runs with {}. 'Without a limit' is the fastest opponent in the latter runs, however much it fetches.",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_names_what_differs() {
        let figures = |requests, overfetch, held_mib: f64, p99_us| Figures {
            time_s: 2.0,
            overfetch: Some(overfetch),
            requests,
            p99_us: Some(p99_us),
            held_byte_s: held_mib * 2.0 * f64::from(1 << 20),
            ..Figures::default()
        };
        let few = figures(10, 1.0, 1.0, 100.0);
        for (own, best, said) in [
            (
                figures(3000, 1.0, 0.2, 100.0),
                figures(1000, 1.0, 3.1, 100.0),
                "auto made 3.00 times as many requests and read ahead less far: it held 0.20 MiB unread on average, none 3.10 MiB.",
            ),
            (
                figures(10, 1.8, 1.0, 100.0),
                few.clone(),
                "auto fetched 1.80 times the bytes.",
            ),
            (
                figures(10, 1.0, 9.0, 100.0),
                figures(40, 1.0, 3.0, 100.0),
                "auto made 10 requests (none 40) and read ahead further: it held 9.00 MiB unread on average, none 3.00 MiB.",
            ),
            (
                figures(10, 1.0, 1.0, 250.0),
                few.clone(),
                "auto had 2.50 times the p99.",
            ),
            (
                few.clone(),
                few,
                "no figure of auto differs enough from none to explain the time.",
            ),
        ] {
            assert_eq!(reason("auto", &own, "none", &best), said);
        }
    }
}
