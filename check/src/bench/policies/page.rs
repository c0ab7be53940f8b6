//! The page of `foreread bench policies`: lost cells with their reasons on top, then heat maps, targets and totals.
//!
//! A map for the lost cells and one for each device; a row is a cell, a column a policy, a box its time over that of the best
//! opponent. Each lost cell has a table of the policy beside that opponent and the sentence of `reason.rs`.
//!
//! The page holds the JSON. Of a design with more than [`MAX_ROWS`] rows it holds those of judged policies and of best opponents, and
//! says so; `--json` writes all of them.

use super::text::{figures, notes, value, why};
use super::{Results, cell_name, json};
use crate::evaluation::verdict::Total;
use crate::evaluation::{Cell, Row, Target};
use foreread_report::number::{self, or_dash, three};
use foreread_report::page::heat::{self, HeatRow};
use foreread_report::page::{Figure, Grid, Maps, Page, Section, about};
use foreread_sim::limits::ORACLE;
use std::collections::BTreeSet;

/// Rows of the JSON in the page: 5,000 are some 4 MB as text and as tables.
const MAX_ROWS: usize = 5000;
/// Columns of a heat map; the other policies are in the tables.
const MAX_POLICIES: usize = 20;

/// The page as HTML.
pub fn write(results: &Results) -> String {
    let rows = &results.report.rows;
    let all = rows.len() <= MAX_ROWS;
    let keep = |row: &Row| {
        all || results.judged.contains(&row.policy) || row.best.as_ref() == Some(&row.policy)
    };
    let mut facts = vec![
        ("foreread", env!("CARGO_PKG_VERSION").to_string()),
        ("design", results.design.name().to_string()),
        (
            "runs",
            format!("{} of {}", results.runs[0], results.runs[1]),
        ),
        (
            "cells",
            format!("{} of {}", results.cells[0], results.cells[1]),
        ),
    ];
    facts.extend(results.trace.clone().map(|trace| ("trace", trace)));
    let mut notes = notes(results);
    if !all {
        notes.push(
            "The page holds the rows of judged policies and of best opponents; --json has all."
                .to_string(),
        );
    }
    let mut sections: Vec<Section> = results
        .judged
        .iter()
        .map(|policy| lost(results, policy))
        .collect();
    sections.push(maps(results));
    sections.push(Section {
        title: "Targets and totals".to_string(),
        notes,
        grids: results
            .targets
            .iter()
            .map(|(policy, t)| targets(policy, t))
            .chain([totals(results)])
            .collect(),
        ..Section::default()
    });
    let page = Page {
        title: results.title(),
        lead: ("What the runs say", lead(results)),
        facts: facts
            .into_iter()
            .map(|(name, value)| (name.to_string(), value))
            .collect(),
        sections,
    };
    page.to_html(&json::write(results, &keep))
}

/// A sentence for each judged policy.
fn lead(results: &Results) -> Vec<String> {
    let sentence = |(policy, targets): &(String, Vec<Target>)| {
        let of = |met| targets.iter().filter(|t| t.met() == Some(met)).count();
        let rows: Vec<&Row> = results.lost(policy).collect();
        let worst = rows.first().map_or_else(String::new, |row| {
            format!(
                " The worst is {} ({}).",
                cell_name(&row.cell),
                or_dash(row.ratio, number::times)
            )
        });
        format!(
            "{policy} loses {} of {} cells, and misses {} of {} targets.{worst}",
            rows.len(),
            results.cells[0],
            of(false),
            of(false) + of(true)
        )
    };
    results.targets.iter().map(sentence).collect()
}

/// The lost cells of a policy, each beside its best opponent.
fn lost(results: &Results, policy: &str) -> Section {
    let rows: Vec<&Row> = results.lost(policy).collect();
    let undecided = results.undecided(policy);
    let mut text = Vec::new();
    if rows.is_empty() {
        text.push(format!(
            "{policy} loses none of {} cells.",
            results.cells[0]
        ));
    }
    let mut grids: Vec<Grid> = rows.iter().map(|row| beside(results, row)).collect();
    if !undecided.is_empty() {
        let heads = ["cell", "ratio", "95 % from", "to", "best opponent"];
        let line = |row: &&Row| {
            let end = |i: usize| or_dash(row.ratio_ci95, |ends| three(ends[i]));
            let best = row.best.clone().unwrap_or_default();
            vec![
                cell_name(&row.cell),
                or_dash(row.ratio, number::times),
                end(0),
                end(1),
                best,
            ]
        };
        let caption = "Slower by more than 5 %, but perhaps by chance";
        grids.push(Grid::new(caption, heads).with(undecided.iter().map(line)));
    }
    Section {
        title: format!("Lost cells of {policy}: {}", rows.len()),
        text,
        grids,
        ..Section::default()
    }
}

/// A lost row and that of its best opponent, with the sentence that follows.
fn beside(results: &Results, row: &Row) -> Grid {
    let heads = [
        "policy",
        "time s",
        "requests",
        "overfetch",
        "unused MB",
        "stalled s",
        "p99",
        "held MiB s",
        "T95 round trips",
        "flaps",
    ];
    let line = |row: &Row| {
        let figures = &row.figures;
        vec![
            row.policy.clone(),
            number::span_s(figures.time_s, None),
            number::count(figures.requests),
            or_dash(figures.overfetch, |o| format!("{o:.3}")),
            three(figures.unused_bytes as f64 / number::MB),
            number::span_s(figures.stall_s, None),
            or_dash(figures.p99_us, number::latency_us),
            three(figures.held_byte_s / f64::from(1 << 20)),
            or_dash(figures.t95_round_trips, three),
            figures.flaps.to_string(),
        ]
    };
    let interval = row.ratio_ci95.map_or_else(String::new, number::interval);
    let ratio = or_dash(row.ratio, number::times);
    let caption = format!(
        "{}: {ratio}{interval}. {}",
        cell_name(&row.cell),
        why(results, row)
    );
    let mut others: Vec<&str> = Vec::new();
    for other in [&row.best, &row.unrestricted].into_iter().flatten() {
        if !others.contains(&other.as_str()) {
            others.push(other);
        }
    }
    let others = others
        .into_iter()
        .filter_map(|other| results.row(&row.cell, other));
    Grid::new(caption, heads).with(std::iter::once(row).chain(others).map(line))
}

