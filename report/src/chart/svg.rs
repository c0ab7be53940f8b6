//! The few SVG elements that a chart is made of, and its colours by day and by night.
//!
//! Colours are rules of a style sheet in the picture itself, one set for each `prefers-color-scheme`, without custom
//! properties, which some viewers do not know. Never: an unescaped text, a coordinate that is not a number, a script,
//! or a reference to anything outside the file.

use std::fmt::Write as _;

/// Colours that look different; `looks.rs` says what has which.
pub const COLOURS: usize = 6;

/// Ink, soft ink, grid and paper, then the colours of the lines: grey, blue, orange, green, magenta, teal. The first is the plain one, for
/// the row that the others are measured against. Found by a search: at least 3:1 against the paper, of one hue by day and by night, and
/// told apart with each of the three colour blindnesses (the tests below have the figures).
const DAY: ([&str; 4], [&str; COLOURS]) = (
    ["#1f2328", "#59636e", "#dde2e7", "#ffffff"],
    [
        "#5a5152", "#273f98", "#d67d25", "#6c8f63", "#c173dc", "#17a4a0",
    ],
);
const NIGHT: ([&str; 4], [&str; COLOURS]) = (
    ["#f0f6fc", "#9aa4af", "#30363d", "#0d1117"],
    [
        "#959498", "#8295fa", "#ffbc6c", "#298435", "#975aa2", "#1decee",
    ],
);

/// Dashes of the lines: solid first.
const DASHES: [&str; 4] = ["", "7 3", "2 3", "9 3 2 3"];

/// Markers around 0 0: circle, square, triangle, diamond, triangle on its tip, plus.
const MARKERS: [&str; COLOURS] = [
    "M-3.2 0a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0 -6.4 0z",
    "M-2.9 -2.9h5.8v5.8h-5.8z",
    "M0 -3.9l3.7 6.5h-7.4z",
    "M0 -4.1l4.1 4.1l-4.1 4.1l-4.1 -4.1z",
    "M0 3.9l3.7 -6.5h-7.4z",
    "M-3.9 -1.3h2.6v-2.6h2.6v2.6h2.6v2.6h-2.6v2.6h-2.6v-2.6h-2.6z",
];

/// Most lines that look out from under one that covers them.
const MAX_UNDER: usize = 3;

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    pub colour: usize,
    pub dash: usize,
    pub marker: usize,
    /// Lines that are drawn over it.
    pub over: usize,
}

impl Look {
    /// It looks out from under the lines over it: it is so much wider.
    fn under(self) -> f64 {
        self.over.min(MAX_UNDER) as f64
    }
}

/// How a text is aligned to its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// It begins there.
    Start,
    /// Its middle is there.
    Middle,
    End,
}

/// A picture that is being written.
pub struct Svg(String);

