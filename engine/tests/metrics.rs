//! Tests of the metrics: other programs can parse them as OpenMetrics, they equal the counters, and the port stays
//! within its limits.

use crate::common::{by, named, quiet, read_and_check, watch};
use foreread::front::metrics::{FrontView, MAX_STREAMS, MetricsServer, text};
use foreread::policy::Pattern;
use foreread::{Engine, Options};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
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
            let mut words = rest.splitn(3, ' ');
            let (what, name, value) = (
                words.next(),
                words.next().expect("a name"),
                words.next().expect("a value"),
            );
            match what {
                Some("TYPE") => assert!(
                    kinds.insert(name, value).is_none(),
                    "{name} is declared twice"
                ),
                Some("UNIT") => assert!(
                    name.ends_with(&format!("_{value}")),
                    "{name}: its unit is {value}"
                ),
                Some("HELP") => assert!(!value.contains('"'), "{line}"),
                _ => panic!("{line}"),
            }
            current = name;
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let name = series.split('{').next().expect("a name");
        let suffix = name
            .strip_prefix(current)
            .unwrap_or_else(|| panic!("{line}: not of {current}"));
        let allowed: &[&str] = match kinds[current] {
            "counter" => &["_total"],
            "gauge" => &[""],
            "info" => &["_info"],
            "histogram" => &["_bucket", "_sum", "_count"],
            kind => panic!("{kind}"),
        };
        assert!(
            allowed.contains(&suffix) && name.starts_with("foreread_"),
            "{line}"
        );
        assert_eq!(series.matches('"').count() % 2, 0, "{line}");
        let value: f64 = value.parse().expect("a number");
        assert!(
            samples.insert(series.to_string(), value).is_none(),
            "{series} comes twice"
        );
    }
    samples
}

