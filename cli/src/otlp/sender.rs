//! The threads that send: spans when there are enough or it is time, metrics at their interval, and both once more at the end.
//!
//! A receiver that is busy (429, 502, 503, 504) or away is asked again later, after 1 s, 2 s, 4 s and so on up to a minute, or when it says; its spans wait
//! meanwhile, within the limit of the queue. What it refuses is dropped. Trouble is one line when it begins and one when it is over.
//!
//! ```text
//!   spans      sleep ──► a second is over: slowest into the queue ──► due? POST ──► sleep
//!   metrics    sleep ──► due? POST ──► sleep            a thread for each: a receiver that hangs holds up the other one by nothing
//! ```

use super::message::{
    ERROR, ExportReply, INTERNAL, KeyValue, OneValue, ResourceSpans, ScopeSpans, SpanMessage,
    StatusMessage, TraceRequest, attribute, resource, scope,
};
use super::metrics::{self, TimeSpan};
use super::settings::{Receiver, Settings};
use super::spans::{AttributeValue, ClosedSpan, SpanStore};
use super::{END_LIMIT, MetricSource};
use crate::fail::{Fail, note};
use prost::Message;
use reqwest::StatusCode;
use reqwest::blocking::{Client, ClientBuilder, Response};
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A second of the slowest spans.
const SECOND: Duration = Duration::from_secs(1);
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// At the end a signal has this part of the time that the command waits.
const LAST_TIMEOUT: Duration = Duration::from_millis(END_LIMIT.as_millis() as u64 - 200);
/// Of an answer that says what was not taken.
const MAX_REPLY: u64 = 64 << 10;
/// Names of attributes begin like those of metrics.
const PREFIX: &str = "foreread.";

/// What became of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentReport {
    /// Spans that were taken from the queue and not delivered.
    pub lost_spans: u64,
}

/// Why something was not taken.
struct Trouble {
    why: String,
    remedy: &'static str,
    /// It may be taken later, after this time if the receiver has said one.
    later: Option<Option<Duration>>,
}

/// What was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    ForNow,
    ForGood,
}

/// One receiver and how it does.
struct Line {
    receiver: Receiver,
    due: Instant,
    wait: Duration,
    is_in_trouble: bool,
    said_rejected: bool,
}

/// What a sender sends.
pub enum Signal {
    Spans,
    Metrics(MetricSource),
}

/// Sends one signal to its receiver.
pub struct Sender {
    settings: Arc<Settings>,
    store: Arc<SpanStore>,
    signal: Signal,
    client: Client,
    line: Line,
    /// A request that the receiver may take later, as it was: the same spans have the same numbers.
    kept: Option<SpanRequest>,
    began_ns: u64,
    report: SentReport,
    said_dropped: bool,
}

struct SpanRequest {
    body: Vec<u8>,
    spans: u64,
}

/// Has it trust what clients of stores do: on a system without authorities none can be made otherwise.
fn trusting(builder: ClientBuilder) -> ClientBuilder {
    #[cfg(feature = "object")]
    let builder = foreread::source::object::built_in_authorities()
        .iter()
        .filter_map(|der| reqwest::Certificate::from_der(der).ok())
        .fold(builder, ClientBuilder::add_root_certificate);
    builder
}

/// The client of all senders: to make one reads the certificates of the system.
pub fn client() -> Result<Client, Fail> {
    let builder = Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("foreread/", env!("CARGO_PKG_VERSION")));
    trusting(builder).build().map_err(|error| {
        let remedy = "see whether threads and certificates can be had";
        Fail::cannot("cannot send telemetry", deepest(&error), remedy)
    })
}

impl Sender {
    /// Nothing where no receiver of it is named.
    pub fn new(
        settings: &Arc<Settings>,
        store: &Arc<SpanStore>,
        signal: Signal,
        client: &Client,
    ) -> Option<Sender> {
        let (receiver, first) = match signal {
            Signal::Spans => (&settings.traces, settings.span_delay),
            Signal::Metrics(_) => (&settings.metrics, settings.metric_interval),
        };
        let receiver = receiver.clone()?;
        Some(Sender {
            settings: Arc::clone(settings),
            store: Arc::clone(store),
            signal,
            client: client.clone(),
            line: Line::new(receiver, first),
            kept: None,
            began_ns: unix_ns(SystemTime::now()),
            report: SentReport::default(),
            said_dropped: false,
        })
    }

    /// Where it goes, without what may be secret.
    pub fn place(&self) -> String {
        self.line.receiver.place()
    }

    /// Until the end of the command.
    pub fn run(mut self) -> SentReport {
        match self.signal {
            Signal::Spans => self.run_spans(),
            Signal::Metrics(_) => self.run_metrics(),
        }
        self.report
    }

