//! The help of every command fits one screen, and what is generated from the arguments is whole.

use crate::common::foreread;
use crate::common::help::{fits, listed};
use std::process::{Command, Stdio};

const COMMANDS: [&str; 29] = [
    "cache",
    "compare",
    "doctor",
    "explain",
    "tune",
    "serve",
    "mount",
    "next",
    "probe",
    "record",
    "run",
    "sweep",
    "watch",
    "plan",
    "replay",
    "warm",
    "import",
    "export",
    "trace",
    "conform",
    "check",
    "policies",
    "models",
    "workloads",
    "replay-log",
    "bench",
    "reproduce",
    "completions",
    "man",
];

#[test]
fn short_help_fits_24_lines_of_80_columns() {
    fits(&[]);
    let top = foreread(["-h"]);
    let all = listed(top.is_done());
    for command in COMMANDS {
        assert!(
            all.iter().any(|c| c == command) || top.out.contains(command),
            "{command} is not listed"
        );
    }
    for command in &all {
        assert!(
            COMMANDS.contains(&command.as_str()),
            "{command} is not in the list of this test"
        );
    }
    for command in [
        "cache",
        "completions",
        "doctor",
        "man",
        "replay-log",
        "watch",
    ] {
        fits(&[command]);
    }
    assert_eq!(
        listed(foreread(["trace", "-h"]).is_done()),
        ["info", "formats"]
    );
    assert!(top.out.contains("Example:"));
    assert!(foreread(["compare", "-h"]).out.contains("Examples:"));
}

#[test]
fn long_help_says_more_than_short_help() {
    let (short, long) = (foreread(["compare", "-h"]), foreread(["compare", "--help"]));
    assert!(long.is_done().lines().count() > short.is_done().lines().count());
    // A sentence of the second paragraph of each: a comment on the list of commands hid these texts once.
    for (command, words) in [
        ("compare", "Without arguments it makes a scratch file"),
        ("explain", "what was read ahead, used, late, never read"),
        ("tune", "All steps in one command"),
        ("doctor", "explains it by the rule of the kernel"),
        ("probe", "The simplest model that fits is chosen"),
        ("record", "The command has the terminal"),
        ("run", "Where there is nothing to gain it stops watching"),
        ("watch", "Two recordings one after the other"),
        ("serve", "There is no password and no encryption"),
        ("mount", "a second Ctrl-C ends it at once"),
        ("next", "as far as its policy's distance"),
        ("cache", "Other processes may use the cache meanwhile"),
        ("import", "units become nanoseconds and bytes"),
        ("export", "Records that the format cannot express"),
        ("replay-log", "A fresh core fed with the same events"),
    ] {
        let (short, long) = (foreread([command, "-h"]), foreread([command, "--help"]));
        let joined = long
            .is_done()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        assert!(
            joined.contains(words),
            "{command} --help lacks {words:?}:\n{}",
            long.out
        );
        assert!(
            !short.is_done().contains(words),
            "{command} -h is the short text:\n{}",
            short.out
        );
        assert_eq!(
            long.out.lines().next(),
            short.out.lines().next(),
            "{command}: the same first line"
        );
    }
    assert!(foreread(["--help"]).is_done().contains("Exit codes"));
}

#[test]
fn without_a_command_the_help_goes_to_stderr() {
    let got = foreread::<&str>([]);
    assert_eq!((got.code, got.out.as_str()), (Some(2), ""));
    assert!(got.err.contains("Usage: foreread"), "{}", got.err);
    assert_eq!(
        foreread(["--version"]).is_done(),
        format!("foreread {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn completions_name_every_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = foreread(["completions", shell]);
        for command in COMMANDS {
            assert!(
                script.is_done().contains(command),
                "{shell} does not know {command}"
            );
        }
    }
}

#[test]
fn manual_pages_are_written_and_render() {
    let page = foreread(["man"]);
    assert!(
        page.is_done().contains(".TH foreread 1") && page.out.contains(".SH SYNOPSIS"),
        "{}",
        page.out
    );
    let dir = tempfile::tempdir().expect("a scratch directory");
    foreread(["man", dir.path().to_str().expect("UTF-8")]).is_done();
    for command in COMMANDS {
        let path = dir.path().join(format!("foreread-{command}.1"));
        let page = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(
            page.contains(".TH ") && page.contains(".SH NAME"),
            "{command}"
        );
        renders(&page);
    }
    assert!(dir.path().join("foreread.1").exists());
}

/// Has groff read the page, where groff is installed: it must complain of nothing.
fn renders(page: &str) {
    let groff = Command::new("groff")
        .args(["-man", "-Tascii", "-ww"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut groff) = groff else {
        println!("skipped: needs groff to render the manual pages");
        return;
    };
    std::io::Write::write_all(&mut groff.stdin.take().expect("piped"), page.as_bytes())
        .expect("groff reads");
    let output = groff.wait_with_output().expect("groff ends");
    assert!(output.status.success() && !output.stdout.is_empty());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
