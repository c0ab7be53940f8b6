//! Formats the results of a check as text.
//!
//! The text shows all details of a difference that the JSON contains.

use super::{CellOutcome, CellOutcomes};
use foreread_report::block::{self, Block, Column, Table};

type CellColumn<'a> = Column<'a, CellOutcome>;

/// Formats the result as text: the verdict, the table with totals, the first difference of each cell, and what was left
/// out.
pub fn table(kernel: &str, seed: u64, checked: &CellOutcomes) -> String {
    let CellOutcomes { cells, left_out } = checked;
    let sum = |of: fn(&CellOutcome) -> u64| cells.iter().map(of).sum::<u64>();
    let total = CellOutcome {
        operations: sum(|one| one.operations),
        decisions: sum(|one| one.decisions),
        divergences: sum(|one| one.divergences),
        pressure_episodes: sum(|one| one.pressure_episodes),
        pressure_differences: sum(|one| one.pressure_differences),
        cut_episodes: sum(|one| one.cut_episodes),
        seconds: cells.iter().map(|one| one.seconds).sum(),
        ..CellOutcome::default()
    };
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
    lines.extend(outside(&total));
    lines.extend(left_out.iter().map(|why| format!("Left out: {why}.")));
    let head = [
        Block::line(verdict(cells, &total)),
        Block::Gap,
        Block::line(what),
        Block::Gap,
    ];
    let rows = Vec::from_iter(cells.iter().cloned().chain([total]));
    let table = Block::Table(Table::new("", columns(cells.len()), &rows).wide());
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
fn verdict(cells: &[CellOutcome], total: &CellOutcome) -> String {
    let differ = cells.iter().filter(|one| one.first.is_some()).count();
    if differ > 0 {
        return format!(
            "The policy linux-6.18 differs from this kernel in {differ} of {} cells.",
            cells.len()
        );
    }
    if total.pressure_differences > 0 {
        return "No verdict: the kernel was short of memory. Repeat the check with more memory free.".to_string();
    }
    format!(
        "The policy linux-6.18 does what this kernel does: {} operations without a difference.",
        total.operations
    )
}

/// The last row, which has no file system, is the total of the cells.
fn columns(cells: usize) -> Vec<CellColumn<'static>> {
    let of_cell = |text: fn(&CellOutcome) -> String| {
        move |one: &CellOutcome| match one.file_system {
            "" => String::new(),
            _ => text(one),
        }
    };
    let name = move |one: &CellOutcome| match one.file_system {
        "" => format!("{cells} cells"),
        name => name.to_string(),
    };
    let mmap = |one: &CellOutcome| if one.mmap { "yes" } else { "no" }.to_string();
    let levels = |one: &CellOutcome| if one.pages { "full, pages" } else { "full" }.to_string();
    vec![
        CellColumn::new("file system", name).left(),
        CellColumn::new(
            "read_ahead_kb",
            of_cell(|one| one.read_ahead_kb.to_string()),
        ),
        CellColumn::new("mmap", of_cell(mmap)).left(),
        CellColumn::new("operations", |one| one.operations.to_string()),
        CellColumn::new("decisions", |one| one.decisions.to_string()),
        CellColumn::new("divergences", |one| one.divergences.to_string()),
        CellColumn::new("under pressure", |one| one.pressure_episodes.to_string()),
        CellColumn::new("levels", of_cell(levels)).left(),
        CellColumn::new("time", |one| format!("{:.1} s", one.seconds)),
    ]
}

fn outside(total: &CellOutcome) -> Vec<String> {
    let (cut, pressed) = (total.cut_episodes, total.pressure_episodes);
    let differ = total.pressure_differences;
    let cut = (cut > 0).then(|| {
        format!("{cut} test sequences (episodes) were cut short: something else removed their pages from the cache.")
    });
    let pressed = (pressed > 0).then(|| {
        format!("In {pressed} test sequences (episodes) the kernel was short of memory; {differ} of them differ, which proves nothing.")
    });
    cut.into_iter().chain(pressed).collect()
}
