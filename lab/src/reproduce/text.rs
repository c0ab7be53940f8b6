//! The tables of a reproduction for the terminal, at most 80 columns wide.
//!
//! ```text
//!   seed 001  marks: ...
//!   row            column        published    ours   error  role
//!   128K           MB/s, fitted      30.53   30.06  -1.5 %  fit     ok
//! ```
//!
//! Never: a figure that is not in the JSON, or a question to the terminal.

use super::{ORDER, Reproduction, Role, Row, Table};
use crate::report::number;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table as Grid, presets};

/// Widest line, in characters.
pub const WIDTH: usize = 80;
/// Longest row name and column name before they are cut.
const LABEL: usize = 27;
const COLUMN: usize = 19;

/// Every table with its reasons, then what it comes to. Ends with a newline.
#[must_use]
pub fn render(done: &Reproduction) -> String {
    let mut lines = Vec::new();
    for table in &done.tables {
        lines.extend(number::wrap(&format!("seed {}: {}", table.seed, table.table), WIDTH));
        lines.extend(grid(table));
        lines.extend(reasons(table));
        lines.push(String::new());
    }
    lines.extend(number::wrap(&summary(done), WIDTH));
    for (table, row) in done.missed() {
        let reason = row.reason.as_deref().map_or(String::new(), |reason| format!(": {reason}"));
        let line = format!("missed: {} {}, {}, {}{reason}", table.seed, table.table, row.label, row.column);
        lines.extend(number::wrap(&line, WIDTH));
    }
    lines.join("\n") + "\n"
}

fn grid(table: &Table) -> Vec<String> {
    let mut grid = Grid::new();
    grid.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    grid.set_header(aligned(["row", "column", "published", "ours", "error", "role", ""].map(String::from)));
    for row in &table.rows {
        grid.add_row(aligned(cells(row)));
    }
    for (i, column) in grid.column_iter_mut().enumerate() {
        column.set_padding((u16::from(i > 0), 0));
    }
    grid.lines().map(|line| line.trim_end().to_string()).collect()
}

fn aligned(texts: [String; 7]) -> Vec<Cell> {
    let side = |at| if (2..5).contains(&at) { CellAlignment::Right } else { CellAlignment::Left };
    texts.into_iter().enumerate().map(|(at, text)| Cell::new(text).set_alignment(side(at))).collect()
}

fn cells(row: &Row) -> [String; 7] {
    let mark = match (row.role, row.ok) {
        (Role::Shown | Role::Input, true) => "",
        (_, true) => "ok",
        (_, false) => "MISSED",
    };
    [
        number::cut(&row.label, LABEL),
        number::cut(&row.column, COLUMN),
        number::or_dash(row.published, figure),
        number::or_dash(row.ours, figure),
        number::or_dash(row.error, percent),
        row.role.name().to_string(),
        mark.to_string(),
    ]
}

/// Four significant digits, and whole numbers as they are.
fn figure(value: f64) -> String {
    if value == value.round() && value.abs() < 1e9 {
        return format!("{value:.0}");
    }
    let digits = 3 - value.abs().max(1e-3).log10().floor() as i32;
    format!("{value:.*}", digits.clamp(0, 4) as usize)
}

/// A signed error in per cent; `0` where there is none.
fn percent(error: f64) -> String {
    if error.abs() < 5e-5 { "0".to_string() } else { format!("{:+.1} %", error * 100.0) }
}

/// Each reason once, with the rows that it is for where these are not all.
fn reasons(table: &Table) -> Vec<String> {
    let mut seen: Vec<(&str, Vec<&Row>)> = Vec::new();
    for row in &table.rows {
        let Some(reason) = row.reason.as_deref() else { continue };
        match seen.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, rows)) => rows.push(row),
            None => seen.push((reason, vec![row])),
        }
    }
    let line = |(reason, rows): (&str, Vec<&Row>)| {
        let whom = match rows.as_slice() {
            [one] => format!("{}, {}", one.label, one.column),
            [first, .., last] => format!("{}, {} to {}, {}", first.label, first.column, last.label, last.column),
            [] => String::new(),
        };
        number::wrap(&format!("- {whom}: {reason}."), WIDTH)
    };
    seen.into_iter().flat_map(line).collect()
}

/// One line: how many of each role, how many checks were met, the largest error of a check and of a fit. Orders have no
/// error: one of two is larger.
#[must_use]
pub fn summary(done: &Reproduction) -> String {
    let checks = done.count(Role::Check);
    let worst = |role: Role| {
        let figures = done.rows().filter(|r| r.role == role && !r.column.starts_with(ORDER));
        let errors = figures.filter_map(|r| r.error.map(f64::abs));
        errors.fold(0.0, f64::max) * 100.0
    };
    format!(
        "{checks} checks, {} ok; {} fits (worst {:.1} %), {} inputs, {} shown. Worst error of a check {:.1} %.",
        checks - done.missed().count(),
        done.count(Role::Fit),
        worst(Role::Fit),
        done.count(Role::Input),
        done.count(Role::Shown),
        worst(Role::Check),
    )
}

/// The error line of a call whose checks were not all met: how many, and the first of them.
#[must_use]
pub fn missed_line(done: &Reproduction, missed: usize) -> String {
    let first = done.missed().next().map_or(String::new(), |(table, row)| {
        format!(": seed {} {}, {}, {}", table.seed, table.table, row.label, row.column)
    });
    format!("{missed} of {} checks not met{first}; the table has the figures", done.count(Role::Check))
}
