//! Draws charts as SVG with the crate `plotters`. A drawing is 360 units wide, which fits the screen of a phone; its text is SVG text and
//! not outlines.
//!
//! `plotters` cannot use the text colour of the page or give a drawing a title. So the colour [`INK`] in its output is replaced by
//! `currentColor`, and the title is added to the first tag. All text is escaped, a drawing refers to nothing outside its file, and no
//! point is drawn outside the frame of the chart.

use super::{Bar, Bars, COLOURS, Figure, FigureData, Lines, clean, colours};
use crate::markup::escape;
use crate::number;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::ops::Range;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Pixel = (i32, i32);

const WIDTH: u32 = 360;
const FRAME_HEIGHT: u32 = 190;
const LEGEND_ROW: u32 = 16;
/// Height of a bar with its name above it.
const BAR_ROW: u32 = 32;
const BAR_HEIGHT: i32 = 11;
/// 11 pixels, in the unit of `plotters`.
const FONT_SIZE: f64 = 13.64;
/// Width of a character: a generous mean, since the browser chooses the font.
const LETTER: f64 = 6.2;
/// Longer names are cut.
const MAX_NAME: usize = 50;
/// Longer tick labels are cut.
const MAX_TICK: usize = 14;
/// From this ratio of the largest to the smallest value on, an axis is logarithmic: on a linear axis the smallest value would
/// hardly be visible.
const WIDE: f64 = 50.0;

/// A placeholder for the colour of the text around the drawing.
const INK: RGBColor = RGBColor(1, 2, 3);
const PALETTE: [RGBColor; COLOURS] = [
    RGBColor(0x99, 0x99, 0x99),
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xe6, 0x9f, 0x00),
    INK,
];
/// Colours of the parts of bars.
const PARTS: [usize; 4] = [1, 6, 2, 0];

/// A figure as SVG.
pub(super) fn svg(figure: &Figure) -> String {
    let (rows, frame) = match &figure.data {
        FigureData::Lines(lines) if lines.lines.len() > 1 => (lines.lines.len(), FRAME_HEIGHT + 48),
        FigureData::Lines(_) => (0, FRAME_HEIGHT + 48),
        FigureData::Bars(bars) => (bars.parts.len(), BAR_ROW * bars.bars.len() as u32 + 40),
    };
    let legend_height = LEGEND_ROW * rows as u32;
    let height = legend_height + frame;
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
    let (_, plot) = root.split_vertically(legend_height);
    let pen = Pen { root: &root };
    match &figure.data {
        FigureData::Lines(lines) => pen.lines(&plot, lines, rows),
        FigureData::Bars(bars) => pen.bars(&plot, bars),
    }
    root.present().expect("a string takes everything");
    drop((root, plot));
    let title = escape(&figure.title);
    let body = svg.split_once('>').map_or("", |(_, body)| body);
    let body = body.replace("\"#010203\"", "\"currentColor\"");
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" role=\"img\" viewBox=\"0 0 {WIDTH} {height}\">\n\
         <title>{title}</title>{body}"
    )
}

/// Draws simple shapes at pixel positions of the whole drawing.
struct Pen<'r, 'a> {
    root: &'r Area<'a>,
}

impl Pen<'_, '_> {
    fn path(&self, points: Vec<Pixel>, style: impl Into<ShapeStyle>) {
        let path = PathElement::new(points, style);
        self.root.draw(&path).expect("a string takes everything");
    }

    fn rectangle(&self, [left, top, right, bottom]: [i32; 4], style: impl Into<ShapeStyle>) {
        let rectangle = Rectangle::new([(left, top), (right, bottom)], style);
        let drawn = self.root.draw(&rectangle);
        drawn.expect("a string takes everything");
    }

    fn circle(&self, at: Pixel, radius: i32, style: impl Into<ShapeStyle>) {
        let circle = Circle::new(at, radius, style);
        self.root.draw(&circle).expect("a string takes everything");
    }

    fn text(&self, text: &str, at: Pixel, side: HPos, is_bold: bool) {
        let style = match is_bold {
            true => FontStyle::Bold,
            false => FontStyle::Normal,
        };
        let font = ("system-ui, sans-serif", FONT_SIZE, style).into_font();
        let style = font.color(&INK).pos(Pos::new(side, VPos::Center));
        let text = Text::new(clean(text), at, style);
        self.root.draw(&text).expect("a string takes everything");
    }

