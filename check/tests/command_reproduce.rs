//! `foreread check reproduce`: tables for people, JSON for programs, the exit code.

use crate::common::foreread;

#[test]
fn a_table_for_people_and_json_for_programs() {
    let text = foreread(["reproduce", "001"]);
    let out = text.is_done();
    assert!(
        out.contains("[Wu 2010b] marks") && !out.contains("MISSED"),
        "{out}"
    );
    // The verdict first, then the score; a miss that is on record is listed and fails nothing.
    let mut lines = out.lines();
    assert!(
        lines
            .next()
            .is_some_and(|first| first.contains(" checks are met: ")),
        "{out}"
    );
    assert!(
        lines.any(|line| line.starts_with("fitted, checked on left-out rows")),
        "{out}"
    );
    assert!(out.contains("missed, on record: [Wu 2010b]"), "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 80));
    let json = foreread(["reproduce", "001", "--json", "-"]);
    let value: serde_json::Value = serde_json::from_str(json.is_done()).expect("JSON");
    assert_eq!(value["schema"], "foreread.reproduce/1");
    assert_eq!(value["score"][0]["kind"], "left-out");
    assert!(
        value["tables"]
            .as_array()
            .is_some_and(|tables| tables.len() > 10)
    );
}

#[test]
fn what_is_not_there_is_refused() {
    assert!(foreread(["reproduce", "006"]).is_refused().contains("006"));
    assert!(
        foreread(["reproduce", "001", "--runs", "0"])
            .is_refused()
            .contains("--runs")
    );
    let json = foreread(["reproduce", "001", "--json", "no/such/dir/x.json"]);
    assert!(json.is_refused().contains("its directory does not exist"));
}

/// Without the programs, or the rights, it says in one line what it needs.
#[test]
fn real_parts_that_are_missing_are_named() {
    let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_foreread-check"));
    let output = command
        .args(["reproduce", "004", "--real"])
        .output()
        .expect("the binary starts");
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        (output.status.code(), err.lines().count()),
        (Some(3), 1),
        "{err}"
    );
    assert!(err.contains("needs a Ceph cluster"), "{err}");
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_foreread-check"));
    let output = command
        .args(["reproduce", "002", "--real"])
        .env("PATH", dir.path())
        .output()
        .expect("it starts");
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{err}");
    assert!(
        err.contains("sysbench not found") && err.contains("Debian packages"),
        "{err}"
    );
}
