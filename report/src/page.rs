//! A report as one page of HTML: for people, offline, on a phone and by night. What `--html` writes.
//!
//! ```text
//!   Report, Series, Reproduction, Probe ──► Page: facts, sections of figures and tables ──template──► HTML
//!        └──────────────────────────────────► the same JSON that --json writes, inside the page
//! ```
//! A result makes its page of these parts: `lab/src/report/page/`, `lab/src/probe/page.rs`, `check/src/reproduce/page.rs`.
//! The page holds no script that runs and loads nothing; its own policy (CSP) forbids both. It is XML as well as HTML,
//! so that a test can read it. Every figure has its values in a table, and every value of the JSON is on the page.
//! Never: a text that is not escaped, a reference to anything outside the file, a number that is not in the report.

pub mod bars;
pub mod curves;
pub mod heat;
mod text;
mod values;

use super::chart::svg;
use super::number::UNDEFINED;
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, context};

/// The title of the box on top of a page with advice.
pub const WHAT_TO_DO: &str = "What to do";

/// Width of a drawing in its own units: those of a narrow phone, so that letters are as large as the page's small ones.
pub const WIDTH: f64 = 344.0;

/// A page before it is HTML.
#[derive(Clone, Debug, Default)]
pub struct Page {
    pub title: String,
    /// The box on top, with its title: the first thing to read.
    pub lead: (&'static str, Vec<String>),
    pub facts: Vec<(String, String)>,
    pub sections: Vec<Section>,
}

/// A part of a page.
#[derive(Clone, Debug, Default)]
pub struct Section {
    pub title: String,
    pub text: Vec<String>,
    pub notes: Vec<String>,
    pub figures: Vec<Figure>,
    /// More drawings under a heading, between a sentence and the legend that they share.
    pub maps: Option<Maps>,
    pub grids: Vec<Grid>,
    /// Something to copy, each with where it belongs and why.
    pub copies: Vec<[String; 3]>,
    /// Behind a line to open it by.
    pub folded: bool,
}

#[derive(Clone, Debug)]
pub struct Figure {
    /// Over it; empty where the drawing has its own head.
    pub title: String,
    /// Made by this room, of escaped text.
    pub svg: String,
    pub caption: String,
}

impl Figure {
    pub fn new(svg: String, caption: impl Into<String>) -> Figure {
        Figure {
            title: String::new(),
            svg,
            caption: caption.into(),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Maps {
    pub title: String,
    pub text: String,
    pub legend: String,
    pub figures: Vec<Figure>,
}

#[derive(Clone, Debug, Default)]
pub struct Grid {
    pub caption: String,
    pub heads: Vec<String>,
    pub rows: Vec<Vec<String>>,
    /// Rows that stand out: the best one, a check that was missed.
    pub strong: Vec<usize>,
    /// Behind its caption, to open it by: many rows that few readers want.
    pub folded: bool,
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

    pub fn with(mut self, rows: impl IntoIterator<Item = Vec<String>>) -> Grid {
        self.rows.extend(rows);
        self
    }
}

impl Page {
    /// The page with `json`, which `--json` writes, and every value of it in tables to be opened.
    pub fn to_html(mut self, json: &str) -> String {
        let value = serde_json::from_str(json).expect("JSON of our own");
        self.sections.push(Section {
            title: "Every value".into(),
            text: vec!["With every digit, under the names that they have in the JSON.".to_string()],
            grids: values::tables("", &value),
            folded: true,
            ..Section::default()
        });
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
            json => safe(text::json_in_script(json)),
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

/// A fact of [`Page::facts`].
pub fn fact(name: &str, value: impl Into<String>) -> (String, String) {
    (name.to_string(), value.into())
}

/// A sentence for screen readers.
pub fn about(what: &str) -> String {
    format!("{what}. The same values are in the table below.")
}
