//! The HTML page of `probe`: what was measured by size and by depth, the model's figures, and what to set.
//!
//! Measured points have markers and intervals; the model's line is dashed and has neither.

use super::{Pattern, Point, Probe, Spread, TriedForm, table as text};
use crate::setting::Setting;
use foreread_report::block::{self, Block, Column, Table};
use foreread_report::chart::looks;
use foreread_report::json;
use foreread_report::number::{self, or_dash, three};
use foreread_report::page::curves::{Axis, Curve, CurvePoint, Curves};
use foreread_report::page::{Figure, Grid, Page, Section, WHAT_TO_DO, about, fact};

type PointColumn<'a> = Column<'a, Point>;
type TriedColumn<'a> = Column<'a, TriedForm>;

#[must_use]
pub fn page(of: &Probe) -> String {
    let mut facts = vec![
        fact("foreread", of.foreread.clone()),
        fact("read", of.source_about.clone()),
        fact("capacity", capacity(of.capacity_bytes)),
        fact("span", capacity(of.span_bytes)),
        fact("took", format!("{} s", number::three(of.seconds))),
        fact(
            "read_ahead_kb now",
            or_dash(of.readahead_bytes, |b| (b / 1024).to_string()),
        ),
        fact(
            "noise",
            or_dash(of.noise, |n| format!("{} %", number::percent(n))),
        ),
    ];
    facts.extend(of.date.clone().map(|date| fact("date", date)));
    let page = Page {
        title: format!("Probe of {}", of.source),
        lead: (WHAT_TO_DO, of.advice.findings.clone()),
        facts,
        sections: vec![measured(of), fit(of)],
        next: of.advice.settings.iter().map(Setting::copy).collect(),
        ..Page::default()
    };
    page.to_html(&json::pretty(of))
}

fn measured(of: &Probe) -> Section {
    let mut figures = vec![by_size(of), by_latency(of)];
    figures.extend(by_depth(of));
    Section {
        title: "What was measured".to_string(),
        notes: of.notes.clone(),
        figures,
        grids: vec![bests(of), points(of).grid()],
        ..Section::default()
    }
}

fn name(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::Sequential => "sequential",
        Pattern::Random => "random",
    }
}

fn colour(pattern: Pattern) -> usize {
    match pattern {
        Pattern::Sequential => looks::SEQUENTIAL,
        Pattern::Random => looks::RANDOM,
    }
}

const PATTERNS: [Pattern; 2] = [Pattern::Sequential, Pattern::Random];

fn at(x: f64, spread: Spread) -> CurvePoint {
    CurvePoint {
        x,
        y: spread.median,
        interval: [spread.low, spread.high],
        marked: true,
    }
}

/// A line of these points by `x`, and the model's beside it where there is one.
fn lines<'a>(
    name: &str,
    colour: usize,
    points: impl Iterator<Item = &'a Point> + Clone,
    x: fn(&Point) -> f64,
    plateau: Option<f64>,
) -> Vec<Curve> {
    let measured = points.clone().map(|p| at(x(p), p.throughput_mb_s));
    let model = points.filter_map(|p| {
        let y = p.model_mb_s?;
        Some(CurvePoint {
            x: x(p),
            y,
            interval: [y, y],
            marked: false,
        })
    });
    let line = Curve {
        plateau,
        ..curve(name.to_string(), colour, measured)
    };
    let model = Curve {
        twin: true,
        ..curve(format!("{name}, model"), colour, model)
    };
    [line, model]
        .into_iter()
        .filter(|l| !l.points.is_empty())
        .collect()
}

/// A line from the lowest `x` to the highest.
fn curve(name: String, colour: usize, points: impl Iterator<Item = CurvePoint>) -> Curve {
    let mut points: Vec<CurvePoint> = points.collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    Curve {
        name,
        points,
        colour,
        ..Curve::default()
    }
}

fn ticks<'a>(points: impl Iterator<Item = &'a Point>, x: fn(&Point) -> u64) -> Vec<(f64, String)> {
    let mut all: Vec<u64> = points.map(x).collect();
    all.sort_unstable();
    all.dedup();
    all.into_iter()
        .map(|v| (v as f64, number::size(v)))
        .collect()
}

fn plot(
    of: &Probe,
    y_title: &str,
    x_title: &str,
    x_ticks: Vec<(f64, String)>,
    lines: Vec<Curve>,
) -> String {
    let curves = Curves {
        title: format!("{y_title}: {}", of.source),
        about: about("Medians of the rounds, with their quartiles, and the model's lines"),
        x_title: x_title.to_string(),
        y_title: y_title.to_string(),
        x_show: number::three,
        x_ticks,
        log: true,
        y: Axis::Fitting,
        lines,
    };
    curves.draw()
}

fn by_size(of: &Probe) -> Figure {
    let single = || of.points.iter().filter(|p| p.depth == 1);
    let plateau = of.advice.plateau_bytes.map(|b| b as f64);
    let all = PATTERNS.into_iter().flat_map(|pattern| {
        let plateau = plateau.filter(|_| pattern == Pattern::Sequential);
        lines(
            name(pattern),
            colour(pattern),
            single().filter(move |p| p.pattern == pattern),
            |p| p.request_bytes as f64,
            plateau,
        )
    });
    let head = "Throughput, MB/s, one read at a time";
    let svg = plot(
        of,
        head,
        "request, bytes (K = 1024)",
        ticks(single(), |p| p.request_bytes),
        all.collect(),
    );
    let size = |bytes| or_dash(bytes, number::size);
    let caption = format!(
        "90 % of the best from {} on; the plateau (98 %, the ring) from {} on. Bars: quartiles of the rounds.",
        size(of.advice.request_90_bytes),
        size(of.advice.plateau_bytes)
    );
    Figure::new(svg, caption)
}

