//! The metrics of an engine as values: one table for both the Prometheus page and the OTLP exporter. Each metric is one line in this
//! file.
//!
//! Names omit `foreread_` and the unit; docs/metrics.md lists the full names. The counters are documented at their definition
//! ([`foreread_core::stats::Stats`]). The table has at most [`MAX_STREAMS`] streams, and only values that the engine counts.
//!
//! ```text
//!   Stats, Gauges, Latencies, BudgetUse, streams, FrontView ──► table: Metric, Metric, ... ──► text.rs, or an exporter
//! ```

#[cfg(feature = "disk-cache")]
use crate::source::disk_cache::DiskCache;
use crate::{Engine, Gauges, Latencies, Stats, Tuning, readahead_state};
use foreread_core::policy::{Limit, Pattern};

/// Maximum number of streams (open file descriptions) in the table; if there are more, the table has those that have read most often.
pub const MAX_STREAMS: usize = 64;
/// Maximum length of a source's name in a label, in characters.
const MAX_NAME: usize = 200;

/// The counters of the front end in use: those of an NBD server or of a mount, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrontView {
    /// Clients connected or files open now.
    pub open: u64,
    /// Clients or files that were ever connected or opened.
    pub opened: u64,
    /// Of these, files read by the kernel (FUSE passthrough): their requests and bytes are not counted.
    pub passed: u64,
    /// Requests answered with data or success.
    pub requests: u64,
    /// Requests refused or failed.
    pub failed_requests: u64,
    /// Bytes of data sent.
    pub bytes: u64,
    /// Bytes that clients have written.
    pub written_bytes: u64,
}

/// The Prometheus type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// The values only grow.
    Counter,
    /// The values go up and down.
    Gauge,
    /// Counts per bucket, which only grow.
    Histogram,
    /// The value is always 1; the labels carry the information.
    Info,
}

/// The unit of a metric; the metric's name ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricUnit {
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// A fraction of 1.
    Ratios,
}

/// One metric with its present values.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// The name, without `foreread_` and the unit.
    pub name: &'static str,
    /// A sentence that describes it.
    pub help: &'static str,
    /// The unit of its values.
    pub unit: Option<MetricUnit>,
    /// How the values behave.
    pub kind: MetricKind,
    /// One point for each set of labels.
    pub points: Vec<MetricPoint>,
}

/// The prefix of all metric names.
pub const PREFIX: &str = "foreread";

/// A value of a metric, with its labels.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricPoint {
    /// Names and values of the labels.
    pub labels: Vec<(&'static str, String)>,
    /// Its current value.
    pub value: MetricValue,
}

/// A value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub enum MetricValue {
    /// A whole number.
    Whole(u64),
    /// Any number.
    Real(f64),
    /// A histogram.
    Buckets(MetricBuckets),
}

impl From<u64> for MetricValue {
    fn from(whole: u64) -> MetricValue {
        MetricValue::Whole(whole)
    }
}

impl From<f64> for MetricValue {
    fn from(real: f64) -> MetricValue {
        MetricValue::Real(real)
    }
}

/// The values of a histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricBuckets {
    /// Sum of all measured values.
    pub sum: f64,
    /// Number of measured values.
    pub count: u64,
    /// For each bucket, its upper bound and the number of values above the previous bound. The last bound is infinite.
    pub buckets: Vec<(f64, u64)>,
}

/// All metrics with their present values.
#[must_use]
pub fn table(engine: &Engine, front: FrontView) -> Vec<Metric> {
    let mut table = Vec::new();
    let labels = vec![
        ("version", env!("CARGO_PKG_VERSION").to_string()),
        ("policy", engine.policy().info.name.to_string()),
    ];
    let help = "The version of foreread, and the policy in use";
    family(&mut table, MetricKind::Info, "build", None, help).point(labels, MetricValue::Whole(1));
    let (stats, gauges) = (engine.stats(), engine.gauges());
    reads_and_readahead(&mut table, &stats);
    held(&mut table, engine, &gauges);
    if let Some(tuning) = &gauges.tuning {
        tuned(&mut table, tuning);
    }
    #[cfg(feature = "disk-cache")]
    if let Some(cache) = engine.disk_cache() {
        disk_cache(&mut table, cache);
    }
    latencies(&mut table, &engine.latencies());
    streams(&mut table, engine);
    clients(&mut table, &front);
    table
}

