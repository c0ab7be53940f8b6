//! What `foreread bench policies` prints: lost cells first, then the targets, the totals, the notes.
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
use foreread_report::number::{self, or_dash, three};
use foreread_report::table::TextTable;
use foreread_sim::limits::ORACLE;

/// Lost cells whose reasons are given; the page has those of all.
const MAX_REASONS: usize = 10;
/// Undecided cells that are listed; the JSON has all.
const MAX_UNDECIDED: usize = 10;

/// The whole text. Ends with a newline.
pub fn write(results: &Results, width: usize) -> String {
    let mut lines = number::wrap(&results.title(), width);
    for policy in &results.judged {
        lines.push(String::new());
        lines.extend(lost(results, policy, width));
    }
    for (policy, targets) in &results.targets {
        lines.push(String::new());
        lines.push(format!("Targets of {policy}"));
        lines.extend(
            targets
                .iter()
                .flat_map(|target| number::wrap(&verdict(target), width)),
        );
    }
    lines.push(String::new());
    lines.extend(totals(results, width));
    lines.push(String::new());
    lines.extend(
        notes(results)
            .iter()
            .flat_map(|note| number::wrap(note, width)),
    );
    lines.join("\n") + "\n"
}

fn lost(results: &Results, policy: &str, width: usize) -> Vec<String> {
    let rows: Vec<&Row> = results.lost(policy).collect();
    let mut lines = vec![format!(
        "Lost cells of {policy}: {} of {}",
        rows.len(),
        results.cells[0]
    )];
    if !rows.is_empty() {
        let heads = [
            "slower",
            "95 %",
            "workload",
            "device",
            "cache",
            "best opponent",
            "without a limit",
        ];
        lines.extend(grid(&heads, rows.iter().map(|row| line(row)), &[], width));
        lines.push(String::new());
        lines.push(match rows.len() {
            more if more > MAX_REASONS => {
                format!("Why, for the worst {MAX_REASONS} (the page of --html has all):")
            }
            _ => "Why:".to_string(),
        });
        for row in rows.iter().take(MAX_REASONS) {
            let text = format!("{}: {}", cell_name(&row.cell), why(results, row));
            lines.extend(
                number::wrap(&text, width.saturating_sub(2))
                    .into_iter()
                    .map(|line| format!("  {line}")),
            );
        }
    }
    let undecided = results.undecided(policy);
    if !undecided.is_empty() {
        let name = |row: &&Row| {
            format!(
                "{} ({})",
                cell_name(&row.cell),
                or_dash(row.ratio, number::times)
            )
        };
        let mut names: Vec<String> = undecided.iter().take(MAX_UNDECIDED).map(name).collect();
        if undecided.len() > MAX_UNDECIDED {
            names.push(format!("and {} more", undecided.len() - MAX_UNDECIDED));
        }
        let text = format!(
            "Slower by more than 5 %, but perhaps by chance: {}.",
            names.join("; ")
        );
        lines.extend(number::wrap(&text, width));
    }
    lines
}

fn line(row: &Row) -> Vec<String> {
    let unrestricted = match (&row.unrestricted, row.unrestricted_ratio) {
        (Some(policy), Some(ratio)) => format!("{} {policy}", number::times(ratio)),
        _ => number::UNDEFINED.to_string(),
    };
    vec![
        or_dash(row.ratio, number::times),
        or_dash(row.ratio_ci95, |[low, high]| {
            format!("{} to {}", three(low), three(high))
        }),
        row.cell.workload.clone(),
        row.cell.device.clone(),
        number::size(row.cell.cache),
        row.best.clone().unwrap_or_default(),
        unrestricted,
    ]
}

/// The sentence about a row beside its best opponent.
pub fn why(results: &Results, row: &Row) -> String {
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
        None => "not measured",
    };
    let bound = if target.at_least {
        "at least"
    } else {
        "at most"
    };
    let value = target
        .value
        .map_or_else(String::new, |_| format!(": {}", value(target)));
    let cell = target
        .cell
        .as_ref()
        .map_or_else(String::new, |cell| format!("; {}", cell_name(cell)));
    format!(
        "{word}: {}{value} ({bound} {}{cell})",
        target.what, target.limit
    )
}

/// The figures of a total, as the table and the page have them. The oracle is a limit: it loses nothing and fetches what no
/// policy could.
pub fn figures(total: &Total) -> [String; 5] {
    let is_limit = total.policy == ORACLE;
    [
        or_dash(total.against_one, |mean| format!("{mean:.3}")),
        or_dash(total.worst_ratio.filter(|_| !is_limit), number::times),
        if is_limit {
            number::UNDEFINED.to_string()
        } else {
            total.lost.to_string()
        },
        or_dash(total.oracle_share, |share| format!("{:.1}", share * 100.0)),
        or_dash(total.overfetch.filter(|_| !is_limit), |overfetch| {
            format!("{overfetch:.3}")
        }),
    ]
}

fn totals(results: &Results, width: usize) -> Vec<String> {
    let heads = [
        "policy",
        "mean against max=4M",
        "worst against best",
        "lost",
        "oracle's gain %",
        "read ampl.",
    ];
    let mut totals: Vec<&Total> = results.report.totals.iter().collect();
    let against = |total: &Total| total.against_one.unwrap_or(f64::MAX);
    totals.sort_by(|a, b| {
        (a.policy == ORACLE)
            .cmp(&(b.policy == ORACLE))
            .then(against(a).total_cmp(&against(b)))
    });
    let line = |total: &&Total| {
        let name = if total.policy == ORACLE {
            format!("{ORACLE} (a limit)")
        } else {
            total.policy.clone()
        };
        std::iter::once(name).chain(figures(total)).collect()
    };
    let mut lines = vec!["Totals".to_string()];
    lines.extend(grid(
        &heads,
        totals.iter().map(line),
        &[1, 2, 3, 4, 5],
        width,
    ));
    lines
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

/// A table; columns of figures are to the right.
fn grid(
    heads: &[&str],
    rows: impl Iterator<Item = Vec<String>>,
    figures: &[usize],
    width: usize,
) -> Vec<String> {
    let words: Vec<usize> = (0..heads.len())
        .filter(|column| !figures.contains(column))
        .collect();
    TextTable::new(words)
        .wide()
        .within(width)
        .head(heads)
        .rows(rows)
        .lines()
}
