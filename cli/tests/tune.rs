//! End-to-end tests of `foreread tune -- CMD`: a program is recorded, its reads are replayed on a model or on the
//! measured storage, and the advice is printed. The trace is kept, and nothing else.
//!
//! Needs root and tracefs, otherwise the tests are skipped; the slow disk needs nbdkit, nbdfuse and a loop device. The
//! lab's `tune.rs` tests the advice for a given trace. No test expects a measured value, because it depends on the
//! machine.

use crate::common::{
    BINARY, Got, Program, children, folder, foreread, interruptible, needs, polls, record, run,
    says, signal, slow_disk, text, wait_until,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const INSTANCES: &str = "/sys/kernel/tracing/instances";

/// A folder on a disk for the data, and one for what is temporary.
struct Bench {
    data: tempfile::TempDir,
    scratch: tempfile::TempDir,
    /// Tracing instances before.
    instances: BTreeSet<String>,
}

fn names(folder: impl AsRef<Path>) -> BTreeSet<String> {
    let all = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let name = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    all.map(name).collect()
}

impl Bench {
    fn new() -> Bench {
        let bench = Bench {
            data: folder(),
            scratch: folder(),
            instances: names(INSTANCES),
        };
        std::fs::write(bench.data.path().join("data"), vec![7; 16 << 20]).expect("room");
        bench
    }

    /// A program in the data's folder.
    fn at(&self, mut program: Command) -> Command {
        program.current_dir(self.data.path()).env_remove("COLUMNS");
        program.env("TMPDIR", self.scratch.path());
        program
    }

    /// The command with the data's folder around it; nothing where this machine cannot record.
    fn tune(&self, options: &str, command: &[&str]) -> Option<Got> {
        let mut tune = self.at(Command::new(BINARY));
        tune.arg("tune").args(options.split(' ')).arg("--");
        let output = tune.args(command).stdin(Stdio::null()).output();
        let got = Got::from(&output.expect("the binary starts"));
        if got.code == Some(3) {
            println!("skipped: needs root and tracefs ({})", got.err.trim_end());
            return None;
        }
        Some(got)
    }

    /// The kept trace; but no temporary file, and no tracing instance of a process that is gone.
    #[track_caller]
    fn only_the_traces_are_left(&self, traces: &[&str]) {
        assert_eq!(names(&self.scratch), BTreeSet::new(), "temporary files");
        let expected = traces.iter().chain(&["data"]).map(ToString::to_string);
        assert_eq!(names(&self.data), expected.collect(), "beside the data");
        let dead = |name: &&String| {
            let pid = name.strip_prefix("foreread-");
            let pid = pid.and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
            pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
        };
        let now = names(INSTANCES);
        let left = Vec::from_iter(now.difference(&self.instances).filter(dead));
        assert!(left.is_empty(), "tracing instances: {left:?}");
    }
}

/// A text in one line, as if the terminal were wide.
fn flat(text: &str) -> String {
    Vec::from_iter(text.split_whitespace()).join(" ")
}

const IN_ORDER: [&str; 5] = ["dd", "if=data", "of=/dev/null", "bs=32k", "status=none"];

/// 16 MiB in order from an object store: a larger window is worth much, and it is said where to set it.
#[test]
fn a_command_is_recorded_and_gets_advice() {
    let bench = Bench::new();
    let options = "--on model:object-near --runs 5 --only data --why";
    needs!(let got = bench.tune(options, &IN_ORDER));
    // The next step for the user is printed.
    says(got.assert_code(0), &["foreread-dd.frt"]);
    assert!(got.out.starts_with("Set the kernel's readahead to "));
    let run = "this program, unmodified: foreread run -- dd if=data ";
    let part = "Only part of the trace was used (--only, --records).";
    says(&flat(&got.out), &[": the reads ", run, part]);
    bench.only_the_traces_are_left(&["foreread-dd.frt"]);
    let kept = bench.data.path().join("foreread-dd.frt");
    let again = format!("tune {} --on model:object-near", text(&kept));
    crate::common::run(again).assert_code(0);
    // A second one does not take its place.
    bench.tune(options, &["true"]).expect("as before");
    let less = ["dd", "if=data", "of=/dev/null", "count=9"];
    let second = bench.tune("--on model:object-near", &less);
    second.expect("as before");
    let traces = ["foreread-dd-2.frt", "foreread-dd.frt", "foreread-true.frt"];
    bench.only_the_traces_are_left(&traces);
}

/// The JSON is JSON, whatever the command itself prints; a command that fails has been recorded all the same, and its exit
/// code is ours; that of a command that cannot be run is a shell's.
#[test]
fn the_json_is_whole_and_the_exit_code_the_commands() {
    let bench = Bench::new();
    let options = "--on model:object-near --runs 5 --only data --json -";
    let talks = "echo a line by the command; dd if=data of=/dev/null bs=32k status=none; exit 7";
    needs!(let got = bench.tune(options, &["sh", "-c", talks]));
    says(got.assert_code(7), &["a line by the command"]);
    let json = got.json();
    let about = [&json["schema"], &json["storage"]];
    assert_eq!(about, ["foreread.tune/1", "model:object-near"]);
    bench.only_the_traces_are_left(&["foreread-sh.frt"]);
    // Of a command that cannot be run nothing is left.
    let none = bench.tune("--on model:rbd", &["/no/such/program"]);
    let none = none.expect("as before");
    assert_eq!((none.out.as_str(), none.err.lines().count()), ("", 1));
    says(none.assert_code(127), &["cannot run: /no/such/program"]);
    bench.only_the_traces_are_left(&["foreread-sh.frt"]);
}

#[track_caller]
fn step<'a>(json: &'a Value, means: &str) -> &'a Value {
    let mut steps = json["verdict"]["steps"].as_array().expect("a list").iter();
    let found = steps.find(|step| step["means"] == means);
    found.unwrap_or_else(|| panic!("no step {means}: {json:#}"))
}

