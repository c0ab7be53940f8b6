//! `reproduce`: every table of the publications again, each published figure beside ours.
//!
//! ```text
//!   published/PAPER.rs   the printed figures, once      PAPER.rs   runs what they were measured on, here
//!                          └──────────────┬──────────────────────────────┘
//!                                  Table { rows } ──► JSON (schema foreread.reproduce/1), text, page
//! ```
//!
//! Each row says what its figure is worth, its [`FigureKind`], and has an id, `seed/table/label/column` in lower case with
//! dashes; `docs/posts.md` names each check by it. A check that was dropped or changed after it had missed stays in its
//! table as a known miss ([`Row::known`]): it is listed, and only a new miss fails the call.
//!
//! Never: a published figure outside `published`, a result that was not computed in this run, or a row left out because
//! it does not fit.

mod bhattacharya_2003;
mod blkid;
mod crume_2014;
mod hits;
mod kind;
mod le_moal_2025;
mod page;
mod paper;
pub mod published;
pub mod real;
pub mod runs;
pub mod score;
pub mod sweep;
mod sysbench;
pub mod text;
mod wu_2010a;
mod wu_2010b;
mod wu_2013;

use foreread_lab::compare::CompareError;
use foreread_os::failure::{Failure, FailureKind};
use foreread_report::json;
use foreread_report::progress::Progress;
use foreread_sim::device::presets::Preset;
pub use kind::{FigureKind, Role};
pub use page::page;
pub use paper::Paper;
use runs::Runs;
use score::Score;

use serde::{Deserialize, Serialize};

/// Name and version of the layout below: keys are only ever added. What is not defined is null.
pub const SCHEMA: &str = "foreread.reproduce/1";

/// How the column of an order begins.
const ORDER: &str = "of ";

/// What is to be reproduced, and how thoroughly.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Which papers; an empty list is all.
    pub papers: Vec<Paper>,
    /// At most this many runs of each experiment. Open: as many as it takes.
    pub most_runs: Option<u32>,
    /// Models that take the place of those of the same name, so that a test can see a check fail.
    pub instead: Vec<&'static Preset>,
}

/// Why nothing was reproduced: one line.
#[derive(Debug, thiserror::Error)]
pub enum ReproduceError {
    /// Something that is not there.
    #[error("{0}")]
    Asked(String),
    /// An experiment was refused.
    #[error("{0}")]
    Compare(#[from] CompareError),
}

impl From<ReproduceError> for Failure {
    fn from(error: ReproduceError) -> Failure {
        match error {
            ReproduceError::Compare(error) => error.into(),
            error @ ReproduceError::Asked(_) => Failure::of(FailureKind::Input, error),
        }
    }
}

/// Makes the tables of the papers again.
///
/// # Errors
/// An experiment that cannot be made.
pub fn run(options: &Options, progress: &mut dyn Progress) -> Result<Reproduction, ReproduceError> {
    let mut runs = Runs::new(options, progress);
    let mut tables = Vec::new();
    for paper in Paper::ALL
        .into_iter()
        .filter(|p| options.papers.is_empty() || options.papers.contains(p))
    {
        tables.extend(match paper {
            Paper::Wu2010a => wu_2010a::tables(&mut runs)?,
            Paper::Wu2010b => wu_2010b::tables(&mut runs)?,
            Paper::Wu2013 => wu_2013::tables(&mut runs)?,
            Paper::Bhattacharya2003 => bhattacharya_2003::tables(&mut runs)?,
            Paper::Crume2014 => crume_2014::tables(&mut runs)?,
            Paper::LeMoal2025 => le_moal_2025::tables(&mut runs)?,
        });
    }
    Ok(Reproduction::new(tables))
}

/// One published figure and ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Which row of the table. In a table by readahead size it is that size alone, in KiB or MiB: `4K`, `128K`, `1M`.
    pub label: String,
    /// Which column, with its unit. One that begins with `of ` is a ratio of two figures whose order is checked.
    pub column: String,
    /// The printed figure. Null where nothing was printed.
    pub published: Option<f64>,
    /// What came out here. Null where nothing can.
    pub ours: Option<f64>,
    /// `ours / published - 1`. Null where either is null, or the published figure 0.
    pub error: Option<f64>,
    /// What the row is worth, coarsely.
    pub role: Role,
    /// False where a target was set and missed; only a `check` counts. A row without a target is true.
    pub ok: bool,
    /// Why the kind or the miss. Null where the figures say it all.
    pub reason: Option<String>,
    /// `seed/table/label/column`, each in lower case with dashes. Unlike any other of the reproduction.
    #[serde(default)]
    pub id: String,
    #[serde(default)]
    pub kind: FigureKind,
    /// A miss that was seen before and is on record, so that it fails no call. False for a row that is ok.
    #[serde(default)]
    pub known_miss: bool,
}

