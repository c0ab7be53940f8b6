//! `foreread tune -- CMD` as a whole: a program is recorded, its reads are replayed on a model or on what the storage was
//! measured to be, and it is said what to set; nothing stays behind.
//!
//! Needs root and tracefs, else it is skipped. What `tune` makes of a trace: `explain.rs` here and `tune.rs` of the lab.
//! Never: a figure of a probe, which is the machine's.

mod common;
use common::Got;
use std::collections::BTreeSet;
use std::path::Path;

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
    all.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

impl Bench {
    fn new() -> Bench {
        let folder = || tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory");
        let bench = Bench { data: folder(), scratch: folder(), instances: instances() };
        std::fs::write(bench.data.path().join("data"), vec![7; 16 << 20]).expect("room");
        bench
    }

    /// The command with the data's folder around it; nothing where this machine cannot record.
    fn tune(&self, options: &[&str], command: &[&str]) -> Option<Got> {
        let mut tune = assert_cmd::Command::new(env!("CARGO_BIN_EXE_foreread"));
        tune.current_dir(self.data.path()).env("TMPDIR", self.scratch.path()).env_remove("COLUMNS");
        let output = tune.arg("tune").args(options).arg("--").args(command).output().expect("the binary starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let got = Got { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) };
        if got.code == Some(3) {
            println!("skipped: needs root and tracefs ({})", got.err.trim_end());
            return None;
        }
        Some(got)
    }

    /// No temporary file, no trace, and no tracing instance of a process that is gone.
    #[track_caller]
    fn nothing_is_left(&self) {
        let names = |path: &Path| -> Vec<_> {
            std::fs::read_dir(path).expect("a folder").flatten().map(|entry| entry.file_name()).collect()
        };
        assert_eq!(names(self.scratch.path()), [""; 0], "temporary files");
        assert_eq!(names(self.data.path()), ["data"], "files beside the data");
        let dead = |name: &&String| {
            let pid = name.strip_prefix("foreread-").and_then(|rest| rest.parse::<u32>().ok());
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
fn a_command_is_recorded_and_told_what_to_set() {
    let bench = Bench::new();
    let options = ["--on", "model:object-near", "--runs", "5", "--only", "data"];
    let Some(got) = bench.tune(&options, &IN_ORDER) else { return };
    assert_eq!(got.code, Some(0), "{}", got.err);
    for part in [
        "\nthe kernel:\n    echo ",
        "read_ahead_kb",
        "\nforeread:\n    foreread serve SOURCE",
        "--policy linux-6.18:max=",
    ] {
        assert!(got.out.contains(part), "{part} is missing:\n{}", got.out);
    }
    assert!(got.out.contains("Against today's readahead of 128K") && got.out.contains("Expected: x0."), "{}", got.out);
    assert!(got.out.lines().all(|line| line.chars().count() <= 100), "{}", got.out);
    bench.nothing_is_left();
    // What a user is told to do next must still be there.
    assert!(!got.err.contains("recorded.frt"), "{}", got.err);
}

/// The JSON is JSON, whatever the command itself prints; a command that fails has been recorded all the same.
#[test]
fn the_json_is_whole() {
    let bench = Bench::new();
    let options = ["--on", "model:object-near", "--runs", "5", "--only", "data", "--json", "-"];
    let talks = ["sh", "-c", "echo a line of its own; dd if=data of=/dev/null bs=32k status=none; exit 7"];
    let Some(got) = bench.tune(&options, &talks) else { return };
    assert_eq!(got.code, Some(0), "{}", got.err);
    assert!(got.err.contains("a line of its own"), "{}", got.err);
    let json: serde_json::Value = serde_json::from_str(&got.out).unwrap_or_else(|e| panic!("{e}: {}", got.out));
    assert_eq!(
        (json["schema"].as_str(), json["storage"].as_str()),
        (Some("foreread.tune/1"), Some("model:object-near"))
    );
    assert!(json["policy"]["what"].as_str().is_some_and(|what| what.contains("max=")), "{}", json["policy"]);
    let places: Vec<_> = json["settings"].as_array().expect("a list").iter().map(|s| s["place"].as_str()).collect();
    assert!(places.contains(&Some("the kernel")) && places.contains(&Some("foreread")), "{places:?}");
    bench.nothing_is_left();
}

/// Nothing named but the command: the storage is found by the trace and measured, as short as that can be. What comes of it
/// is the machine's matter; that it is said, and about this file, is ours.
#[test]
fn the_storage_is_found_and_measured() {
    let bench = Bench::new();
    let Some(got) = bench.tune(&["--seconds", "1", "--runs", "3", "--only", "data"], &IN_ORDER) else { return };
    assert_eq!(got.code, Some(0), "{}", got.err);
    let storage = format!("Storage: file:{}", bench.data.path().join("data").display());
    let flat = got.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.starts_with(&storage), "{}", got.out);
    assert!(flat.contains("today's readahead of ") || flat.contains("There is nothing to gain"), "{}", got.out);
    bench.nothing_is_left();
}

/// A command that cannot be run leaves nothing either, and the exit code says that there was nothing to tune.
#[test]
fn a_command_that_is_not_there() {
    let bench = Bench::new();
    let Some(got) = bench.tune(&["--on", "model:rbd"], &["/no/such/program"]) else { return };
    assert_eq!((got.code, got.out.as_str()), (Some(2), ""), "{}", got.err);
    assert!(
        got.err.contains("cannot run: /no/such/program") && got.err.contains("nothing was recorded"),
        "{}",
        got.err
    );
    bench.nothing_is_left();
}
