//! `foreread check bench policies` on a few cells: what every output holds, that a stopped bench continues to the same result, and what
//! is refused.

use foreread_check::bench::policies::{self, BenchOptions, CellFilter, Results};
use foreread_check::evaluation::Design;
use foreread_lab::replay::{Part, Replay, load};
use foreread_report::progress::{Progress, Silent};
use roxmltree::{Document, ParsingOptions};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Three cells of the fractional design, `judged` in each.
fn options(judged: &str) -> BenchOptions {
    BenchOptions {
        design: Design::Fractional,
        judged: vec![judged.to_string()],
        only: vec![CellFilter::parse("fsspec-seq-64K")],
        recordings: Vec::new(),
        set: None,
        draw: 1,
        threads: 2,
        runs_file: None,
        build: "one".to_string(),
    }
}

fn run(options: &BenchOptions) -> Results {
    policies::run(options, &AtomicBool::new(false), &mut Silent).expect("valid")
}

fn json(results: &Results) -> Value {
    serde_json::from_str(&results.to_json()).expect("JSON")
}

#[test]
fn the_json_has_every_key_of_its_schema() {
    let json = json(&run(&options("auto")));
    assert_eq!(
        (&json["schema"], &json["design"]),
        (&"foreread.policies/1".into(), &"fractional".into())
    );
    let cells = json["cells"].as_array().expect("rows");
    // 8 opponents and auto; no oracle, as the workload is not among the predictable ones.
    assert_eq!(cells.len(), 3 * 9);
    let keys = [
        "workload",
        "device",
        "cache",
        "predictable",
        "policy",
        "time_s",
        "overfetch",
        "requests",
        "unused_bytes",
        "p99_us",
        "held_byte_s",
        "t95_round_trips",
        "flaps",
        "oracle_share",
        "stall_s",
        "best",
        "ratio",
        "worst_seed",
        "lean_ratio",
        "lost",
    ];
    for cell in cells {
        for key in keys {
            assert!(cell.get(key).is_some(), "{key}: {cell}");
        }
        assert!(
            cell["time_s"].as_f64().is_some_and(|t| t > 0.0)
                && cell["requests"].as_u64().is_some_and(|n| n > 0)
        );
    }
    assert_eq!(json["totals"].as_array().map(Vec::len), Some(9));
    assert_eq!(
        (&json["runs"], &json["runs_planned"]),
        (&(3 * (8 * 3 + 2)).into(), &(3 * (8 * 3 + 2)).into())
    );
    let targets = json["targets"].as_array().expect("targets");
    let worst = targets
        .iter()
        .find(|t| t["target"] == "worst cell against its best opponent")
        .expect("a target");
    let ratios = cells
        .iter()
        .filter(|c| c["policy"] == "auto")
        .filter_map(|c| c["ratio"].as_f64());
    assert_eq!(worst["value"].as_f64(), ratios.max_by(f64::total_cmp));
}

/// Without readahead every one of the three cells is lost.
#[test]
fn lost_cells_come_first_and_notes_last() {
    let results = run(&options("none"));
    for width in [80, 100, 120] {
        let text = results.to_text(width);
        let parts = [
            "Lost cells of none: 3 of 3\n",
            "Why:\n",
            "Targets of none\n",
            "Totals\n",
            "A cell is lost where",
        ];
        let places = parts.map(|part| {
            text.find(part)
                .unwrap_or_else(|| panic!("{part} is missing:\n{text}"))
        });
        assert!(places.is_sorted(), "{places:?}");
        let wide = text.lines().find(|line| line.chars().count() > width);
        assert_eq!(wide, None, "{text}");
    }
    let text = results.to_text(120);
    let lost = text
        .lines()
        .filter(|line| line.starts_with('x') && line.contains("fsspec-seq-64K"))
        .count();
    assert_eq!(lost, 3, "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("read ahead less far: it held 0 MiB unread on average"),
        "{text}"
    );
    assert!(
        text.contains("MISSED: worst cell against its best opponent"),
        "{text}"
    );
}

#[test]
fn the_page_is_whole() {
    let results = run(&options("none"));
    let html = results.to_html();
    let options = ParsingOptions {
        allow_dtd: true,
        ..ParsingOptions::default()
    };
    let page = Document::parse_with_options(&html, options).expect("XML");
    let inside = page
        .descendants()
        .find(|n| n.attribute("id") == Some("foreread-json"))
        .and_then(|n| n.text());
    assert_eq!(
        serde_json::from_str::<Value>(inside.expect("the data")).expect("JSON"),
        json(&results)
    );
    let text: String = page
        .descendants()
        .filter(roxmltree::Node::is_text)
        .filter_map(|n| n.text())
        .collect();
    for part in [
        "none loses 3 of 3 cells",
        "held MiB s",
        "slower than x10",
        "none made ",
    ] {
        assert!(text.contains(part), "{part} is missing");
    }
    // A map of the lost cells and one of each device.
    let maps = page.descendants().filter(|n| n.has_tag_name("title"));
    let maps = maps
        .filter(|n| {
            n.text()
                .is_some_and(|t| t.starts_with("Time over that of the best"))
        })
        .count();
    assert_eq!(maps, 4);
    let heads: Vec<&str> = page
        .descendants()
        .filter(|n| n.has_tag_name("h2"))
        .filter_map(|n| n.text())
        .collect();
    let expected = [
        "What the runs say",
        "Lost cells of none: 3",
        "All cells",
        "Targets and totals",
        "Every value",
    ];
    assert_eq!(heads, expected);
}

