//! Line charts with intervals as SVG: panels above each other that share an axis, one line for each row of a report.
//!
//! Written here and not with a library, for these reasons: of the crates that draw, one is asleep since 2024 and
//! brings 50 others, and those that are alive ship megabytes of script. None writes colours for a light and a dark
//! page into one file. A chart of ours is one small file that works offline and can be compared in a test.
//!
//! Never: a script, a font or a colour from elsewhere; a line across a value that was not measured; a point outside
//! its frame (an interval that reaches out of it ends there).
//!
//! ```text
//!   Chart ─► title, notes, legend ─► for each panel: frame, ticks, lines ─► svg::Svg ─► text
//!              x values ── scale::Scale ──────────────┘
//! ```

pub mod looks;
pub mod scale;
pub mod svg;

use super::number;
use scale::{Scale, Spread};
use svg::{Anchor, Look, Svg};

/// Width of the picture in pixels: a phone's, and half a page's.
const WIDTH: f64 = 480.0;
/// Height of the frame of a panel.
const FRAME: f64 = 170.0;
/// Paper around everything.
const MARGIN: f64 = 14.0;
/// From the frame to the outermost points.
const INSET: f64 = 12.0;
/// Lines of small text are so far apart.
const LEADING: f64 = 15.0;
/// Width of a letter of the small text: a generous mean, since the font is the reader's.
const LETTER: f64 = 6.2;
/// Width of a letter of the title.
const HEAD_LETTER: f64 = 7.8;
/// Lines of title and of notes; more is cut.
const MAX_LINES: usize = 4;
/// Letters of a name in the legend or a label on an axis; more is cut.
const MAX_LETTERS: usize = 40;
/// Most steps from tick to tick of a panel's own axis.
const STEPS: u32 = 6;

#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// What is shown, and of what.
    pub title: String,
    /// A sentence on how it was measured.
    pub note: String,
    /// The axis that the panels share: what it is, with its unit.
    pub x_title: String,
    /// The values on it.
    pub x: Vec<f64>,
    pub x_labels: Vec<String>,
    /// The names of the lines.
    pub lines: Vec<String>,
    /// The panels, top to bottom.
    pub panels: Vec<Panel>,
}

/// One frame of a chart.
#[derive(Clone, Debug, Default)]
pub struct Panel {
    /// What it shows, with its unit.
    pub title: String,
    /// For each line of the chart a point for each value of `x`, where there is one.
    pub points: Vec<Vec<Option<Point>>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// What was measured, zero or more.
    pub value: f64,
    /// Ends of its interval; may be infinite. Both are the value where there is none.
    pub interval: [f64; 2],
}

/// The chart as an SVG file.
#[must_use]
pub fn render(chart: &Chart) -> String {
    let title = lines_of(&chart.title, HEAD_LETTER);
    let note = lines_of(&chart.note, LETTER);
    let legend = legend(&chart.lines);
    let rows = legend.last().map_or(0.0, |at| at[1]);
    let head = MARGIN + 18.0 * title.len() as f64 + LEADING * note.len() as f64 + 6.0;
    let panels = head + rows + LEADING + 12.0;
    // Above a frame its title, below it the labels and the title of the axis.
    let each = FRAME + 62.0;
    let mut svg = Svg::new(
        WIDTH,
        panels + each * chart.panels.len() as f64,
        &chart.title,
    );
    let mut y = MARGIN;
    for line in &title {
        y += 18.0;
        svg.text("name", [MARGIN, y - 4.0], Anchor::Start, line);
    }
    for line in &note {
        y += LEADING;
        svg.text("soft", [MARGIN, y - 3.0], Anchor::Start, line);
    }
    let looks = looks_of(&chart.lines);
    for ((name, [x, row]), look) in chart.lines.iter().zip(legend).zip(looks) {
        let y = head + row + 6.0;
        svg.open_line(look);
        svg.path("line", &[[x, y], [x + 24.0, y]]);
        svg.marker(look, [x + 12.0, y], "");
        svg.close();
        svg.text("ink", [x + 30.0, y + 4.0], Anchor::Start, &cut(name));
    }
    let frames = Frames::of(chart);
    for (i, panel) in chart.panels.iter().enumerate() {
        frames.draw(&mut svg, panel, panels + each * i as f64);
    }
    svg.finish()
}

