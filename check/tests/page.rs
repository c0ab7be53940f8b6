//! Pages: well-formed, complete, harmless whatever the names are, and fit for a phone and the night in a real browser.

use crate::chromium::{Look, RenderedPage};
use foreread_check::reproduce::{
    FigureKind, Paper, Reproduction, Row as PublishedRow, Table as PublishedTable,
};
use foreread_core::policy::PolicyDraft;
use foreread_core::stats::Stats;
use foreread_core::units::ByteRange;
use foreread_lab::advice::after_compare;
use foreread_lab::compare::{ComparePlan, model};
use foreread_lab::explain::{self, ExplainOptions, View};
use foreread_lab::probe::{Advice, Fit, Pattern, Point, Probe, Spread, TriedForm};
use foreread_lab::replay::{Part, Replay, load};
use foreread_lab::report::series::{Series, Value, VariedParameter};
use foreread_lab::report::{MappedRun, PolicyRuns, Report, RowKind, Table, page, to_json};
use foreread_lab::setting::Setting;
use foreread_lab::tune::{self, TuneOptions};
use foreread_report::progress::Silent;
use foreread_sim::simulator::RunResult;
use foreread_sim::simulator::outcomes::{COLUMNS, Cell, OutcomeMap, ROWS};
use foreread_sim::stats::{latency_histogram, record_latency};
use foreread_trace::{FileInfo, Header, Import, Item, LeftOut, Level, Record};
use roxmltree::{Document, Node, ParsingOptions};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

/// Every known way out of a page.
const HOSTILE: &str = "</script></style></title><script>window.pwned=1</script><img src=x onerror=window.pwned=1>\"'`&amp;\
                       {{ 7*7 }}{% raw %}\u{0}\u{1b}[31m\u{202e}evil\u{2028}\u{feff}]]><!-- http://example.org/x.js";

/// Width of a narrow phone, in pixels.
const PHONE: u32 = 360;

fn run(time_s: f64, ahead: u64) -> RunResult {
    let mut latency = latency_histogram();
    (1..=1000_u64)
        .for_each(|i| record_latency(&mut latency, if i % 3 == 0 { 0 } else { i * i * 100 }));
    let stats = Stats::of(|stats| {
        stats.demand_reads = 1000;
        stats.demand_bytes = 4_096_000;
        stats.hits = 600;
        stats.late_hits = 150;
        stats.misses = 250;
        stats.ra_ops = ahead / 131_072;
        stats.ra_bytes = ahead;
        stats.source_reads = 77;
        stats.source_bytes = 4_096_000 + ahead / 2;
        stats.used_bytes = ahead / 2;
        stats.unused_bytes = ahead / 4;
        stats.unresolved_bytes = ahead / 8;
    });
    RunResult {
        time_s,
        stats,
        latency,
        distinct_bytes: 4_096_000,
        kernel: false,
        late_p99_ns: None,
        refault_bytes: None,
    }
}

fn map(dense: bool) -> OutcomeMap {
    let cell = |i: usize| match i % 4 {
        0 => Cell {
            hits: 3,
            ..Cell::default()
        },
        1 => Cell {
            late: 2,
            misses: 1,
            ..Cell::default()
        },
        2 => Cell {
            misses: 5,
            unused_bytes: 4096,
            ..Cell::default()
        },
        _ => Cell {
            unused_bytes: 8192,
            ..Cell::default()
        },
    };
    let column = |c: usize| {
        std::array::from_fn::<Cell, ROWS, _>(|r| {
            if dense || (c + r).is_multiple_of(7) {
                cell(c + r)
            } else {
                Cell::default()
            }
        })
    };
    let columns = (0..COLUMNS).map(column).collect();
    OutcomeMap {
        reads: 1280,
        column_reads: 10,
        bytes: ByteRange::between(4096, 1 << 30),
        columns,
    }
}

