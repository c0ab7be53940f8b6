//! Curves on a page: throughput by size, latency by per cent, published beside ours. As narrow as a phone.
//!
//! ```text
//!   Curves ─► legend ─► frame, ticks ─► for each line: intervals, path, markers, ring at the plateau ─► Svg
//! ```
//! Never: a point outside the frame, a line across a value that is not there, a meaning that colour alone carries
//! (lines have markers and dashes, too).

use super::WIDTH;
use crate::chart::scale::{self, Scale, Spread};
use crate::chart::svg::{Anchor, Look, Svg};
use crate::chart::{Ticks, looks};
use crate::number;

const FRAME: f64 = 190.0;
const MARGIN: f64 = 8.0;
const INSET: f64 = 10.0;
const LEADING: f64 = 16.0;
/// Width of a letter: a generous mean, since the font is the reader's.
pub const LETTER: f64 = 6.2;
/// Letters of a name in a legend; more is cut.
const MAX_LETTERS: usize = 46;
/// Steps of an axis.
const STEPS: u32 = 5;
/// Most lines of a plot that a ring can be told apart on.
const MAX_RINGS: usize = 8;

/// A point of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    pub x: f64,
    pub y: f64,
    /// Ends of the interval of `y`; both are `y` where there is none.
    pub interval: [f64; 2],
    pub marked: bool,
}

/// One curve of a plot.
#[derive(Clone, Debug, Default)]
pub struct Curve {
    pub name: String,
    /// From the lowest `x` to the highest.
    pub points: Vec<CurvePoint>,
    /// One of `chart/looks.rs`.
    pub colour: usize,
    /// It belongs to the line before it: the same colour, with dashes.
    pub twin: bool,
    /// The `x` of the point from which on more gains nothing.
    pub plateau: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Axis {
    /// From zero to a little above the highest point and end of an interval; logarithmic where points differ by 50 times or more.
    Fitting,
    /// Equal steps for equal factors, with a line for each power of ten.
    Log { least: f64, most: f64 },
}

pub struct Curves {
    pub title: String,
    pub about: String,
    pub x_title: String,
    pub y_title: String,
    /// Places on the axis of `x`, and their names.
    pub x_ticks: Vec<(f64, String)>,
    /// A value of `x` that has no name.
    pub x_show: fn(f64) -> String,
    /// Equal factors are equal steps; without it where the values are not all above zero.
    pub log: bool,
    pub y: Axis,
    pub lines: Vec<Curve>,
}

impl Curves {
    pub fn draw(&self) -> String {
        let legend = if self.lines.len() > 1 {
            self.lines.len()
        } else {
            0
        };
        let top = 22.0 + LEADING * legend as f64 + 6.0;
        let bottom = top + FRAME;
        let mut svg = Svg::on_page(WIDTH, bottom + 38.0, &self.title, &self.about);
        let (ticks, y) = self.y_axis([bottom, top]);
        let log = match (self.y, ticks.is_log) {
            (Axis::Fitting, true) => ", logarithmic axis",
            _ => "",
        };
        let title = format!("{}{log}", self.y_title);
        let title = number::cut(&title, (WIDTH / LETTER) as usize);
        svg.text("head", [0.0, 12.0], Anchor::Start, &title);
        let looks = self.looks();
        for (n, line) in self.lines.iter().enumerate().take(legend) {
            let (look, y) = (looks[n], 22.0 + LEADING * n as f64 + 6.0);
            svg.open_line(look);
            svg.path("line", &[[2.0, y], [26.0, y]]);
            if line.points.iter().any(|p| p.marked) {
                svg.marker(look, [14.0, y], "");
            }
            svg.close();
            svg.text(
                "ink",
                [32.0, y + 4.0],
                Anchor::Start,
                &number::cut(&line.name, MAX_LETTERS),
            );
        }
        let letters = ticks.labels.iter().map(|label| label.chars().count());
        let widest = letters.max().unwrap_or(1);
        let left = MARGIN + widest as f64 * LETTER;
        for (n, (tick, label)) in ticks.values.iter().zip(&ticks.labels).enumerate() {
            let at = y.place(*tick);
            svg.path(
                if n == 0 { "axis" } else { "grid" },
                &[[left, at], [WIDTH - MARGIN, at]],
            );
            svg.text("soft", [left - 4.0, at + 4.0], Anchor::End, label);
        }
        let x = self.x_scale([left + INSET, WIDTH - MARGIN - INSET]);
        self.x_axis(&mut svg, x, [top, bottom]);
        for (look, line) in looks.into_iter().zip(&self.lines) {
            svg.open_line(look);
            self.line(&mut svg, look, line, (x, y), bottom);
            svg.close();
        }
        svg.finish()
    }

