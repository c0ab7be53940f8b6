//! The explanation as text: a title line, the table of files, and how often each rule of the policy decided.

use super::watcher::never_read_bytes;
use super::{ExplainReport, File};
use crate::replay::Mode;
use foreread_core::policy::Why;
use foreread_core::stats::Stats;
use foreread_report::block::{self, Block, Column, Table};
use foreread_report::number::{self, TIE, count, cut, plural, printable, three};
use foreread_report::width;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Files in the table; the others are one row.
const MAX_FILES: usize = 12;
/// Files whose rules are shown one by one.
const WORST_FILES: usize = 3;
/// Longest name of a file in the table; longer names keep their end, because names differ most there.
const NAME_WIDTH: usize = 28;

const LEGEND: &str =
    "hit, late, miss: % of reads. RA: read ahead; unused: MB of it never read. MB = 10^6 bytes.";

/// Formats the explanation as text, which ends with a newline.
pub fn render(report: &ExplainReport) -> String {
    let mut blocks = vec![
        Block::Text(title(report)),
        Block::Gap,
        Block::Text(format!("{}.", report.summary)),
    ];
    blocks.extend(auto(report).map(Block::Text));
    blocks.extend([Block::Gap, Block::Table(files(report))]);
    blocks.extend([Block::Text(LEGEND.to_string()), Block::Gap]);
    if !report.rules.is_empty() {
        blocks.extend([Block::Table(rules(report)), Block::Gap]);
    }
    let read = report.files.iter();
    let read = read.filter(|file| file.counts.demand_reads > 0);
    let worst = read.take(WORST_FILES);
    blocks.extend(worst.map(|file| Block::Text(rules_of(file))));
    blocks.push(Block::Gap);
    blocks.extend(report.notes.iter().cloned().map(Block::Note));
    blocks.extend(report.next.next());
    block::text(blocks, width::columns(), false)
}

fn title(report: &ExplainReport) -> String {
    let about = match report.source_about.as_str() {
        "" => String::new(),
        about => format!(" ({about})"),
    };
    let mode = report.mode.as_deref().and_then(Mode::of_json);
    let mode = mode.map_or_else(String::new, |mode| format!(", mode {}", mode.name()));
    format!(
        "{} on {}{about}: {}, cache {}, page {}{mode}, seed{TIE}{}, took {}{TIE}s",
        report.trace,
        report.source,
        report.policy,
        number::size_b(report.cache_bytes),
        number::size_b(report.page_bytes),
        report.seed,
        number::span_s(report.time_s, None)
    )
}

fn auto(report: &ExplainReport) -> Option<String> {
    let words = report.auto.as_ref()?;
    Some(format!("{} at its farthest: {words}.", report.policy))
}

/// Megabytes in a column: a small amount is not shown as zero.
fn mb(bytes: u64) -> String {
    if bytes > 0 && bytes < 5000 {
        "<.01".to_string()
    } else {
        three(bytes as f64 / number::MB)
    }
}

fn seconds(ns: u64) -> String {
    if ns == 0 {
        "0".to_string()
    } else {
        number::span_s(ns as f64 / 1e9, None)
    }
}

/// The last characters of a name: the first ones are often the same for all files.
fn tail(name: &str) -> String {
    let name = printable(name);
    let letters = name.chars().count();
    if letters <= NAME_WIDTH {
        return name;
    }
    let end = name.chars().skip(letters + 1 - NAME_WIDTH);
    ['…'].into_iter().chain(end).collect()
}

/// A file, or several files together.
struct FileRow<'a> {
    name: String,
    files: Vec<&'a File>,
    /// The rule that decided most often.
    rule: String,
}

