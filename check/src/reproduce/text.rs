//! A reproduction for the terminal, at most 80 columns wide: the verdict and the score first, then the tables.
//!
//! ```text
//!   200 of 203 checks are met; 3 missed, all on record
//!   kind             rows   ok  missed  median   worst
//!   predicted blind    11    9       2  4.0 %   61.0 %
//!   ...
//!   [Wu 2010b] marks: ...
//!   row            column        published    ours   error  kind
//!   128K           MB/s, fitted      30.53   30.06  -1.5 %  fit     ok
//! ```
//!
//! Never: a figure that is not in the JSON, or a question to the terminal.

use super::score::{self, Score};
use super::{FigureKind, Reproduction, Role, Row, Table};
use foreread_report::block::{self, Block, Column};
use foreread_report::number;

/// Widest line, in characters.
pub const WIDTH: usize = 80;
/// Longest row name and column name before they are cut.
const LABEL: usize = 24;
const COLUMN: usize = 19;

/// The verdict and the score, every table with its reasons, then the verdict again and the misses. Ends with a newline.
#[must_use]
pub fn render(done: &Reproduction) -> String {
    let of_kind = |s: &Score, text| format!("{}: {text}", s.kind.name());
    let about = done
        .score
        .iter()
        .map(|s| of_kind(s, s.kind.about().to_string()));
    let effects = done
        .score
        .iter()
        .filter_map(|s| Some(of_kind(s, s.effects_shown()?)));
    let mut blocks = vec![
        Block::Text(verdict(done)),
        Block::Gap,
        Block::Table(score_table(&done.score)),
        Block::Gap,
        Block::Lines(about.chain(effects).collect()),
    ];
    blocks.extend(by_paper(done));
    blocks.push(Block::Gap);
    for table in &done.tables {
        blocks.push(Block::Text(format!("{} {}", table.citation(), table.table)));
        blocks.push(Block::Table(rows(table)));
        blocks.extend(reasons(table));
        blocks.push(Block::Gap);
    }
    blocks.extend((done.count(Role::Check) > 0).then(|| Block::Text(verdict(done))));
    blocks.extend(
        done.missed()
            .map(|(table, row)| Block::Text(missed(table, row))),
    );
    block::text(blocks, WIDTH, false)
}

/// How many checks are met, and of those that are missed, how many are on record.
#[must_use]
pub fn verdict(done: &Reproduction) -> String {
    let (checks, missed) = (done.count(Role::Check), done.missed().count());
    if checks == 0 {
        return "Shown beside the published figures, without a verdict: the hardware is another"
            .to_string();
    }
    let record = match (missed, done.new_misses().count()) {
        (0, _) => "none missed".to_string(),
        (all, 0) => format!("{all} missed before, on record"),
        (all, new) => format!("{new} MISSED, {} missed before, on record", all - new),
    };
    format!("{} of {checks} checks are met: {record}", checks - missed)
}

fn missed(table: &Table, row: &Row) -> String {
    let known = if row.known_miss {
        "missed, on record"
    } else {
        "MISSED"
    };
    let value = |v: Option<f64>| number::or_dash(v, figure);
    let figures = format!(
        "published {}, ours {}",
        value(row.published),
        value(row.ours)
    );
    let reason = row
        .reason
        .as_deref()
        .map_or(String::new(), |reason| format!(": {reason}"));
    format!(
        "{known}: {} {}, {}, {}: {figures}{reason}",
        table.citation(),
        table.table,
        row.label,
        row.column
    )
}

/// One line for each kind.
fn score_table(score: &[Score]) -> block::Table {
    type ScoreColumn<'a> = Column<'a, Score>;
    let judged = |s: &Score, number: usize| {
        let number = (s.kind != FigureKind::Shown).then_some(number);
        number::or_dash(number, |number| number.to_string())
    };
    let columns = vec![
        ScoreColumn::new("kind", |s| s.kind.title().to_string()).left(),
        ScoreColumn::new("rows", |s| s.rows.to_string()),
        ScoreColumn::new("ok", move |s| judged(s, s.ok)),
        ScoreColumn::new("missed/off", move |s| judged(s, s.missed)),
        ScoreColumn::new("sized", |s| s.sized.to_string()),
        ScoreColumn::new("median", |s| number::or_dash(s.median_error, unsigned)),
        ScoreColumn::new("worst", |s| number::or_dash(s.worst_error, unsigned)),
    ];
    block::Table::new("", columns, score)
}