    /// Draws a marker of one of five shapes.
    fn marker(&self, shape: usize, (x, y): Pixel, colour: RGBColor) {
        let points = match shape % 5 {
            0 => return self.circle((x, y), 3, colour.filled()),
            1 => return self.rectangle([x - 3, y - 3, x + 3, y + 3], colour.filled()),
            2 => vec![(x, y - 4), (x + 4, y + 3), (x - 4, y + 3)],
            3 => vec![(x, y - 4), (x + 4, y), (x, y + 4), (x - 4, y)],
            _ => vec![(x, y + 4), (x + 4, y - 3), (x - 4, y - 3)],
        };
        let polygon = Polygon::new(points, colour.filled());
        self.root.draw(&polygon).expect("a string takes everything");
    }

    fn lines(&self, plot: &Area<'_>, lines: &Lines, rows: usize) {
        let points = || lines.lines.iter().flat_map(|line| &line.points);
        let y = Scale::of_values(points().map(|point| point.y), 7.0);
        let widest = y.labels.iter().map(|label| label.chars().count()).max();
        let left = widest.unwrap_or(1) as f64 * LETTER + 14.0;
        let x = Scale::of_names(lines, f64::from(WIDTH) - left - RIGHT);
        let chart = chart(plot, left, lines.x_name.as_str(), x, y);
        let mut colours = colours(lines.lines.iter().map(|line| line.name.as_str())).into_iter();
        for (n, line) in lines.lines.iter().enumerate() {
            let colour = PALETTE[colours.next().unwrap_or(0)];
            let style = colour.stroke_width(2);
            let at = |x: f64, y: f64| chart.map_coordinate(&(x, y));
            let points = || {
                line.points
                    .iter()
                    .filter(|p| p.x.is_finite() && p.y.is_finite())
            };
            self.path(points().map(|p| at(p.x, p.y)).collect(), style);
            for point in points().filter(|p| p.is_marked) {
                self.marker(n, at(point.x, point.y), colour);
            }
            if n < rows {
                let y = (LEGEND_ROW as usize * n) as i32 + 8;
                self.path(vec![(2, y), (22, y)], style);
                if line.points.iter().any(|p| p.is_marked) {
                    self.marker(n, (12, y), colour);
                }
                self.text(
                    &number::cut(&line.name, MAX_NAME),
                    (28, y),
                    HPos::Left,
                    false,
                );
            }
        }
    }

    fn bars(&self, plot: &Area<'_>, bars: &Bars) {
        for (n, (name, colour)) in bars.parts.iter().zip(PARTS).enumerate() {
            let y = (LEGEND_ROW as usize * n) as i32 + 8;
            self.rectangle([2, y - 5, 22, y + 5], PALETTE[colour].filled());
            self.text(name, (28, y), HPos::Left, false);
        }
        let total = |bar: &Bar| {
            bar.parts
                .iter()
                .filter(|part| part.is_finite())
                .sum::<f64>()
        };
        let tops = bars.bars.iter();
        let tops = tops.filter_map(|bar| bar.interval.map(|ends| ends[1]));
        let mut x = Scale::of_values(
            bars.bars.iter().map(total).chain(tops),
            f64::from(WIDTH) / (8.0 * LETTER),
        );
        if !bars.parts.is_empty() {
            x = x.with_zero();
        }
        let is_log = x.is_log;
        let note = if is_log { "logarithmic axis" } else { "" };
        let rows = Scale {
            high: bars.bars.len().max(1) as f64,
            ..Scale::default()
        };
        let chart = chart(plot, 6.0, note, x, rows);
        let colours = colours(bars.bars.iter().map(|bar| bar.name.as_str()));
        let (_, low) = chart.map_coordinate(&(0.0, 0.0));
        let top = low - (BAR_ROW as usize * bars.bars.len()) as i32;
        for (n, (bar, colour)) in bars.bars.iter().zip(colours).enumerate() {
            let y = top + (BAR_ROW as usize * n) as i32;
            self.name(bar, y + 9);
            let middle = y + 17 + BAR_HEIGHT / 2;
            let at = |value: f64| chart.map_coordinate(&(value, 0.0)).0;
            let mut from = 0.0;
            for (part, value) in bar.parts.iter().filter(|v| v.is_finite()).enumerate() {
                let own = if bars.parts.is_empty() {
                    colour
                } else {
                    PARTS[part % PARTS.len()]
                };
                let colour = PALETTE[own];
                let (left, right) = (at(from), at(from + value));
                from += value;
                let place = [left, y + 17, right, y + 17 + BAR_HEIGHT];
                match (is_log, bar.is_limit) {
                    // A logarithmic axis has no zero at which a bar could begin.
                    (true, is_limit) => {
                        self.path(vec![(left, middle), (right, middle)], colour.mix(0.6));
                        let style = ShapeStyle {
                            filled: !is_limit,
                            ..colour.stroke_width(2)
                        };
                        self.circle((right, middle), 5, style);
                    }
                    (false, true) => self.rectangle(place, colour.stroke_width(1)),
                    (false, false) => self.rectangle(place, colour.filled()),
                }
            }
            if let Some([low, high]) = bar.interval.filter(|ends| ends[0] < ends[1]) {
                let (low, high) = (at(low), at(high));
                self.path(vec![(low, middle), (high, middle)], INK.stroke_width(1));
                for end in [low, high] {
                    self.path(
                        vec![(end, middle - 4), (end, middle + 4)],
                        INK.stroke_width(1),
                    );
                }
            }
        }
    }