/// Policies of these names, measured three times.
fn table(workload: &str, policies: &[&str], maps: bool) -> Table {
    let rows = policies.iter().enumerate().map(|(i, policy)| {
        let runs = (0..3).map(|n| {
            run(
                10.5 / (i + 1) as f64 + 0.01 * f64::from(n) * i as f64,
                1 << (18 + i),
            )
        });
        let kind = match *policy {
            "none" => RowKind::NoReadahead,
            "kernel" => RowKind::Kernel,
            "oracle" => RowKind::Oracle,
            _ => RowKind::Policy,
        };
        PolicyRuns {
            policy: (*policy).to_string(),
            kind,
            runs: runs.collect(),
        }
    });
    let mapped = |policy: &&str| MappedRun {
        policy: (*policy).to_string(),
        map: map(false),
    };
    Table {
        workload: workload.to_string(),
        source: "model:rbd".to_string(),
        source_about: format!("about {workload}"),
        runs: 3,
        seed: 1,
        cache_bytes: 64 << 20,
        page_bytes: 4096,
        notes: vec![format!("a note on {workload}")],
        policies: rows.collect(),
        maps: if maps {
            policies.iter().map(mapped).collect()
        } else {
            Vec::new()
        },
        ..Table::default()
    }
}

/// A page and the JSON that it was made of.
struct Made {
    name: &'static str,
    html: String,
    json: String,
}

fn compared(name: &'static str, tables: &[Table]) -> Made {
    let reports: Vec<Report> = tables.iter().map(Report::of).collect();
    let maps: Vec<&[MappedRun]> = tables.iter().map(|t| t.maps.as_slice()).collect();
    let next = after_compare(&reports, |runs| format!("foreread compare --runs {runs}"));
    Made {
        name,
        html: page::compare(&reports, &maps, next.map(|next| next.copy())),
        json: to_json(&reports),
    }
}

fn series(word: &str) -> Made {
    let sizes = [16_u64 << 10, 64 << 10, 256 << 10, 1 << 20];
    let report = |i: usize| {
        let mut table = table(word, &["none", word], false);
        for (n, run) in table.policies[1].runs.iter_mut().enumerate() {
            run.time_s = [9.0, 3.0, 1.0, 1.01][i] + 0.001 * n as f64;
        }
        Report::of(&table)
    };
    let series = Series {
        schema: "foreread.vary/1".to_string(),
        workload: word.to_string(),
        policies: vec!["none".to_string(), word.to_string()],
        vary: VariedParameter {
            key: "policy.max".to_string(),
            about: "the largest window".to_string(),
            bytes: true,
            values: sizes.map(Value::Number).to_vec(),
        },
        reports: (0..sizes.len()).map(report).collect(),
    };
    Made {
        name: "series",
        html: page::series(&series),
        json: series.to_json(),
    }
}

fn reproduction(word: &str) -> Made {
    let row = |label: &str, published: f64, ours: f64| {
        PublishedRow::new(label, "MB/s", Some(published), Some(ours))
    };
    let rows = vec![
        row("4K", 2.5, 2.4).kind(FigureKind::Fit),
        row("64K", 20.0, 20.123_456_789).within(FigureKind::LeftOut, 0.06),
        row("1M", 80.0, 60.0)
            .within(FigureKind::LeftOut, 0.06)
            .because(word),
    ];
    let odd = vec![
        PublishedRow::new(word, word, None, Some(1.0)),
        PublishedRow::new("x", "y", Some(0.0), None),
    ];
    let tables = vec![
        PublishedTable::new(Paper::Wu2010b, "by size", rows),
        PublishedTable::new(Paper::Wu2010b, word, odd),
    ];
    let of = Reproduction::new(tables);
    Made {
        name: "reproduction",
        html: foreread_check::reproduce::page(&of),
        json: of.to_json(),
    }
}

