//! The page of `foreread check bench policies`: lost cells with their reasons on top, then heat maps, targets and totals.
//!
//! A map for the lost cells and one for each device; a row is a cell, a column a policy, a box its time over that of the best
//! opponent. Each lost cell has a table of the policy beside that opponent and the sentence of `reason.rs`.
//!
//! The page holds the JSON. Of a design with more than [`MAX_ROWS`] rows it holds those of judged policies and of best opponents, and
//! says so; `--json` writes all of them.

use super::text::{bound, notes, totals, unjudged, value, why_lost};
use super::{Results, cell_name, json};
use crate::evaluation::{Cell, Row, Target};
use foreread_report::block::{self, Block, Column, Table};
use foreread_report::number::{self, mb, or_dash, span_s, three};
use foreread_report::page::heat::{self, HeatRow};
use foreread_report::page::{Figure, Maps, Page, Section, about};
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
    let all = &results.report.totals;
    let mut totals = totals(all);
    let is_judged = |i: &usize| results.judged.contains(&all[*i].policy);
    totals.strong = (0..all.len()).filter(is_judged).collect();
    let tables = results.targets.iter().map(|(policy, t)| targets(policy, t));
    let mut section = block::section(
        "Targets and totals",
        tables.chain([totals]).map(Block::Table),
    );
    section.notes = notes;
    sections.push(section);
    let page = Page {
        title: results.title(),
        lead: ("What the runs say", lead(results)),
        facts: facts
            .into_iter()
            .map(|(name, value)| (name.to_string(), value))
            .collect(),
        sections,
        ..Page::default()
    };
    page.to_html(&json::write(results, &keep))
}

/// A sentence for each judged policy.
fn lead(results: &Results) -> Vec<String> {
    let sentence = |(policy, targets): &(String, Vec<Target>)| {
        let of = |met| targets.iter().filter(|t| t.met() == met).count();
        let (missed, judged) = (of(Some(false)), of(Some(false)) + of(Some(true)));
        let is_partial = targets.iter().any(|t| t.is_partial);
        let targets = match (is_partial, judged) {
            (false, judged) => format!(" and misses {missed} of {judged} targets."),
            (true, 0) => ". No target is judged, as only a part of the design was run.".to_string(),
            (true, _) => format!(
                " and misses {}; {} are not judged, as only a part of the design was run.",
                number::plural(missed as u64, "target"),
                of(None)
            ),
        };
        let rows: Vec<&Row> = results.lost(policy).collect();
        let worst = rows.first().map_or_else(String::new, |row| {
            format!(
                " The worst is {} ({}).",
                cell_name(&row.cell),
                or_dash(row.ratio, number::times)
            )
        });
        format!(
            "{policy} loses {} of {} cells{targets}{worst}",
            rows.len(),
            results.cells[0]
        )
    };
    results.targets.iter().map(sentence).collect()
}

/// The lost cells of a policy, each beside its best opponent.
fn lost(results: &Results, policy: &str) -> Section {
    let rows: Vec<&Row> = results.lost(policy).collect();
    let undecided = results.undecided(policy);
    let none = || format!("{policy} loses none of {} cells.", results.cells[0]);
    let mut blocks: Vec<Block> = rows
        .is_empty()
        .then(|| Block::Text(none()))
        .into_iter()
        .collect();
    blocks.extend(rows.iter().map(|row| Block::Table(beside(results, row))));
    if !undecided.is_empty() {
        type RowColumn<'a> = Column<'a, Row>;
        let end = |row: &Row, i: usize| or_dash(row.ratio_ci95, |ends| three(ends[i]));
        let columns = vec![
            RowColumn::new("cell", |row| cell_name(&row.cell)),
            RowColumn::new("ratio", |row| or_dash(row.ratio, number::times)),
            RowColumn::new("95 % from", move |row| end(row, 0)),
            RowColumn::new("to", move |row| end(row, 1)),
            RowColumn::new("best opponent", |row| row.best.clone().unwrap_or_default()),
        ];
        let caption = "Slower by more than 5 %, but perhaps by chance";
        blocks.push(Block::Table(Table::new(caption, columns, undecided)));
    }
    block::section(format!("Lost cells of {policy}: {}", rows.len()), blocks)
}