    fn run_spans(&mut self) {
        let mut second = Instant::now() + SECOND;
        loop {
            let next = self.line.due.min(second);
            let ending = self.store.sleep(next, !self.line.is_in_trouble);
            let now = Instant::now();
            let is_short = self.settings.span_delay < SECOND;
            if ending || now >= second || is_short {
                self.store.end_second();
                second = now + SECOND;
            }
            self.send_spans(ending);
            if ending {
                self.report.lost_spans += self.kept.take().map_or(0, |kept| kept.spans);
                return;
            }
        }
    }

    fn send_spans(&mut self, ending: bool) {
        let begin = Instant::now();
        let is_full = !self.line.is_in_trouble && self.store.has_batch();
        let mut goes_on = ending || is_full || begin >= self.line.due;
        if goes_on {
            self.line.due = begin + self.settings.span_delay;
        }
        while goes_on {
            let Some(request) = self.kept.take().or_else(|| self.next_spans()) else {
                break;
            };
            let limit = self.limit(ending, begin);
            match self.line.send(&self.client, request.body.clone(), limit) {
                Ok(rejected) => self.report.lost_spans += rejected.min(request.spans),
                Err(Refusal::ForGood) => {
                    self.report.lost_spans += request.spans;
                    goes_on = false;
                }
                Err(Refusal::ForNow) => {
                    self.kept = Some(request);
                    goes_on = false;
                }
            }
            goes_on &= !ending || begin.elapsed() < LAST_TIMEOUT;
        }
        self.say_dropped();
    }

    fn next_spans(&self) -> Option<SpanRequest> {
        let spans = self.store.take();
        (!spans.is_empty()).then(|| SpanRequest {
            body: trace_request(&spans, &self.settings.resource).encode_to_vec(),
            spans: count(&spans),
        })
    }

    fn run_metrics(&mut self) {
        loop {
            let ending = self.store.sleep(self.line.due, false);
            if ending || Instant::now() >= self.line.due {
                self.send_metrics(ending);
            }
            if ending {
                return;
            }
        }
    }

    fn send_metrics(&mut self, ending: bool) {
        let limit = self.limit(ending, Instant::now());
        let Signal::Metrics(source) = &self.signal else {
            return;
        };
        let time = TimeSpan {
            start_ns: self.began_ns,
            now_ns: unix_ns(SystemTime::now()),
        };
        let request = metrics::request(&source(), &self.settings.resource, time);
        // What is not taken now is in the next, with all that is counted until then.
        let _ = self.line.send(&self.client, request.encode_to_vec(), limit);
        if !self.line.is_in_trouble {
            self.line.due = Instant::now() + self.settings.metric_interval;
        }
    }

    /// How long a request may take; at the end what is left of the time.
    fn limit(&self, ending: bool, begin: Instant) -> Duration {
        let most = match ending {
            true => LAST_TIMEOUT.saturating_sub(begin.elapsed()),
            false => Duration::MAX,
        };
        self.settings.timeout.min(most)
    }

    /// Once: the number is said at the end.
    fn say_dropped(&mut self) {
        if !self.said_dropped && self.store.dropped() > 0 {
            self.said_dropped = true;
            note(format!(
                "telemetry: more spans than can be sent, the rest is dropped; keep fewer by OTEL_TRACES_SAMPLER, or queue \
                 more than {} (OTEL_BSP_MAX_QUEUE_SIZE)",
                self.settings.queue_spans
            ));
        }
    }
}

impl Line {
    fn new(receiver: Receiver, first: Duration) -> Line {
        Line {
            receiver,
            due: Instant::now() + first,
            wait: FIRST_WAIT,
            is_in_trouble: false,
            said_rejected: false,
        }
    }

    /// How much of it was rejected; an error where nothing was taken. Says what changed.
    fn send(&mut self, client: &Client, body: Vec<u8>, limit: Duration) -> Result<u64, Refusal> {
        let request = client
            .post(self.receiver.url.clone())
            .header(CONTENT_TYPE, "application/x-protobuf")
            .headers(self.receiver.headers.clone())
            .timeout(limit)
            .body(body);
        let sent = request.send().map_err(|error| {
            let (why, remedy) = if error.is_timeout() {
                (
                    "it does not answer".to_string(),
                    "see whether it is a receiver of OTLP over HTTP, usually at port 4318",
                )
            } else {
                (
                    deepest(&error),
                    "see whether it runs, OTEL_EXPORTER_OTLP_ENDPOINT, and HTTP_PROXY where that is set",
                )
            };
            Trouble {
                why,
                remedy,
                later: Some(None),
            }
        });
        match sent.and_then(taken) {
            Ok(reply) => {
                if std::mem::take(&mut self.is_in_trouble) {
                    note(format!(
                        "telemetry: {} takes it again",
                        self.receiver.place()
                    ));
                }
                self.wait = FIRST_WAIT;
                let partial = reply.partial_success.unwrap_or_default();
                if partial.rejected > 0 && !std::mem::replace(&mut self.said_rejected, true) {
                    let (place, text) = (self.receiver.place(), partial.error_message);
                    note(format!("telemetry: {place} rejects a part of it: {text}"));
                }
                Ok(u64::try_from(partial.rejected).unwrap_or(0))
            }
            Err(trouble) => {
                if !std::mem::replace(&mut self.is_in_trouble, true) {
                    let Trouble { why, remedy, .. } = &trouble;
                    let place = self.receiver.place();
                    note(format!(
                        "telemetry cannot be sent to {place}: {why}; {remedy}"
                    ));
                }
                let said = trouble.later.flatten();
                let said = said.map(|said| said.clamp(FIRST_WAIT, LONGEST_WAIT));
                self.due = Instant::now() + said.unwrap_or(self.wait);
                self.wait = (self.wait * 2).min(LONGEST_WAIT);
                Err(if trouble.later.is_some() {
                    Refusal::ForNow
                } else {
                    Refusal::ForGood
                })
            }
        }
    }
}

