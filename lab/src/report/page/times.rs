//! The times of a comparison as bars, the fastest marked: large with intervals, or compact, so that several are on one screen.
//!
//! Never: a mark that the table does not have.

use crate::report::row::{Report, Row, Time};
use crate::report::table;
use foreread_report::chart::looks;
use foreread_report::number::{self, or_dash};
use foreread_report::page::bars::{Bar, BarKind, Bars, Fill};
use foreread_report::page::{Figure, about};

/// Rows of a compact figure.
const MAX_COMPACT: usize = 8;

/// What the rows are judged by: times in seconds, or in mode open waits in milliseconds.
struct Unit {
    name: &'static str,
    what: &'static str,
    factor: f64,
}

fn unit(report: &Report) -> Unit {
    match table::by_latency(report) {
        true => Unit {
            name: "ms",
            what: "Wait of a read, ms",
            factor: 1e3,
        },
        false => Unit {
            name: "s",
            what: "Time, s",
            factor: 1.0,
        },
    }
}

/// With intervals, a name over each bar. `today`: the policy that is in use.
pub fn large(report: &Report, today: Option<&str>) -> Figure {
    let rows: Vec<&Row> = report.rows.iter().collect();
    let unit = unit(report);
    let intervals = match report.runs > 1 {
        true => ", with 95 % intervals",
        false => "",
    };
    let head = format!("{}{intervals} (less is better)", unit.what);
    Figure::new(draw(report, &rows, head, today), "")
}

/// One line for each of at most eight rows: those that are compared with, the best, the limit, and the first others.
pub fn compact(report: &Report) -> Figure {
    let is_needed = |row: &&Row| {
        let is_base = |other: Option<&Row>| other.is_some_and(|other| other.policy == row.policy);
        is_base(report.none()) || is_base(report.kernel()) || row.limit || is_best(report, row)
    };
    let (needed, others): (Vec<&Row>, Vec<&Row>) = report.rows.iter().partition(is_needed);
    let kept: Vec<&Row> = needed.into_iter().chain(others).take(MAX_COMPACT).collect();
    let is_kept = |row: &&Row| kept.iter().any(|other| std::ptr::eq(*other, *row));
    let rows: Vec<&Row> = report.rows.iter().filter(is_kept).collect();
    let head = format!("{}: {}", report.workload, unit(report).what.to_lowercase());
    let left_out = report.rows.len() - rows.len();
    let caption = match left_out {
        0 => String::new(),
        more => format!("{} in the table.", number::plural(more as u64, "more row")),
    };
    Figure::new(short(report, &rows, head), caption)
}

fn is_best(report: &Report, row: &Row) -> bool {
    !best(report, row).is_empty()
}

/// The mark of the table in words.
pub fn best(report: &Report, row: &Row) -> &'static str {
    match table::mark(report, row) {
        '*' => "fastest",
        '=' => "tied for fastest",
        '?' => "may be the fastest",
        _ => "",
    }
}

fn short(report: &Report, rows: &[&Row], head: String) -> String {
    let unit = unit(report);
    let figure = |row: &Row| {
        let time = row.judged();
        or_dash(time, |time| number::span_s(time.mean * unit.factor, None))
    };
    let bar = |row: &&Row| Bar {
        name: row.policy.clone(),
        figure: figure(row),
        ..bar(report, row, &unit)
    };
    let bars = Bars {
        compact: true,
        ..bars(report, head, rows.iter().map(bar))
    };
    bars.draw()
}

fn draw(report: &Report, rows: &[&Row], head: String, today: Option<&str>) -> String {
    let unit = unit(report);
    let full = |row: &&Row| {
        let several = |time: &&Time| time.runs.len() > 1;
        let scaled = |ends: [f64; 2]| ends.map(|end| end * unit.factor);
        let interval = row.judged().filter(several).map(|time| scaled(time.ci95));
        let figure = or_dash(row.judged(), |time| {
            let half = interval.map(|[low, high]| (high - low) / 2.0);
            format!(
                "{} {}",
                number::span_seen(time.mean * unit.factor, half),
                unit.name
            )
        });
        let about = match (row.limit, today == Some(row.policy.as_str())) {
            (true, _) => " (a limit, not a choice)",
            (false, true) => " (today)",
            (false, false) => "",
        };
        Bar {
            name: format!("{}{about}", row.policy),
            figure,
            interval,
            ..bar(report, row, &unit)
        }
    };
    bars(report, head, rows.iter().map(full)).draw()
}

/// What a bar is however it is drawn.
fn bar(report: &Report, row: &Row, unit: &Unit) -> Bar {
    Bar {
        colour: looks::of_policy(&row.policy),
        parts: vec![row.judged().map_or(0.0, |time| time.mean * unit.factor)],
        limit: row.limit,
        best: best(report, row),
        ..Bar::default()
    }
}

fn bars(report: &Report, head: String, bars: impl Iterator<Item = Bar>) -> Bars {
    let what = unit(report).what;
    Bars {
        title: format!(
            "{what} by policy: {} on {}",
            report.workload,
            report.place()
        ),
        about: about("A bar for each policy, as long as its mean"),
        head,
        kinds: vec![BarKind {
            colour: None,
            fill: Fill::Solid,
            name: "time",
        }],
        bars: bars.collect(),
        compact: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples::{runs, table};

    fn report(times: &[(&str, f64)]) -> Report {
        let rows = times.iter().map(|(name, time)| {
            let each = [*time, time * 1.001, time * 0.999];
            runs(name, &each, 0, 0, 4_096_000)
        });
        Report::of(&table("w", "model:rbd", rows.collect()))
    }

    /// The mark of the table, and the colour of the policy wherever its row is.
    #[test]
    fn the_fastest_is_marked_and_colours_stay() {
        let times = [("none", 3.0), ("auto", 1.0), ("rbd-plain", 2.0)];
        let report = report(&times);
        for figure in [large(&report, None), compact(&report)] {
            assert_eq!(
                figure.svg.matches("class=\"best\"").count(),
                1,
                "{}",
                figure.svg
            );
            for colour in ["c0", "c1", "c3"] {
                assert!(
                    figure.svg.contains(&format!("<g class=\"{colour}\"")),
                    "{colour}"
                );
            }
        }
        assert!(large(&report, None).svg.contains(">auto, fastest<"));
    }

    #[test]
    fn a_compact_figure_keeps_the_rows_that_are_judged_by() {
        let names: Vec<String> = (0..12).map(|n| format!("linux-6.18:max={n}M")).collect();
        let more = names.iter().map(|name| (name.as_str(), 2.0));
        let times: Vec<(&str, f64)> = more.chain([("none", 3.0), ("auto", 1.0)]).collect();
        let figure = compact(&report(&times));
        assert!(figure.svg.contains(">none<") && figure.svg.contains(">auto<"));
        assert_eq!(figure.svg.matches("max=").count(), 2 * 6, "{}", figure.svg);
        assert_eq!(figure.caption, "6 more rows in the table.");
    }
}
