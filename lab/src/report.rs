//! Turns raw runs into reports for people and programs.
//!
//! ```text
//!   Table (raw runs) ──►  row::Report  ──►  JSON            every number, schema foreread.compare/1
//!                                 └─────►  screen::screen  the terminal: the verdict, the tables, what to do next
//!   all of these ────────►  page            a single HTML file
//! ```
//! The table and the verdict are made only from the [`Report`], which is also the JSON, so that the text contains no figure that is missing
//! from the JSON. This module runs no measurement, prints nothing, and uses neither a clock nor environment variables.

mod fill;
pub mod page;
pub mod row;
pub mod screen;
pub mod table;
pub mod trace_info;

use crate::replay::Mode;
use foreread_core::policy::PolicySpec;
use foreread_report::number;
use foreread_sim::limits::bound::Bound;
use foreread_sim::simulator::RunResult;
use foreread_sim::stats::Summary;
pub use row::{Report, Row, to_json};
pub use screen::screen;
use serde::{Deserialize, Serialize};
pub use table::render;

/// The runs of one policy. Run `i` of every policy in a table has the same trace, seed and storage, so that the runs of two policies can be
/// compared in pairs.
#[derive(Clone, Debug)]
pub struct PolicyRuns {
    /// The policy as the user gave it, `NAME:key=value,...`.
    pub policy: String,
    pub kind: RowKind,
    /// One result for each run, in the order of the pairs.
    pub runs: Vec<RunResult>,
}

impl PolicyRuns {
    /// Returns the time of each run in seconds, in the order of the runs.
    pub fn times_s(&self) -> Vec<f64> {
        self.runs.iter().map(|r| r.time_s).collect()
    }

    /// Returns the mean latency of each run in seconds, in the order of the runs.
    pub fn latencies_s(&self) -> Vec<f64> {
        self.runs.iter().map(|r| r.latency.mean() / 1e9).collect()
    }

    /// Returns the value by which rows are compared (time or latency) for each run, in seconds.
    pub fn judged_s(&self, by: Judge) -> Vec<f64> {
        match by {
            Judge::Time => self.times_s(),
            Judge::Latency => self.latencies_s(),
        }
    }

    /// Returns the mean of this value over the runs, in seconds.
    pub fn mean_s(&self, by: Judge) -> Option<f64> {
        Summary::of(&self.judged_s(by)).map(|values| values.mean)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judge {
    /// The time of a run.
    Time,
    /// The mean latency of its reads: if each read has its recorded time, all policies take the time of the trace.
    Latency,
}

/// The raw results of a comparison of one workload on one source under several policies.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The workload, as the user gave it.
    pub workload: String,
    /// The source in the notation of `--on`: `file:PATH` or `model:NAME`.
    pub source: String,
    /// One line about the source for people ("ext4, O_DIRECT, read_ahead_kb 128"). May be empty.
    pub source_about: String,
    pub runs: u32,
    /// Seed of the first run.
    pub seed: u64,
    pub cache_bytes: u64,
    /// Size of a cache page in bytes: the unit of every byte counter.
    pub page_bytes: u64,
    /// Notes about the table ("O_DIRECT was refused"), a sentence each.
    pub notes: Vec<String>,
    /// The lower bound of each run; empty on a file.
    pub bounds: Vec<Bound>,
    /// How a replayed trace was timed; `None` for built-in workloads.
    pub pace: Option<ReplayPace>,
    /// The rows, in the order in which they are shown.
    pub policies: Vec<PolicyRuns>,
    /// Set if the reads are fewer than usual.
    pub shortened: Option<SpanCut>,
}

/// How much smaller than usual the span of a workload (the range of bytes in which it reads) is, because the source is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpanCut {
    pub span_bytes: u64,
    pub usual_bytes: u64,
}

impl Table {
    /// Returns one line with the mean time (or latency) of each policy: "sequential on file:x: auto 0.248 s, kernel 3.880 s, none 8.000 s".
    pub fn in_a_line(&self) -> String {
        let rows = self.policies.iter().filter(|row| !row.kind.is_limit());
        let mut rows: Vec<(f64, &str)> = rows
            .filter_map(|row| Some((row.mean_s(self.judge())?, row.policy.as_str())))
            .collect();
        rows.sort_by(|a, b| a.0.total_cmp(&b.0));
        let rows = rows
            .iter()
            .map(|(mean, policy)| format!("{policy} {} s", number::span_s(*mean, None)));
        let rows: Vec<String> = rows.collect();
        format!("{} on {}: {}", self.workload, self.source, rows.join(", "))
    }

