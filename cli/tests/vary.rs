//! `compare --vary` and `--svg`, end to end: what is printed, what is written and when, what is refused.

use crate::common::foreread;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// A series that takes a moment.
const QUICK: [&str; 10] = [
    "compare",
    "interleaved",
    "--on",
    "model:hdd-theory",
    "--size",
    "16M",
    "--runs",
    "2",
    "--vary",
    "streams=1,4",
];

fn quick<'a>(more: &[&'a str]) -> Vec<&'a str> {
    QUICK.iter().copied().chain(more.iter().copied()).collect()
}

#[track_caller]
fn refused(args: &[&str], parts: &[&str]) {
    let got = foreread(args);
    let line = got.is_refused();
    for part in parts {
        assert!(line.contains(part), "{args:?}: '{part}' is not in: {line}");
    }
}

/// Names in a directory, to see that nothing is left beside what was asked for.
fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("readable");
    let mut names: Vec<String> = entries
        .map(|e| {
            e.expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

#[test]
fn a_series_for_people_for_programs_and_as_a_picture() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let (svg, json) = (dir.path().join("x.svg"), dir.path().join("x.json"));
    let (svg_text, json_text) = (svg.to_string_lossy(), json.to_string_lossy());
    let got = foreread(quick(&["--svg", &svg_text, "--json", &json_text]));
    let text = got.is_done();
    assert!(
        text.contains("\n\ninterleaved on model:hdd-theory by streams: ")
            && !text.contains("Advice"),
        "{text}"
    );
    let verdict = text.lines().next().unwrap_or_default();
    assert!(
        verdict.contains("streams") && verdict.contains("fastest"),
        "{text}"
    );
    assert!(
        text.contains("\nstreams  ") && text.contains("\n      4  "),
        "{text}"
    );
    let picture = std::fs::read_to_string(&svg).expect("written");
    assert!(
        picture.starts_with("<svg xmlns=")
            && picture.ends_with("</svg>\n")
            && picture.contains(">rbd-plain</text>")
    );
    let value: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&json).expect("written")).expect("JSON");
    assert_eq!(
        (
            value["schema"].as_str(),
            value["reports"].as_array().map(Vec::len)
        ),
        (Some("foreread.vary/1"), Some(2))
    );
    assert_eq!(names(dir.path()), ["x.json", "x.svg"]);
    // With '-' the JSON takes the place of the text.
    let only = foreread(quick(&["--json", "-"]));
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(only.is_done()).expect("JSON"),
        value
    );
}

#[test]
fn a_file_is_replaced_by_force_as_a_whole_and_keeps_its_mode() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let (file, link, hard) = (
        dir.path().join("real.svg"),
        dir.path().join("link.svg"),
        dir.path().join("hard.svg"),
    );
    std::fs::write(&file, "before").expect("written");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).expect("changed");
    symlink("real.svg", &link).expect("a link");
    std::fs::hard_link(&file, &hard).expect("a second name");
    for there in [&file, &link] {
        let got = foreread(quick(&["--svg", &there.to_string_lossy()]));
        assert!(
            got.is_refused().contains("it is there already"),
            "{}",
            got.err
        );
    }
    foreread(quick(&["--svg", &file.to_string_lossy(), "--force"])).is_done();
    assert!(
        std::fs::read_to_string(&file)
            .expect("readable")
            .ends_with("</svg>\n")
    );
    assert_eq!(
        file.metadata().expect("there").permissions().mode() & 0o777,
        0o640
    );
    assert!(link.symlink_metadata().expect("there").is_symlink());
    // A process with the old file open, or another name of it, still has all of it: it was not overwritten.
    assert_eq!(std::fs::read_to_string(&hard).expect("readable"), "before");
    assert_eq!(names(dir.path()), ["hard.svg", "link.svg", "real.svg"]);
    // A new file gets what any program's new file gets.
    let (new, other) = (dir.path().join("new.svg"), dir.path().join("other"));
    foreread(quick(&["--svg", &new.to_string_lossy()])).is_done();
    std::fs::write(&other, "").expect("written");
    let mode = |path: &Path| path.metadata().expect("there").permissions().mode();
    assert_eq!(mode(&new), mode(&other));
    // What is no file is written to, and stays what it is.
    foreread(quick(&["--svg", "/dev/null"])).is_done();
    assert!(!Path::new("/dev/null").metadata().expect("there").is_file());
}

