//! Telemetry as a receiver gets it: spans of reads that add up, metrics as the page has them, and receivers that hang, refuse or are not there.
//!
//! The receiver reads what it gets by the crate that OpenTelemetry generates of its protocol.

use crate::common::{first_line, foreread, foreread_in};
use foreread::source::{Nbd, Source};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{Metric, metric, number_data_point};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, IoSliceMut, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

const SIZE: usize = 3_000_000;
/// Only a test that fails takes so long.
const LONGEST: Duration = Duration::from_secs(60);

/// What a receiver got.
enum Received {
    Spans(ExportTraceServiceRequest),
    Metrics(ExportMetricsServiceRequest),
}

/// How a receiver answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Takes,
    Hangs,
    Refuses,
}

/// A receiver of OTLP over HTTP.
struct Collector {
    url: String,
    received: Receiver<Received>,
    /// Values of the header `api-key` that came.
    keys: Receiver<String>,
    requests: Arc<AtomicUsize>,
}

impl Collector {
    fn new(manner: Manner) -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let ((send, received), (tell, keys)) = (channel(), channel());
        let requests = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&requests);
        let work = move || {
            for stream in listener.incoming() {
                let (stream, send, tell) = (stream.expect("a client"), send.clone(), tell.clone());
                let count = Arc::clone(&count);
                let serve = move || answer(stream, manner, &send, &tell, &count);
                foreread_os::threads::spawn("connection", serve).expect("a thread");
            }
        };
        foreread_os::threads::spawn("collector", work).expect("a thread");
        Collector {
            url,
            received,
            keys,
            requests,
        }
    }

    fn next(&self) -> Received {
        self.received.recv_timeout(LONGEST).expect("it is sent")
    }

    fn spans(&self) -> Vec<Span> {
        loop {
            if let Received::Spans(request) = self.next() {
                let all = request.resource_spans.into_iter();
                let all = all.flat_map(|of| of.scope_spans).flat_map(|of| of.spans);
                return all.collect();
            }
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        loop {
            if let Received::Metrics(request) = self.next() {
                let all = request.resource_metrics.into_iter();
                let all = all.flat_map(|of| of.scope_metrics);
                return all.flat_map(|of| of.metrics).collect();
            }
        }
    }
}

/// Answers the requests of a connection, one after the other.
fn answer(
    stream: TcpStream,
    manner: Manner,
    send: &Sender<Received>,
    tell: &Sender<String>,
    count: &AtomicUsize,
) {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut path, mut len) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(rest) = line.strip_prefix("post ") {
                path = rest.split(' ').next().unwrap_or_default().to_string();
            } else if let Some(text) = line.strip_prefix("content-length: ") {
                len = text.parse().expect("a length");
            } else if let Some(key) = line.strip_prefix("api-key: ") {
                let _ = tell.send(key.to_string());
            } else if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; len];
        reader.read_exact(&mut body).expect("a body");
        count.fetch_add(1, Ordering::SeqCst);
        let status = match manner {
            Manner::Takes => "200 OK",
            Manner::Refuses => "401 Unauthorized",
            // Until the client gives up.
            Manner::Hangs => return drop(reader.read(&mut [0])),
        };
        let got = match &path[..] {
            "/v1/traces" => Received::Spans(Message::decode(&body[..]).expect("spans")),
            "/v1/metrics" => Received::Metrics(Message::decode(&body[..]).expect("metrics")),
            other => panic!("{other}"),
        };
        // A test that has seen enough receives no more.
        let _ = send.send(got);
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        if reader.get_mut().write_all(head.as_bytes()).is_err() {
            return;
        }
    }
}

/// `foreread serve` of a file with telemetry; ended, whatever happens.
struct Served {
    process: Child,
    uri: String,
    err: BufReader<ChildStderr>,
    /// What stderr had until now.
    said: String,
    folder: tempfile::TempDir,
}

