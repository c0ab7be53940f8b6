//! Tests of the metrics: they are valid OpenMetrics, they equal the counters, and the port stays
//! within its limits.

use crate::common::{by, named, quiet, read_and_check, watch};
use foreread::front::metrics::{FrontView, MAX_STREAMS, MetricsServer, text};
use foreread::policy::Pattern;
use foreread::{Engine, Options, StreamView};
use foreread_testing::says;
use std::collections::BTreeMap;
#[cfg(feature = "disk-cache")]
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

fn engine() -> Engine {
    Engine::new(by("linux-6.18:max=128K", 4 << 20)).expect("an engine")
}

fn auto() -> Engine {
    Engine::new(by("auto", 4 << 20)).expect("an engine")
}

/// Every sample by its name and labels. Strict: whatever OpenMetrics forbids is a failure.
fn parse(text: &str) -> BTreeMap<String, f64> {
    let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
    let mut samples = BTreeMap::new();
    let mut current = "";
    let body = text.strip_suffix("# EOF\n").expect("the end is marked");
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let words = Vec::from_iter(rest.splitn(3, ' '));
            let [what, name, value] = words[..] else {
                panic!("{line}")
            };
            match what {
                "TYPE" => assert_eq!(kinds.insert(name, value), None, "{name} is declared twice"),
                "UNIT" => assert!(name.ends_with(&format!("_{value}")), "{line}"),
                "HELP" => assert!(!value.contains('"'), "{line}"),
                _ => panic!("{line}"),
            }
            current = name;
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let name = series.split('{').next().expect("a name");
        let suffix = name.strip_prefix(current);
        let suffix = suffix.unwrap_or_else(|| panic!("{line}: not of {current}"));
        let allowed: &[&str] = match kinds[current] {
            "counter" => &["_total"],
            "gauge" => &[""],
            "info" => &["_info"],
            "histogram" => &["_bucket", "_sum", "_count"],
            kind => panic!("{kind}"),
        };
        let is_allowed = allowed.contains(&suffix) && name.starts_with("foreread_");
        assert!(is_allowed, "{line}");
        assert_eq!(series.matches('"').count() % 2, 0, "{line}");
        let value: f64 = value.parse().expect("a number");
        let before = samples.insert(series.to_string(), value);
        assert_eq!(before, None, "{series} comes twice");
    }
    samples
}

fn connect(url: &str) -> TcpStream {
    TcpStream::connect(host(url)).expect("connected")
}

fn host(url: &str) -> &str {
    let host = url.trim_start_matches("http://");
    host.trim_end_matches("/metrics")
}

fn get(url: &str, request: &str) -> String {
    let mut stream = connect(url);
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    // What is too long is answered before it was read to its end, so the connection may be reset after that.
    let _ = stream.read_to_string(&mut answer);
    answer
}

/// An engine says these samples.
#[track_caller]
fn says_all<'a>(got: &BTreeMap<String, f64>, wanted: impl IntoIterator<Item = (&'a str, u64)>) {
    for (name, value) in wanted {
        let name = format!("foreread_{name}");
        assert_eq!(got.get(&name), Some(&(value as f64)), "{name} in {got:#?}");
    }
}

fn local() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

#[test]
fn they_say_what_the_counters_say() {
    let engine = engine();
    let reader = engine.open(Arc::new(named(1 << 20))).expect("opened");
    let other = engine.open(Arc::new(named(1 << 20))).expect("opened");
    let mut buf = [0; 4096];
    for at in 0..200 {
        read_and_check(&reader, &mut buf, at * 4096, 0);
    }
    read_and_check(&other, &mut buf, 0, 0);
    quiet(&reader);
    let front = FrontView {
        open: 2,
        opened: 3,
        passed: 1,
        requests: 4,
        failed_requests: 5,
        bytes: 6,
        written_bytes: 7,
    };
    let got = parse(&text(&engine, front));
    let stats = engine.stats();
    let wanted = [
        ("reads_total{result=\"hit\"}", stats.hits),
        ("reads_total{result=\"late\"}", stats.late_hits),
        ("reads_total{result=\"miss\"}", stats.misses),
        ("read_bytes_total", stats.demand_bytes),
        ("source_read_bytes_total", stats.source_bytes),
        ("windows_total", stats.ra_planned_ops),
        ("readahead_bytes_total", stats.ra_bytes),
        ("used_bytes_total", stats.used_bytes),
        ("unresolved_bytes", stats.unresolved_bytes),
        ("held_bytes", engine.meter().held_bytes()),
        ("front_open", 2),
        ("front_sent_bytes_total", 6),
        ("front_written_bytes_total", 7),
    ];
    says_all(&got, wanted);
    assert!(stats.ra_bytes > 0 && stats.hits > 0);
    // Two streams begin, and the longer one goes on: no other pattern, and the sum is the number of decisions.
    let patterns = Pattern::ALL.map(|pattern| stats.decisions.of(pattern));
    let is_right = patterns[0] == 2 && patterns[1] > 5 && patterns[2..] == [0; 5];
    assert!(is_right, "{patterns:?}");
    for (pattern, count) in Pattern::ALL.into_iter().zip(patterns) {
        let name = pattern.name();
        let name = format!("decisions_by_pattern_total{{pattern=\"{name}\"}}");
        says_all(&got, [(name.as_str(), count)]);
    }
    let all = patterns.iter().sum();
    let labels = "policy=\"linux-6.18\",why=\"running\"}";
    let source = reader.describe();
    let state = format!("stream_readahead{{stream=\"0\",source=\"{source}\",{labels}");
    says_all(&got, [("decisions_total", all), (&state, 1)]);
    let streams = engine.streams(9);
    let by_stream = streams.iter().map(|view| view.stats.decisions.all());
    assert_eq!((by_stream.sum(), stats.decisions.all()), (all, all));
    let of = |what: &str, labels: &str| {
        got[&format!("foreread_source_latency_seconds_{what}{{{labels}}}")]
    };
    let count = |class: &str| of("count", &format!("class=\"{class}\""));
    let all = (count("demand") + count("ahead")) as u64;
    assert_eq!(all, stats.source_reads, "every fetch was clocked once");
    for class in ["demand", "ahead"] {
        let last = of("bucket", &format!("le=\"+Inf\",class=\"{class}\""));
        assert_eq!(last, count(class));
    }
    let reads = |view: &StreamView| (view.number, view.stats.demand_reads);
    let mine = streams.iter().map(reads);
    assert_eq!(Vec::from_iter(mine), [(0, 200), (1, 1)]);
    let windows = streams.iter().map(|view| view.stats.ra_planned_ops);
    assert_eq!(windows.sum::<u64>(), stats.ra_planned_ops);
}