/// Nothing named but the command: the storage is found by the trace and measured, as short as that can be. What comes of it
/// is the machine's matter; that it is said, and about this file, is ours.
#[test]
fn the_storage_is_found_and_measured() {
    let bench = Bench::new();
    needs!(let got = bench.tune("--time 1 --runs 3 --only data", &IN_ORDER));
    got.assert_code(0);
    let data = bench.data.path().join("data");
    let storage = format!("Storage: file:{}", data.display());
    let most = "the file on this storage from which most bytes were read.";
    let measured = format!("Measured: {}, {most}", data.display());
    says(&flat(&got.out), &[&storage, "Chosen: ", &measured]);
    bench.only_the_traces_are_left(&["foreread-dd.frt"]);
}

/// Ctrl-C while the command runs, or while a process is recorded: the trace is kept, and the advice follows.
#[test]
fn after_ctrl_c_the_advice_follows() {
    let bench = Bench::new();
    needs!(let _got = bench.tune("--on model:rbd", &["head", "-c", "1000", "data"]));
    let begin = |words: &[&str]| {
        let mut command = bench.at(interruptible());
        command.args("tune --on model:object-near --runs 5 --only data".split(' '));
        let command = command.args(words).stdout(Stdio::piped());
        command.stderr(Stdio::piped()).spawn().expect("it starts")
    };
    let ended = |child: Child| {
        signal(child.id(), "-INT");
        let got = Got::from(&child.wait_with_output().expect("it ends"));
        says(
            &got.out,
            &["Set the kernel's ", "\nthis program, unmodified"],
        );
        says(&got.err, &["foreread: interrupted; the trace is kept, "]);
        got.code
    };
    let all_read = "dd if=data of=/dev/null bs=32k status=none; : > ready; exec sleep 100";
    let ready = bench.data.path().join("ready");
    let tune = begin(&["--", "sh", "-c", all_read]);
    wait_until("it has read", || ready.exists());
    // As the command, which SIGINT has ended.
    assert_eq!(ended(tune), Some(130));
    std::fs::remove_file(&ready).expect("it is there");

    // A process that runs already reads when the recorder has begun, and goes on when it has ended.
    let mut reader = bench.at(Command::new("sh"));
    let all_read = all_read.replace("exec sleep 100", "read end");
    let mut reader = Program::start(reader.args(["-c", &format!("read go; {all_read}")]));
    let tune = begin(&["--pid", &reader.pid().to_string(), "--out", "by-pid.frt"]);
    let recorder = || children(tune.id()).into_iter().next();
    // When it knows what is open its first thread polls the process.
    wait_until("it records", || recorder().is_some_and(polls));
    reader.tell("");
    wait_until("it has read", || ready.exists());
    assert_eq!(ended(tune), Some(0));
    reader.tell("");
    assert_eq!(reader.ended(), 0, "the process was ended too");
    std::fs::remove_file(&ready).expect("it is there");
    bench.only_the_traces_are_left(&["by-pid.frt", "foreread-head.frt", "foreread-sh.frt"]);
}

/// A file system that drops what is cached of a file when that is opened: nothing that reads ahead beside a program is advised.
#[test]
fn what_a_file_system_drops_is_not_advised() {
    let bench = Bench::new();
    needs!(let disk = slow_disk(false));
    let (file, read) = (disk.as_file(), format!("if={}", text(&disk.as_file())));
    let command = ["dd", &read, "of=/dev/null", "bs=32k", "count=512"];
    let options = "--json - --time 2s --runs 3";
    needs!(let got = bench.tune(options, &command));
    let json = got.json();
    assert_eq!(json["storage"], format!("file:{}", text(&file)), "{json:#}");
    assert_eq!(json["is_dropped"], true);
    let steps = json["verdict"]["steps"].as_array().expect("a list");
    let is_policy = |step: &Value| step["means"] == "policy";
    assert!(steps.iter().all(is_policy), "{json:#}");
    for line in steps.iter().filter_map(|one| one["text"].as_str()) {
        let advice = ["foreread run", "/sys/block", "replay"];
        assert!(!advice.iter().any(|words| line.contains(words)), "{line}");
    }
    let why = json["verdict"]["why"].as_str().expect("a reason");
    says(why, &["keep_cache"]);
}

