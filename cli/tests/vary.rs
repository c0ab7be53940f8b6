//! `compare --vary`, end to end: what is printed, what is written and when, what is refused.

use crate::common::foreread;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// A series that takes a moment.
const QUICK: &str =
    "compare interleaved --on model:hdd-theory --size 16M --runs 2 --vary streams=1,4";
/// A series that takes minutes.
const LONG: &str =
    "compare random:count=4096 --on model:rbd --runs 1000 --policy all --vary record=4K,8K,16K,32K";

fn with<'a>(series: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    series.split(' ').chain(more.iter().copied()).collect()
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
    let entries = std::fs::read_dir(dir).expect("readable").flatten();
    let mut names: Vec<String> = entries
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_series_for_people_for_programs_and_as_a_page() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let (html, json) = (dir.path().join("x.html"), dir.path().join("x.json"));
    let (html_text, json_text) = (html.to_string_lossy(), json.to_string_lossy());
    let got = foreread(with(QUICK, &["--html", &html_text, "--json", &json_text]));
    let text = got.is_done();
    let verdict = text.lines().next().unwrap_or_default();
    assert!(
        verdict.contains("streams") && verdict.contains("fastest"),
        "{text}"
    );
    for part in [
        "\n\ninterleaved on model:hdd-theory by streams: ",
        "\nstreams  ",
        "\n      4  ",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let page = std::fs::read_to_string(&html).expect("written");
    assert!(page.ends_with("</html>\n") && page.contains("rbd-plain"));
    let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
    let value = read(&std::fs::read_to_string(&json).expect("written"));
    assert_eq!(value["schema"], "foreread.vary/1");
    assert_eq!(value["reports"].as_array().map(Vec::len), Some(2));
    assert_eq!(names(dir.path()), ["x.html", "x.json"]);
    // With '-' the JSON takes the place of the text.
    let only = foreread(with(QUICK, &["--json", "-"]));
    assert_eq!(read(only.is_done()), value);
}

#[test]
fn a_file_is_replaced_by_force_as_a_whole_and_keeps_its_mode() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let at = |name: &str| dir.path().join(name);
    let (file, link, hard) = (at("real"), at("link"), at("hard"));
    std::fs::write(&file, "before").expect("written");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).expect("changed");
    symlink("real", &link).expect("a link");
    std::fs::hard_link(&file, &hard).expect("a second name");
    let write = |path: &Path, more: &[&str]| {
        let path = path.to_string_lossy();
        foreread(with(QUICK, &[&["--html", &path], more].concat()))
    };
    for there in [&file, &link] {
        let got = write(there, &[]);
        assert!(
            got.is_refused().contains("it is there already"),
            "{}",
            got.err
        );
    }
    write(&file, &["--force"]).is_done();
    let read = |path: &Path| std::fs::read_to_string(path).expect("readable");
    let mode = |path: &Path| path.metadata().expect("there").permissions().mode() & 0o777;
    assert!(read(&file).ends_with("</html>\n") && mode(&file) == 0o640);
    assert!(link.symlink_metadata().expect("there").is_symlink());
    // A process with the old file open, or another name of it, still has all of it: it was not overwritten.
    assert_eq!(read(&hard), "before");
    assert_eq!(names(dir.path()), ["hard", "link", "real"]);
    // A new file gets what any program's new file gets.
    write(&at("new"), &[]).is_done();
    std::fs::write(at("other"), "").expect("written");
    assert_eq!(mode(&at("new")), mode(&at("other")));
    // A device is written to, and stays a device.
    write(Path::new("/dev/null"), &[]).is_done();
    assert!(!Path::new("/dev/null").metadata().expect("there").is_file());
}

/// Ctrl-C while it measures leaves the old file and nothing beside it.
#[test]
fn an_interrupted_series_leaves_no_half_page() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let file = dir.path().join("x.html");
    std::fs::write(&file, "before").expect("written");
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_foreread"))
        .args(with(LONG, &["--force", "--html"]))
        .arg(&file)
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("the binary starts");
    std::thread::sleep(std::time::Duration::from_millis(500));
    let interrupted = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    let code = child.wait().expect("it ends").code();
    assert!(interrupted.expect("kill runs").success());
    assert!(
        matches!(code, None | Some(130)),
        "it was done before: {code:?}"
    );
    assert_eq!(std::fs::read_to_string(&file).expect("readable"), "before");
    assert_eq!(names(dir.path()), ["x.html"]);
}

#[test]
fn what_cannot_be_written_is_said_before_anything_is_measured() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let at = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    let (here, nowhere, file) = (at(""), at("none/such.html"), at("x"));
    for (path, part) in [
        (&*here, "it is a directory"),
        (&*nowhere, "does not exist"),
        ("", "''"),
    ] {
        refused(&with(LONG, &["--html", path]), &["--html", part]);
    }
    let twice = with(LONG, &["--html", &file, "--json", &file]);
    refused(&twice, &["one file named twice"]);
    let locked = dir.path().join("locked");
    std::fs::create_dir(&locked).expect("made");
    std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(0o500)).expect("changed");
    if std::fs::write(locked.join("probe"), "").is_ok() {
        println!("skipped: needs a user that may not write everywhere, not root");
        return;
    }
    let page = at("locked/x.html");
    let args = with(LONG, &["--html", &page]);
    refused(&args, &["cannot write", "--html", "ermission"]);
}

/// The lab's tests have all that is refused.
#[test]
fn a_refusal_names_the_remedy() {
    let nowhere = "compare random --vary record=1,2";
    refused(&with(nowhere, &[]), &["no source named", "--on"]);
    for (text, parts) in [
        ("streams", &["no values named", "KEY=VALUE"][..]),
        (
            "streems=1,2",
            &[
                "unknown parameter in --vary: 'streems'",
                "nearest: streams",
                "'foreread list workloads'",
            ],
        ),
        ("policy.triger=1,2", &["nearest: policy.trigger"]),
        (
            "streams=0,1",
            &["bad workload", "streams=0", "'foreread list workloads'"],
        ),
        (
            "policy.trigger=1,x",
            &["bad policy", "trigger=x", "'foreread list policies'"],
        ),
        (
            "streams=1,1000000",
            &["bad workload", "with streams=1000000"],
        ),
        ("x\u{1b}[31m=1", &["unknown parameter"]),
    ] {
        let asked = "compare interleaved --on model:rbd --policy rbd-plain --vary";
        refused(&with(asked, &[text]), parts);
    }
}
