//! The report: every number of one comparison with its definition, as in the JSON.
//!
//! Schema `foreread.compare/1`: keys are only ever added, never renamed, removed or redefined; that would be
//! `/2`. What is not defined is null. MB is 10^6 bytes. Several tables are written as an array.
//!
//! Times keep every run. Counters are means of a run, rounded to whole numbers; ratios are made from the sums
//! of all runs, before any rounding. Never: a number that was not measured.

use super::{RowKind, SpanCut};
use foreread_report::{json, number};
use serde::{Deserialize, Serialize};

/// Name and version of the layout below.
pub const SCHEMA: &str = "foreread.compare/1";

/// The beginnings of notes that the terminal shows with details alone; the page and the JSON have them always.
pub const NOTE_OF_PAGES: &str = "The rows have different cache pages, in bytes: ";
pub const NOTE_OF_UNUSED: &str = "Read ahead but not used so far: ";

/// One table: one workload on one source under several policies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub schema: String,
    /// Version of foreread that measured.
    pub foreread: String,
    /// The workload, as it was asked for.
    pub workload: String,
    /// The source in the notation of `--on`.
    pub source: String,
    /// One line about the source; may be empty.
    pub source_about: String,
    /// Runs of each policy, paired and interleaved.
    pub runs: u32,
    /// Seed of the first run.
    pub seed: u64,
    /// Size of the cache in bytes.
    pub cache_bytes: u64,
    /// Size of a cache page in bytes: bytes of ours are bytes of whole pages, clipped to the end of the file.
    pub page_bytes: u64,
    /// The chance of one false call among all the comparisons of this table.
    pub alpha: f64,
    pub notes: Vec<String>,
    /// A time that no run can be below, as a mean of the runs: the largest of the next three, run by run. Null on a file.
    pub bound_s: Option<f64>,
    /// The least in which the model gives the distinct bytes that are read, once, and passes the gaps between them.
    pub bound_device_s: Option<f64>,
    /// The thinking and copying of the job that has most of it.
    pub bound_readers_s: Option<f64>,
    /// The least time until some read has its bytes, and what its reader still thinks and copies then.
    pub bound_path_s: Option<f64>,
    /// How a replayed trace kept time: `afap`, `closed`, `open` or `deps`. Null for a workload of ours.
    #[serde(default)]
    pub mode: Option<String>,
    /// The factor on recorded pauses. Null where pauses take no part.
    #[serde(default)]
    pub think: Option<f64>,
    /// Which key of the rows `best`, `comparisons`, `ratio_to_none`, `p_value`, `differs_from_none` and `score` are about:
    /// `time_s`; in mode open, where every row takes the time of the trace, `latency_s`.
    #[serde(default = "by_time")]
    pub judged_by: String,
    /// The run in which a policy is faster than the oracle by most. Null without an oracle, and where none is by a thousandth.
    #[serde(default)]
    pub oracle_beaten: Option<OracleBeaten>,
    /// The policies that may claim to be the fastest: one, or several without a significant difference (or that
    /// are within half a per cent). Empty where no test was possible, as with a single run.
    pub best: Vec<String>,
    /// Where the workload spans less than usual, as the source is slow. Left out elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shortened: Option<SpanCut>,
    /// The reads are a walk through folders: no policy knows its next file, and `foreread run` does. Left out elsewhere.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_walk: bool,
    /// One row for each policy.
    pub rows: Vec<Row>,
    /// Every pair of rows that are no limits, tested.
    pub comparisons: Vec<Comparison>,
}

/// What reports were judged by before there was a choice.
fn by_time() -> String {
    "time_s".to_string()
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    pub a: String,
    pub b: String,
    /// Mean time of `b` / mean time of `a`.
    pub ratio: Option<f64>,
    /// Ends of its 95 % interval, by bootstrap over the pairs: too narrow with few of them. Null with one run.
    pub ratio_ci95: Option<[f64; 2]>,
    /// Ends of the 95 % interval of the mean of (time of `b` - time of `a`) of a pair (Student's t), in seconds.
    pub difference_ci95_s: Option<[f64; 2]>,
    /// Two-sided paired t test on the times, corrected by Holm over the pairs of this table.
    pub p_value: Option<f64>,
    /// `p_value < alpha`.
    pub differs: Option<bool>,
    /// The 95 % interval of the ratio of what the rows are judged by (Student's t on the residuals of the pairs) is within
    /// 1 / 1.05 and 1.05. Where neither this nor `differs` is true, the runs do not tell the two apart. Null where no test was possible.
    #[serde(default)]
    pub equivalent: Option<bool>,
}

/// A policy that took less time than the oracle: the oracle is a search and no bound where a device draws its latencies at random,
/// since a policy makes other requests, which draw other ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OracleBeaten {
    pub policy: String,
    /// Its time / the oracle's in the same run.
    pub ratio: f64,
    /// The seed of that run.
    pub seed: u64,
    /// Policies that beat it in some run, of those that are no limits.
    pub policies: usize,
}

