//! What another policy would have done with the same reads, and the conclusion in one sentence.
//!
//! The rows are those of `compare`: paired runs, Holm's correction. A difference is spoken of only where that test calls
//! it one. Never: a limit as a choice.

use super::{ExplainOptions, ExplainReport, OTHER_RUNS};
use crate::advice::after_explain;
use crate::compare::{self, ComparePlan, OracleRow};
use crate::report::verdict::WORTH_SAYING;
use crate::report::{Report, Row, RowKind};
use foreread_os::failure::Failure;
use foreread_report::{number, progress::Progress};
use serde::{Deserialize, Serialize};

/// One policy over all files. Counters are means of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Other {
    /// The policy with its values.
    pub policy: String,
    /// It is the one that was explained.
    pub explained: bool,
    /// What the row is; written since there is this key.
    #[serde(default)]
    pub kind: RowKind,
    /// A limit and no choice (`oracle`).
    pub limit: bool,
    /// Mean time of the runs, in seconds; in mode open the mean latency.
    pub time_s: Option<f64>,
    /// This / that of the explained policy.
    pub ratio: Option<f64>,
    /// Ends of its 95 % interval.
    pub ratio_ci95: Option<[f64; 2]>,
    /// Whether it differs from the explained policy by the corrected test. Null for itself and where no test was possible.
    pub differs: Option<bool>,
    /// Whether it is equal to the explained policy: the 95 % interval of the ratio (Student's t) is within 1 / 1.05 and 1.05. Null
    /// for itself and where no test was possible.
    #[serde(default)]
    pub equivalent: Option<bool>,
    /// Time that reads waited for the source, in seconds.
    pub stall_s: Option<f64>,
    /// Bytes read from the source.
    pub source_bytes: Option<u64>,
    /// Bytes read ahead.
    pub ra_bytes: Option<u64>,
    /// Of these, never read.
    pub in_vain_bytes: Option<u64>,
}

/// Measures them and draws the conclusion.
pub(super) fn add(
    explained: &mut ExplainReport,
    asked: &ExplainOptions,
    progress: &mut dyn Progress,
) -> Result<(), Failure> {
    if asked.against.is_empty() {
        explained.verdict = alone(explained);
        return Ok(());
    }
    let ours = asked.policy.to_string();
    let mut policies = asked.against.clone();
    if policies.iter().all(|p| p.to_string() != ours) {
        policies.push(asked.policy.clone());
    }
    let runs = asked.plan.runs.unwrap_or(OTHER_RUNS);
    let plan = ComparePlan {
        policies,
        oracle: OracleRow::OnModels,
        runs: Some(runs),
        ..asked.plan.clone()
    };
    let tables = compare::run(&plan, progress)?;
    let Some(report) = tables.first().map(Report::of) else {
        return Ok(());
    };
    explained.others = report
        .rows
        .iter()
        .map(|row| other(&report, row, &ours))
        .collect();
    let loaded = asked.plan.replay.as_ref().map(|replay| &*replay.loaded);
    explained.next = after_explain(&report, loaded);
    explained.other_runs = report.runs;
    explained.oracle_beaten = report.oracle_beaten;
    explained.verdict = verdict(explained);
    Ok(())
}

fn other(report: &Report, row: &Row, ours: &str) -> Other {
    let compared = report.comparison(ours, &row.policy);
    let forward = compared.is_some_and(|c| c.a == ours);
    let mean = |row: &Row| row.judged().map(|t| t.mean);
    let base = report.row(ours).and_then(mean);
    Other {
        policy: row.policy.clone(),
        explained: row.policy == ours,
        kind: row.kind,
        limit: row.limit,
        time_s: mean(row),
        ratio: mean(row)
            .zip(base)
            .and_then(|(this, base)| foreread_sim::stats::ratio(this, base)),
        ratio_ci95: compared.and_then(|c| c.ratio_ci95).map(|[low, high]| {
            if forward {
                [low, high]
            } else {
                [high.recip(), low.recip()]
            }
        }),
        differs: compared.and_then(|c| c.differs),
        equivalent: compared.and_then(|c| c.equivalent),
        stall_s: row.stall_s,
        source_bytes: row.source_bytes,
        ra_bytes: row.ra_bytes,
        in_vain_bytes: row
            .unused_bytes
            .zip(row.unresolved_bytes)
            .map(|(a, b)| a + b),
    }
}