fn get(address: &str, request: &str) -> String {
    let host = address
        .trim_start_matches("http://")
        .trim_end_matches("/metrics");
    let mut stream = TcpStream::connect(host).expect("connected");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    // What is too long is answered before it was read to its end, so the connection may be reset after that.
    let _ = stream.read_to_string(&mut answer);
    answer
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
    };
    let text = text(&engine, front);
    let got = parse(&text);
    let stats = engine.stats();
    let is = |name: &str, want: u64| {
        assert_eq!(got.get(name), Some(&(want as f64)), "{name} in\n{text}")
    };
    is("foreread_reads_total{result=\"hit\"}", stats.hits);
    is("foreread_reads_total{result=\"late\"}", stats.late_hits);
    is("foreread_reads_total{result=\"miss\"}", stats.misses);
    is("foreread_read_bytes_total", stats.demand_bytes);
    is("foreread_source_read_bytes_total", stats.source_bytes);
    is("foreread_windows_total", stats.ra_planned_ops);
    is("foreread_readahead_bytes_total", stats.ra_bytes);
    is("foreread_used_bytes_total", stats.used_bytes);
    is("foreread_unresolved_bytes", stats.unresolved_bytes);
    is("foreread_held_bytes", engine.meter().held_bytes());
    is("foreread_front_open", 2);
    is("foreread_front_sent_bytes_total", 6);
    assert!(stats.ra_bytes > 0 && stats.hits > 0);
    // Two streams begin, and the longer one goes on: no other pattern, and the sum is the number of decisions.
    let patterns = Pattern::ALL.map(|pattern| stats.decisions.of(pattern));
    assert_eq!(
        (patterns[0], patterns[1] > 5, &patterns[2..]),
        (2, true, &[0; 5][..]),
        "{patterns:?}"
    );
    for (pattern, count) in Pattern::ALL.into_iter().zip(patterns) {
        is(
            &format!(
                "foreread_decisions_by_pattern_total{{pattern=\"{}\"}}",
                pattern.name()
            ),
            count,
        );
    }
    is("foreread_decisions_total", patterns.iter().sum());
    let by_stream = engine
        .streams(9)
        .iter()
        .map(|view| view.stats.decisions.all())
        .sum::<u64>();
    assert_eq!(
        (by_stream, stats.decisions.all()),
        (patterns.iter().sum(), patterns.iter().sum())
    );
    let count =
        |class: &str| got[&format!("foreread_source_latency_seconds_count{{class=\"{class}\"}}")];
    assert_eq!(
        (count("demand") + count("ahead")) as u64,
        stats.source_reads,
        "every fetch was clocked once"
    );
    let last = |class: &str| {
        got[&format!("foreread_source_latency_seconds_bucket{{le=\"+Inf\",class=\"{class}\"}}")]
    };
    assert_eq!(
        (last("demand"), last("ahead")),
        (count("demand"), count("ahead"))
    );
    let state = |n: u32, why: &str| {
        let source = reader.describe();
        format!(
            "foreread_stream_readahead{{stream=\"{n}\",source=\"{source}\",policy=\"linux-6.18\",why=\"{why}\"}}"
        )
    };
    is(&state(0, "running"), 1);
    let mine: Vec<_> = engine
        .streams(9)
        .into_iter()
        .map(|view| (view.number, view.stats.demand_reads))
        .collect();
    assert_eq!(mine, [(0, 200), (1, 1)]);
    assert_eq!(
        engine.streams(9)[0].stats.ra_planned_ops + engine.streams(9)[1].stats.ra_planned_ops,
        stats.ra_planned_ops
    );
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
    assert!(
        tuning.streams == 1 && tuning.distance_bytes > 0 && tuning.latency_ns > 0,
        "{tuning:?}"
    );
    let got = parse(&text(&engine, FrontView::default()));
    let is = |name: &str, want: u64| {
        assert_eq!(got.get(name), Some(&(want as f64)), "{name} of {tuning:?}")
    };
    is("foreread_auto_streams", 1);
    is("foreread_auto_distance_bytes", tuning.distance_bytes);
    is("foreread_auto_credit_bytes", tuning.credit_bytes);
    is("foreread_auto_cache_share_ratios", 1);
    is(
        &format!("foreread_auto_limit{{limit=\"{}\"}}", tuning.limit.name()),
        1,
    );
    let limits: f64 = got
        .iter()
        .filter(|(name, _)| name.starts_with("foreread_auto_limit{"))
        .map(|(_, n)| n)
        .sum();
    assert_eq!(limits, 1.0, "one of them");
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
    let text_of_all = text(&engine, FrontView::default());
    let (got, counts) = (parse(&text_of_all), cache.counts());
    assert!(
        counts.written > 0 && counts.written < counts.written_bytes,
        "{counts:?}"
    );
    for (name, want) in [
        ("hits_total", counts.hits),
        ("hit_bytes_total", counts.hit_bytes),
        ("misses_total", counts.misses),
        ("miss_bytes_total", counts.miss_bytes),
        ("writes_total", counts.written),
        ("written_bytes_total", counts.written_bytes),
        ("refused_writes_total", counts.refused_writes),
        ("waits_total", counts.waits),
        ("held_bytes", cache.bytes().expect("known")),
        ("limit_bytes", 50 << 30),
    ] {
        let name = format!("foreread_disk_cache_{name}");
        assert_eq!(got.get(&name), Some(&(want as f64)), "{name}");
    }
    assert!(!text(&auto(), FrontView::default()).contains("disk_cache"));
}

/// docs/metrics.md has a row for each metric, and for no other; every metric that the dashboard names is exported, under the name that a
/// Prometheus stores.
#[cfg(feature = "disk-cache")]
#[test]
fn the_page_lists_every_metric_and_the_dashboard_names_no_other() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let file = |name: &str| std::fs::read_to_string(root.join(name)).expect(name);
    let (page, board) = (
        file("docs/metrics.md"),
        file("contrib/grafana/foreread.json"),
    );
    let (engine, _dir) = cached();
    let reader = engine.open(Arc::new(named(1 << 20))).expect("opened");
    read_and_check(&reader, &mut [0; 4096], 0, 0);
    let text = text(reader.engine(), FrontView::default());
    let kinds = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let given: BTreeSet<&str> = kinds.filter_map(|line| line.split(' ').next()).collect();
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split(['`', '{']).next());
    let listed: BTreeSet<&str> = rows.filter(|name| name.starts_with("foreread_")).collect();
    assert_eq!(listed, given);
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let exported: BTreeSet<&str> = samples
        .filter_map(|line| line.split(['{', ' ']).next())
        .collect();
    let words = board.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let named: BTreeSet<&str> = words.filter(|word| word.starts_with("foreread_")).collect();
    assert!(
        named.len() > 15 && named.contains("foreread_build_info"),
        "{named:?}"
    );
    let missing: Vec<_> = named.difference(&exported).collect();
    assert!(
        missing.is_empty(),
        "the dashboard names {missing:?}; exported are {exported:?}"
    );
}

