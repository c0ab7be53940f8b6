//! A report as a single HTML page that works offline, on a phone and in dark mode. The option `--html` of `compare`
//! writes such a page.
//!
//! ```text
//!   Report ──► Page: facts, sections of figures and tables ──template──► HTML
//!     └──────► the same JSON that --json writes, inside the page
//! ```
//! This module provides the parts of a page; `lab/src/report/page.rs` builds the page from them, in this order:
//! ```text
//!   title ─► verdict ─► facts ─► figures that fit one screen ─► parts: text, figures, tables, notes ─► the next command
//! ```
//! The page loads nothing and runs no script; its content security policy (CSP) forbids loading and scripts. The page is valid XML as well
//! as HTML, so that a test can parse it. The values of every chart are also in a table. All text is escaped, and the page does
//! not refer to anything outside its file.

use crate::figure::Figure;
use crate::markup::{escape, json_in_script};
use crate::number::{UNDEFINED, plural};
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, context};

/// The title of the box at the top of a page with advice.
pub const WHAT_TO_DO: &str = "What to do";
/// The title of the section with commands to paste.
const NEXT: &str = "Next";
/// Longer tables are folded below their captions.
const MAX_OPEN_ROWS: usize = 16;
/// Number of figures that are visible without opening anything.
const MAX_OPEN_FIGURES: usize = 4;

/// The content of a page, which can be rendered as HTML.
#[derive(Clone, Debug, Default)]
pub struct Page {
    pub title: String,
    /// The box at the top, with its title: the first thing to read.
    pub lead: (&'static str, Vec<String>),
    pub facts: Vec<(String, String)>,
    /// Figures before the sections.
    pub figures: Vec<Figure>,
    pub sections: Vec<Section>,
    /// What to paste next: where to use it (or an empty text), the text itself, and why.
    pub next: Vec<[String; 3]>,
}

/// A section of a page.
#[derive(Clone, Debug, Default)]
pub struct Section {
    pub title: String,
    pub text: Vec<String>,
    pub notes: Vec<String>,
    pub figures: Vec<Figure>,
    pub grids: Vec<Grid>,
    /// Something to copy: where to use it, the text itself, and why.
    pub copies: Vec<[String; 3]>,
}

/// The first `open` figures, and the others.
fn drawings(figures: &[Figure], open: &mut usize) -> Value {
    let value = |figure: &Figure| {
        let svg = Value::from_safe_string(figure.to_svg());
        context! { title => &figure.title, svg => svg, caption => &figure.caption }
    };
    let (shown, more) = figures.split_at(figures.len().min(*open));
    *open -= shown.len();
    let values = |figures: &[Figure]| figures.iter().map(value).collect::<Vec<_>>();
    context! { shown => values(shown), more => values(more) }
}

#[derive(Clone, Debug, Default)]
pub struct Grid {
    pub caption: String,
    pub heads: Vec<String>,
    pub rows: Vec<Vec<String>>,
    /// Rows that are emphasized: the best one, a check that failed.
    pub strong: Vec<usize>,
    /// Columns that contain words; for other columns it is decided by their cells.
    pub words: Vec<usize>,
}

impl Grid {
    pub fn new<T: Into<String>>(
        caption: impl Into<String>,
        heads: impl IntoIterator<Item = T>,
    ) -> Grid {
        let heads = heads.into_iter().map(Into::into).collect();
        Grid {
            caption: caption.into(),
            heads,
            ..Grid::default()
        }
    }

    /// Whether a column contains words, which are aligned to the left, and not figures.
    fn holds_words(&self, column: usize) -> bool {
        if self.words.contains(&column) {
            return true;
        }
        let is_word = |cell: &str| {
            let mut letters = cell.chars();
            let first = letters.next().is_some_and(char::is_alphabetic);
            // `x0.25` is a ratio.
            first
                && !letters
                    .next()
                    .is_some_and(|c| c.is_ascii_digit() || c == '<')
        };
        let cells = || {
            self.rows
                .iter()
                .filter_map(|r| r.get(column))
                .filter(|c| !c.is_empty() && *c != UNDEFINED)
        };
        cells().next().is_some() && cells().all(|cell| is_word(cell))
    }

    /// Whether the table is folded; if it is, the rows that are shown nevertheless: those that are emphasized.
    fn fold(&self) -> Option<Grid> {
        let is_long = self.rows.len() > MAX_OPEN_ROWS;
        let strong = self
            .strong
            .iter()
            .filter_map(|row| self.rows.get(*row))
            .cloned();
        let strong: Vec<Vec<String>> = strong.take(MAX_OPEN_ROWS).collect();
        is_long.then(|| Grid {
            caption: self.caption.clone(),
            heads: self.heads.clone(),
            strong: (0..strong.len()).collect(),
            rows: strong,
            words: self.words.clone(),
        })
    }

