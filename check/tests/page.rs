//! Tests an HTML page of `compare` with hostile names: it is well-formed, shows the names as text, and loads and runs
//! nothing. A real browser confirms it.

use foreread_core::stats::Stats;
use foreread_lab::report::{PolicyRuns, Report, RowKind, Table, page, to_json};
use foreread_sim::simulator::RunResult;
use foreread_sim::stats::{latency_histogram, record_latency};
use foreread_testing::says;
use roxmltree::{Document, Node, ParsingOptions};
use std::path::Path;
use std::process::{Command, Stdio};

/// Every known way out of a page.
const HOSTILE: &str = "</script></style></title><script>window.pwned=1</script><img src=x onerror=window.pwned=1>\"'`&amp;\
                       {{ 7*7 }}{% raw %}\u{0}\u{1b}[31m\u{202e}evil\u{2028}\u{feff}]]><!-- http://example.org/x.js";
/// Names under which a browser is found. Debian has the package `chromium`.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

fn run(time_s: f64) -> RunResult {
    let mut latency = latency_histogram();
    (1..=1000_u64).for_each(|i| record_latency(&mut latency, i * i * 100));
    let stats = Stats::of(|stats| {
        stats.demand_reads = 1000;
        stats.demand_bytes = 4_096_000;
        stats.hits = 600;
        stats.misses = 400;
        stats.source_reads = 77;
        stats.source_bytes = 5_096_000;
    });
    RunResult::new(time_s, stats, latency, 4_096_000)
}

/// The page of a workload and two policies of these names, and its JSON.
fn made(word: &str) -> (String, String) {
    let row = |(i, policy): (usize, &str)| PolicyRuns {
        policy: policy.to_string(),
        kind: [RowKind::NoReadahead, RowKind::Policy][i],
        runs: (0..3)
            .map(|n| run(10.5 / (i + 1) as f64 + 0.01 * f64::from(n)))
            .collect(),
    };
    let table = Table {
        workload: word.to_string(),
        source: format!("file:{word}"),
        source_about: word.to_string(),
        runs: 3,
        seed: 1,
        cache_bytes: 64 << 20,
        page_bytes: 4096,
        notes: vec![word.to_string()],
        policies: ["none", word].into_iter().enumerate().map(row).collect(),
        ..Table::default()
    };
    let reports = [Report::of(&table)];
    (
        page::compare(&reports, Some(word), Vec::new()),
        to_json(&reports),
    )
}

fn text(node: Node<'_, '_>) -> String {
    let texts = node.descendants().filter(Node::is_text);
    texts.filter_map(|node| node.text()).collect()
}

#[test]
fn hostile_names_stay_text() {
    let (html, json) = made(HOSTILE);
    let options = ParsingOptions {
        allow_dtd: true,
        ..ParsingOptions::default()
    };
    let document = Document::parse_with_options(&html, options).expect("well-formed");
    for (tag, count) in [
        ("script", 1),
        ("style", 1),
        ("img", 0),
        ("link", 0),
        ("iframe", 0),
    ] {
        let found = document.descendants().filter(|n| n.has_tag_name(tag));
        assert_eq!(found.count(), count, "{tag}");
    }
    // The same bytes end nothing in HTML either, which does not read as XML does.
    assert_eq!(
        (
            html.matches("</script").count(),
            html.matches("<script").count()
        ),
        (1, 1)
    );
    assert!(!html.contains(['\u{0}', '\u{1b}', '\u{202e}', '\u{2028}']));
    let all = text(document.root_element());
    says(&all, &["<img src=x onerror=window.pwned=1>"]);
    assert!(
        !all.contains("{ 49") && !all.contains(">49<"),
        "the template runs no name"
    );
    let mut scripts = document.descendants().filter(|n| n.has_tag_name("script"));
    let script = scripts.next().expect("the data");
    assert_eq!(script.attribute("type"), Some("application/json"));
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
    assert_eq!(value(&text(script)), value(&json));
    for node in document.descendants().filter(Node::is_element) {
        for attribute in node.attributes() {
            let (name, value) = (attribute.name(), attribute.value());
            let local = name == "href" && value.starts_with("#part-");
            let loads = ["href", "src", "srcset", "data", "action", "poster", "style"];
            let runs = name.starts_with("on") || value.contains("url(");
            assert!(!runs && (local || !loads.contains(&name)), "{name}={value}");
        }
    }
    assert!(html.contains("default-src 'none';") && !html.contains("script-src"));
}

/// Loads a page without a network. Returns what reached the console.
fn complaints(browser: &str, folder: &Path, html: &str) -> Vec<String> {
    let page = folder.join("page.html");
    std::fs::write(&page, html).expect("written");
    let seen = Command::new(browser)
        .args("--headless --no-sandbox --disable-gpu --no-first-run".split(' '))
        .args("--disable-background-networking --disable-sync --dump-dom".split(' '))
        .args("--enable-logging=stderr --v=0 --virtual-time-budget=5000".split(' '))
        .arg(format!("--user-data-dir={}", folder.display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("it was there a moment ago");
    let dom = String::from_utf8_lossy(&seen.stdout);
    assert!(dom.contains("foreread-json"), "{dom}");
    let errors = String::from_utf8_lossy(&seen.stderr);
    let lines = errors.lines().filter(|line| line.contains("CONSOLE"));
    lines.map(ToString::to_string).collect()
}

#[test]
fn a_browser_finds_nothing_to_complain_of() {
    let is_there = |name: &&str| {
        let mut command = Command::new(name);
        let quiet = command
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        quiet.status().is_ok_and(|status| status.success())
    };
    let Some(browser) = BROWSERS.into_iter().find(is_there) else {
        println!("skipped: needs chromium");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let (html, _) = made(HOSTILE);
    assert_eq!(complaints(browser, folder.path(), &html), [""; 0]);
    // It would have told: the page's policy refuses this script.
    let broken = html.replace("</body>", "<script>1</script></body>");
    assert!(!complaints(browser, folder.path(), &broken).is_empty());
}
