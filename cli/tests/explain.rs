//! `foreread explain` and `foreread tune` as they are called: what they print, and what they refuse in one line.
//!
//! Never: a probe of a real storage, or root.

use crate::common::foreread;
use std::path::PathBuf;
use tempfile::TempDir;

/// A trace by strace of one file that is read in order, and one at random with a hint.
fn strace(dir: &TempDir) -> PathBuf {
    let mut text = String::new();
    let mut at = 1_700_000_001.0;
    let mut line = |call: &str| {
        at += 0.001;
        text.push_str(&format!("7 {at:.6} {call} <0.000500>\n"));
    };
    for n in 0..40_u64 {
        line(&format!(
            "pread64(3</data/seq>, \"\"..., 16384, {}) = 16384",
            n * 16_384
        ));
    }
    line("fadvise64(4</data/random>, 0, 0, POSIX_FADV_RANDOM) = 0");
    for n in 0..40_u64 {
        line(&format!(
            "pread64(4</data/random>, \"\"..., 4096, {}) = 4096",
            (n * 7919 + 17) % 16_000 * 4096
        ));
    }
    let path = dir.path().join("app.strace");
    std::fs::write(&path, text).expect("written");
    path
}

#[test]
fn a_trace_is_explained_on_one_screen() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let path = strace(&dir);
    let path = path.to_str().expect("UTF-8");
    let got = foreread(["explain", path]);
    let text = got.is_done();
    // Lines are broken where they have to be.
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "app.strace on model:rbd",
        "/data/seq",
        "/data/random",
        "hint-random 40",
        "auto at its farthest: may read up to",
        "foreread compare",
    ] {
        assert!(flat.contains(part), "{part} is missing:\n{text}");
    }
    assert!(text.lines().count() <= 42, "{text}");
    let json = foreread(["explain", path, "--json", "-"]);
    let json: serde_json::Value = serde_json::from_str(json.is_done()).expect("JSON");
    assert_eq!(
        (
            json["schema"].as_str(),
            json["files"].as_array().map(Vec::len)
        ),
        (Some("foreread.explain/1"), Some(2))
    );
    let one = foreread(["explain", path, "--file", "*ran*m"]);
    assert!(
        one.is_done().contains("/data/random (") && !one.out.contains("/data/seq ("),
        "{}",
        one.out
    );
}

#[test]
fn a_workload_is_explained_too() {
    let got = foreread(["explain", "strided"]);
    assert!(got.is_done().contains("strided"), "{}", got.out);
}

#[test]
fn what_cannot_be_explained_is_said_in_one_line() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let path = strace(&dir);
    let path = path.to_str().expect("UTF-8");
    let refused = |args: &[&str], part: &str| {
        let got = foreread(args);
        assert!(got.is_refused().contains(part), "{args:?}: {}", got.err);
    };
    refused(&["explain", path, "--on", path], "the trace needs ");
    refused(
        &[
            "explain",
            path,
            "--on",
            "nbd+unix:///x?socket=no/such/socket",
        ],
        "nbd",
    );
    refused(&["explain", path, "--on", "model:rdb"], "nearest: rbd");
    refused(
        &["explain", path, "--policy", "linux-6"],
        "nearest: linux-6.18",
    );
    refused(
        &["explain", path, "--policy", "linux-6.18,rbd-plain"],
        "one policy is explained at a time",
    );
    refused(
        &["explain", path, "--file", "nowhere"],
        "no file of the trace has such a name",
    );
    refused(&["explain", "gone.frt"], "no such trace");
    refused(
        &["explain", "random", "--records", "5"],
        "only a trace can be replayed that way",
    );
    refused(&["tune", path], "none of its files is on this machine");
    refused(&["tune", "random"], "a workload has no files");
    refused(&["tune"], "see 'foreread tune -h'");
    refused(&["tune", path, "--on", "nbd://host/x"], "cannot be probed");
}

#[test]
fn a_trace_is_tuned_on_a_model() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let path = strace(&dir);
    let path = path.to_str().expect("UTF-8");
    let got = foreread(["tune", path, "--on", "model:rbd", "--runs", "3"]);
    let text = got
        .is_done()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    let said = text.starts_with("Nothing to change") || text.contains(" times faster)");
    assert!(text.contains("app.strace on model:rbd") && said, "{text}");
    let json = foreread([
        "tune",
        path,
        "--on",
        "model:rbd",
        "--runs",
        "2",
        "--json",
        "-",
    ]);
    let json: serde_json::Value = serde_json::from_str(json.is_done()).expect("JSON");
    assert_eq!(
        (json["schema"].as_str(), json["probe"].is_null()),
        (Some("foreread.tune/1"), true)
    );
}
