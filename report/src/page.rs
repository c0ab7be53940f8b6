//! A report as a single HTML page that works offline, on a phone and in dark mode. The option `--html` of `compare`
//! writes such a page.
//!
//! ```text
//!   Report ──► Page: facts, sections of tables and notes ──template──► HTML
//!     └──────► the same JSON that --json writes, inside the page
//! ```
//! This module provides the parts of a page; `lab/src/report/page.rs` builds the page from them, in this order:
//! ```text
//!   title ─► verdict ─► facts ─► parts: text, tables, notes ─► the next command
//! ```
//! The page loads nothing and runs no script; its content security policy (CSP) forbids loading and scripts. The page is valid XML as well
//! as HTML, so that a test can parse it. All text is escaped, and the page does not refer to anything outside its file.

use crate::block::{Block, Table};
use crate::markup::{escape, json_in_script};
use crate::number::plural;
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, context};

/// The title of the box at the top.
const WHAT_TO_DO: &str = "What to do";
/// The title of the section with commands to paste.
const NEXT: &str = "Next";
/// Longer tables are folded below their captions.
const MAX_OPEN_ROWS: usize = 16;

/// The content of a page, which can be rendered as HTML.
pub struct Page {
    pub title: String,
    /// The text of the box at the top: the first thing to read.
    pub lead: String,
    pub facts: Vec<(String, String)>,
    pub sections: Vec<Section>,
    /// What to paste next: where to use it (or an empty text), the text itself, and why.
    pub next: Vec<[String; 3]>,
}

/// A section of a page: its texts, tables and notes are shown in this order.
pub struct Section {
    pub title: String,
    pub blocks: Vec<Block>,
}

/// A table; one of many rows is folded, below the row that is emphasized.
fn grids(table: &Table) -> Vec<Value> {
    let all: Vec<usize> = (0..table.rows.len()).collect();
    if all.len() <= MAX_OPEN_ROWS {
        return vec![grid(table, &all, false)];
    }
    let open = table.strong.map(|row| grid(table, &[row], false));
    open.into_iter().chain([grid(table, &all, true)]).collect()
}

fn grid(table: &Table, rows: &[usize], is_folded: bool) -> Value {
    let shown = |column: &usize| table.heads[*column].on_page;
    let columns: Vec<usize> = (0..table.heads.len()).filter(shown).collect();
    let heads: Vec<String> = columns
        .iter()
        .map(|n| table.heads[*n].in_one_line())
        .collect();
    let words: Vec<bool> = columns.iter().map(|n| table.heads[*n].is_left).collect();
    let row = |row: &usize| {
        let cells = columns
            .iter()
            .map(|column| table.rows[*row][*column].clone());
        let mut cells: Vec<String> = cells.collect();
        cells[0] += match table.marks.get(*row) {
            Some('*') => " (fastest)",
            Some('=') => " (tied for fastest)",
            Some('?') => " (may be the fastest)",
            _ => "",
        };
        let bar = table.bars.get(*row);
        context! { cells => list(&cells), strong => table.strong == Some(*row), bar => bar }
    };
    let count = plural(rows.len() as u64, "row");
    let rows: Vec<Value> = rows.iter().map(row).collect();
    let longest = table.bars.iter().copied().reduce(f64::max);
    context! {
        caption => &table.caption,
        heads => list(&heads),
        words => words,
        rows => rows,
        longest => longest,
        folded => is_folded,
        count => count,
    }
}

