//! The data of a chart: lines over an axis, or bars with their names. `draw.rs` draws the charts as SVG, with the crate `plotters`.
//!
//! Series differ in colour and in the shape of their markers. The colours are those of Okabe and Ito, which
//! people with colour blindness can tell apart, with grey instead of yellow. The text of a chart has the same colour as
//! the text of the page, so that one drawing fits both a light and a dark page.
//! ```text
//!   policy      colour         policy      colour
//!   none        grey           kernel      purple
//!   auto        blue           oracle      sky blue, outlined: a limit, not a choice
//!   linux-*     vermilion      others, and a second line of a colour: the next free colour
//!   rbd-*       green
//! ```

mod draw;

use crate::markup::harmless;

#[derive(Clone, Debug)]
pub struct Figure {
    /// The title, with the unit.
    pub title: String,
    pub caption: String,
    pub data: FigureData,
}

#[derive(Clone, Debug)]
pub enum FigureData {
    Lines(Lines),
    Bars(Bars),
}

/// Lines over a shared x axis, which is logarithmic if all values are above zero. The y axis begins at zero; it is logarithmic if values
/// differ by a factor of 50 or more.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// Name of the x axis, with its unit.
    pub x_name: String,
    /// Values on the x axis, with their labels.
    pub x_ticks: Vec<(f64, String)>,
    pub lines: Vec<Line>,
}

#[derive(Clone, Debug, Default)]
pub struct Line {
    pub name: String,
    /// The points, by ascending `x`.
    pub points: Vec<Point>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    pub is_marked: bool,
}

impl Point {
    /// Creates a data point with a marker.
    pub fn new(x: f64, y: f64) -> Point {
        Point {
            x,
            y,
            is_marked: true,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Bars {
    /// Names of the parts of each bar; empty for bars of one part, which have the colours of their policies.
    pub parts: Vec<&'static str>,
    pub bars: Vec<Bar>,
}

#[derive(Clone, Debug, Default)]
pub struct Bar {
    pub name: String,
    pub value: String,
    pub parts: Vec<f64>,
    pub interval: Option<[f64; 2]>,
    /// Whether it is a limit, not a choice: then it is drawn as an outline.
    pub is_limit: bool,
    /// A note next to the name if it is the best: "fastest".
    pub best: &'static str,
}

impl Figure {
    pub fn lines(title: impl Into<String>, lines: Lines) -> Figure {
        Figure {
            title: title.into(),
            caption: String::new(),
            data: FigureData::Lines(lines),
        }
    }

    pub fn bars(title: impl Into<String>, bars: Bars) -> Figure {
        Figure {
            title: title.into(),
            caption: String::new(),
            data: FigureData::Bars(bars),
        }
    }

    pub fn with_caption(mut self, caption: impl Into<String>) -> Figure {
        self.caption = caption.into();
        self
    }

    /// Draws the chart as an SVG element for an HTML page.
    pub fn to_svg(&self) -> String {
        draw::svg(self)
    }
}

/// `text` without characters that could do harm.
fn clean(text: &str) -> String {
    text.chars().map(harmless).collect()
}

const COLOURS: usize = 8;

/// The index of a colour for each series, by its name.
fn colours<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<usize> {
    let mut used: Vec<usize> = Vec::new();
    for name in names {
        let first = name.split([':', ' ', '-']).next();
        let own = ["none", "auto", "linux", "rbd", "kernel", "oracle"];
        let own = own.iter().position(|known| first == Some(known));
        let is_free = |colour: &usize| !used.contains(colour);
        let free = own.filter(is_free).or_else(|| {
            // Prefer colours without an owner, then the last of the others.
            (0..COLOURS).rev().find(is_free)
        });
        used.push(free.unwrap_or(used.len() % COLOURS));
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_have_their_colours_and_no_two_series_the_same() {
        let names = [
            "none",
            "auto (today)",
            "linux-6.18:max=4M",
            "rbd-plain",
            "kernel",
            "oracle",
        ];
        assert_eq!(colours(names), [0, 1, 2, 3, 4, 5]);
        assert_eq!(colours(["rbd-plain", "none"]), [3, 0]);
        let many = colours(["linux-6.18", "linux-2.6.0", "s3fs", "", "a", "b", "c", "d"]);
        assert_eq!(many, [2, 7, 6, 5, 4, 3, 1, 0]);
        assert_eq!(colours(["x"; 20]).len(), 20);
    }
}