    pub fn judge(&self) -> Judge {
        if self.pace.is_some_and(|pace| pace.mode == Mode::Open) {
            Judge::Latency
        } else {
            Judge::Time
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplayPace {
    /// How the starts of its reads are determined.
    pub mode: Mode,
    /// The factor on recorded pauses; `None` if pauses are not used.
    pub think: Option<f64>,
}

#[cfg(test)]
pub(crate) mod samples {
    //! Runs with invented figures, with which the submodules are tested.

    use super::{PolicyRuns, RowKind, RunResult, Table};
    use foreread_core::stats::Stats;
    use foreread_sim::stats::{latency_histogram, record_latency};

    /// A run of `time_s` seconds that read ahead `ra` and fetched `source` bytes for 1000 reads of 4 KiB.
    pub fn run(time_s: f64, ra: u64, used: u64, source: u64) -> RunResult {
        let mut latency = latency_histogram();
        for i in 1..=1000_u64 {
            record_latency(&mut latency, i * 1000);
        }
        let stats = Stats::of(|stats| {
            stats.demand_reads = 1000;
            stats.demand_bytes = 4_096_000;
            stats.hits = if ra > 0 { 900 } else { 0 };
            stats.late_hits = if ra > 0 { 50 } else { 0 };
            stats.misses = if ra > 0 { 50 } else { 1000 };
            stats.stall_ns = 500_000_000;
            stats.ra_planned_ops = ra / 131_072;
            stats.ra_planned_bytes = ra;
            stats.ra_ops = ra / 131_072;
            stats.ra_bytes = ra;
            stats.source_reads = source / 65_536;
            stats.source_bytes = source;
            stats.used_bytes = used;
            stats.late_bytes = used / 10;
            stats.unused_bytes = ra - used;
        });
        RunResult::new(time_s, stats, latency, 4_096_000)
    }

    pub fn runs(policy: &str, times: &[f64], ra: u64, used: u64, source: u64) -> PolicyRuns {
        let kind = match policy {
            "none" => RowKind::NoReadahead,
            "kernel" => RowKind::Kernel,
            "librbd" => RowKind::Librbd,
            "oracle" => RowKind::Oracle,
            _ => RowKind::Policy,
        };
        PolicyRuns {
            policy: policy.to_string(),
            kind,
            runs: times.iter().map(|t| run(*t, ra, used, source)).collect(),
        }
    }

    pub fn table(workload: &str, source: &str, policies: Vec<PolicyRuns>) -> Table {
        let runs = policies.first().map_or(0, |p| p.runs.len() as u32);
        Table {
            workload: workload.to_string(),
            source: source.to_string(),
            runs,
            seed: 1,
            cache_bytes: 64 << 20,
            page_bytes: 4096,
            policies,
            ..Table::default()
        }
    }

    /// Three policies, two of which gain much and lie close together.
    pub fn boot() -> Table {
        let mut table = table(
            "boot-ide",
            "model:rbd",
            vec![
                runs("none", &[46.1, 46.3, 46.2, 46.0, 46.4], 0, 0, 4_096_000),
                runs(
                    "linux-6.18",
                    &[12.9, 13.1, 13.0, 12.8, 13.2],
                    5_242_880,
                    3_932_160,
                    5_500_000,
                ),
                runs(
                    "rbd-plain",
                    &[11.3, 11.5, 11.4, 11.3, 11.6],
                    3_932_160,
                    3_801_088,
                    4_200_000,
                ),
            ],
        );
        table.source_about = "0.690 ms a read, 62.5 MB/s".to_string();
        table
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowKind {
    /// The policy `none`, with which every other row is compared.
    NoReadahead,
    /// A policy of foreread that reads ahead.
    #[default]
    Policy,
    /// The kernel's page cache served the reads.
    Kernel,
    /// librbd itself served the reads.
    Librbd,
    /// The best schedule found with perfect foresight: a limit, not a choice.
    Oracle,
}

impl RowKind {
    /// Returns the kind of the table row that shows this policy.
    pub fn of(policy: &PolicySpec) -> RowKind {
        if policy.info.name == foreread_core::policy::none::INFO.name {
            RowKind::NoReadahead
        } else {
            RowKind::Policy
        }
    }

    /// Returns whether the row only shows a limit, like the oracle's row, and is left out of tests and advice.
    pub fn is_limit(self) -> bool {
        self == RowKind::Oracle
    }

    /// Returns whether another program (the kernel or librbd) served the reads, so that foreread's counters do not exist.
    pub fn is_external(self) -> bool {
        matches!(self, RowKind::Kernel | RowKind::Librbd)
    }

    /// Returns whether the row is a policy that reads ahead and can be recommended.
    pub fn is_choice(self) -> bool {
        self == RowKind::Policy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_knows_its_kind_by_its_info() {
        let kind = |text: &str| {
            RowKind::of(
                &foreread_history::parse(text)
                    .expect(text)
                    .ready(None)
                    .expect(text),
            )
        };
        assert_eq!(kind("none"), RowKind::NoReadahead);
        assert_eq!(
            (kind("linux-6.18:max=1M"), kind("rbd-plain")),
            (RowKind::Policy, RowKind::Policy)
        );
        let json = serde_json::to_string(&[RowKind::NoReadahead, RowKind::Librbd]).expect("JSON");
        assert_eq!(json, r#"["no_readahead","librbd"]"#);
    }
}