    /// Draws the name and the value above a bar.
    fn name(&self, bar: &Bar, y: i32) {
        let is_best = !bar.best.is_empty();
        let name = match is_best {
            true => format!("▸ {}, {}", bar.name, bar.best),
            false => bar.name.clone(),
        };
        let value = number::cut(&bar.value, MAX_NAME / 2);
        let room = MAX_NAME - value.chars().count();
        self.text(&number::cut(&name, room), (6, y), HPos::Left, is_best);
        self.text(&value, (WIDTH as i32 - 4, y), HPos::Right, is_best);
    }
}

/// Room at the right of a frame for half of the last tick's label.
const RIGHT: f64 = 16.0;

type Plane = plotters::coord::cartesian::Cartesian2d<Scale, Scale>;

/// Draws the frame with its ticks, and returns where values are in it.
fn chart<'a>(
    plot: &Area<'a>,
    left: f64,
    x_name: &str,
    x: Scale,
    y: Scale,
) -> DrawingArea<SVGBackend<'a>, Plane> {
    let has_rows = y.ticks.is_empty();
    let below = if x_name.is_empty() { 22 } else { 36 };
    let mut chart = ChartBuilder::on(plot)
        .margin_top(6)
        .margin_right(RIGHT)
        .x_label_area_size(below)
        .y_label_area_size(left)
        .build_cartesian_2d(x, y)
        .expect("a string takes everything");
    let soft = INK.mix(0.75);
    let font = ("system-ui, sans-serif", FONT_SIZE).into_font();
    let mut mesh = chart.configure_mesh();
    mesh.x_desc(clean(x_name))
        .axis_style(INK.mix(0.5))
        .bold_line_style(INK.mix(0.15))
        .light_line_style(TRANSPARENT)
        .label_style(font.color(&soft));
    if has_rows {
        mesh.disable_y_mesh().disable_y_axis();
    }
    mesh.draw().expect("a string takes everything");
    chart.plotting_area().clone()
}

/// An axis: it maps values to pixels, and its tick labels do not overlap.
#[derive(Clone, Debug, Default)]
struct Scale {
    is_log: bool,
    low: f64,
    high: f64,
    ticks: Vec<f64>,
    labels: Vec<String>,
}

impl Scale {
    /// An axis from zero, or a logarithmic axis if the values differ widely, up to the highest value or end of an interval; with
    /// at most this many ticks.
    fn of_values(values: impl Iterator<Item = f64>, max_ticks: f64) -> Scale {
        let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.into_iter().fold(0.0, f64::max).min(1e300);
        if least >= f64::MIN_POSITIVE && most / least >= WIDE {
            let (low, high) = (least, most);
            return Scale {
                is_log: true,
                low,
                high,
                ..Scale::default()
            }
            .with_ticks(max_ticks);
        }
        Scale {
            high: most,
            ..Scale::default()
        }
        .with_ticks(max_ticks)
    }

    fn with_zero(self) -> Scale {
        Scale {
            is_log: false,
            low: 0.0,
            ..self
        }
        .with_ticks(6.0)
    }