impl std::fmt::Display for OracleBeaten {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the oracle is no bound here: {} took {} of its time with seed {}",
            self.policy,
            number::times(self.ratio),
            self.seed
        )
    }
}

/// How many runs to try where `runs` did not tell two policies apart.
pub(crate) fn more_runs(runs: u32) -> u32 {
    (runs * 2).max(5)
}

/// What the runs of two rows say about their times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Equal within 5 %, by the interval of the ratio. A sure difference may be within that too.
    Equivalent,
    Different,
    /// Neither is shown: more runs may.
    NotToldApart,
}

/// The time of a workload, in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Time {
    /// Arithmetic mean of the runs.
    pub mean: f64,
    /// Median of the runs.
    pub median: f64,
    /// Ends of the 95 % interval of the mean (Student's t). With one run both are the mean: it knows no spread.
    pub ci95: [f64; 2],
    /// Each run, in the order of the pairs.
    pub runs: Vec<f64>,
}

/// One policy. A `kernel` row has no counters of ours: they are null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The policy, as it was asked for.
    pub policy: String,
    /// What the row is; reports written before there was this key have `policy` for all.
    #[serde(default)]
    pub kind: RowKind,
    /// A limit and not a choice (`oracle`, the best schedule found with perfect foresight): it takes no part in `best`, `comparisons` and the advice.
    pub limit: bool,
    /// Time from the first read to the end of the last. Null without runs.
    pub time_s: Option<Time>,
    /// Mean latency of the demand reads of a run, in seconds, counted from the time at which each was to begin. Null but
    /// in mode open.
    #[serde(default)]
    pub latency_s: Option<Time>,
    /// How late the reader itself was at issuing reads: of the 99th percentiles of the runs the largest, in microseconds.
    /// Null where it is never late, as on a model.
    #[serde(default)]
    pub late_p99_us: Option<f64>,
    /// Mean time / mean time of the row `none`.
    pub ratio_to_none: Option<f64>,
    /// Ends of its 95 % interval, by bootstrap over the pairs: too narrow with few of them. Null with one run.
    pub ratio_to_none_ci95: Option<[f64; 2]>,
    /// (none - this) / (none - oracle) of the mean times: the part that it reaches of what there is to gain, above 1 where it
    /// beats the oracle. Null without an oracle, and where the oracle gains less than half a per cent.
    pub score: Option<f64>,
    /// Two-sided paired t test against the row `none`, corrected by Holm over all pairs of the table.
    pub p_value: Option<f64>,
    /// Whether the test calls it different from `none`: `p_value < alpha`. Null where no test was possible.
    pub differs_from_none: Option<bool>,
    /// Demanded bytes / time, in 10^6 bytes a second.
    pub throughput_mb_s: Option<f64>,
    pub demand_reads: Option<u64>,
    /// Bytes they asked for, clipped to the end of the file, not rounded to pages.
    pub demand_bytes: Option<u64>,
    /// Windows that the policy asked for.
    pub ra_planned_ops: Option<u64>,
    /// Their bytes, before clipping to the file and to what was cached.
    pub ra_planned_bytes: Option<u64>,
    /// Readahead fetches submitted.
    pub ra_ops: Option<u64>,
    /// Readahead bytes submitted: P of the formulas.
    pub ra_bytes: Option<u64>,
    /// Planned bytes that were not read for lack of memory or of fetches.
    pub refused_bytes: Option<u64>,
    /// Fetches submitted, demand and ahead.
    pub source_reads: Option<u64>,
    pub source_bytes: Option<u64>,
    /// Readahead bytes that a demand read touched: U of the formulas.
    pub used_bytes: Option<u64>,
    /// Of the used ones, bytes that were still in flight at the touch: L of the formulas.
    pub late_bytes: Option<u64>,
    /// Readahead bytes evicted or dropped before any demand touch.
    pub unused_bytes: Option<u64>,
    /// Readahead bytes neither used nor evicted when the run ended.
    pub unresolved_bytes: Option<u64>,
    /// Readahead bytes that failed or were discarded on arrival.
    pub failed_bytes: Option<u64>,
    /// Unused bytes that were evicted and then demanded.
    pub thrash_bytes: Option<u64>,
    /// Bytes that were read again because there was no room to keep them. Null where it was not simulated.
    #[serde(default)]
    pub refault_bytes: Option<u64>,
    /// Distinct bytes demanded, rounded out to whole cache pages.
    pub distinct_bytes: Option<u64>,
    /// Demand reads that found every page present.
    pub hits: Option<u64>,
    /// Demand reads that waited for a page in flight and missed none.
    pub late_hits: Option<u64>,
    /// Demand reads that met a page neither present nor in flight.
    pub misses: Option<u64>,
    /// Demand reads that ended with an error.
    pub failed_reads: Option<u64>,
    /// Time that demand reads waited for the source, summed, in seconds.
    pub stall_s: Option<f64>,
    /// Median latency of the demand reads of all runs, in microseconds.
    pub p50_us: Option<f64>,
    /// 95th percentile of it.
    pub p95_us: Option<f64>,
    /// 99th percentile of it.
    pub p99_us: Option<f64>,
    /// 99.9th percentile of it.
    pub p999_us: Option<f64>,
    /// The largest of it.
    pub max_us: Option<f64>,
    /// Pairs of a per cent and the latency in microseconds that this many of the reads did not exceed, in ascending order
    /// of both, from 1 to 100 %. Empty without reads.
    #[serde(default)]
    pub latency_us: Vec<[f64; 2]>,
    /// Used / readahead bytes (U / P). Null without readahead.
    pub accuracy: Option<f64>,
    /// Used bytes / bytes missed with readahead off, that is, fetched by the row `none` in the same cache (U / Dm).
    pub coverage: Option<f64>,
    /// 1 - late / used bytes (1 - L / U). Null when nothing was used.
    pub timeliness: Option<f64>,
    /// Source bytes / distinct demanded bytes, the latter rounded out to cache pages. Null without demand.
    pub overfetch: Option<f64>,
}

