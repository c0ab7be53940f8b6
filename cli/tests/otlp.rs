//! Tests the spans that a receiver gets: the parts of a read's span add up, and receivers hang, refuse or are missing.
//!
//! The receiver parses the data with the crate that OpenTelemetry generates from its protocol.

use crate::common::{BINARY, Server, foreread, foreread_in, read_nbd};
use foreread::source::Nbd;
use foreread_testing::{HttpServer, ServedAnswer};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use std::ffi::OsStr;
use std::net::TcpListener;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const SIZE: usize = 3_000_000;
/// Only a test that fails takes so long.
const LONGEST: Duration = Duration::from_secs(60);

/// A request: its path, the header `api-key`, its body.
type Request = (String, String, Vec<u8>);

/// A receiver of OTLP over HTTP.
struct Collector {
    url: String,
    requests: Receiver<Request>,
    _server: HttpServer,
}

impl Collector {
    fn new() -> Collector {
        Collector::with(Some(200))
    }

    /// Answers with this status, or never.
    fn with(status: Option<u16>) -> Collector {
        let (send, requests) = channel();
        let server = HttpServer::start(move |seen, body| {
            let key = seen.header("api-key").unwrap_or_default().to_string();
            // A test that has seen enough receives no more.
            let _ = send.send((seen.target.clone(), key, body.to_vec()));
            let Some(status) = status else {
                loop {
                    std::thread::park();
                }
            };
            Ok(ServedAnswer::new(status, ""))
        });
        let server = server.expect("a port");
        Collector {
            url: format!("http://{}", server.address()),
            requests,
            _server: server,
        }
    }

    fn next(&self, path: &str) -> Request {
        let next = || self.requests.recv_timeout(LONGEST).expect("it is sent");
        let mut all = std::iter::repeat_with(next);
        all.find(|request| request.0 == path).expect("endless")
    }

    fn spans(&self) -> Vec<Span> {
        spans_of(&self.next("/v1/traces").2)
    }
}

fn spans_of(body: &[u8]) -> Vec<Span> {
    let request = ExportTraceServiceRequest::decode(body).expect("spans");
    let all = request.resource_spans.into_iter();
    let all = all.flat_map(|of| of.scope_spans);
    all.flat_map(|of| of.spans).collect()
}

/// `foreread serve` of a file with telemetry.
struct Served {
    server: Server,
    _folder: tempfile::TempDir,
}

impl Served {
    fn new(collector: &str, more: &[(&str, &str)]) -> Served {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = folder.path().join("disk");
        let bytes = foreread_testing::pattern(0, SIZE, 0);
        std::fs::write(&disk, bytes).expect("room");
        let mut command = Command::new(BINARY);
        let command = command.arg("serve").arg(&disk);
        let command = command.arg("--unix").arg(folder.path().join("s"));
        let command = command.envs([
            ("OTEL_EXPORTER_OTLP_ENDPOINT", collector),
            ("OTEL_BSP_SCHEDULE_DELAY", "20"),
        ]);
        let server = Server::start(command.envs(more.iter().copied()));
        Served {
            server,
            _folder: folder,
        }
    }

    /// Reads the whole file by a client.
    fn read_all(&self) {
        let client = Nbd::open(&self.server.line).expect("connected");
        let mut all = Vec::new();
        while all.len() < SIZE {
            all.extend(read_nbd(&client, all.len() as u64, 100_000));
        }
        assert!(all == foreread_testing::pattern(0, SIZE, 0));
    }

    /// Ends it by SIGTERM within the promised time, and gives all that it said.
    fn ended(self) -> String {
        let begin = Instant::now();
        let said = self.server.ended_by("-TERM");
        // 3 s, and what a busy machine adds.
        assert!(begin.elapsed() < Duration::from_secs(10), "{said}");
        said
    }
}

fn number(of: &[KeyValue], key: &str) -> i64 {
    let found = of.iter().find(|pair| pair.key == key);
    let value = found.and_then(|pair| pair.value.as_ref()?.value.as_ref());
    match value {
        Some(any_value::Value::IntValue(number)) => *number,
        other => panic!("{key}: {other:?} in {of:?}"),
    }
}

