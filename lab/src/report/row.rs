//! The report of a comparison: its fields, with their definitions, are the keys of the JSON.
//!
//! Schema `foreread.compare/1`: new keys may be added. If a key is renamed, removed or redefined, the schema becomes `/2`. Undefined values
//! are null. MB is 10^6 bytes. If a comparison has several tables, the JSON is an array with a report for each table.
//!
//! Times are stored for every run. Counters are means over the runs, rounded to whole numbers; ratios are computed from
//! the sums over all runs, before any rounding.

use super::{RowKind, SpanCut};
use foreread_report::{json, number};
use serde::{Deserialize, Serialize};

/// Name and version of the JSON schema.
pub const SCHEMA: &str = "foreread.compare/1";

/// How the note begins that says on which storage the files of a trace are taken to be.
pub const NOTE_OF_FILES: &str = "All files of the trace are taken to be on ";
/// Notes that begin with this text are shown in the terminal only with details; the page and the JSON always have them.
pub const NOTE_OF_PAGES: &str = "The rows use different cache page sizes, in bytes: ";
pub const NOTE_OF_UNUSED: &str = "Read ahead but not used so far: ";

/// The advice mentions no smaller difference, even if it is significant: on a device model, times repeat to the nanosecond. Half a per cent
/// is the last digit that the table shows.
pub(crate) const WORTH_SAYING: f64 = 0.005;

/// The report on one workload on one source under several policies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub schema: String,
    /// Version of foreread that measured.
    pub foreread: String,
    /// The workload, as the user gave it.
    pub workload: String,
    /// The source in the notation of `--on`.
    pub source: String,
    /// One line about the source; may be empty.
    pub source_about: String,
    /// Runs of each policy, paired and interleaved.
    pub runs: u32,
    /// Seed of the first run.
    pub seed: u64,
    pub cache_bytes: u64,
    /// Size of a cache page in bytes: foreread counts the bytes of whole pages, clipped to the end of the file.
    pub page_bytes: u64,
    /// The probability of one false positive among all comparisons of this table.
    pub alpha: f64,
    pub notes: Vec<String>,
    /// A lower bound for the time of a run, as a mean over the runs: the largest of the next three, run by run. Null on a
    /// file.
    pub bound_s: Option<f64>,
    /// The least time in which the model delivers the distinct bytes that are read, each once, and skips the gaps
    /// between them.
    pub bound_device_s: Option<f64>,
    /// Think time and copying of the job that has most of them.
    pub bound_readers_s: Option<f64>,
    /// The least time until some read has its bytes, plus its reader's think time and copying after that.
    pub bound_path_s: Option<f64>,
    /// How a replayed trace was timed: `afap`, `closed`, `open` or `deps`. Null for a built-in workload.
    pub mode: Option<String>,
    /// The factor on recorded pauses. Null if pauses are not used.
    pub think: Option<f64>,
    /// The key of the rows to which `best`, `comparisons`, `ratio_to_none`, `p_value`, `differs_from_none` and `score`
    /// refer: `time_s`; in mode open, where every row takes the time of the trace, `latency_s`.
    pub judged_by: String,
    /// The run in which a policy beats the oracle by the largest factor. Null without an oracle, and if no policy beats it by
    /// a thousandth.
    pub oracle_beaten: Option<OracleBeaten>,
    /// The policies that may be the fastest: one, or several without a significant difference, or equal within 5 %
    /// (`equivalent`). Empty if no test was possible, as with a single run.
    pub best: Vec<String>,
    /// Set if the workload covers less than usual because the source is slow. Omitted otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shortened: Option<SpanCut>,
    /// True if the reads are a walk through folders: no policy knows the next file, but `foreread run` does. Omitted
    /// otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_walk: bool,
    pub rows: Vec<Row>,
    /// The test of every pair of rows that are not limits.
    pub comparisons: Vec<Comparison>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    pub a: String,
    pub b: String,
    /// Mean time of `b` / mean time of `a`.
    pub ratio: Option<f64>,
    /// Ends of the ratio's 95 % interval, by bootstrap over the pairs; with few pairs the interval is too narrow.
    /// Null with one run.
    pub ratio_ci95: Option<[f64; 2]>,
    /// Ends of the 95 % interval of the mean of (time of `b` - time of `a`) of a pair (Student's t), in seconds.
    pub difference_ci95_s: Option<[f64; 2]>,
    /// Two-sided paired t test on the times, corrected by Holm over the pairs of this table.
    pub p_value: Option<f64>,
    /// `p_value < alpha`.
    pub differs: Option<bool>,
    /// Whether the 95 % interval of the ratio of what the rows are judged by (Student's t on the residuals of the pairs) is within 1 /
    /// 1.05 and 1.05. If neither this nor `differs` is true, the runs do not tell the two apart. Null if no test was possible.
    pub equivalent: Option<bool>,
}

