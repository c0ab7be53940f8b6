//! The metrics of an engine as values: one table for the page that a Prometheus reads and for what is sent by OTLP.
//!
//! Names are without `foreread_` and without their unit; docs/metrics.md lists them all in full. What a counter means is said once, where it is
//! counted ([`foreread_core::stats::Stats`]). Never: more than [`MAX_STREAMS`] streams, or a value that is not a counter's.
//!
//! ```text
//!   Stats, Gauges, Latencies, BudgetUse, streams, FrontView ──► table: Metric, Metric, ... ──► text.rs, or an exporter
//! ```

#[cfg(feature = "disk-cache")]
use crate::source::disk_cache::DiskCache;
use crate::{Engine, Gauges, Latencies, Stats, Tuning, readahead_state};
use foreread_core::policy::{Limit, Pattern};

/// Streams that are shown: those that have read most often.
pub const MAX_STREAMS: usize = 64;
/// Characters of a source's name in a label.
const MAX_NAME: usize = 200;

/// What a front end says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrontView {
    /// Clients that are connected, or files that are open.
    pub open: u64,
    /// Clients or files that ever were.
    pub opened: u64,
    /// Requests answered with data or success.
    pub requests: u64,
    /// Requests refused or failed.
    pub failed_requests: u64,
    /// Bytes of data sent.
    pub bytes: u64,
}

/// How the values of a metric behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// They only grow.
    Counter,
    /// They go up and down.
    Gauge,
    /// Counts by buckets that only grow.
    Histogram,
    /// Always 1; the labels say something.
    Info,
}

/// What the values of a metric are measured in; the end of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricUnit {
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// A part of 1.
    Ratios,
}

impl MetricUnit {
    /// The end of a name.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            MetricUnit::Bytes => "bytes",
            MetricUnit::Seconds => "seconds",
            MetricUnit::Ratios => "ratios",
        }
    }
}

/// One metric and its values now.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Without `foreread_` and the unit.
    pub name: &'static str,
    /// What it is, in a sentence.
    pub help: &'static str,
    /// What its values are measured in.
    pub unit: Option<MetricUnit>,
    /// How they behave.
    pub kind: MetricKind,
    /// One for each set of labels.
    pub points: Vec<MetricPoint>,
}

impl Metric {
    /// Its name as docs/metrics.md has it.
    #[must_use]
    pub fn full_name(&self) -> String {
        let Metric { name, unit, .. } = self;
        let end = unit.map_or(String::new(), |unit| format!("_{}", unit.suffix()));
        format!("{PREFIX}_{name}{end}")
    }
}

/// What every name begins with.
pub const PREFIX: &str = "foreread";

/// A value and its labels.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricPoint {
    /// Names and values.
    pub labels: Vec<(&'static str, String)>,
    /// What it is now.
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

/// The values of a histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricBuckets {
    /// Of all that was measured.
    pub sum: f64,
    /// How many there were.
    pub count: u64,
    /// Upper bounds, the last one infinite, and how many were in each and in none before it.
    pub buckets: Vec<(f64, u64)>,
}

/// Everything there is to say now.
#[must_use]
pub fn table(engine: &Engine, front: FrontView) -> Vec<Metric> {
    let mut table = MetricTable(Vec::new());
    let labels = vec![
        ("version", env!("CARGO_PKG_VERSION").to_string()),
        ("policy", engine.policy().info.name.to_string()),
    ];
    table
        .family(
            MetricKind::Info,
            row(
                "build",
                "The version of foreread, and the policy that runs",
                None,
                1,
            ),
        )
        .point(labels, MetricValue::Whole(1));
    reads_and_readahead(&mut table, &engine.stats());
    let gauges = engine.gauges();
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
    table.0
}

struct MetricTable(Vec<Metric>);

impl MetricTable {
    /// Numbers without labels.
    fn plain(&mut self, kind: MetricKind, rows: &[NumberRow]) {
        for &row in rows {
            self.family(kind, row)
                .point(Vec::new(), MetricValue::Whole(row.value));
        }
    }

    /// A metric without values so far.
    fn family(&mut self, kind: MetricKind, row: NumberRow) -> &mut Metric {
        let NumberRow {
            name, help, unit, ..
        } = row;
        let points = Vec::new();
        self.0.push(Metric {
            name,
            help,
            unit,
            kind,
            points,
        });
        self.0.last_mut().expect("it was put there")
    }
}

