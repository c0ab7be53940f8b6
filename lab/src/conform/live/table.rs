//! What was found, for people.
//!
//! Never: says less than the JSON about a difference.

use super::{Found, Heard};
use comfy_table::{CellAlignment, ContentArrangement, Table as Grid, presets};
use std::fmt::Write;

const COLUMNS: [&str; 7] = ["file system", "read_ahead_kb", "operations", "decisions", "divergences", "levels", "time"];

/// What is missing where the kernel has not all of the tracepoints.
const NO_DECISIONS: &str =
    "\nNot compared, for want of the readahead tracepoints of 6.18: decisions and the state of descriptors.\n";

/// The same where it has not even those of the page cache.
const NO_EVENTS: &str =
    "\nNot compared, for want of tracepoints: all but the pages that reads and hints bring in, on ext4-journal.\n";

/// The table, a line for each first difference, and what was left out.
#[must_use]
pub fn table(kernel: &str, seed: u64, found: &[Found]) -> String {
    let mut grid = Grid::new();
    grid.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(COLUMNS);
    for one in found {
        grid.add_row([
            one.file_system.to_string(),
            one.read_ahead_kb.to_string(),
            one.operations.to_string(),
            if one.heard == Heard::All { one.decisions.to_string() } else { "-".to_string() },
            one.divergences.to_string(),
            match (one.heard, one.pages) {
                (Heard::Presence, _) => "pages",
                (_, true) => "full, pages",
                (_, false) => "full",
            }
            .to_string(),
            format!("{:.1} s", one.seconds),
        ]);
    }
    for column in [1, 2, 3, 4, 6] {
        if let Some(column) = grid.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = format!("Linux {kernel} beside linux-6.18, seed {seed}\n\n");
    grid.to_string().lines().for_each(|line| text.extend([line.trim_end(), "\n"]));
    for one in found {
        if let Some(first) = &one.first {
            let _ = writeln!(text, "\n{} at {} KiB: {first}", one.file_system, one.read_ahead_kb);
        }
    }
    text.push_str(match found.first().map(|one| one.heard) {
        Some(Heard::Pages) => NO_DECISIONS,
        Some(Heard::Presence) => NO_EVENTS,
        Some(Heard::All) | None => "",
    });
    let cut: u64 = found.iter().map(|one| one.cut_episodes).sum();
    if cut > 0 {
        let _ = writeln!(text, "\n{cut} episodes were cut short: something else took pages of them out of the cache.");
    }
    if found.iter().any(|one| one.fault_operations == 0 && one.heard != Heard::Presence) {
        let _ = writeln!(text, "\nLeft out without python3: page faults and readahead(2).");
    }
    text
}
