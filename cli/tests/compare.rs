//! `compare`'s text, end to end: what comes first and last, and what Ctrl-C leaves.

use crate::common::{foreread, recorded::text};
use assert_cmd::cargo::cargo_bin;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

#[test]
fn a_workload_is_one_screen_with_the_next_command_last() {
    let got = foreread(["compare", "boot-ide", "--on", "model:rbd", "--runs", "3"]);
    let shown = got.is_done();
    assert!(
        shown.starts_with("Use ") && shown.ends_with("    foreread tune --on model:rbd -- CMD\n"),
        "{shown}"
    );
    assert!(shown.lines().count() <= 24, "{shown}");
    for words in [
        "none=1",
        "requests",
        "asked",
        "latency",
        "speed: times as fast as none",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let once = [
        "compare",
        "random",
        "--on",
        "model:rbd",
        "--runs",
        "1",
        "--policy",
        "auto",
    ];
    let got = foreread(once);
    assert!(
        got.is_done()
            .ends_with("    foreread compare random --on model:rbd --policy auto --runs 5\n"),
        "{}",
        got.out
    );
}

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
    let kill = ["-INT".to_string(), child.id().to_string()];
    let sent = Command::new("kill").args(kill).status();
    assert!(sent.is_ok_and(|sent| sent.success()));
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
