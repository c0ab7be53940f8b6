//! The truth check: the same workloads and policies on the real source and on the model that was fitted to it.
//!
//! ```text
//!   compare on FILE ────► report ──┐  pairs that differ by more than noise, measured
//!                                  ├─► ranked alike? by how much are the times off?
//!   compare on model: ──► report ──┘
//! ```
//!
//! A pair counts where the corrected test of the measured report calls it different and the means are at least half a
//! per cent apart (closer ones are ties in every report). Never: counts the kernel, which the model does not have, or a
//! pair that the measurement cannot tell apart.

use super::settings;
use crate::compare::{self, CompareError, CompareOn, ComparePlan};
use crate::report::Report;
use foreread_core::policy::PolicyDraft;
use foreread_report::{number, progress::Progress, width};
use foreread_sim::device::custom;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Name and version of the layout below.
pub const SCHEMA: &str = "foreread.verify/1";
/// Means that are closer are no pair to rank, as in the reports.
const TIE: f64 = 0.005;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerifyReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// The real source.
    pub source: String,
    /// The model.
    pub model: String,
    /// Every workload and policy.
    pub rows: Vec<VerifiedRow>,
    /// Every pair that differs significantly on the real source.
    pub pairs: Vec<VerifiedPair>,
    /// Pairs that do not.
    pub undecided: u32,
    /// All pairs are ranked alike.
    pub agrees: bool,
    /// Median error of the times, without sign. Null without rows.
    pub median_error: Option<f64>,
    /// The largest.
    pub worst_error: Option<f64>,
}

/// One policy in one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerifiedRow {
    pub workload: String,
    pub policy: String,
    /// Median time on the real source, in seconds.
    pub measured_s: f64,
    /// Median time on the model.
    pub simulated_s: f64,
    /// Simulated / measured - 1.
    pub error: f64,
}

/// Two policies in one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerifiedPair {
    pub workload: String,
    /// The policy that is faster on the real source.
    pub faster: String,
    pub slower: String,
    /// Mean time of the slower / of the faster, measured.
    pub measured_ratio: f64,
    /// The same, simulated.
    pub simulated_ratio: f64,
    /// The simulation ranks them alike.
    pub agrees: bool,
}

/// Runs the usual workloads, or one, on both.
///
/// # Errors
/// See [`CompareError`].
pub fn verify(
    path: PathBuf,
    model: &str,
    workload: Option<String>,
    runs: Option<u32>,
    size_bytes: Option<u64>,
    progress: &mut dyn Progress,
) -> Result<VerifyReport, CompareError> {
    // Before minutes are spent on the source.
    custom::find(model)?;
    let policies = policies(settings::present(&path));
    let plan = |on: CompareOn| ComparePlan {
        workload: workload.clone(),
        on: Some(on),
        policies: policies.clone(),
        runs,
        seed: 1,
        size_bytes,
        ..ComparePlan::default()
    };
    let real = compare::run(&plan(compare::file(path)), progress)?;
    let simulated = compare::run(&plan(compare::model(model)?), progress)?;
    let reports =
        |tables: &[crate::report::Table]| tables.iter().map(Report::of).collect::<Vec<_>>();
    Ok(compared(&reports(&real), &reports(&simulated)))
}

/// The usual policies. The kernel's is there with the default of its `max` and with the device's, both written
/// out: a model has no setting to take it from.
fn policies(readahead: Option<u64>) -> Vec<PolicyDraft> {
    let usual = [128 << 10, readahead.unwrap_or(0)];
    let linux = |max: &u64| {
        format!(
            "linux-6.18:max={}",
            foreread_report::number::exact_size(*max)
        )
    };
    let mut names = vec!["none".to_string(), "rbd-plain".to_string()];
    names.extend(usual.iter().filter(|max| **max > 0).map(linux));
    names.dedup();
    names
        .iter()
        .filter_map(|name| PolicyDraft::parse(name).ok())
        .collect()
}