// ---- one disk and one program: every command recommends the same value, or gives the reason in the same sentence ----

fn json(words: &[&str]) -> Value {
    let got = foreread(words);
    serde_json::from_str(got.is_done()).expect("JSON")
}

fn bytes(size: &str) -> u64 {
    let (number, unit) = size.split_at(size.len() - 1);
    let shift = ["K", "M"].iter().position(|own| *own == unit);
    let shift = shift.expect("a size in K or M") * 10 + 10;
    number.parse::<u64>().expect("a number") << shift
}

/// The sizes of the lines that set a readahead.
fn set_by(text: &str) -> Vec<&str> {
    let lines = text.split("--to ").skip(1);
    let size = |rest: &'_ str| rest.find([' ', '\n', '"', '\\']).unwrap_or(rest.len());
    lines.map(|rest| &rest[..size(rest)]).collect()
}

/// What a quiet machine measures on a disk 2 ms away. Beside other tests it may be too busy to measure.
const MEASURED: &str = r#"{"has_bytes":131072,
"costs":{"latency_us":2200.0,"mb_per_s":900.0,"is_measured":true,"turns":false,"age_s":0},
"checked":[{"readahead_bytes":131072,"mb_per_s":100.0},{"readahead_bytes":524288,"mb_per_s":300.0},
{"readahead_bytes":2097152,"mb_per_s":600.0}]}"#;

#[test]
fn one_disk_has_one_value() {
    needs!(let disk = slow_disk(false));
    let sequence = std::fs::read_to_string(format!("/sys/block/{}/diskseq", disk.name()));
    let kept = Path::new("/run/foreread");
    let _ = DirBuilder::new().mode(0o700).create(kept);
    let kept = kept.join(format!("disk-{}", sequence.expect("a number").trim()));
    std::fs::write(kept, MEASURED).expect("room");
    let big = disk.mount().join("big");
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory");
    let (big, trace) = (text(&big), dir.path().join("dd.frt"));
    let input = format!("if={big}");
    disk.forget();
    let read = ["dd", &input, "of=/dev/null", "bs=32k", "status=none"];
    needs!(let recorded = record(&trace, &[], &read));
    recorded.assert_code(0);
    let trace = text(&trace);
    let doctor = json(&["doctor", disk.name(), "--json", "-"]);
    let doctor = &doctor["devices"][0];
    let should = doctor["should_bytes"].as_u64().expect("a value");
    assert_eq!(doctor["has_bytes"], 128 << 10);
    assert_eq!(doctor["standing"], "gain");
    let line = doctor["steps"][0]["text"].as_str().expect("a line");
    let fix = format!("foreread doctor --fix {} --to ", disk.name());
    assert_eq!(line, fix + set_by(line)[0]);

    let watch = json(&["watch", disk.name(), "--once", "--every", "100ms", "--json"]);
    let probe = json(&["probe", big, "--time", "2s", "--json", "-"]);
    let tune = format!("tune {trace} --on {big} --time 2s --runs 3 --json -");
    let tune = json(&Vec::from_iter(tune.split(' ')));
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
    let setting = step(&tune, "setting");
    let what = setting["what"].as_str().expect("words");
    let own = setting["text"].to_string();
    let names_both =
        |words: &str| words.contains(" for these reads (the advice for the disk in general is ");
    assert!(names_both(what) || are_equal(&set_by(&own)), "{setting:#}");

    let compare = run(format!("compare {trace} --only big --on {big} --time 3s"));
    compare.assert_code(0);
    let both = format!("{}{}", compare.out, compare.err);
    let is_right = names_both(&flat(&compare.out)) || are_equal(&set_by(&both));
    assert!(is_right, "{}", compare.out);
}

/// On a model the policy that `compare` takes is that of `tune`.
#[test]
fn one_model_has_one_policy() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory");
    let trace = dir.path().join("reads.csv");
    let rows = (0..800_u64).map(|n| format!("{},65536\n", n * 65_536));
    let rows = rows.collect::<String>();
    std::fs::write(&trace, format!("offset,length\n{rows}")).expect("room");
    let more = format!("{} --on model:object-near --runs 3", text(&trace));
    let on = |command| run(format!("{command} {more}"));
    let tune = on("tune --json -");
    tune.is_done();
    let tune = tune.json();
    let policy = step(&tune, "run")["gain"]["what"].as_str().expect("a name");
    let said = flat(on("compare").is_done());
    let nothing = format!("Nothing to set on model:object-near: {policy}, foreread's default");
    let is_it = said.starts_with(&nothing) || said.starts_with(&format!("Use {policy} "));
    assert!(is_it, "{policy}: {said}");
}
