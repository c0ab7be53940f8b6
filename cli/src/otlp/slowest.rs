//! Exports the spans of the slowest reads of each second, and the spans of the fetches that these reads contain.
//!
//! Most reads are hits and nearly identical, so a random sample would contain only hits. The number of exported reads
//! does not grow with the rate: it is the same at 10 and at 100,000 reads per second.

use foreread_os::threads::spawn;
use opentelemetry::Context;
use opentelemetry::trace::{SpanId, TraceId};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// Maximum number of reads exported for each second.
const MAX_READS: usize = 20;
/// Maximum number of spans kept inside a read.
const MAX_PARTS: usize = 32;

#[derive(Debug)]
pub struct SlowestReads<P>(Arc<Mutex<ThisSecond<P>>>);

#[derive(Debug)]
struct ThisSecond<P> {
    next: P,
    /// Spans inside reads that have not ended.
    parts: HashMap<TraceId, Vec<SpanData>>,
    /// The slowest reads, the slowest first.
    reads: Vec<(Duration, Vec<SpanData>)>,
}

impl<P: SpanProcessor + 'static> SlowestReads<P> {
    pub fn start(next: P) -> std::io::Result<SlowestReads<P>> {
        let second = Arc::new(Mutex::new(ThisSecond {
            next,
            parts: HashMap::new(),
            reads: Vec::new(),
        }));
        let weak = Arc::downgrade(&second);
        spawn("foreread-spans", move || {
            while let Some(second) = weak.upgrade() {
                SlowestReads(second).lock().pass_on();
                std::thread::sleep(SECOND);
            }
        })?;
        Ok(SlowestReads(second))
    }
}

impl<P> SlowestReads<P> {
    fn lock(&self) -> MutexGuard<'_, ThisSecond<P>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: SpanProcessor> ThisSecond<P> {
    fn pass_on(&mut self) {
        let reads = std::mem::take(&mut self.reads).into_iter();
        reads
            .flat_map(|(_, spans)| spans)
            .for_each(|span| self.next.on_end(span));
    }

    fn take(&mut self, span: SpanData) {
        let trace = span.span_context.trace_id();
        if span.parent_span_id != SpanId::INVALID && !span.parent_span_is_remote {
            let parts = self.parts.entry(trace).or_default();
            if parts.len() < MAX_PARTS {
                parts.push(span);
            }
            return;
        }
        let mut spans = self.parts.remove(&trace).unwrap_or_default();
        let took = span.end_time.duration_since(span.start_time);
        let took = took.unwrap_or_default();
        spans.push(span);
        let at = self.reads.partition_point(|(other, _)| *other >= took);
        if at < MAX_READS {
            self.reads.truncate(MAX_READS - 1);
            self.reads.insert(at, (took, spans));
        }
    }
}

impl<P: SpanProcessor> SpanProcessor for SlowestReads<P> {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        self.lock().take(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        let mut second = self.lock();
        second.pass_on();
        second.next.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        let mut second = self.lock();
        second.pass_on();
        second.next.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.lock().next.set_resource(resource);
    }
}
