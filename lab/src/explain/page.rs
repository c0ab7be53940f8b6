//! The HTML page of `explain`: the verdict, what became of the reads of each file, the same reads under other policies, every stream with
//! its reason, and the next command.
//!
//! Never: a number that is not in [`ExplainReport`].

use super::{ExplainReport, File, Other, Stream, View, table};
use crate::advice::NextStep;
use foreread_report::block::{self, Block, Column, Table};
use foreread_report::chart::looks;
use foreread_report::json;
use foreread_report::number::{self, count, or_dash, size};
use foreread_report::page::bars::{Bar, BarKind, Bars, Fill};
use foreread_report::page::{Figure, Page, Section, about, fact};

/// Files of a figure; the table has all that are asked for.
const MAX_BARS: usize = 12;

/// The page, of the files that are asked for.
#[must_use]
pub fn page(explained: &ExplainReport, view: &View) -> String {
    let verdict = format!("{}.", explained.verdict);
    let auto = explained.auto.as_ref();
    let auto = auto.map(|auto| format!("{} at its farthest: {}.", explained.policy, auto.words));
    let mut facts = vec![
        fact("foreread", explained.foreread.clone()),
        fact("policy", explained.policy.clone()),
        fact(
            "took",
            format!("{} s", number::span_s(explained.time_s, None)),
        ),
        fact("cache", size(explained.cache_bytes)),
        fact("page", size(explained.page_bytes)),
        fact("seed", explained.seed.to_string()),
    ];
    if !explained.source_about.is_empty() {
        facts.push(fact("source", explained.source_about.clone()));
    }
    let mut sections = vec![files(explained, view)];
    sections.extend(others(explained));
    let page = Page {
        title: format!("Readahead of {} on {}", explained.trace, explained.source),
        lead: (
            "What readahead did",
            [verdict].into_iter().chain(auto).collect(),
        ),
        facts,
        sections,
        next: explained.next.iter().map(NextStep::copy).collect(),
        ..Page::default()
    };
    page.to_html(&json::pretty(explained))
}

fn files(explained: &ExplainReport, view: &View) -> Section {
    let shown: Vec<&File> = explained
        .files
        .iter()
        .filter(|f| view.shows(&f.name))
        .collect();
    let mut blocks = vec![
        Block::Page(explained.total.decisions.words()),
        Block::Figure(outcomes(&shown)),
    ];
    blocks.extend(stalls(&shown).map(Block::Figure));
    let mut files = table::files(explained, &shown, view);
    files.caption =
        "Its files. hit, late: % of reads; ahead: read before it was asked for; MB = 10^6 bytes"
            .to_string();
    blocks.push(Block::Table(files));
    blocks.push(Block::Table(streams(&shown)));
    blocks.extend(
        explained
            .recorded
            .as_ref()
            .map(|r| Block::Note(table::in_words(r))),
    );
    blocks.extend(explained.notes.iter().cloned().map(Block::Note));
    block::section("Files and streams", blocks)
}

/// The reads of each file by what they found, as parts of all its reads.
fn outcomes(files: &[&File]) -> Figure {
    let kind = |colour, name| BarKind {
        colour: Some(colour),
        fill: Fill::Solid,
        name,
    };
    let bar = |file: &&File| {
        let share = &file.share;
        let part = |n: u64| 100.0 * n as f64 / share.demand_reads.max(1) as f64;
        Bar {
            name: table::tail(&file.name),
            figure: number::plural(share.demand_reads, "read"),
            parts: vec![part(share.hits), part(share.late_hits), part(share.misses)],
            ..Bar::default()
        }
    };
    let bars = Bars {
        title: "What the reads of each file found".to_string(),
        about: about("A bar for each file, in three parts"),
        head: "Reads of each file, %".to_string(),
        kinds: vec![
            kind(looks::HIT, "hit: its bytes were there"),
            BarKind {
                fill: Fill::Hatched,
                ..kind(looks::LATE, "late: it waited for readahead")
            },
            kind(looks::MISS, "miss: it waited for the source"),
        ],
        bars: files.iter().take(MAX_BARS).map(bar).collect(),
        compact: false,
    };
    Figure::new(bars.draw(), rest(files))
}

fn rest(files: &[&File]) -> String {
    match files.len().saturating_sub(MAX_BARS) {
        0 => String::new(),
        more => format!("{} in the table.", number::plural(more as u64, "more file")),
    }
}

