//! A result as a list of blocks (sentences, tables, notes), which are rendered as text for the terminal, or as a section of an HTML page
//! (`page.rs`).
//!
//! ```text
//!   [Text, Table, Note, Lines, ...] ──► text           lines no wider than the terminal
//!   [Page, Table, Note]             ──► page::Section  sentences and tables in HTML
//! ```
//! A table is described by its columns. A column has a head, a function that returns the text of a cell, and a list of
//! the outputs (terminal, page) that show it.

use crate::number::wrap;
use comfy_table::{Cell, CellAlignment, ContentArrangement, presets};

/// If a table is fitted to a width, its first column gets at least this width before it is broken into lines.
const FIRST_WIDTH: usize = 16;

/// A part of a result, such as a sentence, a table or a note.
pub enum Block {
    /// Sentences for the terminal.
    Text(String),
    Page(String),
    /// Lines for the terminal that are not broken.
    Lines(Vec<String>),
    /// An empty line on the terminal.
    Gap,
    Note(String),
    Table(Table),
    /// Blocks whose lines are indented by this many spaces on the terminal.
    Indented(usize, Vec<Block>),
    /// The place where the terminal names the columns of the previous table that had no room.
    NoRoom,
}

impl Block {
    /// Creates a line for the terminal that is never wrapped.
    pub fn line(text: impl Into<String>) -> Block {
        Block::Lines(vec![text.into()])
    }
}

/// Renders the blocks as text, which ends with a newline.
pub fn text(blocks: impl IntoIterator<Item = Block>, width: usize, bold: bool) -> String {
    let blocks = blocks.into_iter().collect();
    text_lines(blocks, width, bold, &mut Vec::new()).join("\n") + "\n"
}

fn text_lines(
    blocks: Vec<Block>,
    width: usize,
    bold: bool,
    left_out: &mut Vec<String>,
) -> Vec<String> {
    let mut lines = Vec::new();
    for block in blocks {
        match block {
            Block::Text(text) => lines.extend(wrap(&text, width)),
            Block::Lines(more) => lines.extend(more),
            Block::Gap => lines.push(String::new()),
            Block::Note(note) => lines.extend(wrap(&format!("Note: {note}."), width)),
            Block::Table(table) => {
                let (table, out) = table.lines(width, bold);
                lines.extend(table);
                for name in out {
                    if !left_out.contains(&name) {
                        left_out.push(name);
                    }
                }
            }
            Block::Indented(spaces, blocks) => {
                let inner = text_lines(blocks, width.saturating_sub(spaces), bold, left_out);
                lines.extend(inner.iter().map(|line| format!("{:spaces$}{line}", "")));
            }
            Block::NoRoom if left_out.is_empty() => {}
            Block::NoRoom => {
                let names = left_out.join(", ");
                let text = format!("No room for: {names}. A wider terminal or --json shows them.");
                lines.extend(wrap(&text, width));
            }
            Block::Page(_) => {}
        }
    }
    lines
}

/// A column of a table with rows of type `R`.
pub struct Column<'a, R> {
    head: Head,
    cell: Box<dyn Fn(&R) -> String + 'a>,
}

#[derive(Clone)]
pub(crate) struct Head {
    /// The head for the terminal, in lines: `un-
    /// used`.
    text: String,
    on_screen: bool,
    pub(crate) on_page: bool,
    pub(crate) is_left: bool,
    /// If the table is too wide, the terminal leaves out the column with the lowest rank first.
    rank: Option<u8>,
}

impl Head {
    pub(crate) fn in_one_line(&self) -> String {
        self.text.trim().replace("-\n", "").replace('\n', " ")
    }
}

impl<'a, R> Column<'a, R> {
    pub fn new(text: impl Into<String>, cell: impl Fn(&R) -> String + 'a) -> Column<'a, R> {
        let head = Head {
            text: text.into(),
            on_screen: true,
            on_page: true,
            is_left: false,
            rank: None,
        };
        let cell = Box::new(cell);
        Column { head, cell }
    }

    /// Aligns the column to the left, because it contains words.
    pub fn left(mut self) -> Column<'a, R> {
        self.head.is_left = true;
        self
    }

    pub fn on(mut self, screen: bool, page: bool) -> Column<'a, R> {
        (self.head.on_screen, self.head.on_page) = (screen, page);
        self
    }

    pub fn rank(mut self, rank: u8) -> Column<'a, R> {
        self.head.rank = Some(rank);
        self
    }
}

/// A table. The first column contains the names of the rows.
#[derive(Clone, Default)]
pub struct Table {
    /// The caption above the table on the page.
    pub caption: String,
    pub(crate) heads: Vec<Head>,
    pub(crate) rows: Vec<Vec<String>>,
    /// A sign before the name of each row: `*` marks the fastest, `=` rows that are tied for it.
    pub marks: Vec<char>,
    /// The row that is emphasized: the best one.
    pub strong: Option<usize>,
    /// For each row, the length of the bar that the page shows next to its name. Empty if the page shows no bars.
    pub bars: Vec<f64>,
    is_wide: bool,
    is_broken: bool,
}

impl Table {
    pub fn new<'r, R: 'r>(
        caption: impl Into<String>,
        columns: Vec<Column<'_, R>>,
        rows: impl IntoIterator<Item = &'r R>,
    ) -> Table {
        let row = |row| columns.iter().map(|column| (column.cell)(row)).collect();
        Table {
            caption: caption.into(),
            rows: rows.into_iter().map(row).collect(),
            heads: columns.into_iter().map(|column| column.head).collect(),
            ..Table::default()
        }
    }

