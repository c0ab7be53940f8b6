//! Tests of `plan`, `replay` and `warm`: plans from headers and from recorded runs, and reading them into the page cache.

use crate::common::{
    BINARY, Got, Server, folder, foreread, forget, has, needs, run, safetensors, says, text,
};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

fn model(at: &Path) -> PathBuf {
    let path = at.join("model.safetensors");
    fs::write(&path, safetensors(3 << 20)).expect("written");
    path
}

/// A model, and a plan of its headers.
fn planned(at: &Path) -> (PathBuf, PathBuf) {
    let (model, plan) = (model(at), at.join("m.plan"));
    let fixed = "plan --format safetensors -o";
    run(format!("{fixed} {} {}", text(&plan), text(&model))).is_done();
    (model, plan)
}

fn replay(plan: &Path) -> Got {
    foreread(["replay", text(plan), "--json", "-"])
}

#[track_caller]
fn number(json: &Value, key: &str) -> u64 {
    let number = json[key].as_u64();
    number.unwrap_or_else(|| panic!("{key}: {json}"))
}

/// What was fetched, and what was cached.
#[track_caller]
fn brought_in(json: &Value) -> [u64; 2] {
    ["fetched_bytes", "cached_bytes"].map(|key| number(json, key))
}

#[test]
fn a_plan_of_headers_is_brought_in_once() {
    needs!(has(&["python3", "--version"]));
    let at = folder();
    let (model, plan) = (model(at.path()), at.path().join("m.plan"));
    let words = "plan --format safetensors --tensors b -o";
    let got = run(format!("{words} {} {}", text(&plan), text(&model)));
    says(
        got.is_done(),
        &["2 ranges of 1 file (3.15 MB), from headers"],
    );
    forget(&model);
    let first = replay(&plan).json();
    let planned = number(&first, "planned_bytes");
    let [fetched, cached] = brought_in(&first);
    assert_eq!(fetched + cached, planned, "{first}");
    assert_eq!(first["used_bytes"], Value::Null);
    assert_eq!(number(&first, "left_out_bytes"), 0);
    let second = replay(&plan).json();
    assert_eq!(brought_in(&second), [0, planned], "{second}");
    // The rest of the file is cold still, where its pages can be dropped at all.
    let rest = foreread(["warm", text(&model), "--json"]).json();
    let size = fs::metadata(&model).expect("there").len();
    let both = brought_in(&rest);
    assert_eq!(both[0] + both[1], size);
    let is_cold = fetched >= 3 << 20 && both[0] >= 2 << 20;
    assert!(fetched == 0 || is_cold, "{rest}");
}

#[test]
fn files_that_changed_are_left_out_and_named() {
    let at = folder();
    let (model, plan) = planned(at.path());
    let file = fs::File::options().append(true).open(&model);
    file.expect("opened").set_len(5 << 20).expect("cut");
    let got = replay(&plan);
    let changed = "it has changed since the plan was made";
    says(&got.err, &["left out", changed]);
    assert_eq!(number(&got.json(), "fetched_bytes"), 0);
    fs::remove_file(&model).expect("removed");
    let got = replay(&plan);
    let all = "every file of the plan was left out: ";
    says(&got.err, &["No such file", all]);
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
    let fixed = format!("plan {first} {second} -o {} --force --json", text(&plan));
    let make = |more| run(format!("{fixed} {more}"));
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
    says(got.assert_code(0), &[]);
    assert_eq!(number(&got.json(), "left_out_bytes"), 0);
    // A trace is a plan of one run.
    let got = replay(Path::new(first));
    says(got.assert_code(0), &["1.strace is a trace: "]);
    assert_eq!(number(&got.json(), "planned_bytes"), 2 * 8192);
    // A file that was written after the recording is not what the run read.
    std::thread::sleep(Duration::from_millis(20));
    fs::write(at.path().join("a"), vec![2; 20_000]).expect("written");
    let changed = "a: it was changed after the recording";
    says(&make("--at-least 1/2").err, &[changed]);
}

#[test]
fn folders_are_warmed_within_the_limit() {
    needs!(has(&["python3", "--version"]));
    let at = folder();
    fs::create_dir(at.path().join("sub")).expect("made");
    for file in ["a", "sub/b", "sub/c"] {
        let path = at.path().join(file);
        fs::write(&path, vec![1; 1 << 20]).expect("written");
        forget(&path);
    }
    let warm = |more| run(format!("warm {} {more}", text(at.path())));
    let limited = warm("--max 1M --json");
    let fetched = number(&limited.json(), "fetched_bytes");
    if fetched == 0 {
        return println!("skipped: needs a file system whose pages can be dropped");
    }
    assert_eq!(fetched, 1 << 20, "{}", limited.out);
    let full = "--max 1M is reached: 2.10 MB were not read";
    says(limited.assert_code(1), &[full]);
    let both = brought_in(&warm("--json").json());
    // A machine that is short of memory may drop a page that no program has used: then it is read once more.
    assert!(both[0] >= 2 << 20, "{both:?}");
    assert_eq!(both[0] + both[1], 3 << 20);
    let cached = "0 B read in 0.000 s, 3.15 MB were cached\n";
    let is_cached = (0..5).any(|_| warm("").is_done() == cached);
    assert!(is_cached, "what is there is not read again");
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
    let line = format!("serve {} {more} --stats-every 1s", text(&model));
    let mut serve = Server::start(Command::new(BINARY).args(line.split(' ')));
    serve.hears(&["reads 0,", "from the source 6.29 MB"]);
    drop(serve);
    let other = at.path().join("other");
    fs::write(&other, vec![1; 9000]).expect("written");
    let got = run(format!("serve {} {more}", text(&other)));
    got.refuses("the plan does not fit the source");
}