#[test]
fn spans_add_up_to_the_reads() {
    let collector = Collector::new();
    let variables = [
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20key"),
        ("OTEL_TRACES_SAMPLER", "always_on"),
    ];
    let served = Served::new(&collector.url, &variables);
    served.read_all();
    served.read_all();
    let (mut sums, mut spans) = ([0; 4], Vec::new());
    while sums[0] < 2 * SIZE as i64 {
        let (_, key, body) = collector.next("/v1/traces");
        assert_eq!(key, "a key");
        for span in spans_of(&body) {
            assert!(span.start_time_unix_nano <= span.end_time_unix_nano);
            if span.name == "read" {
                let of = |key: &str| number(&span.attributes, key);
                let bytes = ["bytes", "hit_bytes", "late_bytes", "missed_bytes"].map(of);
                assert_eq!(bytes[0], bytes[1] + bytes[2] + bytes[3], "{span:?}");
                let took = (span.end_time_unix_nano - span.start_time_unix_nano) as i64;
                assert!((0..=took).contains(&of("stall_ns")), "{span:?}");
                sums.iter_mut().zip(bytes).for_each(|(sum, of)| *sum += of);
            }
            spans.push(span);
        }
    }
    assert_eq!(sums[0], 2 * SIZE as i64, "each byte in one span");
    assert!(sums[1] >= SIZE as i64 && sums[3] > 0, "{sums:?}");
    fetches_are_inside(&spans);
    let said = served.ended();
    assert!(!said.contains("OTel") && !said.contains("lost"), "{said}");
}

/// Each fetch is inside of a read that has a span.
fn fetches_are_inside(spans: &[Span]) {
    for fetch in spans.iter().filter(|span| span.name == "fetch") {
        let is_within = |root: &Span| root.span_id == fetch.parent_span_id;
        assert!(spans.iter().any(is_within), "{fetch:?}");
    }
}

#[test]
fn the_slowest_reads_of_a_second_have_spans() {
    let collector = Collector::new();
    let served = Served::new(&collector.url, &[]);
    served.read_all();
    let reads = |spans: &[Span]| spans.iter().filter(|span| span.name == "read").count();
    let mut spans = collector.spans();
    assert!(reads(&spans) > 0);
    served.ended();
    while let Ok((path, _, body)) = collector.requests.try_recv() {
        if path == "/v1/traces" {
            spans.extend(spans_of(&body));
        }
    }
    assert!(reads(&spans) <= SIZE / 100_000, "none twice");
    fetches_are_inside(&spans);
}

#[test]
fn a_receiver_that_hangs_delays_neither_reads_nor_the_end() {
    let collector = Collector::with(None);
    let hour = [("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000")];
    let served = Served::new(&collector.url, &hour);
    served.read_all();
    collector.next("/v1/traces");
    served.read_all();
    let said = served.ended();
    assert!(said.contains("the receiver does not answer"), "{said}");
}

#[test]
fn what_is_wrong_with_a_receiver_or_a_variable_is_one_line() {
    // Bound and closed: no program listens there.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let away = format!("http://{}", listener.local_addr().expect("bound"));
    drop(listener);
    let refuses = Collector::with(Some(401));
    for (url, why) in [(&refuses.url, "401"), (&away, "network error")] {
        let only_spans = [
            ("OTEL_TRACES_SAMPLER", "always_on"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=canary"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "500"),
        ];
        let served = Served::new(url, &only_spans);
        for _ in 0..3 {
            served.read_all();
            std::thread::sleep(Duration::from_millis(300));
        }
        let said = served.ended();
        assert_eq!(said.matches("ExportError").count(), 1, "{said}");
        assert!(said.contains(why) && !said.contains("canary"), "{said}");
    }
    let wrong = [("OTEL_TRACES_SAMPLER", "sometimes")];
    let said = Served::new(&refuses.url, &wrong).ended();
    assert_eq!(said.matches("sometimes").count(), 1, "{said}");
}

/// A run is one span, below the span of the program that began it.
#[test]
fn a_run_is_a_span_below_its_parent() {
    if foreread(["run", "--by", "sample", "-q", "--", "true"]).code != Some(0) {
        return println!("skipped: this machine cannot sample reads");
    }
    let collector = Collector::new();
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", OsStr::new(&collector.url)),
        ("TRACEPARENT", OsStr::new(parent)),
    ];
    let words = ["run", "--by", "sample", "-q", "--", "sh", "-c", "exit 3"];
    let got = foreread_in(&variables, words);
    assert_eq!((got.code, &got.err[..]), (Some(3), ""));
    let spans = collector.spans();
    let [span] = &spans[..] else {
        panic!("{spans:?}")
    };
    assert_eq!(span.name, "run");
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let (trace, above) = (hex(&span.trace_id), hex(&span.parent_span_id));
    assert_eq!(format!("00-{trace}-{above}-01"), parent);
    assert_eq!(number(&span.attributes, "exit_code"), 3);
    assert_eq!(span.status.as_ref().map(|status| status.code), Some(2));
}
