//! The HTML page of `compare --vary`: throughput and bytes as functions of the varied parameter. On each line of the chart, the first value
//! of the parameter that reaches 98 % of the line's best throughput (the start of a plateau) is marked.
//!
//! No plateau is marked if the parameter's values are words, or if the whole line of the chart is flat.

use crate::report::row::{Row, Spread};
use crate::report::series::Series;
use foreread_report::block::{self, Block};
use foreread_report::figure::{Figure, Line, Lines, Point};
use foreread_report::number;
use foreread_report::page::{Page, Section, fact};

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

/// One line for each policy. Values that are words keep the order of the command line.
fn lines(series: &Series, of: fn(&Row) -> Option<Spread>, is_marked: bool) -> Vec<Line> {
    let numbers = series.vary.numbers();
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
        let is_marked = is_marked && numbers.is_some();
        Line {
            name: name.clone(),
            ring: is_marked.then(|| plateau(&points)).flatten(),
            points,
        }
    };
    series.policies.iter().enumerate().map(line).collect()
}

fn places(series: &Series) -> Vec<f64> {
    let order = || (1..=series.vary.values.len()).map(|i| i as f64).collect();
    series.vary.numbers().unwrap_or_else(order)
}

/// The lowest `x` whose `y` is at least 98 % of the highest: the rule behind the `==>` of 2010. Returns `None` for a
/// line that reaches this at its lowest `x`, because it has no slope before it.
fn plateau(points: &[Point]) -> Option<f64> {
    /// From this part of the best on, a value counts as the best.
    const PART: f64 = 0.98;
    let values = points.iter().map(|p| p.y).filter(|y| y.is_finite());
    let best = values.reduce(f64::max)?;
    let first = points.iter().position(|p| p.y >= best * PART)?;
    (first > 0).then(|| points[first].x)
}

/// A sentence for each policy that has a plateau.
fn plateaus(series: &Series) -> Vec<String> {
    let said = |line: &Line| {
        let from = line.ring?;
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
            "{name} first reaches 98 % of its best throughput at {key}={label}: {here} of {best} MB/s."
        ))
    };
    lines(series, Row::throughput, true)
        .iter()
        .filter_map(said)
        .collect()
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
    let fast = lines(series, Row::throughput, true);
    let caption = match fast.iter().any(|line| line.ring.is_some()) {
        true => "A ring marks the first value with at least 98 % of the line's best throughput.",
        false => "",
    };
    [
        plot(title, fast).with_caption(caption),
        plot(
            "Read from the source, MB (less is better)",
            lines(series, Row::source_mb, false),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plateau_is_the_first_within_two_per_cent_of_the_best() {
        let of = |values: &[f64]| {
            let points = values.iter().enumerate();
            let points: Vec<Point> = points.map(|(x, y)| Point::new(x as f64, *y)).collect();
            plateau(&points)
        };
        assert_eq!(of(&[10.0, 97.9, 98.0, 100.0, 99.0]), Some(2.0));
        assert_eq!(of(&[60.0, 100.0, 50.0]), Some(1.0));
        assert_eq!(of(&[99.0, 100.0]), None, "no slope before it");
        assert_eq!((of(&[]), of(&[f64::NAN])), (None, None));
    }
}
