//! The HTML page of `compare`: the advice, the times of all tables, then the bytes, the latencies and the rows of each table.

use crate::report::row::{Report, Row, Time, to_json};
use crate::report::screen::lead;
use crate::report::table::{self, RowColumn};
use foreread_report::block::{Block, Table};
use foreread_report::figure::{Bar, Bars, Figure, Line, Lines, Point};
use foreread_report::number::{self, latency_us, mb, or_dash};
use foreread_report::page::{Page, Section, fact};

/// Creates the HTML page of these reports, with the verdict and the next command to paste.
pub fn compare(reports: &[Report], why: Option<&str>, next: Vec<[String; 3]>) -> String {
    let alone = reports.len() == 1;
    let sections = reports.iter().map(|report| section(report, alone));
    let title = match reports {
        [one] => title(one),
        several => title_of_several(several),
    };
    let page = Page {
        title,
        lead: lead(why),
        facts: reports.first().map_or_else(Vec::new, |r| facts(r, alone)),
        figures: match alone {
            true => Vec::new(),
            false => reports.iter().map(|report| times(report, alone)).collect(),
        },
        sections: sections.collect(),
        next,
    };
    page.to_html(&to_json(reports))
}

fn title_of_several(reports: &[Report]) -> String {
    const MAX_NAMED: usize = 4;
    let names: Vec<&str> = reports
        .iter()
        .map(|report| report.workload.as_str())
        .collect();
    let place = reports.first().map(|report| &report.source);
    let is_one_place = reports.iter().all(|report| Some(&report.source) == place);
    match (&names[..], place) {
        ([first @ .., last], Some(place)) if is_one_place && names.len() <= MAX_NAMED => {
            format!("{} and {last} on {place}", first.join(", "))
        }
        _ => format!("{} comparisons of readahead", reports.len()),
    }
}

fn title(report: &Report) -> String {
    format!("{} on {}", report.workload, report.source)
}

fn facts(report: &Report, all: bool) -> Vec<(String, String)> {
    let mut facts = vec![
        fact("foreread", report.foreread.clone()),
        fact("seed", report.seed.to_string()),
    ];
    if all {
        facts.extend(measured(report));
    }
    facts.push(fact(
        "tests",
        format!("paired t, Holm, alpha {}", report.alpha),
    ));
    facts
}

fn measured(report: &Report) -> Vec<(String, String)> {
    let mut facts = vec![
        fact("runs of each", report.runs.to_string()),
        fact("cache", number::size(report.cache_bytes)),
        fact("page", number::size(report.page_bytes)),
    ];
    if !report.source_about.is_empty() {
        facts.push(fact("source", report.source_about.clone()));
    }
    facts
}

/// The section of one report. `alone`: the head of the page says on what it was measured.
fn section(report: &Report, alone: bool) -> Section {
    let mut blocks = Vec::new();
    let mut title = "What was measured".to_string();
    if !alone {
        let facts: Vec<String> = measured(report)
            .iter()
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        blocks.push(Block::Note(format!("Measured: {}", facts.join("; "))));
        title = self::title(report);
    }
    blocks.push(Block::Page(verdict(report)));
    blocks.extend(table::limits(report).into_iter().map(Block::Note));
    blocks.extend(report.notes.iter().cloned().map(Block::Note));
    let times = alone.then(|| times(report, alone));
    let figures = times.into_iter().chain(others(report));
    blocks.extend(figures.map(Block::Figure));
    blocks.extend([table::rows(report), rest(report)].map(Block::Table));
    Section { title, blocks }
}

/// Which rows may be the fastest.
fn verdict(report: &Report) -> String {
    match &report.best[..] {
        [] => "No significance test was possible, so no row is called the fastest.".to_string(),
        [one] => format!("The fastest is {one}."),
        several => {
            // Use the same mark as the terminal.
            let tied = table::tied(report);
            let tied = tied.trim_start_matches(['=', '?', ' ']);
            let first = tied.chars().take(1).flat_map(char::to_uppercase);
            let tied: String = first.chain(tied.chars().skip(1)).collect();
            format!("{tied}: {}.", several.join(", "))
        }
    }
}

/// The charts of bytes and latencies.
fn others(report: &Report) -> impl Iterator<Item = Figure> {
    bytes(report).into_iter().chain(latency(report))
}

