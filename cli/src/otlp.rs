//! Sends telemetry of `serve`, `mount` and `run` with OpenTelemetry's SDK: spans of reads, and the metrics that are also on the Prometheus
//! page.
//!
//! Telemetry is sent if `OTEL_EXPORTER_OTLP_ENDPOINT` (or the variable for traces or metrics only) names a receiver;
//! the SDK reads the other variables. No read waits for the receiver, because spans go into a bounded queue. Before the
//! command ends, it waits at most [`END_LIMIT`] for the queue to be sent.
//!
//! ```text
//!   engine: span read ──► tracing-opentelemetry ──► SlowestReads ──► batches ──┐
//!   engine: metrics::table ──► observable instruments, read at an interval ────┴──POST──► /v1/traces, /v1/metrics
//! ```

mod slowest;

use crate::fail::{Fail, note};
use foreread::front::metrics::{Metric, MetricKind, MetricUnit, MetricValue};
use foreread_os::threads::Task;
use opentelemetry::metrics::MeterProvider;
use opentelemetry::trace::TracerProvider;
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{MetricExporter, SpanExporter, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::resource::{
    EnvResourceDetector, ResourceDetector, TelemetryResourceDetector,
};
use opentelemetry_sdk::trace::{BatchSpanProcessor, SdkTracerProvider};
use reqwest::blocking::{Client, ClientBuilder};
use slowest::SlowestReads;
use std::fmt::Display;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::layer::Layer;
use tracing_subscriber::registry::LookupSpan;

/// How long a command waits at its end for a receiver to accept the remaining data.
const END_LIMIT: Duration = Duration::from_secs(3);
/// Instruments that are read within this time use the same table.
const SAME_LOOK: Duration = Duration::from_millis(10);
const NAME: &str = "foreread";

static TRACES: OnceLock<SdkTracerProvider> = OnceLock::new();
static METRICS: OnceLock<SdkMeterProvider> = OnceLock::new();

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Whether the environment names a receiver for `TRACES` or `METRICS`.
fn is_wanted(signal: &str) -> bool {
    let is = |name: &str, value: &str| variable(name).is_some_and(|v| v == value);
    let has_endpoint = variable("OTEL_EXPORTER_OTLP_ENDPOINT")
        .or_else(|| variable(&format!("OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")))
        .is_some();
    has_endpoint
        && !is("OTEL_SDK_DISABLED", "true")
        && !is(&format!("OTEL_{signal}_EXPORTER"), "none")
}

/// Creates the exporters of traces and metrics, if the environment names a receiver.
/// Returns an error if the receiver's URL is invalid.
pub fn start() -> Result<(), Fail> {
    let (traces, metrics) = (is_wanted("TRACES"), is_wanted("METRICS"));
    if !traces && !metrics {
        return Ok(());
    }
    let (client, resource) = (client()?, resource());
    if traces {
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client.clone());
        let batches = BatchSpanProcessor::builder(exporter.build().map_err(wrong)?).build();
        let provider = SdkTracerProvider::builder().with_resource(resource.clone());
        let provider = match variable("OTEL_TRACES_SAMPLER") {
            Some(_) => provider.with_span_processor(batches),
            None => provider.with_span_processor(SlowestReads::start(batches).map_err(Fail::of)?),
        };
        let _ = TRACES.set(provider.build());
    }
    if metrics {
        let exporter = MetricExporter::builder()
            .with_http()
            .with_http_client(client);
        let reader = PeriodicReader::builder(exporter.build().map_err(wrong)?).build();
        let provider = SdkMeterProvider::builder().with_resource(resource);
        let _ = METRICS.set(provider.with_reader(reader).build());
    }
    Ok(())
}

fn wrong(error: impl Display) -> Fail {
    let remedy = "see OTEL_EXPORTER_OTLP_ENDPOINT: write a URL such as http://localhost:4318";
    Fail::input("cannot send telemetry", error, remedy)
}

/// Trusts the same certificates as clients of stores. Otherwise no client could be created on a system without certificates.
fn client() -> Result<Client, Fail> {
    let timeout = variable("OTEL_EXPORTER_OTLP_TIMEOUT").and_then(|ms| ms.parse().ok());
    let builder = ClientBuilder::new()
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("foreread/", env!("CARGO_PKG_VERSION")))
        .timeout(Duration::from_millis(timeout.unwrap_or(10_000)));
    #[cfg(feature = "object")]
    let builder = foreread::source::object::built_in_authorities()
        .iter()
        .filter_map(|der| reqwest::Certificate::from_der(der).ok())
        .fold(builder, ClientBuilder::add_root_certificate);
    builder.build().map_err(wrong)
}

