//! What Ctrl-C leaves of `compare`: the tables that were measured, and what was not.

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
