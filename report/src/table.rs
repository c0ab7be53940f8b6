//! A table for the terminal: words are aligned to the left, figures to the right, and columns are separated by spaces.
//!
//! ```text
//!   policy      time     TextTable::new([0]).head(["policy", "time"])   add(["auto", "1.2 s"])
//!   auto       1.2 s
//!   linux-6.18 3.4 s
//! ```
//! The caller passes the maximum width of the table.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};

pub struct TextTable {
    grid: Table,
    /// Indexes of the columns of words.
    left: Vec<usize>,
    /// Number of spaces between two columns.
    gap: u16,
}

impl TextTable {
    /// Creates an empty table. `left` contains the indexes of the columns with words, which are aligned to the left;
    /// all other columns contain figures.
    pub fn new(left: impl Into<Vec<usize>>) -> TextTable {
        let mut grid = Table::new();
        grid.load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Disabled);
        TextTable {
            grid,
            left: left.into(),
            gap: 1,
        }
    }

    /// Separates the columns by two spaces.
    #[must_use]
    pub fn wide(mut self) -> TextTable {
        self.gap = 2;
        self
    }

    /// Limits the width of the table: cells that are too long are wrapped.
    #[must_use]
    pub fn within(mut self, width: usize) -> TextTable {
        self.grid
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(u16::try_from(width).unwrap_or(u16::MAX));
        self
    }

    #[must_use]
    pub fn head<T: ToString>(mut self, texts: impl IntoIterator<Item = T>) -> TextTable {
        let cells = self.cells(texts);
        self.grid.set_header(cells);
        self
    }

    pub fn add<T: ToString>(&mut self, texts: impl IntoIterator<Item = T>) {
        let cells = self.cells(texts);
        self.grid.add_row(cells);
    }

    /// Returns the lines of the table, without trailing spaces.
    #[must_use]
    pub fn lines(mut self) -> Vec<String> {
        for (n, column) in self.grid.column_iter_mut().enumerate() {
            column.set_padding((if n > 0 { self.gap } else { 0 }, 0));
        }
        let lines = self.grid.lines();
        lines.map(|line| line.trim_end().to_string()).collect()
    }

    fn cells<T: ToString>(&self, texts: impl IntoIterator<Item = T>) -> Vec<Cell> {
        let side = |n| match self.left.contains(&n) {
            true => CellAlignment::Left,
            false => CellAlignment::Right,
        };
        let cells = texts.into_iter().enumerate();
        cells
            .map(|(n, text)| Cell::new(text).set_alignment(side(n)))
            .collect()
    }
}