    /// The x axis of lines, `width` pixels long. Labels that would overlap are left out.
    fn of_names(lines: &Lines, width: f64) -> Scale {
        let points = lines.lines.iter().flat_map(|line| &line.points);
        let ticks = lines.x_ticks.iter().map(|tick| tick.0);
        let values = points.map(|point| point.x).chain(ticks);
        let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut scale = Scale {
            is_log: low > 0.0,
            low,
            high,
            ..Scale::default()
        };
        let mut named: Vec<&(f64, String)> = lines.x_ticks.iter().collect();
        named.retain(|(value, _)| value.is_finite());
        named.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut end = f64::NEG_INFINITY;
        for (value, name) in named {
            let name = number::cut(name, MAX_TICK);
            let half = name.chars().count() as f64 * LETTER / 2.0;
            let middle = scale.part(*value) * width;
            if middle - half > end + LETTER {
                end = middle + half;
                scale.ticks.push(*value);
                scale.labels.push(clean(&name));
            }
        }
        scale
    }

    fn with_ticks(mut self, most: f64) -> Scale {
        self.high = if self.high > f64::MIN_POSITIVE {
            self.high
        } else {
            1.0
        };
        self.ticks = match self.is_log {
            true => log_ticks(self.low, self.high, most),
            false => ticks(self.high, most),
        };
        let unit = |tick: f64| if self.is_log { 10.0 * tick } else { self.high };
        let labels = self.ticks.iter().map(|tick| label(*tick, unit(*tick)));
        self.labels = labels.collect();
        self.high = self.ticks.last().copied().unwrap_or(1.0).max(self.high);
        self.low = self.ticks.first().copied().unwrap_or(0.0).min(self.low);
        self
    }

    /// The position of a value, from 0 to 1.
    fn part(&self, value: f64) -> f64 {
        let measure = |value: f64| if self.is_log { value.log10() } else { value };
        let [value, low, high] = [value, self.low, self.high].map(measure);
        let part = (value - low) / (high - low);
        if part.is_nan() {
            0.5
        } else {
            part.clamp(0.0, 1.0)
        }
    }
}

impl Ranged for Scale {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): Pixel) -> i32 {
        from + (f64::from(to - from) * self.part(*value)).round() as i32
    }

    fn key_points<H: KeyPointHint>(&self, _: H) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Scale {
    fn format_ext(&self, value: &f64) -> String {
        let known = self.ticks.iter().position(|tick| tick == value);
        known.map_or_else(String::new, |n| self.labels[n].clone())
    }
}

/// Ticks from zero to `high` or the first tick above it, with steps of 1, 2 or 5 times a power of ten.
fn ticks(high: f64, most: f64) -> Vec<f64> {
    let least = high / most.max(1.0);
    let decade = 10f64.powf(least.log10().floor());
    let nice = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|nice| nice * decade >= least);
    let step = nice.unwrap_or(10.0) * decade;
    let count = (high / step - 1e-9).ceil().clamp(1.0, 20.0) as u32;
    (0..=count).map(|n| f64::from(n) * step).collect()
}

/// Powers of ten around the values; if there are more than `most`, every second, every third and so on.
fn log_ticks(low: f64, high: f64, most: f64) -> Vec<f64> {
    // Slightly inside, so that an exact power of ten does not get a further decade.
    let first = (low.log10() + 1e-9).floor() as i32;
    let last = ((high.log10() - 1e-9).ceil() as i32).max(first + 1);
    let stride = (f64::from(last - first) / most).ceil().max(1.0) as usize;
    // Do not use `powi` with a negative exponent: 1 / 10 gives exactly the 0.1 that is printed.
    let power = |p: i32| {
        if p < 0 {
            1.0 / 10f64.powi(-p)
        } else {
            10f64.powi(p)
        }
    };
    (first..=last).step_by(stride).map(power).collect()
}

