//! Formats the results of a check as text.
//!
//! The text shows all details of a difference that the JSON contains.

use super::{CellOutcome, CellOutcomes};
use foreread_report::block::{self, Block, Column, Table};

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

/// Formats the result as text: the verdict, the table with totals, the first difference of each cell, and what was left
/// out.
pub fn table(kernel: &str, seed: u64, checked: &CellOutcomes) -> String {
    let CellOutcomes { cells, left_out } = checked;
    let sum = |of: fn(&CellOutcome) -> u64| cells.iter().map(of).sum::<u64>().to_string();
    let seconds: f64 = cells.iter().map(|one| one.seconds).sum();
    let sums = [
        format!("{} cells", cells.len()),
        String::new(),
        String::new(),
        sum(|one| one.operations),
        sum(|one| one.decisions),
        sum(|one| one.divergences),
        sum(|one| one.pressure_episodes),
        String::new(),
        format!("{seconds:.1} s"),
    ];
    let rows: Vec<[String; 9]> = cells.iter().map(row).chain([sums]).collect();
    let column = |(n, head): (usize, _)| {
        let column = Column::new(head, move |row: &[String; 9]| row[n].clone());
        if [0, 2, 7].contains(&n) {
            column.left()
        } else {
            column
        }
    };
    let columns = COLUMNS.into_iter().enumerate().map(column).collect();
    let what = format!("Linux {kernel} and the policy linux-6.18, seed {seed}:");
    let mut lines = Vec::new();
    for one in cells {
        let mapped = if one.mmap { " with mmap" } else { "" };
        let place = format!("{} at {} KiB{mapped}", one.file_system, one.read_ahead_kb);
        let first = one.first.as_ref().map(|first| format!("{place}: {first}"));
        let pressed = one.first_under_pressure.as_ref();
        let pressed = pressed.map(|first| format!("{place}, under memory pressure: {first}"));
        lines.extend(first.into_iter().chain(pressed));
    }
    lines.extend(outside(cells));
    lines.extend(left_out.iter().map(|why| format!("Left out: {why}.")));
    let head = [
        Block::line(verdict(cells)),
        Block::Gap,
        Block::line(what),
        Block::Gap,
    ];
    let table = Block::Table(Table::new("", columns, &rows).wide());
    let lines = lines
        .into_iter()
        .flat_map(|line| [Block::Gap, Block::line(line)]);
    block::text(
        head.into_iter().chain([table]).chain(lines),
        usize::MAX,
        false,
    )
}

/// The sentence that says whether policy and kernel agree.
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
    let levels = if one.pages { "full, pages" } else { "full" };
    [
        one.file_system.to_string(),
        one.read_ahead_kb.to_string(),
        if one.mmap { "yes" } else { "no" }.to_string(),
        one.operations.to_string(),
        one.decisions.to_string(),
        one.divergences.to_string(),
        one.pressure_episodes.to_string(),
        levels.to_string(),
        format!("{:.1} s", one.seconds),
    ]
}

fn outside(cells: &[CellOutcome]) -> Vec<String> {
    let sum = |of: fn(&CellOutcome) -> u64| cells.iter().map(of).sum::<u64>();
    let (cut, pressed) = (
        sum(|one| one.cut_episodes),
        sum(|one| one.pressure_episodes),
    );
    let differ = sum(|one| one.pressure_differences);
    let cut = (cut > 0).then(|| {
        format!("{cut} test sequences (episodes) were cut short: something else removed their pages from the cache.")
    });
    let pressed = (pressed > 0).then(|| {
        format!("In {pressed} test sequences (episodes) the kernel was short of memory; {differ} of them differ, which proves nothing.")
    });
    cut.into_iter().chain(pressed).collect()
}
