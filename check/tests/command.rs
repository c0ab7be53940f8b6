//! Tests of the behaviour that all commands of `foreread-check` share: help, outputs, errors.

use crate::common::foreread;
use crate::common::help::{fits, listed};
use crate::common::odd::survive_odd_arguments;
use crate::common::outputs::no_command_follows_a_link;
use std::path::Path;

#[test]
fn short_help_fits_24_lines_of_80_columns() {
    fits(&[]);
    assert_eq!(
        listed(foreread(["-h"]).is_done()),
        ["reproduce", "conform", "bench", "replay-log", "store"]
    );
}

#[test]
fn no_output_follows_a_link_or_replaces_a_file_unasked() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = [
        "bench sim --json OUT",
        "bench policies --json OUT",
        "reproduce crume-2014 --json OUT",
    ];
    no_command_follows_a_link(&options, dir.path(), Path::new(""));
}

#[test]
fn manual_pages_and_completions_are_written() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    foreread(["man", &dir.path().to_string_lossy()]).is_done();
    for name in ["", "-reproduce", "-conform", "-bench", "-bench-policies"] {
        let page = dir.path().join(format!("foreread-check{name}.1"));
        let text = std::fs::read_to_string(&page)
            .unwrap_or_else(|error| panic!("{}: {error}", page.display()));
        assert!(text.contains(".SH NAME"), "{name}");
    }
    let script = foreread(["completions", "bash"]);
    assert!(script.is_done().contains("reproduce"), "{}", script.out);
}

#[test]
fn odd_arguments_never_panic() {
    survive_odd_arguments(&[
        &[],
        &["bench"],
        &["replay-log"],
        &["reproduce", "--runs"],
        &["conform", "linux", "--check"],
    ]);
}

#[test]
fn a_password_in_a_name_is_not_repeated() {
    for name in [
        "http://user:canary9f3e@127.0.0.1:1/x?token=canary9f3e",
        "s3://KEY:canary9f3e@bucket/key",
        "nbd://user:canary9f3e@127.0.0.1:1/disk",
    ] {
        let got = foreread(["conform", "linux", "--check", name]);
        assert_ne!(got.code, Some(0), "{name}");
        assert!(!(got.out + &got.err).contains("canary9f3e"), "{name}");
    }
}