/// Bytes read from the source, by what they were used for. Returns `None` if no row has counters.
fn bytes(report: &Report) -> Option<Figure> {
    let mb = |bytes: u64| bytes as f64 / number::MB;
    let bar = |row: &Row| {
        let (all, ahead) = (row.source_bytes?, row.ra_bytes?);
        let (used, unused) = (row.used_bytes?, row.unused_bytes?);
        let rest = ahead.saturating_sub(used.saturating_add(unused));
        Some(Bar {
            name: row.policy.clone(),
            value: format!("{} MB", number::three(mb(all))),
            parts: [all.saturating_sub(ahead), used, unused, rest]
                .map(mb)
                .to_vec(),
            is_limit: row.limit,
            ..Bar::default()
        })
    };
    let bars: Vec<Bar> = report.rows.iter().filter_map(bar).collect();
    let title = "Read from the source, MB (less is better)";
    let parts = vec![
        "demand",
        "readahead, used",
        "readahead, evicted unused",
        "readahead, not used yet at the end",
    ];
    (!bars.is_empty()).then(|| Figure::bars(title, Bars { parts, bars }))
}

/// What part of the reads took longer than each latency. Both axes are logarithmic: the few slow reads count most.
fn latency(report: &Report) -> Option<Figure> {
    // A hit of zero latency has no place on a logarithmic axis: it is drawn at the left end.
    const MIN_US: f64 = 0.1;
    const MIN_PERCENT: f64 = 0.01;
    let line = |row: &Row| {
        let mut points = Vec::new();
        let mut longer = 100.0;
        for [percent, us] in &row.latency_us {
            // Draw the step down at the latency itself: nothing is known in between.
            let next = (100.0 - percent).max(MIN_PERCENT);
            let is_marked = [50.0, 99.0, 99.9].contains(percent);
            let at = |y, is_marked| Point {
                is_marked,
                ..Point::new(us.max(MIN_US), y)
            };
            points.extend([at(longer, false), at(next, is_marked)]);
            longer = next;
        }
        Line {
            name: row.policy.clone(),
            points,
        }
    };
    let lines = report.rows.iter().map(line);
    let lines: Vec<Line> = lines.filter(|line| !line.points.is_empty()).collect();
    let all = || lines.iter().flat_map(|line| &line.points).map(|p| p.x);
    let (least, most) = (all().reduce(f64::min)?, all().reduce(f64::max)?);
    let lines = Lines {
        x_name: "latency".to_string(),
        x_ticks: decades_us(least, most),
        lines,
    };
    let figure = Figure::lines("Reads that took longer, % (lower is better)", lines);
    Some(figure.with_caption("Markers: median, 99 and 99.9 %. Both axes are logarithmic."))
}

/// The powers of ten around two latencies, with labels.
fn decades_us(least: f64, most: f64) -> Vec<(f64, String)> {
    // Slightly inside, so that an exact power of ten does not get a further decade.
    let (first, last) = (least.log10() + 1e-9, most.log10() - 1e-9);
    let decades = first.floor() as i32..=(last.ceil() as i32).max(first.floor() as i32 + 1);
    let name = |us: f64| match us {
        _ if us < 1.0 => "≤0.1us".to_string(),
        _ if us < 1e3 => format!("{us}us"),
        _ if us < 1e6 => format!("{}ms", us / 1e3),
        _ => format!("{}s", us / 1e6),
    };
    decades
        .map(|p| (10f64.powi(p), name(10f64.powi(p))))
        .collect()
}

/// The table of latencies and of bytes by use.
fn rest(report: &Report) -> Table {
    let demand = |row: &Row| {
        let all = row.source_bytes.zip(row.ra_bytes);
        all.map(|(all, ahead)| all.saturating_sub(ahead))
    };
    let columns = vec![
        RowColumn::new("policy", |row| row.policy.clone()).left(),
        RowColumn::new("p50", |row| or_dash(row.p50_us, latency_us)),
        RowColumn::new("p95", |row| or_dash(row.p95_us, latency_us)),
        RowColumn::new("p99", |row| or_dash(row.p99_us, latency_us)),
        RowColumn::new("p99.9", |row| or_dash(row.p999_us, latency_us)),
        RowColumn::new("max", |row| or_dash(row.max_us, latency_us)),
        RowColumn::new("demand MB", move |row| mb(demand(row))),
        RowColumn::new("used MB", |row| mb(row.used_bytes)),
        RowColumn::new("unused MB", |row| mb(row.unused_bytes)),
        RowColumn::new("not used yet MB", |row| mb(row.unresolved_bytes)),
    ];
    let caption = "Latencies, and bytes by their use";
    Table::new(caption, columns, &report.rows)
}

// The times of a comparison as a bar chart, with the fastest rows marked.

/// Creates the chart of times, with a bar for each policy that shows its mean time and confidence interval. The title contains the name of
/// the workload, unless `alone` is true, that is, the chart is the only one on its page.
fn times(report: &Report, alone: bool) -> Figure {
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
        let about = match row.limit {
            true => " (a limit, not a choice)",
            false => "",
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
        let svg = times(&report, true).to_svg();
        assert!(svg.contains("▸ auto, fastest"), "{svg}");
        assert_eq!(svg.matches("fastest").count(), 1, "{svg}");
    }
}
