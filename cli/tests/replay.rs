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
}

#[test]
fn what_the_content_leaves_open_the_user_says() {
    let unsure = fixture("alibaba/unsure.csv");
    let table = compare(&unsure, &["--format", "alibaba"]);
    assert_eq!(
        (&table["workload"], &table["mode"]),
        (&json!("unsure.csv"), &json!("afap"))
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
