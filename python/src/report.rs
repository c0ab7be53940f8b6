//! Converts the counters of a file or an engine to a Python dict and to text.
//!
//! The keys of the dict are the field names of `foreread_core::stats::Stats`, which defines each counter. The last word
//! of a key is its unit (`bytes`, `ns`); a key without a unit counts events. The dict of a file omits counters of events that are not
//! caused by a single file.

use foreread::policy::{Limit, Tuning};
use foreread::{Reader, Stats, readahead_state, why_no_readahead};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::fmt::Write;

/// Whether counters belong to one file or to an engine.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Of {
    File,
    Engine,
}

/// Counters that no single file causes.
const OF_ENGINE: [&str; 7] = [
    "source_reads",
    "source_bytes",
    "failed_fetches",
    "doomed_fetches",
    "unresolved_bytes",
    "thrash_bytes",
    "evicted_pages",
];

/// Returns the counters as a dict, summed over several readers.
pub fn counters<'py>(py: Python<'py>, stats: &[Stats], of: Of) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let mut sums = Stats::default().counters();
    for one in stats {
        for (sum, (_, value)) in sums.iter_mut().zip(one.counters()) {
            sum.1 = sum.1.saturating_add(value);
        }
    }
    for (name, value) in sums {
        if of == Of::Engine || !OF_ENGINE.contains(&name) {
            dict.set_item(name, value)?;
        }
    }
    Ok(dict)
}

/// Bytes as text for users: in kilobytes below 0.1 MB, otherwise in megabytes.
fn amount(bytes: u64) -> String {
    match bytes {
        0..1000 => format!("{bytes} bytes"),
        1000..100_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

/// Returns a text that says what readahead does for the open file with this name, and why.
pub fn explain(reader: &Reader, shown: &str) -> String {
    let (policy, stats) = (reader.policy().to_string(), reader.own_stats());
    let name = reader.policy().info.name;
    let state = readahead_state(name, &stats);
    let mut text = format!("{shown}: policy {policy}\n");
    let on = if state.on { "on" } else { "off" };
    let _ = writeln!(text, "readahead is {on}: {}", state.why);
    if let Some(why) = why_no_readahead(name, &reader.stats()) {
        let _ = writeln!(text, "readahead is off for all files of this cache: {why}");
    }
    if stats.demand_reads > 0 {
        reads(&mut text, &stats);
    }
    if stats.ra_ops > 0 {
        let _ = writeln!(
            text,
            "read ahead {}, of which {} were used and {} dropped unused",
            amount(stats.ra_bytes),
            amount(stats.used_bytes),
            amount(stats.unused_bytes)
        );
    }
    if let Some(tuning) = reader.engine().gauges().tuning {
        measured(&mut text, &tuning, stats.ra_ops > 0);
    }
    text
}

/// The number of reads, and how many of them waited.
fn reads(text: &mut String, stats: &Stats) {
    let part = |of: u64| 100.0 * of as f64 / stats.demand_reads as f64;
    let (hits, late, missed) = (part(stats.hits), part(stats.late_hits), part(stats.misses));
    let of = match stats.demand_reads {
        1 => "1 read".to_string(),
        many => format!("{many} reads"),
    };
    let _ = write!(
        text,
        "{of} of {} in all: {hits:.0} % found all bytes cached, {late:.0} % waited for readahead in flight, {missed:.0} % had to fetch",
        amount(stats.demand_bytes)
    );
    if stats.failed_reads > 0 {
        let _ = write!(text, ", {:.0} % failed", part(stats.failed_reads));
    }
    let _ = writeln!(
        text,
        "; they waited {:.3} s in all",
        stats.stall_ns as f64 / 1e9
    );
}

/// What `auto` has measured of the storage, and how far it reads ahead in this file.
fn measured(text: &mut String, tuning: &Tuning, was_ahead: bool) {
    let latency = tuning.latency_ns as f64 / 1e6;
    let rate = tuning.rate as f64 / 1e6;
    let mut known = Vec::new();
    if tuning.latency_ns > 0 {
        known.push(format!("answers after {latency:.1} ms"));
    }
    if tuning.rate > 0 {
        known.push(format!("delivers {rate:.0} MB/s"));
    }
    if !known.is_empty() {
        let known = known.join(", and ");
        let _ = writeln!(text, "measured: the storage {known}");
    }
    if was_ahead && tuning.limit != Limit::Idle {
        let _ = writeln!(
            text,
            "now: up to {} ahead; {}",
            amount(tuning.distance_bytes),
            tuning.limit.words()
        );
    }
}
