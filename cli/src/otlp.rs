//! Telemetry of commands that run for long, by OTLP over HTTP: spans of reads and the metrics of the page that a Prometheus reads.
//!
//! On where `OTEL_EXPORTER_OTLP_ENDPOINT` (or the variable of one signal) names a receiver. A thread for each signal sends. A read never waits for it: spans go
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
use sender::{Sender, SentReport, Signal};
use settings::{Sampling, Settings};
#[cfg(feature = "lab")]
use spans::{AttributeValue, ClosedSpan};
use spans::{SpanFilter, SpanLayer, SpanStore};
use std::sync::Arc;
use std::time::{Duration, Instant};
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
    Settings::of(|name| Some(std::env::var_os(name)?.to_string_lossy().into_owned()))
}

/// Sends until it is ended.
pub struct Telemetry {
    store: Arc<SpanStore>,
    threads: Vec<SenderThread>,
    #[cfg_attr(
        not(feature = "lab"),
        expect(dead_code, reason = "only run has one span")
    )]
    settings: Arc<Settings>,
}

/// A thread that sends one signal, and where it goes.
struct SenderThread {
    task: Task<SentReport>,
    place: String,
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
        let client = sender::client()?;
        let signals = [Some(Signal::Spans), metrics.map(Signal::Metrics)];
        let mut threads = Vec::new();
        for signal in signals.into_iter().flatten() {
            let Some(sender) = Sender::new(&settings, &store, signal, &client) else {
                continue;
            };
            let place = sender.place();
            let task = Task::start("foreread-otlp", move || sender.run()).map_err(Fail::of)?;
            threads.push(SenderThread { task, place });
        }
        if settings.traces.is_some() && settings.sampling != Sampling::Off {
            spans::activate(&store);
        }
        if is_server {
            note(format!("telemetry goes to {}", settings.place()));
        }
        Ok(Some(Telemetry {
            store,
            threads,
            settings,
        }))
    }

    /// Sends what is left, and says what was not delivered.
    pub fn end(mut self) {
        self.store.end();
        let until = Instant::now() + END_LIMIT;
        let mut lost = self.store.dropped();
        for thread in std::mem::take(&mut self.threads) {
            let left = until.saturating_duration_since(Instant::now());
            let Some(report) = thread.task.within(left) else {
                note(format!(
                    "telemetry: {} did not answer; what was last is not delivered",
                    thread.place
                ));
                continue;
            };
            lost += report.lost_spans;
        }
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
