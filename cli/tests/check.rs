//! Tests `foreread check` and other commands that are separate programs: the program is searched for next to this one,
//! and gets the arguments unchanged.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

/// `foreread` in a folder, beside what its `foreread-check` prints as a script.
fn run(script: Option<&str>, args: &[&str]) -> Output {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let own = dir.path().join("foreread");
    fs::hard_link(env!("CARGO_BIN_EXE_foreread"), &own)
        .or_else(|_| fs::copy(env!("CARGO_BIN_EXE_foreread"), &own).map(drop))
        .expect("the binary");
    if let Some(script) = script {
        let other = dir.path().join("foreread-check");
        fs::write(&other, format!("#!/bin/sh\n{script}\n")).expect("room");
        fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).expect("ours");
    }
    Command::new(own)
        .args(args)
        .env("PATH", "/usr/bin:/bin")
        .output()
        .expect("it starts")
}

#[test]
fn the_program_beside_gets_the_words_and_gives_its_exit_code() {
    let given = [
        (
            &["check", "reproduce", "all", "--json", "-"][..],
            "reproduce all --json -",
        ),
        (&["check", "conform", "linux", "-h"], "conform linux -h"),
        (&["check", "bench"], "bench"),
        (&["check"], ""),
        (
            &["--log", "debug", "check", "bench", "hit", "--force"],
            "bench --log=debug hit --force",
        ),
    ];
    for (args, expected) in given {
        let got = run(Some("echo \"$*\"; exit 9"), args);
        assert_eq!(got.status.code(), Some(9), "{args:?}");
        assert_eq!(
            String::from_utf8_lossy(&got.stdout).trim_end(),
            expected,
            "{args:?}"
        );
    }
}

#[test]
fn a_program_of_another_version_is_named_with_both_versions() {
    let own = env!("CARGO_PKG_VERSION");
    for (theirs, warned) in [("0.0.7", true), (own, false)] {
        let answers = format!("[ \"$1\" = --version ] && echo foreread-check {theirs} && exit");
        let got = run(
            Some(&format!("{answers}\necho ran; exit 9")),
            &["check", "bench"],
        );
        assert_eq!(got.status.code(), Some(9), "{theirs}");
        assert_eq!(String::from_utf8_lossy(&got.stdout), "ran\n");
        let line = String::from_utf8_lossy(&got.stderr).into_owned();
        assert_eq!(line.lines().count(), usize::from(warned), "{line}");
        let both = format!("has version 0.0.7 and this foreread has version {own}: ");
        assert_eq!(line.contains(&both), warned, "{line}");
    }
}

#[test]
fn without_it_the_error_says_how_to_get_it() {
    for args in [&["check", "reproduce", "all"][..], &["check"]] {
        let got = run(None, args);
        let line = String::from_utf8_lossy(&got.stderr).into_owned();
        assert_eq!(got.status.code(), Some(3), "{line}");
        assert!(
            line.starts_with("foreread: 'check' needs the program foreread-check, "),
            "{line}"
        );
        assert!(
            line.contains("cargo install --path check") && line.lines().count() == 1,
            "{line}"
        );
    }
}