/// The resource attributes of all data. Environment variables take precedence.
fn resource() -> Resource {
    // Distinguishes the counters of two mounts on one machine.
    let instance = RandomState::new().hash_one(std::process::id());
    let environment: Box<dyn ResourceDetector> = Box::new(EnvResourceDetector::new());
    let resource = Resource::builder_empty()
        .with_service_name(NAME)
        .with_attributes([
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("service.instance.id", format!("{instance:016x}")),
            KeyValue::new("process.pid", i64::from(std::process::id())),
        ])
        .with_detectors(&[Box::new(TelemetryResourceDetector), environment]);
    match variable("OTEL_SERVICE_NAME") {
        Some(name) => resource.with_service_name(name),
        None => resource,
    }
    .build()
}

fn scope() -> InstrumentationScope {
    InstrumentationScope::builder(NAME)
        .with_version(env!("CARGO_PKG_VERSION"))
        .build()
}

/// Returns the layer for the `tracing` subscriber that exports the engine's spans.
pub fn layer<S>() -> Option<impl Layer<S>>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    // A fetch outside a read is readahead, which the metrics already count.
    let ours = dynamic_filter_fn(|of, context| {
        let is_ours = of.is_span() && of.target().starts_with(NAME);
        is_ours && (of.name() != "fetch" || context.lookup_current().is_some())
    });
    let tracer = TRACES.get()?.tracer_with_scope(scope());
    let layer = tracing_opentelemetry::layer()
        .with_tracer(tracer)
        .with_context_activation(false)
        .with_location(false)
        .with_target(false)
        .with_threads(false)
        .with_tracked_inactivity(false);
    Some(layer.with_filter(ours.with_max_level_hint(LevelFilter::TRACE)))
}

/// Starts sending the metrics of this table to the receiver at a regular interval.
pub fn send_metrics(table: impl Fn() -> Vec<Metric> + Send + Sync + 'static) {
    let Some(provider) = METRICS.get() else {
        return;
    };
    let meter = provider.meter_with_scope(scope());
    let first = table();
    let looks = Arc::new(Looks {
        table: Box::new(table),
        last: Mutex::default(),
    });
    for metric in first {
        let unit = match metric.unit {
            Some(MetricUnit::Bytes) => "By",
            Some(MetricUnit::Seconds) => "s",
            Some(MetricUnit::Ratios) => "1",
            None => "",
        };
        for end in ends(metric.kind) {
            let (looks, kind) = (Arc::clone(&looks), metric.kind);
            let name = metric.full_name() + end;
            let own = name.clone();
            let observe = move |to: &dyn opentelemetry::metrics::AsyncInstrument<f64>| {
                for number in looks.now().iter().filter(|number| number.name == own) {
                    to.observe(number.value, &number.labels);
                }
            };
            match kind {
                MetricKind::Counter | MetricKind::Histogram => {
                    let one = meter.f64_observable_counter(name);
                    let one = one.with_description(metric.help).with_unit(unit);
                    let _ = one.with_callback(observe).build();
                }
                MetricKind::Gauge | MetricKind::Info => {
                    let one = meter.f64_observable_gauge(name);
                    let one = one.with_description(metric.help).with_unit(unit);
                    let _ = one.with_callback(observe).build();
                }
            }
        }
    }
}

/// Suffixes of the names of a metric's numbers. The SDK cannot export a precomputed histogram, so its parts are
/// exported as counters, as on the Prometheus page.
fn ends(kind: MetricKind) -> &'static [&'static str] {
    match kind {
        MetricKind::Counter | MetricKind::Gauge => &[""],
        MetricKind::Info => &["_info"],
        MetricKind::Histogram => &["_bucket", "_count", "_sum"],
    }
}

struct Number {
    name: String,
    labels: Vec<KeyValue>,
    value: f64,
}

/// The table of metrics, shared by instruments that are read one after the other.
struct Looks {
    table: Box<dyn Fn() -> Vec<Metric> + Send + Sync>,
    last: Mutex<Option<(Instant, Arc<Vec<Number>>)>>,
}