fn by_latency(of: &Probe) -> Figure {
    let single = || of.points.iter().filter(|p| p.depth == 1);
    let line = |pattern: Pattern| {
        let points = single().filter(|p| p.pattern == pattern);
        let points = points.map(|p| at(p.request_bytes as f64, p.latency_us));
        curve(name(pattern).to_string(), colour(pattern), points)
    };
    let lines = PATTERNS
        .map(line)
        .into_iter()
        .filter(|l| !l.points.is_empty())
        .collect();
    let ticks = ticks(single(), |p| p.request_bytes);
    let svg = plot(
        of,
        "Median latency, us, one read at a time",
        "request, bytes (K = 1024)",
        ticks,
        lines,
    );
    Figure::new(svg, "Bars: quartiles of the rounds.")
}

/// Throughput by depth, for each size that was measured at several. None where there is none.
fn by_depth(of: &Probe) -> Option<Figure> {
    let mut kinds: Vec<(Pattern, u64)> = of
        .points
        .iter()
        .map(|p| (p.pattern, p.request_bytes))
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    let like = |kind: (Pattern, u64)| {
        of.points
            .iter()
            .filter(move |p| (p.pattern, p.request_bytes) == kind)
    };
    let deep: Vec<(Pattern, u64)> = kinds
        .into_iter()
        .filter(|k| like(*k).any(|p| p.depth > 1))
        .collect();
    let all = deep.iter().flat_map(|kind| {
        let name = format!("{} {}", name(kind.0), number::size(kind.1));
        lines(
            &name,
            colour(kind.0),
            like(*kind),
            |p| f64::from(p.depth),
            None,
        )
    });
    let lines: Vec<Curve> = all.collect();
    let ticks = ticks(deep.iter().flat_map(|kind| like(*kind)), |p| {
        u64::from(p.depth)
    });
    let caption = of.advice.depth_90.map_or_else(String::new, |depth| {
        let bytes = or_dash(of.advice.depth_90_bytes, number::size);
        format!("90 % of the best at a depth of {depth}, with reads of {bytes}.")
    });
    let figure = || {
        Figure::new(
            plot(
                of,
                "Throughput, MB/s, by depth",
                "reads at once",
                ticks,
                lines,
            ),
            caption,
        )
    };
    (!deep.is_empty()).then(figure)
}

fn points(of: &Probe) -> Table {
    let rate = |p: &Point| p.throughput_mb_s;
    let columns = vec![
        PointColumn::new("order", |p| name(p.pattern).to_string()),
        PointColumn::new("request", |p| number::size(p.request_bytes)),
        PointColumn::new("depth", |p| p.depth.to_string()),
        PointColumn::new("MB/s", move |p| three(rate(p).median)),
        PointColumn::new("from", move |p| three(rate(p).low)),
        PointColumn::new("to", move |p| three(rate(p).high)),
        PointColumn::new("model MB/s", |p| or_dash(p.model_mb_s, three)),
        PointColumn::new("error %", |p| or_dash(p.error, number::signed_percent)),
        PointColumn::new("median us", |p| three(p.latency_us.median)),
        PointColumn::new("p99 us", |p| or_dash(p.latency_p99_us, three)),
        PointColumn::new("reads", |p| p.reads.to_string()),
    ];
    let caption = format!(
        "Every point ({}): medians of the rounds, and their quartiles",
        of.points.len()
    );
    let mut table = Table::new(caption, columns, &of.points);
    table.folded = true;
    table
}

fn bests(of: &Probe) -> Grid {
    let a = &of.advice;
    let rate = |v| or_dash(v, |v| format!("{} MB/s", number::three(v)));
    let size = |v| or_dash(v, number::size);
    let rows = [
        ("best, one read at a time", rate(a.best_mb_s)),
        ("request for 90 % of it", size(a.request_90_bytes)),
        ("request for 98 % of it (plateau)", size(a.plateau_bytes)),
        ("best at any depth", rate(a.best_deep_mb_s)),
        (
            "depth for 90 % of it",
            or_dash(a.depth_90, |d| d.to_string()),
        ),
        ("cap for this capacity", size(a.capacity_cap_bytes)),
    ];
    let rows = rows.map(|(name, value)| vec![name.to_string(), value]);
    Grid::new("Summary", ["", "value"]).with(rows)
}

fn fit(of: &Probe) -> Section {
    let percent = |e: f64| format!("{:.1}", e * 100.0);
    let columns = vec![
        TriedColumn::new("form", |t| t.form.clone()),
        TriedColumn::new("figures fitted", |t| t.parameters.to_string()),
        TriedColumn::new("median error %", move |t| percent(t.median_error)),
        TriedColumn::new("worst error %", move |t| percent(t.worst_error)),
        TriedColumn::new("error % when left out", move |t| {
            or_dash(t.left_out_error, percent)
        }),
        TriedColumn::new("", |t| (if t.chosen { "chosen" } else { "" }).to_string()),
    ];
    let tried = &of.fit.tried;
    let mut table = Table::new("Every form that was tried", columns, tried);
    table.strong = (0..tried.len()).filter(|i| tried[*i].chosen).collect();
    let mut blocks = text::model(of);
    blocks.push(Block::Table(table));
    block::section("The model", blocks)
}

/// A size as drives are sold: a power of two where it is one, else GB of 10^9 bytes.
fn capacity(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 20) || bytes < 1_000_000_000 {
        number::size(bytes)
    } else {
        format!("{:.1} GB", bytes as f64 / 1e9)
    }
}
