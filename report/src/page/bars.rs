//! Bars on a page: one for each policy, its name above it, in parts or with an interval. As narrow as a phone.
//!
//! Parts differ in colour and in pattern: solid, dense hatch, wide hatch, outline. Never: a bar that does not
//! begin at zero, or one without its figure in words.

use super::WIDTH;
use super::curves::LETTER;
use crate::chart::scale::{self, Scale};
use crate::chart::svg::{Anchor, Svg};
use crate::number;

const ROW: f64 = 38.0;
const THICK: f64 = 14.0;
const MARGIN: f64 = 8.0;
const STEPS: u32 = 5;
/// Letters of name and figure over a bar together.
const LETTERS: usize = (WIDTH / LETTER) as usize - 2;

/// How a part of a bar is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    Solid,
    Hatched,
    Outline,
}

/// What a part is: a colour, a fill and a name, the same in every bar.
pub struct BarKind {
    pub colour: usize,
    pub fill: Fill,
    pub name: &'static str,
}

#[derive(Clone, Debug, Default)]
pub struct Bar {
    pub name: String,
    pub figure: String,
    /// How long each kind is.
    pub parts: Vec<f64>,
    /// Around the end of the bar.
    pub interval: Option<[f64; 2]>,
    /// A limit, not a choice: hatched all over.
    pub limit: bool,
}

/// Bars under each other on one axis.
pub struct Bars {
    pub title: String,
    pub about: String,
    /// What is shown, with its unit.
    pub head: String,
    pub kinds: Vec<BarKind>,
    pub bars: Vec<Bar>,
}

impl Bars {
    pub fn draw(&self) -> String {
        let legend = if self.kinds.len() > 1 {
            18.0 * self.kinds.len() as f64
        } else {
            0.0
        };
        let top = 24.0 + legend;
        let bottom = top + ROW * self.bars.len() as f64;
        let mut svg = Svg::on_page(WIDTH, bottom + 22.0, &self.title, &self.about);
        svg.text(
            "head",
            [0.0, 12.0],
            Anchor::Start,
            &number::cut(&self.head, LETTERS),
        );
        for (i, kind) in self.kinds.iter().enumerate().filter(|_| legend > 0.0) {
            let y = 20.0 + 18.0 * i as f64;
            fill(&mut svg, kind, [2.0, y, 22.0, 12.0], "");
            svg.text("ink", [32.0, y + 10.0], Anchor::Start, kind.name);
        }
        let ends = self
            .bars
            .iter()
            .flat_map(|b| [b.parts.iter().sum(), b.interval.map_or(0.0, |i| i[1])]);
        let ticks = scale::ticks_to(ends.filter(|e| e.is_finite()).fold(0.0, f64::max), STEPS);
        let x = Scale::from_zero(&ticks, [MARGIN, WIDTH - MARGIN - 8.0]);
        for (tick, label) in ticks.iter().zip(scale::labels(&ticks)) {
            let at = x.place(*tick);
            svg.path(
                if *tick == 0.0 { "axis" } else { "grid" },
                &[[at, top], [at, bottom]],
            );
            let half = label.chars().count() as f64 * LETTER / 2.0;
            svg.text(
                "soft",
                [at.clamp(half, WIDTH - half), bottom + 14.0],
                Anchor::Middle,
                &label,
            );
        }
        for (i, bar) in self.bars.iter().enumerate() {
            self.bar(&mut svg, bar, x, top + ROW * i as f64);
        }
        svg.finish()
    }

    fn bar(&self, svg: &mut Svg, bar: &Bar, x: Scale, top: f64) {
        let figure = number::cut(&bar.figure, LETTERS / 2);
        let name = number::cut(&bar.name, LETTERS - figure.chars().count());
        svg.text("ink", [MARGIN + 2.0, top + 14.0], Anchor::Start, &name);
        svg.text("soft", [WIDTH - 4.0, top + 14.0], Anchor::End, &figure);
        let (mut from, y) = (0.0, top + 19.0);
        for (kind, value) in self
            .kinds
            .iter()
            .zip(&bar.parts)
            .filter(|(_, value)| value.is_finite())
        {
            let (left, right) = (x.place(from), x.place(from + value));
            from += value;
            if right > left {
                let tip = format!("{}: {} {}", bar.name, kind.name, number::three(*value));
                let hatched = BarKind {
                    fill: Fill::Hatched,
                    ..*kind
                };
                fill(
                    svg,
                    if bar.limit { &hatched } else { kind },
                    [left, y, right - left, THICK],
                    &tip,
                );
            }
        }
        if let Some([low, high]) = bar.interval.filter(|i| i[0] < i[1]) {
            svg.level_interval(y + THICK / 2.0, x.place(low), x.place(high));
        }
    }
}

fn fill(svg: &mut Svg, kind: &BarKind, place: [f64; 4], tip: &str) {
    svg.open_colour(kind.colour);
    match kind.fill {
        Fill::Solid => svg.boxes("point", &[place], tip),
        Fill::Outline => svg.boxes("bar", &[place], tip),
        Fill::Hatched => {
            svg.hatch(&[place], 5.0);
            svg.boxes("bar", &[place], tip);
        }
    }
    svg.close();
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let kinds = vec![BarKind {
                colour: 1,
                fill: Fill::Solid,
                name: "time",
            }];
            let about = String::new;
            Bars {
                title: about(),
                about: about(),
                head: about(),
                kinds,
                bars,
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
            limit: false,
        };
        let kind = |fill| BarKind {
            colour: 3,
            fill,
            name: "kind",
        };
        let bars = Bars {
            title: "t".to_string(),
            about: "&".to_string(),
            head: "h".repeat(400),
            kinds: vec![kind(Fill::Solid), kind(Fill::Hatched), kind(Fill::Outline)],
            bars: vec![
                bar(&[1.0, 2.0, 3.0], Some([-1.0, f64::INFINITY])),
                bar(&[f64::NAN, f64::INFINITY, 1e300], Some([f64::NAN, 1.0])),
                bar(&[], None),
            ],
        };
        let svg = bars.draw();
        let parsed = roxmltree::Document::parse(&svg).unwrap_or_else(|e| panic!("{e}: {svg}"));
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