impl Svg {
    /// An empty sheet of paper. `title` is what is read out for it.
    #[must_use]
    pub fn new(width: f64, height: f64, title: &str) -> Svg {
        let mut svg = Svg(String::new());
        let (w, h) = (number(width), number(height));
        svg.push(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\" \
             class=\"foreread-chart\" role=\"img\" style=\"max-width:100%;height:auto\" \
             font-family=\"system-ui, sans-serif\" font-size=\"11\">\n<title>{}</title>\n<style>\n{}</style>\n\
             <rect class=\"paper\" width=\"{w}\" height=\"{h}\"/>\n",
            escape(title),
            style()
        ));
        svg
    }

    /// A sheet for a page that holds [`style`]: without its own paper and colours. `about` is read out after `title`.
    #[must_use]
    pub fn on_page(width: f64, height: f64, title: &str, about: &str) -> Svg {
        let mut svg = Svg(String::new());
        let (w, h) = (number(width), number(height));
        svg.push(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" class=\"foreread-chart\" role=\"img\" \
             font-family=\"system-ui, sans-serif\" font-size=\"11\">\n<title>{}</title>\n<desc>{}</desc>\n",
            escape(title),
            escape(about)
        ));
        svg
    }

    #[must_use]
    pub fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }

    /// Opens a group of this look: its colour and dashes.
    pub fn open_line(&mut self, look: Look) {
        let width = 1.5 + 0.5 * look.under();
        let (colour, dash) = (look.colour % COLOURS, look.dash % DASHES.len());
        self.push(format_args!(
            "<g class=\"c{colour} d{dash}\" stroke-width=\"{}\">\n",
            number(width)
        ));
    }

    /// Opens a group of this colour, for shapes.
    pub fn open_colour(&mut self, colour: usize) {
        self.push(format_args!("<g class=\"c{}\">\n", colour % COLOURS));
    }

    /// A disc; `class` is `point` (filled) or `bar` (outlined). `tip` is shown when the pointer is over it.
    pub fn disc(&mut self, class: &str, [x, y]: [f64; 2], radius: f64, tip: &str) {
        let (left, y, r, across) = (
            number(x - radius),
            number(y),
            number(radius),
            number(2.0 * radius),
        );
        let path = format!("M{left} {y}a{r} {r} 0 1 0 {across} 0a{r} {r} 0 1 0 -{across} 0z");
        self.shape(class, &path, tip);
    }

    /// The sign of the best of several: a small triangle that points to the right, its middle at this place.
    pub fn best(&mut self, [x, y]: [f64; 2], tip: &str) {
        let path = format!("M{} {}l6 4l-6 4z", number(x - 3.0), number(y - 4.0));
        self.shape("best", &path, tip);
    }

    pub fn close(&mut self) {
        self.0.push_str("</g>\n");
    }

    /// Writing; `class` is `name` (of the picture), `head`, `ink` or `soft`.
    pub fn text(&mut self, class: &str, [x, y]: [f64; 2], anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y) = (number(x), number(y));
        let text = escape(text);
        self.push(format_args!(
            "<text class=\"{class}\" x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>\n"
        ));
    }

    /// A line through `points`; `class` is `grid`, `axis` or `line`.
    pub fn path(&mut self, class: &str, points: &[[f64; 2]]) {
        let places: Vec<String> = points
            .iter()
            .map(|[x, y]| format!("{} {}", number(*x), number(*y)))
            .collect();
        self.push(format_args!(
            "<path class=\"{class}\" d=\"M{}\"/>\n",
            places.join("L")
        ));
    }

    /// Rectangles `[x, y, width, height]` as one shape; `class` is `point` (filled), `point pale`, `bar` (outlined) or
    /// `bar soft-fill`.
    /// `tip` is shown when the pointer is over it.
    pub fn boxes(&mut self, class: &str, boxes: &[[f64; 4]], tip: &str) {
        let mut path = String::new();
        for [x, y, w, h] in boxes.iter().map(|b| b.map(number)) {
            let _ = write!(path, "M{x} {y}h{w}v{h}h-{w}z");
        }
        self.shape(class, &path, tip);
    }

    /// Diagonals through rectangles, `step` apart, as one shape.
    pub fn hatch(&mut self, boxes: &[[f64; 4]], step: f64) {
        let mut path = String::new();
        for [x, y, w, h] in boxes {
            let mut from = step / 2.0;
            while from < w + h && from.is_finite() {
                // From the left or lower edge up to the top or right one.
                let (low, high) = ((from - h).max(0.0), from.min(*w));
                let at = |along: f64| [number(x + along), number(y + from - along)];
                let ([x0, y0], [x1, y1]) = (at(low), at(high));
                let _ = write!(path, "M{x0} {y0}L{x1} {y1}");
                from += step;
            }
        }
        self.shape("bar", &path, "");
    }

    fn shape(&mut self, class: &str, path: &str, tip: &str) {
        if path.is_empty() {
            return;
        }
        let tip = if tip.is_empty() {
            String::new()
        } else {
            format!("<title>{}</title>", escape(tip))
        };
        self.push(format_args!(
            "<path class=\"{class}\" d=\"{path}\">{tip}</path>\n"
        ));
    }

    /// An interval along a line, from `left` to `right` at height `y`, with a foot at both ends.
    pub fn level_interval(&mut self, y: f64, left: f64, right: f64) {
        let (top, y, left, right) = (number(y - 4.0), number(y), number(left), number(right));
        self.push(format_args!(
            "<path class=\"whisker\" d=\"M{left} {y}H{right}M{left} {top}v8M{right} {top}v8\"/>\n"
        ));
    }

    /// A ring around a place, and a line down to `bottom`.
    pub fn ring(&mut self, [x, y]: [f64; 2], bottom: f64, tip: &str) {
        let (left, x, y, bottom) = (number(x - 7.0), number(x), number(y), number(bottom));
        let tip = escape(tip);
        self.push(format_args!(
            "<path class=\"whisker\" stroke-dasharray=\"2 2\" d=\"M{x} {y}V{bottom}\"/>\n<path class=\"whisker\" \
             d=\"M{left} {y}a7 7 0 1 0 14 0a7 7 0 1 0 -14 0z\"><title>{tip}</title></path>\n"
        ));
    }

    /// An interval from `high` to `low` at `x`, with a foot at both ends.
    pub fn interval(&mut self, x: f64, high: f64, low: f64) {
        let (left, x, high, low) = (number(x - 3.0), number(x), number(high), number(low));
        self.push(format_args!(
            "<path class=\"bar\" d=\"M{x} {high}V{low}M{left} {high}h6M{left} {low}h6\"/>\n"
        ));
    }

    /// The marker of a line, with a tip for the pointer.
    pub fn marker(&mut self, look: Look, [x, y]: [f64; 2], tip: &str) {
        let (x, y, size) = (number(x), number(y), 1.0 + 0.2 * look.under());
        let tip = if tip.is_empty() {
            String::new()
        } else {
            format!("<title>{}</title>", escape(tip))
        };
        self.push(format_args!(
            "<path class=\"point\" transform=\"translate({x} {y})scale({size:.1})\" d=\"{}\">{tip}</path>\n",
            MARKERS[look.marker % COLOURS]
        ));
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        self.0.write_fmt(text).expect("a string takes everything");
    }
}

