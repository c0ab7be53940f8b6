//! The HTML page of `tune`: the verdict, the times and the table of the compared policies, the measured storage, and the settings to
//! change.
//!
//! All figures come from [`TuneReport`].

use super::{TuneReport, text};
use crate::report::page;
use crate::report::table;
use crate::verdict::Step;
use foreread_report::block::{self, Block};
use foreread_report::json;
use foreread_report::number::{self, size};
use foreread_report::page::{Page, Section, WHAT_TO_DO, fact};

#[must_use]
pub fn page(tuned: &TuneReport) -> String {
    let known = match tuned.today_is_known {
        true => "",
        false => " (the kernel's default)",
    };
    let report = &tuned.report;
    let mut facts = vec![
        fact("foreread", tuned.foreread.clone()),
        fact("storage", tuned.storage.clone()),
        fact(
            "readahead today",
            format!("{}{known}", size(tuned.today_bytes)),
        ),
        fact("runs of each", report.runs.to_string()),
        fact("cache", size(report.cache_bytes)),
        fact("seed", report.seed.to_string()),
    ];
    if let Some(probe) = &tuned.probe {
        facts.push(fact(
            "measured in",
            format!("{} s", number::three(probe.seconds)),
        ));
    }
    let page = Page {
        title: format!("What to set for {} on {}", tuned.trace, tuned.storage),
        lead: (WHAT_TO_DO, vec![tuned.verdict.why.clone()]),
        facts,
        sections: vec![compared(tuned)],
        next: tuned.verdict.steps.iter().map(Step::copy).collect(),
        ..Page::default()
    };
    page.to_html(&json::pretty(tuned))
}

fn compared(tuned: &TuneReport) -> Section {
    let report = &tuned.report;
    let figures = page::figures(report, Some(&tuned.today)).map(Block::Figure);
    let mut blocks: Vec<Block> = figures.collect();
    blocks.push(Block::Table(table::rows(report)));
    blocks.extend(text::storage(tuned).into_iter().map(Block::Note));
    blocks.extend(table::limits(report).into_iter().map(Block::Note));
    let notes = tuned.probe.iter().flat_map(|probe| &probe.notes);
    blocks.extend(report.notes.iter().chain(notes).cloned().map(Block::Note));
    block::section("What was compared", blocks)
}
