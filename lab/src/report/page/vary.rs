//! The page of `compare --vary`: throughput and bytes over the values, the plateaus marked.
//!
//! Never: a plateau of a parameter that is a word, or of a line without a slope.

use crate::report::row::Row;
use crate::report::series::{Series, source, throughput};
use foreread_report::block::{self, Block};
use foreread_report::chart::{Point, looks};
use foreread_report::number;
use foreread_report::page::curves::{Axis, Curve, CurvePoint, Curves, plateau};
use foreread_report::page::{Figure, Page, Section, about, fact};

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
    let (places, labels) = (places(series), series.vary.labels());
    let unit = match series.vary.bytes {
        true => ", bytes (K = 1024)",
        false => "",
    };
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
    let head = match series.reports.iter().any(|r| r.runs > 1) {
        true => "Throughput, MB/s, with 95 % intervals",
        false => "Throughput, MB/s",
    };
    let fast = lines(series, throughput, true);
    let caption = match fast.iter().any(|line| line.plateau.is_some()) {
        true => "A ring and a dotted line: the first value with at least 98 % of the line's best.",
        false => "",
    };
    let bytes = lines(series, source, false);
    let mut blocks = vec![
        Block::Text(format!("{}: {}.", series.vary.key, series.vary.about)),
        Block::Figure(Figure::new(plot("Throughput", head, fast), caption)),
        Block::Figure(Figure::new(
            plot("Bytes", "Read from the source, MB", bytes),
            "",
        )),
    ];
    blocks.extend(series.tables());
    blocks.extend(series.notes().into_iter().map(Block::Note));
    let none = "There is no map of the reads: compare at one value draws one";
    blocks.push(Block::Note(none.to_string()));
    block::section("Over the values", blocks)
}
