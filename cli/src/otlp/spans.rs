//! Spans of the engine, until the sender takes them.
//!
//! A read is kept with the fetches inside it, as one. Which are kept is decided as early as can be: a ratio before the span exists, the
//! slowest when it ends. A span that will not be kept costs the look at the clock at its begin and end, and no text.
//!
//! ```text
//!   SpanFilter ──Ratio: by lot──► SpanLayer: begin, fields, end ──► SpanStore ──► queue, with a limit ──► sender
//!                                                                      └─ Slowest: a heap of this second, moved to the queue at its end
//! ```
//!
//! Example: 100,000 reads in a second, the 20 slowest are kept. Once the heap has 20, a hit is compared with the fastest of them, one
//! load, and is gone.

use super::settings::{ParentSpan, Sampling, Settings};
use std::borrow::Cow;
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt::Debug;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter, Layer};
use tracing_subscriber::registry::LookupSpan;

/// Spans inside a span that are kept with it.
const MAX_PARTS: usize = 32;
/// Room for the fields of a read.
const FIELDS: usize = 10;

/// Where the spans of this process go.
static ACTIVE: OnceLock<Arc<SpanStore>> = OnceLock::new();

/// Spans are taken from now on.
pub fn activate(store: &Arc<SpanStore>) {
    if ACTIVE.set(Arc::clone(store)).is_ok() {
        // Until now every call site was told never.
        tracing::callsite::rebuild_interest_cache();
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum AttributeValue {
    Whole(i64),
    #[cfg_attr(not(feature = "lab"), expect(dead_code, reason = "only run has such"))]
    Real(f64),
    Text(String),
}

/// A field's name and what it says.
pub type Attribute = (Cow<'static, str>, AttributeValue);

/// A span that has ended.
#[derive(Clone, Debug)]
pub struct ClosedSpan {
    pub name: &'static str,
    pub start: Instant,
    pub end: Instant,
    pub attributes: Vec<Attribute>,
    pub error: Option<String>,
    /// Spans inside it.
    pub parts: Vec<ClosedSpan>,
    /// Those that were too many.
    pub left_out: i64,
    pub parent: Option<ParentSpan>,
}

impl ClosedSpan {
    fn ns(&self) -> u64 {
        let took = self.end.saturating_duration_since(self.start);
        u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Spans that it is, with those inside.
    pub fn count(&self) -> usize {
        1 + self.parts.iter().map(ClosedSpan::count).sum::<usize>()
    }
}

/// Ordered by how long it took.
struct BySlowness(ClosedSpan);

impl PartialEq for BySlowness {
    fn eq(&self, other: &BySlowness) -> bool {
        self.0.ns() == other.0.ns()
    }
}

impl Eq for BySlowness {}

impl PartialOrd for BySlowness {
    fn partial_cmp(&self, other: &BySlowness) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for BySlowness {
    fn cmp(&self, other: &BySlowness) -> std::cmp::Ordering {
        self.0.ns().cmp(&other.0.ns())
    }
}

#[derive(Default)]
struct KeptSpans {
    queue: VecDeque<ClosedSpan>,
    /// Of the queue, with those inside.
    queued: usize,
    slowest: BinaryHeap<Reverse<BySlowness>>,
    dropped: u64,
    ending: bool,
}

/// Spans that are kept until the sender takes them.
pub struct SpanStore {
    sampling: Sampling,
    queue_spans: usize,
    batch_spans: usize,
    /// What takes no longer is not among the slowest.
    lowest_ns: AtomicU64,
    kept: Mutex<KeptSpans>,
    moved: Condvar,
}

impl SpanStore {
    pub fn new(settings: &Settings) -> SpanStore {
        SpanStore {
            sampling: settings.sampling,
            queue_spans: settings.queue_spans,
            batch_spans: settings.batch_spans,
            lowest_ns: AtomicU64::new(0),
            kept: Mutex::default(),
            moved: Condvar::new(),
        }
    }

    fn kept(&self) -> MutexGuard<'_, KeptSpans> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Spans that found no room.
    pub fn dropped(&self) -> u64 {
        self.kept().dropped
    }

    /// Whether a span that begins may be kept.
    fn begins(&self) -> bool {
        match self.sampling {
            Sampling::Off => false,
            Sampling::All | Sampling::Slowest(_) => true,
            Sampling::Ratio(part) => lot() < part,
        }
    }

    /// Whether one that took so long may be kept.
    fn may_keep(&self, took: Duration) -> bool {
        took.as_nanos() > u128::from(self.lowest_ns.load(Ordering::Relaxed))
    }

    fn offer(&self, span: ClosedSpan) {
        let Sampling::Slowest(most) = self.sampling else {
            return self.put(span);
        };
        if span.ns() <= self.lowest_ns.load(Ordering::Relaxed) {
            return;
        }
        let mut kept = self.kept();
        kept.slowest.push(Reverse(BySlowness(span)));
        if kept.slowest.len() > most {
            kept.slowest.pop();
        }
        if let Some(Reverse(lowest)) = kept.slowest.peek().filter(|_| kept.slowest.len() == most) {
            self.lowest_ns.store(lowest.0.ns(), Ordering::Relaxed);
        }
    }

    /// Into the queue, if there is room.
    pub fn put(&self, span: ClosedSpan) {
        let mut kept = self.kept();
        self.queue(&mut kept, span);
        if kept.queued >= self.batch_spans {
            self.moved.notify_all();
        }
    }

    fn queue(&self, kept: &mut KeptSpans, span: ClosedSpan) {
        let count = span.count();
        if kept.queued + count > self.queue_spans {
            kept.dropped += count as u64;
            return;
        }
        kept.queued += count;
        kept.queue.push_back(span);
    }

    /// The slowest of a second are known.
    pub fn end_second(&self) {
        let mut kept = self.kept();
        self.lowest_ns.store(0, Ordering::Relaxed);
        for Reverse(BySlowness(span)) in std::mem::take(&mut kept.slowest) {
            self.queue(&mut kept, span);
        }
    }

    /// The oldest spans, as many as one request has.
    pub fn take(&self) -> Vec<ClosedSpan> {
        let mut kept = self.kept();
        let (mut taken, mut count) = (Vec::new(), 0);
        while count < self.batch_spans
            && let Some(span) = kept.queue.pop_front()
        {
            count += span.count();
            taken.push(span);
        }
        kept.queued -= count;
        taken
    }

    /// There are spans for a full request.
    pub fn has_batch(&self) -> bool {
        self.kept().queued >= self.batch_spans
    }

    /// Sleeps until this time, or the end; with `is_hasty` until there is a full request of spans. True at the end.
    pub fn sleep(&self, until: Instant, is_hasty: bool) -> bool {
        let mut kept = self.kept();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let is_full = is_hasty && kept.queued >= self.batch_spans;
            if kept.ending || is_full || left.is_zero() {
                return kept.ending;
            }
            let woken = self.moved.wait_timeout(kept, left);
            kept = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The command ends.
    pub fn end(&self) {
        self.kept().ending = true;
        self.moved.notify_all();
    }
}

/// A number from 0 to 1, another one each time.
fn lot() -> f64 {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(0) | 1);
    }
    STATE.with(|state| {
        let mut x = state.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        state.set(x);
        (x >> 11) as f64 / (1u64 << 53) as f64
    })
}

/// Says which spans there are to be.
pub struct SpanFilter;

fn is_ours(of: &Metadata<'_>) -> bool {
    of.is_span() && of.target().starts_with("foreread")
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Filter<S> for SpanFilter {
    fn enabled(&self, of: &Metadata<'_>, context: &Context<'_, S>) -> bool {
        let Some(store) = ACTIVE.get().filter(|_| is_ours(of)) else {
            return false;
        };
        // A fetch outside a read is readahead, which the metrics count.
        match of.name() {
            "fetch" => context.lookup_current().is_some(),
            _ => store.begins(),
        }
    }

    fn callsite_enabled(&self, of: &'static Metadata<'static>) -> Interest {
        if ACTIVE.get().is_some() && is_ours(of) {
            Interest::sometimes()
        } else {
            Interest::never()
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(match ACTIVE.get() {
            Some(_) => LevelFilter::TRACE,
            None => LevelFilter::OFF,
        })
    }
}

/// Makes them.
pub struct SpanLayer;

/// A span that goes on.
struct OpenSpan(ClosedSpan);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for SpanLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let start = Instant::now();
        let mut open = ClosedSpan {
            name: attributes.metadata().name(),
            start,
            end: start,
            attributes: Vec::with_capacity(FIELDS),
            error: None,
            parts: Vec::new(),
            left_out: 0,
            parent: None,
        };
        attributes.record(&mut open);
        span.extensions_mut().insert(OpenSpan(open));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(OpenSpan(open)) = span.extensions_mut().get_mut()
            && ACTIVE
                .get()
                .is_some_and(|store| store.may_keep(open.start.elapsed()))
        {
            values.record(open);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else {
            return;
        };
        let Some(OpenSpan(mut open)) = span.extensions_mut().remove() else {
            return;
        };
        open.end = Instant::now();
        let Some(parent) = span.parent() else {
            if let Some(store) = ACTIVE.get() {
                store.offer(open);
            }
            return;
        };
        if let Some(OpenSpan(parent)) = parent.extensions_mut().get_mut() {
            if parent.parts.len() < MAX_PARTS {
                parent.parts.push(open);
            } else {
                parent.left_out += 1;
            }
        }
    }
}

impl ClosedSpan {
    fn add(&mut self, field: &Field, value: AttributeValue) {
        self.attributes.push((Cow::Borrowed(field.name()), value));
    }
}

impl Visit for ClosedSpan {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.record_i64(field, i64::try_from(value).unwrap_or(i64::MAX));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, AttributeValue::Whole(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, AttributeValue::Text(value.to_string()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = foreread::source::redacted_message(&format!("{value:?}"));
        if field.name() == "error" {
            self.error = Some(text.to_string());
        } else {
            self.add(field, AttributeValue::Text(text.to_string()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(sampling: Sampling, queue_spans: usize) -> SpanStore {
        SpanStore {
            sampling,
            queue_spans,
            batch_spans: queue_spans,
            lowest_ns: AtomicU64::new(0),
            kept: Mutex::default(),
            moved: Condvar::new(),
        }
    }

    fn took(start: Instant, ns: u64) -> ClosedSpan {
        ClosedSpan {
            name: "read",
            start,
            end: start + Duration::from_nanos(ns),
            attributes: Vec::new(),
            error: None,
            parts: Vec::new(),
            left_out: 0,
            parent: None,
        }
    }

    #[test]
    fn the_slowest_of_a_second_are_kept() {
        let store = store(Sampling::Slowest(3), 100);
        let start = Instant::now();
        let times = |store: &SpanStore| {
            store.end_second();
            let mut times: Vec<u64> = store.take().iter().map(ClosedSpan::ns).collect();
            times.sort_unstable();
            times
        };
        for ns in [5, 1, 9, 2, 7, 3, 8] {
            store.offer(took(start, ns));
        }
        assert!(!store.may_keep(Duration::from_nanos(7)));
        assert!(store.may_keep(Duration::from_nanos(8)));
        assert_eq!(times(&store), [7, 8, 9]);
        store.offer(took(start, 1));
        assert_eq!(times(&store), [1], "the next second begins anew");
        assert_eq!(store.dropped(), 0);
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let store = store(Sampling::All, 4);
        let start = Instant::now();
        let mut large = took(start, 1);
        large.parts = vec![took(start, 1), took(start, 1)];
        store.offer(large.clone());
        store.offer(large);
        store.offer(took(start, 1));
        assert_eq!(store.dropped(), 3, "one with its parts");
        assert!(
            !store.sleep(Instant::now() + Duration::from_secs(600), true),
            "full"
        );
        assert_eq!(store.take().iter().map(ClosedSpan::count).sum::<usize>(), 4);
        assert!(store.take().is_empty());
        store.end();
        assert!(store.sleep(Instant::now() + Duration::from_secs(600), false));
    }

    #[test]
    fn a_ratio_is_about_that_part() {
        let store = store(Sampling::Ratio(0.25), 1);
        let kept = (0..100_000).filter(|_| store.begins()).count();
        assert!((23_000..27_000).contains(&kept), "{kept}");
    }
}