    /// The look of each line; that of a line beside another is the other's with more dashes.
    fn looks(&self) -> Vec<Look> {
        let own = self.lines.iter().filter(|line| !line.twin);
        let own = looks::of_lines(&own.map(|line| line.colour).collect::<Vec<_>>());
        let mut next = 0;
        let look = |line: &Curve| {
            next += usize::from(!line.twin);
            let mut look = own.get(usize::saturating_sub(next, 1)).copied()?;
            look.dash += if line.twin { 2 } else { 0 };
            Some(look)
        };
        self.lines.iter().filter_map(look).collect()
    }

    /// Ticks from the lowest, and where they are.
    fn y_axis(&self, to: [f64; 2]) -> (Ticks, Scale) {
        if let Axis::Log { least, most } = self.y {
            let values = decades(least, most);
            let ticks = Ticks {
                labels: values.iter().map(f64::to_string).collect(),
                values,
                is_log: true,
            };
            return (ticks, Scale::across(&[least, most], Spread::Log2, to));
        }
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let values: Vec<f64> = points().map(|point| point.y).collect();
        let ticks = Ticks::reaching(&values, points().map(|point| point.interval[1]), STEPS);
        let scale = ticks.scale(to);
        (ticks, scale)
    }

    fn x_scale(&self, to: [f64; 2]) -> Scale {
        let points = self.lines.iter().flat_map(|l| &l.points).map(|p| p.x);
        let all: Vec<f64> = points
            .chain(self.x_ticks.iter().map(|t| t.0))
            .filter(|x| x.is_finite())
            .collect();
        let log = self.log && all.iter().all(|x| *x > 0.0);
        Scale::across(&all, if log { Spread::Log2 } else { Spread::Linear }, to)
    }

    fn x_axis(&self, svg: &mut Svg, x: Scale, [top, bottom]: [f64; 2]) {
        let mut ticks: Vec<&(f64, String)> = self.x_ticks.iter().collect();
        ticks.sort_by(|a, b| a.0.total_cmp(&b.0));
        let places: Vec<f64> = ticks.iter().map(|t| x.place(t.0)).collect();
        let labels: Vec<String> = ticks.iter().map(|t| number::cut(&t.1, 24)).collect();
        let widths: Vec<f64> = labels
            .iter()
            .map(|l| l.chars().count() as f64 * LETTER)
            .collect();
        for i in (0..places.len()).step_by(scale::stride(&places, &widths, LETTER)) {
            let half = (widths[i] / 2.0).min(WIDTH / 2.0);
            svg.path("grid", &[[places[i], top], [places[i], bottom]]);
            svg.text(
                "soft",
                [places[i].clamp(half, WIDTH - half), bottom + 15.0],
                Anchor::Middle,
                &labels[i],
            );
        }
        let title = number::cut(&self.x_title, (WIDTH / LETTER) as usize);
        svg.text("soft", [WIDTH / 2.0, bottom + 31.0], Anchor::Middle, &title);
    }