/// Holds reports of the same workloads beside each other.
#[must_use]
pub fn compared(real: &[Report], simulated: &[Report]) -> VerifyReport {
    let (mut rows, mut pairs, mut undecided) = (Vec::new(), Vec::new(), 0);
    for (real, simulated) in real
        .iter()
        .filter_map(|r| Some((r, simulated.iter().find(|s| s.workload == r.workload)?)))
    {
        let time = |of: &Report, policy: &str| {
            let row = of
                .rows
                .iter()
                .find(|r| r.policy == policy && !r.limit && !r.kind.is_external())?;
            row.time_s.clone()
        };
        for row in &real.rows {
            if let (Some(m), Some(s)) = (time(real, &row.policy), time(simulated, &row.policy)) {
                rows.push(VerifiedRow {
                    workload: real.workload.clone(),
                    policy: row.policy.clone(),
                    measured_s: m.median,
                    simulated_s: s.median,
                    error: s.median / m.median - 1.0,
                });
            }
        }
        for pair in &real.comparisons {
            let means = |of: &Report| Some((time(of, &pair.a)?.mean, time(of, &pair.b)?.mean));
            let (Some((a, b)), Some((sim_a, sim_b))) = (means(real), means(simulated)) else {
                continue;
            };
            let apart = (b / a - 1.0).abs() >= TIE && (a / b - 1.0).abs() >= TIE;
            if pair.differs != Some(true) || !apart {
                undecided += 1;
                continue;
            }
            let (faster, slower, measured, simulated) = if a < b {
                (&pair.a, &pair.b, b / a, sim_b / sim_a)
            } else {
                (&pair.b, &pair.a, a / b, sim_a / sim_b)
            };
            pairs.push(VerifiedPair {
                workload: real.workload.clone(),
                faster: faster.clone(),
                slower: slower.clone(),
                measured_ratio: measured,
                simulated_ratio: simulated,
                agrees: simulated >= 1.0 + TIE,
            });
        }
    }
    let mut errors: Vec<f64> = rows.iter().map(|r: &VerifiedRow| r.error.abs()).collect();
    errors.sort_by(f64::total_cmp);
    let name = |of: &[Report]| of.first().map_or_else(String::new, |r| r.source.clone());
    VerifyReport {
        schema: SCHEMA.to_string(),
        source: name(real),
        model: name(simulated),
        agrees: pairs.iter().all(|p: &VerifiedPair| p.agrees),
        median_error: errors.get(errors.len() / 2).copied(),
        worst_error: errors.last().copied(),
        rows,
        pairs,
        undecided,
    }
}

impl VerifyReport {
    /// For the terminal; ends with a newline.
    #[must_use]
    pub fn render(&self) -> String {
        let ms = |s: f64| format!("{:.1}", s * 1e3);
        let mut text = number::wrap(&self.verdict(), width::columns()).join("\n") + "\n\n";
        text += &format!(
            "{} and {}, median times in ms:\n\n",
            self.source, self.model
        );
        text += &format!(
            "{:<13}{:<22}{:>11}{:>11}{:>8}\n",
            "workload", "policy", "measured", "simulated", "error"
        );
        for row in &self.rows {
            let policy = number::cut(&row.policy, 21);
            let (m, s) = (ms(row.measured_s), ms(row.simulated_s));
            text += &format!(
                "{:<13}{policy:<22}{m:>11}{s:>11}{:>+7.0}%\n",
                row.workload,
                row.error * 100.0
            );
        }
        if !self.pairs.is_empty() {
            text += "\nPairs that differ by more than noise, time of the slower / time of the faster:\n\n";
        }
        for pair in &self.pairs {
            let word = if pair.agrees { "agree" } else { "DISAGREE" };
            let names = number::cut(&format!("{} < {}", pair.faster, pair.slower), 37);
            let (m, s) = (pair.measured_ratio, pair.simulated_ratio);
            text += &format!("{:<13}{names:<38}{m:>8.2}{s:>8.2}  {word}\n", pair.workload);
        }
        text
    }