fn probed(word: &str) -> Made {
    let point = |pattern, request_bytes: u64, depth: u32| {
        let median = (request_bytes as f64).sqrt() * f64::from(depth).sqrt() / 10.0;
        Point {
            pattern,
            request_bytes,
            depth,
            rounds: 5,
            reads: 321,
            throughput_mb_s: Spread {
                median,
                low: median * 0.9,
                high: median * 1.1,
            },
            latency_us: Spread {
                median: 1e3 / median,
                low: 9e2 / median,
                high: 1.1e3 / median,
            },
            latency_p99_us: Some(2e3 / median),
            model_mb_s: Some(median * 1.02),
            error: Some(0.02),
        }
    };
    let mut points = Vec::new();
    for pattern in [Pattern::Sequential, Pattern::Random] {
        points.extend([4096, 65_536, 1 << 20].map(|bytes| point(pattern, bytes, 1)));
        points.extend([2, 8].map(|depth| point(pattern, 65_536, depth)));
    }
    let tried = TriedForm {
        form: word.to_string(),
        parameters: 2,
        worst_error: 0.0625,
        median_error: 0.03125,
        left_out_error: None,
        chosen: true,
    };
    let of = Probe {
        schema: "foreread.probe/1".to_string(),
        foreread: "0.1.0".to_string(),
        source: format!("file:{word}"),
        source_about: "direct".to_string(),
        date: Some("2026-11-30".to_string()),
        capacity_bytes: 123_456_789,
        span_bytes: 1 << 26,
        direct: true,
        readahead_bytes: Some(131_072),
        seconds: 29.5,
        noise: Some(0.0123),
        notes: vec![word.to_string()],
        host_ns_per_kib: Spread {
            median: 100.0,
            low: 90.5,
            high: 110.25,
        },
        points,
        fit: Fit {
            kind: "disk".to_string(),
            figures: word.to_string(),
            holds: true,
            reason: "no simpler one does.".to_string(),
            worst_error: 0.0625,
            median_error: 0.03125,
            left_out_error: Some(0.09375),
            tried: vec![tried],
        },
        advice: Advice {
            best_mb_s: Some(102.4),
            plateau_bytes: Some(65_536),
            findings: vec![format!("A finding on {word}.")],
            settings: vec![Setting {
                place: "now".to_string(),
                text: format!("echo 128 > '{word}'\nsecond line"),
                why: "why".to_string(),
            }],
            ..Advice::default()
        },
    };
    let json = serde_json::to_string_pretty(&of).expect("JSON");
    Made {
        name: "probe",
        html: foreread_lab::probe::page(&of),
        json,
    }
}

/// A trace of this name with two files, one read in order and one anywhere.
fn plan(word: &str) -> ComparePlan {
    let file = |name: &str| {
        Item::File(FileInfo {
            name: name.to_string(),
            size: Some(8 << 20),
        })
    };
    let in_order = (0..40).map(|n| Record::read(0, n * 16_384, 16_384));
    let anywhere =
        (0..20).map(|n| Record::read(1, (n * 7919 + n * n * 131 + 17) % 2000 * 4096, 4096));
    let records = in_order.chain(anywhere).map(Item::Record);
    let items: Vec<Item> = [file(word), file("/b")]
        .into_iter()
        .chain(records)
        .collect();
    let import = Import {
        header: Header {
            level: Level::Program,
            ..Header::default()
        },
        items: Box::new(items.into_iter().map(Ok)),
        left_out: LeftOut::default(),
    };
    let loaded = Arc::new(load(word, import, &Part::default()).expect("readable"));
    let replay = Replay::of(&loaded, None, None).expect("a mode fits");
    ComparePlan {
        replay: Some(Arc::new(replay)),
        on: Some(model("object-near").expect("a model")),
        runs: Some(2),
        seed: 1,
        ..ComparePlan::default()
    }
}

fn tuned(word: &str) -> Made {
    let asked = TuneOptions {
        plan: plan(word),
        storage: model("object-near").expect("a model"),
        chosen: None,
        partial: false,
        is_dropped: false,
        seconds: 1.0,
        trace: Some(PathBuf::from("run.frt")),
        command: vec![word.to_string()],
    };
    let of = tune::tune(&asked, &mut Silent).expect("it can be tuned");
    assert!(!of.settings.is_empty(), "{}", of.verdict);
    Made {
        name: "tune",
        html: tune::page(&of),
        json: serde_json::to_string_pretty(&of).expect("JSON"),
    }
}

fn explained(word: &str) -> Made {
    let draft = |name| PolicyDraft::parse(name).expect("a policy");
    let asked = ExplainOptions {
        plan: plan(word),
        policy: draft("auto"),
        against: ["none", "auto", "rbd-plain"].map(draft).to_vec(),
    };
    let of = explain::explain(&asked, &mut Silent).expect("it can be explained");
    let view = View {
        rows: 12,
        ..View::default()
    };
    Made {
        name: "explain",
        html: explain::page(&of, &view),
        json: serde_json::to_string_pretty(&of).expect("JSON"),
    }
}