/// What `auto` has set itself to is exported while a file is open, and with no other policy.
#[test]
fn auto_says_what_it_has_set_itself_to() {
    let engine = auto();
    assert!(engine.gauges().tuning.is_none(), "no file is open");
    let reader = engine.open(Arc::new(named(32 << 20))).expect("opened");
    for at in 0..16 {
        read_and_check(&reader, &mut [0; 16384], at * 16384, 0);
    }
    quiet(&reader);
    let tuning = engine.gauges().tuning.expect("it is auto");
    let is_set = tuning.streams == 1 && tuning.distance_bytes > 0 && tuning.latency_ns > 0;
    assert!(is_set, "{tuning:?}");
    let got = parse(&text(&engine, FrontView::default()));
    let limit = format!("auto_limit{{limit=\"{}\"}}", tuning.limit.name());
    let wanted = [
        ("auto_streams", 1),
        ("auto_distance_bytes", tuning.distance_bytes),
        ("auto_credit_bytes", tuning.credit_bytes),
        ("auto_cache_share_ratios", 1),
        (&limit, 1),
    ];
    says_all(&got, wanted);
    let is_limit = |name: &str| name.starts_with("foreread_auto_limit{");
    let limits = got.iter().filter(|(name, _)| is_limit(name));
    assert_eq!(limits.map(|(_, n)| n).sum::<f64>(), 1.0, "one of them");
    let other = Engine::new(Options::default().policy("linux-6.18")).expect("an engine");
    let _reader = other.open(Arc::new(named(1 << 20))).expect("opened");
    assert!(!text(&other, FrontView::default()).contains("foreread_auto"));
}

/// `auto` with a cache on disk, and its folder.
#[cfg(feature = "disk-cache")]
fn cached() -> (Engine, tempfile::TempDir) {
    use foreread::source::disk_cache::{DiskCache, DiskCacheSettings, FreeSpace};
    let dir = tempfile::tempdir().expect("a folder");
    let cache = DiskCache::open(DiskCacheSettings {
        free: FreeSpace::Bytes(0),
        ..DiskCacheSettings::new(dir.path())
    });
    let cache = cache.unwrap_or_else(|error| panic!("{error}"));
    let options = by("auto", 4 << 20);
    let engine = Engine::new(options.disk_cache(&cache)).expect("an engine");
    (engine, dir)
}

/// Without a cache on disk nothing is exported of one.
#[cfg(feature = "disk-cache")]
#[test]
fn a_disk_cache_reports_its_counters() {
    use foreread_testing::ExactSource;
    let (engine, _dir) = cached();
    let source = ExactSource::new(named(1 << 20), "exact", "1");
    let reader = engine.open(Arc::new(source)).expect("opened");
    for at in 0..20 {
        read_and_check(&reader, &mut [0; 4096], at * 4096, 0);
    }
    quiet(&reader);
    let cache = engine.disk_cache().expect("one");
    assert!(cache.flush(std::time::Duration::from_secs(60)));
    let (got, counts) = (parse(&text(&engine, FrontView::default())), cache.counts());
    let is_right = counts.written > 0 && counts.written < counts.written_bytes;
    assert!(is_right, "{counts:?}");
    let wanted = [
        ("disk_cache_hits_total", counts.hits),
        ("disk_cache_hit_bytes_total", counts.hit_bytes),
        ("disk_cache_misses_total", counts.misses),
        ("disk_cache_miss_bytes_total", counts.miss_bytes),
        ("disk_cache_writes_total", counts.written),
        ("disk_cache_written_bytes_total", counts.written_bytes),
        ("disk_cache_refused_writes_total", counts.refused_writes),
        ("disk_cache_waits_total", counts.waits),
        ("disk_cache_held_bytes", cache.bytes().expect("known")),
        ("disk_cache_limit_bytes", 50 << 30),
    ];
    says_all(&got, wanted);
    assert!(!text(&auto(), FrontView::default()).contains("disk_cache"));
}