/// A lost row and that of its best opponent, with the sentence that follows.
fn beside(results: &Results, row: &Row) -> Table {
    type RowColumn<'a> = Column<'a, Row>;
    let places = |value: f64| format!("{value:.3}");
    let columns = vec![
        RowColumn::new("policy", |row| row.policy.clone()),
        RowColumn::new("time s", |row| span_s(row.figures.time_s, None)),
        RowColumn::new("requests", |row| number::count(row.figures.requests)),
        RowColumn::new("overfetch", move |row| {
            or_dash(row.figures.overfetch, places)
        }),
        RowColumn::new("unused MB", |row| mb(Some(row.figures.unused_bytes))),
        RowColumn::new("stalled s", |row| span_s(row.figures.stall_s, None)),
        RowColumn::new("p99", |row| or_dash(row.figures.p99_us, number::latency_us)),
        RowColumn::new("held MiB s", |row| {
            three(row.figures.held_byte_s / f64::from(1 << 20))
        }),
        RowColumn::new("T95 round trips", |row| {
            or_dash(row.figures.t95_round_trips, three)
        }),
        RowColumn::new("flaps", |row| row.figures.flaps.to_string()),
    ];
    let interval = row.ratio_ci95.map_or_else(String::new, number::interval);
    let ratio = or_dash(row.ratio, number::times);
    let why = why_lost(results, row);
    let caption = format!("{}: {ratio}{interval}. {why}", cell_name(&row.cell));
    let mut others: Vec<&String> = [&row.best, &row.unrestricted]
        .into_iter()
        .flatten()
        .collect();
    others.dedup();
    let others = others
        .into_iter()
        .filter_map(|other| results.row(&row.cell, other));
    Table::new(caption, columns, std::iter::once(row).chain(others))
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
    let ratios = ratios(&cells, &policies, results);
    block::section("All cells", [Block::Maps(maps), Block::Table(ratios)])
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
fn ratios(cells: &[&Cell], policies: &[String], results: &Results) -> Table {
    type CellColumn<'a> = Column<'a, Cell>;
    let mut columns = vec![
        CellColumn::new("workload", |cell| cell.workload.clone()),
        CellColumn::new("device", |cell| cell.device.clone()),
        CellColumn::new("cache", |cell| number::size(cell.cache)),
    ];
    let ratio = |cell: &Cell, policy: &str| results.row(cell, policy).and_then(|row| row.ratio);
    columns.extend(policies.iter().map(|policy| {
        CellColumn::new(policy, move |cell| {
            or_dash(ratio(cell, policy), number::times)
        })
    }));
    let mut table = Table::new("The maps in numbers", columns, cells.iter().copied());
    table.folded = true;
    table
}

fn targets(policy: &str, targets: &[Target]) -> Table {
    type TargetColumn<'a> = Column<'a, Target>;
    let verdict = |met| if met { "met" } else { "missed" };
    let columns = vec![
        TargetColumn::new("target", |t| t.what.to_string()),
        TargetColumn::new("limit", |t| format!("{} {}", bound(t), t.limit)),
        TargetColumn::new("value", value),
        TargetColumn::new("verdict", move |t| {
            t.met().map_or_else(|| unjudged(t), verdict).to_string()
        }),
        TargetColumn::new("worst cell", |t| or_dash(t.cell.as_ref(), cell_name)),
    ];
    let mut table = Table::new(format!("Targets of {policy}"), columns, targets);
    let is_missed = |i: &usize| targets[*i].met() == Some(false);
    table.strong = (0..targets.len()).filter(is_missed).collect();
    table
}
