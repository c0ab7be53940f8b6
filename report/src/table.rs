//! A table for the terminal: columns of words to the left, of figures to the right, spaces between them, no lines.
//!
//! ```text
//!   policy      time     TextTable::new([0]).head(["policy", "time"])   add(["auto", "1.2 s"])
//!   auto       1.2 s
//!   linux-6.18 3.4 s
//! ```
//! Never: looks at the terminal. A table that must fit is given its width.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};

pub struct TextTable {
    grid: Table,
    /// Columns of words.
    left: Vec<usize>,
    /// Spaces between two columns.
    gap: u16,
}

impl TextTable {
    /// `left`: the columns of words; all others hold figures.
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

    /// With two spaces between columns.
    #[must_use]
    pub fn wide(mut self) -> TextTable {
        self.gap = 2;
        self
    }

    /// No wider than this: longer cells are broken into lines.
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

    /// Its lines, without spaces at their ends.
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