impl Comparison {
    /// Whether it compares these rows, which may be given in either order.
    pub(super) fn is_of(&self, one: &str, other: &str) -> bool {
        [(one, other), (other, one)].contains(&(&self.a, &self.b))
    }
}

/// A policy that took less time than the oracle. A policy can beat the oracle on a device with random latencies. The oracle is the best
/// schedule that a search found, but a policy sends other requests, which get other latencies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OracleBeaten {
    pub policy: String,
    /// Its time / the oracle's time in the same run.
    pub ratio: f64,
    /// The seed of that run.
    pub seed: u64,
    /// Number of policies, without limits, that beat it in some run.
    pub policies: usize,
}

impl std::fmt::Display for OracleBeaten {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the oracle is not a lower bound here: {} took {} of the oracle's time with seed {}",
            self.policy,
            number::times(self.ratio),
            self.seed
        )
    }
}

/// How many runs to try next if `runs` did not tell two policies apart.
pub(crate) fn more_runs(runs: u32) -> u32 {
    (runs * 2).max(5)
}

/// The result of comparing the times of two rows: which row is faster, or that the runs do not show which one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Relation {
    /// Equal within 5 %, by the interval of the ratio. A significant difference may also be that small.
    Equivalent,
    /// Neither a difference nor equality is shown: more runs may show one.
    NotToldApart,
    Different,
}

/// The time of a workload, in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Time {
    pub mean: f64,
    pub median: f64,
    /// Ends of the 95 % interval of the mean (Student's t). With one run both are the mean, because there is no
    /// spread.
    pub ci95: [f64; 2],
    /// Each run, in the order of the pairs.
    pub runs: Vec<f64>,
}