/// A page of each kind in which every name is `word`.
fn pages(word: &str) -> Vec<Made> {
    vec![
        compared(
            "compare",
            &[table(word, &["none", word, "rbd-plain"], true)],
        ),
        compared(
            "several",
            &[
                table(word, &["none", word], true),
                table("other", &["none"], false),
            ],
        ),
        series(word),
        reproduction(word),
        probed(word),
        tuned(word),
        explained(word),
    ]
}

fn parse(made: &Made) -> Document<'_> {
    let options = ParsingOptions {
        allow_dtd: true,
        ..ParsingOptions::default()
    };
    Document::parse_with_options(&made.html, options)
        .unwrap_or_else(|e| panic!("{}: {e}", made.name))
}

fn text(node: Node<'_, '_>) -> String {
    node.descendants()
        .filter(Node::is_text)
        .filter_map(|n| n.text())
        .collect()
}

/// What the page makes of a letter that could do harm.
fn shown(text: &str) -> String {
    let harmful = |c: char| (c.is_control() && c != '\n') || ['\u{202e}', '\u{2028}'].contains(&c);
    text.chars()
        .map(|c| if harmful(c) { '\u{fffd}' } else { c })
        .collect()
}

/// Every number, word and truth value of a JSON document, as it is written there.
fn leaves(value: &serde_json::Value, found: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(map) => map.values().for_each(|v| leaves(v, found)),
        serde_json::Value::Array(items) => items.iter().for_each(|v| leaves(v, found)),
        serde_json::Value::String(text) => found.push(text.clone()),
        other => found.push(other.to_string()),
    }
}

#[test]
fn every_value_of_the_json_is_on_the_page_and_in_it() {
    for made in pages("boot-ide") {
        let document = parse(&made);
        let cells = document
            .descendants()
            .filter(|n| n.has_tag_name("td"))
            .map(text);
        let parts = |cell: String| {
            let lists: Vec<String> = cell
                .split([',', ';', ':'])
                .map(|part| part.trim().to_string())
                .collect();
            std::iter::once(cell).chain(lists)
        };
        let on_page: HashSet<String> = cells.flat_map(parts).collect();
        // The first cell of a row is a head of it.
        let heads: HashSet<String> = document
            .descendants()
            .filter(|n| n.has_tag_name("th"))
            .map(text)
            .collect();
        let value: serde_json::Value = serde_json::from_str(&made.json).expect("JSON");
        let mut wanted = Vec::new();
        leaves(&value, &mut wanted);
        assert!(wanted.len() > 20, "{}: {}", made.name, wanted.len());
        for leaf in wanted {
            assert!(
                on_page.contains(&leaf) || heads.contains(&leaf),
                "{}: {leaf} is not on the page",
                made.name
            );
        }
        let script = document
            .descendants()
            .find(|n| n.has_tag_name("script"))
            .expect("the data");
        let inside: serde_json::Value = serde_json::from_str(&text(script)).expect("JSON");
        assert_eq!(inside, value, "{}", made.name);
    }
}

#[test]
fn hostile_names_stay_text() {
    for made in pages(HOSTILE) {
        let document = parse(&made);
        for (tag, count) in [
            ("script", 1),
            ("style", 1),
            ("title", 0),
            ("img", 0),
            ("link", 0),
            ("iframe", 0),
        ] {
            let found = document
                .descendants()
                .filter(|n| n.has_tag_name(tag))
                .count();
            assert!(
                found == count || (tag == "title" && found > 1),
                "{}: {found} of {tag}",
                made.name
            );
        }
        let script = document
            .descendants()
            .find(|n| n.has_tag_name("script"))
            .expect("the data");
        assert_eq!(script.attribute("type"), Some("application/json"));
        // The same bytes end nothing in HTML either, which does not read as XML does.
        assert_eq!(made.html.matches("</script").count(), 1, "{}", made.name);
        assert_eq!(made.html.matches("<script").count(), 1, "{}", made.name);
        assert!(
            !made
                .html
                .contains(['\u{0}', '\u{1b}', '\u{202e}', '\u{2028}']),
            "{}",
            made.name
        );
        let all = text(document.root_element());
        assert!(
            all.contains(&shown(HOSTILE)),
            "{}: the name is shown",
            made.name
        );
        assert!(
            !all.contains("{ 49") && !all.contains(">49<"),
            "{}: the template does not run names",
            made.name
        );
        let inside: serde_json::Value = serde_json::from_str(&text(script)).expect("JSON");
        assert_eq!(
            inside,
            serde_json::from_str::<serde_json::Value>(&made.json).expect("JSON")
        );
    }
}

