//! What one run of one policy came to: the same for a simulated, a clairvoyant and a live run.

use foreread_core::stats::Stats;
use hdrhistogram::Histogram;

/// One run of one policy.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// From the first read to the end of the last, in seconds (virtual ones on a model).
    pub time_s: f64,
    /// The machine's counters at the end. Of a `kernel` run only `demand_reads` and `demand_bytes` are looked at.
    pub stats: Stats,
    /// Latency of each demand read, in nanoseconds ([`crate::stats::latency_histogram`]).
    pub latency: Histogram<u64>,
    /// Distinct bytes demanded, rounded out to whole cache pages and clipped to the end of the file.
    pub distinct_bytes: u64,
    /// The kernel's page cache served the reads: there are no counters of ours, and they become null.
    pub kernel: bool,
    /// How late the reader itself was at issuing reads, as a 99th percentile in nanoseconds; only a live replay knows.
    pub late_p99_ns: Option<u64>,
    /// Bytes that were read again because there was no room to keep them; only a simulation knows.
    pub refault_bytes: Option<u64>,
}