/// The style sheet. Every rule is for charts of ours alone: the picture may stand inside a page.
#[must_use]
pub fn style() -> String {
    let mut css = String::from(
        ".foreread-chart path{fill:none;stroke-linejoin:round}.foreread-chart .head{font-weight:600}\n\
         .foreread-chart .name{font-weight:600;font-size:14px}\n\
         .foreread-chart .bar{stroke-width:1.2}.foreread-chart .pale{fill-opacity:.35}\n",
    );
    for (i, dash) in DASHES.iter().enumerate().skip(1) {
        let _ = writeln!(
            css,
            ".foreread-chart .d{i} .line{{stroke-dasharray:{dash}}}"
        );
    }
    css.push_str(&colours(&DAY));
    let _ = writeln!(
        css,
        "@media (prefers-color-scheme:dark){{\n{}}}",
        colours(&NIGHT)
    );
    css
}

fn colours(([ink, soft, grid, paper], lines): &([&str; 4], [&str; COLOURS])) -> String {
    let mut css = format!(
        ".foreread-chart .paper{{fill:{paper}}}.foreread-chart .ink,.foreread-chart .head,.foreread-chart .name,.foreread-chart .best{{fill:{ink}}}\
         .foreread-chart .soft{{fill:{soft}}}\n\
         .foreread-chart .grid{{stroke:{grid}}}.foreread-chart .axis{{stroke:{soft}}}\n"
    );
    for (i, colour) in lines.iter().enumerate() {
        let here = format!(".foreread-chart .c{i}");
        let _ = writeln!(
            css,
            "{here} .line,{here} .bar{{stroke:{colour}}}{here} .point{{fill:{colour}}}"
        );
    }
    css
}

/// A coordinate: one decimal is a tenth of a pixel. Nothing that is not a number leaves here.
fn number(value: f64) -> String {
    let text = format!("{:.1}", if value.is_finite() { value } else { 0.0 });
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" {
        "0".to_string()
    } else {
        text.to_string()
    }
}

/// Text as XML holds it. What XML forbids even when escaped becomes the replacement character.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(harmless(c)),
        }
    }
    escaped
}

