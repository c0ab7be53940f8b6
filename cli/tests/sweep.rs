//! `foreread sweep`: cells agree with `compare`, are kept whole, and are measured once.

use crate::common::foreread;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

fn sweep(dir: &Path, more: &[&str]) -> Vec<Value> {
    let dir = dir.display().to_string();
    let usual = [
        "sweep",
        "boot-virtio",
        "--on",
        "model:object-near,model:nvme",
        "--out",
        &dir,
        "--json",
        "-",
    ];
    let got = foreread(usual.iter().chain(more));
    serde_json::from_str(got.is_done()).expect("JSON")
}

#[test]
fn a_cell_is_the_row_of_compare() {
    let dir = tempfile::tempdir().expect("a directory");
    let cells = sweep(dir.path(), &["--policy", "linux-6.18", "--cache", "16M"]);
    assert_eq!(cells.len(), 2, "no row of none that was not asked for");
    let cell = cells
        .iter()
        .find(|cell| cell["key"]["device"] == "model:object-near")
        .expect("it was asked for");
    assert_eq!(cell["schema"], "foreread.sweep/1");
    let asked = [
        "compare",
        "boot-virtio",
        "--on",
        "model:object-near",
        "--policy",
        "linux-6.18",
        "--cache",
        "16M",
    ];
    let got = foreread(asked.iter().chain(&["--runs", "1", "--json", "-"]));
    let compared: Value = serde_json::from_str(got.is_done()).expect("JSON");
    let row = compared["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .find(|row| row["policy"] == "linux-6.18")
        .expect("there");
    assert!(
        row["ra_bytes"].as_u64() > Some(0),
        "a workload that the policy reads ahead"
    );
    for key in [
        "ra_bytes",
        "time_s",
        "source_bytes",
        "hits",
        "misses",
        "stall_s",
        "p99_us",
    ] {
        assert_eq!(cell["row"][key], row[key], "{key}");
    }
}

#[test]
fn a_second_sweep_measures_only_what_is_missing() {
    let dir = tempfile::tempdir().expect("a directory");
    let first = sweep(dir.path(), &["--policy", "none"]);
    let files = || {
        let entries = std::fs::read_dir(dir.path())
            .expect("it was made")
            .flatten();
        let mut all: Vec<_> = entries
            .map(|e| {
                (
                    e.path(),
                    e.metadata().and_then(|m| m.modified()).expect("a time"),
                )
            })
            .collect();
        all.sort();
        all
    };
    let before = files();
    assert_eq!(before.len(), 2);
    // One is cut, as a full disk would leave it.
    std::fs::write(&before[0].0, "{\"schema\":").expect("written");
    let broken = files();
    let second = sweep(dir.path(), &["--policy", "none,linux-6.18"]);
    assert_eq!(second.len(), 4);
    assert!(
        first.iter().all(|cell| second.contains(cell)),
        "the same cell is the same result"
    );
    let after = files();
    assert_eq!(after.len(), 4);
    let unchanged = broken.iter().filter(|one| after.contains(one)).count();
    assert_eq!(
        unchanged, 1,
        "the cut one was measured anew, the whole one was not"
    );
    // A cell of another version of the format is measured anew as well.
    let text = || std::fs::read_to_string(&after[0].0).expect("read");
    let whole = text();
    let version_9 = whole.replace("foreread.sweep/1", "foreread.sweep/9");
    assert_ne!(version_9, whole);
    std::fs::write(&after[0].0, version_9).expect("written");
    assert_eq!(sweep(dir.path(), &["--policy", "none,linux-6.18"]).len(), 4);
    assert!(text().contains("foreread.sweep/1"));
}

#[test]
fn missing_cells_are_listed_for_others_to_measure() {
    let dir = tempfile::tempdir().expect("a directory");
    sweep(dir.path(), &["--policy", "none"]);
    let out = dir.path().display().to_string();
    let list = |policies: &str| {
        let asked = [
            "sweep",
            "boot-virtio",
            "--on",
            "model:nvme",
            "--out",
            &out,
            "--policy",
            policies,
            "--missing",
        ];
        serde_json::from_str::<Vec<Value>>(foreread(asked).is_done()).expect("JSON")
    };
    let missing = list("none,linux-6.18");
    assert_eq!(missing.len(), 1);
    assert_eq!(
        (&missing[0]["key"]["policy"], &missing[0]["key"]["device"]),
        (&"linux-6.18".into(), &"model:nvme".into())
    );
    sweep(dir.path(), &["--policy", "linux-6.18"]);
    let name = missing[0]["name"].as_str().expect("a name");
    assert!(dir.path().join(format!("{name}.json")).exists());
    assert!(list("none,linux-6.18").is_empty());
}

/// At the end of a sweep its threads and workers wait for a short cell.
#[test]
fn missing_cells_of_large_traces_are_listed_first() {
    let traces = [
        "boot-virtio",
        "../lab/traces/grep-virtio.frt",
        "../lab/traces/boot-ide.frt",
        "../lab/traces/grep-ide.frt",
    ];
    let got = foreread(
        ["sweep"]
            .iter()
            .chain(&traces)
            .chain(&["--on", "model:nvme", "--missing"]),
    );
    let missing: Vec<Value> = serde_json::from_str(got.is_done()).expect("JSON");
    let bytes: Vec<_> = missing
        .iter()
        .map(|cell| cell["key"]["trace_bytes"].as_u64())
        .collect();
    assert!(
        bytes.is_sorted_by(|a, b| a >= b) && bytes[0] > bytes[bytes.len() - 1],
        "{bytes:?}"
    );
}

/// One cell a trace, in three threads: each loads its trace, and the results are those of one thread.
#[test]
fn cells_of_many_traces_are_the_same_on_any_number_of_threads() {
    let on = |jobs: &str, policies: &str| {
        let traces = [
            "../lab/traces/grep-ide.frt",
            "boot-virtio",
            "../lab/traces/grep-virtio.frt",
        ];
        let more = [
            "--on",
            "model:object-near",
            "--policy",
            policies,
            "--jobs",
            jobs,
            "--json",
            "-",
        ];
        let got = foreread(["sweep"].iter().chain(&traces).chain(&more));
        serde_json::from_str::<Vec<Value>>(got.is_done()).expect("JSON")
    };
    let (one, three) = (on("1", "none"), on("3", "none"));
    assert_eq!((one.len(), &one), (3, &three));
    let reads: BTreeSet<_> = one
        .iter()
        .map(|cell| cell["row"]["demand_bytes"].as_u64())
        .collect();
    assert!(reads.len() > 1, "each its trace: {reads:?}");
    let two = on("2", "none,linux-6.18");
    assert_eq!(two.len(), 6);
    assert!(
        one.iter().all(|cell| two.contains(cell)),
        "a trace that cells share is the same trace"
    );
}

/// A trace is looked at when its first cell begins; what is wrong with it ends the sweep.
#[test]
fn a_trace_that_cannot_be_read_ends_the_sweep_by_its_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let (broken, out) = (dir.path().join("broken.frt"), dir.path().join("out"));
    std::fs::write(&broken, "FRTRACE and nothing that follows").expect("written");
    let (broken, out) = (broken.display().to_string(), out.display().to_string());
    let whole = "../lab/traces/grep-ide.frt";
    let got = foreread([
        "sweep",
        &broken,
        whole,
        "--on",
        "model:nvme",
        "--policy",
        "none",
        "--jobs",
        "1",
        "--out",
        &out,
    ]);
    assert!(got.is_refused().contains("broken.frt"), "{}", got.err);
    // The larger trace comes first: its cell was measured, and is kept.
    assert_eq!(std::fs::read_dir(&out).expect("made").count(), 1);
}

#[test]
fn what_cannot_be_swept_is_refused() {
    for (asked, why) in [
        (
            &["sweep", "sequential", "--on", "Cargo.toml"][..],
            "simulated",
        ),
        (&["sweep", "sequential", "--on", "model:none-such"], "model"),
        (&["sweep", "sequentiel"], "sequential"),
        (&["sweep", "sequential", "--policy", "linux"], "linux-2.6.0"),
        (&["sweep", "sequential", "--out", "/dev/null/x"], "--out"),
    ] {
        let got = foreread(asked);
        assert!(got.is_refused().contains(why), "{}", got.err);
    }
}
