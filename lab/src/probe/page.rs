//! The HTML page of `probe`: what was measured by size and by depth, the model's figures, and what to set.
//!
//! Measured points have markers and intervals; the model's line is dashed and has neither.

use super::{Pattern, Point, Probe, Spread, Tried};
use foreread_report::json;
use foreread_report::number::{self, or_dash};
use foreread_report::page::curves::{Axis, Curve, CurvePoint, Curves};
use foreread_report::page::{Figure, Grid, Page, Section, WHAT_TO_DO, about};

/// The page of a probe.
#[must_use]
pub fn page(of: &Probe) -> String {
    let fact = |name: &str, value: String| (name.to_string(), value);
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
        sections: vec![settings(of), measured(of), fit(of)],
        json: String::new(),
    };
    page.with_values(json::pretty(of)).to_html()
}

fn measured(of: &Probe) -> Section {
    let mut figures = vec![by_size(of), by_latency(of)];
    figures.extend(by_depth(of));
    Section {
        title: "What was measured".to_string(),
        notes: of.notes.clone(),
        figures,
        grids: vec![bests(of), points(of)],
        ..Section::default()
    }
}

fn name(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::Sequential => "sequential",
        Pattern::Random => "random",
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
    points: impl Iterator<Item = &'a Point> + Clone,
    x: fn(&Point) -> f64,
    plateau: Option<f64>,
) -> Vec<Curve> {
    let sorted = |mut points: Vec<CurvePoint>| {
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        points
    };
    let measured = sorted(
        points
            .clone()
            .map(|p| at(x(p), p.throughput_mb_s))
            .collect(),
    );
    let model = points.filter_map(|p| {
        p.model_mb_s.map(|y| CurvePoint {
            x: x(p),
            y,
            interval: [y, y],
            marked: false,
        })
    });
    let model = Curve {
        name: format!("{name}, model"),
        points: sorted(model.collect()),
        twin: true,
        plateau: None,
    };
    let line = Curve {
        name: name.to_string(),
        points: measured,
        twin: false,
        plateau,
    };
    [line, model]
        .into_iter()
        .filter(|l| !l.points.is_empty())
        .collect()
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
        y: Axis::Zero,
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
        let points = single()
            .filter(|p| p.pattern == pattern)
            .map(|p| at(p.request_bytes as f64, p.latency_us));
        let mut points: Vec<CurvePoint> = points.collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        Curve {
            name: name(pattern).to_string(),
            points,
            ..Curve::default()
        }
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
        lines(&name, like(*kind), |p| f64::from(p.depth), None)
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

fn points(of: &Probe) -> Grid {
    let heads = [
        "order",
        "request",
        "depth",
        "MB/s",
        "from",
        "to",
        "model MB/s",
        "error %",
        "median us",
        "p99 us",
        "reads",
    ];
    let line = |p: &Point| {
        let Spread { median, low, high } = p.throughput_mb_s;
        vec![
            name(p.pattern).to_string(),
            number::size(p.request_bytes),
            p.depth.to_string(),
            number::three(median),
            number::three(low),
            number::three(high),
            or_dash(p.model_mb_s, number::three),
            or_dash(p.error, |e| format!("{:+.1}", e * 100.0)),
            number::three(p.latency_us.median),
            or_dash(p.latency_p99_us, number::three),
            p.reads.to_string(),
        ]
    };
    let caption = format!(
        "Every point ({}): medians of the rounds, and their quartiles",
        of.points.len()
    );
    Grid {
        folded: true,
        ..Grid::new(caption, heads).with(of.points.iter().map(line))
    }
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

fn settings(of: &Probe) -> Section {
    let copies = of
        .advice
        .settings
        .iter()
        .map(|s| [s.place.clone(), s.text.clone(), s.why.clone()])
        .collect();
    Section {
        title: "What to set".to_string(),
        copies,
        ..Section::default()
    }
}

fn fit(of: &Probe) -> Section {
    let percent = |e: f64| format!("{:.1}", e * 100.0);
    let line = |t: &Tried| {
        vec![
            t.form.clone(),
            t.parameters.to_string(),
            percent(t.median_error),
            percent(t.worst_error),
            or_dash(t.left_out_error, percent),
            (if t.chosen { "chosen" } else { "" }).to_string(),
        ]
    };
    let heads = [
        "form",
        "figures fitted",
        "median error %",
        "worst error %",
        "error % when left out",
        "",
    ];
    let mut grid =
        Grid::new("Every form that was tried", heads).with(of.fit.tried.iter().map(line));
    grid.strong = (0..of.fit.tried.len())
        .filter(|i| of.fit.tried[*i].chosen)
        .collect();
    let mut text = vec![format!(
        "{}: {}. {}",
        of.fit.kind, of.fit.figures, of.fit.reason
    )];
    if !of.fit.holds {
        let error = percent(of.fit.median_error);
        text.insert(
            0,
            format!(
                "Low confidence: the storage behaved irregularly (typical error {error} %). Repeat when it is idle."
            ),
        );
    }
    Section {
        title: "The model".to_string(),
        text,
        grids: vec![grid],
        ..Section::default()
    }
}

/// A size as drives are sold: a power of two where it is one, else GB of 10^9 bytes.
fn capacity(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 20) || bytes < 1_000_000_000 {
        number::size(bytes)
    } else {
        format!("{:.1} GB", bytes as f64 / 1e9)
    }
}