    /// Whether the model can be used to choose a policy, and how far off its times are.
    fn verdict(&self) -> String {
        let (alike, all) = (
            self.pairs.iter().filter(|pair| pair.agrees).count(),
            self.pairs.len(),
        );
        let ranks = match (alike, all) {
            (_, 0) => {
                "The runs tell no two policies apart on this storage, so the model's ranking was not checked."
                    .into()
            }
            (alike, all) if alike == all => {
                format!("The model ranks policies as the storage does: {alike} of {all} pairs agree.")
            }
            (alike, all) => format!(
                "The model ranks some policies wrongly: {alike} of {all} pairs agree. Do not choose a policy by it."
            ),
        };
        let close = if self.undecided == 1 {
            "1 pair was".into()
        } else {
            format!("{} pairs were", self.undecided)
        };
        let percent =
            |part: Option<f64>| part.map_or("-".to_string(), |p| format!("{:.0} %", p * 100.0));
        let (median, worst) = (percent(self.median_error), percent(self.worst_error));
        format!(
            "{ranks} Its times are {median} off in the median, {worst} at worst; {close} not told apart by the runs, or closer than {} %.",
            TIE * 100.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{PolicyRuns, RowKind, Table};
    use foreread_core::stats::Stats;
    use foreread_sim::simulator::RunResult;
    use foreread_sim::stats::latency_histogram;

    fn report(source: &str, times: &[(&str, f64)]) -> Report {
        let run = |time_s| RunResult {
            time_s,
            stats: Stats::of(|stats| {
                stats.demand_reads = 1;
                stats.demand_bytes = 1;
                stats.source_bytes = 1;
            }),
            latency: latency_histogram(),
            distinct_bytes: 1,
            kernel: false,
            late_p99_ns: None,
            refault_bytes: None,
        };
        let policy = |&(name, time): &(&str, f64)| PolicyRuns {
            policy: name.to_string(),
            kind: if name == "none" {
                RowKind::NoReadahead
            } else {
                RowKind::Policy
            },
            runs: [0.999, 1.001, 1.0, 1.002].map(|f| run(time * f)).into(),
        };
        Report::of(&Table {
            workload: "w".to_string(),
            source: source.to_string(),
            runs: 4,
            policies: times.iter().map(policy).collect(),
            ..Table::default()
        })
    }

    #[test]
    fn a_pair_that_is_ranked_otherwise_is_found() {
        let real = report(
            "file:x",
            &[("none", 4.0), ("rbd-plain", 2.0), ("linux-6.18", 2.004)],
        );
        let good = report(
            "model:y",
            &[("none", 5.0), ("rbd-plain", 2.5), ("linux-6.18", 2.0)],
        );
        let checked = compared(std::slice::from_ref(&real), &[good]);
        assert!(checked.agrees, "{checked:?}");
        assert!(
            checked
                .render()
                .starts_with("The model ranks policies as the storage does: 2 of 2 pairs agree.")
        );
        assert_eq!(
            (checked.pairs.len(), checked.undecided, checked.rows.len()),
            (2, 1, 3)
        );
        assert!((checked.worst_error.expect("rows") - 0.25).abs() < 1e-9);
        let bad = report(
            "model:y",
            &[("none", 5.0), ("rbd-plain", 5.1), ("linux-6.18", 2.0)],
        );
        let checked = compared(&[real], &[bad]);
        assert!(!checked.agrees);
        let pair = checked.pairs.iter().find(|p| !p.agrees).expect("one");
        assert_eq!(
            (pair.faster.as_str(), pair.slower.as_str()),
            ("rbd-plain", "none")
        );
        let text = checked.render();
        assert!(
            text.starts_with("The model ranks some policies wrongly: 1 of 2 pairs agree."),
            "{text}"
        );
        assert!(text.contains("DISAGREE"), "{text}");
    }
}