/// One published table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// The number of its paper, `000` to `004`.
    pub seed: String,
    /// What it shows; unlike any other of the paper.
    pub table: String,
    /// Its rows, in the published order.
    pub rows: Vec<Row>,
}

/// Everything that was reproduced in one call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reproduction {
    /// [`SCHEMA`].
    pub schema: String,
    /// In the order of the papers.
    pub tables: Vec<Table>,
    /// One for each kind of row.
    #[serde(default)]
    pub score: Vec<Score>,
}

impl Table {
    /// A table of the paper. Its rows get their ids.
    #[must_use]
    pub fn new(paper: Paper, table: impl Into<String>, rows: Vec<Row>) -> Table {
        let table = table.into();
        let id = |row: &Row| {
            [paper.number(), &table, &row.label, &row.column]
                .map(slug)
                .join("/")
        };
        let rows = rows
            .into_iter()
            .map(|row| Row {
                id: id(&row),
                ..row
            })
            .collect();
        Table {
            seed: paper.number().to_string(),
            table,
            rows,
        }
    }

    /// How text cites the paper of the table.
    #[must_use]
    pub fn citation(&self) -> &str {
        Paper::parse(&self.seed).map_or(self.seed.as_str(), |paper| paper.citation())
    }
}

/// Letters and digits in lower case, a dash for each run of anything else between them.
fn slug(text: &str) -> String {
    let words = text
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_ascii_lowercase()
}

impl Row {
    /// A row without a target: nothing is asked of it.
    #[must_use]
    pub fn new(
        label: impl Into<String>,
        column: impl Into<String>,
        published: Option<f64>,
        ours: Option<f64>,
    ) -> Row {
        let error = published
            .zip(ours)
            .and_then(|(p, o)| (p != 0.0).then(|| o / p - 1.0))
            .filter(|e| e.is_finite());
        Row {
            label: label.into(),
            column: column.into(),
            published,
            ours,
            error,
            role: Role::Shown,
            ok: true,
            reason: None,
            id: String::new(),
            kind: FigureKind::Shown,
            known_miss: false,
        }
    }

    #[must_use]
    pub fn kind(self, kind: FigureKind) -> Row {
        Row {
            kind,
            role: kind.role(),
            ..self
        }
    }

    /// The same of this kind and with a verdict.
    #[must_use]
    pub fn judged(self, kind: FigureKind, ok: bool) -> Row {
        Row {
            ok,
            ..self.kind(kind)
        }
    }

    /// The same of this kind, ok where the error is at most `part` (0.06 is 6 %) to either side.
    #[must_use]
    pub fn within(self, kind: FigureKind, part: f64) -> Row {
        let ok = self.error.is_some_and(|e| e.abs() <= part);
        self.judged(kind, ok)
    }

    /// The same of this kind, of a ratio that is an effect: ok where ours shows it and is off by at most `part` of it (0.5 is half).
    /// A bound on the ratio alone has no power near 1: with 15 % "no effect" would do for an effect of 5 %.
    /// Effects are compared as logarithms: twice and half are the same effect to either side.
    #[must_use]
    pub(crate) fn effect_within(self, kind: FigureKind, part: f64) -> Row {
        let ok = self.effect_error().is_some_and(|off| off <= part);
        self.judged(kind, ok)
    }

    /// How far ours is off, as a part of the published effect: 0 is the same ratio, 1 is no effect at all.
    /// Null without a published effect.
    #[must_use]
    pub(crate) fn effect_error(&self) -> Option<f64> {
        let (published, ours) = (self.published?.ln(), self.ours?.ln());
        Some((ours - published).abs() / published.abs()).filter(|off| off.is_finite())
    }

    /// The same of this kind, ok where ours has the printed digits.
    #[must_use]
    pub fn digits(self, kind: FigureKind, printed: &str) -> Row {
        let decimals = printed
            .split_once('.')
            .map_or(0, |(_, decimals)| decimals.len());
        let ok = self
            .ours
            .is_some_and(|ours| format!("{ours:.decimals$}") == printed);
        self.judged(kind, ok)
    }

    /// The same as a check of an order: ok where ours is on the published side of 1, by as little as may be. Without a
    /// published ratio it has to be above 1.
    #[must_use]
    pub fn ordered(self) -> Row {
        debug_assert!(
            self.column.starts_with(ORDER),
            "the column of an order: {}",
            self.column
        );
        let above = self.published.is_none_or(|published| published > 1.0);
        let ok = self
            .ours
            .is_some_and(|ours| if above { ours > 1.0 } else { ours < 1.0 });
        self.judged(FigureKind::Order, ok)
    }

