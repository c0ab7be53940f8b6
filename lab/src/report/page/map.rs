//! The map of a run: which reads hit, were late or missed, and where, and which readahead was unused.
//!
//! Up is a higher offset, right is a later read: every column has as many reads, however long they took. What a cell held most of decides its colour, and its height, so that no
//! meaning hangs on colour: a hit is a low bar, a late hit a higher one, a miss fills the cell. Unused readahead is a
//! hatched box behind them. Neighbours that look alike are one shape, so a map has at most a few thousand.
//! Never: a cell that nothing happened in, or counts that are not those of the run.

use foreread_report::chart::looks::{self, UNUSED};
use foreread_report::chart::scale::{self, Scale};
use foreread_report::chart::svg::{Anchor, Svg};
use foreread_report::number;
use foreread_report::page::WIDTH;
use foreread_report::page::curves::LETTER;
use foreread_sim::simulator::outcomes::{Cell, OutcomeMap, ROWS};

const CELL: f64 = 4.6;
const TOP: f64 = 6.0;
const MARGIN: f64 = 8.0;

/// Colour and part of the cell's height of hits, late hits and misses.
const READS: [(usize, f64); 3] = [(looks::HIT, 0.4), (looks::LATE, 0.65), (looks::MISS, 0.9)];
/// The four kinds, in the order of [`READS`] and unused.
const NAMES: [&str; 4] = ["hit", "late", "miss", "unused readahead"];

/// The kind of read that a cell had most of; of equals the worse one.
fn kind(cell: &Cell) -> Option<usize> {
    let counts = [cell.hits, cell.late, cell.misses];
    (0..3)
        .filter(|i| counts[*i] > 0)
        .max_by_key(|i| (counts[*i], *i))
}

pub fn draw(title: &str, about: &str, map: &OutcomeMap) -> String {
    let height = ROWS as f64 * CELL;
    let bottom = TOP + height;
    let mut svg = Svg::on_page(WIDTH, bottom + 36.0, title, about);
    let offsets = offsets(map);
    let widest = offsets
        .iter()
        .map(|o| number::size(*o).chars().count())
        .max()
        .unwrap_or(1);
    let left = MARGIN + widest as f64 * LETTER;
    let frame = Frame {
        left,
        wide: WIDTH - MARGIN - left,
        map,
    };
    let (start, len) = (map.bytes.start(), map.bytes.len().max(1) as f64);
    for offset in &offsets {
        let y = bottom - (offset - start) as f64 / len * height;
        svg.path("grid", &[[left, y], [WIDTH - MARGIN, y]]);
        svg.text(
            "soft",
            [left - 4.0, (y + 4.0).clamp(10.0, bottom)],
            Anchor::End,
            &number::size(*offset),
        );
    }
    let reads = map.reads.max(1) as f64;
    let ticks = scale::ticks_to(reads, 5);
    let x = Scale::across(&[0.0, reads], scale::Spread::Linear, [left, WIDTH - MARGIN]);
    for (tick, label) in ticks
        .iter()
        .zip(scale::labels(&ticks))
        .filter(|(tick, _)| **tick <= reads)
    {
        let half = label.chars().count() as f64 * LETTER / 2.0;
        svg.path("grid", &[[x.place(*tick), TOP], [x.place(*tick), bottom]]);
        svg.text(
            "soft",
            [x.place(*tick).min(WIDTH - half), bottom + 14.0],
            Anchor::Middle,
            &label,
        );
    }
    svg.path(
        "axis",
        &[[left, TOP], [left, bottom], [WIDTH - MARGIN, bottom]],
    );
    svg.text(
        "soft",
        [f64::midpoint(left, WIDTH), bottom + 30.0],
        Anchor::Middle,
        "reads, in order; up: offset",
    );
    frame.unused(&mut svg);
    for (i, (colour, part)) in READS.iter().enumerate() {
        let boxes = frame.runs(|cell| kind(cell) == Some(i), *part);
        svg.open_colour(*colour);
        svg.boxes("point", &boxes, NAMES[i]);
        svg.close();
    }
    svg.finish()
}

/// The legend of every map of a page.
pub fn legend() -> String {
    let mut svg = Svg::on_page(
        WIDTH,
        40.0,
        "Legend of the maps",
        "hit, late, miss: heights; unused readahead: hatched",
    );
    for (i, name) in NAMES.iter().enumerate() {
        let (x, y) = (4.0 + 180.0 * (i / 2) as f64, 4.0 + 18.0 * (i % 2) as f64);
        let (colour, part) = READS.get(i).copied().unwrap_or((UNUSED, 1.0));
        svg.open_colour(colour);
        if i < READS.len() {
            svg.boxes(
                "point",
                &[[x, y + 14.0 * (1.0 - part) / 2.0, 20.0, 14.0 * part]],
                "",
            );
        } else {
            svg.hatch(&[[x, y, 20.0, 14.0]], 4.0);
            svg.boxes("bar", &[[x, y, 20.0, 14.0]], "");
        }
        svg.close();
        svg.text("ink", [x + 28.0, y + 11.0], Anchor::Start, name);
    }
    svg.finish()
}

/// Offsets to name: multiples of a power of two, three to six of them.
fn offsets(map: &OutcomeMap) -> Vec<u64> {
    let step = (map.bytes.len() / 3).max(1);
    let step = 1_u64 << step.ilog2();
    let first = map.bytes.start().div_ceil(step);
    (0..7)
        .filter_map(|i| first.checked_add(i)?.checked_mul(step))
        .take_while(|o| *o <= map.bytes.end())
        .collect()
}

/// Where cells stand.
struct Frame<'a> {
    left: f64,
    wide: f64,
    map: &'a OutcomeMap,
}

impl Frame<'_> {
    /// Boxes of neighbouring cells in a row that are `like` this, so much of a cell high, around its middle.
    fn runs(&self, like: impl Fn(&Cell) -> bool, part: f64) -> Vec<[f64; 4]> {
        let columns = &self.map.columns;
        let share = |column: usize| {
            (column as u64 * self.map.column_reads) as f64 / self.map.reads.max(1) as f64
        };
        let x = |column: usize| self.left + share(column).min(1.0) * self.wide;
        let mut boxes = Vec::new();
        for row in 0..ROWS {
            let y = TOP + (ROWS - 1 - row) as f64 * CELL + CELL * (1.0 - part) / 2.0;
            let mut from = 0;
            while from < columns.len() {
                let run = columns[from..].iter().take_while(|c| like(&c[row])).count();
                if run > 0 {
                    // A separate thin column for everything after the last read.
                    let width = (x(from + run) - x(from)).max(0.8);
                    boxes.push([
                        x(from).min(self.left + self.wide - width),
                        y,
                        width,
                        CELL * part,
                    ]);
                }
                from += run + 1;
            }
        }
        boxes
    }

    fn unused(&self, svg: &mut Svg) {
        let boxes = self.runs(|cell| cell.unused_bytes > 0, 1.0);
        svg.open_colour(UNUSED);
        svg.boxes("bar soft-fill", &boxes, NAMES[3]);
        svg.hatch(&boxes, CELL);
        svg.close();
    }
}