/// The looks of the lines of policies.
fn looks_of(policies: &[String]) -> Vec<Look> {
    let colours: Vec<usize> = policies.iter().map(|name| looks::of_policy(name)).collect();
    looks::of_lines(&colours)
}

/// Where the frames of a chart stand and how their shared axis runs.
struct Frames<'a> {
    chart: &'a Chart,
    left: f64,
    x: Scale,
    /// The values of `x` from left to right.
    order: Vec<usize>,
}

impl<'a> Frames<'a> {
    fn of(chart: &'a Chart) -> Frames<'a> {
        let letters = chart
            .panels
            .iter()
            .flat_map(|panel| Ticks::of(panel).labels)
            .map(|l| l.chars().count())
            .max();
        let left = MARGIN + letters.unwrap_or(0) as f64 * LETTER + 8.0;
        let x = Scale::across(
            &chart.x,
            Spread::of(&chart.x),
            [left + INSET, WIDTH - MARGIN - INSET],
        );
        let mut order: Vec<usize> = (0..chart.x.len()).collect();
        order.sort_by(|a, b| chart.x[*a].total_cmp(&chart.x[*b]));
        Frames {
            chart,
            left,
            x,
            order,
        }
    }

    fn draw(&self, svg: &mut Svg, panel: &Panel, top: f64) {
        let ticks = Ticks::of(panel);
        let log = if ticks.is_log {
            ", logarithmic axis"
        } else {
            ""
        };
        let title = format!("{}{log}", panel.title);
        svg.text("head", [MARGIN, top + 8.0], Anchor::Start, &title);
        let (top, right) = (top + 18.0, WIDTH - MARGIN);
        let bottom = top + FRAME;
        let y = ticks.scale([bottom, top]);
        for (n, (value, label)) in ticks.values.iter().zip(&ticks.labels).enumerate() {
            let at = y.place(*value);
            svg.path(
                if n == 0 { "axis" } else { "grid" },
                &[[self.left, at], [right, at]],
            );
            svg.text("soft", [self.left - 6.0, at + 4.0], Anchor::End, label);
        }
        self.x_axis(svg, top, bottom);
        let labelled = panel.points.iter().zip(&self.chart.lines);
        for ((points, name), look) in labelled.zip(looks_of(&self.chart.lines)) {
            svg.open_line(look);
            self.line(svg, look, name, points, y);
            svg.close();
        }
    }

    fn x_axis(&self, svg: &mut Svg, top: f64, bottom: f64) {
        let places: Vec<f64> = self
            .order
            .iter()
            .map(|i| self.x.place(self.chart.x[*i]))
            .collect();
        let labels: Vec<String> = self
            .order
            .iter()
            .map(|i| cut(&self.chart.x_labels[*i]))
            .collect();
        let widths: Vec<f64> = labels
            .iter()
            .map(|l| l.chars().count() as f64 * LETTER)
            .collect();
        for i in (0..places.len()).step_by(scale::stride(&places, &widths, LETTER)) {
            let half = (widths[i] / 2.0).min(WIDTH / 2.0);
            svg.path("grid", &[[places[i], top], [places[i], bottom]]);
            svg.text(
                "soft",
                [places[i].clamp(half, WIDTH - half), bottom + LEADING],
                Anchor::Middle,
                &labels[i],
            );
        }
        let middle = f64::midpoint(self.left, WIDTH - MARGIN);
        let title: String = number::cut(
            &self.chart.x_title,
            ((WIDTH - 2.0 * MARGIN) / LETTER) as usize,
        );
        svg.text(
            "soft",
            [middle, bottom + 2.0 * LEADING],
            Anchor::Middle,
            &title,
        );
    }

    /// The intervals, then the line in pieces without gaps, then the markers over both. What is not a number is a gap.
    fn line(&self, svg: &mut Svg, look: Look, name: &str, points: &[Option<Point>], y: Scale) {
        let at = |n: usize, value: f64| [self.x.place(self.chart.x[n]), y.place(value)];
        let measured = |n: usize| {
            points
                .get(n)
                .copied()
                .flatten()
                .filter(|p| p.value.is_finite())
        };
        let there = || self.order.iter().filter_map(|n| Some((*n, measured(*n)?)));
        for (n, point) in there().filter(|(_, p)| p.interval[0] < p.interval[1]) {
            let [low, high] = point.interval.map(|end| at(n, end)[1]);
            svg.interval(at(n, point.value)[0], high, low);
        }
        let path: Vec<_> = self
            .order
            .iter()
            .map(|n| measured(*n).map(|p| at(*n, p.value)))
            .collect();
        for piece in path.split(Option::is_none).filter(|piece| piece.len() > 1) {
            svg.path("line", &piece.iter().flatten().copied().collect::<Vec<_>>());
        }
        for (n, point) in there() {
            let tip = format!(
                "{name}, {}: {}",
                self.chart.x_labels[n],
                number::three(point.value)
            );
            svg.marker(look, at(n, point.value), &tip);
        }
    }
}

/// The ticks of an axis of measured values.
pub struct Ticks {
    pub values: Vec<f64>,
    pub labels: Vec<String>,
    /// Equal steps for equal factors, where values differ by 50 times or more; else from zero.
    pub is_log: bool,
}

impl Ticks {
    /// Over the highest of the values and the highest end of an interval, in at most this number of steps from zero.
    #[must_use]
    pub fn reaching(values: &[f64], tops: impl Iterator<Item = f64>, steps: u32) -> Ticks {
        let finite = || values.iter().copied().filter(|value| value.is_finite());
        let most = tops
            .chain(finite())
            .filter(|top| top.is_finite())
            .fold(0.0, f64::max);
        let least = finite().fold(f64::INFINITY, f64::min);
        if scale::is_wide(values) {
            let values = scale::log_ticks(least, most);
            let labels = scale::log_labels(&values);
            return Ticks {
                values,
                labels,
                is_log: true,
            };
        }
        let values = scale::ticks_to(most, steps);
        let labels = scale::labels(&values);
        Ticks {
            values,
            labels,
            is_log: false,
        }
    }