/// Ctrl-C while it measures leaves the old file and nothing beside it.
#[test]
fn an_interrupted_series_leaves_no_half_picture() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let file = dir.path().join("x.svg");
    std::fs::write(&file, "before").expect("written");
    let args = [
        "compare",
        "random:count=4096",
        "--on",
        "model:rbd",
        "--runs",
        "1000",
        "--policy",
        "all",
    ];
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_foreread"))
        .args(args)
        .args(["--vary", "record=4K,8K,16K,32K", "--svg"])
        .arg(&file)
        .arg("--force")
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("the binary starts");
    std::thread::sleep(std::time::Duration::from_millis(500));
    let interrupted = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    let code = child.wait().expect("it ends").code();
    assert!(
        interrupted.expect("kill runs").success() && matches!(code, None | Some(130)),
        "it was done before it was interrupted: {code:?}"
    );
    assert_eq!(std::fs::read_to_string(&file).expect("readable"), "before");
    assert_eq!(names(dir.path()), ["x.svg"]);
}

/// Each of these would take minutes if it ran.
#[test]
fn what_cannot_be_written_is_said_before_anything_is_measured() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let (here, nowhere) = (
        dir.path().to_string_lossy(),
        dir.path().join("none/such.svg"),
    );
    let long = [
        "compare",
        "random:count=4096",
        "--on",
        "model:rbd",
        "--runs",
        "1000",
        "--policy",
        "all",
    ];
    let with = |more: &[&'static str], file: &str| -> Vec<String> {
        long.iter()
            .chain(more)
            .map(ToString::to_string)
            .chain([file.to_string()])
            .collect()
    };
    let vary = ["--vary", "record=4K,8K,16K,32K", "--svg"];
    for (file, part) in [
        (here.as_ref(), "it is a directory"),
        (&nowhere.to_string_lossy(), "does not exist"),
        ("", "''"),
    ] {
        let args = with(&vary, file);
        refused(
            &args.iter().map(String::as_str).collect::<Vec<_>>(),
            &["--svg", part],
        );
    }
    let file = dir.path().join("x").to_string_lossy().into_owned();
    let mut args = with(&vary, &file);
    args.extend(["--json".to_string(), file]);
    refused(
        &args.iter().map(String::as_str).collect::<Vec<_>>(),
        &["one file named twice"],
    );
    let locked = dir.path().join("locked");
    std::fs::create_dir(&locked).expect("made");
    std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(0o500)).expect("changed");
    if std::fs::write(locked.join("probe"), "").is_ok() {
        println!("skipped: needs a user that may not write everywhere, not root");
        return;
    }
    let args = with(&vary, &locked.join("x.svg").to_string_lossy());
    refused(
        &args.iter().map(String::as_str).collect::<Vec<_>>(),
        &["cannot write", "--svg", "ermission"],
    );
}

#[test]
fn what_is_no_series() {
    refused(
        &["compare", "--on", "model:rbd", "--vary", "streams=1,2"],
        &["no workload named"],
    );
    refused(
        &["compare", "random", "--vary", "record=1,2"],
        &["no source named", "--on"],
    );
    refused(
        &["compare", "random", "--on", "model:rbd", "--svg", "x.svg"],
        &["--vary"],
    );
    let vary = |text: &'static str, parts: &[&str]| {
        refused(
            &[
                "compare",
                "interleaved",
                "--on",
                "model:rbd",
                "--policy",
                "rbd-plain",
                "--vary",
                text,
            ],
            parts,
        );
    };
    vary("streams", &["no values named", "KEY=VALUE"]);
    vary(
        "streems=1,2",
        &[
            "unknown parameter in --vary: 'streems'",
            "nearest: streams",
            "'foreread list workloads'",
        ],
    );
    vary("policy.triger=1,2", &["nearest: policy.trigger"]);
    vary(
        "streams=0,1",
        &[
            "bad workload",
            "streams=0",
            "'foreread list workloads' lists the ranges",
        ],
    );
    vary(
        "policy.trigger=1,x",
        &[
            "bad policy",
            "trigger=x",
            "'foreread list policies' lists the ranges",
        ],
    );
    vary(
        "streams=1,1000000",
        &["bad workload", "1000000 records", "with streams=1000000"],
    );
    vary("cache=1M,1Q", &["not a size", "cache=1Q"]);
    vary("streams=1,1", &["named twice"]);
    vary("x\u{1b}[31m=1", &["unknown parameter"]);
}