    fn value(&self, is_folded: bool) -> Value {
        let row = |i: usize| {
            context! { cells => list(&self.rows[i]), strong => self.strong.contains(&i) }
        };
        let rows: Vec<Value> = (0..self.rows.len()).map(row).collect();
        let words: Vec<bool> = (0..self.heads.len())
            .map(|column| self.holds_words(column))
            .collect();
        let count = plural(self.rows.len() as u64, "row");
        context! { caption => &self.caption, heads => list(&self.heads), words => words, rows => rows, folded => is_folded, count => count }
    }

    pub fn with(mut self, rows: impl IntoIterator<Item = Vec<String>>) -> Grid {
        self.rows.extend(rows);
        self
    }
}

impl Page {
    /// Renders the page as HTML. The page includes `json`, the same JSON that `--json` writes.
    pub fn to_html(mut self, json: &str) -> String {
        let next = std::mem::take(&mut self.next);
        if !next.is_empty() {
            self.sections.push(Section {
                title: NEXT.into(),
                copies: next,
                ..Section::default()
            });
        }
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
        let mut open = MAX_OPEN_FIGURES;
        let page = context! {
            title => &self.title,
            lead_title => self.lead.0,
            lead => list(&self.lead.1),
            figures => drawings(&self.figures, &mut open),
            facts => self.facts.iter().map(|(name, value)| list(&[name.clone(), value.clone()])).collect::<Vec<_>>(),
            sections => self.sections.iter().map(|s| s.value(&mut open)).collect::<Vec<_>>(),
            json => safe(json_in_script(json)),
            style => safe(include_str!("page/style.css").to_string()),
            version => env!("CARGO_PKG_VERSION"),
        };
        env.render_str(include_str!("page/template.html"), page)
            .expect("a template of our own, with all that it names")
    }
}

impl Section {
    fn value(&self, open_figures: &mut usize) -> Value {
        let grids = |grid: &Grid| match grid.fold() {
            None => vec![grid.value(false)],
            Some(open) => {
                let open = Some(open).filter(|open| !open.rows.is_empty());
                let open = open.map(|open| open.value(false));
                open.into_iter().chain([grid.value(true)]).collect()
            }
        };
        context! {
            title => &self.title,
            text => list(&self.text),
            notes => list(&self.notes),
            figures => drawings(&self.figures, open_figures),
            grids => self.grids.iter().flat_map(grids).collect::<Vec<_>>(),
            copies => self.copies.iter().map(|c| list(c)).collect::<Vec<_>>(),
        }
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
    use crate::figure::{Bars, Figure};

    fn grid(rows: usize, strong: &[usize]) -> Grid {
        let rows = (0..rows).map(|n| vec![format!("row-{n}"), "1".to_string()]);
        Grid {
            strong: strong.to_vec(),
            ..Grid::new("A table", ["row", "figure"]).with(rows)
        }
    }

    fn page(grid: Grid, figures: usize) -> String {
        let figure = |n| Figure::bars(format!("figure-{n}"), Bars::default());
        let page = Page {
            title: "A page".to_string(),
            lead: (WHAT_TO_DO, vec!["A verdict".to_string()]),
            facts: vec![fact("seed", "1")],
            figures: vec![figure(0)],
            sections: vec![Section {
                title: "A part".to_string(),
                text: vec!["A sentence".to_string()],
                notes: vec!["A note".to_string()],
                figures: (1..figures).map(figure).collect(),
                grids: vec![grid],
                ..Section::default()
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
        let html = page(grid(2, &[]), 2);
        let order = [
            "<h1>A page",
            "A verdict",
            ">seed<",
            "figure-0",
            "A part</h2>",
            "A sentence",
            "figure-1",
            "row-0",
            "A note",
            "Next</h2>",
            "a command",
        ];
        let places = order.map(|text| html.find(text).unwrap_or_else(|| panic!("{text}: {html}")));
        assert!(places.is_sorted(), "{places:?}");
    }

    #[test]
    fn long_tables_are_folded_but_not_the_rows_in_bold() {
        assert!(!is_folded(&page(grid(MAX_OPEN_ROWS, &[]), 1), "row-1<"));
        let long = page(grid(MAX_OPEN_ROWS + 1, &[9]), 1);
        assert!(is_folded(&long, "row-1<") && !is_folded(&long, "row-9<"));
        assert!(long.contains("<summary>A table (17 rows)"), "{long}");
        assert_eq!(long.matches("row-9<").count(), 2);
    }

    #[test]
    fn four_figures_are_open() {
        let html = page(grid(1, &[]), 6);
        let folded: Vec<bool> = (0..6)
            .map(|n| is_folded(&html, &format!("figure-{n}")))
            .collect();
        assert_eq!(folded, [false, false, false, false, true, true]);
    }

    /// Words begin on the left, whatever their first letter is.
    #[test]
    fn columns_of_words_are_known() {
        let cells = || [vec!["a".to_string(), "80 % sequential".to_string()]];
        let plain = Grid::new("", ["file", "pattern"]).with(cells());
        let known = Grid {
            words: vec![1],
            ..plain.clone()
        };
        assert!(!plain.holds_words(1) && known.holds_words(1));
    }
}