/// What the answer says.
fn taken(answer: Response) -> Result<ExportReply, Trouble> {
    let status = answer.status();
    if status.is_success() {
        let mut bytes = Vec::new();
        let read = answer.take(MAX_REPLY).read_to_end(&mut bytes);
        // An answer that cannot be read is one that says nothing.
        return Ok(read
            .ok()
            .and_then(|_| ExportReply::decode(&bytes[..]).ok())
            .unwrap_or_default());
    }
    let after = answer.headers().get(RETRY_AFTER);
    let after = after.and_then(|after| after.to_str().ok()?.parse().ok());
    let is_busy = matches!(status.as_u16(), 429 | 502..=504);
    let remedy = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "see OTEL_EXPORTER_OTLP_HEADERS",
        _ if is_busy => "it is asked again",
        _ => "see whether it is a receiver of OTLP over HTTP, usually at port 4318",
    };
    Err(Trouble {
        why: status.to_string(),
        remedy,
        later: is_busy.then(|| after.map(Duration::from_secs)),
    })
}

/// The error below all others: the one of the system.
fn deepest(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(below) = deepest.source() {
        deepest = below;
    }
    deepest.to_string()
}

fn count(spans: &[ClosedSpan]) -> u64 {
    spans.iter().map(|span| span.count() as u64).sum()
}

fn unix_ns(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// A name of this process that no other has.
pub fn instance_id() -> String {
    random::<16>()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Each call has another key of SipHash, and the first of them is random.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    for part in bytes.chunks_mut(8) {
        let number = RandomState::new().hash_one(0u8).to_ne_bytes();
        part.copy_from_slice(&number[..part.len()]);
    }
    bytes
}

/// What the clock of the machine shows at the times of spans.
#[derive(Clone, Copy)]
struct WallClock {
    now: Instant,
    now_ns: u64,
}

impl WallClock {
    fn at(self, time: Instant) -> u64 {
        let ago = self.now.saturating_duration_since(time);
        self.now_ns
            .saturating_sub(u64::try_from(ago.as_nanos()).unwrap_or(u64::MAX))
    }
}

fn trace_request(spans: &[ClosedSpan], pairs: &[(String, String)]) -> TraceRequest {
    let clock = WallClock {
        now: Instant::now(),
        now_ns: unix_ns(SystemTime::now()),
    };
    let mut messages = Vec::new();
    for span in spans {
        let (trace, above) = match &span.parent {
            Some(parent) => (parent.trace, parent.span.to_vec()),
            None => (random(), Vec::new()),
        };
        add(&mut messages, span, trace, above, clock);
    }
    TraceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource(pairs)),
            scope_spans: vec![ScopeSpans {
                scope: Some(scope()),
                spans: messages,
            }],
        }],
    }
}

/// A span and those inside it.
fn add(
    to: &mut Vec<SpanMessage>,
    span: &ClosedSpan,
    trace: [u8; 16],
    above: Vec<u8>,
    clock: WallClock,
) {
    let own: [u8; 8] = random();
    let value = |value: &AttributeValue| match value {
        AttributeValue::Whole(whole) => OneValue::Whole(*whole),
        AttributeValue::Real(real) => OneValue::Real(*real),
        AttributeValue::Text(text) => OneValue::Text(text.clone()),
    };
    let pairs = span.attributes.iter();
    let mut attributes: Vec<KeyValue> = pairs
        .map(|(key, said)| attribute(format!("{PREFIX}{key}"), value(said)))
        .collect();
    if span.left_out > 0 {
        attributes.push(attribute(
            "foreread.spans_left_out",
            OneValue::Whole(span.left_out),
        ));
    }
    let status = span.error.clone();
    to.push(SpanMessage {
        trace_id: trace.to_vec(),
        span_id: own.to_vec(),
        parent_span_id: above,
        name: span.name.to_string(),
        kind: INTERNAL,
        start_time_unix_nano: clock.at(span.start),
        end_time_unix_nano: clock.at(span.end),
        attributes,
        status: status.map(|message| StatusMessage {
            message,
            code: ERROR,
        }),
    });
    for part in &span.parts {
        add(to, part, trace, own.to_vec(), clock);
    }
}
