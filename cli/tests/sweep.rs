//! Tests of `foreread sweep`: cells agree with `compare`, and are measured only once.

use crate::common::foreread;
use serde_json::Value;
use std::path::Path;

const TRACES: [&str; 3] = [
    "../lab/traces/grep-ide.frt",
    "boot-virtio",
    "../lab/traces/grep-virtio.frt",
];

fn cells(args: &[&str]) -> Vec<Value> {
    let got = foreread(["sweep"].iter().chain(args).chain(&["--json", "-"]));
    let lines = got.is_done().lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

/// A workload on two models.
fn sweep(file: &Path, more: &[&str]) -> Vec<Value> {
    let file = file.display().to_string();
    let usual = [
        "boot-virtio",
        "--on",
        "model:object-near,model:nvme",
        "--resume",
        &file,
    ];
    cells(&[&usual, more].concat())
}

#[test]
fn a_cell_is_the_row_of_compare() {
    let asked = [
        "interleaved",
        "--policy",
        "linux-6.18",
        "--vary",
        "streams=2,4",
        "--memory",
        "16M",
    ];
    let on = ["--on", "model:object-near,model:nvme"];
    let cells = cells(&[&asked[..], &on].concat());
    assert_eq!(cells.len(), 4, "no row of none that was not asked for");
    let of = |cell: &&Value| {
        cell["key"]["device"] == "model:object-near"
            && cell["key"]["trace"] == "interleaved:streams=4"
    };
    let cell = cells.iter().find(of).expect("it was asked for");
    assert_eq!(cell["schema"], "foreread.cell/1");
    let alone = ["--on", "model:object-near", "--runs", "1", "--json", "-"];
    let got = foreread(["compare"].iter().chain(&asked).chain(&alone));
    let compared: Value = serde_json::from_str(got.is_done()).expect("JSON");
    let mut rows = compared["reports"][1]["rows"]
        .as_array()
        .expect("rows")
        .iter();
    let row = rows
        .find(|row| row["policy"] == "linux-6.18")
        .expect("there");
    assert!(row["ra_bytes"].as_u64() > Some(0));
    let keys = "ra_bytes time_s source_bytes hits misses stall_s p99_us";
    for key in keys.split(' ') {
        assert_eq!(cell["result"]["row"][key], row[key], "{key}");
    }
}

#[test]
fn a_second_sweep_measures_only_what_is_missing() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("cells.jsonl");
    let path = file.display().to_string();
    let first = sweep(&file, &["--policy", "none"]);
    let text = || std::fs::read_to_string(&file).expect("read");
    let before = text();
    assert_eq!((first.len(), before.lines().count()), (2, 2));
    let missing = |policies: &str| {
        let asked = ["sweep", "boot-virtio", "--on", "model:nvme", "--dry-run"];
        let more = ["--resume", &path, "--policy", policies];
        let got = foreread(asked.iter().chain(&more));
        serde_json::from_str::<Vec<Value>>(got.is_done()).expect("JSON")
    };
    let keys = missing("none,linux-6.18");
    assert_eq!(keys.len(), 1);
    assert_eq!(keys[0]["policy"], "linux-6.18");
    assert_eq!(keys[0]["device"], "model:nvme");
    // The last line is cut, as a full disk would leave it.
    std::fs::write(&file, &before[..before.len() - 9]).expect("written");
    let second = sweep(&file, &["--policy", "none,linux-6.18"]);
    assert_eq!((second.len(), text().lines().count()), (4, 4));
    let is_same = |cell: &Value| second.contains(cell);
    assert!(
        first.iter().all(is_same),
        "the same cell is the same result"
    );
    let whole = text();
    assert!(whole.starts_with(before.lines().next().expect("a line")));
    assert_eq!(sweep(&file, &["--policy", "linux-6.18"]).len(), 2);
    assert!(missing("none,linux-6.18").is_empty());
    assert_eq!(text(), whole, "nothing was measured");
}

/// At the end of a sweep its threads and workers wait for a short cell.
#[test]
fn missing_cells_of_large_traces_are_listed_first() {
    let asked = ["sweep", "--on", "model:nvme", "--dry-run"];
    let got = foreread(asked.iter().chain(&TRACES));
    let missing: Vec<Value> = serde_json::from_str(got.is_done()).expect("JSON");
    let bytes: Vec<_> = missing
        .iter()
        .map(|key| key["trace_bytes"].as_u64())
        .collect();
    assert!(bytes.is_sorted_by(|a, b| a >= b) && bytes[0] > bytes[bytes.len() - 1]);
}

/// Each thread loads a trace, and the results are those of one thread.
#[test]
fn cells_of_many_traces_are_the_same_on_any_number_of_threads() {
    let on = |jobs: &str, policies: &str| {
        let more = [
            "--on",
            "model:object-near",
            "--policy",
            policies,
            "--jobs",
            jobs,
        ];
        cells(&[&TRACES[..], &more].concat())
    };
    let (one, two) = (on("1", "none"), on("2", "none,linux-6.18"));
    assert_eq!((one.len(), &one), (3, &on("3", "none")));
    let bytes = |cell: &Value| cell["result"]["row"]["demand_bytes"].as_u64();
    let reads: std::collections::BTreeSet<_> = one.iter().map(bytes).collect();
    assert!(reads.len() > 1, "each its trace: {reads:?}");
    assert_eq!(two.len(), 6);
    assert!(one.iter().all(|cell| two.contains(cell)));
}
