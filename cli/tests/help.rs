//! The help of every command fits one screen, and what is generated from the arguments is whole.

use crate::common::foreread;
use crate::common::help::{fits, listed};
use std::process::{Command, Stdio};

const COMMANDS: [&str; 23] = [
    "mount",
    "serve",
    "run",
    "warm",
    "plan",
    "replay",
    "doctor",
    "compare",
    "tune",
    "probe",
    "record",
    "explain",
    "watch",
    "trace",
    "list",
    "cache",
    "check",
    "sweep",
    "umount",
    "health",
    "next",
    "completions",
    "man",
];

/// What is below a command.
const BELOW: [(&str, &[&str]); 3] = [
    ("trace", &["import", "export", "info", "formats"]),
    ("list", &["policies", "models", "workloads"]),
    ("cache", &["list", "stat", "verify", "trim", "remove"]),
];

#[test]
fn short_help_fits_24_lines_of_80_columns() {
    fits(&[]);
    let top = foreread(["-h"]);
    let words = Vec::from_iter(top.is_done().split(|c: char| !c.is_alphanumeric()));
    for command in COMMANDS {
        assert!(words.contains(&command), "{command} is not listed");
        // `check` is another program, which may not be there.
        if command != "check" {
            fits(&[command]);
        }
    }
    for (command, below) in BELOW {
        assert_eq!(listed(foreread([command, "-h"]).is_done()), below);
    }
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
        ("watch", "Changes and records nothing"),
        ("serve", "There is no password and no encryption"),
        ("mount", "a second Ctrl-C ends it at once"),
        ("next", "as far as its policy's distance"),
        ("cache", "Other processes may use the cache meanwhile"),
        ("trace import", "units become nanoseconds and bytes"),
        ("trace export", "Records that the format cannot express"),
    ] {
        let help = |option| foreread(command.split(' ').chain([option]));
        let (short, long) = (help("-h"), help("--help"));
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
    let version = format!("foreread {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(foreread(["-V"]).is_done(), version);
    let long = foreread(["--version"]).is_done().to_string();
    let (first, features) = long.split_at(version.len());
    assert_eq!(first, version);
    assert!(
        features.starts_with("features: ") && features.contains("lab"),
        "{long}"
    );
}

#[test]
fn help_and_an_old_name_lead_to_the_command() {
    for path in [&["compare"][..], &["trace", "import"], &["mount"]] {
        let asked = foreread([&["help"], path].concat());
        let long = foreread([path, &["--help"]].concat());
        assert_eq!(asked.is_done(), long.is_done(), "{path:?}");
    }
    let old = foreread(["--log", "warn", "policies", "--json"]);
    let now = foreread(["list", "policies", "--json"]);
    assert_eq!((old.code, old.out.as_str()), (Some(0), now.is_done()));
    assert_eq!(
        old.err,
        "foreread: 'policies' is 'list policies' now; the old name goes with the release after 0.2\n"
    );
    // The same word below another command is no old name.
    let below = foreread(["trace", "models"]).err;
    assert!(
        below.contains("unrecognized subcommand 'models'"),
        "{below}"
    );
    let line = foreread(["import"]);
    assert!(
        line.err.contains("see 'foreread trace import -h'"),
        "{}",
        line.err
    );
}

#[test]
fn only_what_is_like_a_wrong_name_is_suggested() {
    for (wrong, line) in [
        (
            "cmpare",
            "foreread: unknown command: 'cmpare'; nearest: compare; 'foreread -h' lists them\n",
        ),
        (
            "xyz",
            "foreread: unknown command: 'xyz'; 'foreread -h' lists them\n",
        ),
    ] {
        for path in [&[wrong][..], &["help", wrong]] {
            assert_eq!(foreread(path).err, line);
        }
    }
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
