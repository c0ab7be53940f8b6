//! The times of a comparison as a bar chart, with the fastest rows marked.

use crate::report::row::{Report, Row, Time};
use crate::report::table;
use foreread_report::figure::{Bar, Bars, Figure};
use foreread_report::number::{self, or_dash};

/// Creates the chart of times, with a bar for each policy that shows its mean time and confidence interval. `today` is
/// the policy that is in use now. The title contains the name of the workload, unless `alone` is true, that is, the chart is the only one
/// on its page.
pub fn times(report: &Report, today: Option<&str>, alone: bool) -> Figure {
    // In mode open all policies take the time of the trace, so waits are compared.
    let (unit, what, factor) = match table::by_latency(report) {
        true => ("ms", "Wait of a read, ms", 1e3),
        false => ("s", "Time, s", 1.0),
    };
    let bar = |row: &Row| {
        let several = |time: &&Time| time.runs.len() > 1;
        let interval = row.judged().filter(several);
        let interval = interval.map(|time| time.ci95.map(|end| end * factor));
        let value = or_dash(row.judged(), |time| {
            let half = interval.map(|[low, high]| (high - low) / 2.0);
            format!("{} {unit}", number::span_seen(time.mean * factor, half))
        });
        let about = match (row.limit, today == Some(row.policy.as_str())) {
            (true, _) => " (a limit, not a choice)",
            (false, true) => " (today)",
            (false, false) => "",
        };
        Bar {
            name: format!("{}{about}", row.policy),
            value,
            parts: vec![row.judged().map_or(0.0, |time| time.mean * factor)],
            interval,
            is_limit: row.limit,
            best: best(report, row),
        }
    };
    let bars = report.rows.iter().map(bar).collect();
    let intervals = if report.runs > 1 {
        ", with 95 % intervals"
    } else {
        ""
    };
    let name = match alone {
        true => String::new(),
        false => format!("{}: ", report.workload),
    };
    let title = format!("{name}{what}{intervals} (less is better)");
    let parts = Vec::new();
    Figure::bars(title, Bars { parts, bars })
}

/// The mark of the table as text.
fn best(report: &Report, row: &Row) -> &'static str {
    match table::mark(report, row) {
        '*' => "fastest",
        '=' => "tied for fastest",
        '?' => "may be the fastest",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples::{runs, table};

    #[test]
    fn the_fastest_is_marked() {
        let row = |(name, time): (&str, f64)| {
            let each = [time, time * 1.001, time * 0.999];
            runs(name, &each, 0, 0, 4_096_000)
        };
        let rows = [("none", 3.0), ("auto", 1.0), ("rbd-plain", 2.0)].map(row);
        let report = Report::of(&table("w", "model:rbd", rows.to_vec()));
        let svg = times(&report, Some("none"), true).to_svg();
        assert!(
            svg.contains("▸ auto, fastest") && svg.contains("none (today)"),
            "{svg}"
        );
        assert_eq!(svg.matches("fastest").count(), 1, "{svg}");
    }
}
