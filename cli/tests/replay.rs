//! Tests of `compare TRACE`: the format may be given, and converting a trace changes no figure. The lab's tests cover
//! the replay modes.

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

#[test]
fn ambiguous_content_needs_a_format() {
    let unsure = fixture("alibaba/unsure.csv");
    let table = compare(&unsure, &["--format", "alibaba"]);
    assert_eq!(
        (&table["workload"], &table["mode"]),
        (&json!("unsure.csv"), &json!("afap"))
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
