//! The HTML page of `explain`: hits, late reads and misses of each file, how long the reads waited, and how often each
//! rule of the policy decided.

use super::{ExplainReport, File, View, table};
use foreread_report::block::{self, Block};
use foreread_report::figure::{Bar, Bars, Figure};
use foreread_report::json;
use foreread_report::number::{self, size};
use foreread_report::page::{Page, Section, fact};

/// Most files in a chart; the table has all selected files.
const MAX_BARS: usize = 12;

/// Creates the HTML page, with the files that `view` selects.
#[must_use]
pub fn page(report: &ExplainReport, view: &View) -> String {
    let summary = format!("{}.", report.summary);
    let mut facts = vec![
        fact("foreread", report.foreread.clone()),
        fact("policy", report.policy.clone()),
        fact("took", format!("{} s", number::span_s(report.time_s, None))),
        fact("cache", size(report.cache_bytes)),
        fact("page", size(report.page_bytes)),
        fact("seed", report.seed.to_string()),
    ];
    if !report.source_about.is_empty() {
        facts.push(fact("source", report.source_about.clone()));
    }
    let page = Page {
        title: format!("Readahead of {} on {}", report.trace, report.source),
        lead: (
            "What readahead did",
            [summary].into_iter().chain(table::auto(report)).collect(),
        ),
        facts,
        sections: vec![files(report, view)],
        next: vec![report.next.copy()],
        ..Page::default()
    };
    page.to_html(&json::pretty(report))
}

fn files(report: &ExplainReport, view: &View) -> Section {
    let shown: Vec<&File> = report
        .files
        .iter()
        .filter(|f| view.shows(&f.name))
        .collect();
    let mut blocks = vec![Block::Figure(outcomes(&shown))];
    blocks.extend(stalls(&shown).map(Block::Figure));
    let mut files = table::files(report, &shown, view);
    files.caption =
        "Files of the trace. hit, late, miss: % of reads; ahead: read before it was requested; MB = 10^6 bytes"
            .to_string();
    blocks.push(Block::Table(files));
    blocks.push(Block::Table(table::rules(report)));
    blocks.extend(report.notes.iter().cloned().map(Block::Note));
    block::section("Files and rules", blocks)
}

/// The reads of each file by result, as parts of all its reads.
fn outcomes(files: &[&File]) -> Figure {
    let bar = |file: &&File| {
        let counts = &file.counts;
        let part = |n: u64| 100.0 * n as f64 / counts.demand_reads.max(1) as f64;
        Bar {
            name: table::tail(&file.name),
            value: number::plural(counts.demand_reads, "read"),
            parts: vec![
                part(counts.hits),
                part(counts.late_hits),
                part(counts.misses),
            ],
            ..Bar::default()
        }
    };
    let parts = vec![
        "hit: its bytes were cached",
        "late: it waited for readahead",
        "miss: it waited for the source",
    ];
    let bars = files.iter().take(MAX_BARS).map(bar).collect();
    Figure::bars("Reads of each file, %", Bars { parts, bars }).with_caption(rest(files))
}

fn rest(files: &[&File]) -> String {
    match files.len().saturating_sub(MAX_BARS) {
        0 => String::new(),
        more => format!("{} in the table.", number::plural(more as u64, "more file")),
    }
}

/// How long the reads of each file waited. Returns `None` if no read waited.
fn stalls(files: &[&File]) -> Option<Figure> {
    let seconds = |file: &File| file.counts.stall_ns as f64 / 1e9;
    let bar = |file: &&File| Bar {
        name: table::tail(&file.name),
        value: format!("{} s", number::span_s(seconds(file), None)),
        parts: vec![seconds(file)],
        ..Bar::default()
    };
    let waited = files.iter().filter(|file| file.counts.stall_ns > 0);
    let bars: Vec<Bar> = waited.take(MAX_BARS).map(bar).collect();
    let parts = vec!["stall"];
    let title = "Time for which reads waited, by file, s (less is better)";
    (!bars.is_empty()).then(|| Figure::bars(title, Bars { parts, bars }).with_caption(rest(files)))
}
