//! What `foreread check bench policies` prints: lost cells first, then the targets, the totals, the notes.
//!
//! ```text
//!   auto in the design fractional: 111 cells
//!
//!   Lost cells of auto: 2 of 111
//!   slower  95 %          workload     device       cache  best opponent       without a limit
//!   x1.31   1.29 to 1.33  sequential   object-near  256M   linux-6.18:max=64M  x1.31 linux-6.18:max=64M
//!   ...
//! ```
//! Tables are at most as wide as the caller says; a cell that has no room is broken into lines.

use super::reason::reason;
use super::{Results, cell_name};
use crate::evaluation::verdict::{MAX_OVERFETCH, MAX_RATIO, ONE_SETTING, Total};
use crate::evaluation::{Design, Row, Target};
use foreread_report::block::{self, Block, Column, Table};
use foreread_report::number::{self, or_dash, three};
use foreread_sim::limits::ORACLE;

/// Lost cells whose reasons are given; the page has those of all.
const MAX_REASONS: usize = 10;
/// Undecided cells that are listed; the JSON has all.
const MAX_UNDECIDED: usize = 10;

/// The whole text. Ends with a newline.
pub fn write(results: &Results, width: usize) -> String {
    let mut blocks = vec![Block::Text(results.title())];
    for policy in &results.judged {
        blocks.push(Block::Gap);
        blocks.extend(lost(results, policy));
    }
    for (policy, targets) in &results.targets {
        blocks.extend([Block::Gap, Block::line(format!("Targets of {policy}"))]);
        blocks.extend(targets.iter().map(|target| Block::Text(verdict(target))));
    }
    let mut sorted: Vec<&Total> = results.report.totals.iter().collect();
    let against = |total: &Total| total.against_one.unwrap_or(f64::MAX);
    sorted.sort_by(|a, b| {
        let limits_last = (a.policy == ORACLE).cmp(&(b.policy == ORACLE));
        limits_last.then(against(a).total_cmp(&against(b)))
    });
    let totals = Block::Table(totals(sorted).wide().broken());
    blocks.extend([Block::Gap, Block::line("Totals"), totals, Block::Gap]);
    blocks.extend(notes(results).into_iter().map(Block::Text));
    block::text(blocks, width, false)
}

fn lost(results: &Results, policy: &str) -> Vec<Block> {
    let rows: Vec<&Row> = results.lost(policy).collect();
    let (number, all) = (rows.len(), results.cells[0]);
    let mut blocks = vec![Block::line(format!(
        "Lost cells of {policy}: {number} of {all}"
    ))];
    if !rows.is_empty() {
        let why = match number > MAX_REASONS {
            true => format!("Why, for the worst {MAX_REASONS} (the page of --html has all):"),
            false => "Why:".to_string(),
        };
        let reason = |row: &&Row| {
            Block::Text(format!(
                "{}: {}",
                cell_name(&row.cell),
                why_lost(results, row)
            ))
        };
        let reasons = rows.iter().take(MAX_REASONS).map(reason).collect();
        blocks.extend([
            Block::Table(lost_table(&rows).left().wide().broken()),
            Block::Gap,
            Block::line(why),
            Block::Indented(2, reasons),
        ]);
    }
    let undecided = results.undecided(policy);
    if !undecided.is_empty() {
        let name = |row: &&Row| {
            let ratio = or_dash(row.ratio, number::times);
            format!("{} ({ratio})", cell_name(&row.cell))
        };
        let mut names: Vec<String> = undecided.iter().take(MAX_UNDECIDED).map(name).collect();
        if undecided.len() > MAX_UNDECIDED {
            names.push(format!("and {} more", undecided.len() - MAX_UNDECIDED));
        }
        blocks.push(Block::Text(format!(
            "Slower by more than 5 %, but perhaps by chance: {}.",
            names.join("; ")
        )));
    }
    blocks
}

fn lost_table(rows: &[&Row]) -> Table {
    type RowColumn<'a> = Column<'a, Row>;
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
    Table::new("", columns, rows.iter().copied())
}

/// The sentence about a row beside its best opponent.
pub fn why_lost(results: &Results, row: &Row) -> String {
    let best = row
        .best
        .as_deref()
        .and_then(|best| results.row(&row.cell, best));
    best.map_or_else(String::new, |best| {
        reason(&row.policy, &row.figures, &best.policy, &best.figures)
    })
}

/// The number of a target: a count where none is allowed, otherwise a ratio.
pub fn value(target: &Target) -> String {
    let digits = if target.limit == 0.0 { 0 } else { 3 };
    or_dash(target.value, |value| format!("{value:.digits$}"))
}

