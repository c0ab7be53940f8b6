//! A report as one page of HTML: for people, offline, on a phone and by night. What `--html` writes.
//!
//! ```text
//!   Report, Series, Reproduction, Probe ──► Page: facts, sections of figures and tables ──template──► HTML
//!        └──────────────────────────────────► the same JSON that --json writes, inside the page
//! ```
//! The pages of comparisons and series are here; `probe/page.rs`, `reproduce/page.rs` and `bench_policies/page.rs` make theirs of
//! the same parts.
//! The page holds no script that runs and loads nothing; its own policy (CSP) forbids both. It is XML as well as HTML,
//! so that a test can read it. Every figure has its values in a table, and every value of the JSON is on the page.
//! Never: a text that is not escaped, a reference to anything outside the file, a number that is not in the report.

mod bars;
mod compare;
pub(crate) mod curves;
pub(crate) mod heat;
mod map;
mod text;
mod values;
mod vary;

use super::chart::svg;
use super::number::UNDEFINED;
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, context};

pub use compare::compare;
pub use vary::series;

/// The title of the box on top of a page with advice.
pub(crate) const WHAT_TO_DO: &str = "What to do";

/// Width of a drawing in its own units: those of a narrow phone, so that letters are as large as the page's small ones.
pub(crate) const WIDTH: f64 = 344.0;

/// A page before it is HTML.
#[derive(Clone, Debug, Default)]
pub(crate) struct Page {
    pub(crate) title: String,
    /// The box on top, with its title: the first thing to read.
    pub(crate) lead: (&'static str, Vec<String>),
    pub(crate) facts: Vec<(String, String)>,
    pub(crate) sections: Vec<Section>,
    /// What `--json` writes.
    pub(crate) json: String,
}

/// A part of a page.
#[derive(Clone, Debug, Default)]
pub(crate) struct Section {
    pub(crate) title: String,
    pub(crate) text: Vec<String>,
    pub(crate) notes: Vec<String>,
    pub(crate) figures: Vec<Figure>,
    /// More drawings under a heading, between a sentence and the legend that they share.
    pub(crate) maps: Option<Maps>,
    pub(crate) grids: Vec<Grid>,
    /// Something to copy, each with where it belongs and why.
    pub(crate) copies: Vec<[String; 3]>,
    /// Behind a line to open it by.
    pub(crate) folded: bool,
}

/// A drawing.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// Over it; empty where the drawing has its own head.
    pub(crate) title: String,
    /// Made by this room, of escaped text.
    pub(crate) svg: String,
    pub(crate) caption: String,
}

impl Figure {
    pub(crate) fn new(svg: String, caption: impl Into<String>) -> Figure {
        Figure {
            title: String::new(),
            svg,
            caption: caption.into(),
        }
    }
}

/// Drawings that belong together.
#[derive(Clone, Debug)]
pub(crate) struct Maps {
    pub(crate) title: String,
    pub(crate) text: String,
    pub(crate) legend: String,
    pub(crate) figures: Vec<Figure>,
}

/// A table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grid {
    pub(crate) caption: String,
    pub(crate) heads: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
    /// Rows that stand out: the best one, a check that was missed.
    pub(crate) strong: Vec<usize>,
    /// Behind its caption, to open it by: many rows that few readers want.
    pub(crate) folded: bool,
}

impl Grid {
    pub(crate) fn new<T: Into<String>>(
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

    /// Whether a column holds words, which stand to the left, and not figures.
    fn holds_words(&self, column: usize) -> bool {
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

    pub(crate) fn with(mut self, rows: impl IntoIterator<Item = Vec<String>>) -> Grid {
        self.rows.extend(rows);
        self
    }
}

impl Page {
    /// Adds every value of the JSON, as tables to be opened.
    pub(crate) fn with_values(mut self, json: String) -> Page {
        let value = serde_json::from_str(&json).expect("JSON of our own");
        let grids = values::tables("", &value);
        let text =
            vec!["With every digit, under the names that they have in the JSON.".to_string()];
        self.sections.push(Section {
            title: "Every value".into(),
            text,
            grids,
            folded: true,
            ..Section::default()
        });
        self.json = json;
        self
    }

    pub(crate) fn to_html(&self) -> String {
        let mut env = Environment::new();
        env.set_auto_escape_callback(|_| AutoEscape::Html);
        // Our own escaping in place of the library's: it lets no control and no turn of direction through either.
        env.set_formatter(|out, _, value| {
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), ToString::to_string);
            let text = if value.is_safe() {
                text
            } else {
                text::escape(&text)
            };
            out.write_str(&text).map_err(Into::into)
        });
        let safe = |text: String| Value::from_safe_string(text);
        let page = context! {
            title => &self.title,
            lead_title => self.lead.0,
            lead => list(&self.lead.1),
            facts => self.facts.iter().map(|(name, value)| list(&[name.clone(), value.clone()])).collect::<Vec<_>>(),
            sections => self.sections.iter().map(Section::value).collect::<Vec<_>>(),
            json => safe(text::json_in_script(&self.json)),
            style => safe(format!("{}{}", svg::style(), include_str!("page/style.css"))),
            version => env!("CARGO_PKG_VERSION"),
        };
        env.render_str(include_str!("page/template.html"), page)
            .expect("a template of our own, with all that it names")
    }
}

impl Section {
    fn value(&self) -> Value {
        let figure = |f: &Figure| {
            context! { title => &f.title, svg => Value::from_safe_string(f.svg.clone()), caption => &f.caption }
        };
        let maps = |m: &Maps| {
            let figures: Vec<Value> = m.figures.iter().map(figure).collect();
            let legend = Value::from_safe_string(m.legend.clone());
            context! { title => &m.title, text => &m.text, legend => legend, figures => figures }
        };
        let row = |grid: &Grid, i: usize| {
            context! { cells => list(&grid.rows[i]), strong => grid.strong.contains(&i) }
        };
        let grid = |g: &Grid| {
            let rows: Vec<Value> = (0..g.rows.len()).map(|i| row(g, i)).collect();
            let words: Vec<bool> = (0..g.heads.len())
                .map(|column| g.holds_words(column))
                .collect();
            context! { caption => &g.caption, heads => list(&g.heads), words => words, rows => rows, folded => g.folded }
        };
        context! {
            title => &self.title,
            text => list(&self.text),
            notes => list(&self.notes),
            figures => self.figures.iter().map(figure).collect::<Vec<_>>(),
            maps => self.maps.as_ref().map(maps),
            grids => self.grids.iter().map(grid).collect::<Vec<_>>(),
            copies => self.copies.iter().map(|c| list(c)).collect::<Vec<_>>(),
            folded => self.folded,
        }
    }
}

fn list(texts: &[String]) -> Value {
    Value::from(texts.iter().map(Value::from).collect::<Vec<_>>())
}

/// A sentence for screen readers.
pub(crate) fn about(what: &str) -> String {
    format!("{what}. The same values are in the table below.")
}