/// Heat maps: the lost cells, then one for each device.
fn maps(results: &Results) -> Section {
    let policies = columns(results);
    let lost: BTreeSet<&Cell> = results
        .judged
        .iter()
        .flat_map(|p| results.lost(p))
        .map(|r| &r.cell)
        .collect();
    let mut cells: Vec<&Cell> = results.report.rows.iter().map(|row| &row.cell).collect();
    cells.sort();
    cells.dedup();
    let mut devices: Vec<&str> = cells.iter().map(|cell| cell.device.as_str()).collect();
    devices.sort_unstable();
    devices.dedup();
    let row = |name: String, cell: &Cell| {
        let ratios = policies
            .iter()
            .map(|policy| results.row(cell, policy).and_then(|row| row.ratio))
            .collect();
        HeatRow { name, ratios }
    };
    let figure = |title: &str, rows: Vec<HeatRow>| {
        let what = about(
            "A box for each cell and policy, larger where the policy is slower than the best opponent",
        );
        let svg = heat::draw(
            &format!("Time over that of the best opponent: {title}"),
            &what,
            &policies,
            &rows,
        );
        Figure {
            title: title.to_string(),
            svg,
            caption: String::new(),
        }
    };
    let mut figures = Vec::new();
    if !lost.is_empty() {
        let name = |cell: &Cell| format!("{} {}", cell.workload, cell.device);
        figures.push(figure(
            "lost cells",
            lost.iter().map(|cell| row(name(cell), cell)).collect(),
        ));
    }
    for device in devices {
        let name = |cell: &Cell| format!("{} {}", cell.workload, number::size(cell.cache));
        let of_device = cells
            .iter()
            .filter(|cell| cell.device == device)
            .map(|cell| row(name(cell), cell))
            .collect();
        figures.push(figure(device, of_device));
    }
    let numbered: Vec<String> = policies
        .iter()
        .enumerate()
        .map(|(i, p)| format!("{} {p}", i + 1))
        .collect();
    let columns = numbered.join(", ");
    let text = format!(
        "The time of each policy over that of the best opponent of the cell. Columns: {columns}."
    );
    let maps = Maps {
        title: "Cells by policy".to_string(),
        text,
        legend: heat::legend(),
        figures,
    };
    let grids = vec![ratios(&cells, &policies, results)];
    Section {
        title: "All cells".to_string(),
        maps: Some(maps),
        grids,
        ..Section::default()
    }
}

/// Judged policies first, then the others by their mean; the oracle is no column.
fn columns(results: &Results) -> Vec<String> {
    let others = results.report.totals.iter().map(|total| &total.policy);
    let others = others.filter(|policy| !results.judged.contains(policy) && *policy != ORACLE);
    let measured = |policy: &&String| {
        results
            .report
            .totals
            .iter()
            .any(|total| total.policy == **policy)
    };
    results
        .judged
        .iter()
        .filter(measured)
        .chain(others)
        .take(MAX_POLICIES)
        .cloned()
        .collect()
}

/// The values of the maps.
fn ratios(cells: &[&Cell], policies: &[String], results: &Results) -> Grid {
    let heads = [
        "workload".to_string(),
        "device".to_string(),
        "cache".to_string(),
    ];
    let line = |cell: &&Cell| {
        let mut line = vec![
            cell.workload.clone(),
            cell.device.clone(),
            number::size(cell.cache),
        ];
        let ratio = |policy: &String| {
            or_dash(
                results.row(cell, policy).and_then(|row| row.ratio),
                number::times,
            )
        };
        line.extend(policies.iter().map(ratio));
        line
    };
    let heads = heads.into_iter().chain(policies.iter().cloned());
    let mut grid = Grid::new("The maps in numbers", heads).with(cells.iter().map(line));
    grid.folded = true;
    grid
}

fn targets(policy: &str, targets: &[Target]) -> Grid {
    let heads = ["target", "limit", "value", "verdict", "worst cell"];
    let line = |target: &Target| {
        let bound = if target.at_least {
            "at least"
        } else {
            "at most"
        };
        let verdict = target
            .met()
            .map_or("not measured", |met| if met { "met" } else { "missed" });
        vec![
            target.what.to_string(),
            format!("{bound} {}", target.limit),
            value(target),
            verdict.to_string(),
            or_dash(target.cell.as_ref(), cell_name),
        ]
    };
    let mut grid = Grid::new(format!("Targets of {policy}"), heads).with(targets.iter().map(line));
    grid.strong = (0..targets.len())
        .filter(|i| targets[*i].met() == Some(false))
        .collect();
    grid
}

fn totals(results: &Results) -> Grid {
    let heads = [
        "policy",
        "mean against max=4M",
        "worst against best",
        "lost cells",
        "oracle's gain %",
        "overfetch",
    ];
    let totals = &results.report.totals;
    let line = |total: &Total| {
        std::iter::once(total.policy.clone())
            .chain(figures(total))
            .collect()
    };
    let mut grid = Grid::new("Totals", heads).with(totals.iter().map(line));
    grid.strong = (0..totals.len())
        .filter(|i| results.judged.contains(&totals[*i].policy))
        .collect();
    grid
}