/// Without others.
fn alone(explained: &ExplainReport) -> String {
    let total = &explained.total;
    if total.ra_bytes == 0 {
        return format!("{} read nothing ahead", explained.policy);
    }
    let part = |n: u64| number::percent(n as f64 / total.ra_bytes as f64);
    format!(
        "{} read {} ahead: {} % of it was used, {} % never read",
        explained.policy,
        super::table::amount(total.ra_bytes).replace(number::TIE, " "),
        part(total.used_bytes),
        part(total.in_vain_bytes())
    )
}

/// In one sentence: the best of the others if it is better, and what readahead is worth here at all.
fn verdict(explained: &ExplainReport) -> String {
    let choices = || explained.others.iter().filter(|o| !o.limit && !o.explained);
    if choices().all(|o| o.differs.is_none()) {
        return format!(
            "One run of each cannot separate {} from the others: use --runs 5 or more",
            explained.policy
        );
    }
    let called = |o: &&Other| {
        o.differs == Some(true)
            && o.ratio.is_some_and(|r| (r - 1.0).abs() >= WORTH_SAYING)
            && o.kind != RowKind::NoReadahead
    };
    let better = choices()
        .filter(called)
        .filter(|o| o.ratio.is_some_and(|r| r < 1.0));
    let least = better
        .clone()
        .filter_map(|o| o.ratio)
        .min_by(f64::total_cmp);
    // Of those that are as good as the best, the one that reads least.
    let as_good = least.map(|least| {
        better.filter(move |o| o.ratio.is_some_and(|r| r < least * (1.0 + WORTH_SAYING)))
    });
    let best = as_good.and_then(|all| all.min_by_key(|o| o.source_bytes));
    let none = choices().find(|o| o.kind == RowKind::NoReadahead);
    let no_gain = none.is_some_and(|none| {
        none.differs != Some(true) || none.ratio.is_none_or(|r| r < 1.0 + WORTH_SAYING)
    });
    let is_open = |o: &&Other| o.differs == Some(false) && o.equivalent != Some(true);
    let unsure = none.filter(is_open).and_then(|n| n.ratio);
    let open = choices().filter(|o| is_open(o) && o.kind != RowKind::NoReadahead);
    let open = open
        .filter_map(|o| Some((o.ratio.filter(|r| *r < 1.0 - WORTH_SAYING)?, o)))
        .min_by(|a, b| a.0.total_cmp(&b.0));
    match (best, open) {
        (Some(best), _) => gain(explained, best),
        _ if unsure.is_some() => format!(
            "{} runs of each do not show whether {} gains: no readahead took {} of its time; use more with --runs",
            explained.other_runs,
            explained.policy,
            number::times(unsure.unwrap_or(1.0))
        ),
        _ if no_gain
            && none
                .and_then(|n| n.ratio)
                .is_some_and(|r| r < 1.0 - WORTH_SAYING) =>
        {
            format!(
                "Readahead costs time here: without it the reads take {} of the time of {}, and no other policy is faster",
                number::times(none.and_then(|n| n.ratio).unwrap_or(1.0)),
                explained.policy
            )
        }
        (None, Some((ratio, open))) => format!(
            "{} runs of each do not tell {} apart from {}, which took {} of its time; use more with --runs",
            explained.other_runs,
            explained.policy,
            open.policy,
            number::times(ratio)
        ),
        _ if no_gain => format!(
            "Readahead gains nothing here: neither {} nor any other policy is faster than none",
            explained.policy
        ),
        _ => format!(
            "Nothing to change: no other policy is faster than {}, which takes {} of the time without readahead{}",
            explained.policy,
            none.and_then(|n| n.ratio)
                .map_or_else(|| "-".to_string(), |r| number::times(r.recip())),
            limit(explained)
        ),
    }
}

