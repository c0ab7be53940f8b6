//! Bars on a page: one for each policy or file, in parts or with an interval. As narrow as a phone.
//!
//! ```text
//!   full                                     compact: several figures on one screen
//!   ▸ auto, tied for fastest    17.18 s        none        ▇▇▇▇▇▇▇▇▇▇▇▇ 22.83
//!   ▇▇▇▇▇▇▇▇▇▇▇▇▇                            ▸ auto        ▇▇▇▇▇▇▇▇▇    17.18
//! ```
//! A bar has the colour of its policy; its parts differ by pattern: solid, pale, hatched, outline. The best has a sign and a bold figure.
//! Where values differ by 50 times or more the axis is logarithmic and has no zero: a disc on a thin line takes the place of a bar.
//! Never: a bar that does not begin at zero, or one without its figure in words.

use super::WIDTH;
use super::curves::LETTER;
use crate::chart::Ticks;
use crate::chart::scale::{self, Scale};
use crate::chart::svg::{Anchor, Svg};
use crate::number;

const ROW: f64 = 38.0;
const THICK: f64 = 14.0;
const COMPACT_ROW: f64 = 18.0;
const COMPACT_THICK: f64 = 11.0;
const MARGIN: f64 = 8.0;
/// Room for the sign of the best, before its name.
const SIGN: f64 = 12.0;
const DISC: f64 = 5.0;
const STEPS: u32 = 5;
/// Letters of name and figure over a bar together.
const LETTERS: usize = (WIDTH / LETTER) as usize - 4;
/// Width of a bold letter.
const BOLD_LETTER: f64 = 7.2;
/// Letters of the name beside a compact bar: `linux-6.18:max=64M` has 18.
const COMPACT_LETTERS: usize = 19;

/// How a part of a bar is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    Solid,
    Pale,
    Hatched,
    Outline,
}

/// What a part is: a fill and a name, the same in every bar. A part that is no policy's has its own colour.
#[derive(Clone, Copy, Debug)]
pub struct BarKind {
    pub colour: Option<usize>,
    pub fill: Fill,
    pub name: &'static str,
}

#[derive(Clone, Debug, Default)]
pub struct Bar {
    pub name: String,
    pub figure: String,
    /// One of `chart/looks.rs`.
    pub colour: usize,
    /// How long each kind is.
    pub parts: Vec<f64>,
    /// Around the end of the bar.
    pub interval: Option<[f64; 2]>,
    /// A limit, not a choice: hatched all over, where a bar is one part.
    pub limit: bool,
    /// What it is the best at: `fastest`, `tied for fastest`. Empty for the others.
    pub best: &'static str,
}

/// Bars under each other on one axis.
#[derive(Default)]
pub struct Bars {
    pub title: String,
    pub about: String,
    /// What is shown, with its unit.
    pub head: String,
    pub kinds: Vec<BarKind>,
    pub bars: Vec<Bar>,
    /// Names are beside the bars and not over them.
    pub compact: bool,
}

/// Where bars are.
struct Frame {
    x: Scale,
    is_log: bool,
    left: f64,
    top: f64,
    row: f64,
    thick: f64,
}

impl Bars {
    pub fn draw(&self) -> String {
        let legend = if self.kinds.len() > 1 {
            18.0 * self.kinds.len() as f64
        } else {
            0.0
        };
        let (ticks, frame) = self.frame(24.0 + legend);
        let bottom = frame.top + frame.row * self.bars.len() as f64;
        let log = if ticks.is_log { 14.0 } else { 0.0 };
        let mut svg = Svg::on_page(WIDTH, bottom + 22.0 + log, &self.title, &self.about);
        let head = number::cut(&self.head, LETTERS);
        svg.text("head", [0.0, 12.0], Anchor::Start, &head);
        for (i, kind) in self.kinds.iter().enumerate().filter(|_| legend > 0.0) {
            let y = 20.0 + 18.0 * i as f64;
            svg.open_colour(kind.colour.unwrap_or(0));
            fill(&mut svg, kind.fill, [2.0, y, 22.0, 12.0], "");
            svg.close();
            svg.text("ink", [32.0, y + 10.0], Anchor::Start, kind.name);
        }
        self.axis(&mut svg, &ticks, &frame, bottom);
        for (i, bar) in self.bars.iter().enumerate() {
            self.bar(&mut svg, bar, &frame, frame.top + frame.row * i as f64);
        }
        svg.finish()
    }

