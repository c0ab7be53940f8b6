//! `compare TRACE`: every mode on the fixtures of the formats, what a trace cannot do, and that a conversion changes no
//! figure. Never: judges a policy.

use crate::common::foreread;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../trace/tests/traces")
        .join(name)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// The bytes of a fixture in hexadecimal digits, as a file.
fn from_hex(name: &str, folder: &Path) -> PathBuf {
    let digits = std::fs::read_to_string(fixture(name)).expect("there");
    let digits: String = digits
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    let digits: Vec<char> = digits.chars().filter(char::is_ascii_hexdigit).collect();
    let byte =
        |two: &[char]| u8::from_str_radix(&two.iter().collect::<String>(), 16).expect("digits");
    let path = folder.join("rbd.trace");
    std::fs::write(&path, digits.chunks(2).map(byte).collect::<Vec<_>>()).expect("room");
    path
}

/// A program that reads through one open file, waits, and reads again, in our table.
fn table(folder: &Path, columns: usize) -> PathBuf {
    let path = folder.join("reads.csv");
    let head = ["offset", "length", "start_ns", "end_ns"];
    let mut table = head[..columns].join(",") + "\n";
    for n in 0..40_u64 {
        let row = [
            n % 20 * 65_536,
            4096,
            n * 3_000_000,
            n * 3_000_000 + 1_000_000,
        ]
        .map(|figure| figure.to_string());
        table.push_str(&(row[..columns].join(",") + "\n"));
    }
    std::fs::write(&path, table).expect("room");
    path
}

/// Compares in the simulator: two runs of each policy, as JSON.
fn compare(trace: &Path, more: &[&str]) -> Value {
    let fixed = [
        "compare",
        text(trace),
        "--on",
        "model:ssd-sata",
        "--policy",
        "none,linux-6.18",
        "--runs",
        "2",
    ];
    let got = foreread(fixed.iter().chain(&["--json", "-"]).chain(more));
    serde_json::from_str(got.is_done()).expect("JSON")
}

fn refusal(trace: &Path, more: &[&str]) -> String {
    let fixed = ["compare", text(trace), "--on", "model:ssd-sata"];
    foreread(fixed.iter().chain(more)).is_refused().to_string()
}

fn time(table: &Value) -> f64 {
    table["rows"][0]["time_s"]["mean"]
        .as_f64()
        .expect("measured")
}

#[test]
fn without_a_mode_each_trace_is_replayed_in_its_best() {
    let folder = tempfile::tempdir().expect("a scratch directory");
    let rbd = from_hex("rbd-replay/every-action.hex", folder.path());
    let all = [
        (rbd, "deps", json!(1.0)),
        (fixture("foreread/v1.frt"), "deps", json!(1.0)),
        (fixture("strace/full.strace"), "closed", json!(1.0)),
        (fixture("strace/plain.strace"), "afap", Value::Null),
        (fixture("csv/dftracer.csv"), "afap", Value::Null),
    ];
    for (trace, mode, think) in all {
        let table = compare(&trace, &[]);
        let name = trace
            .file_name()
            .and_then(|name| name.to_str())
            .expect("UTF-8");
        let got = (&table["workload"], &table["mode"], &table["think"]);
        assert_eq!(
            got,
            (&json!(name), &json!(mode), &think),
            "{}",
            trace.display()
        );
        assert_eq!(table["rows"].as_array().map(Vec::len), Some(2));
        assert!(time(&table) > 0.0);
    }
}

#[test]
fn each_mode_keeps_the_time_that_it_promises() {
    let folder = tempfile::tempdir().expect("a scratch directory");
    let trace = table(folder.path(), 4);
    let of = |more: &[&str]| {
        let table = compare(&trace, more);
        (table["mode"].clone(), table["think"].clone(), time(&table))
    };
    let (mode, think, asap) = of(&["--mode", "asap"]);
    assert_eq!((mode, think), (json!("afap"), Value::Null));
    let (mode, think, closed) = of(&["--mode", "closed"]);
    assert_eq!((mode, think), (json!("closed"), json!(1.0)));
    let (mode, think, half) = of(&["--mode", "closed", "--think", "0.5"]);
    assert_eq!((mode, think), (json!("closed"), json!(0.5)));
    let (mode, think, open) = of(&["--mode", "open"]);
    assert_eq!((mode, think), (json!("open"), Value::Null));
    // 39 pauses of 2 ms, or the last read 117 ms after the first: what the device takes comes on top.
    assert!(
        closed > 0.078 && closed - half > 0.038 && half > 0.039 && half > asap,
        "{closed} {half} {asap}"
    );
    assert!(open > 0.117 && open < 0.12 && asap < 0.038, "{open} {asap}");
    // The old word of the mode still works.
    let gaps = of(&["--mode", "afap", "--think", "1"]);
    assert!(gaps.1 == json!(1.0) && gaps.2 > 0.117, "{gaps:?}");
    let cut = of(&["--mode", "closed", "--limit", "20"]);
    assert!(cut.2 > 0.038 && cut.2 < closed / 1.5, "{cut:?}");
}

