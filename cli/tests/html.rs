//! End-to-end tests of `--html`: a page is written in addition to the other results, and embeds their JSON.

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
fn the_page_has_the_json_and_three_charts() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let (page, json) = (dir.path().join("page.html"), dir.path().join("all.json"));
    let (page_text, json_text) = (page.to_string_lossy(), json.to_string_lossy());
    let files = ["--html", &page_text, "--json", &json_text];
    foreread(COMPARE.iter().copied().chain(files)).is_done();
    let written: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&json).expect("written")).expect("JSON");
    assert_eq!(inside(&page), written);
    let html = std::fs::read_to_string(&page).expect("written");
    assert_eq!(html.matches("<svg").count(), 3, "times, bytes, latencies");
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

/// With the same JSON inside as `--json` writes.
#[test]
fn other_commands_write_pages_too() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    let (csv, page, json) = (path("reads.csv"), path("page.html"), path("all.json"));
    std::fs::write(&csv, "offset,len\n0,4096\n4096,4096\n8192,4096\n").expect("room");
    for command in [
        &["tune", &csv, "--on", "model:nvme"][..],
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