/// A row of the table: the results of one policy. In the row `kernel`, foreread's counters are null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The policy, as the user gave it.
    pub policy: String,
    /// What the row is.
    pub kind: RowKind,
    /// True for a limit that is not a choice (`oracle`, the best schedule found with perfect foresight): it takes no part in `best`,
    /// `comparisons` and the advice.
    pub limit: bool,
    /// Time from the first read to the end of the last. Null without runs.
    pub time_s: Option<Time>,
    /// Mean latency of the demand reads of a run, in seconds, counted from the time at which each was due to start. Null
    /// except in mode open.
    pub latency_s: Option<Time>,
    /// How late the reader itself was at issuing reads, in microseconds: the largest of the runs' 99th percentiles. Null
    /// if it is never late, as on a model.
    pub late_p99_us: Option<f64>,
    /// Mean time / mean time of the row `none`.
    pub ratio_to_none: Option<f64>,
    /// Ends of its 95 % interval, by bootstrap over the pairs; with few pairs the interval is too narrow. Null with
    /// one run.
    pub ratio_to_none_ci95: Option<[f64; 2]>,
    /// (none - this) / (none - oracle) of the mean times: the share of the possible gain that it reaches, above 1 if it beats
    /// the oracle. Null without an oracle, and if the oracle gains less than half a per cent.
    pub score: Option<f64>,
    /// Two-sided paired t test against the row `none`, corrected by Holm over all pairs of the table.
    pub p_value: Option<f64>,
    /// Whether the test finds it different from `none`: `p_value < alpha`. Null if no test was possible.
    pub differs_from_none: Option<bool>,
    /// Demanded bytes / time, in 10^6 bytes a second.
    pub throughput_mb_s: Option<f64>,
    pub demand_reads: Option<u64>,
    /// Bytes that demand reads requested, clipped to the end of the file, not rounded to pages.
    pub demand_bytes: Option<u64>,
    /// Windows that the policy requested.
    pub ra_planned_ops: Option<u64>,
    /// Bytes of these windows, before clipping to the file and to what was cached.
    pub ra_planned_bytes: Option<u64>,
    /// Readahead fetches submitted.
    pub ra_ops: Option<u64>,
    /// Readahead bytes submitted: P of the formulas.
    pub ra_bytes: Option<u64>,
    /// Planned bytes that were not read because too little memory or too few fetches were available.
    pub refused_bytes: Option<u64>,
    /// Fetches submitted, both demand and readahead.
    pub source_reads: Option<u64>,
    pub source_bytes: Option<u64>,
    /// Readahead bytes that a demand read touched: U of the formulas.
    pub used_bytes: Option<u64>,
    /// Used bytes that were still in flight at the touch: L of the formulas.
    pub late_bytes: Option<u64>,
    /// Readahead bytes evicted or dropped before any demand touch.
    pub unused_bytes: Option<u64>,
    /// Readahead bytes neither used nor evicted when the run ended.
    pub unresolved_bytes: Option<u64>,
    /// Readahead bytes that failed or were discarded on arrival.
    pub failed_bytes: Option<u64>,
    /// Unused bytes that were evicted and then demanded.
    pub thrash_bytes: Option<u64>,
    /// Bytes that were read again because there was no room to keep them. Null if this was not simulated.
    pub refault_bytes: Option<u64>,
    /// Distinct bytes demanded, rounded out to whole cache pages.
    pub distinct_bytes: Option<u64>,
    /// Demand reads that found every page present.
    pub hits: Option<u64>,
    /// Demand reads that waited for a page in flight and missed none.
    pub late_hits: Option<u64>,
    /// Demand reads with at least one page neither present nor in flight.
    pub misses: Option<u64>,
    /// Demand reads that ended with an error.
    pub failed_reads: Option<u64>,
    /// Sum of the times that demand reads waited for the source, in seconds.
    pub stall_s: Option<f64>,
    /// Median latency of the demand reads of all runs, in microseconds.
    pub p50_us: Option<f64>,
    /// 95th percentile of this latency.
    pub p95_us: Option<f64>,
    /// 99th percentile of this latency.
    pub p99_us: Option<f64>,
    /// 99.9th percentile of this latency.
    pub p999_us: Option<f64>,
    /// Largest latency.
    pub max_us: Option<f64>,
    /// Pairs of a percentage and the latency in microseconds that this percentage of the reads did not exceed, both in
    /// ascending order, from 1 to 100 %. Empty without reads.
    pub latency_us: Vec<[f64; 2]>,
    /// Used / readahead bytes (U / P). Null without readahead.
    pub accuracy: Option<f64>,
    /// Used bytes / bytes missed without readahead, that is, fetched by the row `none` with the same cache (U / Dm).
    pub coverage: Option<f64>,
    /// 1 - late / used bytes (1 - L / U). Null when nothing was used.
    pub timeliness: Option<f64>,
    /// Read amplification: source bytes / distinct demanded bytes, the latter rounded out to cache pages. Null without demand.
    pub overfetch: Option<f64>,
}

impl Report {
    /// Returns the number of pairs of rows that were tested.
    pub fn tests(&self) -> usize {
        let tested = self.comparisons.iter().filter(|c| c.p_value.is_some());
        tested.count()
    }

    /// Returns whether every row that can be recommended was measured. This is false if the comparison was interrupted and some rows have
    /// no runs.
    pub fn is_whole(&self) -> bool {
        let choices = self.rows.iter().filter(|row| !row.limit);
        choices.clone().all(|row| row.judged().is_some())
    }

    /// Returns the test that compares two rows, which may be given in either order.
    pub fn comparison(&self, one: &str, other: &str) -> Option<&Comparison> {
        self.comparisons.iter().find(|pair| pair.is_of(one, other))
    }

    /// Returns which of two different rows is faster, if the runs show it. Returns `None` if no test was possible.
    pub fn relation(&self, one: &str, other: &str) -> Option<Relation> {
        let compared = self.comparison(one, other)?;
        Some(match (compared.equivalent?, compared.differs?) {
            (true, _) => Relation::Equivalent,
            (false, true) => Relation::Different,
            (false, false) => Relation::NotToldApart,
        })
    }

