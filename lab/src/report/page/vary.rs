//! The page of `compare --vary`: throughput and bytes over the values, the plateaus marked.
//!
//! Never: a plateau of a parameter that is a word, or of a line without a slope.

use crate::report::row::Row;
use crate::report::series::{Series, source, throughput};
use crate::report::table;
use foreread_report::block::Table;
use foreread_report::chart::{Point, looks};
use foreread_report::number;
use foreread_report::page::curves::{Axis, Curve, CurvePoint, Curves, plateau};
use foreread_report::page::{Figure, Grid, Page, Section, about, fact};

#[must_use]
pub fn series(series: &Series) -> String {
    let first = series.reports.first();
    let mut lead = vec![series.verdict()];
    lead.extend(plateaus(series));
    let page = Page {
        title: series.title(),
        lead: ("Result", lead),
        facts: vec![
            fact("measured", series.how()),
            fact(
                "foreread",
                first.map_or_else(String::new, |r| r.foreread.clone()),
            ),
            fact(
                "tests at each value",
                first.map_or_else(String::new, |r| {
                    format!("paired t, Holm, alpha {}", r.alpha)
                }),
            ),
        ],
        sections: vec![section(series)],
        ..Page::default()
    };
    page.to_html(&series.to_json())
}

/// The place of a value on the axis: words are in the order of the command line.
fn places(series: &Series) -> Vec<f64> {
    let order = || (1..=series.vary.values.len()).map(|i| i as f64).collect();
    series.vary.numbers().unwrap_or_else(order)
}

/// A line for each policy.
fn lines(series: &Series, of: fn(&Row) -> Option<Point>, marked: bool) -> Vec<Curve> {
    let places = places(series);
    let line = |(i, name): (usize, &String)| {
        let at = |(n, x): (usize, &f64)| {
            let point = of(series.reports.get(n)?.rows.get(i)?)?;
            Some(CurvePoint {
                x: *x,
                y: point.value,
                interval: point.interval,
                marked: true,
            })
        };
        let mut points: Vec<CurvePoint> = places.iter().enumerate().filter_map(at).collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        let plateau = (marked && series.vary.numbers().is_some())
            .then(|| plateau(&points))
            .flatten();
        Curve {
            name: name.clone(),
            points,
            colour: looks::of_policy(name),
            twin: false,
            plateau,
        }
    };
    series.policies.iter().enumerate().map(line).collect()
}

/// A sentence for each policy that has a plateau.
fn plateaus(series: &Series) -> Vec<String> {
    let said = |line: &Curve| {
        let from = line.plateau?;
        let best = line.points.iter().map(|p| p.y).reduce(f64::max)?;
        let here = line.points.iter().find(|p| p.x == from)?.y;
        let label = if series.vary.bytes {
            number::size(from as u64)
        } else {
            from.to_string()
        };
        let (name, key) = (&line.name, &series.vary.key);
        let (here, best) = (number::three(here), number::three(best));
        Some(format!(
            "{name} has 98 % of its best throughput from {key}={label} on: {here} of {best} MB/s."
        ))
    };
    lines(series, throughput, true)
        .iter()
        .filter_map(said)
        .collect()
}

fn section(series: &Series) -> Section {
    let labels = series.vary.labels();
    let unit = if series.vary.bytes {
        ", bytes (K = 1024)"
    } else {
        ""
    };
    let places = places(series);
    let plot = |what: &str, y_title: &str, lines: Vec<Curve>| {
        let curves = Curves {
            title: format!("{what}: {}", series.title()),
            about: about("A line for each policy over the values"),
            x_title: format!("{}{unit}", series.vary.key),
            y_title: y_title.to_string(),
            x_show: number::three,
            x_ticks: places.iter().copied().zip(labels.iter().cloned()).collect(),
            log: series.vary.numbers().is_some(),
            y: Axis::Fitting,
            lines,
        };
        curves.draw()
    };
    let several = series.reports.iter().any(|r| r.runs > 1);
    let head = if several {
        "Throughput, MB/s, with 95 % intervals"
    } else {
        "Throughput, MB/s"
    };
    let fast = lines(series, throughput, true);
    let ring = "A ring and a dotted line: the first value with at least 98 % of the line's best.";
    let caption = if fast.iter().any(|l| l.plateau.is_some()) {
        ring.to_string()
    } else {
        String::new()
    };
    let figures = vec![
        Figure::new(plot("Throughput", head, fast), caption),
        Figure::new(
            plot(
                "Bytes",
                "Read from the source, MB",
                lines(series, source, false),
            ),
            "",
        ),
    ];
    let text = vec![format!("{}: {}.", series.vary.key, series.vary.about)];
    let mut notes = series.notes();
    notes.push("There is no map of the reads: compare at one value draws one".to_string());
    let grids = (0..series.policies.len())
        .filter_map(|i| grid(series, i, &labels))
        .collect();
    Section {
        title: "Over the values".into(),
        text,
        notes,
        figures,
        grids,
        ..Section::default()
    }
}

/// The rows of a policy at every value.
fn grid(series: &Series, policy: usize, labels: &[String]) -> Option<Grid> {
    let columns = table::columns(series.reports.first()?, true);
    let at_values = series.reports.iter().zip(labels);
    let known = at_values.filter_map(|(r, label)| Some((r, label, r.rows.get(policy)?)));
    let known: Vec<_> = known.collect();
    let rows = known.iter().map(|(_, _, row)| *row);
    let caption = format!("{}, MB/s with 95 % intervals", series.policies[policy]);
    let mut grid = Table::new(caption, columns, rows).grid();
    grid.heads[0].clone_from(&series.vary.key);
    for (cells, (report, label, _)) in grid.rows.iter_mut().zip(&known) {
        let best = if report.best.contains(&cells[0]) {
            " (fastest)"
        } else {
            ""
        };
        cells[0] = format!("{label}{best}");
    }
    Some(grid)
}