#[test]
fn nothing_is_loaded_and_nothing_runs() {
    for made in pages(HOSTILE) {
        let document = parse(&made);
        for node in document.descendants().filter(Node::is_element) {
            for attribute in node.attributes() {
                let (name, value) = (attribute.name(), attribute.value());
                let local = name == "href"
                    && value
                        .strip_prefix("#part-")
                        .is_some_and(|n| n.parse::<u32>().is_ok());
                let loads = [
                    "href",
                    "src",
                    "srcset",
                    "data",
                    "action",
                    "poster",
                    "background",
                    "style",
                ];
                assert!(
                    local || !loads.contains(&name),
                    "{}: {name}={value}",
                    made.name
                );
                assert!(
                    !name.starts_with("on") && !value.contains("url("),
                    "{}: {name}={value}",
                    made.name
                );
            }
        }
        let style = document
            .descendants()
            .find(|n| n.has_tag_name("style"))
            .expect("a style sheet");
        assert!(!text(style).contains("url(") && !text(style).contains("@import"));
        let policy = document
            .descendants()
            .find(|n| n.attribute("http-equiv") == Some("Content-Security-Policy"));
        let policy = policy
            .and_then(|n| n.attribute("content"))
            .expect("a policy");
        assert!(
            policy.starts_with("default-src 'none';") && !policy.contains("script-src"),
            "{policy}"
        );
    }
}

#[test]
fn drawings_are_named_and_have_their_table() {
    for made in pages("boot-ide") {
        let document = parse(&made);
        let drawings: Vec<Node<'_, '_>> = document
            .descendants()
            .filter(|n| n.has_tag_name(("http://www.w3.org/2000/svg", "svg")))
            .collect();
        assert!(!drawings.is_empty(), "{}", made.name);
        for svg in drawings {
            let named = |tag: &str| {
                svg.children()
                    .any(|n| n.tag_name().name() == tag && !text(n).is_empty())
            };
            assert_eq!(svg.attribute("role"), Some("img"));
            assert!(named("title") && named("desc"), "{}", made.name);
            // The figures over all parts have their tables in the parts.
            let part = svg
                .ancestors()
                .find(|n| n.has_tag_name("section") || n.has_tag_name("main"))
                .expect("a part");
            assert!(
                part.descendants().any(|n| n.has_tag_name("table")),
                "{}",
                made.name
            );
        }
        assert!(
            !made.html.contains("NaN") && !made.html.contains(">inf"),
            "{}",
            made.name
        );
    }
}

/// The verdict, then figures, then tables, then notes, then what to do next: the same on each page.
#[test]
fn each_page_has_one_layout() {
    for made in pages("boot-ide") {
        let document = parse(&made);
        let place = |is: &dyn Fn(&Node<'_, '_>) -> bool| {
            document.descendants().find(is).map(|n| n.range().start)
        };
        let of_class =
            |class: &'static str| move |n: &Node<'_, '_>| n.attribute("class") == Some(class);
        let svg = ("http://www.w3.org/2000/svg", "svg");
        let parts = [
            place(&|n| n.has_tag_name("h1")),
            place(&of_class("lead")),
            place(&of_class("facts")),
            place(&|n| n.has_tag_name(svg)),
            place(&|n| n.has_tag_name("table")),
            place(&of_class("notes")),
            place(&|n| n.has_tag_name("pre")),
            place(&|n| n.has_tag_name("summary") && text(*n) == "Every value"),
        ];
        let found: Vec<usize> = parts.iter().copied().flatten().collect();
        assert!(
            found.is_sorted() && found.len() >= 6,
            "{}: {parts:?}",
            made.name
        );
        let has_next = !["series", "reproduction"].contains(&made.name);
        assert_eq!(parts[6].is_some(), has_next, "{}", made.name);
    }
}