fn rows(table: &Table) -> block::Table {
    type RowColumn<'a> = Column<'a, Row>;
    let columns = vec![
        RowColumn::new("row", |row| number::cut(&row.label, LABEL)).left(),
        RowColumn::new("column", |row| number::cut(&row.column, COLUMN)).left(),
        RowColumn::new("published", |row| number::or_dash(row.published, figure)),
        RowColumn::new("ours", |row| number::or_dash(row.ours, figure)),
        RowColumn::new("error", |row| number::or_dash(row.error, percent)),
        RowColumn::new("kind", |row| row.kind.name().to_string()).left(),
        RowColumn::new("", |row| mark(row).to_string()).left(),
    ];
    block::Table::new("", columns, &table.rows)
}

fn mark(row: &Row) -> &'static str {
    match (row.kind, row.ok) {
        (FigureKind::Shown | FigureKind::Input, true) => "",
        (_, true) => "ok",
        (_, false) if row.known_miss => "missed",
        (kind, false) if kind.is_check() => "MISSED",
        (_, false) => "off",
    }
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
    let decimals = usize::from(error.abs() < 1.0);
    if error.abs() < 5e-5 {
        "0".to_string()
    } else {
        format!("{:+.decimals$} %", error * 100.0)
    }
}

/// An error without its sign in per cent.
fn unsigned(error: f64) -> String {
    if error < 5e-5 {
        "0".to_string()
    } else {
        format!("{:.1} %", error * 100.0)
    }
}

/// Each reason once, with the rows that it is for.
fn reasons(table: &Table) -> Vec<Block> {
    let mut seen: Vec<(&str, Vec<&Row>)> = Vec::new();
    for row in &table.rows {
        let Some(reason) = row.reason.as_deref() else {
            continue;
        };
        match seen.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, rows)) => rows.push(row),
            None => seen.push((reason, vec![row])),
        }
    }
    let all = distinct(&table.rows, |row| &row.label);
    let line = |(reason, rows): (&str, Vec<&Row>)| {
        let labels = distinct(rows.iter().copied(), |row| &row.label);
        let labels = if labels.len() == all.len() && all.len() > 1 {
            "all".to_string()
        } else {
            some(&labels, "; ")
        };
        let columns = some(&distinct(rows.iter().copied(), |row| &row.column), " and ");
        Block::Text(format!("- {labels} ({columns}): {reason}."))
    };
    seen.into_iter().map(line).collect()
}

/// Each text once, in the order of the rows.
fn distinct<'a>(
    rows: impl IntoIterator<Item = &'a Row>,
    text: impl Fn(&'a Row) -> &'a String,
) -> Vec<&'a str> {
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
        [first, .., last] if texts.len() > 3 => {
            format!("{first} to {last}, {} of them", texts.len())
        }
        texts => texts.join(between),
    }
}

/// One line for each kind of which there are rows: how many, how many are ok, the median and the worst error.
#[must_use]
pub fn summary(done: &Reproduction) -> String {
    tally(&done.score)
}

fn tally(score: &[Score]) -> String {
    let part = |s: &Score| {
        let ok = if s.kind == FigureKind::Shown {
            String::new()
        } else {
            format!(", {} ok", s.ok)
        };
        let errors = s
            .median_error
            .zip(s.worst_error)
            .filter(|_| s.kind != FigureKind::Shown);
        let errors = errors.map_or(String::new(), |(m, w)| {
            format!(" ({}, worst {})", unsigned(m), unsigned(w))
        });
        format!("{} {}{ok}{errors}", s.rows, s.kind.name())
    };
    score.iter().map(part).collect::<Vec<_>>().join("; ")
}

/// The summary of each paper where there are several.
fn by_paper(done: &Reproduction) -> Vec<Block> {
    let mut papers: Vec<&str> = done.tables.iter().map(Table::citation).collect();
    papers.dedup();
    let line = |paper: &str| {
        let score = score::of(
            done.tables
                .iter()
                .filter(|t| t.citation() == paper)
                .flat_map(|t| &t.rows),
        );
        Block::Text(format!("{paper}: {}", tally(&score)))
    };
    if papers.len() < 2 {
        Vec::new()
    } else {
        papers.into_iter().map(line).collect()
    }
}

/// The error line of a call with new misses: how many, and the first of them.
#[must_use]
pub fn missed_line(done: &Reproduction, missed: usize) -> String {
    let first = done
        .new_misses()
        .next()
        .map_or(String::new(), |(table, row)| {
            format!(
                ": {} {}, {}, {}",
                table.citation(),
                table.table,
                row.label,
                row.column
            )
        });
    let checks = done.count(Role::Check);
    format!("{missed} of {checks} checks not met{first}; the table has the figures")
}
