//! The counters of an engine as OpenMetrics text.
//!
//! Names begin with `foreread_`; times are in seconds, sizes in bytes; docs/metrics.md lists them all. What a counter means is said once, where it is
//! counted ([`foreread_core::stats::Stats`]). Never: more than [`MAX_STREAMS`] streams, or a value that is not a counter's.
//!
//! ```text
//!   Stats, Gauges, Latencies, BudgetUse, streams, FrontView ──► rows ──► prometheus-client ──► text ... # EOF
//! ```

#[cfg(feature = "disk-cache")]
use crate::source::disk_cache::DiskCache;
use crate::{Engine, Gauges, Latencies, Stats, Tuning, readahead_state};
use foreread_core::policy::{Limit, Pattern};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;

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

/// Everything there is to say now.
///
/// # Panics
/// Never: text is written to memory.
#[must_use]
pub fn text(engine: &Engine, front: FrontView) -> String {
    let mut registry = Registry::with_prefix("foreread");
    let build = Info::new([
        ("version", env!("CARGO_PKG_VERSION")),
        ("policy", engine.policy().info.name),
    ]);
    registry.register(
        "build",
        "The version of foreread, and the policy that runs",
        build,
    );
    registry.register_collector(Box::new(Snapshot {
        engine: engine.clone(),
        front,
    }));
    let mut out = String::new();
    prometheus_client::encoding::text::encode(&mut out, &registry)
        .expect("a string takes whatever is written");
    out
}

struct Snapshot {
    engine: Engine,
    front: FrontView,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Snapshot of {:?}", self.front)
    }
}

/// A number without labels.
struct NumberRow<'a> {
    name: &'a str,
    help: &'a str,
    unit: Option<Unit>,
    value: u64,
}

fn row<'a>(name: &'a str, help: &'a str, unit: Option<Unit>, value: u64) -> NumberRow<'a> {
    NumberRow {
        name,
        help,
        unit,
        value,
    }
}

