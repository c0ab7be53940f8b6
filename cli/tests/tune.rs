//! End-to-end tests of `foreread tune -- CMD`: a program is recorded, its reads are replayed on a model or on the
//! measured storage, and the advice is printed. The trace is kept, and nothing else.
//!
//! Needs root and tracefs, otherwise the tests are skipped; the slow disk needs nbdkit, nbdfuse and a loop device. The
//! lab's `tune.rs` tests the advice for a given trace. No test expects a measured value, because it depends on the
//! machine.

pub(crate) mod slow_disk;

use crate::common::Got;
use crate::common::process::{children, polls, signal, wait_until};
use slow_disk::SlowDisk;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Stdio};

const INSTANCES: &str = "/sys/kernel/tracing/instances";

/// A folder on a disk for the data, and one for what is temporary.
struct Bench {
    data: tempfile::TempDir,
    scratch: tempfile::TempDir,
    /// Tracing instances before.
    instances: BTreeSet<String>,
}

fn instances() -> BTreeSet<String> {
    let all = std::fs::read_dir(INSTANCES).into_iter().flatten().flatten();
    all.map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

impl Bench {
    fn new() -> Bench {
        let folder =
            || tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory");
        let bench = Bench {
            data: folder(),
            scratch: folder(),
            instances: instances(),
        };
        std::fs::write(bench.data.path().join("data"), vec![7; 16 << 20]).expect("room");
        bench
    }

    /// The command with the data's folder around it; nothing where this machine cannot record.
    fn tune(&self, options: &[&str], command: &[&str]) -> Option<Got> {
        let mut tune = assert_cmd::Command::new(env!("CARGO_BIN_EXE_foreread"));
        tune.current_dir(self.data.path())
            .env("TMPDIR", self.scratch.path())
            .env_remove("COLUMNS");
        let output = tune
            .arg("tune")
            .args(options)
            .arg("--")
            .args(command)
            .output()
            .expect("the binary starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let got = Got {
            code: output.status.code(),
            out: text(&output.stdout),
            err: text(&output.stderr),
        };
        if got.code == Some(3) {
            println!("skipped: needs root and tracefs ({})", got.err.trim_end());
            return None;
        }
        Some(got)
    }

    /// The kept trace; but no temporary file, and no tracing instance of a process that is gone.
    #[track_caller]
    fn only_the_traces_are_left(&self, traces: &[&str]) {
        let names = |path: &Path| -> Vec<String> {
            let all = std::fs::read_dir(path).expect("a folder").flatten();
            let mut names: Vec<String> = all
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect();
            names.sort_unstable();
            names
        };
        assert_eq!(names(self.scratch.path()), [""; 0], "temporary files");
        let mut expected = [&["data"], traces].concat();
        expected.sort_unstable();
        assert_eq!(names(self.data.path()), expected, "files beside the data");
        let dead = |name: &&String| {
            let pid = name
                .strip_prefix("foreread-")
                .and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
            pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
        };
        let now = instances();
        let left: Vec<&String> = now.difference(&self.instances).filter(dead).collect();
        assert!(left.is_empty(), "tracing instances: {left:?}");
    }
}

const IN_ORDER: [&str; 5] = ["dd", "if=data", "of=/dev/null", "bs=32k", "status=none"];

/// 16 MiB in order from an object store: a larger window is worth much, and it is said where to set it.
#[test]
fn a_command_is_recorded_and_gets_advice() {
    let bench = Bench::new();
    let options = [
        "--on",
        "model:object-near",
        "--runs",
        "5",
        "--only",
        "data",
        "--why",
    ];
    let Some(got) = bench.tune(&options, &IN_ORDER) else {
        return;
    };
    assert_eq!(got.code, Some(0), "{}", got.err);
    for part in [
        "\nthe kernel:\n    foreread doctor --fix DEVICE --to ",
        "\nthis program, unmodified:\n    foreread run -- dd if=data ",
    ] {
        assert!(got.out.contains(part), "{part} is missing:\n{}", got.out);
    }
    let flat = got.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        got.out.starts_with("Set the kernel's readahead to ") && got.out.contains("Expected: x0."),
        "{}",
        got.out
    );
    assert!(
        got.out.lines().all(|line| line.chars().count() <= 100),
        "{}",
        got.out
    );
    assert!(
        flat.contains("Only part of the trace was used (--only, --records)."),
        "{}",
        got.out
    );
    // The next step for the user is printed.
    assert!(got.err.contains("foreread-dd.frt"), "{}", got.err);
    bench.only_the_traces_are_left(&["foreread-dd.frt"]);
    let again = crate::common::foreread([
        "tune",
        text(&bench.data.path().join("foreread-dd.frt")),
        "--on",
        "model:object-near",
    ]);
    assert_eq!(again.code, Some(0), "{}", again.err);
    // A second one does not take its place.
    bench.tune(&options, &["true"]).expect("as before");
    bench
        .tune(
            &["--on", "model:object-near"],
            &["dd", "if=data", "of=/dev/null", "count=9"],
        )
        .expect("as before");
    let traces = ["foreread-dd-2.frt", "foreread-dd.frt", "foreread-true.frt"];
    bench.only_the_traces_are_left(&traces);
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// The JSON is JSON, whatever the command itself prints; a command that fails has been recorded all the same, and its exit
/// code is ours.
#[test]
fn the_json_is_whole() {
    let bench = Bench::new();
    let options = [
        "--on",
        "model:object-near",
        "--runs",
        "5",
        "--only",
        "data",
        "--json",
        "-",
    ];
    let talks = [
        "sh",
        "-c",
        "echo a line by the command; dd if=data of=/dev/null bs=32k status=none; exit 7",
    ];
    let Some(got) = bench.tune(&options, &talks) else {
        return;
    };
    assert_eq!(got.code, Some(7), "{}", got.err);
    assert!(got.err.contains("a line by the command"), "{}", got.err);
    let json: serde_json::Value =
        serde_json::from_str(&got.out).unwrap_or_else(|e| panic!("{e}: {}", got.out));
    assert_eq!(
        (json["schema"].as_str(), json["storage"].as_str()),
        (Some("foreread.tune/1"), Some("model:object-near"))
    );
    let steps = json["verdict"]["steps"].as_array().expect("a list");
    let of = |means: &str| {
        steps
            .iter()
            .find(|step| step["means"] == means)
            .expect("a step")
    };
    let run = &of("run")["gain"];
    assert_eq!(run["what"], "auto", "{steps:#?}");
    assert!(run["with_range_s"][1].as_f64() < run["today_s"].as_f64());
    assert!(of("setting")["gain"]["ratio"].is_number());
    bench.only_the_traces_are_left(&["foreread-sh.frt"]);
}

/// Nothing named but the command: the storage is found by the trace and measured, as short as that can be. What comes of it
/// is the machine's matter; that it is said, and about this file, is ours.
#[test]
fn the_storage_is_found_and_measured() {
    let bench = Bench::new();
    let Some(got) = bench.tune(&["--time", "1", "--runs", "3", "--only", "data"], &IN_ORDER) else {
        return;
    };
    assert_eq!(got.code, Some(0), "{}", got.err);
    let storage = format!("Storage: file:{}", bench.data.path().join("data").display());
    let flat = got.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains(&storage), "{}", got.out);
    let measured = format!(
        "Measured: {}, the file on this storage from which most bytes were read.",
        bench.data.path().join("data").display()
    );
    assert!(
        flat.contains("Chosen: ") && flat.contains(&measured),
        "{}",
        got.out
    );
    bench.only_the_traces_are_left(&["foreread-dd.frt"]);
}