    /// The row with the least mean among those that may be the fastest.
    pub(super) fn fastest(&self) -> Option<&Row> {
        let best = self.rows.iter().filter(|r| self.best.contains(&r.policy));
        let timed = best.filter_map(|row| Some((row.judged()?.mean, row)));
        timed.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, row)| row)
    }

    pub fn row(&self, policy: &str) -> Option<&Row> {
        self.rows.iter().find(|r| r.policy == policy)
    }

    /// Returns the row of the kernel's own readahead, if it was measured.
    pub fn kernel(&self) -> Option<&Row> {
        self.rows.iter().find(|r| r.kind == RowKind::Kernel)
    }

    /// Returns the row of the oracle (perfect foresight), if there is one.
    pub fn limit(&self) -> Option<&Row> {
        self.rows.iter().find(|r| r.limit)
    }

    /// Returns the row `none` (without readahead), with which the other rows are compared.
    pub fn none(&self) -> Option<&Row> {
        self.rows.iter().find(|r| r.kind == RowKind::NoReadahead)
    }
}

impl Row {
    /// Returns the value by which rows are compared: the mean latency for replays at recorded times, otherwise the time.
    pub fn judged(&self) -> Option<&Time> {
        self.latency_s.as_ref().or(self.time_s.as_ref())
    }
}

/// Formats the reports as JSON: a single report as an object, several reports as an array. The text ends with a newline.
pub fn to_json(reports: &[Report]) -> String {
    match reports {
        [one] => json::pretty(one),
        several => json::pretty(&several),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{PolicyRuns, samples};
    use super::*;
    use foreread_core::stats::Stats;

    #[test]
    fn the_json_has_the_promised_keys_in_their_shape() {
        let report = Report::of(&samples::boot());
        let one: serde_json::Value =
            serde_json::from_str(&to_json(std::slice::from_ref(&report))).expect("JSON");
        assert_eq!(
            (one["schema"].as_str(), one["runs"].as_u64()),
            (Some("foreread.compare/1"), Some(5))
        );
        assert_eq!(
            (one["workload"].as_str(), one["source"].as_str()),
            (Some("boot-ide"), Some("model:rbd"))
        );
        let row = one["rows"][1].as_object().expect("a row is an object");
        let promised = "policy time_s throughput_mb_s demand_reads demand_bytes ra_planned_ops ra_planned_bytes ra_ops \
            ra_bytes source_reads source_bytes used_bytes unused_bytes unresolved_bytes hits late_hits misses stall_s \
            p50_us p99_us max_us latency_us accuracy coverage timeliness overfetch";
        for key in promised.split_whitespace() {
            assert!(row.contains_key(key), "{key} is missing");
        }
        assert_eq!(row["time_s"]["ci95"].as_array().map(Vec::len), Some(2));
        assert!(row["time_s"]["mean"].is_f64() && row["time_s"]["median"].is_f64());
        let two: serde_json::Value =
            serde_json::from_str(&to_json(&[report.clone(), report])).expect("JSON");
        assert_eq!(two.as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn nothing_measured_is_null_and_never_nan() {
        let mut empty = samples::runs("none", &[0.0], 0, 0, 0);
        empty.runs[0].stats = Stats::default();
        empty.runs[0].distinct_bytes = 0;
        empty.runs[0].latency.clear();
        let no_runs = PolicyRuns {
            policy: "rbd-plain".to_string(),
            kind: RowKind::Policy,
            runs: Vec::new(),
        };
        let report = Report::of(&samples::table("w", "s", vec![empty, no_runs]));
        let json = to_json(std::slice::from_ref(&report));
        let back: Report = serde_json::from_str(&json).expect("what was written can be read");
        assert_eq!(back, report);
        let row = &report.rows[0];
        assert_eq!(
            (
                row.overfetch,
                row.ratio_to_none,
                row.throughput_mb_s,
                row.p99_us
            ),
            (None, None, None, None)
        );
        assert_eq!(
            (report.rows[1].time_s.clone(), report.rows[1].hits),
            (None, None)
        );
        assert!(!json.contains("NaN") && !json.contains("inf") && row.latency_us.is_empty());
    }
}
