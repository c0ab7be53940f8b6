//! The result of a run of a policy, for simulated, oracle and live runs.

use foreread_core::stats::Stats;
use hdrhistogram::Histogram;

#[derive(Clone, Debug)]
pub struct RunResult {
    /// From the first read to the end of the last, in seconds (virtual ones on a model).
    pub time_s: f64,
    /// The machine's counters at the end. A `kernel` run has only `demand_reads` and `demand_bytes`.
    pub stats: Stats,
    /// Latency of each demand read, in nanoseconds ([`crate::stats::latency_histogram`]).
    pub latency: Histogram<u64>,
    /// Distinct bytes demanded, rounded out to whole cache pages and clipped to the end of the file.
    pub distinct_bytes: u64,
    /// The kernel's page cache served the reads, so foreread's counters are null.
    pub kernel: bool,
    /// 99th percentile of the delay with which the reader issued reads, in nanoseconds; only for a live replay.
    pub late_p99_ns: Option<u64>,
    /// Bytes read again after eviction; only for a simulation.
    pub refault_bytes: Option<u64>,
}
