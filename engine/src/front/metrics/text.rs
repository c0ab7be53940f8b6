//! The metrics of an engine as OpenMetrics text, written by prometheus-client.
//!
//! ```text
//!   table.rs: Metric, Metric, ... ──► prometheus-client ──► text ... # EOF
//! ```

use super::table::{FrontView, Metric, MetricKind, MetricUnit, MetricValue, PREFIX, table};
use crate::Engine;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;

/// All metrics with their present values, as OpenMetrics text.
///
/// # Panics
/// This function never panics, because writing to a string cannot fail.
#[must_use]
pub fn text(engine: &Engine, front: FrontView) -> String {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(Snapshot(table(engine, front))));
    let mut out = String::new();
    prometheus_client::encoding::text::encode(&mut out, &registry)
        .expect("writing to a string never fails");
    out
}

#[derive(Debug)]
struct Snapshot(Vec<Metric>);

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in &self.0 {
            let unit = metric.unit.map(|unit| match unit {
                MetricUnit::Bytes => Unit::Bytes,
                MetricUnit::Seconds => Unit::Seconds,
                MetricUnit::Ratios => Unit::Ratios,
            });
            let kind = match metric.kind {
                MetricKind::Counter => MetricType::Counter,
                MetricKind::Gauge => MetricType::Gauge,
                MetricKind::Histogram => MetricType::Histogram,
                MetricKind::Info => MetricType::Info,
            };
            let mut family =
                encoder.encode_descriptor(metric.name, metric.help, unit.as_ref(), kind)?;
            for point in &metric.points {
                match (metric.kind, &point.labels) {
                    (MetricKind::Info, labels) => family.encode_info(labels)?,
                    (kind, labels) if labels.is_empty() => value(&mut family, kind, &point.value)?,
                    (kind, labels) => {
                        value(&mut family.encode_family(labels)?, kind, &point.value)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn value(row: &mut MetricEncoder<'_>, kind: MetricKind, value: &MetricValue) -> fmt::Result {
    match (kind, value) {
        (MetricKind::Counter, MetricValue::Whole(whole)) => {
            row.encode_counter::<NoLabelSet, _, f64>(whole, None)
        }
        (MetricKind::Counter, MetricValue::Real(real)) => {
            row.encode_counter::<NoLabelSet, _, f64>(real, None)
        }
        (_, MetricValue::Whole(whole)) => row.encode_gauge(whole),
        (_, MetricValue::Real(real)) => row.encode_gauge(real),
        (_, MetricValue::Buckets(all)) => {
            row.encode_histogram::<NoLabelSet>(all.sum, all.count, &all.buckets, None)
        }
    }
}
