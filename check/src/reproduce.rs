//! `reproduce`: computes every published figure again, and shows our figure next to the published figure.
//!
//! ```text
//!   published/PAPER.csv ──► Experiments ──► Row { published, ours, ratio, ok } ──► JSON (schema foreread.reproduce/1), text, page
//! ```
//! Each row has a [`FigureKind`], which says what an agreement with the published figure proves, and an id,
//! `number/table/row/column` in lower case with dashes.
//!
//! Each run of the command computes every result again, and no row is left out because it disagrees.

mod experiment;
pub mod published;
mod rules;
pub mod show;
pub mod sweep;
mod verdict;

use experiment::Experiments;
use foreread_core::units::parse_size;
use foreread_os::failure::Failure;
use foreread_report::json;
use foreread_report::progress::Progress;
use foreread_sim::device::presets::Preset;
use published::{Figure, PAPERS, Paper};
use serde::Serialize;
use verdict::Target;
pub use verdict::{FigureKind, Score};

/// Name and version of the JSON schema. Undefined values are null.
pub const SCHEMA: &str = "foreread.reproduce/1";

/// Which tables are reproduced, and how thoroughly.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The papers; an empty list means all of them.
    pub papers: Vec<Paper>,
    /// Maximum number of runs of each experiment. `None`: as many as are needed.
    pub max_runs: Option<u32>,
    /// Models that replace those of the same name, so that a test can make a check fail.
    pub instead: Vec<&'static Preset>,
}

/// An experiment or a value of a table is refused.
fn asked(why: impl ToString) -> Failure {
    Failure::input(why.to_string(), "", "")
}

fn bytes(text: &str) -> Result<u64, Failure> {
    parse_size(text).map_err(|error| asked(format!("{text}: {error:?}")))
}

/// One published figure, and the figure that we computed for it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// `number/table/row/column`, each in lower case with dashes. Unique within the reproduction.
    pub id: String,
    pub row: String,
    pub column: String,
    /// Null if no figure was printed.
    pub published: Option<f64>,
    /// Null if we have no result.
    pub ours: Option<f64>,
    /// `ours / published`. Null if either is null, or if the published figure is 0.
    pub ratio: Option<f64>,
    pub kind: FigureKind,
    /// The target, as in the CSV file; empty if there is none.
    pub holds: String,
    /// Whether the target is met; true if there is none.
    pub ok: bool,
    /// The miss is already recorded, so it does not make the command fail.
    pub known_miss: bool,
    /// The reason for the kind or the miss. Null if the figures are sufficient.
    pub reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    pub paper: String,
    /// The citation of the paper in texts.
    pub citation: String,
    /// What the table shows; unique within the paper.
    pub table: String,
    /// The rows, in the published order.
    pub rows: Vec<Row>,
}

/// All tables that one call has reproduced.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reproduction {
    pub schema: String,
    /// Tables, in the order of the papers.
    pub tables: Vec<Table>,
    /// One score for each kind of row.
    pub score: Vec<Score>,
}

/// Computes all figures in the tables of these papers.
pub fn run(options: &Options, progress: &mut dyn Progress) -> Result<Reproduction, Failure> {
    let mut experiments = Experiments::new(options, progress);
    let mut tables: Vec<Table> = Vec::new();
    let asked_for = |paper: &&Paper| {
        options.papers.is_empty() || options.papers.iter().any(|p| p.name == paper.name)
    };
    for paper in PAPERS.iter().filter(asked_for) {
        for figure in paper.figures() {
            let row = Row::new(paper, &figure, &mut experiments)?;
            match tables.last_mut() {
                Some(last) if last.paper == paper.name && last.table == figure.table => {
                    last.rows.push(row);
                }
                _ => tables.push(Table {
                    paper: paper.name.to_string(),
                    citation: paper.citation.to_string(),
                    table: figure.table,
                    rows: vec![row],
                }),
            }
        }
    }
    let score = verdict::score(tables.iter().flat_map(|table| &table.rows));
    Ok(Reproduction {
        schema: SCHEMA.to_string(),
        tables,
        score,
    })
}

impl Row {
    fn new(
        paper: &Paper,
        figure: &Figure,
        experiments: &mut Experiments<'_>,
    ) -> Result<Row, Failure> {
        let id = figure.id(paper);
        let target = Target::parse(&figure.holds)
            .ok_or_else(|| asked(format!("{id}: '{}' is not a valid target", figure.holds)))?;
        let (published, ours) = (figure.value(), experiments.value(&figure.ours)?);
        let apart = match target {
            Target::Overlap(_) => experiments.apart(&figure.ours)?,
            _ => None,
        };
        let ok = target.is_met(&figure.published, ours, apart);
        let ratio = published
            .zip(ours)
            .map(|(published, ours)| ours / published);
        Ok(Row {
            id,
            row: figure.row.clone(),
            column: figure.column.clone(),
            published,
            ours,
            ratio: ratio.filter(|ratio| ratio.is_finite()),
            kind: figure.kind,
            holds: figure.holds.clone(),
            ok,
            known_miss: !ok && figure.known == "miss",
            reason: figure.reason(),
        })
    }

    /// Returns whether our figure fails the check against the published figure.
    pub fn is_missed(&self) -> bool {
        self.kind.is_check() && !self.ok
    }
}

impl Reproduction {
    pub fn rows(&self) -> impl Iterator<Item = (&Table, &Row)> {
        let tables = self.tables.iter();
        tables.flat_map(|table| table.rows.iter().map(move |row| (table, row)))
    }

    pub fn missed(&self) -> impl Iterator<Item = (&Table, &Row)> {
        self.rows().filter(|(_, row)| row.is_missed())
    }

    /// Returns the rows whose check fails although they are not listed as known misses.
    pub fn new_misses(&self) -> impl Iterator<Item = (&Table, &Row)> {
        self.missed().filter(|(_, row)| !row.known_miss)
    }

    /// Returns the JSON, with a newline at the end.
    pub fn to_json(&self) -> String {
        json::pretty(self)
    }
}