    fn frame(&self, top: f64) -> (Ticks, Frame) {
        let values: Vec<f64> = self.bars.iter().map(|b| b.parts.iter().sum()).collect();
        let tops = self.bars.iter().filter_map(|b| Some(b.interval?[1]));
        // Parts of a bar add up on an axis from zero alone.
        let single = self.kinds.len() == 1;
        let steps = if self.compact { STEPS - 1 } else { STEPS };
        let ticks = match single {
            true => Ticks::reaching(&values, tops, steps),
            false => {
                let with_zero: Vec<f64> = values.into_iter().chain([0.0]).collect();
                Ticks::reaching(&with_zero, tops, steps)
            }
        };
        let widest =
            |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0) as f64 * LETTER;
        let [left, right] = if self.compact {
            let names = self.bars.iter().map(|bar| bar.name.chars().count());
            let names = widest(&mut names.map(|letters| letters.min(COMPACT_LETTERS)));
            let figures = self.bars.iter().map(|bar| bar.figure.chars().count());
            let figures = widest(&mut figures.map(|letters| letters.min(COMPACT_LETTERS)));
            let figures = figures / LETTER * BOLD_LETTER;
            [SIGN + names + 10.0, WIDTH - figures - 8.0]
        } else {
            [MARGIN, WIDTH - MARGIN - 8.0]
        };
        let frame = Frame {
            x: ticks.scale([left, right]),
            is_log: ticks.is_log,
            left,
            top,
            row: if self.compact { COMPACT_ROW } else { ROW },
            thick: if self.compact { COMPACT_THICK } else { THICK },
        };
        (ticks, frame)
    }

    fn axis(&self, svg: &mut Svg, ticks: &Ticks, frame: &Frame, bottom: f64) {
        let places: Vec<f64> = ticks
            .values
            .iter()
            .map(|tick| frame.x.place(*tick))
            .collect();
        let widths = ticks
            .labels
            .iter()
            .map(|l| l.chars().count() as f64 * LETTER);
        let widths: Vec<f64> = widths.collect();
        let stride = scale::stride(&places, &widths, LETTER);
        for (n, (at, label)) in places.iter().zip(&ticks.labels).enumerate() {
            let class = if n == 0 { "axis" } else { "grid" };
            svg.path(class, &[[*at, frame.top], [*at, bottom]]);
            if n.is_multiple_of(stride) {
                let half = widths[n] / 2.0;
                let at = [at.clamp(half, WIDTH - half), bottom + 14.0];
                svg.text("soft", at, Anchor::Middle, label);
            }
        }
        if ticks.is_log {
            let middle = f64::midpoint(frame.left, places.last().copied().unwrap_or(WIDTH));
            svg.text(
                "soft",
                [middle, bottom + 28.0],
                Anchor::Middle,
                "logarithmic axis",
            );
        }
    }

    fn bar(&self, svg: &mut Svg, bar: &Bar, frame: &Frame, top: f64) {
        let y = if self.compact {
            self.name_beside(svg, bar, top);
            top + (frame.row - frame.thick) / 2.0
        } else {
            self.name_over(svg, bar, top);
            top + 19.0
        };
        let interval = bar.interval.filter(|i| i[0] < i[1]);
        let interval = interval.map(|ends| ends.map(|end| frame.x.place(end)));
        let draw_interval = |svg: &mut Svg| {
            if let Some([low, high]) = interval {
                svg.level_interval(y + frame.thick / 2.0, low, high);
            }
        };
        // A disc is over its interval, which is seen where it is wider.
        if frame.is_log {
            draw_interval(svg);
        }
        let mut from = 0.0;
        for (kind, value) in self
            .kinds
            .iter()
            .zip(&bar.parts)
            .filter(|(_, value)| value.is_finite())
        {
            let (left, right) = (frame.x.place(from), frame.x.place(from + value));
            from += value;
            let tip = format!("{}: {} {}", bar.name, kind.name, number::three(*value));
            svg.open_colour(kind.colour.unwrap_or(bar.colour));
            if frame.is_log {
                let middle = y + frame.thick / 2.0;
                svg.boxes(
                    "point",
                    &[[frame.left, middle - 1.0, right - frame.left, 2.0]],
                    "",
                );
                svg.disc(
                    if bar.limit { "bar hollow" } else { "point" },
                    [right, middle],
                    DISC,
                    &tip,
                );
            } else if right > left {
                let is_hatched = bar.limit && self.kinds.len() == 1;
                let pattern = if is_hatched { Fill::Hatched } else { kind.fill };
                fill(svg, pattern, [left, y, right - left, frame.thick], &tip);
            }
            svg.close();
        }
        if !frame.is_log {
            draw_interval(svg);
        }
    }

    fn name_over(&self, svg: &mut Svg, bar: &Bar, top: f64) {
        let is_best = !bar.best.is_empty();
        let letters = match is_best {
            true => (LETTERS as f64 * LETTER / BOLD_LETTER) as usize - 2,
            false => LETTERS,
        };
        let figure = number::cut(&bar.figure, letters / 2);
        let name = match is_best {
            true => format!("{}, {}", bar.name, bar.best),
            false => bar.name.clone(),
        };
        let name = number::cut(&name, letters - figure.chars().count());
        let (left, class) = match is_best {
            true => (MARGIN + 2.0 + SIGN, "head"),
            false => (MARGIN + 2.0, "ink"),
        };
        if is_best {
            svg.best([MARGIN + 7.0, top + 10.0], bar.best);
        }
        svg.text(class, [left, top + 14.0], Anchor::Start, &name);
        let class = if is_best { "head" } else { "soft" };
        svg.text(class, [WIDTH - 4.0, top + 14.0], Anchor::End, &figure);
    }

    fn name_beside(&self, svg: &mut Svg, bar: &Bar, top: f64) {
        let is_best = !bar.best.is_empty();
        let figure = if is_best { "head" } else { "soft" };
        if is_best {
            svg.best([4.0, top + 9.0], bar.best);
        }
        let text = number::cut_middle(&bar.name, COMPACT_LETTERS);
        svg.text("ink", [SIGN, top + 13.0], Anchor::Start, &text);
        let text = number::cut(&bar.figure, COMPACT_LETTERS);
        svg.text(figure, [WIDTH - 2.0, top + 13.0], Anchor::End, &text);
    }
}