    /// Creates a table from the text of its cells, without column heads.
    pub fn of_cells<R: AsRef<[String]>>(rows: impl IntoIterator<Item = R>) -> Table {
        let rows: Vec<R> = rows.into_iter().collect();
        let number = rows.first().map_or(0, |row| row.as_ref().len());
        let column = |n: usize| Column::new("", move |row: &R| row.as_ref()[n].clone());
        Table::new("", (0..number).map(column).collect(), &rows)
    }

    /// Aligns all columns to the left, because they contain words.
    pub fn left(mut self) -> Table {
        self.heads.iter_mut().for_each(|head| head.is_left = true);
        self
    }

    /// Separates the columns by two spaces on the terminal.
    pub fn wide(mut self) -> Table {
        self.is_wide = true;
        self
    }

    /// Allows cells that are too wide for the terminal to be wrapped.
    pub fn broken(mut self) -> Table {
        self.is_broken = true;
        self
    }

    /// The lines of the table, and the columns that had no room. The first column gets the width that the others
    /// leave.
    fn lines(&self, width: usize, bold: bool) -> (Vec<String>, Vec<String>) {
        let mut columns: Vec<usize> = (0..self.heads.len())
            .filter(|column| self.heads[*column].on_screen)
            .collect();
        let widest = |columns: &[usize], first| {
            let lines = self.drawn(columns, first, width, false);
            lines.iter().map(|l| l.chars().count()).max().unwrap_or(0)
        };
        let mut ranked: Vec<usize> = columns.clone();
        ranked.retain(|column| self.heads[*column].rank.is_some());
        ranked.sort_by_key(|column| self.heads[*column].rank);
        if ranked.is_empty() {
            let lines = self.drawn(&columns, usize::MAX, width, bold);
            return (lines, Vec::new());
        }
        let mut left_out = Vec::new();
        for out in ranked {
            if widest(&columns, FIRST_WIDTH) <= width {
                break;
            }
            columns.retain(|column| *column != out);
            left_out.push(self.heads[out].in_one_line());
        }
        // The first column may be narrower than allowed, so the room is found by trying, not by computing.
        let room = width.saturating_sub(widest(&columns, FIRST_WIDTH));
        let first = (FIRST_WIDTH..=FIRST_WIDTH + room)
            .rev()
            .find(|first| widest(&columns, *first) <= width)
            .unwrap_or(FIRST_WIDTH);
        (self.drawn(&columns, first, width, bold), left_out)
    }

    /// The lines: words are aligned to the left, figures to the right, and columns are separated by spaces.
    fn drawn(
        &self,
        columns: &[usize],
        first_width: usize,
        width: usize,
        bold: bool,
    ) -> Vec<String> {
        let heads = columns.iter().map(|&column| &self.heads[column].text);
        let cell = |(n, text): (usize, &String)| {
            let side = match self.heads[columns[n]].is_left {
                true => CellAlignment::Left,
                false => CellAlignment::Right,
            };
            Cell::new(text).set_alignment(side)
        };
        let mut grid = comfy_table::Table::new();
        grid.load_style(presets::NOTHING);
        if self.is_broken {
            grid.set_content_arrangement(ContentArrangement::Dynamic)
                .set_width(u16::try_from(width).unwrap_or(u16::MAX));
        } else {
            grid.set_content_arrangement(ContentArrangement::Disabled);
        }
        if heads.clone().any(|head| !head.is_empty()) {
            grid.set_header(heads.clone().enumerate().map(cell));
        }
        // The number of lines of each row, to find the lines of the strong row later.
        let mut heights = Vec::new();
        for (n, row) in self.rows.iter().enumerate() {
            let mut cells: Vec<String> =
                columns.iter().map(|&column| row[column].clone()).collect();
            if let Some(mark) = self.marks.get(n) {
                cells[0] = format!("{mark} {}", broken(&cells[0], first_width));
            }
            heights.push(cells[0].lines().count());
            grid.add_row(cells.iter().enumerate().map(cell));
        }
        let gap = if self.is_wide { 2 } else { 1 };
        for (n, column) in grid.column_iter_mut().enumerate() {
            column.set_padding((if n > 0 { gap } else { 0 }, 0));
        }
        let lines = grid.lines();
        let mut lines: Vec<String> = lines.map(|line| line.trim_end().to_string()).collect();
        let head = heads.map(|head| head.lines().count()).max().unwrap_or(0);
        if let Some(strong) = self.strong.filter(|_| bold) {
            let before = head + heights[..strong].iter().sum::<usize>();
            for line in lines.iter_mut().skip(before).take(heights[strong]) {
                *line = format!("\x1b[1m{line}\x1b[0m");
            }
        }
        lines
    }
}

/// A name, broken after `:` and `,` if it is too long.
fn broken(name: &str, width: usize) -> String {
    let mut lines = vec![String::new()];
    for part in name.split_inclusive([':', ',']) {
        let line = lines.last_mut().expect("there is one from the start");
        if !line.is_empty() && line.chars().count().saturating_add(part.chars().count()) > width {
            lines.push(String::new());
        }
        let mut line = lines.last_mut().expect("there is one from the start");
        for letter in part.chars() {
            if line.chars().count() == width {
                lines.push(String::new());
                line = lines.last_mut().expect("just pushed");
            }
            line.push(letter);
        }
    }
    lines.join("\n  ")
}