/// `MISSED: geometric mean ...: 0.953 (at most 0.75)`.
fn verdict(target: &Target) -> String {
    let word = match target.met() {
        Some(true) => "met",
        Some(false) => "MISSED",
        None => unjudged(target),
    };
    let value = target
        .value
        .map_or_else(String::new, |_| format!(": {}", value(target)));
    let cell = target
        .cell
        .as_ref()
        .map_or_else(String::new, |cell| format!("; {}", cell_name(cell)));
    format!(
        "{word}: {}{value} ({} {}{cell})",
        target.what,
        bound(target),
        target.limit
    )
}

/// Why a target is neither met nor missed.
pub fn unjudged(target: &Target) -> &'static str {
    match target.value {
        Some(_) => "not judged",
        None => "not measured",
    }
}

pub fn bound(target: &Target) -> &'static str {
    if target.at_least {
        "at least"
    } else {
        "at most"
    }
}

/// The totals for the terminal and the page. The oracle is a limit: it loses nothing and fetches what no policy could.
pub fn totals<'a>(totals: impl IntoIterator<Item = &'a Total>) -> Table {
    type TotalColumn<'a> = Column<'a, Total>;
    let is_limit = |total: &Total| total.policy == ORACLE;
    let unless_limit = move |total: &Total, text| {
        if is_limit(total) {
            number::UNDEFINED.to_string()
        } else {
            text
        }
    };
    let three_places = |value: f64| format!("{value:.3}");
    let name =
        move |total: &Total| total.policy.clone() + if is_limit(total) { " (a limit)" } else { "" };
    let columns = vec![
        TotalColumn::new("policy", name).left().on(true, false),
        TotalColumn::new("policy", |t| t.policy.clone()).on(false, true),
        TotalColumn::new("mean against max=4M", move |t| {
            or_dash(t.against_one, three_places)
        }),
        TotalColumn::new("worst against best", move |t| {
            unless_limit(t, or_dash(t.worst_ratio, number::times))
        }),
        TotalColumn::new("lost", move |t| unless_limit(t, t.lost.to_string())).page("lost cells"),
        TotalColumn::new("oracle's gain %", |t| {
            or_dash(t.oracle_share, |share| format!("{:.1}", share * 100.0))
        }),
        TotalColumn::new("read ampl.", move |t| {
            unless_limit(t, or_dash(t.overfetch, three_places))
        })
        .page("overfetch"),
    ];
    Table::new("Totals", columns, totals)
}

pub fn notes(results: &Results) -> Vec<String> {
    let (choose, judge) = results.design.seeds();
    let seeds = |seeds: &[u64]| match seeds {
        [one] => format!("seed {one}"),
        [first, .., last] => format!("seeds {first} to {last}"),
        [] => "no seed".to_string(),
    };
    let tested = if judge.len() > 1 {
        "and the difference is no chance (paired t test, Holm's correction over the cells)"
    } else {
        "with one seed: no test"
    };
    let (more, shared) = match results.design {
        Design::Validation => (
            ", or as much as the judged policy did there",
            "all cells that have an oracle",
        ),
        _ => ("", "predictable workloads"),
    };
    let mut notes = vec![
        format!(
            "A cell is lost where a policy takes more than {MAX_RATIO} times as long as the best opponent, {tested}. The best \
             opponent fetches at most {MAX_OVERFETCH} times the demanded bytes{more}; it is chosen on {}, and all are judged on {}. \
             'Without a limit' is the best of all on the judging seeds, whatever it fetches.",
            seeds(&choose),
            seeds(&judge)
        ),
        format!(
            "Mean: geometric, over the cells, against {ONE_SETTING}. Oracle's gain: ln(none / policy) / ln(none / oracle), \
             the sum of the first over that of the second in {shared}. Times are of the simulator."
        ),
    ];
    notes.extend(oracle_beaten(results));
    notes.extend(results.notes.iter().map(|note| format!("Note: {note}.")));
    notes
}

/// How far the oracle is from being a bound, of the policy that beats it by most.
fn oracle_beaten(results: &Results) -> Option<String> {
    let totals = results.report.totals.iter();
    let beaten = totals
        .filter(|total| total.beats_oracle > 0)
        .filter_map(|total| Some((total.least_oracle_ratio.as_ref()?, total)));
    let ((ratio, cell), total) = beaten.min_by(|a, b| a.0.0.total_cmp(&b.0.0))?;
    Some(format!(
        "The oracle is no bound here: {} took {} of its time in {}, seed {}, and is faster in {}. A policy makes other requests, which \
         draw other latencies; a share is above 100 % there.",
        total.policy,
        number::times(*ratio),
        cell_name(cell),
        results.design.seeds().1[0],
        number::plural(total.beats_oracle as u64, "cell")
    ))
}
