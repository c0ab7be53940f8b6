//! Tests of output files: links are not followed, and existing files are not replaced without `--force`, for every option that
//! names a file; a page of `--html` embeds the JSON of its command.

use crate::common::{FOREREAD, foreread, inside, run, says, text};
use foreread::eventlog::check_log_among;
use foreread_history::policies;
use serde_json::Value;
use std::fs;
use std::io::BufReader;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Options that name an output, each with what it needs: `OUT` is the file, `IN` a trace.
const OPTIONS: &[&str] = &[
    "trace import IN -o OUT",
    "trace export IN --format csv -o OUT",
    "trace info IN --json OUT",
    "compare sequential --on model:nvme --json OUT",
    "compare sequential --on model:nvme --html OUT",
    "compare sequential --on model:nvme --vary policy.max=16K,1M --html OUT",
    "explain IN --json OUT",
    "tune IN --on model:nvme --json OUT",
    "probe model:hdd-theory -o OUT",
    "probe model:hdd-theory --json OUT",
    "sweep IN --on model:nvme --json OUT",
    "record -o OUT -- true",
    "run --json OUT -- true",
    "plan IN -o OUT",
    "serve IN --tcp 0 --record OUT",
];

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/traces/foreread/v1.frt")
}

#[test]
fn no_output_follows_a_link_or_replaces_a_file_unasked() {
    let dir = tempfile::tempdir().expect("a folder");
    let source = dir.path().join("trace.frt");
    let import = format!("trace import {} -o {}", text(&example()), text(&source));
    run(&import).is_done();
    let same = fs::read(&source).expect("there") == fs::read(example()).expect("there");
    assert!(same, "a trace of our own comes back as it was");
    FOREREAD.follows_no_link(OPTIONS, dir.path(), &source);
    run(import + " --force").is_done();
}

/// The logs of a folder have names that anyone can know before. The folder is made, and each log in it replays.
#[test]
fn an_event_log_follows_no_link_and_replaces_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let names = ["data", "new/logs", "kept", "none"];
    let [data, logs, kept, none] = names.map(|name| dir.path().join(name));
    fs::write(&data, vec![7; 1 << 20]).expect("room");
    let log = |on: &str, logs: &Path, more: &str| {
        let fixed = "compare sequential --size 1M --runs 1 --policy linux-6.18:max=128K";
        let logs = text(logs);
        run(format!("{fixed} --on {on} --event-log {logs} {more}"))
    };
    assert_eq!(log(text(&data), &logs, "").code, Some(0));
    let names = fs::read_dir(&logs).expect("made").flatten();
    let names = Vec::from_iter(names.map(|entry| entry.path()));
    assert_eq!(names.len(), 2, "none and linux-6.18: {names:?}");
    for log in &names {
        let file = fs::File::open(log).expect("it is there");
        let same = check_log_among(BufReader::new(file), &[&policies()], None);
        assert!(same.is_ok(), "{}: {same:?}", log.display());
    }
    log(text(&data), &logs, "").refuses("it exists already");
    fs::write(&kept, "kept").expect("room");
    for name in &names {
        fs::remove_file(name).expect("removed");
        symlink(&kept, name).expect("made");
    }
    log(text(&data), &logs, "").refuses("it exists already");
    assert_eq!(log(text(&data), &logs, "--force").code, Some(0));
    assert_eq!(fs::read(&kept).expect("there"), b"kept");
    assert!(fs::symlink_metadata(&names[0]).expect("there").is_file());
    // A folder that cannot be made is said before anything is measured.
    let inside = log(text(&data), &data.join("logs"), "");
    inside.refuses("creating the folder for event logs");
    // On a model there are no logs, and no folder is made.
    assert_eq!(log("model:nvme", &none, "").code, Some(0));
    assert!(!none.exists());
}

/// Pages are many files: none of them follows a link.
#[test]
fn manual_pages_follow_no_link() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| dir.path().join(name);
    fs::write(path("kept"), "kept").expect("room");
    symlink(path("kept"), path("foreread.1")).expect("made");
    foreread(["man", text(dir.path())]).refuses("it exists already");
    let got = foreread(["man", text(dir.path()), "--force"]);
    assert!(got.is_done().is_empty());
    assert_eq!(fs::read(path("kept")).expect("there"), b"kept");
    assert!(path("foreread-compare.1").exists() && path("foreread-trace-info.1").exists());
}

/// With the same JSON inside as `--json` writes.
#[test]
fn a_page_has_the_json_of_its_command() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let [page, json] = ["p.html", "j.json"].map(|name| dir.path().join(name));
    let compare = "compare interleaved --on model:hdd-theory --size 4M --runs 2";
    let vary = format!("{compare} --vary streams=1,4");
    for (command, shown) in [
        (compare.to_string(), "<meter"),
        (vary, "interleaved:streams=4 on model:hdd-theory"),
    ] {
        let files = format!("--html {} --json {} --force", text(&page), text(&json));
        let got = run(format!("{command} {files}"));
        got.is_done();
        let written = fs::read_to_string(&json).expect("written");
        let written: Value = serde_json::from_str(&written).expect("JSON");
        assert_eq!(inside(&page), written, "{command}");
        let first = written.get(0).unwrap_or(&written);
        assert_eq!(first["schema"], "foreread.compare/1");
        says(&fs::read_to_string(&page).expect("written"), &[shown]);
        if shown.contains("streams=4") {
            let other = "interleaved:streams=1 on model:hdd-theory";
            says(&got.out, &[shown, other]);
            // With '-' the JSON takes the place of the text.
            let only = run(format!("{command} --json -"));
            only.is_done();
            assert_eq!(only.json(), written);
        }
    }
}
