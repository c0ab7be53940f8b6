//! The page of `compare --vary`: throughput and bytes over the values, the plateaus marked.
//!
//! Never: a plateau of a parameter that is a word, or of a line without a slope.

use crate::report::row::Row;
use crate::report::series::{Series, Value};
use foreread_report::number::{self, or_dash};
use foreread_report::page::curves::{Axis, Curve, CurvePoint, Curves, plateau};
use foreread_report::page::{Figure, Grid, Page, Section, about};

/// The page of a series.
#[must_use]
pub fn series(series: &Series) -> String {
    let first = series.reports.first();
    let fact = |name: &str, value: String| (name.to_string(), value);
    let page = Page {
        title: series.title(),
        lead: ("Result", plateaus(series)),
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
        json: String::new(),
    };
    page.with_values(series.to_json()).to_html()
}

/// The place of a value on the axis: words are in the order of the command line.
fn places(series: &Series) -> Vec<f64> {
    let number = |value: &Value| match value {
        Value::Number(number) => Some(*number as f64),
        Value::Word(_) => None,
    };
    let numbers: Option<Vec<f64>> = series.vary.values.iter().map(number).collect();
    numbers.unwrap_or_else(|| (1..=series.vary.values.len()).map(|i| i as f64).collect())
}

fn is_numeric(series: &Series) -> bool {
    series
        .vary
        .values
        .iter()
        .all(|v| matches!(v, Value::Number(_)))
}

/// A line for each policy.
fn lines(series: &Series, of: impl Fn(&Row) -> Option<CurvePoint>, marked: bool) -> Vec<Curve> {
    let places = places(series);
    let line = |(i, name): (usize, &String)| {
        let at = |(n, x): (usize, &f64)| {
            Some(CurvePoint {
                x: *x,
                ..of(series.reports.get(n)?.rows.get(i)?)?
            })
        };
        let mut points: Vec<CurvePoint> = places.iter().enumerate().filter_map(at).collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        let plateau = (marked && is_numeric(series))
            .then(|| plateau(&points))
            .flatten();
        Curve {
            name: name.clone(),
            points,
            twin: false,
            plateau,
        }
    };
    series.policies.iter().enumerate().map(line).collect()
}

/// Throughput, with the interval that the time's gives.
fn throughput(row: &Row) -> Option<CurvePoint> {
    let point = crate::report::series::throughput(row)?;
    Some(CurvePoint {
        x: 0.0,
        y: point.value,
        interval: point.interval,
        marked: true,
    })
}

fn source(row: &Row) -> Option<CurvePoint> {
    let mb = row.source_bytes? as f64 / number::MB;
    Some(CurvePoint {
        x: 0.0,
        y: mb,
        interval: [mb, mb],
        marked: true,
    })
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
    let labels: Vec<String> = series
        .vary
        .values
        .iter()
        .map(|v| series.vary.label(v))
        .collect();
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
            log: is_numeric(series),
            y: Axis::Zero,
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
    let text = vec![
        format!("{}: {}.", series.vary.key, series.vary.about),
        "There is no map of the reads: compare at one value draws one.".to_string(),
    ];
    let grids = (0..series.policies.len())
        .map(|i| grid(series, i, &labels))
        .collect();
    Section {
        title: "Over the values".into(),
        text,
        notes: series.notes(),
        figures,
        grids,
        ..Section::default()
    }
}

/// The rows of a policy at every value.
fn grid(series: &Series, policy: usize, labels: &[String]) -> Grid {
    let heads = [
        series.vary.key.as_str(),
        "MB/s",
        "from",
        "to",
        "mean s",
        "vs none",
        "read MB",
        "read amplification",
        "p50",
        "p99",
    ];
    let line = |(label, report): (&String, &crate::report::Report)| {
        let row = report.rows.get(policy)?;
        let rate = throughput(row);
        let mut cells = vec![if report.best.contains(&row.policy) {
            format!("{label} (fastest)")
        } else {
            label.clone()
        }];
        cells.extend(
            [
                rate.map(|r| r.y),
                rate.map(|r| r.interval[0]),
                rate.map(|r| r.interval[1]),
            ]
            .map(|v| or_dash(v.filter(|v| v.is_finite()), number::three)),
        );
        cells.push(or_dash(row.time_s.as_ref(), |t| {
            number::span_s(t.mean, None)
        }));
        cells.push(or_dash(row.ratio_to_none, number::times));
        cells.push(or_dash(row.source_bytes, |b| {
            number::three(b as f64 / number::MB)
        }));
        cells.push(or_dash(row.overfetch, number::three));
        cells.extend([row.p50_us, row.p99_us].map(|us| or_dash(us, number::latency_us)));
        Some(cells)
    };
    let rows = labels.iter().zip(&series.reports).filter_map(line);
    Grid::new(
        format!("{}, MB/s with 95 % intervals", series.policies[policy]),
        heads,
    )
    .with(rows)
}
