//! The HTML page of `compare --vary`: throughput and bytes as functions of the varied parameter.

use crate::report::row::{Row, Spread};
use crate::report::series::Series;
use foreread_report::block::{self, Block};
use foreread_report::figure::{Figure, Line, Lines, Point};
use foreread_report::page::{Page, Section, fact};

#[must_use]
pub fn series(series: &Series) -> String {
    let first = series.reports.first();
    let page = Page {
        title: series.title(),
        lead: ("Result", vec![series.verdict()]),
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

/// One line for each policy. Values that are words keep the order of the command line.
fn lines(series: &Series, of: fn(&Row) -> Option<Spread>) -> Vec<Line> {
    let line = |(i, name): (usize, &String)| {
        let at = |(n, x): (usize, f64)| {
            let spread = of(series.reports.get(n)?.rows.get(i)?)?;
            Some(Point {
                interval: spread.interval,
                ..Point::new(x, spread.value)
            })
        };
        let places = places(series).into_iter().enumerate();
        let mut points: Vec<Point> = places.filter_map(at).collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        let name = name.clone();
        Line { name, points }
    };
    series.policies.iter().enumerate().map(line).collect()
}

fn places(series: &Series) -> Vec<f64> {
    let order = || (1..=series.vary.values.len()).map(|i| i as f64).collect();
    series.vary.numbers().unwrap_or_else(order)
}

/// Charts of throughput and bytes as functions of the parameter.
fn figures(series: &Series) -> [Figure; 2] {
    let unit = if series.vary.bytes {
        ", bytes (K = 1024)"
    } else {
        ""
    };
    let plot = |title: &str, lines: Vec<Line>| {
        let lines = Lines {
            x_name: format!("{}{unit}", series.vary.key),
            x_ticks: places(series)
                .into_iter()
                .zip(series.vary.labels())
                .collect(),
            is_x_log: series.vary.numbers().is_some(),
            lines,
        };
        Figure::lines(title, lines)
    };
    let several = series.reports.iter().any(|r| r.runs > 1);
    let title = match several {
        true => "Throughput, MB/s, with 95 % intervals (more is better)",
        false => "Throughput, MB/s (more is better)",
    };
    [
        plot(title, lines(series, Row::throughput)),
        plot(
            "Read from the source, MB (less is better)",
            lines(series, Row::source_mb),
        ),
    ]
}

fn section(series: &Series) -> Section {
    let about = format!("{}: {}.", series.vary.key, series.vary.about);
    let mut blocks = vec![Block::Text(about)];
    blocks.extend(figures(series).map(Block::Figure));
    blocks.extend(series.tables());
    blocks.extend(series.notes().into_iter().map(Block::Note));
    block::section("Results by value", blocks)
}