/// docs/metrics.md has a row for each metric, and for no other; every metric that the dashboard names is exported, under the name that a
/// Prometheus stores.
#[cfg(feature = "disk-cache")]
#[test]
fn the_page_lists_every_metric_and_the_dashboard_names_no_other() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let file = |name: &str| std::fs::read_to_string(root.join(name)).expect(name);
    let [page, board] = ["docs/metrics.md", "contrib/grafana/foreread.json"].map(file);
    let (engine, _dir) = cached();
    let reader = engine.open(Arc::new(named(1 << 20))).expect("opened");
    read_and_check(&reader, &mut [0; 4096], 0, 0);
    let text = text(reader.engine(), FrontView::default());
    let kinds = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let given: BTreeSet<&str> = kinds.filter_map(|line| line.split(' ').next()).collect();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows = rows.filter_map(|row| row.split(['`', '{']).next());
    let listed: BTreeSet<&str> = rows.filter(|name| name.starts_with("foreread_")).collect();
    assert_eq!(listed, given);
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let exported = samples.filter_map(|line| line.split(['{', ' ']).next());
    let exported = BTreeSet::from_iter(exported);
    let words = board.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let named: BTreeSet<&str> = words.filter(|word| word.starts_with("foreread_")).collect();
    let is_whole = named.len() > 15 && named.contains("foreread_build_info");
    assert!(is_whole, "{named:?}");
    let missing = Vec::from_iter(named.difference(&exported));
    assert!(missing.is_empty(), "{missing:?} is not in {exported:?}");
}

#[test]
fn streams_are_bounded_and_those_that_read_most_come_first() {
    let engine = engine();
    let first = engine.open(Arc::new(named(1 << 20))).expect("opened");
    let others = (0..MAX_STREAMS * 2).map(|_| first.try_clone().expect("opened"));
    let others = Vec::from_iter(others);
    let mut buf = [0; 512];
    for (n, reader) in others.iter().enumerate() {
        for _ in 0..n % 7 {
            read_and_check(reader, &mut buf, 0, 0);
        }
    }
    let shown = engine.streams(MAX_STREAMS);
    assert_eq!(shown.len(), MAX_STREAMS);
    let reads = Vec::from_iter(shown.iter().map(|view| view.stats.demand_reads));
    assert!(reads.is_sorted_by(|one, next| one >= next));
    let text = text(&engine, FrontView::default());
    let series = text.matches("foreread_stream_readahead{").count();
    assert_eq!(series, MAX_STREAMS);
}

#[test]
fn the_port_answers_one_request_and_hangs_up() {
    watch();
    let server = MetricsServer::start(local(), || "a b\n".to_string()).expect("started");
    let url = server.url();
    let openmetrics = "application/openmetrics-text;";
    // What is requested, and how the answer begins or what is in it. A Prometheus names the type; a browser does not, and shows plain text.
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n", "x".repeat(9000));
    for (request, parts) in [
        (
            "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\nGET /metrics HTTP/1.1",
            ["HTTP/1.1 200 OK\r\nContent-Type: ", openmetrics],
        ),
        ("GET /metrics?x=1 HTTP/1.0", ["HTTP/1.1 200", ""]),
        (
            "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
            ["\r\nContent-Type: ", openmetrics],
        ),
        (
            "GET /metrics HTTP/1.1\r\nACCEPT: text/html,*/*;q=0.8",
            ["\r\nContent-Type: text/plain;", ""],
        ),
        ("GET / HTTP/1.1", ["HTTP/1.1 200", "<a href=\"/metrics\">"]),
        ("GET /other HTTP/1.1", ["HTTP/1.1 404", ""]),
        ("POST /metrics HTTP/1.1", ["HTTP/1.1 405", ""]),
    ] {
        says(&get(&url, &format!("{request}\r\n\r\n")), &parts);
    }
    // A head that has no end after 9000 bytes.
    says(&get(&url, &long), &["HTTP/1.1 431"]);
    let twice = "GET /metrics HTTP/1.1\r\n\r\n".repeat(2);
    let one = get(&url, &twice);
    let end = "Content-Length: 4\r\nConnection: close\r\n\r\na b\n";
    assert!(one.ends_with(end), "{one}");
    assert!(get(&url, "HEAD /metrics HTTP/1.1\r\n\r\n").ends_with("\r\n\r\n"));
    // A silent client is disconnected, and the next one is answered.
    let mut silent = connect(&url);
    silent.write_all(b"GET /met").expect("sent");
    assert!(get(&url, "GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
    assert_eq!(silent.read(&mut [0; 10]).unwrap_or(0), 0);
    drop(server);
    assert!(TcpStream::connect(host(&url)).is_err(), "no listener");
}
