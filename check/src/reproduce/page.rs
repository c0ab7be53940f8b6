//! The HTML page of `reproduce`: each published table beside ours, with its error and what the row is worth.
//!
//! Where the rows of a column are sizes, both are drawn over them. The first lines of the page name each missed check.

use super::score::Score;
use super::{Reproduction, Role, Row, Table, text};
use foreread_core::units::parse_size;
use foreread_report::block::{self, Block, Column};
use foreread_report::chart::looks;
use foreread_report::number::{self, or_dash};
use foreread_report::page::curves::{Axis, Curve, CurvePoint, Curves};
use foreread_report::page::{Figure, Page, Section, about};

/// Fewer points than these make no curve.
const MIN_POINTS: usize = 3;
/// Missed checks that are named at the top; more are counted.
const MAX_NAMED: usize = 5;

#[must_use]
pub fn page(of: &Reproduction) -> String {
    let known = of.missed().filter(|(_, row)| row.known_miss);
    let missed: Vec<String> = of
        .new_misses()
        .chain(known)
        .map(|(table, row)| missed(table, row))
        .collect();
    let mut lead = vec![format!("{}.", text::verdict(of))];
    lead.extend(
        missed
            .iter()
            .take(MAX_NAMED)
            .map(|m| format!("Missed: {m}.")),
    );
    if missed.len() > MAX_NAMED {
        lead.push(format!(
            "{} more were missed; they are bold in their tables.",
            missed.len() - MAX_NAMED
        ));
    }
    let page = Page {
        title: "The published tables, made again".to_string(),
        lead: ("Result", lead),
        facts: of.score.iter().map(fact).collect(),
        sections: of.tables.iter().map(section).collect(),
        ..Page::default()
    };
    page.to_html(&of.to_json())
}

fn missed(table: &Table, row: &Row) -> String {
    let known = if row.known_miss { " (on record)" } else { "" };
    format!(
        "{} {}: {} {}{known}",
        table.citation(),
        table.table,
        row.label,
        row.column
    )
}

/// A kind of row: how many, how many are ok, and their errors.
fn fact(score: &Score) -> (String, String) {
    let percent = |e: f64| format!("{:.1} %", e * 100.0);
    let errors = score.median_error.zip(score.worst_error);
    let errors = errors.map_or(String::new(), |(median, worst)| {
        format!(
            "; errors of {}: median {}, worst {}",
            score.sized,
            percent(median),
            percent(worst)
        )
    });
    (
        score.kind.title().to_string(),
        format!("{} rows, {} ok{errors}", score.rows, score.ok),
    )
}

fn section(table: &Table) -> Section {
    let mut columns: Vec<&str> = Vec::new();
    table.rows.iter().for_each(|row| {
        if !columns.contains(&row.column.as_str()) {
            columns.push(&row.column);
        }
    });
    let figures = columns.iter().filter_map(|column| figure(table, column));
    let blocks = figures
        .map(Block::Figure)
        .chain([Block::Table(rows(table))]);
    block::section(format!("{} {}", table.citation(), table.table), blocks)
}

fn rows(table: &Table) -> block::Table {
    type RowColumn<'a> = Column<'a, Row>;
    let is_missed = |row: &Row| row.role == Role::Check && !row.ok;
    let ok = move |row: &Row| match row.ok {
        true => "yes",
        false if is_missed(row) => "MISSED",
        false => "no",
    };
    let columns = vec![
        RowColumn::new("row", |row| row.label.clone()),
        RowColumn::new("column", |row| row.column.clone()),
        RowColumn::new("published", |row| pair(row)[0].clone()),
        RowColumn::new("ours", |row| pair(row)[1].clone()),
        RowColumn::new("error %", |row| or_dash(row.error, number::signed_percent)),
        RowColumn::new("kind", |row| row.kind.name().to_string()),
        RowColumn::new("ok", move |row| ok(row).to_string()),
        RowColumn::new("reason", |row| row.reason.clone().unwrap_or_default()),
        RowColumn::new("id", |row| row.id.clone()),
    ];
    let mut rows = block::Table::new("", columns, &table.rows);
    rows.strong = (0..table.rows.len())
        .filter(|i| is_missed(&table.rows[*i]))
        .collect();
    rows
}

/// Published and ours, with as many digits as show that they differ. The longest printed figure has seven digits; means of printed seconds
/// have no end.
fn pair(row: &Row) -> [String; 2] {
    const DIGITS: usize = 7;
    match row.published.zip(row.ours) {
        Some((published, ours)) => number::beside(published, ours, DIGITS),
        None => [row.published, row.ours].map(|v| or_dash(v, |v| number::significant(v, DIGITS))),
    }
}

/// Published and ours over the sizes of a column. None where its rows are no sizes.
fn figure(table: &Table, column: &str) -> Option<Figure> {
    let rows = || table.rows.iter().filter(|r| r.column == column);
    let sizes: Option<Vec<f64>> = rows()
        .map(|r| parse_size(&r.label).ok().map(|b| b as f64))
        .collect();
    let sizes = sizes.filter(|s| s.len() >= MIN_POINTS && s.iter().all(|b| *b > 0.0))?;
    let line = |name: &str, colour: usize, of: fn(&Row) -> Option<f64>| {
        let at = |(x, row): (&f64, &Row)| {
            of(row).map(|y| CurvePoint {
                x: *x,
                y,
                interval: [y, y],
                marked: true,
            })
        };
        let mut points: Vec<CurvePoint> = sizes.iter().zip(rows()).filter_map(at).collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        Curve {
            name: name.to_string(),
            points,
            colour,
            ..Curve::default()
        }
    };
    let curves = Curves {
        title: format!("{column}: {}", table.table),
        about: about("Published and ours over the sizes"),
        x_title: "bytes (K = 1024)".to_string(),
        y_title: column.to_string(),
        x_show: number::three,
        x_ticks: sizes
            .iter()
            .copied()
            .zip(rows().map(|r| r.label.clone()))
            .collect(),
        log: true,
        y: Axis::Fitting,
        lines: vec![
            line("published", looks::OTHERS, |r| r.published),
            line("ours", looks::OURS, |r| r.ours),
        ],
    };
    Some(Figure::new(curves.draw(), ""))
}
