//! Counters as a dict, and in words.
//!
//! The keys are those of `foreread_core::stats::Stats`, where each is defined; the last word of a key is its unit (`bytes`,
//! `ns`), and a key without one counts events. A key that one file has no part in is left out for a file.

use foreread::{Reader, Stats, readahead_state, why_no_readahead};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::fmt::Write;

/// Whose counters they are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Of {
    File,
    Engine,
}

/// Each counter and its name.
fn named(s: &Stats, of: Of) -> Vec<(&'static str, u64)> {
    let mut all = vec![
        ("demand_reads", s.demand_reads),
        ("demand_bytes", s.demand_bytes),
        ("hits", s.hits),
        ("late_hits", s.late_hits),
        ("misses", s.misses),
        ("failed_reads", s.failed_reads),
        ("stall_ns", s.stall_ns),
        ("ra_ops", s.ra_ops),
        ("ra_bytes", s.ra_bytes),
        ("used_bytes", s.used_bytes),
        ("unused_bytes", s.unused_bytes),
        ("ra_failed_bytes", s.ra_failed_bytes),
        ("ra_refused_bytes", s.ra_refused_bytes),
    ];
    if of == Of::Engine {
        all.extend([
            ("source_reads", s.source_reads),
            ("source_bytes", s.source_bytes),
            ("failed_fetches", s.failed_fetches),
            ("unresolved_bytes", s.unresolved_bytes),
            ("evicted_pages", s.evicted_pages),
        ]);
    }
    all
}

/// The counters as a dict, those of several readers added.
///
/// # Errors
/// There is no memory.
pub fn counters<'py>(py: Python<'py>, stats: &[Stats], of: Of) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let mut sums: Vec<(&str, u64)> = named(&Stats::default(), of);
    for one in stats {
        sums.iter_mut()
            .zip(named(one, of))
            .for_each(|(sum, (_, value))| sum.1 = sum.1.saturating_add(value));
    }
    sums.into_iter()
        .try_for_each(|(name, value)| dict.set_item(name, value))?;
    Ok(dict)
}

/// What readahead does for an open file, and why.
pub fn explain(reader: &Reader) -> String {
    let (policy, stats) = (reader.policy().to_string(), reader.own_stats());
    let name = reader.policy().info.name;
    let state = readahead_state(name, &stats);
    let mut text = format!("{}: policy {policy}\n", reader.describe());
    let on = if state.on { "on" } else { "off" };
    let _ = writeln!(text, "readahead is {on}: {}", state.why);
    if let Some(why) = why_no_readahead(name, &reader.stats()) {
        let _ = writeln!(text, "none of the files of this cache is read ahead: {why}");
    }
    let part = |of: u64| {
        if stats.demand_reads == 0 {
            0.0
        } else {
            100.0 * of as f64 / stats.demand_reads as f64
        }
    };
    let (hits, late, missed) = (part(stats.hits), part(stats.late_hits), part(stats.misses));
    let _ = writeln!(
        text,
        "{} reads of {:.1} MB: {hits:.0} % hits, {late:.0} % late hits, {missed:.0} % misses; they waited {:.3} s",
        stats.demand_reads,
        stats.demand_bytes as f64 / 1e6,
        stats.stall_ns as f64 / 1e9
    );
    let _ = writeln!(
        text,
        "read ahead {:.1} MB, of which {:.1} MB were used and {:.1} MB dropped unused",
        stats.ra_bytes as f64 / 1e6,
        stats.used_bytes as f64 / 1e6,
        stats.unused_bytes as f64 / 1e6
    );
    if let Some(tuning) = reader.gauges().tuning {
        let _ = writeln!(
            text,
            "measured: latency {:.3} ms, rate {:.1} MB/s; reads up to {:.1} MB ahead, {}",
            tuning.latency_ns as f64 / 1e6,
            tuning.rate as f64 / 1e6,
            tuning.distance_bytes as f64 / 1e6,
            tuning.limit.words()
        );
    }
    text
}
