//! Telemetry of commands that run for long, by OTLP over HTTP: spans of reads and the metrics of the page that a Prometheus reads.
//!
//! On where `OTEL_EXPORTER_OTLP_ENDPOINT` (or the variable of one signal) names a receiver. One thread sends. A read never waits for it: spans go
//! into a queue with a limit, and what finds no room is counted and dropped. At its end a command waits at most [`END_LIMIT`] for a receiver.
//!
//! ```text
//!   engine: span read ──► SpanFilter: sampled? ──► SpanLayer ──► SpanStore ──┐
//!   engine: metrics::table ──────────────────────────────────────────────────┴─► Sender ──POST──► /v1/traces, /v1/metrics
//! ```
//! Never: a second line for the same trouble, a variable's value with a key in a message, or a delay of a read.

mod message;
mod metrics;
mod sender;
mod settings;
mod spans;

use crate::fail::{Fail, note};
use foreread::front::metrics::Metric;
use foreread_os::threads::Task;
use sender::{Sender, SentReport};
use settings::{Sampling, Settings};
#[cfg(feature = "lab")]
use spans::{AttributeValue, ClosedSpan};
use spans::{SpanFilter, SpanLayer, SpanStore};
use std::sync::Arc;
use std::time::Duration;
#[cfg(feature = "lab")]
use std::time::Instant;
use tracing::Subscriber;
use tracing_subscriber::layer::Layer;
use tracing_subscriber::registry::LookupSpan;

/// How long a command waits at its end until a receiver has taken what is left.
const END_LIMIT: Duration = Duration::from_secs(3);

/// Gives the values of all metrics now.
pub type MetricSource = Box<dyn Fn() -> Vec<Metric> + Send>;

/// The part of the subscriber that takes spans. It takes none, and costs nothing, until [`Telemetry::start`].
pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
    SpanLayer.with_filter(SpanFilter)
}

/// Looks at the variables before anything begins.
///
/// # Errors
/// One has a value that means nothing.
pub fn check() -> Result<(), Fail> {
    from_environment().map(drop)
}

fn from_environment() -> Result<Option<Settings>, Fail> {
    Settings::of(|name| std::env::var_os(name)?.into_string().ok())
}

/// Sends until it is ended.
pub struct Telemetry {
    store: Arc<SpanStore>,
    thread: Task<SentReport>,
    place: String,
    #[cfg_attr(
        not(feature = "lab"),
        expect(dead_code, reason = "only run has one span")
    )]
    settings: Arc<Settings>,
}

impl Telemetry {
    /// Begins, if the environment names a receiver.
    ///
    /// # Errors
    /// A variable has a value that means nothing.
    pub fn start(metrics: Option<MetricSource>) -> Result<Option<Telemetry>, Fail> {
        let Some(settings) = from_environment()? else {
            return Ok(None);
        };
        let (settings, is_server) = (Arc::new(settings), metrics.is_some());
        let store = Arc::new(SpanStore::new(&settings));
        let sender = Sender::new(Arc::clone(&settings), Arc::clone(&store), metrics)?;
        let place = settings.place();
        let thread = Task::start("foreread-otlp", move || sender.run()).map_err(Fail::of)?;
        if settings.traces.is_some() && settings.sampling != Sampling::Off {
            spans::activate(&store);
        }
        if is_server {
            note(format!("telemetry goes to {place}"));
        }
        Ok(Some(Telemetry {
            store,
            thread,
            place,
            settings,
        }))
    }

    /// Sends what is left, and says what was not delivered.
    pub fn end(self) {
        self.store.end();
        let Some(report) = self.thread.within(END_LIMIT) else {
            note(format!(
                "telemetry: {} did not answer; the last spans and metrics are not delivered",
                self.place
            ));
            return;
        };
        let lost = report.lost_spans + self.store.dropped();
        if lost > 0 {
            note(format!("telemetry: {lost} spans were not delivered"));
        }
    }

    /// The span of a whole command, with the numbers of its report, under the parent that TRACEPARENT names.
    #[cfg(feature = "lab")]
    pub fn record_command(
        &self,
        name: &'static str,
        start: Instant,
        report: &serde_json::Value,
        error: Option<String>,
    ) {
        let parent = &self.settings.parent;
        if !self.settings.takes_command(parent.as_ref()) {
            return;
        }
        let fields = report.as_object().into_iter().flatten();
        let attributes = fields.filter_map(|(key, value)| {
            let value = match value {
                serde_json::Value::Number(number) => number.as_i64().map_or_else(
                    || AttributeValue::Real(number.as_f64().unwrap_or_default()),
                    AttributeValue::Whole,
                ),
                serde_json::Value::String(text) => AttributeValue::Text(text.clone()),
                _ => return None,
            };
            Some((key.clone().into(), value))
        });
        self.store.put(ClosedSpan {
            name,
            start,
            end: Instant::now(),
            attributes: attributes.collect(),
            error,
            parts: Vec::new(),
            left_out: 0,
            parent: parent.clone(),
        });
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        // Where a command fails early its thread ends by itself.
        self.store.end();
    }
}