/// A parser that is not ours.
#[test]
fn a_prometheus_parses_them() {
    let script = "\
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
families = list(parse(sys.stdin.read()))
print(len(families), sum(len(f.samples) for f in families))";
    // The system's own, where its packages are, or the one that the path names.
    let runs = |python: &&str| {
        let test = Command::new(python)
            .args(["-c", "import prometheus_client.openmetrics"])
            .stderr(Stdio::null())
            .status();
        test.is_ok_and(|status| status.success())
    };
    let Some(python) = ["/usr/bin/python3", "python3"].into_iter().find(runs) else {
        return println!("skipped: needs python3-prometheus-client");
    };
    let engine = auto();
    let reader = engine.open(Arc::new(named(1 << 20))).expect("opened");
    read_and_check(&reader, &mut [0; 100_000], 0, 0);
    let text = text(&engine, FrontView::default());
    let mut child = Command::new(python)
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it ran before");
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(text.as_bytes())
        .expect("written");
    let out = child.wait_with_output().expect("ended");
    let said = String::from_utf8_lossy(&out.stdout);
    let samples: usize = said
        .split_whitespace()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(0);
    assert!(out.status.success());
    assert_eq!(samples, parse(&text).len());
}

#[test]
fn streams_are_bounded_and_those_that_read_most_come_first() {
    let engine = engine();
    let first = engine.open(Arc::new(named(1 << 20))).expect("opened");
    let others: Vec<_> = (0..MAX_STREAMS * 2)
        .map(|_| first.try_clone().expect("opened"))
        .collect();
    let mut buf = [0; 512];
    for (n, reader) in others.iter().enumerate() {
        for _ in 0..n % 7 {
            read_and_check(reader, &mut buf, 0, 0);
        }
    }
    let shown = engine.streams(MAX_STREAMS);
    assert_eq!(shown.len(), MAX_STREAMS);
    assert!(
        shown
            .windows(2)
            .all(|two| two[0].stats.demand_reads >= two[1].stats.demand_reads)
    );
    let text = text(&engine, FrontView::default());
    assert_eq!(
        text.matches("foreread_stream_readahead{").count(),
        MAX_STREAMS
    );
}

#[test]
fn the_port_answers_one_request_and_hangs_up() {
    watch();
    let server = MetricsServer::start(local(), || "a b\n".to_string()).expect("started");
    let url = server.url();
    let ok = get(
        &url,
        "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n",
    );
    assert!(
        ok.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text;"),
        "{ok}"
    );
    assert!(
        ok.ends_with("Content-Length: 4\r\nConnection: close\r\n\r\na b\n"),
        "{ok}"
    );
    assert!(get(&url, "GET /metrics?x=1 HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200"));
    assert!(get(&url, "HEAD /metrics HTTP/1.1\r\n\r\n").ends_with("\r\n\r\n"));
    // A Prometheus names the type; a browser does not, and shows plain text.
    for (accept, kind) in [
        (
            "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
            "application/openmetrics-text;",
        ),
        ("ACCEPT: text/html,*/*;q=0.8", "text/plain;"),
    ] {
        let got = get(
            &url,
            &format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{accept}\r\n\r\n"),
        );
        assert!(got.contains(&format!("\r\nContent-Type: {kind}")), "{got}");
    }
    assert!(get(&url, "GET / HTTP/1.1\r\n\r\n").contains("<a href=\"/metrics\">"));
    assert!(get(&url, "GET /other HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(get(&url, "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n", "x".repeat(9000));
    assert!(
        get(&url, &long).starts_with("HTTP/1.1 431"),
        "a head of 9000 bytes"
    );
    // A silent client is disconnected, and the next one is answered.
    let mut silent = TcpStream::connect(
        url.trim_start_matches("http://")
            .trim_end_matches("/metrics"),
    )
    .expect("connected");
    silent.write_all(b"GET /met").expect("sent");
    assert!(get(&url, "GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
    assert_eq!(silent.read(&mut [0; 10]).unwrap_or(0), 0);
    let address = url.clone();
    drop(server);
    let host = address
        .trim_start_matches("http://")
        .trim_end_matches("/metrics");
    assert!(TcpStream::connect(host).is_err(), "no listener any more");
}
