//! Computes what a hint would gain. The same reads are simulated with the kernel's current readahead, but `posix_fadvise` is called
//! after each open of the files that have one access pattern.
//!
//! Two hints are tried: RANDOM for files whose reads follow no pattern, and SEQUENTIAL, which doubles the kernel's
//! maximum for the descriptor, for files that are read sequentially. The runs with and without the hint use the same random numbers. A
//! file for which the program already gives a hint gets no other hint.

use super::MIN_GAIN;
use super::order::{self, ReadOrder};
use crate::compare::{self, ComparePlan, OracleRow};
use crate::replay::Mode;
use crate::report::{Judge, PolicyRuns, Table};
use crate::verdict::Gain;
use foreread_core::event::Advice;
use foreread_core::policy::PolicyDraft;
use foreread_os::failure::Failure;
use foreread_report::progress::Progress;
use foreread_sim::stats::{Summary, holm, paired_t_test, ratio, ratio_ci95};
use foreread_sim::workload::{Request, Workload};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Probability that any hint is falsely called a gain.
const ALPHA: f64 = 0.05;
/// A file has a pattern if at least this part of its reads has it.
const NEARLY_ALL: f64 = 0.9;
/// A file with fewer reads counts as having no pattern.
const MIN_READS: u64 = 8;

const HINTS: [(Advice, &str); 2] = [
    (Advice::Random, "POSIX_FADV_RANDOM"),
    (Advice::Sequential, "POSIX_FADV_SEQUENTIAL"),
];

/// The best hint under the policy `today`, and the files that need it.
pub(super) fn best(
    plan: &ComparePlan,
    today: &str,
    progress: &mut dyn Progress,
) -> Result<(Option<Gain>, Vec<String>), Failure> {
    let Some(replay) = &plan.replay else {
        return Ok((None, Vec::new()));
    };
    let Ok(policy) = PolicyDraft::parse(today) else {
        return Ok((None, Vec::new()));
    };
    let orders = order::of_files(&replay.workload);
    let rows =
        |workload: Workload, progress: &mut dyn Progress| -> Result<Option<PolicyRuns>, Failure> {
            let replay = Arc::new(crate::replay::Replay {
                workload,
                ..(**replay).clone()
            });
            let plan = ComparePlan {
                replay: Some(replay),
                policies: vec![policy.clone()],
                oracle: OracleRow::Usual,
                ..plan.clone()
            };
            let tables: Vec<Table> = compare::run(&plan, progress)?;
            Ok(tables
                .into_iter()
                .flat_map(|t| t.policies)
                .find(|row| row.policy == today))
        };
    let by = if replay.mode == Mode::Open {
        Judge::Latency
    } else {
        Judge::Time
    };
    let mut found: Vec<(Gain, Option<f64>, Vec<String>)> = Vec::new();
    let mut base: Option<PolicyRuns> = None;
    for (advice, name) in HINTS {
        let numbers: BTreeSet<u32> = (0..)
            .zip(&orders)
            .filter(|(_, order)| is_for(order, advice))
            .map(|(number, _)| number)
            .collect();
        let names = numbers
            .iter()
            .map(|number| &replay.loaded.names[*number as usize]);
        let files: Vec<String> = names.cloned().collect();
        if numbers.is_empty() {
            continue;
        }
        if base.is_none() {
            base = rows(replay.workload.clone(), progress)?;
        }
        let with = rows(hinted(&replay.workload, &numbers, advice), progress)?;
        if let Some((base, with)) = base.as_ref().zip(with) {
            found.extend(gain(name, by, base, &with).map(|(gain, p)| (gain, p, files)));
        }
    }
    let p_values = holm(&found.iter().map(|(_, p, _)| *p).collect::<Vec<_>>());
    let called = found
        .into_iter()
        .zip(p_values)
        .filter(|((gain, _, _), p)| p.is_some_and(|p| p < ALPHA) && gain.ratio <= 1.0 - MIN_GAIN);
    let best = called
        .map(|(found, _)| found)
        .min_by(|a, b| a.0.ratio.total_cmp(&b.0.ratio));
    Ok(best.map_or((None, Vec::new()), |(gain, _, files)| (Some(gain), files)))
}

fn is_for(order: &ReadOrder, advice: Advice) -> bool {
    let part = match advice {
        Advice::Random => order.random,
        _ => order.sequential,
    };
    order.others == 0 && order.reads >= MIN_READS && part as f64 >= NEARLY_ALL * order.reads as f64
}

/// The workload with this hint before the first request of each open description of these files.
fn hinted(workload: &Workload, files: &BTreeSet<u32>, advice: Advice) -> Workload {
    let mut workload = workload.clone();
    let mut opened = BTreeSet::new();
    for job in workload
        .jobs
        .iter_mut()
        .filter(|job| files.contains(&job.file) && !job.requests.is_empty())
    {
        if opened.insert(job.open) {
            let think_ns = if job.timed {
                job.requests[0].think_ns
            } else {
                0
            };
            job.requests.insert(
                0,
                Request {
                    think_ns,
                    ..Request::hint(advice, 0, 0)
                },
            );
        }
    }
    workload
}

/// The gain of a hint, with its uncorrected p value.
fn gain(
    name: &str,
    by: Judge,
    base: &PolicyRuns,
    with: &PolicyRuns,
) -> Option<(Gain, Option<f64>)> {
    let (before, after) = (base.judged_s(by), with.judged_s(by));
    let bytes =
        |row: &PolicyRuns| row.runs.iter().map(|r| r.stats.source_bytes).sum::<u64>() as f64;
    let (today_s, with_s) = (Summary::of(&before)?.mean, Summary::of(&after)?.mean);
    let gain = Gain {
        kind: None,
        max_bytes: None,
        what: name.to_string(),
        ratio: ratio(with_s, today_s)?,
        ratio_ci95: ratio_ci95(&before, &after),
        today_s,
        with_s,
        with_range_s: None,
        bytes_ratio: ratio(bytes(with), bytes(base)),
    };
    Some((gain, paired_t_test(&before, &after)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreread_sim::workload::{Job, RequestKind};

    #[test]
    fn each_open_description_is_hinted_once() {
        let read = || vec![Request::read(0, 4096)];
        let jobs = vec![
            Job::new(0, 0, read()),
            Job::new(0, 0, read()),
            Job::new(0, 1, read()),
            Job::new(1, 2, read()),
        ];
        let workload = Workload {
            name: String::new(),
            files: vec![9999, 9999],
            listed: false,
            page_bytes: 4096,
            jobs,
        };
        let with = hinted(&workload, &BTreeSet::from([0]), Advice::Random);
        let hints = |job: &Job| {
            job.requests
                .iter()
                .filter(|r| r.kind == RequestKind::Hint(Advice::Random))
                .count()
        };
        assert_eq!(
            with.jobs.iter().map(hints).collect::<Vec<_>>(),
            [1, 0, 1, 0]
        );
        assert_eq!(
            (with.reads(), with.bytes()),
            (workload.reads(), workload.bytes())
        );
    }
}