fn fill(svg: &mut Svg, pattern: Fill, place: [f64; 4], tip: &str) {
    match pattern {
        Fill::Solid => svg.boxes("point", &[place], tip),
        Fill::Outline => svg.boxes("bar", &[place], tip),
        Fill::Pale => {
            svg.boxes("point pale", &[place], "");
            svg.boxes("bar", &[place], tip);
        }
        Fill::Hatched => {
            svg.hatch(&[place], 5.0);
            svg.boxes("bar", &[place], tip);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: BarKind = BarKind {
        colour: None,
        fill: Fill::Solid,
        name: "time",
    };

    fn times(times: &[f64], compact: bool) -> String {
        let bar = |(n, time): (usize, &f64)| Bar {
            name: format!("linux-6.18:max={n}"),
            figure: number::three(*time),
            parts: vec![*time],
            best: if n == 1 { "fastest" } else { "" },
            ..Bar::default()
        };
        Bars {
            kinds: vec![TIME],
            bars: times.iter().enumerate().map(bar).collect(),
            compact,
            ..Bars::default()
        }
        .draw()
    }

    /// By a sign and a bold figure, and not by colour alone; in words where there is room.
    #[test]
    fn the_fastest_is_marked() {
        for compact in [false, true] {
            let svg = times(&[3.0, 1.0, 2.0], compact);
            assert_eq!(svg.matches("class=\"best\"").count(), 1, "{svg}");
            let bold = svg.lines().filter(|l| l.contains("class=\"head\""));
            let bold: Vec<&str> = bold.filter(|l| l.contains(">1.00<")).collect();
            assert_eq!(bold.len(), 1, "{svg}");
            let plain = svg.lines().filter(|l| l.contains("class=\"soft\""));
            assert_eq!(
                plain
                    .filter(|l| l.contains(">3.00<") || l.contains(">2.00<"))
                    .count(),
                2
            );
            assert!(
                svg.contains(if compact {
                    "<title>fastest"
                } else {
                    ", fastest<"
                }),
                "{svg}"
            );
        }
    }

    /// There a disc is no length, so a bar that does not begin at zero is none.
    #[test]
    fn times_that_differ_by_fifty_are_discs_on_a_logarithmic_axis() {
        for compact in [false, true] {
            let (near, wide) = (times(&[49.0, 1.0], compact), times(&[50.0, 1.0], compact));
            assert!(
                wide.contains("logarithmic axis") && wide.contains("a5 5 0 1 0"),
                "{wide}"
            );
            assert!(
                !near.contains("logarithmic axis") && near.contains(">0<"),
                "{near}"
            );
        }
    }

    /// What a compact figure needs: seven bars are little more than half as high as a phone is wide.
    #[test]
    fn compact_bars_are_low() {
        let height = |compact| {
            let svg = times(&[1.0; 7], compact);
            let page = roxmltree::Document::parse(&svg).expect("XML");
            let view = page.root_element().attribute("viewBox").expect("a size");
            view.split(' ')
                .nth(3)
                .and_then(|h| h.parse().ok())
                .unwrap_or(0.0)
        };
        let (low, high): (f64, f64) = (height(true), height(false));
        assert!(low <= WIDTH * 0.51 && low < high * 0.6, "{low} {high}");
    }

    /// A limit is drawn otherwise than the rows that can be chosen.
    #[test]
    fn a_limit_is_hatched() {
        let draw = |limit| {
            let bars = vec![Bar {
                name: "oracle".to_string(),
                parts: vec![1.0],
                limit,
                ..Bar::default()
            }];
            Bars {
                kinds: vec![TIME],
                bars,
                ..Bars::default()
            }
            .draw()
        };
        assert_ne!(draw(true), draw(false));
        assert!(
            draw(false).contains("class=\"point\"") && !draw(true).contains("class=\"point\""),
            "{}",
            draw(true)
        );
    }

    #[test]
    fn bars_stay_on_the_paper() {
        let bar = |parts: &[f64], interval| Bar {
            name: "<\u{1b}>".repeat(40),
            figure: "1.00 ±0.25 s".repeat(9),
            parts: parts.to_vec(),
            interval,
            best: "fastest",
            ..Bar::default()
        };
        let kind = |fill| BarKind {
            colour: Some(3),
            fill,
            name: "kind",
        };
        let bars = |kinds, compact| Bars {
            title: "t".to_string(),
            about: "&".to_string(),
            head: "h".repeat(400),
            kinds,
            bars: vec![
                bar(&[1.0, 2.0, 3.0], Some([-1.0, f64::INFINITY])),
                bar(&[f64::NAN, f64::INFINITY, 1e300], Some([f64::NAN, 1.0])),
                bar(&[], None),
                bar(&[1e9], Some([0.0, 2e9])),
            ],
            compact,
        };
        let kinds = [Fill::Solid, Fill::Hatched, Fill::Outline, Fill::Pale].map(kind);
        for (kinds, compact) in [
            (&kinds[..], false),
            (&kinds[..1], true),
            (&kinds[..1], false),
        ] {
            stays_on_the_paper(&bars(kinds.to_vec(), compact).draw());
        }
    }

    fn stays_on_the_paper(svg: &str) {
        let parsed = roxmltree::Document::parse(svg).unwrap_or_else(|e| panic!("{e}: {svg}"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        for node in parsed.descendants().filter(|n| n.attribute("x").is_some()) {
            let x: f64 = node
                .attribute("x")
                .and_then(|x| x.parse().ok())
                .expect("a number");
            assert!((0.0..=WIDTH).contains(&x), "{node:?}");
        }
    }
}