/// Sets the flag after some steps; remembers each.
struct StopAfter<'a> {
    steps: u64,
    seen: Vec<u64>,
    stop: &'a AtomicBool,
}

impl Progress for StopAfter<'_> {
    fn stage(&mut self, _text: &str) {}

    fn step(&mut self, done: u64, _total: u64) {
        self.seen.push(done);
        if done >= self.steps {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

fn with_file(judged: &str, path: &Path) -> BenchOptions {
    BenchOptions {
        runs_file: Some(path.to_path_buf()),
        ..options(judged)
    }
}

#[test]
fn a_stopped_bench_continues_to_the_same_result() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let options = with_file("auto", &dir.path().join("runs.jsonl"));
    let stop = AtomicBool::new(false);
    let mut progress = StopAfter {
        steps: 40,
        seen: Vec::new(),
        stop: &stop,
    };
    let stopped = policies::run(&options, &stop, &mut progress).expect("stopped");
    let [done, all] = stopped.runs();
    assert!((40..=41).contains(&done) && all == 78, "{done} of {all}");
    let partial = json(&stopped);
    assert_eq!(
        (&partial["cells_complete"], &partial["cells_planned"]),
        (&1.into(), &3.into()),
        "26 runs a cell"
    );
    assert_eq!(partial["cells"].as_array().map(Vec::len), Some(9));
    assert!(
        stopped.to_text(100).contains("Note: Stopped after"),
        "{}",
        stopped.to_text(100)
    );
    let go = AtomicBool::new(false);
    let mut progress = StopAfter {
        steps: u64::MAX,
        seen: Vec::new(),
        stop: &go,
    };
    let whole = policies::run(&options, &go, &mut progress).expect("whole");
    assert_eq!(
        progress.seen,
        (done as u64..=78).collect::<Vec<_>>(),
        "only what was not in the file is measured"
    );
    assert_eq!(whole.to_json(), run(&self::options("auto")).to_json());
}

#[test]
fn files_and_names_that_do_not_fit_are_refused() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let path = dir.path().join("runs.jsonl");
    let mut small = with_file("none", &path);
    small.only = vec![
        CellFilter::parse("fsspec-random@moon"),
        CellFilter::parse("fsspec-random"),
    ];
    let said = |options: &BenchOptions| {
        policies::run(options, &AtomicBool::new(false), &mut Silent)
            .expect_err("refused")
            .to_string()
    };
    let why = said(&small);
    assert!(
        why.starts_with("no such cell: fsspec-random@moon in the design fractional"),
        "{why}"
    );
    small.only.remove(0);
    run(&small);
    let only = vec![CellFilter::parse("random@nvme")];
    let why = said(&BenchOptions {
        design: Design::Baseline,
        only,
        ..small.clone()
    });
    assert!(
        why.contains("its runs are of the design fractional, not of baseline"),
        "{why}"
    );
    let why = said(&BenchOptions {
        judged: vec!["aoto".to_string()],
        ..small.clone()
    });
    assert!(why.contains("aoto"), "{why}");
    // Another build with the same figures continues; a figure that has changed is found.
    run(&BenchOptions {
        build: "two".to_string(),
        judged: vec!["linux-6.18".to_string()],
        ..small.clone()
    });
    let text = std::fs::read_to_string(&path).expect("readable");
    std::fs::write(&path, text.replace("\"time_s\":", "\"time_s\":1")).expect("written");
    let why = said(&BenchOptions {
        build: "three".to_string(),
        ..small
    });
    assert!(why.contains("its runs are of another build"), "{why}");
}

/// Two devices with two caches each; one device is smaller than the trace.
#[test]
fn a_trace_has_its_own_cells() {
    let mut options = options("auto");
    options.recordings = vec![Arc::new(trace())];
    options.only = vec![CellFilter::parse("@nvme"), CellFilter::parse("@usb-cruzer")];
    let results = run(&options);
    let json = json(&results);
    let cells = json["cells"].as_array().expect("rows");
    assert_eq!(cells.len(), 2 * 2 * 9);
    assert!(
        cells
            .iter()
            .all(|c| c["workload"] == "trace:made.csv" && c["predictable"] == false)
    );
    assert_eq!(json["trace"], "made.csv");
    let text = results.to_text(200);
    assert!(
        text.contains("Note: The trace reads beyond the end of usb-cruzer: those"),
        "{text}"
    );
}

/// 200 reads in order, and one far behind them, beyond the end of a stick.
fn trace() -> Replay {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let path = dir.path().join("made.csv");
    let mut table = "offset,length,start_ns\n".to_string();
    (0..200_u64).for_each(|n| table.push_str(&format!("{},65536,{}\n", n * 65_536, n * 1000)));
    table.push_str(&format!("{},4096,900000\n", 100_u64 << 30));
    std::fs::write(&path, table).expect("written");
    let import = foreread_trace::open::open(&[path], None).expect("a trace");
    let loaded = load("made.csv", import, &Part::default()).expect("a trace");
    Replay::of(&Arc::new(loaded), None, None).expect("ready")
}
