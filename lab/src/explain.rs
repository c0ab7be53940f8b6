//! `explain`: shows the reads of each file of a trace under one policy, and how often each rule of the policy decided.
//!
//! ```text
//!   trace ──► compare::watched: one run ──► watcher: counts and rules of each file ──► ExplainReport ──► table, JSON
//! ```
//! On a model the run is simulated. On a file or another source the engine does the reads, and `watcher.rs` reads the
//! engine's event log. Example: of 64 sequential reads of 16 KiB under `linux-6.18`, 1 is a miss and 63 are hits; the
//! policy's rule `file-start` decided once, its rule `next-window` decided 5 times. A rule is the reason that the
//! policy itself gave for a decision (`foreread_core::policy::Why`). If the counts of the files do not add up to the
//! counters of the whole run, the command fails.
//!
//! Schema `foreread.explain/1`. Undefined values are null. MB is 10^6 bytes.

mod table;
mod watcher;

pub use table::render;

use crate::compare::{self, ComparePlan};
use crate::verdict::{Means, Step};
use foreread_core::policy::PolicyDraft;
use foreread_core::stats::Stats;
use foreread_os::failure::Failure;
use foreread_report::number::{self, percent};
use foreread_report::{progress::Progress, tuning};
use serde::{Serialize, Serializer};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Name and version of the JSON schema.
pub const SCHEMA: &str = "foreread.explain/1";

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExplainReport {
    pub schema: String,
    pub foreread: String,
    /// The trace, as the user named it.
    pub trace: String,
    /// The source in the notation of `--on`.
    pub source: String,
    pub source_about: String,
    pub policy: String,
    pub cache_bytes: u64,
    /// Size of a cache page.
    pub page_bytes: u64,
    pub seed: u64,
    /// How the replay was timed: `afap`, `closed`, `open` or `deps`. Null for a built-in workload.
    pub mode: Option<String>,
    /// From the first read to the end of the last, in seconds.
    pub time_s: f64,
    /// Notes about the result, a sentence each.
    pub notes: Vec<String>,
    /// What the policy read ahead, and how much of it was used, in a sentence.
    pub summary: String,
    /// The values that a self-tuning policy had set when it read farthest ahead. Null for other policies.
    pub auto: Option<String>,
    /// Counters of the machine for all files together.
    #[serde(serialize_with = "counters")]
    pub total: Stats,
    /// How often the policy decided by each rule, over all files; `unnamed` counts windows without a rule.
    pub rules: BTreeMap<String, u64>,
    /// The files, the longest stall first.
    pub files: Vec<File>,
    /// The command that compares other policies.
    pub next: Step,
}

/// The reads and the readahead of one file of the trace, and how often each rule of the policy decided.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct File {
    /// The name that the trace gives it.
    pub name: String,
    pub size_bytes: u64,
    /// Open file descriptions through which it was read.
    pub opens: u64,
    /// Hints that programs gave for it.
    pub hints: u64,
    /// How many of the reads are page faults of mappings.
    pub faults: u64,
    /// Each counter is defined like the machine's counter of the same name.
    #[serde(serialize_with = "counters")]
    pub counts: Stats,
    /// Like [`ExplainReport::rules`], for this file.
    pub rules: BTreeMap<String, u64>,
}

fn counters<S: Serializer>(counts: &Stats, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(watcher::counters(counts))
}

/// Executes the trace or workload of the plan under `policy`, and counts its reads and decisions. The policies that the plan lists are
/// ignored. `next` is the command line that compares other policies.
/// Returns an error if the plan cannot be carried out, or if the counts of the files do not add up to the counters of the run.
pub fn explain(
    plan: &ComparePlan,
    policy: PolicyDraft,
    next: String,
    progress: &mut dyn Progress,
) -> Result<ExplainReport, Failure> {
    progress.stage(&format!("replaying under {policy}"));
    let (run, mut watcher) = compare::watched::run(plan, policy, watcher::Watcher::new)?;
    watcher.finish();
    let replay = plan.replay.as_ref();
    let trace = match replay {
        Some(replay) => replay.workload.name.clone(),
        None => plan.workload.clone().unwrap_or_default(),
    };
    let mut rules = BTreeMap::<String, u64>::new();
    for (rule, n) in watcher.files.iter().flat_map(|file| &file.rules) {
        *rules.entry(rule.to_string()).or_default() += n;
    }
    let total = run.result.stats;
    if let Some((counter, [ours, machine])) = watcher::difference(&watcher.files, &total) {
        let why =
            format!("the files add up to {ours} {counter}, but the whole run counted {machine}");
        let place = format!("{} on {trace}", run.policy);
        return Err(Failure::check("broken explanation", place, "please report it").because(why));
    }
    let name = |number: usize| match replay {
        Some(replay) => replay.loaded.names.get(number).cloned().unwrap_or_default(),
        None => format!("file {number}"),
    };
    let file = |(number, file): (usize, watcher::WatchedFile)| File {
        name: name(number),
        size_bytes: file.size_bytes,
        opens: file.opens.len() as u64,
        hints: file.hints,
        faults: file.faults,
        counts: file.counts,
        rules: file
            .rules
            .iter()
            .map(|(rule, n)| (rule.to_string(), *n))
            .collect(),
    };
    let mut files: Vec<File> = watcher.files.into_iter().enumerate().map(file).collect();
    files.sort_by_key(|file| {
        let counts = &file.counts;
        Reverse((
            counts.stall_ns,
            watcher::never_read_bytes(counts),
            counts.demand_bytes,
        ))
    });
    let policy = run.policy.to_string();
    Ok(ExplainReport {
        schema: SCHEMA.to_string(),
        foreread: env!("CARGO_PKG_VERSION").to_string(),
        summary: summary(&policy, &total),
        next: Step::new(Means::Measure, "other policies for the same reads:", next),
        trace,
        source: run.source,
        source_about: run.source_about,
        policy,
        cache_bytes: run.cache_bytes,
        page_bytes: run.page.bytes(),
        seed: plan.seed,
        mode: replay.map(|replay| replay.mode.json_name().to_string()),
        time_s: run.result.time_s,
        notes: run.notes,
        auto: watcher.tuning.as_ref().map(tuning::words),
        total,
        rules,
        files,
    })
}

fn summary(policy: &str, total: &Stats) -> String {
    if total.ra_bytes == 0 {
        return format!("{policy} read nothing ahead");
    }
    let part = |bytes: u64| percent(bytes as f64 / total.ra_bytes as f64);
    format!(
        "{policy} read {} ahead: {} % of it was used, {} % never read",
        number::amount(total.ra_bytes),
        part(total.used_bytes),
        part(watcher::never_read_bytes(total))
    )
}
