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

/// What the roles mean, before the sums.
const ROLES: [&str; 4] = [
    "check: predicted, the model had not been fitted to it; a miss fails the call",
    "fit:   a model or a workload was fitted to it; 'off' is outside its bound",
    "input: put in as published",
    "shown: no target; the reason stands below its table",
];

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
    lines.extend(ROLES.iter().map(ToString::to_string));
    lines.extend(by_seed(done));
    lines.extend(number::wrap(&format!("all: {}", summary(done)), WIDTH));
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
        (Role::Check, false) => "MISSED",
        (_, false) => "off",
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

/// Each reason once, with the rows that it is for.
fn reasons(table: &Table) -> Vec<String> {
    let mut seen: Vec<(&str, Vec<&Row>)> = Vec::new();
    for row in &table.rows {
        let Some(reason) = row.reason.as_deref() else { continue };
        match seen.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, rows)) => rows.push(row),
            None => seen.push((reason, vec![row])),
        }
    }
    let all = distinct(&table.rows, |row| &row.label);
    let line = |(reason, rows): (&str, Vec<&Row>)| {
        let labels = distinct(rows.iter().copied(), |row| &row.label);
        let labels = if labels.len() == all.len() && all.len() > 1 { "all".to_string() } else { some(&labels, "; ") };
        let columns = some(&distinct(rows.iter().copied(), |row| &row.column), " and ");
        number::wrap(&format!("- {labels} ({columns}): {reason}."), WIDTH)
    };
    seen.into_iter().flat_map(line).collect()
}

/// Each text once, in the order of the rows.
fn distinct<'a>(rows: impl IntoIterator<Item = &'a Row>, text: impl Fn(&'a Row) -> &'a String) -> Vec<&'a str> {
    let mut texts: Vec<&str> = Vec::new();
    for row in rows {
        let text = text(row).as_str();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts
}

/// The texts, or the first, the last and how many.
fn some(texts: &[&str], between: &str) -> String {
    match texts {
        [first, .., last] if texts.len() > 3 => format!("{first} to {last}, {} of them", texts.len()),
        texts => texts.join(between),
    }
}

/// One line: how many of each role and how many of these are within their bounds, the largest error of a check and of
/// a fit. A role that nothing has is left out. Orders have no error: one of two is larger.
#[must_use]
pub fn summary(done: &Reproduction) -> String {
    tally(&done.rows().collect::<Vec<_>>())
}

fn tally(rows: &[&Row]) -> String {
    let part = |role: Role| {
        let of: Vec<&&Row> = rows.iter().filter(|r| r.role == role).collect();
        let ok = of.iter().filter(|r| r.ok).count();
        let errors = of.iter().filter(|r| !r.column.starts_with(ORDER)).filter_map(|r| r.error);
        let worst = errors.map(f64::abs).reduce(f64::max);
        let worst = worst.map_or(String::new(), |error| format!(" (worst error {:.1} %)", error * 100.0));
        let plural = if of.len() == 1 || role == Role::Shown { "" } else { "s" };
        match role {
            _ if of.is_empty() => None,
            Role::Check | Role::Fit => Some(format!("{} {}{plural}, {ok} ok{worst}", of.len(), role.name())),
            Role::Input | Role::Shown => Some(format!("{} {}{plural}", of.len(), role.name())),
        }
    };
    [Role::Check, Role::Fit, Role::Input, Role::Shown].into_iter().filter_map(part).collect::<Vec<_>>().join("; ")
}

/// The summary of each seed where there are several.
fn by_seed(done: &Reproduction) -> Vec<String> {
    let mut seeds: Vec<&str> = done.tables.iter().map(|t| t.seed.as_str()).collect();
    seeds.dedup();
    let line = |seed: &str| {
        let rows: Vec<&Row> = done.tables.iter().filter(|t| t.seed == seed).flat_map(|t| &t.rows).collect();
        number::wrap(&format!("seed {seed}: {}", tally(&rows)), WIDTH)
    };
    if seeds.len() < 2 { Vec::new() } else { seeds.into_iter().flat_map(line).collect() }
}

/// The error line of a call whose checks were not all met: how many, and the first of them.
#[must_use]
pub fn missed_line(done: &Reproduction, missed: usize) -> String {
    let first = done.missed().next().map_or(String::new(), |(table, row)| {
        format!(": seed {} {}, {}, {}", table.seed, table.table, row.label, row.column)
    });
    format!("{missed} of {} checks not met{first}; the table has the figures", done.count(Role::Check))
}