/// Adds a metric that has no values yet.
fn family<'a>(
    table: &'a mut Vec<Metric>,
    kind: MetricKind,
    name: &'static str,
    unit: Option<MetricUnit>,
    help: &'static str,
) -> &'a mut Metric {
    table.push(Metric {
        name,
        help,
        unit,
        kind,
        points: Vec::new(),
    });
    table.last_mut().expect("it was put there")
}

impl Metric {
    fn point(&mut self, labels: Vec<(&'static str, String)>, value: MetricValue) {
        self.points.push(MetricPoint { labels, value });
    }
}

/// Numbers without labels. Each line has a name, optionally a unit, a value and a help text.
macro_rules! numbers {
    ($table:ident, $kind:ident: $($name:ident $([$unit:ident])? = $value:expr, $help:literal;)*) => {$({
        let unit = None$(.or(Some(MetricUnit::$unit)))?;
        let family = family($table, MetricKind::$kind, stringify!($name), unit, $help);
        family.point(Vec::new(), MetricValue::from($value));
    })*};
}

fn reads(stats: &Stats) -> [(&'static str, u64); 3] {
    [
        ("hit", stats.hits),
        ("late", stats.late_hits),
        ("miss", stats.misses),
    ]
}

fn reads_and_readahead(table: &mut Vec<Metric>, stats: &Stats) {
    let help = "Successful demand reads, by the worst result of any of their pages";
    let by_result = family(table, MetricKind::Counter, "reads", None, help);
    for (result, count) in reads(stats) {
        by_result.point(vec![("result", result.to_string())], count.into());
    }
    let (name, help) = (
        "decisions_by_pattern",
        "Decisions of policies by access pattern; their sum is foreread_decisions",
    );
    let by_pattern = family(table, MetricKind::Counter, name, None, help);
    for pattern in Pattern::ALL {
        let labels = vec![("pattern", pattern.name().to_string())];
        by_pattern.point(labels, stats.decisions.of(pattern).into());
    }
    numbers! { table, Counter:
        decisions = stats.decisions.all(), "Decisions of policies, for all access patterns";
        stall [Seconds] = stats.stall_ns as f64 / 1e9, "Time that demand reads waited for data";
        read [Bytes] = stats.demand_bytes, "Bytes requested by demand reads";
        failed_reads = stats.failed_reads, "Demand reads that failed";
        source_reads = stats.source_reads, "Fetches submitted";
        source_read [Bytes] = stats.source_bytes, "Bytes of the fetches submitted";
        failed_fetches = stats.failed_fetches, "Fetches that failed";
        doomed_fetches = stats.doomed_fetches, "Fetches invalidated in flight";
        windows = stats.ra_planned_ops, "Readahead windows planned by policies";
        planned [Bytes] = stats.ra_planned_bytes, "Bytes that readahead windows cover beyond the read that caused them";
        readahead_fetches = stats.ra_ops, "Fetches that contain readahead";
        readahead [Bytes] = stats.ra_bytes, "Bytes read ahead";
        used [Bytes] = stats.used_bytes, "Bytes read ahead and then read";
        late [Bytes] = stats.late_bytes, "Bytes read ahead that were still in flight when a read needed them";
        unused [Bytes] = stats.unused_bytes, "Bytes read ahead and dropped before they were read";
        refused [Bytes] = stats.ra_refused_bytes, "Bytes that readahead planned but could not fetch, for lack of memory or requests";
        failed_readahead [Bytes] = stats.ra_failed_bytes, "Bytes read ahead whose fetch failed, or that were discarded on arrival";
        thrash [Bytes] = stats.thrash_bytes, "Bytes read ahead, evicted before use, and then needed by a read";
        evicted_pages = stats.evicted_pages, "Pages evicted because the cache was full";
    }
    // Overfetch is (source - read) / read: both parts are exported, so that it can be computed for any time span.
    numbers! { table, Gauge:
        unresolved [Bytes] = stats.unresolved_bytes, "Bytes read ahead and not read yet";
    }
}

fn held(table: &mut Vec<Metric>, engine: &Engine, gauges: &Gauges) {
    // The budget covers all engines of the process.
    let budget = engine.budget();
    let (used, limits) = (budget.usage(), budget.limits());
    numbers! { table, Gauge:
        reads_waiting = gauges.reads, "Demand reads that have not returned";
        fetches_queued = gauges.queued_fetches, "Fetches not started";
        fetches_running = gauges.running_fetches, "Fetches being read";
        threads = gauges.threads, "Worker threads";
        held [Bytes] = gauges.held_bytes, "Memory in buffers";
        spare [Bytes] = gauges.spare_bytes, "Memory of buffers kept for reuse";
        cache_limit [Bytes] = engine.cache_bytes(), "Maximum memory of cached pages";
        cached_pages = gauges.pages, "Pages cached or in flight";
        files = gauges.files, "Files that are open";
        streams = gauges.opens, "Open descriptions";
        budget_memory [Bytes] = used.memory_bytes, "Memory reserved by all engines";
        budget_memory_limit [Bytes] = limits.memory_bytes, "Maximum memory that all engines may reserve";
        budget_requests = used.requests, "Requests in flight, of all engines";
        budget_requests_limit = limits.requests, "Number of requests in flight above which readahead is refused";
        budget_in_flight [Bytes] = used.bytes, "Bytes in flight, of all engines";
        budget_in_flight_limit [Bytes] = limits.bytes, "Number of bytes in flight above which readahead is refused";
    }
    numbers! { table, Counter:
        missed_calls = gauges.missed_calls, "Missed wake-ups of threads, repaired after a timeout (should stay 0)";
        budget_refused_requests = used.refused_requests, "Readahead requests refused by the limits of all engines";
        budget_refused [Bytes] = used.refused_bytes, "Readahead bytes refused by the limits of all engines";
        budget_short_engines = used.short_engines, "Engines that got less memory for their cache than requested";
    }
}

/// Counters of the disk cache for this process, and its total bytes.
#[cfg(feature = "disk-cache")]
fn disk_cache(table: &mut Vec<Metric>, cache: &DiskCache) {
    let counts = cache.counts();
    numbers! { table, Counter:
        disk_cache_hits = counts.hits, "Parts of fetches read from the disk cache";
        disk_cache_hit [Bytes] = counts.hit_bytes, "Bytes read from the disk cache";
        disk_cache_misses = counts.misses, "Parts of fetches that were not in the disk cache, and were requested from the store";
        disk_cache_miss [Bytes] = counts.miss_bytes, "Bytes that were not in the disk cache, and were requested from the store";
        disk_cache_writes = counts.written, "Writes to the disk cache (a write stores adjacent blocks, at most 1 MiB)";
        disk_cache_written [Bytes] = counts.written_bytes, "Bytes written to the disk cache";
        disk_cache_dropped [Bytes] = counts.dropped_bytes, "Bytes not written to the disk cache because the disk did not keep up";
        disk_cache_refused_writes = counts.refused_writes, "Writes to the disk cache that failed or had no space";
        disk_cache_read_errors = counts.read_errors, "Reads of the disk cache that failed";
        disk_cache_wrong_blocks = counts.wrong, "Cached blocks removed because of a wrong checksum";
        disk_cache_evictions = counts.evicted, "Cached object versions, or parts of large ones, removed to free space";
        disk_cache_evicted [Bytes] = counts.evicted_bytes, "Bytes removed from the disk cache to free space";
        disk_cache_passed_over [Bytes] = counts.passed_over_bytes, "Bytes in the disk cache that were read from the store instead, because the store is faster";
        disk_cache_waits = counts.waits, "Fetches that waited for another process to fetch the same bytes";
    }
    numbers! { table, Gauge:
        disk_cache_held [Bytes] = cache.bytes().unwrap_or(0), "Bytes in the disk cache, of all processes";
        disk_cache_limit [Bytes] = cache.settings().size_bytes, "Maximum bytes in the disk cache";
    }
}

/// The settings that a policy has chosen.
fn tuned(table: &mut Vec<Metric>, tuning: &Tuning) {
    numbers! { table, Gauge:
        auto_rate = tuning.rate, "Highest recent rate of the source, in bytes per second";
        auto_distance [Bytes] = tuning.distance_bytes, "Longest readahead distance of any stream";
        auto_distance_limit [Bytes] = tuning.max_distance_bytes, "Maximum readahead distance of one stream";
        auto_request [Bytes] = tuning.request_bytes, "Request length of the stream with the longest distance";
        auto_streams = tuning.streams, "Streams that continued recently";
        auto_wasted [Bytes] = tuning.wasted_bytes, "Bytes read ahead but never used, since the start";
        auto_credit [Bytes] = tuning.credit_bytes, "How many more bytes the policy may waste on readahead that is never used";
        auto_runs = tuning.runs, "Finished sequential runs of reads; older runs have less weight";
        auto_runs_went_on = tuning.runs_went_on, "Finished sequential runs that continued after they were detected";
        auto_latency [Seconds] = tuning.latency_ns as f64 / 1e9, "Latency of the source when it is idle";
        auto_cache_share [Ratios] = tuning.cache_share as f64 / 64.0,
            "Share of the cache's space for readahead that the policy uses; below 1 after reads missed inside its readahead";
    }
    let help = "1 for the current limit of the distance, 0 for the others";
    let limits = family(table, MetricKind::Gauge, "auto_limit", None, help);
    for limit in Limit::ALL {
        let labels = vec![("limit", limit.name().to_string())];
        limits.point(labels, u64::from(limit == tuning.limit).into());
    }
}

fn latencies(table: &mut Vec<Metric>, both: &[Latencies; 2]) {
    let (name, help) = ("source_latency", "Time that a source took for a fetch");
    let seconds = Some(MetricUnit::Seconds);
    let family = family(table, MetricKind::Histogram, name, seconds, help);
    for (class, latencies) in ["demand", "ahead"].into_iter().zip(both) {
        let bound = |ns: u64| {
            if ns == u64::MAX {
                f64::INFINITY
            } else {
                ns as f64 / 1e9
            }
        };
        let buckets = latencies.buckets.iter();
        let buckets = MetricBuckets {
            sum: latencies.sum_ns as f64 / 1e9,
            count: latencies.count(),
            buckets: buckets.map(|&(ns, count)| (bound(ns), count)).collect(),
        };
        family.point(
            vec![("class", class.to_string())],
            MetricValue::Buckets(buckets),
        );
    }
}

/// For each stream: whether readahead has run for it (1 or 0), and why.
fn streams(table: &mut Vec<Metric>, engine: &Engine) {
    let policy = engine.policy().info.name;
    let views = engine.streams(MAX_STREAMS);
    let is_plain = |c: &char| !c.is_control();
    let help = "Whether readahead runs for a stream, and why; for the streams that read most often";
    let states = family(table, MetricKind::Gauge, "stream_readahead", None, help);
    for view in &views {
        let state = readahead_state(policy, &view.stats);
        let source = view.source.chars().filter(is_plain).take(MAX_NAME);
        let labels = vec![
            ("stream", view.number.to_string()),
            ("source", source.collect()),
            ("policy", policy.to_string()),
            ("why", state.why.to_string()),
        ];
        states.point(labels, u64::from(state.on).into());
    }
    let help = "Demand reads of each stream";
    let counts = family(table, MetricKind::Counter, "stream_reads", None, help);
    for view in &views {
        for (result, count) in reads(&view.stats) {
            let labels = vec![
                ("stream", view.number.to_string()),
                ("result", result.to_string()),
            ];
            counts.point(labels, count.into());
        }
    }
}

fn clients(table: &mut Vec<Metric>, front: &FrontView) {
    numbers! { table, Gauge:
        front_open = front.open, "Clients connected or files open now";
    }
    numbers! { table, Counter:
        front_opened = front.opened, "Clients or files that were ever connected or opened";
        front_passed = front.passed, "Opened files that the kernel reads itself (FUSE passthrough)";
        front_requests = front.requests, "Requests answered";
        front_failed_requests = front.failed_requests, "Requests refused or failed";
        front_sent [Bytes] = front.bytes, "Bytes of data sent";
        front_written [Bytes] = front.written_bytes, "Bytes that clients have written";
    }
}