impl Served {
    fn new(collector: &str, more: &[(&str, &str)]) -> Served {
        let folder = tempfile::tempdir().expect("a folder");
        let bytes: Vec<u8> = (0..SIZE as u32)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        std::fs::write(folder.path().join("disk"), bytes).expect("room");
        let mut process = Command::new(env!("CARGO_BIN_EXE_foreread"))
            .arg("serve")
            .arg(folder.path().join("disk"))
            .arg("--unix")
            .arg(folder.path().join("s"))
            .args(["--metrics", "127.0.0.1:0"])
            .envs([
                ("OTEL_EXPORTER_OTLP_ENDPOINT", collector),
                ("OTEL_TRACES_SAMPLER", "always_on"),
                ("OTEL_BSP_SCHEDULE_DELAY", "20"),
                ("OTEL_METRIC_EXPORT_INTERVAL", "20"),
            ])
            .envs(more.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let uri = first_line(&mut process);
        let err = BufReader::new(process.stderr.take().expect("piped"));
        let uri = uri.trim_end().to_string();
        assert!(!uri.is_empty(), "it serves");
        Served {
            process,
            uri,
            err,
            said: String::new(),
            folder,
        }
    }

    /// Reads the whole file by a client, in requests of this length.
    fn read_all(&self, len: usize) {
        let client = Nbd::open(&self.uri).expect("connected");
        let mut all = Vec::new();
        while all.len() < SIZE {
            let mut part = vec![0; len.min(SIZE - all.len())];
            let read = client.read_at(&mut [IoSliceMut::new(&mut part)], all.len() as u64);
            assert_eq!(read.expect("read"), part.len());
            all.extend(part);
        }
        let want = std::fs::read(self.folder.path().join("disk")).expect("there");
        assert!(all == want, "the bytes of the file");
    }

    /// Waits for a line with this text on stderr.
    fn line(&mut self, text: &str) -> String {
        loop {
            let mut line = String::new();
            let read = self.err.read_line(&mut line).expect("a line");
            assert!(read > 0, "no line with {text}: {}", self.said);
            self.said += &line;
            if line.contains(text) {
                return line;
            }
        }
    }

    fn page(&self, host: &str) -> String {
        let mut stream = TcpStream::connect(host).expect("connected");
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\n\r\n")
            .expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("text");
        text
    }

    /// Ends it by SIGTERM, and gives all that it said.
    fn ended(mut self) -> (ExitStatus, String) {
        let id = self.process.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status();
        assert!(sent.expect("kill").success());
        let mut rest = String::new();
        self.err.read_to_string(&mut rest).expect("text");
        let status = self.process.wait().expect("waited");
        (status, std::mem::take(&mut self.said) + &rest)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
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

fn text(of: &[KeyValue], key: &str) -> String {
    let found = of.iter().find(|pair| pair.key == key);
    let value = found.and_then(|pair| pair.value.as_ref()?.value.as_ref());
    match value {
        Some(any_value::Value::StringValue(text)) => text.clone(),
        other => panic!("{key}: {other:?} in {of:?}"),
    }
}

/// A sample's name with its labels in their order, and bounds as numbers are.
fn key(name: &str, mut labels: Vec<(String, String)>) -> String {
    for (key, value) in &mut labels {
        if key == "le" {
            let bound: f64 = value.parse().expect("a bound");
            *value = format!("{bound:?}");
        }
    }
    labels.sort();
    let labels = labels.iter().map(|(key, value)| format!("{key}={value}"));
    format!("{name} {}", labels.collect::<Vec<_>>().join(","))
}

/// Each sample of the page.
fn of_page(page: &str) -> BTreeMap<String, f64> {
    let body = page.split("\r\n\r\n").nth(1).expect("a body");
    let samples = body.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').expect("a sample");
        let (name, labels) = name.split_once('{').unwrap_or((name, ""));
        let labels = labels.strip_suffix("\"}").unwrap_or(labels).split("\",");
        let labels = labels.filter_map(|label| label.split_once("=\""));
        let labels = labels.map(|(key, value)| (key.to_string(), value.to_string()));
        (
            key(name, labels.collect()),
            value.parse().expect("a number"),
        )
    };
    samples.map(sample).collect()
}

fn of_messages(metrics: &[Metric]) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    let mut add = |name: String, pairs: &[KeyValue], more: Option<(&str, String)>, value: f64| {
        let mut labels: Vec<(String, String)> = pairs
            .iter()
            .map(|pair| (pair.key.clone(), text(pairs, &pair.key)))
            .collect();
        labels.extend(more.map(|(key, value)| (key.to_string(), value)));
        assert!(samples.insert(key(&name, labels), value).is_none(), "twice");
    };
    let value = |value: Option<number_data_point::Value>| match value.expect("a value") {
        number_data_point::Value::AsInt(whole) => whole as f64,
        number_data_point::Value::AsDouble(real) => real,
    };
    for metric in metrics {
        let name = &metric.name;
        match metric.data.as_ref().expect("data") {
            metric::Data::Gauge(gauge) => {
                for point in &gauge.data_points {
                    add(name.clone(), &point.attributes, None, value(point.value));
                }
            }
            metric::Data::Sum(sum) => {
                assert!(
                    sum.is_monotonic && sum.aggregation_temporality == 2,
                    "{name}"
                );
                for point in &sum.data_points {
                    assert!(point.start_time_unix_nano <= point.time_unix_nano);
                    let name = format!("{name}_total");
                    add(name, &point.attributes, None, value(point.value));
                }
            }
            metric::Data::Histogram(histogram) => {
                for point in &histogram.data_points {
                    let labels = &point.attributes;
                    let sum = point.sum.expect("a sum");
                    add(format!("{name}_sum"), labels, None, sum);
                    add(format!("{name}_count"), labels, None, point.count as f64);
                    let bounds = point
                        .explicit_bounds
                        .iter()
                        .map(|bound| format!("{bound:?}"));
                    let bounds = bounds.chain(["inf".to_string()]);
                    let mut below = 0;
                    assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
                    for (bound, count) in bounds.zip(&point.bucket_counts) {
                        below += count;
                        let name = format!("{name}_bucket");
                        add(name, labels, Some(("le", bound)), below as f64);
                    }
                }
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    samples
}

#[test]
fn spans_add_up_to_what_was_read_and_metrics_are_those_of_the_page() {
    let collector = Collector::new(Manner::Takes);
    let keys = [("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20key")];
    let mut served = Served::new(&collector.url, &keys);
    let line = served.line("metrics at http://");
    let host = line.split("http://").nth(1).expect("an address");
    let host = host.split('/').next().expect("an address").to_string();
    served.line("telemetry goes to http://127.0.0.1");
    served.read_all(100_000);
    served.read_all(100_000);

    let (mut sums, mut fetches, mut roots) = ([0; 4], 0, Vec::new());
    while sums[0] < 2 * SIZE as i64 {
        for span in collector.spans() {
            assert!(span.start_time_unix_nano <= span.end_time_unix_nano);
            if span.name == "fetch" {
                let within = |root: &Span| root.span_id == span.parent_span_id;
                assert!(roots.iter().any(within), "a fetch is inside its read");
                fetches += 1;
                continue;
            }
            assert_eq!(span.name, "read");
            let of = |key: &str| number(&span.attributes, &format!("foreread.{key}"));
            let bytes = ["bytes", "hit_bytes", "late_bytes", "missed_bytes"].map(of);
            assert_eq!(bytes[0], bytes[1] + bytes[2] + bytes[3], "{span:?}");
            let took = (span.end_time_unix_nano - span.start_time_unix_nano) as i64;
            assert!((0..=took).contains(&of("stall_ns")), "{span:?}");
            assert!(text(&span.attributes, "foreread.source").contains("/disk"));
            for (sum, bytes) in sums.iter_mut().zip(bytes) {
                *sum += bytes;
            }
            roots.push(span);
        }
    }
    assert_eq!(sums[0], 2 * SIZE as i64, "each byte in one span");
    assert!(
        sums[1] >= SIZE as i64,
        "the second time all is cached: {sums:?}"
    );
    assert!(sums[3] > 0, "the first read misses: {sums:?}");
    assert!(fetches > 0 || sums[2] + sums[3] > 0);
    let key = collector.keys.recv_timeout(LONGEST).expect("a header");
    assert_eq!(key, "a key");

    // Of a server that rests: what its threads do last may come between the two.
    let mut looks = 0;
    loop {
        let page = of_page(&served.page(&host));
        let sent = of_messages(&collector.metrics());
        if page == sent {
            assert_eq!(page["foreread_read_bytes_total "], 2.0 * SIZE as f64);
            assert!(page.len() > 60, "{page:?}");
            break;
        }
        looks += 1;
        let differ: Vec<_> = page
            .iter()
            .filter(|(key, value)| sent.get(*key) != Some(*value))
            .collect();
        assert!(
            looks < 1000,
            "{} and {} samples: {differ:?}",
            page.len(),
            sent.len()
        );
    }
    let (status, said) = served.ended();
    assert!(status.success(), "{said}");
    assert!(!said.contains("not delivered"), "{said}");
}

#[test]
fn a_receiver_that_hangs_delays_neither_reads_nor_the_end() {
    let collector = Collector::new(Manner::Hangs);
    let hour = [("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000")];
    let served = Served::new(&collector.url, &hour);
    served.read_all(SIZE);
    while collector.requests.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    served.read_all(SIZE);
    // The receiver hangs as long as this test: an end is one that did not wait for it.
    let (status, said) = served.ended();
    assert!(status.success(), "{said}");
    let line = "did not answer; what was last is not delivered";
    assert!(said.contains(&format!("/v1/traces {line}")), "{said}");
}

#[test]
fn a_receiver_that_refuses_is_one_line() {
    let collector = Collector::new(Manner::Refuses);
    let only_spans = [("OTEL_METRICS_EXPORTER", "none")];
    let mut served = Served::new(&collector.url, &only_spans);
    served.read_all(SIZE);
    let line = served.line("telemetry cannot be sent");
    assert!(
        line.contains("401 Unauthorized; see OTEL_EXPORTER_OTLP_HEADERS"),
        "{line}"
    );
    served.read_all(SIZE);
    while collector.requests.load(Ordering::SeqCst) < 2 {
        std::thread::yield_now();
    }
    let (status, said) = served.ended();
    assert!(status.success(), "{said}");
    assert_eq!(said.matches("cannot be sent").count(), 1, "{said}");
    assert_eq!(said.matches("were not delivered").count(), 1, "{said}");
}

#[test]
fn a_receiver_that_is_not_there_is_one_line() {
    // Bound and closed: no program listens there.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    drop(listener);
    let mut served = Served::new(&url, &[("OTEL_METRICS_EXPORTER", "none")]);
    served.read_all(SIZE);
    let line = served.line("telemetry cannot be sent");
    assert!(
        line.contains("refused") && line.contains("OTEL_EXPORTER_OTLP_ENDPOINT"),
        "{line}"
    );
    let (status, said) = served.ended();
    assert!(status.success(), "{said}");
    assert_eq!(said.matches("cannot be sent").count(), 1, "{said}");
}

#[test]
fn a_wrong_variable_is_refused_before_anything_is_served() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = folder.path().join("disk");
    std::fs::write(&disk, [7; 4096]).expect("room");
    let socket = folder.path().join("s");
    let words = [
        "serve".as_ref(),
        disk.as_os_str(),
        "--unix".as_ref(),
        socket.as_os_str(),
    ];
    let wrong = [("OTEL_EXPORTER_OTLP_ENDPOINT", OsStr::new("collector:4318"))];
    let got = foreread_in(&wrong, words);
    assert!(
        got.is_refused()
            .contains("write a URL such as http://localhost:4318"),
        "{}",
        got.err
    );
}

/// A run is one span, below the span of the program that began it.
#[cfg(feature = "lab")]
#[test]
fn a_run_is_a_span_below_its_parent() {
    if foreread(["run", "--by", "sample", "-q", "--", "true"]).code != Some(0) {
        println!("skipped: this machine cannot sample reads");
        return;
    }
    let collector = Collector::new(Manner::Takes);
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
    let ids = format!(
        "00-{}-{}-01",
        hex(&span.trace_id),
        hex(&span.parent_span_id)
    );
    assert_eq!(ids, parent);
    assert_eq!(number(&span.attributes, "foreread.exit_code"), 3);
    assert_eq!(span.status.as_ref().map(|status| status.code), Some(2));
}
