//! `probe --verify`: does the same reads on the source and on the model fitted to it, and compares the times.
//!
//! On a slow source, fewer reads are done; the source and the model always get the same reads.

use crate::compare::{self, CompareError, CompareOn, ComparePlan};
use crate::report::{PolicyRuns, Table};
use foreread_core::policy::PolicyDraft;
use foreread_report::block::{self, Block, Column, Table as Cells};
use foreread_report::{number, progress::Progress, width};
use foreread_sim::device::custom;
use foreread_sim::stats::Summary;
use serde::{Deserialize, Serialize};

/// Name and version of the JSON schema.
pub const SCHEMA: &str = "foreread.verify/1";
const WORKLOADS: [&str; 2] = ["sequential", "random"];
const POLICIES: [&str; 3] = ["none", "linux-6.18:max=128K", "linux-6.18:max=2M"];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerifyReport {
    pub schema: String,
    pub source: String,
    pub model: String,
    pub rows: Vec<VerifiedRow>,
}

/// The times of one policy with one workload, on the source and on the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerifiedRow {
    pub workload: String,
    pub policy: String,
    /// Median time on the source, in seconds.
    pub measured_s: f64,
    /// Median time on the model.
    pub simulated_s: f64,
    /// Simulated / measured.
    pub ratio: f64,
}

/// Executes the workloads on the source and on the model; the runs on the source take about `seconds` seconds.
///
/// # Errors
/// See [`CompareError`].
pub fn verify(
    source: &CompareOn,
    model: &str,
    seconds: f64,
    size_bytes: Option<u64>,
    progress: &mut dyn Progress,
) -> Result<VerifyReport, CompareError> {
    let on_model = compare::preset(custom::find(model)?);
    let mut run = |workload: &str, on: &CompareOn, size_bytes| -> Result<Table, CompareError> {
        let policies = POLICIES
            .iter()
            .filter_map(|policy| PolicyDraft::parse(policy).ok());
        let plan = ComparePlan {
            workload: Some(workload.to_string()),
            on: Some(on.clone()),
            policies: policies.collect(),
            seed: 1,
            limit_ms: Some((seconds * 1e3 / WORKLOADS.len() as f64) as u64),
            size_bytes,
            ..ComparePlan::default()
        };
        Ok(compare::run(&plan, progress)?.remove(0))
    };
    let mut rows = Vec::new();
    for workload in WORKLOADS {
        let real = run(workload, source, size_bytes)?;
        let span_bytes = real.shortened.map(|cut| cut.span_bytes).or(size_bytes);
        let simulated = run(&real.workload, &on_model, span_bytes)?;
        let median = |row: &PolicyRuns| Summary::of(&row.times_s()).map(|times| times.median);
        for row in &real.policies {
            let same = simulated
                .policies
                .iter()
                .find(|other| other.policy == row.policy);
            let Some((measured_s, simulated_s)) = median(row).zip(same.and_then(median)) else {
                continue;
            };
            rows.push(VerifiedRow {
                workload: real.workload.clone(),
                policy: row.policy.clone(),
                measured_s,
                simulated_s,
                ratio: simulated_s / measured_s,
            });
        }
    }
    Ok(VerifyReport {
        schema: SCHEMA.to_string(),
        source: source.shown(),
        model: on_model.shown(),
        rows,
    })
}

impl VerifyReport {
    /// Formats the result as text for the terminal, which ends with a newline.
    #[must_use]
    pub fn render(&self) -> String {
        type RowColumn<'a> = Column<'a, VerifiedRow>;
        let ms = |seconds: f64| format!("{:.1}", seconds * 1e3);
        let columns = vec![
            RowColumn::new("workload", |row| row.workload.clone()).left(),
            RowColumn::new("policy", |row| row.policy.clone()).left(),
            RowColumn::new("measured ms", move |row| ms(row.measured_s)),
            RowColumn::new("simulated ms", move |row| ms(row.simulated_s)),
            RowColumn::new("ratio", |row| number::three(row.ratio)),
        ];
        let ratios = self.rows.iter().map(|row| row.ratio);
        let [low, high] = [
            ratios.clone().fold(f64::INFINITY, f64::min),
            ratios.fold(0.0, f64::max),
        ]
        .map(number::three);
        let head = format!(
            "{} compared with {}: simulated / measured is {low} to {high}.",
            self.source, self.model
        );
        let blocks = vec![
            Block::Text(head),
            Block::Gap,
            Block::Table(Cells::new("", columns, &self.rows)),
        ];
        block::text(blocks, width::columns(), false)
    }
}
