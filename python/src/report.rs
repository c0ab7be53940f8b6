//! Counters as a dict, and in words.
//!
//! The keys are those of `foreread_core::stats::Stats`, where each is defined; the last word of a key is its unit (`bytes`,
//! `ns`), and a key without one counts events. A key that one file has no part in is left out for a file.

use foreread::policy::{Limit, Tuning};
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

/// Bytes as people read them: of less than a tenth of a megabyte, kilobytes.
fn amount(bytes: u64) -> String {
    match bytes {
        0..1000 => format!("{bytes} bytes"),
        1000..100_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

/// What readahead does for an open file of this name, and why.
pub fn explain(reader: &Reader, shown: &str) -> String {
    let (policy, stats) = (reader.policy().to_string(), reader.own_stats());
    let name = reader.policy().info.name;
    let state = readahead_state(name, &stats);
    let mut text = format!("{shown}: policy {policy}\n");
    let on = if state.on { "on" } else { "off" };
    let _ = writeln!(text, "readahead is {on}: {}", state.why);
    if let Some(why) = why_no_readahead(name, &reader.stats()) {
        let _ = writeln!(text, "none of the files of this cache is read ahead: {why}");
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
    if let Some(tuning) = reader.gauges().tuning {
        measured(&mut text, &tuning, stats.ra_ops > 0);
    }
    text
}

/// Reads, and how many of them waited.
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

/// What `auto` has measured of the storage, as far as it has; and how far it reads ahead, where it did so for this file.
fn measured(text: &mut String, tuning: &Tuning, was_ahead: bool) {
    let latency = tuning.latency_ns as f64 / 1e6;
    let rate = tuning.rate as f64 / 1e6;
    let known = match (tuning.latency_ns, tuning.rate) {
        (0, 0) => None,
        (_, 0) => Some(format!("answers after {latency:.1} ms")),
        (0, _) => Some(format!("delivers {rate:.0} MB/s")),
        _ => Some(format!(
            "answers after {latency:.1} ms, and delivers {rate:.0} MB/s"
        )),
    };
    if let Some(known) = known {
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
