//! End-to-end tests of `foreread tune -- CMD`: a program is recorded, its reads are replayed on a model or on the
//! measured storage, and the advice is printed. The trace is kept, and nothing else.
//!
//! Needs root and tracefs, otherwise the tests are skipped; the slow disk needs nbdkit, nbdfuse and a loop device. The
//! lab's `tune.rs` tests the advice for a given trace. No test expects a measured value, because it depends on the
//! machine.

use crate::common::{
    Got, SlowDisk, children, folder, foreread, needs, polls, record, run, says, signal, text,
    wait_until,
};
use serde_json::Value;
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
        let bench = Bench {
            data: folder(),
            scratch: folder(),
            instances: instances(),
        };
        std::fs::write(bench.data.path().join("data"), vec![7; 16 << 20]).expect("room");
        bench
    }

    /// The command with the data's folder around it; nothing where this machine cannot record.
    fn tune(&self, options: &str, command: &[&str]) -> Option<Got> {
        let mut tune = assert_cmd::Command::new(env!("CARGO_BIN_EXE_foreread"));
        tune.current_dir(self.data.path())
            .env("TMPDIR", self.scratch.path());
        let tune = tune
            .env_remove("COLUMNS")
            .arg("tune")
            .args(options.split(' '));
        let output = tune
            .arg("--")
            .args(command)
            .output()
            .expect("the binary starts");
        let got = Got::from(&output);
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
    let options = "--on model:object-near --runs 5 --only data --why";
    needs!(let got = bench.tune(options, &IN_ORDER));
    assert_eq!(got.code, Some(0), "{}", got.err);
    let parts = [
        "\nthe kernel:\n    foreread doctor --fix DEVICE --to ",
        "\nthis program, unmodified:\n    foreread run -- dd if=data ",
    ];
    says(&got.out, &parts);
    let flat = Vec::from_iter(got.out.split_whitespace()).join(" ");
    says(
        &flat,
        &[
            "Expected: x0.",
            "Only part of the trace was used (--only, --records).",
        ],
    );
    assert!(
        got.out.starts_with("Set the kernel's readahead to "),
        "{}",
        got.out
    );
    assert!(
        got.out.lines().all(|line| line.chars().count() <= 100),
        "{}",
        got.out
    );
    // The next step for the user is printed.
    assert!(got.err.contains("foreread-dd.frt"), "{}", got.err);
    bench.only_the_traces_are_left(&["foreread-dd.frt"]);
    let kept = bench.data.path().join("foreread-dd.frt");
    let again = run(format!("tune {} --on model:object-near", text(&kept)));
    assert_eq!(again.code, Some(0), "{}", again.err);
    // A second one does not take its place.
    bench.tune(options, &["true"]).expect("as before");
    let less = ["dd", "if=data", "of=/dev/null", "count=9"];
    bench
        .tune("--on model:object-near", &less)
        .expect("as before");
    let traces = ["foreread-dd-2.frt", "foreread-dd.frt", "foreread-true.frt"];
    bench.only_the_traces_are_left(&traces);
}

/// The JSON is JSON, whatever the command itself prints; a command that fails has been recorded all the same, and its exit
/// code is ours.
#[test]
fn the_json_is_whole() {
    let bench = Bench::new();
    let options = "--on model:object-near --runs 5 --only data --json -";
    let talks = [
        "sh",
        "-c",
        "echo a line by the command; dd if=data of=/dev/null bs=32k status=none; exit 7",
    ];
    needs!(let got = bench.tune(options, &talks));
    assert_eq!(got.code, Some(7), "{}", got.err);
    assert!(got.err.contains("a line by the command"), "{}", got.err);
    let json = got.json();
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
    needs!(let got = bench.tune("--time 1 --runs 3 --only data", &IN_ORDER));
    assert_eq!(got.code, Some(0), "{}", got.err);
    let data = bench.data.path().join("data");
    let storage = format!("Storage: file:{}", data.display());
    let most = "the file on this storage from which most bytes were read.";
    let measured = format!("Measured: {}, {most}", data.display());
    let flat = Vec::from_iter(got.out.split_whitespace()).join(" ");
    says(&flat, &[&storage, "Chosen: ", &measured]);
    bench.only_the_traces_are_left(&["foreread-dd.frt"]);
}

/// A command that cannot be run leaves nothing either, and the exit code says that there was nothing to tune.
#[test]
fn a_command_that_is_not_there() {
    let bench = Bench::new();
    needs!(let got = bench.tune("--on model:rbd", &["/no/such/program"]));
    assert_eq!((got.code, got.out.as_str()), (Some(2), ""), "{}", got.err);
    says(
        &got.err,
        &["cannot run: /no/such/program", "nothing was recorded"],
    );
    bench.only_the_traces_are_left(&[]);
}