impl Looks {
    fn now(&self) -> Arc<Vec<Number>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, numbers)) = &*last
            && at.elapsed() < SAME_LOOK
        {
            return Arc::clone(numbers);
        }
        let numbers = Arc::new((self.table)().iter().flat_map(numbers).collect());
        *last = Some((Instant::now(), Arc::clone(&numbers)));
        numbers
    }
}

fn numbers(metric: &Metric) -> Vec<Number> {
    let mut all = Vec::new();
    for point in &metric.points {
        let labels = point.labels.iter();
        let labels = Vec::from_iter(labels.map(|(key, text)| KeyValue::new(*key, text.clone())));
        let mut add = |end: &str, bound: Option<f64>, value: f64| {
            let bound = bound.map(|bound| match bound.is_finite() {
                true => KeyValue::new("le", bound.to_string()),
                false => KeyValue::new("le", "+Inf"),
            });
            all.push(Number {
                name: metric.full_name() + end,
                labels: labels.iter().cloned().chain(bound).collect(),
                value,
            });
        };
        match &point.value {
            MetricValue::Whole(value) => add(ends(metric.kind)[0], None, *value as f64),
            MetricValue::Real(value) => add(ends(metric.kind)[0], None, *value),
            MetricValue::Buckets(buckets) => {
                let mut below = 0;
                for &(bound, count) in &buckets.buckets {
                    below += count;
                    add("_bucket", Some(bound), below as f64);
                }
                add("_count", None, buckets.count as f64);
                add("_sum", None, buckets.sum);
            }
        }
    }
    all
}

/// Sends a span that covers the whole command and has the figures of its report as attributes. The parent of the span
/// is the span in the environment variable TRACEPARENT.
#[cfg(feature = "lab")]
pub fn send_command(
    name: &'static str,
    took: Duration,
    report: &serde_json::Value,
    error: Option<String>,
) {
    use opentelemetry::propagation::TextMapPropagator;
    use opentelemetry::trace::{Span, Status, Tracer};
    use opentelemetry_sdk::propagation::TraceContextPropagator;
    use std::collections::HashMap;
    use std::time::SystemTime;

    let Some(provider) = TRACES.get() else { return };
    let parent = variable("TRACEPARENT").map(|parent| ("traceparent".to_string(), parent));
    let parent: HashMap<String, String> = parent.into_iter().collect();
    let parent = TraceContextPropagator::new().extract(&parent);
    let fields = report.as_object().into_iter().flatten();
    let attributes = fields.filter_map(|(key, value)| {
        let key = key.clone();
        match value {
            serde_json::Value::Number(number) => Some(number.as_i64().map_or_else(
                || KeyValue::new(key.clone(), number.as_f64().unwrap_or_default()),
                |whole| KeyValue::new(key.clone(), whole),
            )),
            serde_json::Value::String(text) => Some(KeyValue::new(key, text.clone())),
            _ => None,
        }
    });
    let tracer = provider.tracer_with_scope(scope());
    let now = SystemTime::now();
    let mut span = tracer
        .span_builder(name)
        .with_start_time(now.checked_sub(took).unwrap_or(now))
        .with_attributes(attributes)
        .start_with_context(&tracer, &parent);
    if let Some(error) = error {
        span.set_status(Status::error(error));
    }
    span.end_with_timestamp(now);
}

/// Sends the remaining data to the receiver, before the command ends.
pub fn end() {
    if TRACES.get().is_none() && METRICS.get().is_none() {
        return;
    }
    let both = [
        Task::start("foreread-otlp", || {
            let _ = TRACES.get().map(|of| of.shutdown_with_timeout(END_LIMIT));
        }),
        // The metrics exporter ignores its timeout; `left` below enforces it.
        Task::start("foreread-otlp", || {
            let _ = METRICS.get().map(|of| of.shutdown_with_timeout(END_LIMIT));
        }),
    ];
    let until = Instant::now() + END_LIMIT;
    let left = || until.saturating_duration_since(Instant::now());
    let ended = both.map(|task| task.is_ok_and(|task| task.within(left()).is_some()));
    if ended.contains(&false) {
        note("telemetry: the receiver does not answer; the last spans or metrics are lost");
    }
}