#[test]
fn a_mode_that_the_trace_cannot_do_is_refused_in_a_line() {
    let folder = tempfile::tempdir().expect("a scratch directory");
    let without_ends = table(folder.path(), 3);
    let line = refusal(&without_ends, &["--mode", "closed"]);
    assert!(
        line.contains("does not say when reads ended: reads.csv, mode closed; use --mode asap"),
        "{line}"
    );
    let line = refusal(&without_ends, &["--mode", "deps"]);
    assert!(
        line.contains("neither what its records wait for nor when they ended: reads.csv, mode deps; use --mode"),
        "{line}"
    );
    assert_eq!(compare(&without_ends, &["--mode", "open"])["mode"], "open");
    let without_times = table(folder.path(), 2);
    let line = refusal(&without_times, &["--mode", "open"]);
    assert!(
        line.contains("when each read began: reads.csv, mode open; use --mode asap"),
        "{line}"
    );
    let line = refusal(&without_times, &["--think", "2"]);
    assert!(line.contains("because the trace has no times"), "{line}");
    for (factor, refused) in [("100", false), ("100.5", true), ("-1", true), ("NaN", true)] {
        let think = format!("--think={factor}");
        let more = [think.as_str(), "--mode", "deps", "--runs", "1"];
        if refused {
            let line = refusal(&fixture("foreread/v1.frt"), &more);
            assert!(
                line.contains("a factor on pauses below 0 or above 100"),
                "{line}"
            );
        } else {
            assert_eq!(
                compare(&fixture("foreread/v1.frt"), &more[..3])["think"],
                json!(100.0)
            );
        }
    }
}

#[test]
fn what_the_content_leaves_open_the_user_says() {
    let unsure = fixture("alibaba/unsure.csv");
    let line = refusal(&unsure, &[]);
    assert!(
        line.contains("it could be alibaba: ") && line.contains("--format"),
        "{line}"
    );
    let table = compare(&unsure, &["--format", "alibaba"]);
    assert_eq!(
        (&table["workload"], &table["mode"]),
        (&json!("unsure.csv"), &json!("afap"))
    );
    let line = refusal(&unsure, &["--format", "nonesuch"]);
    assert!(line.contains("unknown format 'nonesuch'"), "{line}");
    let line = foreread([
        "compare",
        "random",
        "--on",
        "model:ssd-sata",
        "--format",
        "csv",
    ])
    .is_refused()
    .to_string();
    assert!(
        line.contains("only a trace can be replayed that way: --format"),
        "{line}"
    );
}

/// `trace:FILE` is a trace even where it is called like a workload.
#[test]
fn a_trace_may_be_called_like_a_workload() {
    let folder = tempfile::tempdir().expect("a scratch directory");
    let path = folder.path().join("random");
    std::fs::rename(table(folder.path(), 4), &path).expect("one file system");
    let marked = format!("trace:{}", path.display());
    let table = compare(Path::new(&marked), &[]);
    assert_eq!(
        (&table["workload"], &table["mode"]),
        (&json!("random"), &json!("afap"))
    );
}

#[test]
fn a_trace_that_was_imported_gives_the_same_figures() {
    let folder = tempfile::tempdir().expect("a scratch directory");
    let traces = [
        from_hex("rbd-replay/every-action.hex", folder.path()),
        fixture("strace/full.strace"),
        table(folder.path(), 4),
        fixture("csv/dftracer.csv"),
    ];
    let out = folder.path().join("imported.frt");
    for trace in traces {
        foreread(["trace", "import", text(&trace), "-o", text(&out), "--force"]).is_done();
        let (direct, imported) = (compare(&trace, &[]), compare(&out, &[]));
        for key in ["mode", "think", "rows", "notes", "bound_s", "page_bytes"] {
            assert_eq!(direct[key], imported[key], "{key} of {}", trace.display());
        }
        assert_ne!(direct["workload"], imported["workload"]);
        assert!(direct["rows"].is_array());
    }
}

/// A table, its advice and its errors name the file, not the way to it more often than once.
#[test]
fn words_name_the_file_and_an_error_its_path() {
    let trace = fixture("csv/dftracer.csv");
    let got = foreread([
        "compare",
        text(&trace),
        "--on",
        "model:ssd-sata",
        "--runs",
        "2",
        "--policy",
        "linux-6.18",
    ]);
    let shown = got.is_done();
    assert!(
        shown.contains("\n\ndftracer.csv on model:ssd-sata (") && !shown.contains("tests/traces"),
        "{shown}"
    );
    assert!(
        !shown.contains("For all: ") && shown.contains("Replayed in mode asap, because "),
        "{shown}"
    );
    let line = refusal(&fixture("csv/bad-quote.csv"), &[]);
    assert!(line.contains("tests/traces/csv/bad-quote.csv, "), "{line}");
}