/// The letter, or the replacement character for one that XML forbids or that would change how others look: controls, and
/// what turns the direction of a text around.
#[must_use]
pub fn harmless(letter: char) -> char {
    match letter {
        '\u{fffe}' | '\u{ffff}' | '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{61c}' => {
            '\u{fffd}'
        }
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_numbers_cannot_break_the_picture() {
        assert_eq!(
            escape("<a b='\"&\u{1b}\u{ffff}>\n"),
            "&lt;a b=&#39;&quot;&amp;\u{fffd}\u{fffd}&gt;\u{fffd}"
        );
        let cases = [
            (1.0, "1"),
            (-0.04, "0"),
            (2.26, "2.3"),
            (f64::NAN, "0"),
            (f64::INFINITY, "0"),
        ];
        assert!(
            cases.iter().all(|(value, text)| number(*value) == *text),
            "{cases:?}"
        );
    }

    /// Linear red, green and blue of `#rrggbb` (IEC 61966-2-1).
    fn linear(colour: &str) -> [f64; 3] {
        [1, 3, 5].map(|i| {
            let c = f64::from(u8::from_str_radix(&colour[i..i + 2], 16).expect("#rrggbb")) / 255.0;
            if c <= 0.04045 {
                c / 12.92
            } else {
                ((c + 0.055) / 1.055).powf(2.4)
            }
        })
    }

    fn times(matrix: [[f64; 3]; 3], v: [f64; 3]) -> [f64; 3] {
        matrix.map(|row| row.iter().zip(v).map(|(m, c)| m * c).sum())
    }

    /// Contrast ratio of WCAG 2.
    fn contrast(a: &str, b: &str) -> f64 {
        let light = |c: &str| {
            linear(c)
                .iter()
                .zip([0.2126, 0.7152, 0.0722])
                .map(|(c, w)| c * w)
                .sum::<f64>()
                + 0.05
        };
        (light(a) / light(b)).max(light(b) / light(a))
    }

    /// CIE L*a*b* of a colour as an eye sees it whose blindness `sight` describes.
    fn lab(colour: &str, sight: [[f64; 3]; 3]) -> [f64; 3] {
        const TO_XYZ: [[f64; 3]; 3] = [
            [0.4124, 0.3576, 0.1805],
            [0.2126, 0.7152, 0.0722],
            [0.0193, 0.1192, 0.9505],
        ];
        let xyz = times(
            TO_XYZ,
            times(sight, linear(colour)).map(|c| c.clamp(0.0, 1.0)),
        );
        let white = [0.9505, 1.0, 1.089];
        let [x, y, z] = [0, 1, 2].map(|i| {
            let part = xyz[i] / white[i];
            if part > 0.008856 {
                part.cbrt()
            } else {
                7.787 * part + 16.0 / 116.0
            }
        });
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    /// Whole sight, and the three blindnesses of Machado, Oliveira & Fernandes (2009) at full severity: protanopia,
    /// deuteranopia, tritanopia.
    const SIGHTS: [[[f64; 3]; 3]; 4] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ],
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ],
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ],
    ];

    /// A thing keeps its colour in the dark: the hue in CIE L*a*b* turns by less than a tenth of the circle, and grey stays grey.
    #[test]
    fn a_colour_is_the_same_by_day_and_by_night() {
        for (i, (day, night)) in DAY.1.iter().zip(NIGHT.1).enumerate() {
            let [[_, a, b], [_, c, d]] = [lab(day, SIGHTS[0]), lab(night, SIGHTS[0])];
            if i == 0 {
                assert!(a.hypot(b) < 12.0 && c.hypot(d) < 12.0, "{day} {night}");
                continue;
            }
            let turn = (b.atan2(a) - d.atan2(c)).to_degrees().abs();
            let turn = turn.min(360.0 - turn);
            assert!(turn < 36.0, "{day} and {night} are {turn} degrees apart");
        }
    }

    /// 3:1 for what is drawn and 4.5:1 for what is written are WCAG's; colours 25 apart differ at a glance.
    #[test]
    fn colours_differ_for_every_eye_by_day_and_by_night() {
        for ([ink, soft, _, paper], lines) in [DAY, NIGHT] {
            assert!(
                contrast(ink, paper) >= 7.0 && contrast(soft, paper) >= 4.5,
                "{paper}"
            );
            for (i, a) in lines.iter().enumerate() {
                assert!(contrast(a, paper) >= 3.0, "{a} on {paper}");
                for b in &lines[i + 1..] {
                    for sight in SIGHTS {
                        let (p, q) = (lab(a, sight), lab(b, sight));
                        let apart = (0..3).map(|i| (p[i] - q[i]).powi(2)).sum::<f64>().sqrt();
                        assert!(apart >= 25.0, "{a} and {b} are {apart} apart");
                    }
                }
            }
        }
    }
}
