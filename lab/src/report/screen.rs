//! The text of a comparison: the verdict over all tables, a table for each workload, the legend, and the next command.
//!
//! ```text
//!   Use rbd-plain on model:rbd: it makes boot-ide 4.05 times as fast ...
//!
//!   boot-ide on model:rbd (...): 5 runs ...                                 one screen for each table
//!   policy  time ...
//!
//!   * fastest. MB: 10^6 bytes. ...                                          the legend and common notes, once
//!
//!   Next: foreread tune -- CMD
//! ```

use super::Report;
use super::table::{self, Style};
use foreread_report::block::{self, Block};
use foreread_report::width;

/// Returns the verdict over all tables, or `None` if no verdict is possible.
pub fn lead(why: Option<&str>) -> String {
    why.unwrap_or("No advice: not every row was measured.")
        .to_string()
}

/// Formats the whole comparison as text for the terminal, with the verdict first and `next` (the command to try next)
/// last. The text ends with a newline.
pub fn screen(
    reports: &[Report],
    why: Option<&str>,
    next: impl IntoIterator<Item = Block>,
    style: Style,
) -> String {
    let mut blocks = vec![Block::Text(lead(why))];
    let said = common(reports);
    for (at, report) in reports.iter().enumerate() {
        let same = |other: &Report| {
            (&other.source, &other.source_about) == (&report.source, &report.source_about)
        };
        let is_known = reports[..at].iter().any(same);
        blocks.push(Block::Gap);
        blocks.extend(table::measured(report, style.details, &said, is_known));
    }
    if !reports.is_empty() {
        blocks.push(Block::Gap);
        blocks.extend(table::below(
            &reports.iter().collect::<Vec<_>>(),
            style.details,
        ));
    }
    blocks.extend(said.into_iter().map(Block::Note));
    blocks.extend(next);
    block::text(blocks, width::columns(), style.bold)
}

/// Notes that are in every one of several tables: they are printed once.
fn common(reports: &[Report]) -> Vec<String> {
    let [first, more @ ..] = reports else {
        return Vec::new();
    };
    if more.is_empty() {
        return Vec::new();
    }
    let in_all = |note: &&String| more.iter().all(|report| report.notes.contains(note));
    first.notes.iter().filter(in_all).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples::{boot, runs, table};

    fn reports() -> Vec<Report> {
        let random = |source: &str| {
            let rows = [
                ("none", [1.0, 1.1, 0.9]),
                ("rbd-plain", [1.0, 1.11, 0.9]),
                ("kernel", [1.3, 0.5, 1.6]),
            ];
            let rows = rows.map(|(name, times)| runs(name, &times, 0, 0, 4_096_000));
            table("random", source, rows.to_vec())
        };
        let mut tables = [random("file:x"), boot(), random("model:rbd")];
        for (n, table) in tables.iter_mut().enumerate() {
            table.notes = vec!["in all of them".to_string(), format!("in table {n} alone")];
        }
        tables.iter().map(Report::of).collect()
    }

    #[test]
    fn the_verdict_is_first_the_next_command_last_and_the_legend_there_once() {
        let reports = reports();
        let next = [
            Block::Text("Next: what a program needs:".to_string()),
            Block::line("    foreread tune -- CMD"),
        ];
        let text = screen(&reports, Some("Use auto."), next, Style::default());
        let alone = screen(&reports, None, None, Style::default());
        assert!(alone.starts_with("No advice: not every row was measured.\n"));
        let places: Vec<usize> = [
            "Use auto.",
            "random on file:x: 3 runs, cache",
            "Note: in table 0 alone.",
            "boot-ide on model:rbd (",
            "random on model:rbd: 3 runs, cache",
            "* fastest. ",
            "Note: in all of them.",
            "Next: what a program",
            "    foreread tune -- CMD\n",
        ]
        .map(|part| {
            text.find(part)
                .unwrap_or_else(|| panic!("{part} is missing:\n{text}"))
        })
        .into();
        assert!(places.is_sorted(), "{places:?}\n{text}");
        for once in ["mean ± half", "in all of them", "Next:", "same: within 5 %"] {
            assert_eq!(text.matches(once).count(), 1, "{once}:\n{text}");
        }
        assert!(text.ends_with("CMD\n") && !text.contains('\u{1b}'));
        let bold = Style {
            bold: true,
            ..Style::default()
        };
        assert!(screen(&reports, None, None, bold).contains('\u{1b}'));
    }

    /// 80 columns and 24 lines: one workload with what is said of it.
    #[test]
    fn a_table_is_one_screen() {
        let mut table = boot();
        for name in ["auto", "linux-6.18:max=4M", "linux-6.18:max=64M", "oracle"] {
            let times = [11.9, 11.8, 12.1, 12.0, 11.7];
            table
                .policies
                .push(runs(name, &times, 3_932_160, 3_801_088, 4_200_000));
        }
        let next = [Block::Gap, Block::line("why"), Block::line("    line")];
        let text = screen(&[Report::of(&table)], Some("why"), next, Style::default());
        assert!(text.lines().count() <= 24, "{text}");
    }
}
