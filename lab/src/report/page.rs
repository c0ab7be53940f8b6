//! The HTML page of `compare`: the advice, then the rows, the latencies and the bytes of each table.

use crate::report::row::{Report, Row, to_json};
use crate::report::screen::lead;
use crate::report::table::{self, RowColumn};
use foreread_report::block::{Block, Table};
use foreread_report::number::{self, latency_us, mb, or_dash};
use foreread_report::page::{Page, Section, fact};

/// Creates the HTML page of these reports, with the verdict and the next command to paste.
pub fn compare(reports: &[Report], why: Option<&str>, next: Vec<[String; 3]>) -> String {
    let alone = reports.len() == 1;
    let sections = reports.iter().map(|report| section(report, alone));
    let title = match reports {
        [one] => title(one),
        several => title_of_several(several),
    };
    let page = Page {
        title,
        lead: lead(why),
        facts: reports.first().map_or_else(Vec::new, |r| facts(r, alone)),
        sections: sections.collect(),
        next,
    };
    page.to_html(&to_json(reports))
}

fn title_of_several(reports: &[Report]) -> String {
    const MAX_NAMED: usize = 4;
    let names: Vec<&str> = reports
        .iter()
        .map(|report| report.workload.as_str())
        .collect();
    let place = reports.first().map(|report| &report.source);
    let is_one_place = reports.iter().all(|report| Some(&report.source) == place);
    match (&names[..], place) {
        ([first @ .., last], Some(place)) if is_one_place && names.len() <= MAX_NAMED => {
            format!("{} and {last} on {place}", first.join(", "))
        }
        _ => format!("{} comparisons of readahead", reports.len()),
    }
}

fn title(report: &Report) -> String {
    format!("{} on {}", report.workload, report.source)
}

fn facts(report: &Report, all: bool) -> Vec<(String, String)> {
    let mut facts = vec![
        fact("foreread", report.foreread.clone()),
        fact("seed", report.seed.to_string()),
    ];
    if all {
        facts.extend(measured(report));
    }
    facts.push(fact(
        "tests",
        format!("paired t, Holm, alpha {}", report.alpha),
    ));
    facts
}

fn measured(report: &Report) -> Vec<(String, String)> {
    let mut facts = vec![
        fact("runs of each", report.runs.to_string()),
        fact("cache", number::size(report.cache_bytes)),
        fact("page", number::size(report.page_bytes)),
    ];
    if !report.source_about.is_empty() {
        facts.push(fact("source", report.source_about.clone()));
    }
    facts
}

/// The section of one report. `alone`: the head of the page says on what it was measured.
fn section(report: &Report, alone: bool) -> Section {
    let mut blocks = Vec::new();
    let mut title = "What was measured".to_string();
    if !alone {
        let facts: Vec<String> = measured(report)
            .iter()
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        blocks.push(Block::Note(format!("Measured: {}", facts.join("; "))));
        title = self::title(report);
    }
    blocks.push(Block::Page(verdict(report)));
    blocks.extend(table::limits(report).into_iter().map(Block::Note));
    blocks.extend(report.notes.iter().cloned().map(Block::Note));
    blocks.extend([table::rows(report), rest(report)].map(Block::Table));
    Section { title, blocks }
}

/// Which rows may be the fastest.
fn verdict(report: &Report) -> String {
    match &report.best[..] {
        [] => "No significance test was possible, so no row is called the fastest.".to_string(),
        [one] => format!("The fastest is {one}."),
        several => {
            // The marks are those of the table.
            format!("{}: {}.", table::tied(report), several.join(", "))
        }
    }
}

/// The table of latencies and of bytes by use.
fn rest(report: &Report) -> Table {
    let demand = |row: &Row| {
        let all = row.source_bytes.zip(row.ra_bytes);
        all.map(|(all, ahead)| all.saturating_sub(ahead))
    };
    let columns = vec![
        RowColumn::new("policy", |row| row.policy.clone()).left(),
        RowColumn::new("p50", |row| or_dash(row.p50_us, latency_us)),
        RowColumn::new("p95", |row| or_dash(row.p95_us, latency_us)),
        RowColumn::new("p99", |row| or_dash(row.p99_us, latency_us)),
        RowColumn::new("p99.9", |row| or_dash(row.p999_us, latency_us)),
        RowColumn::new("max", |row| or_dash(row.max_us, latency_us)),
        RowColumn::new("demand MB", move |row| mb(demand(row))),
        RowColumn::new("used MB", |row| mb(row.used_bytes)),
        RowColumn::new("unused MB", |row| mb(row.unused_bytes)),
        RowColumn::new("not used yet MB", |row| mb(row.unresolved_bytes)),
    ];
    let caption = "Latencies, and bytes by their use";
    Table::new(caption, columns, &report.rows)
}
