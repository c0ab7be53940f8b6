//! End-to-end tests of `foreread probe`: a file, a model, a model file, and refused input.

use crate::common::{foreread, says};
use std::path::Path;

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn json(out: &str) -> serde_json::Value {
    serde_json::from_str(out).expect("JSON")
}

/// Stdout may be closed before its end, as by `| head -1`.
#[test]
fn a_model_is_written_before_stdout() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let path = dir.path().join("stick.toml");
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .expect("a device");
    let status = std::process::Command::new(env!("CARGO_BIN_EXE_foreread"))
        .args(["probe", "model:usb-2g", "-o", text(&path)])
        .stdout(full)
        .stderr(std::process::Stdio::null())
        .status()
        .expect("it starts");
    assert_eq!(status.code(), Some(2), "stdout is full");
    assert!(path.exists());
}

#[test]
fn a_model_is_probed_written_and_simulated() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let path = dir.path().join("stick.toml");
    let got = foreread(["probe", "model:usb-2g", "-o", text(&path)]);
    let out = got.is_done();
    assert!(out.lines().all(|l| l.chars().count() <= 80), "{out}");
    for part in [
        "A readahead of 256K is enough",
        "for each request, 1 request",
        "% in the median",
    ] {
        assert!(out.contains(part), "{part}\n{out}");
    }
    let times = |model: &str| {
        let got = foreread(
            format!("compare sequential --on {model} --size 8M --runs 2 --json -").split(' '),
        );
        json(got.is_done())["rows"][0]["time_s"]["mean"]
            .as_f64()
            .expect("a time")
    };
    let (real, again) = (
        times("model:usb-2g"),
        times(&format!("model:{}", path.display())),
    );
    assert!((again / real - 1.0).abs() < 0.1, "{again} {real}");
}

#[test]
fn a_preset_is_printed_as_a_file_that_is_read_back() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let path = dir.path().join("rbd.toml");
    std::fs::write(
        &path,
        foreread(["list", "models", "--toml", "rbd"]).is_done(),
    )
    .expect("written");
    let on = format!("model:{}", path.display());
    let run = |on: &str| {
        json(
            foreread([
                "compare", "boot-ide", "--on", on, "--runs", "2", "--json", "-",
            ])
            .is_done(),
        )
    };
    assert_eq!(
        run(&on)["rows"][1]["time_s"],
        run("model:rbd")["rows"][1]["time_s"]
    );
    assert!(
        foreread(["list", "models", "--toml", "rdb"])
            .is_refused()
            .contains("nearest: rbd")
    );
    std::fs::write(&path, "schema = 1\n").expect("written");
    for args in [
        ["compare", "--on", on.as_str()],
        ["probe", on.as_str(), "--seconds=1"],
    ] {
        let got = foreread(args);
        says(got.is_refused(), &["bad model file", "line 1"]);
    }
}

/// A file of some MiB, for a second: the shape of what comes out, not its figures.
#[test]
fn a_file_is_probed() {
    // Beside the binary: the directory for temporary files is often in memory.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory");
    let path = dir.path().join("disk.img");
    let bytes: Vec<u8> = (0..4_u32 << 20)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    std::fs::write(&path, &bytes).expect("written");
    let model = dir.path().join("disk.toml");
    let is_deep = |points: &[serde_json::Value]| {
        points.iter().any(|p| p["depth"] == 64)
            && points.iter().any(|p| p["request_bytes"] == 8 << 20)
    };
    let ask = |seconds| {
        foreread(
            format!(
                "probe {} --seconds {seconds} -o {} --force --json -",
                path.display(),
                model.display()
            )
            .split(' '),
        )
    };
    let mut got = ask("1");
    // One second is too short for every point while the disk is busy with something else.
    if got.code == Some(0)
        && !json(&got.out)["points"]
            .as_array()
            .is_some_and(|points| is_deep(points))
    {
        got = ask("30");
    }
    if got.code == Some(2) && got.err.contains("O_DIRECT") {
        assert!(got.err.contains("--buffered"), "{}", got.err);
        println!("skipped: needs direct I/O below {}", dir.path().display());
        return;
    }
    let probe = json(got.is_done());
    assert_eq!(
        (&probe["schema"], &probe["direct"]),
        (&"foreread.probe/1".into(), &true.into())
    );
    let points = probe["points"].as_array().expect("an array");
    assert!(is_deep(points), "{points:?}");
    assert!(points.iter().all(|p| {
        p["throughput_mb_s"]["median"]
            .as_f64()
            .is_some_and(|v| v > 0.0)
    }));
    assert!(
        probe["host_ns_per_kib"]["median"]
            .as_f64()
            .is_some_and(|v| v > 0.0)
    );
    assert_eq!(
        std::fs::read(&path).expect("still there"),
        bytes,
        "it was only read"
    );
    let on = format!("model:{}", model.display());
    let run = foreread([
        "compare", "random", "--on", &on, "--runs", "2", "--json", "-",
    ]);
    assert_eq!(json(run.is_done())["notes"], serde_json::json!([]));
    let ask = [
        "probe",
        text(&path),
        "--verify",
        text(&model),
        "--time",
        "2s",
        "--json",
        "-",
    ];
    let checked = json(foreread(ask).is_done());
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
    let made = std::process::Command::new("losetup")
        .args(["--find", "--show"])
        .arg(file.path())
        .output();
    let Some(made) = made.ok().filter(|made| made.status.success()) else {
        println!("skipped: needs root, loop devices and losetup (Debian package mount)");
        return;
    };
    let device = String::from_utf8(made.stdout).expect("a path");
    let got = foreread(["probe", device.trim(), "--seconds", "1", "--json", "-"]);
    let given_back = std::process::Command::new("losetup")
        .args(["--detach", device.trim()])
        .status();
    let probe = json(got.is_done());
    assert_eq!(
        (&probe["direct"], &probe["capacity_bytes"]),
        (&true.into(), &(16 << 20).into())
    );
    assert!(
        given_back.is_ok_and(|status| status.success()),
        "losetup --detach"
    );
}

/// In memory there is no direct I/O: nothing is measured unawares.
#[test]
fn the_page_cache_is_not_measured_unawares() {
    let path = Path::new("/dev/shm");
    let Ok(file) = tempfile::Builder::new().tempfile_in(path) else {
        println!("skipped: needs a tmpfs at {}", path.display());
        return;
    };
    std::fs::write(file.path(), vec![1; 8 << 20]).expect("written");
    let got = foreread(["probe", text(file.path()), "--seconds", "1"]);
    if got.code == Some(0) {
        println!(
            "skipped: needs a file system that refuses direct I/O at {}",
            path.display()
        );
        return;
    }
    got.refuses("reads would measure the page cache");
    let got = foreread(["probe", text(file.path()), "--seconds", "1", "--buffered"]);
    let out: String = got
        .is_done()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    says(
        &out,
        &["Note: Direct I/O is refused here, so the reads went through the page cache"],
    );
}