    /// The same, whose miss is on record: it was seen before, and what was then done about the check is in the reason.
    #[must_use]
    pub fn known(self) -> Row {
        Row {
            known_miss: !self.ok,
            ..self
        }
    }

    /// The same without an error, for figures that are equal or not.
    #[must_use]
    pub fn exact(self) -> Row {
        Row {
            error: None,
            ..self
        }
    }

    #[must_use]
    pub fn because(self, reason: impl Into<String>) -> Row {
        Row {
            reason: Some(reason.into()),
            ..self
        }
    }
}

impl Reproduction {
    /// These tables, and what their rows come to.
    #[must_use]
    pub fn new(tables: Vec<Table>) -> Reproduction {
        let score = score::of(tables.iter().flat_map(|table| &table.rows));
        Reproduction {
            schema: SCHEMA.to_string(),
            tables,
            score,
        }
    }

    /// All rows, in order.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.tables.iter().flat_map(|t| &t.rows)
    }

    /// How many rows have the role.
    #[must_use]
    pub fn count(&self, role: Role) -> usize {
        self.rows().filter(|r| r.role == role).count()
    }

    #[must_use]
    pub fn count_kind(&self, kind: FigureKind) -> usize {
        self.rows().filter(|r| r.kind == kind).count()
    }

    /// The checks that were missed, each with its table.
    pub fn missed(&self) -> impl Iterator<Item = (&Table, &Row)> {
        let rows = self
            .tables
            .iter()
            .flat_map(|t| t.rows.iter().map(move |r| (t, r)));
        rows.filter(|(_, r)| r.role == Role::Check && !r.ok)
    }

    /// Those of them that are not on record.
    pub fn new_misses(&self) -> impl Iterator<Item = (&Table, &Row)> {
        self.missed().filter(|(_, r)| !r.known_miss)
    }

    /// The JSON, with a newline at its end.
    #[must_use]
    pub fn to_json(&self) -> String {
        json::pretty(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_of_seed_table_label_and_column() {
        let rows = vec![
            Row::new("16K, run 1", "MB/s, printed", None, None),
            Row::new("==> x", "%", None, None),
        ];
        let table = Table::new(Paper::Wu2010b, "SSD 80G: each run", rows);
        let ids: Vec<&str> = table.rows.iter().map(|r| r.id.as_str()).collect();
        assert_eq!(
            ids,
            [
                "001/ssd-80g-each-run/16k-run-1/mb-s-printed",
                "001/ssd-80g-each-run/x/"
            ]
        );
    }

    #[test]
    fn digits_are_those_printed() {
        let row = |ours: f64, printed: &str| {
            Row::new("", "", None, Some(ours))
                .digits(FigureKind::Formula, printed)
                .ok
        };
        assert!(row(29.622, "29.6") && row(122.51, "123") && row(8.04, "8.04"));
        assert!(!row(29.66, "29.6") && !row(8.046, "8.04"));
    }

    #[test]
    fn no_effect_is_no_reproduction_of_an_effect() {
        let ok = |published: f64, ours: f64| {
            Row::new("", "", Some(published), Some(ours))
                .effect_within(FigureKind::Blind, 0.5)
                .ok
        };
        assert!(
            ok(0.946, 0.946) && ok(0.946, 0.97) && ok(0.5, 0.6) && ok(2.0, 1.5) && ok(0.946, 0.93)
        );
        // 15 % of the ratio took all of these.
        assert!(
            !ok(0.946, 0.997)
                && !ok(0.946, 1.0)
                && !ok(0.946, 1.05)
                && !ok(1.054, 1.0)
                && !ok(0.946, 0.9)
        );
        assert_eq!(
            Row::new("", "", Some(1.0), Some(1.0)).effect_error(),
            None,
            "no effect was published"
        );
    }

    #[test]
    fn only_a_miss_can_be_known() {
        let row = |ours: f64| {
            Row::new("a", "b", Some(10.0), Some(ours))
                .within(FigureKind::Blind, 0.1)
                .known()
        };
        assert!(!row(10.5).known_miss && row(12.0).known_miss && !row(12.0).ok);
        let tables = vec![Table::new(Paper::Wu2010a, "t", vec![row(10.5), row(12.0)])];
        let done = Reproduction::new(tables);
        assert_eq!((done.missed().count(), done.new_misses().count()), (1, 0));
    }
}
