//! How the papers' experiments are run: `compare` on the models, with the same reads for every policy.
//!
//! Never: a verdict, or a figure that is not an outcome of a run.

use super::{Options, ReproduceError};
use foreread_lab::compare::{self, ComparePlan};
use foreread_lab::report::Table;
use foreread_report::progress::Progress;
use foreread_sim::device::array::ArrayModel;
use foreread_sim::device::presets::{self, Model, Preset};
use foreread_sim::device::sliced::Slices;
use foreread_sim::simulator::RunResult;

pub struct Runs<'a> {
    options: &'a Options,
    progress: &'a mut dyn Progress,
}

/// One experiment; what is left open is as in `compare`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ask<'a> {
    /// `NAME:key=value,...`.
    pub workload: &'a str,
    /// The name of a model.
    pub model: &'a str,
    /// A device instead of that model: one that is made for a single row. Then `model` is not looked at.
    pub preset: Option<&'static Preset>,
    /// Policies, `NAME:key=value,...`.
    pub policies: &'a [&'a str],
    /// Runs, fewer if the options say so; 1 where nothing is drawn.
    pub runs: u32,
    pub cache_bytes: Option<u64>,
    /// Bytes that the workload spans.
    pub size_bytes: Option<u64>,
}

impl<'a> Runs<'a> {
    /// Runs as `options` say, and reports to `progress`.
    pub fn new(options: &'a Options, progress: &'a mut dyn Progress) -> Runs<'a> {
        Runs { options, progress }
    }

    /// The model of this name, or the one that is to take its place.
    ///
    /// # Errors
    /// A name that is not in the list.
    pub fn preset(&self, name: &str) -> Result<&'static Preset, ReproduceError> {
        if let Some(other) = self.options.instead.iter().find(|p| p.name == name) {
            return Ok(other);
        }
        presets::find(name).map_err(|error| ReproduceError::Asked(error.to_string()))
    }

    #[must_use]
    pub fn runs(&self, usual: u32) -> u32 {
        self.options
            .most_runs
            .map_or(usual, |most| usual.min(most).max(1))
    }

    /// Runs it.
    ///
    /// # Errors
    /// Whatever `compare` refuses.
    pub fn table(&mut self, ask: &Ask<'_>) -> Result<Table, ReproduceError> {
        let draft = |text: &&str| {
            foreread_history::parse(text).map_err(|error| ReproduceError::Asked(error.to_string()))
        };
        let plan = ComparePlan {
            workload: Some(ask.workload.to_string()),
            on: Some(compare::preset(
                ask.preset.map_or_else(|| self.preset(ask.model), Ok)?,
            )),
            policies: ask.policies.iter().map(draft).collect::<Result<_, _>>()?,
            runs: Some(self.runs(ask.runs)),
            cache_bytes: ask.cache_bytes,
            size_bytes: ask.size_bytes,
            seed: 1,
            ..ComparePlan::default()
        };
        let tables = compare::run(&plan, self.progress)?;
        tables
            .into_iter()
            .next()
            .ok_or_else(|| ReproduceError::Asked(format!("no table of {}", ask.workload)))
    }

    /// Runs it behind an elevator that gives readers slices of time. Any other kind of model than an array has none.
    ///
    /// # Errors
    /// Whatever `compare` refuses.
    pub(crate) fn table_sliced(
        &mut self,
        ask: &Ask<'_>,
        slices: Slices,
    ) -> Result<Table, ReproduceError> {
        let preset = self.preset(ask.model)?;
        let Model::Array(array) = preset.model else {
            return self.table(ask);
        };
        let model = Model::Array(ArrayModel {
            slices: Some(slices),
            ..array
        });
        self.table(&Ask {
            preset: Some(Box::leak(Box::new(Preset { model, ..*preset }))),
            ..*ask
        })
    }
}

/// Mean over the runs of `policy` of what `value` makes of a run. None where the table has no such row.
#[must_use]
pub fn mean(table: &Table, policy: &str, value: impl Fn(&RunResult) -> f64) -> Option<f64> {
    let runs = &table.policies.iter().find(|p| p.policy == policy)?.runs;
    (!runs.is_empty()).then(|| runs.iter().map(value).sum::<f64>() / runs.len() as f64)
}

/// Mean seconds.
#[must_use]
pub fn time_s(table: &Table, policy: &str) -> Option<f64> {
    mean(table, policy, |run| run.time_s)
}

/// Demanded bytes a second.
#[must_use]
pub fn bytes_per_s(table: &Table, policy: &str) -> Option<f64> {
    mean(table, policy, |run| {
        run.stats.demand_bytes as f64 / run.time_s
    })
}

/// `a / b` of two figures that are both there.
#[must_use]
pub fn over(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.zip(b).map(|(a, b)| a / b).filter(|r| r.is_finite())
}
