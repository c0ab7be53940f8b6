//! Tests of `compare`: a series in all its output forms, and the output after Ctrl-C: the tables that were measured,
//! and a list of those that were not.

use crate::common::foreread;
use crate::common::process::signal;
use crate::common::recorded::text;
use assert_cmd::cargo::cargo_bin;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

/// The first table is said on stderr; Ctrl-C then ends the comparison with what there is.
#[test]
fn ctrl_c_prints_what_was_measured_and_what_was_not() {
    let mut command = Command::new("env");
    // A test that is begun in the background has no SIGINT to give on.
    command.args(["--default-signal=INT", text(&cargo_bin("foreread"))]);
    command.args(["compare", "--on", "model:rbd", "--runs", "40"]);
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("it starts");
    let mut said = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut err = String::new();
    said.read_line(&mut err).expect("a line");
    assert!(
        err.starts_with("foreread: sequential on model:rbd: "),
        "{err}"
    );
    signal(child.id(), "-INT");
    let out = child.stdout.take().expect("a pipe");
    let out = std::io::read_to_string(out).expect("text");
    said.read_to_string(&mut err).expect("text");
    let code = child.wait().expect("it ends").code();
    assert_eq!(code, Some(130), "{err}");
    assert!(
        out.contains("\nsequential on model:rbd (") && out.contains("time: mean ± half"),
        "{out}"
    );
    assert!(
        err.contains("foreread: interrupted; not measured: ")
            && err.ends_with("boot-ide on model:rbd\n"),
        "{err}"
    );
}

#[test]
fn a_series_for_people_for_programs_and_as_a_page() {
    let series = |more: &[&str]| {
        let fixed = "interleaved --on model:hdd-theory --size 16M --runs 2 --vary streams=1,4";
        let words = ["compare"].into_iter().chain(fixed.split(' '));
        foreread(words.chain(more.iter().copied()))
    };
    let dir = tempfile::tempdir().expect("a scratch directory");
    let (html, json) = (dir.path().join("x.html"), dir.path().join("x.json"));
    let (html_text, json_text) = (html.to_string_lossy(), json.to_string_lossy());
    let got = series(&["--html", &html_text, "--json", &json_text]);
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
    // With '-' the JSON takes the place of the text.
    let only = series(&["--json", "-"]);
    assert_eq!(read(only.is_done()), value);
}
