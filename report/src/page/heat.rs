//! A heat map: rows of cells, a column for each policy, each box as large as the policy is slow there.
//!
//! ```text
//!                         1  2  3      1 none  2 linux-6.18  3 auto
//!   sequential 256M       █  ▅  ▁      none takes more than 10 times as long as the best, linux-6.18 1.5 to 3 times
//!   random 16M            ▁  ▁  ▢      auto is faster than the best
//! ```
//! Colour and height mean the same, so that no meaning hangs on colour: an outline is faster than the best, a thin bar within 5 %, a full
//! box ten times as slow. What was not measured has no box.

use super::WIDTH;
use super::curves::LETTER;
use crate::chart::svg::{Anchor, Svg};
use crate::number;

const ROW: f64 = 13.0;
const BOX: f64 = 10.0;
const TOP: f64 = 16.0;
/// Most letters of the name of a row.
const LETTERS: usize = 27;
/// A column is no wider.
const MAX_COLUMN: f64 = 22.0;

/// Green, orange, magenta.
const GOOD: usize = 3;
const SLOW: usize = 2;
const BAD: usize = 4;
/// Narrower columns have no room for each number of two digits.
const MIN_NUMBERED: f64 = 15.0;

/// Up to which ratio, in which colour, how high; the first is an outline.
const CLASSES: [(f64, usize, f64, &str); 6] = [
    (0.95, GOOD, 1.0, "faster than the best"),
    (1.05, GOOD, 0.2, "x0.95 to x1.05 in the mean"),
    (1.5, SLOW, 0.4, "x1.05 to x1.5"),
    (3.0, SLOW, 0.6, "x1.5 to x3"),
    (10.0, BAD, 0.8, "x3 to x10"),
    (f64::INFINITY, BAD, 1.0, "slower than x10"),
];

/// A row: its name, and a ratio for each policy.
pub struct HeatRow {
    pub name: String,
    pub ratios: Vec<Option<f64>>,
}

/// The class of a ratio.
fn class(ratio: f64) -> usize {
    CLASSES
        .iter()
        .position(|(most, ..)| ratio <= *most)
        .unwrap_or(CLASSES.len() - 1)
}

/// The map as SVG. Columns are numbered from 1 in the order of `policies`.
pub fn draw(title: &str, about: &str, policies: &[String], rows: &[HeatRow]) -> String {
    let bottom = TOP + ROW * rows.len() as f64;
    let mut svg = Svg::on_page(WIDTH, bottom + 4.0, title, about);
    let longest = rows
        .iter()
        .map(|row| row.name.chars().count())
        .max()
        .unwrap_or(0)
        .min(LETTERS);
    let left = longest as f64 * LETTER + 4.0;
    let step = ((WIDTH - left) / policies.len().max(1) as f64).min(MAX_COLUMN);
    let x = |column: usize| left + step * column as f64;
    let has_room = |column: &usize| *column < 9 || step >= MIN_NUMBERED || column % 2 == 1;
    for column in (0..policies.len()).filter(has_room) {
        svg.text(
            "soft",
            [x(column) + step / 2.0, 11.0],
            Anchor::Middle,
            &(column + 1).to_string(),
        );
    }
    for (i, row) in rows.iter().enumerate() {
        let base = TOP + ROW * (i + 1) as f64 - 2.0;
        svg.text(
            "ink",
            [0.0, base - 1.0],
            Anchor::Start,
            &number::cut(&row.name, LETTERS),
        );
        svg.path("grid", &[[0.0, base + 1.0], [WIDTH, base + 1.0]]);
        for (column, (policy, ratio)) in policies.iter().zip(&row.ratios).enumerate() {
            if let Some(ratio) = ratio.filter(|r| r.is_finite()) {
                let tip = format!("{}, {policy}: {}", row.name, number::times(ratio));
                fill(
                    &mut svg,
                    class(ratio),
                    [x(column) + 1.0, base],
                    (step - 2.0).max(1.0),
                    &tip,
                );
            }
        }
    }
    svg.finish()
}

/// What the boxes mean.
pub fn legend() -> String {
    let lines = CLASSES.len().div_ceil(2);
    let about = CLASSES.map(|(.., name)| name).join(", ");
    let mut svg = Svg::on_page(
        WIDTH,
        18.0 * lines as f64 + 4.0,
        "Legend of the heat maps",
        &about,
    );
    for (i, (.., name)) in CLASSES.iter().enumerate() {
        let (x, y) = (
            4.0 + 200.0 * (i / lines) as f64,
            16.0 + 18.0 * (i % lines) as f64,
        );
        fill(&mut svg, i, [x, y], 16.0, "");
        svg.text("ink", [x + 22.0, y - 1.0], Anchor::Start, name);
    }
    svg.finish()
}

/// A box of a class on its lower left corner.
fn fill(svg: &mut Svg, class: usize, [x, base]: [f64; 2], width: f64, tip: &str) {
    let (_, colour, height, _) = CLASSES[class];
    let height = BOX * height;
    svg.open_colour(colour);
    svg.boxes(
        if class == 0 { "bar" } else { "point" },
        &[[x, base - height, width, height]],
        tip,
    );
    svg.close();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slower_policy_has_a_larger_box() {
        let policies = ["none", "auto"].map(String::from);
        let row = |ratios: [Option<f64>; 2]| HeatRow {
            name: "<random> 16M".repeat(9),
            ratios: ratios.to_vec(),
        };
        let rows = [
            row([Some(30.0), Some(1.0)]),
            row([Some(0.5), None]),
            row([Some(f64::NAN), Some(2.0)]),
        ];
        let svg = draw("t", "&", &policies, &rows);
        let page = roxmltree::Document::parse(&svg).unwrap_or_else(|e| panic!("{e}: {svg}"));
        let tips: Vec<&str> = page
            .descendants()
            .filter(|n| n.has_tag_name("title"))
            .filter_map(|n| n.text())
            .collect();
        assert_eq!(
            tips.len(),
            1 + 4,
            "the title and a tip for each box: {tips:?}"
        );
        assert!(
            tips[1].ends_with(", none: x30.0") && tips[4].ends_with(", auto: x2.00"),
            "{tips:?}"
        );
        let height = |class: &str| svg.matches(class).count();
        assert_eq!(
            (height("v10h"), height("v2h"), height("v6h")),
            (2, 1, 1),
            "{svg}"
        );
        assert!(svg.contains("class=\"bar\"") && !svg.contains("NaN"));
    }

    #[test]
    fn classes_end_where_the_legend_says() {
        let classes = [0.95, 0.951, 1.05, 1.5, 3.0, 10.0, 10.1].map(class);
        assert_eq!(classes, [0, 1, 1, 2, 3, 4, 5]);
        assert!(CLASSES.iter().all(|(.., name)| legend().contains(name)));
    }
}