    fn line(&self, svg: &mut Svg, look: Look, line: &Curve, (x, y): (Scale, Scale), bottom: f64) {
        let points = || {
            line.points
                .iter()
                .filter(|p| p.y.is_finite() && p.x.is_finite())
        };
        let at = |p: &CurvePoint| [x.place(p.x), y.place(p.y)];
        for p in points().filter(|p| p.interval[0] < p.interval[1]) {
            svg.interval(x.place(p.x), y.place(p.interval[1]), y.place(p.interval[0]));
        }
        let path: Vec<[f64; 2]> = points().map(at).collect();
        if path.len() > 1 {
            svg.path("line", &path);
        }
        let known = |p: &CurvePoint| {
            self.x_ticks
                .iter()
                .find(|t| t.0 == p.x)
                .map_or_else(|| (self.x_show)(p.x), |t| t.1.clone())
        };
        for p in points().filter(|p| p.marked) {
            svg.marker(
                look,
                at(p),
                &format!("{}, {}: {}", line.name, known(p), number::three(p.y)),
            );
        }
        if let Some(p) = line
            .plateau
            .and_then(|plateau| points().find(|p| p.x == plateau))
            && self.lines.len() <= MAX_RINGS
        {
            svg.ring(
                at(p),
                bottom,
                &format!("{}: plateau from {} on", line.name, known(p)),
            );
        }
    }
}

/// The powers of ten around values above zero, at least two.
pub fn decades(least: f64, most: f64) -> Vec<f64> {
    let usable = |v: f64| v.is_finite() && v > 0.0;
    if !usable(least) || !usable(most) {
        return Vec::new();
    }
    // A hair inside, so that a power of ten is its own.
    let (low, high) = (
        (least.min(most).log10() + 1e-9).floor() as i32,
        (most.max(least).log10() - 1e-9).ceil() as i32,
    );
    let power = |p: i32| {
        if p < 0 {
            1.0 / 10f64.powi(-p)
        } else {
            10f64.powi(p)
        }
    };
    (low..=high.max(low + 1)).map(power).collect()
}

/// The first `x`, from the lowest on, whose `y` is at least 98 % of the highest: the rule behind the `==>` of 2010. None
/// for a line that is that high from its lowest `x` on, because it has no slope before it.
pub fn plateau(points: &[CurvePoint]) -> Option<f64> {
    /// The part of the best that counts as the best.
    const PART: f64 = 0.98;
    let best = points
        .iter()
        .map(|p| p.y)
        .filter(|y| y.is_finite())
        .reduce(f64::max)?;
    let high = |p: &&CurvePoint| p.y >= best * PART;
    let first = points
        .iter()
        .filter(high)
        .min_by(|a, b| a.x.total_cmp(&b.x))?;
    points.iter().any(|p| p.x < first.x).then_some(first.x)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(values: &[(f64, f64)]) -> Vec<CurvePoint> {
        values
            .iter()
            .map(|(x, y)| CurvePoint {
                x: *x,
                y: *y,
                interval: [*y, *y],
                marked: true,
            })
            .collect()
    }

    #[test]
    fn the_plateau_is_the_first_within_two_per_cent_of_the_best() {
        assert_eq!(
            plateau(&line(&[
                (1.0, 10.0),
                (2.0, 97.9),
                (4.0, 98.0),
                (8.0, 100.0),
                (16.0, 99.0)
            ])),
            Some(4.0)
        );
        // Not where it falls again, and in whatever order.
        assert_eq!(
            plateau(&line(&[(8.0, 50.0), (4.0, 100.0), (2.0, 60.0)])),
            Some(4.0)
        );
        assert_eq!(plateau(&line(&[(1.0, 99.0), (2.0, 100.0)])), None);
        assert_eq!(
            plateau(&line(&[(1.0, 100.0), (2.0, 10.0)])),
            None,
            "it only falls"
        );
        assert_eq!(
            (plateau(&[]), plateau(&line(&[(1.0, f64::NAN)]))),
            (None, None)
        );
    }

    #[test]
    fn decades_reach_around_the_values() {
        let values = |least, most| decades(least, most);
        assert_eq!(values(0.5, 700.0), [0.1, 1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(values(0.01, 100.0), [0.01, 0.1, 1.0, 10.0, 100.0]);
        assert_eq!(values(1.0, 1.0), [1.0, 10.0]);
        assert!(
            values(0.0, 5.0).is_empty()
                && values(f64::NAN, 1.0).is_empty()
                && values(1.0, f64::INFINITY).is_empty()
        );
    }

    #[test]
    fn values_that_differ_by_fifty_have_a_logarithmic_axis() {
        let draw = |most: f64| {
            let curves = Curves {
                title: "t".to_string(),
                about: String::new(),
                x_title: "x".to_string(),
                y_title: "us".to_string(),
                x_show: number::three,
                x_ticks: Vec::new(),
                log: false,
                y: Axis::Fitting,
                lines: vec![Curve {
                    points: line(&[(1.0, 1.0), (2.0, most)]),
                    ..Curve::default()
                }],
            };
            curves.draw()
        };
        assert!(
            draw(50.0).contains(">us, logarithmic axis<"),
            "{}",
            draw(50.0)
        );
        assert!(draw(49.0).contains(">us<") && draw(49.0).contains(">0<"));
    }

    #[test]
    fn an_odd_plot_is_still_a_picture() {
        let wild = [
            (0.0, 1.0),
            (-3.0, f64::INFINITY),
            (f64::NAN, 2.0),
            (1e300, 1e300),
            (2.0, -5.0),
        ];
        for lines in [
            vec![],
            vec![Curve::default()],
            vec![Curve {
                points: line(&wild),
                ..Curve::default()
            }],
        ] {
            let curves = Curves {
                title: "<t>".to_string(),
                about: String::new(),
                x_title: "x".repeat(999),
                y_title: "\u{202e}&".to_string(),
                x_show: number::three,
                x_ticks: vec![(f64::NAN, "<".to_string()), (1.0, "long".repeat(99))],
                log: true,
                y: if lines.is_empty() {
                    Axis::Log {
                        least: 0.1,
                        most: 10.0,
                    }
                } else {
                    Axis::Fitting
                },
                lines,
            };
            let svg = curves.draw();
            let parsed = roxmltree::Document::parse(&svg).unwrap_or_else(|e| panic!("{e}: {svg}"));
            assert!(
                !svg.contains("NaN") && !svg.contains("inf") && !svg.contains('\u{202e}'),
                "{svg}"
            );
            assert!(parsed.descendants().any(|n| n.has_tag_name("desc")));
        }
    }
}
