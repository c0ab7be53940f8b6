//! Sends spans of reads of `serve`, `mount` and `run` with OpenTelemetry's SDK. Metrics are on the Prometheus page, which a collector reads.
//!
//! Spans are sent if `OTEL_EXPORTER_OTLP_ENDPOINT` (or the variable for traces only) names a receiver; the SDK reads the
//! other variables. No read waits for the receiver, because spans go into a bounded queue. Before the command ends, it
//! waits at most [`END_LIMIT`] for the queue to be sent.
//!
//! ```text
//!   engine: span read ──► tracing-opentelemetry ──► SlowestReads ──► batches ──POST──► /v1/traces
//! ```

mod slowest;

use crate::fail::{Fail, note};
use foreread_os::threads::Task;
use opentelemetry::trace::TracerProvider;
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::{
    EnvResourceDetector, ResourceDetector, TelemetryResourceDetector,
};
use opentelemetry_sdk::trace::{BatchSpanProcessor, SdkTracerProvider};
use reqwest::blocking::{Client, ClientBuilder};
use slowest::SlowestReads;
use std::fmt::Display;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::time::Duration;
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::layer::Layer;
use tracing_subscriber::registry::LookupSpan;

/// How long a command waits at its end for a receiver to accept the remaining data.
const END_LIMIT: Duration = Duration::from_secs(3);
const NAME: &str = "foreread";

static TRACES: OnceLock<SdkTracerProvider> = OnceLock::new();

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Whether the environment names a receiver.
fn is_wanted() -> bool {
    let is = |name: &str, value: &str| variable(name).is_some_and(|v| v == value);
    let has_endpoint = variable("OTEL_EXPORTER_OTLP_ENDPOINT")
        .or_else(|| variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"))
        .is_some();
    has_endpoint && !is("OTEL_SDK_DISABLED", "true") && !is("OTEL_TRACES_EXPORTER", "none")
}

/// Creates the exporter of spans, if the environment names a receiver.
/// Returns an error if the receiver's URL is invalid.
pub fn start() -> Result<(), Fail> {
    if !is_wanted() {
        return Ok(());
    }
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client()?);
    let batches = BatchSpanProcessor::builder(exporter.build().map_err(wrong)?).build();
    let provider = SdkTracerProvider::builder().with_resource(resource());
    let provider = match variable("OTEL_TRACES_SAMPLER") {
        Some(_) => provider.with_span_processor(batches),
        None => provider.with_span_processor(SlowestReads::start(batches).map_err(Fail::of)?),
    };
    let _ = TRACES.set(provider.build());
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

/// Sends the remaining spans to the receiver, before the command ends.
pub fn end() {
    let Some(provider) = TRACES.get() else {
        return;
    };
    // The SDK waits longer than this command does.
    let ended = Task::start("foreread-otlp", || drop(provider.shutdown()));
    if ended.is_ok_and(|task| task.within(END_LIMIT).is_none()) {
        note("telemetry: the receiver does not answer; the last spans are lost");
    }
}
