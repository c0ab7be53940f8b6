//! End-to-end tests of `bench policies` on a few cells: outputs, files of runs, traces, signals, refused input.

use crate::common::foreread;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Three cells, 78 runs of 64 reads.
const SMALL: [&str; 4] = ["bench", "policies", "--only", "fsspec-random"];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    SMALL.iter().chain(more).copied().collect()
}

fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path)
        .unwrap_or_default()
        .lines()
        .map(String::from)
        .collect()
}

#[test]
fn text_and_json_are_of_the_same_runs() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    let (json, runs) = (path("all.json"), path("runs.jsonl"));
    let files = ["--json", &json, "--resume", &runs, "--jobs", "2"];
    let got = foreread(with(&files));
    assert!(
        got.is_done()
            .starts_with("auto in the design fractional: 3 cells\n\nLost cells of auto: "),
        "{}",
        got.out
    );
    let written: Value =
        serde_json::from_str(&std::fs::read_to_string(&json).expect("written")).expect("JSON");
    assert_eq!(written["cells"].as_array().map(Vec::len), Some(3 * 9));
    let kept = lines(Path::new(&runs));
    assert_eq!(kept.len(), 78);
    // The second time every run is in the file.
    let again = foreread(with(&["--resume", &runs, "--json", "-"]));
    assert_eq!(
        serde_json::from_str::<Value>(again.is_done()).expect("JSON"),
        written
    );
    assert_eq!(lines(Path::new(&runs)), kept);
}

/// SIGTERM during the cells of a device: runs that were over are kept, and the command says how to continue.
#[test]
fn a_signal_keeps_what_was_measured() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let runs = dir.path().join("runs.jsonl");
    let child = Command::new(env!("CARGO_BIN_EXE_foreread-check"))
        .args([
            "bench", "policies", "--cells", "baseline", "--only", "@nvme", "--jobs", "1",
            "--resume",
        ])
        .arg(&runs)
        .env("XDG_CONFIG_HOME", "/dev/null")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    for _ in 0..3000 {
        if lines(&runs).len() > 5 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let sent = Command::new("kill")
        .args(["-TERM", &child.id().to_string()])
        .status();
    assert!(sent.is_ok_and(|status| status.success()));
    let output = child.wait_with_output().expect("it ends");
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(output.status.code(), Some(128 + 15), "{out}{err}");
    assert!(out.contains("Note: Stopped after"), "{out}");
    assert!(
        err.starts_with("foreread: stopped after ")
            && err.contains("the same command continues from"),
        "{err}"
    );
    let kept = lines(&runs);
    let is_json = |line: &String| serde_json::from_str::<Value>(line).is_ok();
    assert!(kept.len() > 5 && kept.iter().all(is_json), "{kept:?}");
    let after = format!("after {} of ", kept.len());
    assert!(err.contains(&after), "{err}");
}

/// The other recording is no trace at all: it is not loaded where it is not chosen.
#[test]
fn only_the_chosen_recordings_are_loaded() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let at = |name: &str| dir.path().join(name);
    let rows = (0..4).map(|n| format!("{},4096,{}\n", n * 4096, n * 1000));
    let reads = format!("offset,length,start_ns\n{}", rows.collect::<String>());
    std::fs::write(at("good.csv"), reads).expect("written");
    std::fs::write(at("odd.csv"), "no trace").expect("written");
    std::fs::write(at("index.csv"), "kind,trace\na,good.csv\nb,odd.csv\n").expect("written");
    let folder = dir.path().to_string_lossy().into_owned();
    let bench = |more: &[&str]| {
        let args = [
            "bench",
            "policies",
            "--cells",
            "validation",
            "--recordings",
            &folder,
            "--policy",
            "none",
        ];
        foreread(args.iter().chain(more).copied().collect::<Vec<_>>())
    };
    assert!(bench(&[]).is_refused().contains("odd.csv"));
    let got = bench(&["--only", "good.csv"]);
    assert!(got.is_done().contains("Note: 2 recordings,"), "{}", got.out);
    let refused = bench(&["--only", "gone.csv"]);
    assert!(refused.is_refused().contains("no such cell: gone.csv"));
}