fn gain(explained: &ExplainReport, best: &Other) -> String {
    let ours = explained.others.iter().find(|o| o.explained);
    let bytes = ours
        .and_then(|o| o.source_bytes)
        .zip(best.source_bytes)
        .and_then(|(a, b)| {
            let ratio = foreread_sim::stats::ratio(b as f64, a as f64)?;
            ((ratio - 1.0).abs() >= 0.01)
                .then(|| format!(", reading {} times the bytes", number::three(ratio)))
        });
    let seconds =
        |time_s: Option<f64>| number::or_dash(time_s, |s| format!("{} s", number::span_s(s, None)));
    format!(
        "Use {}: these reads take {} instead of {} with {} ({} times faster){}{}",
        best.policy,
        seconds(best.time_s),
        seconds(ours.and_then(|o| o.time_s)),
        explained.policy,
        number::or_dash(best.ratio, |ratio| number::three(ratio.recip())),
        bytes.unwrap_or_default(),
        limit(explained)
    )
}

/// The oracle's time, in words.
fn limit(explained: &ExplainReport) -> String {
    let limit = explained.others.iter().find(|o| o.limit);
    limit
        .and_then(|o| o.time_s)
        .map_or_else(String::new, |time_s| {
            let beaten = explained.oracle_beaten.as_ref();
            format!(
                "; with perfect foresight: {} s{}",
                number::span_s(time_s, None),
                beaten.map_or_else(String::new, |beaten| format!(" ({beaten})"))
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(none: f64, differs: Option<bool>) -> String {
        beside(none, differs, None)
    }

    /// With `none`, and with another policy that the runs do not tell apart from the explained one.
    fn beside(none: f64, differs: Option<bool>, other: Option<f64>) -> String {
        let row = |policy: &str, ratio: f64, differs: Option<bool>| Other {
            policy: policy.to_string(),
            explained: policy == "linux-6.18",
            kind: if policy == "none" {
                RowKind::NoReadahead
            } else {
                RowKind::Policy
            },
            limit: false,
            time_s: Some(ratio),
            ratio: Some(ratio),
            ratio_ci95: None,
            differs,
            equivalent: differs.map(|_| (ratio - 1.0).abs() < 0.05),
            stall_s: None,
            source_bytes: None,
            ra_bytes: None,
            in_vain_bytes: None,
        };
        let empty = || String::new();
        verdict(&ExplainReport {
            schema: empty(),
            foreread: empty(),
            trace: empty(),
            source: empty(),
            source_about: empty(),
            policy: "linux-6.18".to_string(),
            cache_bytes: 0,
            page_bytes: 0,
            seed: 0,
            mode: None,
            time_s: 0.0,
            notes: Vec::new(),
            total: crate::explain::Share::default(),
            auto: None,
            files: Vec::new(),
            recorded: None,
            others: [row("none", none, differs), row("linux-6.18", 1.0, None)]
                .into_iter()
                .chain(other.map(|ratio| row("rbd-plain", ratio, Some(false))))
                .collect(),
            other_runs: 3,
            oracle_beaten: None,
            verdict: empty(),
            next: None,
        })
    }

    /// A difference that is not significant is not claimed, in either direction.
    #[test]
    fn a_difference_that_is_not_significant_is_no_verdict() {
        assert!(
            with(1.5, Some(true))
                .starts_with("Nothing to change: no other policy is faster than linux-6.18")
        );
        assert!(with(0.5, Some(true)).starts_with("Readahead costs time here"));
        assert!(with(1.001, Some(false)).starts_with("Readahead gains nothing here"));
        for ratio in [0.5, 1.1] {
            let text = with(ratio, Some(false));
            assert!(
                text.starts_with("3 runs of each do not show whether linux-6.18 gains")
                    && text.contains("--runs")
            );
        }
        assert!(with(1.5, None).starts_with("One run of each cannot separate"));
    }

    /// 0.105 s beside 0.429 s is no "no other policy is faster".
    #[test]
    fn another_policy_that_is_not_told_apart_is_named() {
        let text = beside(1.5, Some(true), Some(0.105 / 0.429));
        let want = "3 runs of each do not tell linux-6.18 apart from rbd-plain, which took x0.24 of its time; use more with --runs";
        assert_eq!(text, want);
        for narrow in [None, Some(0.98)] {
            let text = beside(1.5, Some(true), narrow);
            assert!(text.starts_with("Nothing to change"), "{text}");
        }
    }
}
