//! `reproduce`: every table of the five seeds again, each published figure beside ours.
//!
//! ```text
//!   published/NNN.rs   the printed figures, once        seed_NNN.rs   runs what they were measured on, here
//!                          └──────────────┬──────────────────────────────┘
//!                                  Table { rows } ──► JSON (schema foreread.reproduce/1), text, page
//! ```
//!
//! Each row says what its figure is worth, its [`Role`]. A figure that a model or a workload was fitted to is never a
//! `check`: that would be a proof by what was to be proved. Never: a published figure outside `published`, a result
//! that was not computed in this run, or a row left out because it does not fit.

mod blkid;
pub mod published;
pub mod real;
pub mod runs;
mod seed_000;
mod seed_001;
mod seed_002;
mod seed_003;
mod seed_004;
pub mod sweep;
pub mod text;

use crate::compare::CompareError;
use crate::device::presets::Preset;
use crate::report::Progress;
use runs::Runs;

use serde::{Deserialize, Serialize};

/// Name and version of the layout below: keys are only ever added. What is not defined is null.
pub const SCHEMA: &str = "foreread.reproduce/1";

/// How the column of an order begins.
pub const ORDER: &str = "of ";

/// What a row is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// We put the figure in: it says that the input is the published one.
    Input,
    /// A model or workload was fitted to the figure: it says how well a model of this form can do.
    Fit,
    /// It was predicted: the model had not seen it.
    Check,
    /// No target was set, or it is not explained; the reason says which.
    Shown,
}

impl Role {
    /// As it is written in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Role::Input => "input",
            Role::Fit => "fit",
            Role::Check => "check",
            Role::Shown => "shown",
        }
    }
}

/// The seeds, in their order.
pub const SEEDS: [&str; 5] = ["000", "001", "002", "003", "004"];

/// What is to be reproduced, and how thoroughly.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Which of [`SEEDS`]; none are all.
    pub seeds: Vec<String>,
    /// At most so many runs of each experiment. Open: as many as it takes.
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

/// Makes the tables of the seeds again.
///
/// # Errors
/// A seed that is not there, or an experiment that cannot be made.
pub fn run(options: &Options, progress: &mut dyn Progress) -> Result<Reproduction, ReproduceError> {
    if let Some(unknown) = options.seeds.iter().find(|s| !SEEDS.contains(&s.as_str())) {
        return Err(ReproduceError::Asked(format!("no such seed: {unknown}; take one of {}", SEEDS.join(", "))));
    }
    let mut runs = Runs::new(options, progress);
    let mut tables = Vec::new();
    for seed in SEEDS.into_iter().filter(|s| options.seeds.is_empty() || options.seeds.iter().any(|o| o == s)) {
        tables.extend(match seed {
            "000" => seed_000::tables(&mut runs)?,
            "001" => seed_001::tables(&mut runs)?,
            "002" => seed_002::tables(&mut runs)?,
            "003" => seed_003::tables(&mut runs)?,
            _ => seed_004::tables(&mut runs)?,
        });
    }
    Ok(Reproduction { schema: SCHEMA.to_string(), tables })
}

/// One published figure and ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Which row of the table. In a table by readahead size it is that size alone, in KiB or MiB: `4K`, `128K`, `1M`.
    pub label: String,
    /// Which column, with its unit. One that begins with [`ORDER`] is a ratio of two rows of which only the side of 1
    /// counts: which of the two is larger.
    pub column: String,
    /// The printed figure. Null where nothing was printed.
    pub published: Option<f64>,
    /// What came out here. Null where nothing can.
    pub ours: Option<f64>,
    /// `ours / published - 1`. Null where either is null, or the published figure 0.
    pub error: Option<f64>,
    /// What the row is worth.
    pub role: Role,
    /// False where a target was set and missed; only a `check` counts. A row without a target is true.
    pub ok: bool,
    /// Why the role or the miss. Null where the figures say it all.
    pub reason: Option<String>,
}

/// One published table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// `000` to `004`.
    pub seed: String,
    /// What it shows; unlike any other of the seed.
    pub table: String,
    /// Its rows, in the published order.
    pub rows: Vec<Row>,
}

/// Everything that was reproduced in one call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reproduction {
    /// [`SCHEMA`].
    pub schema: String,
    /// In the order of the seeds.
    pub tables: Vec<Table>,
}

impl Table {
    /// A table of the seed.
    #[must_use]
    pub fn new(seed: &str, table: impl Into<String>, rows: Vec<Row>) -> Table {
        Table { seed: seed.to_string(), table: table.into(), rows }
    }
}

impl Row {
    /// A row without a target: nothing is asked of it.
    #[must_use]
    pub fn new(label: impl Into<String>, column: impl Into<String>, published: Option<f64>, ours: Option<f64>) -> Row {
        let error = published.zip(ours).and_then(|(p, o)| (p != 0.0).then(|| o / p - 1.0)).filter(|e| e.is_finite());
        let (label, column) = (label.into(), column.into());
        Row { label, column, published, ours, error, role: Role::Shown, ok: true, reason: None }
    }

    /// The same with another role.
    #[must_use]
    pub fn role(self, role: Role) -> Row {
        Row { role, ..self }
    }

    /// The same with this role and a verdict.
    #[must_use]
    pub fn judged(self, role: Role, ok: bool) -> Row {
        Row { role, ok, ..self }
    }

    /// The same with this role, ok where the error is at most `part` (0.06 is 6 %) to either side.
    #[must_use]
    pub fn within(self, role: Role, part: f64) -> Row {
        let ok = self.error.is_some_and(|e| e.abs() <= part);
        self.judged(role, ok)
    }

    /// The same as a check of an order: ok where ours is on the published side of 1, by as little as may be. Without a
    /// published ratio it has to be above 1.
    #[must_use]
    pub fn ordered(self) -> Row {
        let above = self.published.is_none_or(|published| published > 1.0);
        let ok = self.ours.is_some_and(|ours| if above { ours > 1.0 } else { ours < 1.0 });
        self.judged(Role::Check, ok)
    }

    /// The same without an error, for figures that are equal or not.
    #[must_use]
    pub fn exact(self) -> Row {
        Row { error: None, ..self }
    }

    /// The same with a reason.
    #[must_use]
    pub fn because(self, reason: impl Into<String>) -> Row {
        Row { reason: Some(reason.into()), ..self }
    }
}

impl Reproduction {
    /// All rows, in order.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.tables.iter().flat_map(|t| &t.rows)
    }

    /// How many rows have the role.
    #[must_use]
    pub fn count(&self, role: Role) -> usize {
        self.rows().filter(|r| r.role == role).count()
    }

    /// The checks that were missed, each with the table that it stands in.
    pub fn missed(&self) -> impl Iterator<Item = (&Table, &Row)> {
        let rows = self.tables.iter().flat_map(|t| t.rows.iter().map(move |r| (t, r)));
        rows.filter(|(_, r)| r.role == Role::Check && !r.ok)
    }

    /// The JSON, with a newline at its end.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a struct of numbers and strings can always be written") + "\n"
    }
}