/// Each workload has its times in a compact figure, over all the rest.
#[test]
fn several_workloads_are_seen_at_once() {
    let tables = ["a", "b", "c", "d"].map(|name| table(name, &["none", "auto", "oracle"], true));
    let made = compared("four", &tables);
    let document = parse(&made);
    let header = document.descendants().find(|n| n.has_tag_name("header"));
    let figures = header.expect("one").descendants();
    let titles: Vec<String> = figures
        .filter(|n| n.tag_name().name() == "svg")
        .filter_map(|svg| {
            svg.children()
                .find(|n| n.attribute("class") == Some("head"))
        })
        .map(text)
        .collect();
    assert_eq!(
        titles,
        ["a", "b", "c", "d"].map(|name| format!("{name}: time, s"))
    );
}

/// Of one policy in all figures of a page.
#[test]
fn a_policy_keeps_its_colour() {
    for made in pages("boot-ide") {
        let document = parse(&made);
        let tips = document
            .descendants()
            .filter(|n| n.tag_name().name() == "title");
        let of_policy = tips.filter(|n| {
            n.text()
                .is_some_and(|tip| tip.starts_with("rbd-plain: ") || tip.starts_with("rbd-plain, "))
        });
        let colours: HashSet<&str> = of_policy
            .filter_map(|n| {
                n.ancestors()
                    .find(|n| n.has_tag_name(("http://www.w3.org/2000/svg", "g")))
            })
            .filter_map(|group| group.attribute("class")?.split(' ').next())
            .collect();
        let expected: &[&str] = match made.name {
            "compare" | "explain" => &["c3"],
            "tune" if colours.is_empty() => &[],
            "tune" => &["c3"],
            _ => &[],
        };
        assert_eq!(colours, expected.iter().copied().collect(), "{}", made.name);
    }
}

/// The plateau is where the rule of 2010 puts it, and is said and drawn.
#[test]
fn the_plateau_is_marked() {
    let made = series("boot-ide");
    let all = text(parse(&made).root_element());
    assert!(
        all.contains("boot-ide has 98 % of its best throughput from policy.max=256K on"),
        "{all}"
    );
    assert_eq!(made.html.matches("plateau from 256K on").count(), 1);
    assert!(
        !all.contains("none has 98 %"),
        "a line without a slope has none"
    );
}

/// Several tables of many policies with full maps.
#[test]
fn a_large_page_stays_small() {
    let names: Vec<String> = (0..24).map(|i| format!("linux-6.18:max={i}M")).collect();
    let names: Vec<&str> = std::iter::once("none")
        .chain(names.iter().map(String::as_str))
        .collect();
    let mut full = table("boot-ide", &names, true);
    full.maps.iter_mut().for_each(|m| m.map = map(true));
    let made = compared("large", &[full]);
    parse(&made);
    let each = made.html.len() / names.len();
    assert!(each < 300_000, "{each} bytes a policy");
}

/// A copy of the page that says of itself what a script can see. The copy alone may run one.
fn told(made: &Made) -> String {
    let policy = made.html.find("<meta http-equiv").expect("a policy");
    let end = policy + made.html[policy..].find("/>").expect("its end") + 2;
    let probe = "<script>document.querySelectorAll('details').forEach(d => d.open = true);\
        const data = JSON.parse(document.getElementById('foreread-json').textContent);\
        const body = getComputedStyle(document.body);\
        parent.postMessage(JSON.stringify({inner: innerWidth, wide: document.documentElement.scrollWidth,\
        loaded: performance.getEntriesByType('resource').length, pwned: window.pwned === undefined ? 0 : 1,\
        paper: body.backgroundColor, ink: body.color, svgs: document.querySelectorAll('figure svg').length,\
        bar: getComputedStyle(document.querySelector('.foreread-chart .ink, .foreread-chart .soft')).fill,\
        low: Math.max(0, ...[...document.querySelectorAll('.overview svg')].map(s => s.getBoundingClientRect().bottom)),\
        schema: (Array.isArray(data) ? data[0] : data).schema}), '*');</script></body>";
    format!("{}{}", &made.html[..policy], &made.html[end..]).replace("</body>", probe)
}

fn save(dir: &tempfile::TempDir, name: &str, html: &str) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::write(&path, html).expect("written");
    path
}

/// A page around another that is so wide: a window is never narrower than 500 pixels, a frame may be. It holds what the
/// page in the frame says.
fn framed(width: u32) -> String {
    format!(
        "<!DOCTYPE html><meta name=\"color-scheme\" content=\"light dark\"><title></title><script>\
         onmessage = event => document.title = event.data;</script>\
         <iframe src=\"told.html\" style=\"border:0;width:{width}px;height:800px\"></iframe>"
    )
}