/// Ctrl-C while the command runs, or while a process is recorded: the trace is kept, and the advice follows.
#[test]
fn after_ctrl_c_the_advice_follows() {
    let bench = Bench::new();
    needs!(let _got = bench.tune("--on model:rbd", &["head", "-c", "1000", "data"]));
    let begin = |words: &[&str]| {
        // A test that is begun in the background has no SIGINT to give on.
        let mut command = std::process::Command::new("env");
        command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_foreread")]);
        command
            .args("tune --on model:object-near --runs 5 --only data".split(' '))
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
        let Got { code, out, err } = Got::from(&child.wait_with_output().expect("it ends"));
        let is_advice =
            out.starts_with("Set the kernel's ") && out.contains("\nthis program, unmodified:\n");
        assert!(is_advice, "{out}{err}");
        code
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
    let all_read = all_read.replace("exec sleep 100", "read end");
    reader.args(["-c", &format!("read go; {all_read}")]);
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
    needs!(let disk = SlowDisk::new());
    let (file, read) = (disk.as_file(), format!("if={}", text(&disk.as_file())));
    let command = ["dd", &read, "of=/dev/null", "bs=32k", "count=512"];
    let options = "--json - --time 2s --runs 3";
    needs!(let got = bench.tune(options, &command));
    let json = got.json();
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

// ---- one disk and one program: every command recommends the same value, or gives the reason in the same sentence ----

fn json(words: &[&str]) -> Value {
    let got = foreread(words);
    serde_json::from_str(got.is_done()).expect("JSON")
}

fn bytes(size: &str) -> u64 {
    let (number, unit) = size.split_at(size.len() - 1);
    let unit = match unit {
        "K" => 1 << 10,
        "M" => 1 << 20,
        _ => panic!("a size in K or M: {size}"),
    };
    number.parse::<u64>().expect("a number") * unit
}

/// The sizes of the lines that set a readahead.
fn set_by(text: &str) -> Vec<&str> {
    let lines = text.split("--to ").skip(1);
    lines
        .map(|rest| {
            rest.split([' ', '\n', '"', '\\'])
                .next()
                .unwrap_or_default()
        })
        .collect()
}

#[test]
fn one_disk_has_one_value() {
    needs!(let disk = SlowDisk::new());
    let big = disk.mount().join("big");
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory");
    let (big, trace) = (text(&big), dir.path().join("dd.frt"));
    let input = format!("if={big}");
    disk.forget();
    let read = ["dd", &input, "of=/dev/null", "bs=32k", "status=none"];
    needs!(let recorded = record(&trace, &[], &read));
    assert_eq!(recorded.code, Some(0), "{}", recorded.err);
    let trace = text(&trace);
    let doctor = json(&["doctor", disk.name(), "--json", "-"]);
    let doctor = &doctor["devices"][0];
    let should = doctor["should_bytes"].as_u64().expect("a value");
    assert_eq!(
        (doctor["has_bytes"].as_u64(), &doctor["standing"]),
        (Some(128 << 10), &Value::from("gain"))
    );
    let line = doctor["steps"][0]["text"].as_str().expect("a line");
    let value = set_by(line)[0];
    assert_eq!(
        line,
        format!("foreread doctor --fix {} --to {value}", disk.name())
    );

    let watch = json(&["watch", disk.name(), "--once", "--every", "100ms", "--json"]);
    let probe = json(&["probe", big, "--time", "2s", "--json", "-"]);
    let fixed = "--time 2s --runs 3 --json -".split(' ');
    let tune = json(&Vec::from_iter(
        ["tune", trace, "--on", big].into_iter().chain(fixed),
    ));
    for (command, verdict) in [
        ("watch", &watch["disks"][0]["doctor"]),
        ("probe", &probe["verdict"]),
        ("tune", &tune["verdict"]),
    ] {
        assert_eq!(verdict["should_bytes"], should, "{command}: {verdict:#}");
        assert_eq!(verdict["has_bytes"], 128 << 10, "{command}: {verdict:#}");
    }
    let are_equal = |sizes: &[&str]| sizes.iter().all(|size| bytes(size) == should);
    let by_probe = probe["verdict"]["steps"].to_string();
    let by_probe = set_by(&by_probe);
    assert!(by_probe.len() == 1 && are_equal(&by_probe), "{by_probe:?}");
    // Reads that want another value have both in one sentence.
    let steps = tune["verdict"]["steps"].as_array().expect("a list");
    let setting = steps
        .iter()
        .find(|step| step["means"] == "setting")
        .expect("a setting");
    let what = setting["what"].as_str().expect("words");
    let own = setting["text"].to_string();
    let names_both =
        |words: &str| words.contains(" for these reads (the advice for the disk in general is ");
    assert!(names_both(what) || are_equal(&set_by(&own)), "{setting:#}");

    let compare = run(format!("compare {trace} --only big --on {big} --time 3s"));
    let said = |got: &Got| {
        let text = format!("{}{}", got.out, got.err);
        set_by(&text)
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(compare.code, Some(0), "{}", compare.err);
    let by_compare = said(&compare);
    let by_compare: Vec<&str> = by_compare.iter().map(String::as_str).collect();
    let words: Vec<&str> = compare.out.split_whitespace().collect();
    let is_right = names_both(&words.join(" ")) || are_equal(&by_compare);
    assert!(is_right, "{}", compare.out);
    for words in [
        &["explain", trace, "--on", big, "--only", "big"][..],
        &[&["run", "--"], &read[..]].concat(),
    ] {
        assert_eq!(said(&foreread(words)), [""; 0], "{words:?} names no value");
    }
}

/// On a model the policy that `compare` takes is that of `tune`.
#[test]
fn one_model_has_one_policy() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory");
    let trace = dir.path().join("reads.csv");
    let rows: String = (0..800_u64)
        .map(|n| format!("{},65536\n", n * 65_536))
        .collect();
    std::fs::write(&trace, format!("offset,length\n{rows}")).expect("room");
    let (trace, on) = (text(&trace), "model:object-near");
    let tune = json(&["tune", trace, "--on", on, "--runs", "3", "--json", "-"]);
    let steps = tune["verdict"]["steps"].as_array().expect("a list");
    let policy = steps
        .iter()
        .find(|step| step["means"] == "run")
        .expect("'run' has the policy");
    let policy = policy["gain"]["what"].as_str().expect("a name");
    let compare = foreread(["compare", trace, "--on", on, "--runs", "3"]);
    let said = Vec::from_iter(compare.is_done().split_whitespace()).join(" ");
    let nothing = format!("Nothing to set on {on}: {policy}, the default");
    let is_it = said.starts_with(&nothing) || said.starts_with(&format!("Use {policy} "));
    assert!(is_it, "{policy}: {said}");
}
