//! Tests of `plan`, `replay` and `warm`: plans from headers and from recorded runs, reading them into the page cache,
//! and refused input.

use crate::common::{Got, foreread};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A folder whose files have pages that can be dropped.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

/// A safetensors file with the tensors `a` and `b` of 3 MiB each.
fn model(at: &Path) -> PathBuf {
    let len = 3_u64 << 20;
    let tensor = |n: u64| {
        format!(
            r#"{{"dtype":"U8","shape":[{len}],"data_offsets":[{},{}]}}"#,
            n * len,
            (n + 1) * len
        )
    };
    let header = format!(r#"{{"a":{},"b":{}}}"#, tensor(0), tensor(1));
    let mut bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
    bytes.resize(bytes.len() + 2 * len as usize, 7);
    let path = at.join("model.safetensors");
    fs::write(&path, bytes).expect("written");
    path
}

/// The same, and a plan of its headers.
fn planned(at: &Path) -> (PathBuf, PathBuf) {
    let (model, plan) = (model(at), at.join("m.plan"));
    let words = ["plan", "--format", "safetensors", "-o"];
    foreread(words.into_iter().chain([text(&plan), text(&model)])).is_done();
    (model, plan)
}

/// Drops the pages of a file.
fn cool(path: &Path) {
    for way in [
        ["of=", "oflag=nocache", "conv=notrunc,fdatasync"],
        ["if=", "iflag=nocache", "count=0"],
    ] {
        let name = format!("{}{}", way[0], path.display());
        let done = Command::new("dd")
            .args([&name, way[1], way[2], "count=0", "status=none"])
            .stdin(Stdio::null())
            .status();
        assert!(done.expect("dd runs").success());
    }
}

fn json(got: &Got) -> Value {
    serde_json::from_str(&got.out).unwrap_or_else(|error| panic!("{error}: {}{}", got.out, got.err))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a name")
}

#[test]
fn a_plan_of_headers_is_brought_in_once() {
    let at = folder();
    let (model, plan) = (model(at.path()), at.path().join("m.plan"));
    let got = foreread(
        format!(
            "plan --format safetensors --tensors b -o {} {}",
            plan.display(),
            model.display()
        )
        .split(' '),
    );
    assert!(
        got.is_done()
            .contains("2 ranges of 1 file (3.15 MB), of headers"),
        "{}",
        got.out
    );
    let info = foreread(["trace", "info", text(&plan)]);
    assert!(
        info.is_done().starts_with("plan: 2 ranges of 1 file"),
        "{}",
        info.out
    );
    cool(&model);
    let first = json(&foreread(["replay", text(&plan), "--json", "-"]));
    let number = |json: &Value, key: &str| {
        json[key]
            .as_u64()
            .unwrap_or_else(|| panic!("{key}: {json}"))
    };
    let planned = number(&first, "planned_bytes");
    assert_eq!(
        number(&first, "fetched_bytes") + number(&first, "cached_bytes"),
        planned,
        "{first}"
    );
    assert_eq!(
        (
            first["used_bytes"].clone(),
            first["left_out_bytes"].as_u64()
        ),
        (Value::Null, Some(0))
    );
    let second = json(&foreread(["replay", text(&plan), "--json", "-"]));
    assert_eq!(
        (
            number(&second, "fetched_bytes"),
            number(&second, "cached_bytes")
        ),
        (0, planned),
        "{second}"
    );
    // The rest of the file is cold still, where its pages can be dropped at all.
    let rest = json(&foreread(["warm", text(&model), "--json"]));
    let size = fs::metadata(&model).expect("there").len();
    assert_eq!(
        number(&rest, "fetched_bytes") + number(&rest, "cached_bytes"),
        size
    );
    if number(&first, "fetched_bytes") > 0 {
        assert!(
            number(&first, "fetched_bytes") >= 3 << 20 && number(&rest, "fetched_bytes") >= 2 << 20,
            "{rest}"
        );
    }
}

/// `trace info` says how much of a plan is inodes and folders, which no file of it has.
#[test]
fn info_counts_the_file_systems_own_data() {
    let at = folder();
    let plan = at.path().join("a.plan");
    let lines = [
        "foreread-plan 1\nfrom: a.frt\nruns: 1\nfiles: 2\nranges: 3",
        "f 1048576 - /dev/sdz\nf 8192 1732480000000000000 /a",
        "r 0 0 65536 1000 - - 1 9\nr 1 0 8192 2000 0 900 1 0\nr 0 131072 4096 3000 1 900 1 9\nend\n",
    ];
    fs::write(&plan, lines.join("\n")).expect("written");
    let info = foreread(["trace", "info", text(&plan)]);
    let expected = "2 of the ranges (0.07 MB) are metadata of the file system: inodes and folders";
    assert!(
        info.is_done().lines().any(|line| line == expected),
        "{}",
        info.out
    );
    let info = json(&foreread(["trace", "info", text(&plan), "--json", "-"]));
    assert_eq!(
        (info["bytes"].as_u64(), info["metadata_bytes"].as_u64()),
        (Some(77_824), Some(69_632))
    );
    // A plan without any does not speak of it.
    fs::write(
        &plan,
        lines
            .join("\n")
            .replace("1048576 - /dev/sdz", "1048576 - dev/sdz"),
    )
    .expect("written");
    assert!(
        !foreread(["trace", "info", text(&plan)])
            .is_done()
            .contains("own data")
    );
}

#[test]
fn files_that_changed_are_left_out_and_named() {
    let at = folder();
    let (model, plan) = planned(at.path());
    fs::File::options()
        .append(true)
        .open(&model)
        .expect("opened")
        .set_len(5 << 20)
        .expect("cut");
    let got = foreread(["replay", text(&plan), "--json", "-"]);
    assert!(
        got.err.contains("left out") && got.err.contains("it has changed since the plan was made"),
        "{}",
        got.err
    );
    assert_eq!(json(&got)["fetched_bytes"].as_u64(), Some(0));
    fs::remove_file(&model).expect("removed");
    let got = foreread(["replay", text(&plan), "--json", "-"]);
    assert!(
        got.err.contains("No such file")
            && got.err.contains("every file of the plan was left out: "),
        "{}",
        got.err
    );
    assert_eq!(got.code, Some(1));
    // A pipe where the file was is not waited for.
    assert!(
        Command::new("mkfifo")
            .arg(&model)
            .status()
            .expect("mkfifo runs")
            .success()
    );
    let got = foreread(["replay", text(&plan), "--", "true"]);
    assert!(
        got.err.contains("it is a FIFO, not a regular file") || got.err.is_empty(),
        "{}",
        got.err
    );
    assert_eq!(got.code, Some(0), "that of the command");
}

/// A recorded run as strace writes it: one read of 8 KiB of each file, a millisecond after another.
fn run(at: &Path, name: &str, files: &[&str]) -> PathBuf {
    let mut lines = String::new();
    for (n, file) in files.iter().enumerate() {
        let path = at.join(file).display().to_string();
        let line = format!(
            "7 1700000000.00{n}000 pread64(3<{path}>, \"\"..., 8192, 0) = 8192 <0.000500>\n"
        );
        lines.push_str(&line);
    }
    let trace = at.join(name);
    fs::write(&trace, lines).expect("written");
    trace
}

#[test]
fn runs_become_a_plan() {
    let at = folder();
    for file in ["a", "b", "c"] {
        fs::write(at.path().join(file), vec![1; 20_000]).expect("written");
    }
    let first = run(at.path(), "1.strace", &["a", "b"]);
    let second = run(at.path(), "2.strace", &["a", "c", "gone"]);
    let plan = at.path().join("p.plan");
    let make = |more: &[&str]| {
        let fixed = [
            "plan",
            text(&first),
            text(&second),
            "-o",
            text(&plan),
            "--force",
            "--json",
        ];
        foreread(fixed.iter().chain(more).map(|word| (*word).to_string()))
    };
    let both = make(&[]);
    assert!(
        both.err.contains("left out") && both.err.contains("gone: No such file"),
        "{}",
        both.err
    );
    let figures = |got: &Got| {
        (
            json(got)["files"].as_u64(),
            json(got)["bytes"].as_u64(),
            json(got)["runs"].as_u64(),
        )
    };
    assert_eq!(
        figures(&both),
        (Some(1), Some(8192), Some(2)),
        "what both read"
    );
    assert_eq!(
        figures(&make(&["--at-least", "1/2"])),
        (Some(3), Some(3 * 8192), Some(2))
    );
    assert_eq!(
        figures(&make(&["--at-least", "1/2", "--max", "16K"])).1,
        Some(2 * 8192)
    );
    let got = foreread(["replay", text(&plan), "--json", "-"]);
    assert_eq!(
        (got.code, json(&got)["left_out_bytes"].as_u64()),
        (Some(0), Some(0)),
        "{}",
        got.err
    );
    // A trace is a plan of one run; a text that is neither is named.
    let got = foreread(["replay", text(&first), "--json"]);
    let replayed = json(&got)["planned_bytes"].as_u64();
    assert_eq!(
        (got.code, replayed),
        (Some(0), Some(2 * 8192)),
        "{}",
        got.err
    );
    assert!(got.err.contains("1.strace is a trace: "), "{}", got.err);
    let neither = at.path().join("neither");
    fs::write(&neither, "a line\n").expect("written");
    assert!(
        foreread(["replay", text(&neither)])
            .is_refused()
            .contains("this is not a plan")
    );
    // A file that was written after the recording is not what the run read.
    std::thread::sleep(Duration::from_millis(20));
    fs::write(at.path().join("a"), vec![2; 20_000]).expect("written");
    let got = make(&["--at-least", "1/2"]);
    assert!(
        got.err.contains("a: it was changed after the recording"),
        "{}",
        got.err
    );
}

#[test]
fn the_command_continues_when_replay_is_killed() {
    let at = folder();
    let (_, plan) = planned(at.path());
    let (begun, go, done) = (
        at.path().join("begun"),
        at.path().join("go"),
        at.path().join("done"),
    );
    let script =
        format!("touch {begun:?}; until [ -e {go:?} ]; do sleep 0.01; done; touch {done:?}");
    let mut replay = Command::new(env!("CARGO_BIN_EXE_foreread"));
    let mut replay = replay
        .args(["replay", text(&plan), "--", "sh", "-c", &script])
        .spawn()
        .expect("it starts");
    let appears = |path: &Path| {
        let since = Instant::now();
        while !path.exists() {
            assert!(
                since.elapsed() < Duration::from_secs(60),
                "{} does not appear",
                path.display()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    appears(&begun);
    replay.kill().expect("killed");
    replay.wait().expect("ended");
    fs::write(&go, "").expect("written");
    appears(&done);
}

#[test]
fn invalid_plans_are_refused() {
    let at = folder();
    let (_, plan) = planned(at.path());
    let whole = fs::read_to_string(&plan).expect("read");
    for (bytes, expected) in [
        (
            whole.replace("foreread-plan 1", "foreread-plan 9"),
            "has version 9, and this build reads version 1",
        ),
        (whole.replace("end\n", ""), "the plan is truncated"),
        (
            whole.replace("ranges: 1", "ranges: 99999999999"),
            "or too many",
        ),
        ("x".repeat(100_000), "a line is too long"),
        (String::new(), "the plan is truncated"),
    ] {
        fs::write(&plan, bytes).expect("written");
        // The command is not started.
        let got = foreread(["replay", text(&plan), "--", "sh", "-c", "echo started"]);
        assert!(got.is_refused().contains(expected), "{}", got.err);
    }
}

#[test]
fn folders_are_warmed_within_the_limit() {
    let at = folder();
    fs::create_dir(at.path().join("sub")).expect("made");
    for file in ["a", "sub/b", "sub/c"] {
        let path = at.path().join(file);
        fs::write(&path, vec![1; 1 << 20]).expect("written");
        cool(&path);
    }
    let limited = foreread(["warm", "--max", "1M", text(at.path()), "--json"]);
    let figures = json(&limited);
    if figures["fetched_bytes"].as_u64() == Some(0) {
        eprintln!("skipped: the pages of this file system cannot be dropped");
        return;
    }
    assert_eq!(
        (limited.code, figures["fetched_bytes"].as_u64()),
        (Some(1), Some(1 << 20)),
        "{figures}"
    );
    assert!(
        limited
            .err
            .contains("the memory is full: 2.10 MB were not read"),
        "{}",
        limited.err
    );
    let rest = json(&foreread(["warm", text(at.path()), "--json"]));
    assert_eq!(
        (
            rest["fetched_bytes"].as_u64(),
            rest["cached_bytes"].as_u64()
        ),
        (Some(2 << 20), Some(1 << 20)),
        "{rest}"
    );
    // A machine that is short of memory may drop a page that no program has used: then it is read once more.
    let all_cached = |_| {
        foreread(["warm", text(at.path())]).is_done()
            == "0 bytes read in 0.000 s, 3.15 MB were cached\n"
    };
    assert!((0..5).any(all_cached), "what is there is not read again");
    let got = foreread(["warm", text(&at.path().join("none"))]);
    assert!(
        got.code == Some(1) && got.err.contains("none: No such file"),
        "{}",
        got.err
    );
}

#[test]
fn a_server_follows_a_plan_before_any_client_reads() {
    let at = folder();
    let (model, plan) = planned(at.path());
    let sockets = tempfile::tempdir().expect("a folder");
    let socket = sockets.path().join("s");
    let mut serve = Command::new(env!("CARGO_BIN_EXE_foreread"));
    let serve = serve.args(
        format!(
            "serve {} --unix {} --plan {}",
            model.display(),
            socket.display(),
            plan.display()
        )
        .split(' '),
    );
    let serve = serve
        .args(["--stats-every", "1s"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut serve = serve.spawn().expect("it starts");
    let lines = BufReader::new(serve.stderr.take().expect("piped"))
        .lines()
        .map_while(Result::ok);
    let mut seen = Vec::new();
    let followed = lines.take(60).any(|line| {
        let all = line.contains("reads 0,") && line.contains("from the source 6.29 MB");
        seen.push(line);
        all
    });
    serve.kill().expect("killed");
    serve.wait().expect("ended");
    assert!(followed, "{seen:#?}");
    let other = at.path().join("other");
    fs::write(&other, vec![1; 9000]).expect("written");
    let got = foreread(
        format!(
            "serve {} --unix {} --plan {}",
            other.display(),
            socket.display(),
            plan.display()
        )
        .split(' '),
    );
    assert!(
        got.is_refused()
            .contains("the plan does not fit the source"),
        "{}",
        got.err
    );
}
