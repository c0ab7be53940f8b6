//! Formats a reproduction as text, at most 80 columns wide: the verdict and the score first, then the tables.
//!
//! ```text
//!   460 of 481 checks hold: 21 known misses
//!   kind                    rows   ok  missed/off   median   worst
//!   predicted blind           12    2          10   20.7 %   213 %
//!   ...
//!   [Wu 2010a] sequential readers on HP EVA
//!   row                column   published    ours   ratio  kind
//!   4 readers, 128K    KB/s        132351  132405   1.000  fit     ok
//! ```

use super::{FigureKind, Reproduction, Row, Score, Table};
use foreread_report::block::{self, Block, Column};
use foreread_report::number::{self, or_dash};

/// Maximum width of a line of the text, in characters.
pub const WIDTH: usize = 80;
/// Maximum length of the names of a row and a column; longer names are cut.
const LABEL: usize = 24;
const COLUMN: usize = 19;
/// Maximum number of rows that a reason names individually.
const MAX_NAMED: usize = 3;

/// Formats the reproduction as text, which ends with a newline.
pub fn text(done: &Reproduction) -> String {
    let mut blocks = vec![
        Block::Text(verdict(done)),
        Block::Gap,
        Block::Table(score(done)),
        Block::Text(effects(done)),
    ];
    for table in &done.tables {
        blocks.extend([Block::Gap, Block::Text(title(table))]);
        blocks.extend(self::table(table));
    }
    blocks.push(Block::Gap);
    let missed = done.missed().map(|(table, row)| missed(table, row));
    blocks.extend(missed.map(Block::Text));
    block::text(blocks, WIDTH, false)
}

/// Returns a line that states how many checks pass, and how many of the failed checks are known misses.
pub fn verdict(done: &Reproduction) -> String {
    let checks = done.rows().filter(|(_, row)| row.kind.is_check()).count();
    let (missed, new) = (done.missed().count(), done.new_misses().count());
    let record = match (missed, new) {
        (0, _) => "none missed".to_string(),
        (all, 0) => format!("{all} known misses"),
        (all, new) => format!("{new} newly MISSED, {} known misses", all - new),
    };
    format!("{} of {checks} checks hold: {record}.", checks - missed)
}

/// How much of the published effects is reproduced, because the verdict of an order does not show this.
fn effects(done: &Reproduction) -> String {
    let orders = done.score.iter().filter(|s| s.effects > 0);
    let text = |s: &Score| {
        let (shown, all) = (s.effects_within_half, s.effects);
        format!("{shown} of {all} published effects are reproduced to within half of their size.")
    };
    orders.map(text).collect()
}

fn title(table: &Table) -> String {
    format!("{} {}", table.citation, table.table)
}

fn missed(table: &Table, row: &Row) -> String {
    let known = if row.known_miss { " (known)" } else { "" };
    let [published, ours] = [row.published, row.ours].map(|value| or_dash(value, figure));
    format!(
        "Missed{known}: {}, {}, {}: published {published}, ours {ours}.",
        title(table),
        row.row,
        row.column
    )
}

/// One line for each kind.
fn score(done: &Reproduction) -> block::Table {
    type ScoreColumn<'a> = Column<'a, Score>;
    let judged = |s: &Score, n: usize| match s.kind {
        FigureKind::Shown => "-".to_string(),
        _ => n.to_string(),
    };
    let error = |error: f64| format!("{:.1} %", error * 100.0);
    let columns = vec![
        ScoreColumn::new("kind", |s| s.kind.names()[1].to_string()).left(),
        ScoreColumn::new("rows", |s| s.rows.to_string()),
        ScoreColumn::new("ok", move |s| judged(s, s.ok)),
        ScoreColumn::new("missed/off", move |s| judged(s, s.missed)),
        ScoreColumn::new("median error", move |s| or_dash(s.median_error, error)),
        ScoreColumn::new("worst", move |s| or_dash(s.worst_error, error)),
    ];
    block::Table::new("", columns, &done.score)
}

/// A table, then each reason once, with its rows.
fn table(of: &Table) -> Vec<Block> {
    type RowColumn<'a> = Column<'a, Row>;
    let columns = vec![
        RowColumn::new("row", |row| number::cut(&row.row, LABEL)).left(),
        RowColumn::new("column", |row| number::cut(&row.column, COLUMN)).left(),
        RowColumn::new("published", |row| or_dash(row.published, figure)),
        RowColumn::new("ours", |row| or_dash(row.ours, figure)),
        RowColumn::new("ratio", |row| or_dash(row.ratio, |r| format!("{r:.3}"))),
        RowColumn::new("kind", |row| row.kind.names()[0].to_string()).left(),
        RowColumn::new("", |row| mark(row).to_string()).left(),
    ];
    let mut blocks = vec![Block::Table(block::Table::new("", columns, &of.rows))];
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in &of.rows {
        let Some(reason) = row.reason.as_deref() else {
            continue;
        };
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, rows)) if rows.contains(&row.row.as_str()) => {}
            Some((_, rows)) => rows.push(&row.row),
            None => reasons.push((reason, vec![&row.row])),
        }
    }
    blocks.extend(reasons.into_iter().map(|(reason, rows)| {
        let rows = match &rows[..] {
            [first, .., last] if rows.len() > MAX_NAMED => format!("{first} to {last}"),
            rows => rows.join("; "),
        };
        Block::Text(format!("- {rows}: {reason}."))
    }));
    blocks
}

fn mark(row: &Row) -> &'static str {
    match (row.ok, row.kind) {
        _ if row.holds.is_empty() => "",
        (true, _) => "ok",
        (false, _) if row.known_miss => "missed",
        (false, kind) if kind.is_check() => "MISSED",
        (false, _) => "off",
    }
}

/// Four significant digits; whole numbers are unchanged.
fn figure(value: f64) -> String {
    if value == value.round() && value.abs() < 1e9 {
        return format!("{value:.0}");
    }
    let digits = 3 - value.abs().max(1e-3).log10().floor() as i32;
    format!("{value:.*}", digits.clamp(0, 4) as usize)
}