fn said(seen: &RenderedPage) -> serde_json::Value {
    let title = seen
        .dom
        .split("<title>")
        .nth(1)
        .and_then(|rest| rest.split("</title>").next())
        .expect("a title");
    serde_json::from_str(&title.replace("&quot;", "\"")).unwrap_or_else(|e| panic!("{e}: {title}"))
}

#[test]
fn a_browser_finds_nothing_to_complain_of() {
    let Some(browser) = crate::chromium::find() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a scratch directory");
    for made in pages(HOSTILE) {
        let seen = crate::chromium::see(
            browser,
            &save(&dir, "page.html", &made.html),
            Look {
                width: 390,
                dark: false,
            },
        );
        assert!(seen.console.is_empty(), "{}: {:?}", made.name, seen.console);
        assert!(
            seen.dom.contains("<details>") && seen.dom.contains("foreread-json"),
            "{}",
            made.name
        );
    }
    // The browser would have told: this script is refused by the page's policy.
    let broken = pages("boot-ide")[0]
        .html
        .replace("</body>", "<script>1</script></body>");
    let seen = crate::chromium::see(
        browser,
        &save(&dir, "broken.html", &broken),
        Look {
            width: 390,
            dark: false,
        },
    );
    assert!(!seen.console.is_empty());
}

/// Four workloads under the usual policies, at 1280x800.
#[test]
fn four_workloads_fit_one_screen() {
    let Some(browser) = crate::chromium::find() else {
        return;
    };
    let policies = [
        "none",
        "auto",
        "linux-6.18",
        "rbd-plain",
        "linux-6.18:max=4M",
        "linux-6.18:max=64M",
        "oracle",
    ];
    let tables = ["sequential", "random", "interleaved", "boot-ide"]
        .map(|name| table(name, &policies, false));
    let dir = tempfile::tempdir().expect("a scratch directory");
    save(&dir, "told.html", &told(&compared("four", &tables)));
    let path = save(&dir, "frame.html", &framed(1280));
    let look = Look {
        width: 1400,
        dark: false,
    };
    let got = said(&crate::chromium::see(browser, &path, look));
    let low = got["low"].as_f64().unwrap_or_else(|| panic!("{got}"));
    assert!(low > 400.0 && low <= 800.0, "{low}: {got}");
}

#[test]
fn pages_fit_a_phone_and_follow_the_night() {
    let Some(browser) = crate::chromium::find() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a scratch directory");
    let long = format!("{HOSTILE} linux-6.18:{}", "max=1M,".repeat(40));
    for (i, made) in pages(&long).iter().enumerate() {
        let dark = i % 2 == 0;
        save(&dir, "told.html", &told(made));
        let path = save(&dir, "frame.html", &framed(PHONE));
        let got = said(&crate::chromium::see(
            browser,
            &path,
            Look { width: 800, dark },
        ));
        let number = |key: &str| got[key].as_u64().unwrap_or_else(|| panic!("{key}: {got}"));
        assert!(number("wide") <= number("inner"), "{}: {got}", made.name);
        assert_eq!(number("inner"), u64::from(PHONE), "{}: {got}", made.name);
        assert_eq!(
            (number("loaded"), number("pwned")),
            (0, 0),
            "{}: {got}",
            made.name
        );
        assert!(number("svgs") > 0, "{}: {got}", made.name);
        let (paper, ink) = if dark {
            ("rgb(13, 17, 23)", "rgb(240, 246, 252)")
        } else {
            ("rgb(255, 255, 255)", "rgb(31, 35, 40)")
        };
        assert_eq!(
            (got["paper"].as_str(), got["ink"].as_str()),
            (Some(paper), Some(ink)),
            "{}",
            made.name
        );
        let drawn = got["bar"].as_str().expect("a colour");
        let of_scheme = if dark {
            ["rgb(240, 246, 252)", "rgb(154, 164, 175)"]
        } else {
            ["rgb(31, 35, 40)", "rgb(89, 99, 110)"]
        };
        assert!(of_scheme.contains(&drawn), "{}: {drawn}", made.name);
    }
}