impl Page {
    /// Renders the page as HTML. The page includes `json`, the same JSON that `--json` writes.
    pub fn to_html(&self, json: &str) -> String {
        let mut env = Environment::new();
        env.set_auto_escape_callback(|_| AutoEscape::Html);
        // Use our own escaping instead of the library's: it also replaces control characters and characters that
        // change the text direction.
        env.set_formatter(|out, _, value| {
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), ToString::to_string);
            let text = if value.is_safe() { text } else { escape(&text) };
            out.write_str(&text).map_err(Into::into)
        });
        let safe = |text: String| Value::from_safe_string(text);
        let mut sections: Vec<Value> = self.sections.iter().map(Section::value).collect();
        if !self.next.is_empty() {
            let copies: Vec<Value> = self.next.iter().map(|copy| list(copy)).collect();
            sections.push(context! { title => NEXT, copies => copies });
        }
        let page = context! {
            title => &self.title,
            lead_title => WHAT_TO_DO,
            lead => &self.lead,
            facts => self.facts.iter().map(|(name, value)| list(&[name.clone(), value.clone()])).collect::<Vec<_>>(),
            sections => sections,
            json => safe(json_in_script(json)),
            style => safe(include_str!("page/style.css").to_string()),
            version => env!("CARGO_PKG_VERSION"),
        };
        env.render_str(include_str!("page/template.html"), page)
            .expect("a template of our own, with all that it names")
    }
}

impl Section {
    fn value(&self) -> Value {
        let (mut text, mut notes, mut tables) = (Vec::new(), Vec::new(), Vec::new());
        for block in &self.blocks {
            match block {
                Block::Page(line) => text.push(Value::from(line)),
                Block::Note(note) => notes.push(Value::from(note)),
                Block::Table(table) => tables.extend(grids(table)),
                _ => {}
            }
        }
        context! { title => &self.title, text => text, notes => notes, grids => tables }
    }
}

fn list(texts: &[String]) -> Value {
    Value::from(texts.iter().map(Value::from).collect::<Vec<_>>())
}

/// Creates an entry for [`Page::facts`].
pub fn fact(name: &str, value: impl Into<String>) -> (String, String) {
    (name.to_string(), value.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: usize, strong: Option<usize>) -> Table {
        let rows = (0..rows).map(|n| [format!("row-{n}"), "1".to_string()]);
        let mut table = Table::of_cells(rows);
        table.caption = "A table".to_string();
        table.strong = strong;
        table
    }

    fn page(table: Table) -> String {
        let blocks = vec![
            Block::Note("A note".to_string()),
            Block::Table(table),
            Block::Page("A sentence".to_string()),
        ];
        let page = Page {
            title: "A page".to_string(),
            lead: "A verdict".to_string(),
            facts: vec![fact("seed", "1")],
            sections: vec![Section {
                title: "A part".to_string(),
                blocks,
            }],
            next: vec![["", "a command", "A reason:"].map(ToString::to_string)],
        };
        page.to_html("{}")
    }

    fn is_folded(html: &str, text: &str) -> bool {
        let before = &html[..html.find(text).unwrap_or_else(|| panic!("{text}: {html}"))];
        before.matches("<details").count() > before.matches("</details").count()
    }

    #[test]
    fn each_page_has_one_order() {
        let html = page(table(2, None));
        let order = [
            "<h1>A page",
            "A verdict",
            ">seed<",
            "A part</h2>",
            "A sentence",
            "row-0",
            "A note",
            "Next</h2>",
            "a command",
        ];
        let places = order.map(|text| html.find(text).unwrap_or_else(|| panic!("{text}: {html}")));
        assert!(places.is_sorted(), "{places:?}");
    }

    #[test]
    fn long_tables_are_folded_but_not_the_row_in_bold() {
        assert!(!is_folded(&page(table(MAX_OPEN_ROWS, None)), "row-1<"));
        let long = page(table(MAX_OPEN_ROWS + 1, Some(9)));
        assert!(is_folded(&long, "row-1<") && !is_folded(&long, "row-9<"));
        assert!(long.contains("<summary>A table (17 rows)"), "{long}");
        assert_eq!(long.matches("row-9<").count(), 2);
    }

    #[test]
    fn bars_and_marks_are_those_of_their_rows() {
        let mut table = table(3, None);
        (table.marks, table.bars) = (vec![' ', '*', '='], vec![4.5, 1.0, 2.0]);
        let html = page(table);
        for (name, bar) in [
            ("row-0", "4.5"),
            ("row-1 (fastest)", "1.0"),
            ("row-2 (tied for fastest)", "2.0"),
        ] {
            let row = format!("{name} <meter max=\"4.5\" value=\"{bar}\"></meter></th>");
            assert!(html.contains(&row), "{row}: {html}");
        }
    }
}
