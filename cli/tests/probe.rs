//! End-to-end tests of `foreread probe`: a file, a model, a model file, and refused input.

use crate::common::{BINARY, LoopDisk, foreread, needs, run, text};
use serde_json::Value;
use std::path::Path;

fn json(words: &str) -> Value {
    let got = run(words);
    got.is_done();
    got.json()
}

/// Stdout may be closed before its end, as by `| head -1`.
#[test]
fn a_model_is_written_before_stdout() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let path = dir.path().join("stick.toml");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    let mut command = std::process::Command::new(BINARY);
    command.args(["probe", "model:usb-2g", "-o", text(&path)]);
    command.stdout(full.expect("a device"));
    let status = command.stderr(std::process::Stdio::null()).status();
    assert_eq!(status.expect("it starts").code(), Some(2), "stdout is full");
    assert!(path.exists());
}

/// A file of some MiB, for a second: the shape of what comes out, not its figures.
#[test]
fn a_file_is_probed() {
    // Beside the binary: the directory for temporary files is often in memory.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory");
    let path = dir.path().join("disk.img");
    let bytes = foreread_testing::pattern(0, 16 << 20, 0);
    std::fs::write(&path, &bytes).expect("written");
    let model = dir.path().join("disk.toml");
    let is_deep = |json: &Value| {
        let points = json["points"].as_array().expect("an array");
        let has = |key: &str, value: u64| points.iter().any(|point| point[key] == value);
        has("depth", 64) && has("request_bytes", 8 << 20)
    };
    let (file, toml) = (text(&path), text(&model));
    let fixed = format!("probe {file} -o {toml} --force --json - --seconds");
    let ask = |seconds| run(format!("{fixed} {seconds}"));
    let mut got = ask(1);
    // One second is too short for every point while the machine is busy with something else.
    let is_cut = got.code == Some(2) && got.err.contains("larger --time");
    if is_cut || got.code == Some(0) && !is_deep(&got.json()) {
        got = ask(30);
    }
    if got.code == Some(2) && got.err.contains("O_DIRECT") {
        return println!("skipped: needs direct I/O below {}", dir.path().display());
    }
    got.is_done();
    let probe = got.json();
    assert_eq!(probe["schema"], "foreread.probe/1");
    assert_eq!(probe["direct"], true);
    assert!(is_deep(&probe), "{probe}");
    let points = probe["points"].as_array().expect("an array");
    let is_some = |of: &Value| of["median"].as_f64().is_some_and(|number| number > 0.0);
    assert!(points.iter().all(|p| is_some(&p["throughput_mb_s"])));
    assert!(is_some(&probe["host_ns_per_kib"]));
    let is_kept = std::fs::read(&path).expect("still there") == bytes;
    assert!(is_kept, "it was only read");
    let compared = json(&format!(
        "compare random --on model:{toml} --runs 2 --json -"
    ));
    assert_eq!(compared["notes"], serde_json::json!([]));
    let verify = |seconds| {
        let time = format!("--time {seconds}s --json -");
        json(&format!("probe {file} --verify {toml} {time}"))
    };
    let is_whole = |json: &Value| json["rows"].as_array().is_some_and(|rows| rows.len() == 6);
    // The same is true of two seconds.
    let quick = Some(verify(2)).filter(is_whole);
    let checked = quick.unwrap_or_else(|| verify(60));
    assert_eq!(checked["schema"], "foreread.verify/1");
    let rows = checked["rows"].as_array().expect("rows");
    let is_ratio = |row: &serde_json::Value| row["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0);
    assert!(rows.len() == 6 && rows.iter().all(is_ratio), "{rows:?}");
}

/// README's own example: a block device by its node in /dev.
#[test]
fn a_block_device_is_probed() {
    let file = tempfile::NamedTempFile::new().expect("a scratch file");
    file.as_file().set_len(16 << 20).expect("room");
    needs!(let device = LoopDisk::over(file.path(), &[]));
    let probe = json(&format!("probe {} --seconds 1 --json -", device.node));
    assert_eq!(probe["direct"], true);
    assert_eq!(probe["capacity_bytes"], 16 << 20);
}

/// In memory there is no direct I/O: nothing is measured unawares.
#[test]
fn the_page_cache_is_not_measured_unawares() {
    let path = Path::new("/dev/shm");
    let Ok(file) = tempfile::Builder::new().tempfile_in(path) else {
        return println!("skipped: needs a tmpfs at {}", path.display());
    };
    std::fs::write(file.path(), vec![1; 8 << 20]).expect("written");
    let got = foreread(["probe", text(file.path()), "--seconds", "1"]);
    if got.code == Some(0) {
        return println!("skipped: needs a tmpfs that refuses direct I/O");
    }
    got.refuses("reads would measure the page cache");
}