/// How long the reads of each file waited. None where no read did.
fn stalls(files: &[&File]) -> Option<Figure> {
    let seconds = |file: &File| file.share.stall_ns as f64 / 1e9;
    let bar = |file: &&File| Bar {
        name: table::tail(&file.name),
        figure: format!("{} s", number::span_s(seconds(file), None)),
        colour: looks::MISS,
        parts: vec![seconds(file)],
        ..Bar::default()
    };
    let waited = files.iter().filter(|file| file.share.stall_ns > 0);
    let bars = Bars {
        title: "How long the reads of each file waited".to_string(),
        about: about("A bar for each file, as long as its stall"),
        head: "Stall, s (less is better)".to_string(),
        kinds: vec![BarKind {
            colour: None,
            fill: Fill::Solid,
            name: "stall",
        }],
        bars: waited.take(MAX_BARS).map(bar).collect(),
        compact: false,
    };
    (!bars.bars.is_empty()).then(|| Figure::new(bars.draw(), rest(files)))
}

/// A stream and the name of its file.
struct StreamRow<'a> {
    file: String,
    stream: &'a Stream,
}

/// Every stream of these files with its reason.
fn streams(files: &[&File]) -> Table {
    type StreamColumn<'a> = Column<'a, StreamRow<'a>>;
    let of_file = |file: &&'_ File| (table::tail(&file.name), file.streams.len());
    let rows: Vec<StreamRow<'_>> = files
        .iter()
        .flat_map(|file| {
            let name = of_file(file).0;
            file.streams.iter().map(move |stream| StreamRow {
                file: name.clone(),
                stream,
            })
        })
        .collect();
    let seconds = |ns: u64| number::span_s(ns as f64 / 1e9, None);
    let columns = vec![
        StreamColumn::new("file", |row| row.file.clone()).left(),
        StreamColumn::new("stream", |row| row.stream.shape.clone()).left(),
        StreamColumn::new("from", |row| size(row.stream.from)),
        StreamColumn::new("reads", |row| count(row.stream.share.demand_reads)),
        StreamColumn::new("miss", |row| count(row.stream.share.misses)),
        StreamColumn::new("late", |row| count(row.stream.share.late_hits)),
        StreamColumn::new("ahead MB", |row| {
            number::mb(Some(row.stream.share.ra_bytes))
        }),
        StreamColumn::new("unused MB", |row| {
            number::mb(Some(row.stream.share.in_vain_bytes()))
        }),
        StreamColumn::new("stall s", move |row| seconds(row.stream.share.stall_ns)),
        StreamColumn::new("readahead", |row| {
            (if row.stream.because.on { "on" } else { "off" }).to_string()
        })
        .left(),
        StreamColumn::new("why", |row| row.stream.because.words.clone()).left(),
    ];
    Table::new(
        "Its streams, and why readahead was on or off",
        columns,
        &rows,
    )
}

/// The same reads under other policies. None where none were asked for.
fn others(explained: &ExplainReport) -> Option<Section> {
    let others = &explained.others;
    let name = |other: &Other| match other.explained {
        true => format!("{} (explained here)", other.policy),
        false if other.limit => format!("{} (a limit, not a choice)", other.policy),
        false => other.policy.clone(),
    };
    let best = fastest(others);
    let bar = |other: &Other| Bar {
        name: name(other),
        figure: or_dash(other.time_s, |s| format!("{} s", number::span_s(s, None))),
        colour: looks::of_policy(&other.policy),
        parts: vec![other.time_s.unwrap_or(0.0)],
        interval: None,
        limit: other.limit,
        best: if best == Some(other.policy.as_str()) {
            "fastest"
        } else {
            ""
        },
    };
    let bars = Bars {
        title: "Time by policy".to_string(),
        about: about("A bar for each policy, as long as its mean"),
        head: format!("{}, s (less is better)", table::judged_by(explained)),
        kinds: vec![BarKind {
            colour: None,
            fill: Fill::Solid,
            name: "time",
        }],
        bars: others.iter().map(bar).collect(),
        compact: false,
    };
    let runs = number::plural(explained.other_runs.into(), "run");
    let mut section = block::section(
        "The same reads under other policies",
        [Block::Figure(Figure::new(bars.draw(), ""))],
    );
    let mut table = table::others_table(explained, true);
    table.caption = format!(
        "Means of {runs} of each; 'to this' is the time over that of {}",
        explained.policy
    );
    section.grids.push(table.grid());
    (!others.is_empty()).then_some(section)
}

/// The policy that took least, where the test finds it different from the one that is explained, or it is that one.
fn fastest(others: &[Other]) -> Option<&str> {
    let choices = others.iter().filter(|other| !other.limit);
    let timed = choices.filter_map(|other| Some((other.time_s?, other)));
    let (_, first) = timed.min_by(|a, b| a.0.total_cmp(&b.0))?;
    let is_shown = first.explained || first.differs == Some(true);
    is_shown.then_some(first.policy.as_str())
}