/// A measured value and the ends of its interval, which may be infinite; both are the value if it has none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub value: f64,
    pub interval: [f64; 2],
}

impl Report {
    /// Pairs of rows that were tested.
    #[must_use]
    pub fn tests(&self) -> usize {
        let tested = self.comparisons.iter().filter(|c| c.p_value.is_some());
        tested.count()
    }

    /// Whether each row that is a choice was measured: one that was interrupted may have none.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let choices = self.rows.iter().filter(|row| !row.limit);
        choices.clone().all(|row| row.judged().is_some())
    }

    /// The test of two rows, in whichever order.
    #[must_use]
    pub fn comparison(&self, one: &str, other: &str) -> Option<&Comparison> {
        let pair = |c: &&Comparison| (c.a == one && c.b == other) || (c.a == other && c.b == one);
        self.comparisons.iter().find(pair)
    }

    /// What the runs say about two different rows. Undefined where no test was possible.
    #[must_use]
    pub fn relation(&self, one: &str, other: &str) -> Option<Relation> {
        let compared = self.comparison(one, other)?;
        Some(match (compared.equivalent?, compared.differs?) {
            (true, _) => Relation::Equivalent,
            (false, true) => Relation::Different,
            (false, false) => Relation::NotToldApart,
        })
    }

    /// The row that may claim to be the fastest with the least mean.
    #[must_use]
    pub(super) fn fastest(&self) -> Option<&Row> {
        let best = self.rows.iter().filter(|r| self.best.contains(&r.policy));
        let timed = best.filter_map(|row| Some((row.judged()?.mean, row)));
        timed.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, row)| row)
    }

    #[must_use]
    pub fn row(&self, policy: &str) -> Option<&Row> {
        self.rows.iter().find(|r| r.policy == policy)
    }

    /// The row of the kernel's own readahead, where that was measured.
    #[must_use]
    pub fn kernel(&self) -> Option<&Row> {
        self.rows.iter().find(|r| r.kind == RowKind::Kernel)
    }

    /// The row of perfect foresight.
    #[must_use]
    pub fn limit(&self) -> Option<&Row> {
        self.rows.iter().find(|r| r.limit)
    }

    /// The row of no readahead, that the others are measured against.
    #[must_use]
    pub fn none(&self) -> Option<&Row> {
        self.rows.iter().find(|r| r.kind == RowKind::NoReadahead)
    }
}

impl Row {
    /// What rows are compared by: the latency where there is one to judge by, the time otherwise.
    #[must_use]
    pub fn judged(&self) -> Option<&Time> {
        self.latency_s.as_ref().or(self.time_s.as_ref())
    }

    /// Its interval is that of the time, turned into rates. An interval of time that reaches down to zero has no upper end as a rate.
    pub(super) fn throughput(&self) -> Option<Spread> {
        let (value, time) = (self.throughput_mb_s?, self.time_s.as_ref()?);
        let rate = |time_s: f64| {
            if time_s > 0.0 {
                value * time.mean / time_s
            } else {
                f64::INFINITY
            }
        };
        Some(Spread {
            value,
            interval: [rate(time.ci95[1]), rate(time.ci95[0])],
        })
    }

    /// Megabytes from the source: a mean that is reported without an interval.
    pub(super) fn source_mb(&self) -> Option<Spread> {
        let value = self.source_bytes? as f64 / number::MB;
        Some(Spread {
            value,
            interval: [value, value],
        })
    }
}

/// The reports as JSON: one as an object, several as an array; ends with a newline.
#[must_use]
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
        // What an earlier version wrote can be read.
        let mut old: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        old["rows"][0]
            .as_object_mut()
            .expect("an object")
            .remove("latency_us")
            .expect("it was there");
        assert_eq!(
            serde_json::from_value::<Report>(old).expect("readable"),
            report
        );
    }
}
