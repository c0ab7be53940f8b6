//! `explain`: file by file and stream by stream, what readahead did in a replayed trace, why it was on or off, and what
//! another policy would have done.
//!
//! ```text
//!   trace ──► compare::watched: one run, looked on ──► watcher ──► shares of files and streams ─┐
//!                                                        └ streams: what offsets tell           ├──► Explained
//!         └─► compare::run: the same reads under other policies, in pairs ──────────────────────┤     │
//!         └─► recorded: what the recorded system had read ahead ────────────────────────────────┘   table, JSON
//! ```
//! On a model that run is simulated; on a file or another source the engine lives it, and its event log is looked on at.
//! The policy gives the reason of a decision (`foreread_core::policy::Why`), the machine the fate of readahead, and
//! offsets alone the pattern; the words say which. Never: an invented reason, or sums that are not the machine's
//! own counters: those are compared before anything is said.
//!
//! Schema `foreread.explain/1`: keys are only ever added. What is not defined is null. MB is 10^6 bytes.

mod auto;
mod build;
mod decisions;
mod others;
mod page;
mod pattern;
mod reason;
mod recorded;
mod share;
mod streams;
mod table;
mod watcher;

pub use auto::AutoState;
pub use decisions::Decisions;
pub use others::Other;
pub use page::page;
pub use pattern::Pattern;
pub use reason::Because;
pub use recorded::RecordedReadahead;
pub use share::Share;
pub use streams::Shape;
pub use table::{View, render};

use crate::advice::NextStep;
use crate::compare::{self, ComparePlan};
use crate::report::row::OracleBeaten;
use foreread_core::policy::{DEFAULT, PolicyDraft};
use foreread_os::failure::Failure;
use foreread_report::progress::Progress;
use serde::{Deserialize, Serialize};

/// Name and version of the layout below.
pub const SCHEMA: &str = "foreread.explain/1";
/// What it is compared with by default: no readahead, ours, the kernel's default and a larger window, librbd's.
/// On a model the oracle is added as a limit.
pub const USUAL_OTHERS: [&str; 5] = [
    "none",
    DEFAULT,
    "linux-6.18",
    "linux-6.18:max=4M",
    "rbd-plain",
];
/// Pairs of runs behind the table of other policies: a test needs several, and these are for a glance.
pub const OTHER_RUNS: u32 = 5;

#[derive(Clone, Debug)]
pub struct ExplainOptions {
    /// The trace, where to run it, the cache and the seed. Its policies are passed over.
    pub plan: ComparePlan,
    /// Whose readahead.
    pub policy: PolicyDraft,
    /// What others it is held against; none for no table of them.
    pub against: Vec<PolicyDraft>,
}

/// Everything that was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExplainReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of foreread.
    pub foreread: String,
    /// The trace, as it was named.
    pub trace: String,
    /// The source in the notation of `--on`.
    pub source: String,
    /// One line about it.
    pub source_about: String,
    /// The policy with its values.
    pub policy: String,
    /// Size of the cache in bytes.
    pub cache_bytes: u64,
    /// Size of a cache page in bytes.
    pub page_bytes: u64,
    /// Seed of the run.
    pub seed: u64,
    /// How the replay kept time: `afap`, `closed`, `open` or `deps`. Null for a workload of ours.
    pub mode: Option<String>,
    /// From the first read to the end of the last, in seconds.
    pub time_s: f64,
    /// What a reader must know, a sentence each.
    pub notes: Vec<String>,
    /// All files together: the machine's own counters.
    pub total: Share,
    /// What a policy that sets itself came to. Null for others.
    #[serde(default)]
    pub auto: Option<AutoState>,
    /// Its files, the longest stall first.
    pub files: Vec<File>,
    /// What the recorded system had read ahead. Null where the trace says nothing of it.
    pub recorded: Option<RecordedReadahead>,
    /// The same reads under other policies, and under this one, in pairs. Empty where none were asked for.
    pub others: Vec<Other>,
    /// Runs of each of them.
    pub other_runs: u32,
    /// The run of these in which a policy is faster than the oracle by most, as in `foreread.compare/1`.
    #[serde(default)]
    pub oracle_beaten: Option<OracleBeaten>,
    /// The conclusion, in one sentence.
    pub verdict: String,
    /// What to do with it. Null where more runs have to come first, and without other policies.
    #[serde(default)]
    pub next: Option<NextStep>,
}

/// One file of the trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct File {
    /// As the trace names it.
    pub name: String,
    pub size_bytes: u64,
    /// Open descriptions that it was read through.
    pub opens: u64,
    /// Hints that were given.
    pub hints: u64,
    /// Touches of mapped pages among the reads.
    pub faults: u64,
    /// How it was read, by offsets.
    pub pattern: Pattern,
    pub share: Share,
    /// What was read ahead by hints, in no stream.
    pub by_hints: Share,
    /// Streams, the longest stall first; reads that make no stream are one entry for each open description.
    pub streams: Vec<Stream>,
}

/// Reads that belong together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stream {
    /// Which open description of the file, counted from 0 in the order of their first reads.
    pub open: u64,
    /// `sequential`, `backward`, `strided`, `whole` (the file in one or two reads) or `random` (reads that make no stream).
    pub shape: String,
    /// From the start of one read to the start of the next, in bytes. Null but in a strided one.
    pub step_bytes: Option<i64>,
    /// Its first byte, and the end of its furthest read.
    pub from: u64,
    /// See there.
    pub end: u64,
    pub share: Share,
    /// Whether anything was read ahead for it, and why or why not.
    pub because: Because,
}

/// Runs the trace and explains what readahead did.
///
/// # Errors
/// The plan cannot be carried out, or the parts are not the whole.
pub fn explain(
    asked: &ExplainOptions,
    progress: &mut dyn Progress,
) -> Result<ExplainReport, Failure> {
    let plan = &asked.plan;
    progress.stage(&format!("replaying under {}", asked.policy));
    let looked = compare::watched::run(plan, asked.policy.clone(), watcher::Watcher::new)?;
    let mut explained = build::explained(plan, looked)?;
    others::add(&mut explained, asked, progress)?;
    Ok(explained)
}
