//! What was found, for people.
//!
//! Never: says less than the JSON about a difference.

use super::{CellOutcome, CellOutcomes, Heard};
use foreread_report::table::TextTable;
use std::fmt::Write;

const COLUMNS: [&str; 9] = [
    "file system",
    "read_ahead_kb",
    "mmap",
    "operations",
    "decisions",
    "divergences",
    "under pressure",
    "levels",
    "time",
];

/// What is missing where the kernel has not all of the tracepoints.
const NO_DECISIONS: &str = "\nNot compared, for lack of the readahead tracepoints of 6.18: decisions and the state of descriptors.\n";

/// The same where it has not even those of the page cache.
const NO_EVENTS: &str = "\nNot compared, for lack of tracepoints: all but the pages that reads and hints bring in, on ext4-journal.\n";

/// The verdict, the table with its sums, each first difference, and what was left out.
#[must_use]
pub fn table(kernel: &str, seed: u64, checked: &CellOutcomes) -> String {
    let CellOutcomes { cells, left_out } = checked;
    let mut grid = TextTable::new([0, 2, 7])
        .wide()
        .head(COLUMNS)
        .rows(cells.iter().map(row));
    let sum = |of: fn(&CellOutcome) -> u64| cells.iter().map(of).sum::<u64>().to_string();
    let seconds: f64 = cells.iter().map(|one| one.seconds).sum();
    grid.add([
        format!("{} cells", cells.len()),
        String::new(),
        String::new(),
        sum(|one| one.operations),
        sum(|one| one.decisions),
        sum(|one| one.divergences),
        sum(|one| one.pressure_episodes),
        String::new(),
        format!("{seconds:.1} s"),
    ]);
    let mut text = format!(
        "{}\n\nLinux {kernel} and the policy linux-6.18, seed {seed}:\n\n",
        verdict(cells)
    );
    grid.lines()
        .iter()
        .for_each(|line| text.extend([line, "\n"]));
    for one in cells {
        for (first, pressure) in [
            (&one.first, ""),
            (&one.first_under_pressure, ", under memory pressure"),
        ] {
            if let Some(first) = first {
                let mapped = if one.mmap { " with mmap" } else { "" };
                let _ = writeln!(
                    text,
                    "\n{} at {} KiB{mapped}{pressure}: {first}",
                    one.file_system, one.read_ahead_kb
                );
            }
        }
    }
    text.push_str(match cells.first().map(|one| one.heard) {
        Some(Heard::Pages) => NO_DECISIONS,
        Some(Heard::Presence) => NO_EVENTS,
        Some(Heard::All) | None => "",
    });
    text.push_str(&outside(cells));
    for why in left_out {
        let _ = writeln!(text, "\nLeft out: {why}.");
    }
    text
}

/// Whether they agree.
fn verdict(cells: &[CellOutcome]) -> String {
    let operations: u64 = cells.iter().map(|one| one.operations).sum();
    let differ = cells.iter().filter(|one| one.first.is_some()).count();
    if differ > 0 {
        return format!(
            "The policy linux-6.18 differs from this kernel in {differ} of {} cells.",
            cells.len()
        );
    }
    if cells.iter().any(|one| one.pressure_differences > 0) {
        return "No verdict: the kernel was short of memory. Repeat the check with more memory free.".to_string();
    }
    format!(
        "The policy linux-6.18 does what this kernel does: {operations} operations without a difference."
    )
}

fn row(one: &CellOutcome) -> [String; 9] {
    let levels = match (one.heard, one.pages) {
        (Heard::Presence, _) => "pages",
        (_, true) => "full, pages",
        (_, false) => "full",
    };
    [
        one.file_system.to_string(),
        one.read_ahead_kb.to_string(),
        if one.mmap { "yes" } else { "no" }.to_string(),
        one.operations.to_string(),
        if one.heard == Heard::All {
            one.decisions.to_string()
        } else {
            "-".to_string()
        },
        one.divergences.to_string(),
        one.pressure_episodes.to_string(),
        levels.to_string(),
        format!("{:.1} s", one.seconds),
    ]
}

fn outside(cells: &[CellOutcome]) -> String {
    let mut text = String::new();
    let cut: u64 = cells.iter().map(|one| one.cut_episodes).sum();
    if cut > 0 {
        let _ = writeln!(
            text,
            "\n{cut} episodes were cut short: something else took pages of them out of the cache."
        );
    }
    let pressed: u64 = cells.iter().map(|one| one.pressure_episodes).sum();
    let differ: u64 = cells.iter().map(|one| one.pressure_differences).sum();
    if pressed > 0 {
        let _ = writeln!(
            text,
            "\nIn {pressed} episodes the kernel was short of memory; {differ} of them differ, which proves nothing."
        );
    }
    text
}
