//! Tests of `plan`, `replay` and `warm`: plans from headers and from recorded runs, and reading them into the page cache.

use crate::common::{Got, folder, foreread, run, says, text, wait_until};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A safetensors file with the tensors `a` and `b` of 3 MiB each.
fn model(at: &Path) -> PathBuf {
    let len = 3_u64 << 20;
    let tensor = |n: u64| {
        let offsets = [n * len, (n + 1) * len];
        format!(r#"{{"dtype":"U8","shape":[{len}],"data_offsets":{offsets:?}}}"#)
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
    let words = format!(
        "plan --format safetensors -o {} {}",
        text(&plan),
        text(&model)
    );
    run(words).is_done();
    (model, plan)
}

/// Drops the pages of a file.
fn cool(path: &Path) {
    for way in [
        "of= oflag=nocache conv=notrunc,fdatasync",
        "if= iflag=nocache count=0",
    ] {
        let way = way.replacen('=', &format!("={}", path.display()), 1);
        let words = way.split(' ').chain(["count=0", "status=none"]);
        let done = Command::new("dd").args(words).stdin(Stdio::null()).status();
        assert!(done.expect("dd runs").success());
    }
}

fn replay(plan: &Path) -> Got {
    foreread(["replay", text(plan), "--json", "-"])
}

fn number(json: &Value, key: &str) -> u64 {
    json[key]
        .as_u64()
        .unwrap_or_else(|| panic!("{key}: {json}"))
}

#[test]
fn a_plan_of_headers_is_brought_in_once() {
    let at = folder();
    let (model, plan) = (model(at.path()), at.path().join("m.plan"));
    let words = "plan --format safetensors --tensors b -o";
    let got = run(format!("{words} {} {}", text(&plan), text(&model)));
    says(got.is_done(), &["2 ranges of 1 file (3.15 MB), of headers"]);
    cool(&model);
    let first = replay(&plan).json();
    let planned = number(&first, "planned_bytes");
    let fetched = number(&first, "fetched_bytes");
    assert_eq!(fetched + number(&first, "cached_bytes"), planned, "{first}");
    let others = (
        first["used_bytes"].clone(),
        first["left_out_bytes"].as_u64(),
    );
    assert_eq!(others, (Value::Null, Some(0)));
    let second = replay(&plan).json();
    let both = ["fetched_bytes", "cached_bytes"].map(|key| number(&second, key));
    assert_eq!(both, [0, planned], "{second}");
    // The rest of the file is cold still, where its pages can be dropped at all.
    let rest = foreread(["warm", text(&model), "--json"]).json();
    let size = fs::metadata(&model).expect("there").len();
    assert_eq!(
        number(&rest, "fetched_bytes") + number(&rest, "cached_bytes"),
        size
    );
    let is_cold = fetched >= 3 << 20 && number(&rest, "fetched_bytes") >= 2 << 20;
    assert!(fetched == 0 || is_cold, "{rest}");
}

#[test]
fn files_that_changed_are_left_out_and_named() {
    let at = folder();
    let (model, plan) = planned(at.path());
    let file = fs::File::options().append(true).open(&model);
    file.expect("opened").set_len(5 << 20).expect("cut");
    let got = replay(&plan);
    says(
        &got.err,
        &["left out", "it has changed since the plan was made"],
    );
    assert_eq!(number(&got.json(), "fetched_bytes"), 0);
    fs::remove_file(&model).expect("removed");
    let got = replay(&plan);
    says(
        &got.err,
        &["No such file", "every file of the plan was left out: "],
    );
    assert_eq!(got.code, Some(1));
    // A pipe where the file was is not waited for.
    let made = Command::new("mkfifo").arg(&model).status();
    assert!(made.expect("mkfifo runs").success());
    let got = foreread(["replay", text(&plan), "--", "true"]);
    let is_said = got.err.contains("it is a FIFO, not a regular file");
    assert!(is_said || got.err.is_empty(), "{}", got.err);
    assert_eq!(got.code, Some(0), "that of the command");
}

/// A recorded run as strace writes it: one read of 8 KiB of each file, a millisecond after another.
fn recorded(at: &Path, name: &str, files: &[&str]) -> PathBuf {
    let line = |(n, file)| {
        let path = at.join(file).display().to_string();
        format!("7 1700000000.00{n}000 pread64(3<{path}>, \"\"..., 8192, 0) = 8192 <0.000500>\n")
    };
    let trace = at.join(name);
    let lines: String = files.iter().enumerate().map(line).collect();
    fs::write(&trace, lines).expect("written");
    trace
}

#[test]
fn runs_become_a_plan() {
    let at = folder();
    for file in ["a", "b", "c"] {
        fs::write(at.path().join(file), vec![1; 20_000]).expect("written");
    }
    let first = recorded(at.path(), "1.strace", &["a", "b"]);
    let second = recorded(at.path(), "2.strace", &["a", "c", "gone"]);
    let plan = at.path().join("p.plan");
    let [first, second] = [text(&first), text(&second)];
    let make = |more| {
        run(format!(
            "plan {first} {second} -o {} --force --json {more}",
            text(&plan)
        ))
    };
    says(&make("").err, &["left out", "gone: No such file"]);
    for (more, files, bytes) in [
        ("", 1, 8192),
        ("--at-least 1/2", 3, 3 * 8192),
        ("--at-least 1/2 --max 16K", 2, 2 * 8192),
    ] {
        let json = make(more).json();
        let got = ["files", "bytes", "runs"].map(|key| number(&json, key));
        assert_eq!(got, [files, bytes, 2], "{more}");
    }
    let got = replay(&plan);
    assert_eq!(
        (got.code, number(&got.json(), "left_out_bytes")),
        (Some(0), 0),
        "{}",
        got.err
    );
    // A trace is a plan of one run.
    let got = replay(Path::new(first));
    assert_eq!(
        (got.code, number(&got.json(), "planned_bytes")),
        (Some(0), 2 * 8192),
        "{}",
        got.err
    );
    says(&got.err, &["1.strace is a trace: "]);
    // A file that was written after the recording is not what the run read.
    std::thread::sleep(Duration::from_millis(20));
    fs::write(at.path().join("a"), vec![2; 20_000]).expect("written");
    says(
        &make("--at-least 1/2").err,
        &["a: it was changed after the recording"],
    );
}

#[test]
fn the_command_continues_when_replay_is_killed() {
    let at = folder();
    let (_, plan) = planned(at.path());
    let [begun, go, done] = ["begun", "go", "done"].map(|name| at.path().join(name));
    let script =
        format!("touch {begun:?}; until [ -e {go:?} ]; do sleep 0.01; done; touch {done:?}");
    let mut replay = Command::new(env!("CARGO_BIN_EXE_foreread"));
    let replay = replay.args(["replay", text(&plan), "--", "sh", "-c", &script]);
    let mut replay = replay.spawn().expect("it starts");
    wait_until("it begins", || begun.exists());
    replay.kill().and_then(|()| replay.wait()).expect("killed");
    fs::write(&go, "").expect("written");
    wait_until("it ends", || done.exists());
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
    let warm = |more| run(format!("warm {} {more}", text(at.path())));
    let limited = warm("--max 1M --json");
    let fetched = number(&limited.json(), "fetched_bytes");
    if fetched == 0 {
        println!("skipped: needs a file system whose pages can be dropped");
        return;
    }
    assert_eq!(
        (limited.code, fetched),
        (Some(1), 1 << 20),
        "{}",
        limited.out
    );
    says(&limited.err, &["the memory is full: 2.10 MB were not read"]);
    let rest = warm("--json").json();
    let both = ["fetched_bytes", "cached_bytes"].map(|key| number(&rest, key));
    // A machine that is short of memory may drop a page that no program has used: then it is read once more.
    assert!(both[0] >= 2 << 20 && both[0] + both[1] == 3 << 20, "{rest}");
    let cached = "0 bytes read in 0.000 s, 3.15 MB were cached\n";
    assert!(
        (0..5).any(|_| warm("").is_done() == cached),
        "what is there is not read again"
    );
    let got = run(format!("warm {}/none", text(at.path())));
    says(&got.err, &["none: No such file"]);
    assert_eq!(got.code, Some(1));
}

#[test]
fn a_server_follows_a_plan_before_any_client_reads() {
    let at = folder();
    let (model, plan) = planned(at.path());
    let sockets = tempfile::tempdir().expect("a folder");
    let more = format!("--unix {}/s --plan {}", text(sockets.path()), text(&plan));
    let mut serve = Command::new(env!("CARGO_BIN_EXE_foreread"));
    let line = format!("serve {} {more} --stats-every 1s", text(&model));
    let serve = serve.args(line.split(' ')).stdout(Stdio::null());
    let mut serve = serve.stderr(Stdio::piped()).spawn().expect("it starts");
    let lines = BufReader::new(serve.stderr.take().expect("piped")).lines();
    let mut seen = Vec::new();
    let followed = lines.map_while(Result::ok).take(60).any(|line| {
        let all = line.contains("reads 0,") && line.contains("from the source 6.29 MB");
        seen.push(line);
        all
    });
    serve.kill().and_then(|()| serve.wait()).expect("killed");
    assert!(followed, "{seen:#?}");
    let other = at.path().join("other");
    fs::write(&other, vec![1; 9000]).expect("written");
    let got = run(format!("serve {} {more}", text(&other)));
    got.refuses("the plan does not fit the source");
}