/// A tick label in the unit of the value `high`: `0.05`, `200`, `25k`.
fn label(value: f64, high: f64) -> String {
    let units = [
        (1e12, 1e12, "T"),
        (1e9, 1e9, "G"),
        (1e6, 1e6, "M"),
        (1e4, 1e3, "k"),
    ];
    let known = units.into_iter().find(|(from, ..)| high >= *from);
    let (_, unit, letter) = known.unwrap_or((0.0, 1.0, ""));
    // Removes the digits that a binary fraction adds.
    let shown: f64 = format!("{:.5e}", value / unit).parse().unwrap_or(value);
    match shown {
        0.0 => "0".to_string(),
        shown if (1e-4..1e6).contains(&shown) => format!("{shown}{letter}"),
        _ => format!("{value:.0e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Line, Point};
    use super::*;
    use roxmltree::Document;

    fn line(name: &str, values: &[(f64, f64)]) -> Line {
        Line {
            name: name.to_string(),
            points: values.iter().map(|(x, y)| Point::new(*x, *y)).collect(),
        }
    }

    fn bar(name: &str, value: f64) -> Bar {
        Bar {
            name: name.to_string(),
            value: number::three(value),
            parts: vec![value],
            ..Bar::default()
        }
    }

    fn drawn(bars: Vec<Bar>) -> String {
        let parts = Vec::new();
        Figure::bars("Time, s", Bars { parts, bars }).to_svg()
    }

    #[test]
    fn ticks_are_round_and_reach_over_the_top() {
        for (high, want) in [
            (83.0, "0 20 40 60 80 100"),
            (0.3, "0 0.05 0.1 0.15 0.2 0.25 0.3"),
            (21_000.0, "0 5k 10k 15k 20k 25k"),
            (2.5e6, "0 0.5M 1M 1.5M 2M 2.5M"),
            (0.0, "0 0.2 0.4 0.6 0.8 1"),
        ] {
            let scale = Scale::of_values([high].into_iter(), 6.0);
            assert_eq!(scale.labels.join(" "), want, "{high}");
        }
        let scale = Scale::of_values([0.26, 62.4].into_iter(), 6.0);
        assert_eq!(scale.labels.join(" "), "0.1 1 10 100");
        assert!(log_ticks(1e-300, 1e300, 6.0).len() <= 7);
    }

    #[test]
    fn values_that_differ_by_fifty_have_a_logarithmic_axis() {
        let near = drawn(vec![bar("none", 49.0), bar("auto", 1.0)]);
        let wide = drawn(vec![bar("none", 50.0), bar("auto", 1.0)]);
        assert!(
            !near.contains("logarithmic") && !near.contains("<circle"),
            "{near}"
        );
        assert!(
            wide.contains("logarithmic") && wide.matches("<circle").count() == 2,
            "{wide}"
        );
    }

    #[test]
    fn the_best_and_the_limit_are_seen() {
        let mut bars = vec![bar("none", 3.0), bar("auto", 1.0), bar("oracle", 0.5)];
        bars[1].best = "fastest";
        bars[2].is_limit = true;
        let svg = drawn(bars);
        assert_eq!(svg.matches("▸ auto, fastest").count(), 1, "{svg}");
        assert_eq!(
            svg.matches("font-weight=\"bold\"").count(),
            2,
            "its name and its time"
        );
        assert!(svg.contains("fill=\"none\" stroke=\"#56B4E9\""), "{svg}");
    }

    #[test]
    fn an_odd_figure_is_still_a_picture() {
        let hostile = "<b>&\"'\u{0}\u{1b}\u{202e}".repeat(20);
        let wild = [
            (0.0, 1.0),
            (-3.0, f64::INFINITY),
            (f64::NAN, 2.0),
            (1e300, 1e300),
            (2.0, -5.0),
        ];
        let odd = line(&hostile, &wild);
        let ticks = vec![
            (f64::NAN, hostile.clone()),
            (1.0, hostile.clone()),
            (1.001, "2".to_string()),
        ];
        let lines = |lines| Lines {
            x_name: hostile.clone(),
            x_ticks: ticks.clone(),
            lines,
        };
        let mut wide = bar(&hostile, 1.0);
        (wide.parts, wide.interval) = (vec![1.0, f64::NAN, 1e300], Some([-1.0, f64::INFINITY]));
        let parts = vec!["one", "two", "three"];
        let figures = [
            Figure::lines(&hostile, lines(vec![])),
            Figure::lines(&hostile, lines(vec![Line::default()])),
            Figure::lines(&hostile, lines(vec![odd.clone(), odd])),
            Figure::bars(&hostile, Bars::default()),
            Figure::bars(
                &hostile,
                Bars {
                    parts,
                    bars: vec![wide, bar("x", 1e9)],
                },
            ),
        ];
        let all: Vec<String> = figures.iter().map(Figure::to_svg).collect();
        for svg in &all {
            let document = Document::parse(svg).unwrap_or_else(|e| panic!("{e}: {svg}"));
            for odd in ["NaN", "inf", "url(", "href", "\u{202e}", "#010203"] {
                assert!(!svg.contains(odd), "{odd}: {svg}");
            }
            for node in document.descendants() {
                for key in ["x", "cx", "x1", "x2"] {
                    let x: Option<f64> = node.attribute(key).and_then(|x| x.parse().ok());
                    assert!(x.is_none_or(|x| (-12.0..=360.0).contains(&x)), "{node:?}");
                }
            }
        }
    }
}