impl<'a> FileRow<'a> {
    fn new(files: Vec<&'a File>, name: String) -> FileRow<'a> {
        FileRow {
            name,
            files,
            rule: String::new(),
        }
    }

    fn of(file: &'a File) -> FileRow<'a> {
        let rules = ranked(&file.rules);
        let rule = rules.first().map(|(rule, _)| (*rule).clone());
        FileRow {
            rule: rule.unwrap_or_default(),
            ..FileRow::new(vec![file], tail(&file.name))
        }
    }

    fn sum(&self, counter: fn(&Stats) -> u64) -> u64 {
        self.files.iter().map(|file| counter(&file.counts)).sum()
    }
}

fn files(report: &ExplainReport) -> Table {
    type FileColumn<'a> = Column<'a, FileRow<'a>>;
    let part = |of: fn(&Stats) -> u64| {
        move |row: &FileRow<'_>| {
            number::share(
                Some(row.sum(of)),
                Some(row.sum(|counts| counts.demand_reads)),
            )
        }
    };
    let megabytes = |of: fn(&Stats) -> u64| move |row: &FileRow<'_>| mb(row.sum(of));
    let reads = |row: &FileRow<'_>| count(row.sum(|counts| counts.demand_reads));
    let stall = |row: &FileRow<'_>| seconds(row.sum(|counts| counts.stall_ns));
    let columns = vec![
        FileColumn::new("\nfile", |row| row.name.clone()).left(),
        FileColumn::new("\nreads", reads),
        FileColumn::new("\nMB", megabytes(|counts| counts.demand_bytes)),
        FileColumn::new("hit\n%", part(|counts| counts.hits)),
        FileColumn::new("late\n%", part(|counts| counts.late_hits)),
        FileColumn::new("miss\n%", part(|counts| counts.misses)),
        FileColumn::new("RA\nMB", megabytes(|counts| counts.ra_bytes)),
        FileColumn::new("un-\nused", megabytes(never_read_bytes)),
        FileColumn::new("stall\ns", stall),
        FileColumn::new("\nmost by", |row| row.rule.clone()).left(),
    ];
    let first = report.files.iter().take(MAX_FILES);
    let mut rows: Vec<FileRow> = first.map(FileRow::of).collect();
    let rest: Vec<&File> = report.files.iter().skip(MAX_FILES).collect();
    if !rest.is_empty() {
        let name = format!("{} more", rest.len());
        rows.push(FileRow::new(rest, name));
    }
    if rows.len() > 1 {
        rows.push(FileRow::new(
            report.files.iter().collect(),
            "all".to_string(),
        ));
    }
    Table::new("", columns, &rows)
}

/// The rules, most frequent first.
fn ranked(rules: &BTreeMap<String, u64>) -> Vec<(&String, &u64)> {
    let mut all: Vec<(&String, &u64)> = rules.iter().collect();
    all.sort_by_key(|(_, n)| Reverse(**n));
    all
}

/// Every rule of the run, with how often it decided and what it means.
fn rules(report: &ExplainReport) -> Table {
    type RuleColumn<'a> = Column<'a, (&'a String, &'a u64)>;
    let why = |rule: &str| Why::ALL.into_iter().find(|why| why.name() == rule);
    let columns = vec![
        RuleColumn::new("rule", |(rule, _)| (*rule).clone()).left(),
        RuleColumn::new("times", |(_, n)| count(**n)),
        RuleColumn::new("reads ahead", move |(rule, _)| {
            (if why(rule).is_none_or(Why::is_on) {
                "yes"
            } else {
                "no"
            })
            .to_string()
        })
        .left(),
        RuleColumn::new("decides by", move |(rule, _)| {
            why(rule).map_or("no rule given", Why::words).to_string()
        })
        .left(),
    ];
    Table::new(
        "Decisions of the policy by rule",
        columns,
        &ranked(&report.rules),
    )
}

fn rules_of(file: &File) -> String {
    let mut facts = vec![
        number::amount(file.size_bytes),
        plural(file.opens, "open description"),
    ];
    if file.hints > 0 {
        facts.push(plural(file.hints, "hint"));
    }
    if file.faults > 0 {
        facts.push(plural(file.faults, "mapped page"));
    }
    let rules = ranked(&file.rules)
        .into_iter()
        .map(|(rule, n)| format!("{rule} {}", count(*n)));
    let rules = match rules.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "the policy made no decision".to_string(),
        rules => rules,
    };
    format!(
        "{} ({}): {rules}.",
        cut(&printable(&file.name), 200),
        facts.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_bytes_are_not_zero_and_a_name_moves_no_cursor() {
        assert_eq!([0, 8, 5000].map(mb), ["0", "<.01", "0.01"]);
        assert_eq!(tail("/srv/b\n\u{1b}[2J"), "/srv/b\u{fffd}\u{fffd}[2J");
        assert_eq!(tail(&"x".repeat(40)).chars().count(), NAME_WIDTH);
    }
}