    fn of(panel: &Panel) -> Ticks {
        let points = || panel.points.iter().flatten().flatten();
        let values: Vec<f64> = points().map(|point| point.value).collect();
        Ticks::reaching(&values, points().map(|point| point.interval[1]), STEPS)
    }

    /// The lowest lands on `to[0]`, the highest on `to[1]`.
    #[must_use]
    pub fn scale(&self, to: [f64; 2]) -> Scale {
        match self.is_log {
            true => Scale::across(&self.values, Spread::Log2, to),
            false => Scale::from_zero(&self.values, to),
        }
    }
}

/// Places of the legend's entries: as many in a row as the picture is wide.
fn legend(names: &[String]) -> Vec<[f64; 2]> {
    let (mut x, mut y) = (MARGIN, 0.0);
    let mut places = Vec::new();
    for name in names {
        let width = 30.0 + cut(name).chars().count() as f64 * LETTER + 14.0;
        if x > MARGIN && x + width > WIDTH {
            (x, y) = (MARGIN, y + LEADING + 2.0);
        }
        places.push([x, y]);
        x += width;
    }
    places
}

/// `text` in lines as wide as the picture, with letters of this width.
fn lines_of(text: &str, letter: f64) -> Vec<String> {
    let most = ((WIDTH - 2.0 * MARGIN) / letter) as usize;
    let lines = number::wrap(text, most);
    lines
        .iter()
        .take(MAX_LINES)
        .map(|l| number::cut(l.trim_start(), most))
        .filter(|l| !l.is_empty())
        .collect()
}

fn cut(text: &str) -> String {
    number::cut(text, MAX_LETTERS)
}