fn plain(
    encoder: &mut DescriptorEncoder<'_>,
    kind: MetricType,
    rows: &[NumberRow<'_>],
) -> fmt::Result {
    for row in rows {
        let mut metric = encoder.encode_descriptor(row.name, row.help, row.unit.as_ref(), kind)?;
        number(&mut metric, kind, row.value)?;
    }
    Ok(())
}

fn number(row: &mut MetricEncoder<'_>, kind: MetricType, value: u64) -> fmt::Result {
    match kind {
        MetricType::Counter => row.encode_counter::<NoLabelSet, _, f64>(&value, None),
        _ => row.encode_gauge(&value),
    }
}

fn reads(stats: &Stats) -> [(&'static str, u64); 3] {
    [
        ("hit", stats.hits),
        ("late", stats.late_hits),
        ("miss", stats.misses),
    ]
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let stats = self.engine.stats();
        reads_and_readahead(&mut encoder, &stats)?;
        let gauges = self.engine.gauges();
        held(&mut encoder, &self.engine, &gauges)?;
        gauges
            .tuning
            .map_or(Ok(()), |tuning| tuned(&mut encoder, &tuning))?;
        #[cfg(feature = "disk-cache")]
        if let Some(cache) = self.engine.disk_cache() {
            disk_cache(&mut encoder, cache)?;
        }
        latencies(&mut encoder, &self.engine.latencies())?;
        streams(&mut encoder, &self.engine)?;
        let front = &self.front;
        plain(
            &mut encoder,
            MetricType::Gauge,
            &[row(
                "front_open",
                "Clients or files that are open",
                None,
                front.open,
            )],
        )?;
        let bytes = || Some(Unit::Bytes);
        plain(
            &mut encoder,
            MetricType::Counter,
            &[
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
                row("front_sent", "Data sent", bytes(), front.bytes),
            ],
        )
    }
}

fn reads_and_readahead(encoder: &mut DescriptorEncoder<'_>, stats: &Stats) -> fmt::Result {
    let help = "Demand reads that ended well, by the worst that a page of theirs met";
    let mut family = encoder.encode_descriptor("reads", help, None, MetricType::Counter)?;
    for (result, count) in reads(stats) {
        number(
            &mut family.encode_family(&[("result", result)])?,
            MetricType::Counter,
            count,
        )?;
    }
    let help = "Decisions of policies by pattern; their sum is foreread_decisions";
    let mut family =
        encoder.encode_descriptor("decisions_by_pattern", help, None, MetricType::Counter)?;
    for pattern in Pattern::ALL {
        let count = stats.decisions.of(pattern);
        number(
            &mut family.encode_family(&[("pattern", pattern.name())])?,
            MetricType::Counter,
            count,
        )?;
    }
    let mut stall = encoder.encode_descriptor(
        "stall",
        "Time demand reads waited",
        Some(&Unit::Seconds),
        MetricType::Counter,
    )?;
    stall.encode_counter::<NoLabelSet, _, f64>(&(stats.stall_ns as f64 / 1e9), None)?;
    let bytes = || Some(Unit::Bytes);
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
    plain(encoder, MetricType::Counter, &counters)?;
    readahead(encoder, stats)
}

fn readahead(encoder: &mut DescriptorEncoder<'_>, stats: &Stats) -> fmt::Result {
    let bytes = || Some(Unit::Bytes);
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
    plain(encoder, MetricType::Counter, &counters)?;
    // Overfetch is (source - read) / read: both parts are here, so that any time span can be taken.
    let unresolved = [row(
        "unresolved",
        "Read ahead and not read yet",
        bytes(),
        stats.unresolved_bytes,
    )];
    plain(encoder, MetricType::Gauge, &unresolved)
}

fn held(encoder: &mut DescriptorEncoder<'_>, engine: &Engine, gauges: &Gauges) -> fmt::Result {
    let bytes = || Some(Unit::Bytes);
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
    plain(encoder, MetricType::Gauge, &rows)?;
    budget(encoder, engine, gauges)
}

/// Of all engines of the process.
fn budget(encoder: &mut DescriptorEncoder<'_>, engine: &Engine, gauges: &Gauges) -> fmt::Result {
    let budget = engine.budget();
    let (used, limits) = (budget.usage(), budget.limits());
    let bytes = || Some(Unit::Bytes);
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
    plain(encoder, MetricType::Gauge, &rows)?;
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
    plain(encoder, MetricType::Counter, &counters)
}

/// What the cache on disk has done for this process, and the bytes that it has for all.
#[cfg(feature = "disk-cache")]
fn disk_cache(encoder: &mut DescriptorEncoder<'_>, cache: &DiskCache) -> fmt::Result {
    let bytes = || Some(Unit::Bytes);
    let counts = cache.counts();
    let rows = [
        (
            "hits",
            "Parts of fetches read from the disk",
            None,
            counts.hits,
        ),
        ("hit", "Read from the disk", bytes(), counts.hit_bytes),
        (
            "misses",
            "Parts of fetches that the store was asked for",
            None,
            counts.misses,
        ),
        ("miss", "Asked of the store", bytes(), counts.miss_bytes),
        ("written_pieces", "Pieces written", None, counts.written),
        (
            "written",
            "Written to the disk",
            bytes(),
            counts.written_bytes,
        ),
        (
            "dropped",
            "Not written, since the disk did not keep up",
            bytes(),
            counts.dropped_bytes,
        ),
        (
            "refused_writes",
            "Pieces not written: an error, or no room",
            None,
            counts.refused_writes,
        ),
        (
            "read_errors",
            "Pieces that could not be read",
            None,
            counts.read_errors,
        ),
        (
            "wrong_pieces",
            "Pieces with a wrong checksum, removed",
            None,
            counts.wrong,
        ),
        (
            "evicted_pieces",
            "Pieces removed for room",
            None,
            counts.evicted,
        ),
        ("evicted", "Removed for room", bytes(), counts.evicted_bytes),
        (
            "passed_over",
            "On the disk and asked of the store, which is faster",
            bytes(),
            counts.passed_over_bytes,
        ),
        (
            "waits",
            "Fetches that waited for another process",
            None,
            counts.waits,
        ),
    ];
    for (name, help, unit, value) in rows {
        let name = format!("disk_cache_{name}");
        plain(
            encoder,
            MetricType::Counter,
            &[row(&name, help, unit, value)],
        )?;
    }
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
    plain(encoder, MetricType::Gauge, &rows)
}

/// What a policy that sets itself has come to.
fn tuned(encoder: &mut DescriptorEncoder<'_>, tuning: &Tuning) -> fmt::Result {
    let bytes = || Some(Unit::Bytes);
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
    plain(encoder, MetricType::Gauge, &rows)?;
    let help = "Latency of the source while it is idle";
    let mut latency = encoder.encode_descriptor(
        "auto_latency",
        help,
        Some(&Unit::Seconds),
        MetricType::Gauge,
    )?;
    latency.encode_gauge(&(tuning.latency_ns as f64 / 1e9))?;
    let help = "Part of the cache's room for readahead that is used; below 1 after readahead was evicted unread";
    let mut share = encoder.encode_descriptor(
        "auto_cache_share",
        help,
        Some(&Unit::Ratios),
        MetricType::Gauge,
    )?;
    share.encode_gauge(&(tuning.cache_share as f64 / 64.0))?;
    let help = "1 for what limits the distance, 0 for the others";
    let mut family = encoder.encode_descriptor("auto_limit", help, None, MetricType::Gauge)?;
    for limit in Limit::ALL {
        family
            .encode_family(&[("limit", limit.name())])?
            .encode_gauge(&u64::from(limit == tuning.limit))?;
    }
    Ok(())
}

fn latencies(encoder: &mut DescriptorEncoder<'_>, both: &[Latencies; 2]) -> fmt::Result {
    let help = "Time a source took for a fetch";
    let mut family = encoder.encode_descriptor(
        "source_latency",
        help,
        Some(&Unit::Seconds),
        MetricType::Histogram,
    )?;
    for (class, latencies) in ["demand", "ahead"].into_iter().zip(both) {
        let bound = |ns: u64| {
            if ns == u64::MAX {
                f64::INFINITY
            } else {
                ns as f64 / 1e9
            }
        };
        let buckets: Vec<(f64, u64)> = latencies
            .buckets
            .iter()
            .map(|&(ns, count)| (bound(ns), count))
            .collect();
        let (sum, count) = (latencies.sum_ns as f64 / 1e9, latencies.count());
        let labels = [("class", class)];
        let mut row = family.encode_family(&labels)?;
        row.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
    }
    Ok(())
}

/// For each stream: 1 where readahead has run for it, else 0, and why.
fn streams(encoder: &mut DescriptorEncoder<'_>, engine: &Engine) -> fmt::Result {
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
    let mut family =
        encoder.encode_descriptor("stream_readahead", help, None, MetricType::Gauge)?;
    for view in &views {
        let state = readahead_state(policy, &view.stats);
        let (number, source) = (view.number.to_string(), name(&view.source));
        let labels = [
            ("stream", number.as_str()),
            ("source", source.as_str()),
            ("policy", policy),
            ("why", state.why),
        ];
        family
            .encode_family(&labels)?
            .encode_gauge(&u64::from(state.on))?;
    }
    let mut family = encoder.encode_descriptor(
        "stream_reads",
        "Demand reads of a stream",
        None,
        MetricType::Counter,
    )?;
    for view in &views {
        for (result, count) in reads(&view.stats) {
            let labels = [
                ("stream", view.number.to_string()),
                ("result", result.to_string()),
            ];
            number(
                &mut family.encode_family(&labels)?,
                MetricType::Counter,
                count,
            )?;
        }
    }
    Ok(())
}