/// A command that cannot be run leaves nothing either, and the exit code says that there was nothing to tune.
#[test]
fn a_command_that_is_not_there() {
    let bench = Bench::new();
    let Some(got) = bench.tune(&["--on", "model:rbd"], &["/no/such/program"]) else {
        return;
    };
    assert_eq!((got.code, got.out.as_str()), (Some(2), ""), "{}", got.err);
    assert!(
        got.err.contains("cannot run: /no/such/program")
            && got.err.contains("nothing was recorded"),
        "{}",
        got.err
    );
    bench.only_the_traces_are_left(&[]);
}

/// Ctrl-C while the command runs, or while a process is recorded: the trace is kept, and the advice follows.
#[test]
fn after_ctrl_c_the_advice_follows() {
    let bench = Bench::new();
    if bench
        .tune(&["--on", "model:rbd"], &["head", "-c", "1000", "data"])
        .is_none()
    {
        return;
    }
    let begin = |words: &[&str]| {
        // A test that is begun in the background has no SIGINT to give on.
        let mut command = std::process::Command::new("env");
        command.args([
            "--default-signal=INT",
            env!("CARGO_BIN_EXE_foreread"),
            "tune",
            "--on",
            "model:object-near",
        ]);
        command
            .args(["--runs", "5", "--only", "data"])
            .args(words)
            .current_dir(bench.data.path());
        command
            .env("TMPDIR", bench.scratch.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().expect("it starts")
    };
    let ended = |child: Child| {
        signal(child.id(), "-INT");
        let output = child.wait_with_output().expect("it ends");
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(
            out.starts_with("Set the kernel's ") && out.contains("\nthis program, unmodified:\n"),
            "{out}{err}"
        );
        output.status.code()
    };
    let all_read = "dd if=data of=/dev/null bs=32k status=none; : > ready; exec sleep 100";
    let ready = bench.data.path().join("ready");
    let tune = begin(&["--", "sh", "-c", all_read]);
    wait_until("it has read", || ready.exists());
    assert_eq!(
        ended(tune),
        Some(130),
        "as the command, which SIGINT has ended"
    );
    std::fs::remove_file(&ready).expect("it is there");

    // A process that runs already reads when the recorder has begun, and goes on when it has ended.
    let mut reader = std::process::Command::new("sh");
    reader.args([
        "-c",
        &format!(
            "read go; {}",
            all_read.replace("exec sleep 100", "read end")
        ),
    ]);
    let mut reader = reader
        .current_dir(bench.data.path())
        .stdin(Stdio::piped())
        .spawn()
        .expect("it starts");
    let tune = begin(&["--pid", &reader.id().to_string(), "--out", "by-pid.frt"]);
    let mut input = reader.stdin.take().expect("a pipe");
    let recorder = || children(tune.id()).into_iter().next();
    // When it knows what is open its first thread polls the process.
    wait_until("it records", || recorder().is_some_and(polls));
    writeln!(input).expect("it listens");
    wait_until("it has read", || ready.exists());
    assert_eq!(ended(tune), Some(0));
    writeln!(input).expect("it still listens");
    assert!(
        reader.wait().expect("ends").success(),
        "the process was ended too"
    );
    std::fs::remove_file(&ready).expect("it is there");
    bench.only_the_traces_are_left(&["by-pid.frt", "foreread-head.frt", "foreread-sh.frt"]);
}

/// A file system that drops what is cached of a file when that is opened: nothing that reads ahead beside a program is advised.
#[test]
fn what_a_file_system_drops_is_not_advised() {
    let bench = Bench::new();
    let Some(disk) = SlowDisk::new() else { return };
    let (file, read) = (disk.as_file(), format!("if={}", text(&disk.as_file())));
    let command = [
        "dd",
        &read,
        "of=/dev/null",
        "bs=32k",
        "count=512",
        "status=none",
    ];
    let options = ["--json", "-", "--time", "2s", "--runs", "3"];
    let Some(got) = bench.tune(&options, &command) else {
        return;
    };
    let json: serde_json::Value = serde_json::from_str(&got.out).expect("JSON");
    assert_eq!(json["storage"], format!("file:{}", text(&file)), "{json:#}");
    assert_eq!(json["is_dropped"], true);
    let steps = json["verdict"]["steps"].as_array().expect("a list");
    assert!(
        steps.iter().all(|step| step["means"] == "policy"),
        "{json:#}"
    );
    let lines = steps.iter().filter_map(|one| one["text"].as_str());
    for line in lines {
        let exists = !line.contains("foreread run")
            && !line.contains("/sys/block")
            && !line.contains("replay");
        assert!(exists, "{line}");
    }
    let why = json["verdict"]["why"].as_str();
    assert!(
        why.is_some_and(|why| why.contains("keep_cache")),
        "{json:#}"
    );
}
