//! Tests that the help of every command fits one screen, that the files generated from the arguments are complete, and that
//! commands which are separate programs (`foreread check`) get their words. The texts are in `snapshots/`.

use crate::common::{BINARY, FOREREAD, Got, foreread, says, text};
use foreread_testing::rows;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

#[test]
fn short_help_fits_24_lines_of_80_columns() {
    FOREREAD.fits(&[]);
    // `check` is another program, which may not be there.
    for command in FOREREAD.commands().iter().filter(|name| *name != "check") {
        FOREREAD.fits(&[command]);
    }
}

#[test]
fn without_a_command_the_help_goes_to_stderr() {
    let got = foreread::<&str>([]);
    assert_eq!((got.code, got.out.as_str()), (Some(2), ""));
    says(&got.err, &["Usage: foreread"]);
    let version = format!("foreread {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(foreread(["-V"]).is_done(), version);
    let long = foreread(["--version"]).is_done().to_string();
    assert!(long.starts_with(&(version + "features: ")), "{long}");
    for path in [&["compare"][..], &["trace", "import"]] {
        let asked = foreread([&["help"], path].concat());
        let long = foreread([path, &["--help"]].concat());
        assert_eq!(asked.is_done(), long.is_done(), "{path:?}");
    }
}

#[test]
fn completions_and_manual_pages_have_every_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = foreread(["completions", shell]);
        for command in FOREREAD.commands() {
            says(script.is_done(), &[&command]);
        }
    }
    says(foreread(["man"]).is_done(), &[".TH foreread 1"]);
    let dir = tempfile::tempdir().expect("a scratch directory");
    foreread(["man", text(dir.path())]).is_done();
    for command in FOREREAD.commands() {
        let path = dir.path().join(format!("foreread-{command}.1"));
        renders(&fs::read_to_string(&path).unwrap_or_else(|error| panic!("{command}: {error}")));
    }
}

/// Has groff read the page, where groff is installed: it must complain of nothing.
fn renders(page: &str) {
    let mut groff = Command::new("groff");
    let groff = groff.args(["-man", "-Tascii", "-ww"]).stdin(Stdio::piped());
    let groff = groff.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut groff) = groff else {
        println!("skipped: needs groff to render the manual pages");
        return;
    };
    let mut input = groff.stdin.take().expect("piped");
    std::io::Write::write_all(&mut input, page.as_bytes()).expect("groff reads");
    drop(input);
    let got = Got::from(&groff.wait_with_output().expect("groff ends"));
    assert!(!got.is_done().is_empty());
}

/// `foreread` in a folder, beside a script that is its `foreread-check`.
fn beside(script: Option<&str>, args: &str) -> Got {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let own = dir.path().join("foreread");
    let linked = fs::hard_link(BINARY, &own);
    let linked = linked.or_else(|_| fs::copy(BINARY, &own).map(drop));
    linked.expect("the binary");
    if let Some(script) = script {
        let other = dir.path().join("foreread-check");
        fs::write(&other, format!("#!/bin/sh\n{script}\n")).expect("room");
        fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).expect("ours");
    }
    let mut command = Command::new(own);
    let command = command.args(args.split(' ')).env("PATH", "/usr/bin:/bin");
    Got::from(&command.output().expect("it starts"))
}

#[test]
fn the_program_beside_gets_the_words_and_gives_its_exit_code() {
    let table = "check reproduce all --json - | reproduce all --json -
        check conform linux -h | conform linux -h
        check bench | bench
        check |
        --log debug check bench hit --force | bench --log=debug hit --force";
    for [args, expected] in rows(table) {
        let got = beside(Some("echo \"$*\"; exit 9"), args);
        let passed = (got.code, got.out.trim_end());
        assert_eq!(passed, (Some(9), expected), "{args}");
    }
    // One of another version is named with both versions.
    let own = env!("CARGO_PKG_VERSION");
    for (theirs, warned) in [("0.0.7", true), (own, false)] {
        let says = format!("echo foreread-check {theirs} && exit");
        let script = format!("[ \"$1\" = --version ] && {says}\necho ran; exit 9");
        let got = beside(Some(&script), "check bench");
        assert_eq!((got.code, got.out.as_str()), (Some(9), "ran\n"), "{theirs}");
        assert_eq!(got.err.lines().count(), usize::from(warned), "{}", got.err);
        let both = format!("has version 0.0.7 and this foreread has version {own}: ");
        assert_eq!(got.err.contains(&both), warned, "{}", got.err);
    }
}

#[test]
fn without_it_the_error_says_how_to_get_it() {
    for args in ["check reproduce all", "check"] {
        let got = beside(None, args);
        let ended = (got.code, got.err.lines().count());
        assert_eq!(ended, (Some(3), 1), "{}", got.err);
        let needs = "foreread: 'check' needs the program foreread-check, ";
        says(&got.err, &[needs, "cargo install --path check"]);
    }
}
