//! `--html`, end to end: a page is written beside the other results, and refused before anything is measured.

use crate::common::foreread;
use crate::common::html::inside;

const COMPARE: [&str; 8] = [
    "compare",
    "sequential",
    "--on",
    "model:rbd",
    "--size",
    "4M",
    "--runs",
    "2",
];

#[test]
fn the_page_has_the_json_and_a_map_of_each_policy() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let (page, json) = (dir.path().join("page.html"), dir.path().join("all.json"));
    let (page_text, json_text) = (page.to_string_lossy(), json.to_string_lossy());
    let files = ["--html", &page_text, "--json", &json_text];
    foreread(COMPARE.iter().copied().chain(files)).is_done();
    let written: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&json).expect("written")).expect("JSON");
    assert_eq!(inside(&page), written);
    let html = std::fs::read_to_string(&page).expect("written");
    assert_eq!(
        html.matches("Reads of the first run of ").count(),
        6,
        "none, auto, linux-6.18 with three windows, rbd-plain"
    );
    let vary = [
        "--vary",
        "policy.max=16K,1M",
        "--html",
        &page_text,
        "--force",
    ];
    foreread(COMPARE.iter().copied().chain(vary)).is_done();
    assert_eq!(inside(&page)["schema"], "foreread.vary/1");
}

#[test]
fn probe_writes_a_page_too() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let page = dir.path().join("page.html");
    let text = page.to_string_lossy();
    foreread([
        "probe",
        "model:hdd-theory",
        "--seconds",
        "1",
        "--html",
        &text,
    ])
    .is_done();
    assert_eq!(inside(&page)["schema"], "foreread.probe/1");
}

/// With the same JSON inside as `--json` writes.
#[test]
fn tune_explain_and_run_write_pages_too() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    let (csv, page, json) = (path("reads.csv"), path("page.html"), path("all.json"));
    std::fs::write(&csv, "offset,len\n0,4096\n4096,4096\n8192,4096\n").expect("room");
    for command in [
        &["tune", &csv, "--on", "model:nvme"][..],
        &["explain", &csv, "--alone"],
        &["explain", &csv, "--on", "model:nvme"],
        &["run", "--quiet"],
    ] {
        let files = ["--html", &page, "--json", &json, "--force"];
        let program = (command[0] == "run").then_some(["--", "true"]);
        let words = command
            .iter()
            .copied()
            .chain(files)
            .chain(program.into_iter().flatten());
        foreread(words).is_done();
        let written = std::fs::read_to_string(&json).expect("written");
        let written: serde_json::Value = serde_json::from_str(&written).expect("JSON");
        assert_eq!(inside(std::path::Path::new(&page)), written, "{command:?}");
        assert_eq!(written["schema"], format!("foreread.{}/1", command[0]));
    }
}

#[test]
fn a_page_that_cannot_be_written_is_refused_first() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let file = dir.path().join("one").to_string_lossy().into_owned();
    let both = ["--html", &file, "--json", &file];
    let line = foreread(COMPARE.iter().copied().chain(both))
        .is_refused()
        .to_string();
    assert!(
        line.contains("one file named twice: --json and --html"),
        "{line}"
    );
    let nowhere = dir
        .path()
        .join("no/where.html")
        .to_string_lossy()
        .into_owned();
    for command in [&COMPARE[..], &["probe", "model:rbd"]] {
        let line = foreread(command.iter().copied().chain(["--html", &nowhere]))
            .is_refused()
            .to_string();
        assert!(
            line.contains("--html") && line.contains("does not exist"),
            "{command:?}: {line}"
        );
    }
}
