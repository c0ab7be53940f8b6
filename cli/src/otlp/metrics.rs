//! The table of metrics as a message of OTLP: the names of docs/metrics.md, cumulative.

use super::message::{
    CUMULATIVE, GaugeMessage, HistogramMessage, HistogramPoint, KeyValue, MetricData,
    MetricMessage, MetricsRequest, NumberPoint, OneValue, PointValue, ResourceMetrics,
    ScopeMetrics, SumMessage, attribute, resource, scope,
};
use foreread::front::metrics::{Metric, MetricKind, MetricPoint, MetricUnit, MetricValue};

/// When counting began, and now, in nanoseconds of Unix time.
#[derive(Clone, Copy, Debug)]
pub struct TimeSpan {
    pub start_ns: u64,
    pub now_ns: u64,
}

pub fn request(table: &[Metric], pairs: &[(String, String)], time: TimeSpan) -> MetricsRequest {
    let filled = table.iter().filter(|metric| !metric.points.is_empty());
    MetricsRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(resource(pairs)),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(scope()),
                metrics: filled.map(|metric| message(metric, time)).collect(),
            }],
        }],
    }
}

fn message(metric: &Metric, time: TimeSpan) -> MetricMessage {
    let unit = match metric.unit {
        Some(MetricUnit::Bytes) => "By",
        Some(MetricUnit::Seconds) => "s",
        Some(MetricUnit::Ratios) => "1",
        None => "",
    };
    let numbers = || {
        metric
            .points
            .iter()
            .map(|point| number(point, time))
            .collect()
    };
    let data = match metric.kind {
        MetricKind::Counter => MetricData::Sum(SumMessage {
            data_points: numbers(),
            aggregation_temporality: CUMULATIVE,
            is_monotonic: true,
        }),
        MetricKind::Gauge | MetricKind::Info => MetricData::Gauge(GaugeMessage {
            data_points: numbers(),
        }),
        MetricKind::Histogram => MetricData::Histogram(HistogramMessage {
            data_points: metric
                .points
                .iter()
                .map(|point| buckets(point, time))
                .collect(),
            aggregation_temporality: CUMULATIVE,
        }),
    };
    // As the page has it: OTLP has no kind for an info.
    let end = if metric.kind == MetricKind::Info {
        "_info"
    } else {
        ""
    };
    MetricMessage {
        name: metric.full_name() + end,
        description: metric.help.to_string(),
        unit: unit.to_string(),
        data: Some(data),
    }
}

fn labels(point: &MetricPoint) -> Vec<KeyValue> {
    let text = |(key, value): &(&str, String)| attribute(*key, OneValue::Text(value.clone()));
    point.labels.iter().map(text).collect()
}

fn number(point: &MetricPoint, time: TimeSpan) -> NumberPoint {
    let value = match point.value {
        MetricValue::Whole(whole) => i64::try_from(whole).ok().map(PointValue::Whole),
        MetricValue::Real(real) => Some(PointValue::Real(real)),
        MetricValue::Buckets(_) => None,
    };
    NumberPoint {
        start_time_unix_nano: time.start_ns,
        time_unix_nano: time.now_ns,
        value,
        attributes: labels(point),
    }
}

fn buckets(point: &MetricPoint, time: TimeSpan) -> HistogramPoint {
    let MetricValue::Buckets(all) = &point.value else {
        return HistogramPoint::default();
    };
    let bounds = all.buckets.iter().map(|&(bound, _)| bound);
    HistogramPoint {
        start_time_unix_nano: time.start_ns,
        time_unix_nano: time.now_ns,
        count: all.count,
        sum: Some(all.sum),
        bucket_counts: all.buckets.iter().map(|&(_, count)| count).collect(),
        // The last bucket is all that is above.
        explicit_bounds: bounds.filter(|bound| bound.is_finite()).collect(),
        attributes: labels(point),
    }
}
