//! Tests `foreread check bench policies` on a few cells: the contents of every output, that a stopped run continues to
//! the same result, and which input is refused.

use foreread_check::bench::policies::{self, BenchOptions, CellFilter, Results};
use foreread_check::evaluation::Design;
use foreread_report::progress::{Progress, Silent};
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Three cells of the fractional design, `judged` in each.
fn options(judged: &str) -> BenchOptions {
    BenchOptions {
        design: Design::Fractional,
        judged: vec![judged.to_string()],
        only: vec![CellFilter::parse("fsspec-seq-64K")],
        recordings: Vec::new(),
        all_recordings: 0,
        draw: 1,
        threads: 2,
        file: None,
        build: "one".to_string(),
    }
}

fn run(options: &BenchOptions) -> Results {
    policies::run(options, &AtomicUsize::new(0), &mut Silent).expect("valid")
}

fn json(results: &Results) -> Value {
    serde_json::from_str(&results.to_json()).expect("JSON")
}

#[test]
fn the_json_has_every_key_of_its_schema() {
    let json = json(&run(&options("auto")));
    assert_eq!(json["schema"], "foreread.policies/1");
    let cells = json["cells"].as_array().expect("rows");
    // 7 opponents and auto; no oracle, as the workload is not among the predictable ones.
    assert_eq!(cells.len(), 3 * 8);
    let keys = "workload device cache predictable policy time_s overfetch requests unused_bytes p99_us held_byte_s oracle_share \
                best ratio worst_seed lost";
    for cell in cells {
        let mut keys = keys.split_whitespace();
        let missing = keys.find(|key| cell.get(key).is_none());
        assert_eq!(missing, None, "{cell}");
        assert!(cell["time_s"].as_f64() > Some(0.0) && cell["requests"].as_u64() > Some(0));
    }
    assert_eq!(json["totals"].as_array().map(Vec::len), Some(8));
    assert_eq!(json["runs"], 3 * (7 * 3 + 2));
    assert_eq!(json["runs_planned"], json["runs"]);
    let mut targets = json["targets"].as_array().expect("targets").iter();
    let worst = targets
        .find(|t| t["target"] == "highest time in any cell, relative to the cell's best opponent");
    let of_auto = cells.iter().filter(|c| c["policy"] == "auto");
    let ratios = of_auto.filter_map(|c| c["ratio"].as_f64());
    let worst = worst.expect("a target")["value"].as_f64();
    assert_eq!(worst, ratios.max_by(f64::total_cmp));
}

/// Without readahead every one of the three cells is lost.
#[test]
fn the_text_begins_with_lost_cells() {
    let results = run(&options("none"));
    for width in [80, 100, 120] {
        let text = results.to_text(width);
        let parts = [
            "Lost cells of none: 3 of 3\n",
            "Targets of none\n",
            "Totals\n",
            "A cell is lost if",
        ];
        let places = parts.map(|part| text.find(part));
        assert!(places.is_sorted() && places[0].is_some(), "{text}");
        let wide = text.lines().find(|line| line.chars().count() > width);
        assert_eq!(wide, None, "{text}");
    }
    let text = results.to_text(120);
    let lost = |line: &&str| line.starts_with('x') && line.contains("fsspec-seq-64K");
    assert_eq!(text.lines().filter(lost).count(), 3, "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let missed = "MISSED: highest time in any cell, relative to the cell's best opponent";
    assert!(words.contains(missed), "{text}");
    // It made more requests, and held nothing that was not read.
    assert!(
        text.lines()
            .any(|line| lost(&line) && line.trim_end().ends_with("x0")),
        "{text}"
    );
}

/// Sets the flag after some steps; remembers each.
struct StopAfter<'a> {
    steps: u64,
    seen: Vec<u64>,
    stop: &'a AtomicUsize,
}

impl Progress for StopAfter<'_> {
    fn stage(&mut self, _text: &str) {}

    fn step(&mut self, done: u64, _total: u64) {
        self.seen.push(done);
        self.stop
            .fetch_or(usize::from(done >= self.steps), Ordering::Relaxed);
    }
}

fn with_file(judged: &str, path: &Path) -> BenchOptions {
    BenchOptions {
        file: Some(path.to_path_buf()),
        ..options(judged)
    }
}

#[test]
fn a_stopped_bench_continues_to_the_same_result() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let options = with_file("auto", &dir.path().join("runs.jsonl"));
    let run_until = |steps| {
        let stop = AtomicUsize::new(0);
        let mut progress = StopAfter {
            steps,
            seen: Vec::new(),
            stop: &stop,
        };
        let results = policies::run(&options, &stop, &mut progress).expect("valid");
        (results, progress.seen)
    };
    let (stopped, _) = run_until(40);
    let [done, all] = stopped.runs();
    assert!((40..=41).contains(&done) && all == 69, "{done} of {all}");
    let partial = json(&stopped);
    assert_eq!(partial["cells_complete"], 1, "23 runs a cell");
    assert_eq!(partial["cells"].as_array().map(Vec::len), Some(8));
    let text = stopped.to_text(100);
    assert!(text.contains("Note: Stopped after"), "{text}");
    let (whole, seen) = run_until(u64::MAX);
    let steps: Vec<u64> = (done as u64..=69).collect();
    assert_eq!(seen, steps, "only what was not in the file is measured");
    assert_eq!(whole.to_json(), run(&self::options("auto")).to_json());
}

#[test]
fn files_and_names_that_do_not_fit_are_refused() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let path = dir.path().join("runs.jsonl");
    let said = |options: &BenchOptions| {
        let refused = policies::run(options, &AtomicUsize::new(0), &mut Silent);
        refused.expect_err("refused").to_string()
    };
    let mut small = with_file("none", &path);
    let only = ["fsspec-random@moon", "fsspec-random"];
    small.only = only.map(CellFilter::parse).to_vec();
    let why = said(&small);
    let no_cell = "no such cell: fsspec-random@moon in the design fractional";
    assert!(why.starts_with(no_cell), "{why}");
    small.only.remove(0);
    run(&small);
    let why = said(&BenchOptions {
        judged: vec!["aoto".to_string()],
        ..small.clone()
    });
    assert!(why.contains("aoto"), "{why}");
    // After a new build the judged policy alone runs again; a figure of an opponent that has changed is found.
    let lines = || std::fs::read_to_string(&path).expect("readable");
    let before = lines().lines().count();
    let two = BenchOptions {
        build: "two".to_string(),
        ..small
    };
    run(&two);
    assert_eq!(
        lines().lines().count() - before,
        3 * 3,
        "none on three seeds"
    );
    let changed = lines().replace("\"time_s\":", "\"time_s\":1");
    std::fs::write(&path, changed).expect("written");
    let why = said(&two);
    assert!(
        why.starts_with("cannot use the cells of ") && why.contains(" s, and now "),
        "{why}"
    );
}