impl Metric {
    fn point(&mut self, labels: Vec<(&'static str, String)>, value: MetricValue) {
        self.points.push(MetricPoint { labels, value });
    }
}

/// A number without labels.
#[derive(Clone, Copy)]
struct NumberRow {
    name: &'static str,
    help: &'static str,
    unit: Option<MetricUnit>,
    value: u64,
}

fn row(name: &'static str, help: &'static str, unit: Option<MetricUnit>, value: u64) -> NumberRow {
    NumberRow {
        name,
        help,
        unit,
        value,
    }
}

/// The head of a family, whose values have labels.
fn head(name: &'static str, help: &'static str, unit: Option<MetricUnit>) -> NumberRow {
    row(name, help, unit, 0)
}

fn reads(stats: &Stats) -> [(&'static str, u64); 3] {
    [
        ("hit", stats.hits),
        ("late", stats.late_hits),
        ("miss", stats.misses),
    ]
}

fn reads_and_readahead(table: &mut MetricTable, stats: &Stats) {
    let help = "Demand reads that ended well, by the worst that a page of theirs met";
    let family = table.family(MetricKind::Counter, head("reads", help, None));
    for (result, count) in reads(stats) {
        family.point(
            vec![("result", result.to_string())],
            MetricValue::Whole(count),
        );
    }
    let help = "Decisions of policies by pattern; their sum is foreread_decisions";
    let family = table.family(
        MetricKind::Counter,
        head("decisions_by_pattern", help, None),
    );
    for pattern in Pattern::ALL {
        let count = MetricValue::Whole(stats.decisions.of(pattern));
        family.point(vec![("pattern", pattern.name().to_string())], count);
    }
    let help = "Time demand reads waited";
    table
        .family(
            MetricKind::Counter,
            head("stall", help, Some(MetricUnit::Seconds)),
        )
        .point(Vec::new(), MetricValue::Real(stats.stall_ns as f64 / 1e9));
    let bytes = || Some(MetricUnit::Bytes);
    let counters = [
        row(
            "read",
            "Asked for by demand reads",
            bytes(),
            stats.demand_bytes,
        ),
        row(
            "failed_reads",
            "Demand reads that failed",
            None,
            stats.failed_reads,
        ),
        row(
            "source_reads",
            "Fetches submitted",
            None,
            stats.source_reads,
        ),
        row(
            "source_read",
            "Submitted to sources",
            bytes(),
            stats.source_bytes,
        ),
        row(
            "failed_fetches",
            "Fetches that failed",
            None,
            stats.failed_fetches,
        ),
        row(
            "doomed_fetches",
            "Fetches invalidated in flight",
            None,
            stats.doomed_fetches,
        ),
        row(
            "decisions",
            "Decisions of policies, of all patterns",
            None,
            stats.decisions.all(),
        ),
    ];
    table.plain(MetricKind::Counter, &counters);
    readahead(table, stats);
}

fn readahead(table: &mut MetricTable, stats: &Stats) {
    let bytes = || Some(MetricUnit::Bytes);
    let counters = [
        row(
            "windows",
            "Windows a policy asked for",
            None,
            stats.ra_planned_ops,
        ),
        row(
            "planned",
            "Planned beyond the reads",
            bytes(),
            stats.ra_planned_bytes,
        ),
        row(
            "readahead_fetches",
            "Fetches with readahead",
            None,
            stats.ra_ops,
        ),
        row("readahead", "Read ahead", bytes(), stats.ra_bytes),
        row(
            "used",
            "Read ahead and then read",
            bytes(),
            stats.used_bytes,
        ),
        row(
            "late",
            "Of the used, in flight when read",
            bytes(),
            stats.late_bytes,
        ),
        row(
            "unused",
            "Read ahead, gone before it was read",
            bytes(),
            stats.unused_bytes,
        ),
        row(
            "refused",
            "Planned and refused",
            bytes(),
            stats.ra_refused_bytes,
        ),
        row(
            "failed_readahead",
            "Read ahead and failed or discarded",
            bytes(),
            stats.ra_failed_bytes,
        ),
        row(
            "thrash",
            "Unused, evicted and then read after all",
            bytes(),
            stats.thrash_bytes,
        ),
        row(
            "evicted_pages",
            "Pages evicted for lack of room",
            None,
            stats.evicted_pages,
        ),
    ];
    table.plain(MetricKind::Counter, &counters);
    // Overfetch is (source - read) / read: both parts are here, so that any time span can be taken.
    let unresolved = [row(
        "unresolved",
        "Read ahead and not read yet",
        bytes(),
        stats.unresolved_bytes,
    )];
    table.plain(MetricKind::Gauge, &unresolved);
}

fn held(table: &mut MetricTable, engine: &Engine, gauges: &Gauges) {
    let bytes = || Some(MetricUnit::Bytes);
    let rows = [
        row(
            "reads_waiting",
            "Demand reads that have not returned",
            None,
            gauges.reads,
        ),
        row(
            "fetches_queued",
            "Fetches not begun",
            None,
            gauges.queued_fetches,
        ),
        row(
            "fetches_running",
            "Fetches being read",
            None,
            gauges.running_fetches,
        ),
        row("threads", "Worker threads", None, gauges.threads),
        row("held", "Memory in buffers", bytes(), gauges.held_bytes),
        row(
            "spare",
            "Memory kept to be used again",
            bytes(),
            gauges.spare_bytes,
        ),
        row(
            "cache_limit",
            "Memory of pages there may be",
            bytes(),
            engine.cache_bytes(),
        ),
        row(
            "cached_pages",
            "Pages present or in flight",
            None,
            gauges.pages,
        ),
        row("files", "Files that are open", None, gauges.files),
        row("streams", "Open descriptions", None, gauges.opens),
    ];
    table.plain(MetricKind::Gauge, &rows);
    budget(table, engine, gauges);
}

/// Of all engines of the process.
fn budget(table: &mut MetricTable, engine: &Engine, gauges: &Gauges) {
    let budget = engine.budget();
    let (used, limits) = (budget.usage(), budget.limits());
    let bytes = || Some(MetricUnit::Bytes);
    let rows = [
        row(
            "budget_memory",
            "Reserved by all engines",
            bytes(),
            used.memory_bytes,
        ),
        row(
            "budget_memory_limit",
            "That they may reserve",
            bytes(),
            limits.memory_bytes,
        ),
        row(
            "budget_requests",
            "Requests of all engines in flight",
            None,
            used.requests,
        ),
        row(
            "budget_requests_limit",
            "Above which readahead is refused",
            None,
            limits.requests,
        ),
        row(
            "budget_in_flight",
            "Of all engines, in flight",
            bytes(),
            used.bytes,
        ),
        row(
            "budget_in_flight_limit",
            "Above which readahead is refused",
            bytes(),
            limits.bytes,
        ),
    ];
    table.plain(MetricKind::Gauge, &rows);
    let counters = [
        row(
            "missed_calls",
            "Lost wake-ups recovered (should stay 0)",
            None,
            gauges.missed_calls,
        ),
        row(
            "budget_refused_requests",
            "Readahead refused by the budget",
            None,
            used.refused_requests,
        ),
        row(
            "budget_refused",
            "Readahead refused by the budget",
            bytes(),
            used.refused_bytes,
        ),
        row(
            "budget_short_engines",
            "Engines that got less memory than they wanted",
            None,
            used.short_engines,
        ),
    ];
    table.plain(MetricKind::Counter, &counters);
}

/// What the cache on disk has done for this process, and the bytes that it has for all.
#[cfg(feature = "disk-cache")]
fn disk_cache(table: &mut MetricTable, cache: &DiskCache) {
    let bytes = || Some(MetricUnit::Bytes);
    let counts = cache.counts();
    let rows = [
        row(
            "disk_cache_hits",
            "Parts of fetches read from the disk",
            None,
            counts.hits,
        ),
        row(
            "disk_cache_hit",
            "Read from the disk",
            bytes(),
            counts.hit_bytes,
        ),
        row(
            "disk_cache_misses",
            "Parts of fetches that the store was asked for",
            None,
            counts.misses,
        ),
        row(
            "disk_cache_miss",
            "Asked of the store",
            bytes(),
            counts.miss_bytes,
        ),
        row(
            "disk_cache_written_pieces",
            "Pieces written",
            None,
            counts.written,
        ),
        row(
            "disk_cache_written",
            "Written to the disk",
            bytes(),
            counts.written_bytes,
        ),
        row(
            "disk_cache_dropped",
            "Not written, since the disk did not keep up",
            bytes(),
            counts.dropped_bytes,
        ),
        row(
            "disk_cache_refused_writes",
            "Pieces not written: an error, or no room",
            None,
            counts.refused_writes,
        ),
        row(
            "disk_cache_read_errors",
            "Pieces that could not be read",
            None,
            counts.read_errors,
        ),
        row(
            "disk_cache_wrong_pieces",
            "Pieces with a wrong checksum, removed",
            None,
            counts.wrong,
        ),
        row(
            "disk_cache_evicted_pieces",
            "Pieces removed for room",
            None,
            counts.evicted,
        ),
        row(
            "disk_cache_evicted",
            "Removed for room",
            bytes(),
            counts.evicted_bytes,
        ),
        row(
            "disk_cache_passed_over",
            "On the disk and asked of the store, which is faster",
            bytes(),
            counts.passed_over_bytes,
        ),
        row(
            "disk_cache_waits",
            "Fetches that waited for another process",
            None,
            counts.waits,
        ),
    ];
    table.plain(MetricKind::Counter, &rows);
    disk_cache_room(table, cache);
}

#[cfg(feature = "disk-cache")]
fn disk_cache_room(table: &mut MetricTable, cache: &DiskCache) {
    let bytes = || Some(MetricUnit::Bytes);
    let held = cache.bytes().unwrap_or(0);
    let limit = cache.settings().size_bytes;
    let rows = [
        row(
            "disk_cache_held",
            "Pieces on the disk, of all processes",
            bytes(),
            held,
        ),
        row("disk_cache_limit", "That pieces may have", bytes(), limit),
    ];
    table.plain(MetricKind::Gauge, &rows);
}

/// What a policy that sets itself has come to.
fn tuned(table: &mut MetricTable, tuning: &Tuning) {
    let bytes = || Some(MetricUnit::Bytes);
    let rows = [
        row(
            "auto_rate",
            "Greatest rate of the source lately, in bytes a second",
            None,
            tuning.rate,
        ),
        row(
            "auto_distance",
            "How far the farthest stream reads ahead",
            bytes(),
            tuning.distance_bytes,
        ),
        row(
            "auto_distance_limit",
            "How far one stream may read ahead",
            bytes(),
            tuning.max_distance_bytes,
        ),
        row(
            "auto_request",
            "Length of a request of the farthest stream",
            bytes(),
            tuning.request_bytes,
        ),
        row(
            "auto_streams",
            "Streams that went on lately",
            None,
            tuning.streams,
        ),
        row(
            "auto_wasted",
            "Readahead wasted since the start",
            bytes(),
            tuning.wasted_bytes,
        ),
        row(
            "auto_credit",
            "Readahead that may be expected to be wasted now",
            bytes(),
            tuning.credit_bytes,
        ),
        row(
            "auto_runs",
            "Runs that are over, the older ones forgotten",
            None,
            tuning.runs,
        ),
        row(
            "auto_runs_went_on",
            "Of these, runs that went on after they were found",
            None,
            tuning.runs_went_on,
        ),
    ];
    table.plain(MetricKind::Gauge, &rows);
    let help = "Latency of the source while it is idle";
    table
        .family(
            MetricKind::Gauge,
            head("auto_latency", help, Some(MetricUnit::Seconds)),
        )
        .point(
            Vec::new(),
            MetricValue::Real(tuning.latency_ns as f64 / 1e9),
        );
    let help = "Part of the cache's room for readahead that is used; below 1 after readahead was evicted unread";
    table
        .family(
            MetricKind::Gauge,
            head("auto_cache_share", help, Some(MetricUnit::Ratios)),
        )
        .point(
            Vec::new(),
            MetricValue::Real(tuning.cache_share as f64 / 64.0),
        );
    let help = "1 for what limits the distance, 0 for the others";
    let family = table.family(MetricKind::Gauge, head("auto_limit", help, None));
    for limit in Limit::ALL {
        let is_it = MetricValue::Whole(u64::from(limit == tuning.limit));
        family.point(vec![("limit", limit.name().to_string())], is_it);
    }
}

fn latencies(table: &mut MetricTable, both: &[Latencies; 2]) {
    let help = "Time a source took for a fetch";
    let family = table.family(
        MetricKind::Histogram,
        head("source_latency", help, Some(MetricUnit::Seconds)),
    );
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

/// For each stream: 1 where readahead has run for it, else 0, and why.
fn streams(table: &mut MetricTable, engine: &Engine) {
    let policy = engine.policy().info.name;
    let views = engine.streams(MAX_STREAMS);
    let name = |source: &str| {
        source
            .chars()
            .filter(|c| !c.is_control())
            .take(MAX_NAME)
            .collect::<String>()
    };
    let help = "Whether readahead runs for a stream, and why; of those that read most often";
    let family = table.family(MetricKind::Gauge, head("stream_readahead", help, None));
    for view in &views {
        let state = readahead_state(policy, &view.stats);
        let labels = vec![
            ("stream", view.number.to_string()),
            ("source", name(&view.source)),
            ("policy", policy.to_string()),
            ("why", state.why.to_string()),
        ];
        family.point(labels, MetricValue::Whole(u64::from(state.on)));
    }
    let help = "Demand reads of a stream";
    let family = table.family(MetricKind::Counter, head("stream_reads", help, None));
    for view in &views {
        for (result, count) in reads(&view.stats) {
            let labels = vec![
                ("stream", view.number.to_string()),
                ("result", result.to_string()),
            ];
            family.point(labels, MetricValue::Whole(count));
        }
    }
}

fn clients(table: &mut MetricTable, front: &FrontView) {
    let open = row(
        "front_open",
        "Clients or files that are open",
        None,
        front.open,
    );
    table.plain(MetricKind::Gauge, &[open]);
    let rows = [
        row(
            "front_opened",
            "Clients or files that ever were open",
            None,
            front.opened,
        ),
        row("front_requests", "Requests answered", None, front.requests),
        row(
            "front_failed_requests",
            "Requests refused or failed",
            None,
            front.failed_requests,
        ),
        row(
            "front_sent",
            "Data sent",
            Some(MetricUnit::Bytes),
            front.bytes,
        ),
    ];
    table.plain(MetricKind::Counter, &rows);
}
