//! Bad usage and bad input: one line that says what, where and what to do, exit code 2, never a panic.

mod common;
use common::foreread;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

#[track_caller]
fn refused(args: &[&str], parts: &[&str]) {
    let got = foreread(args);
    let line = got.is_refused();
    for part in parts {
        assert!(line.contains(part), "{args:?}: '{part}' is not in: {line}");
    }
}

#[test]
fn unknown_names_get_the_nearest_and_the_list() {
    refused(&["compre"], &["'compre'", "nearest: compare", "'foreread -h' lists"]);
    refused(&["compare", "--policy", "linux-6"], &["'linux-6'", "nearest: linux-6.18", "'foreread policies' lists"]);
    refused(&["compare", "--policy", "rbd-plain:triger=3"], &["'triger'", "nearest: trigger", "'foreread policies'"]);
    refused(&["compare", "--polcy", "none"], &["'--polcy'", "'--policy'", "'foreread compare -h'"]);
    refused(&["compare", "sequentail"], &["'sequentail'", "nearest: sequential", "'foreread workloads' lists"]);
    refused(&["compare", "random:recrod=4K"], &["'recrod'", "nearest: record", "'foreread workloads' lists"]);
    refused(&["compare", "--on", "model:rdb"], &["'rdb'", "nearest: rbd", "'foreread models' lists"]);
    refused(&["bench", "hits"], &["'hits'", "'hit'", "'foreread bench -h'"]);
    refused(&["completions", "bsh"], &["'bsh'", "'bash'"]);
}

#[test]
fn sizes_and_numbers() {
    refused(&["compare", "--cache", "99999999999999999999"], &["--cache", "too large"]);
    refused(&["compare", "--cache", "9999999999999T"], &["--cache", "too large"]);
    refused(&["compare", "--size", "0"], &["--size", "zero bytes"]);
    refused(&["compare", "--size", "12Q"], &["--size", "not a size"]);
    refused(&["compare", "--page", "3000"], &["--page", "power of two"]);
    refused(&["compare", "--page", "2M"], &["--page", "power of two"]);
    refused(&["compare", "--runs", "0"], &["--runs", "1..=1000"]);
    refused(&["compare", "--runs", "many"], &["--runs"]);
    refused(&["compare", "--seed", "18446744073709551616"], &["--seed"]);
    refused(&["compare", "--policy", "rbd-plain:max=9999999999999T"], &["max", "too large"]);
}

#[test]
fn prices_and_the_oracle() {
    for price in ["", "gb=-1", "gb=NaN", "requests=inf", "reqests=1", "gb=1,gb=1", "s3"] {
        refused(&["compare", "--price", price], &["--price", "requests=USD,gb=USD", "s3-2026-11"]);
    }
    refused(&["compare", "--policy", "oracle"], &["scratch file", "--on model:NAME"]);
    refused(&["compare", "--policy", "oracle", "--on", "Cargo.toml"], &["Cargo.toml", "--on model:NAME"]);
}

#[test]
fn sources_that_cannot_be_measured() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let empty = dir.path().join("empty");
    std::fs::write(&empty, b"").expect("written");
    refused(&["compare", "--on", &dir.path().to_string_lossy()], &["directory", "--on"]);
    refused(&["compare", "--on", &format!("file:{}", empty.display())], &["empty", "--on"]);
    refused(&["compare", "--on", &dir.path().join("gone").to_string_lossy()], &["no such file", "gone"]);
    refused(&["compare", "--on", "gopher://host/x"], &["unknown kind of source 'gopher'", "'foreread models'"]);
    refused(&["compare", "--on", ""], &["no source named"]);
    let file = dir.path().join("file");
    std::fs::write(&file, vec![0; 1 << 20]).expect("written");
    let remedy = "and a file is only read here; use --on model:NAME ('foreread models' lists them)";
    refused(&["compare", "readers", "--on", &file.to_string_lossy()], &["readers opens 4 files of its own,", remedy]);
    let faults = ["compare", "mmap-console:bytes=1M", "--on", &file.to_string_lossy()];
    refused(&faults, &["mmap-console:bytes=1M takes page faults in mapped files,", remedy]);
}

#[test]
fn a_file_without_permission() {
    use std::os::unix::fs::PermissionsExt;
    let file = tempfile::NamedTempFile::new().expect("a scratch file");
    std::fs::write(file.path(), b"bytes").expect("written");
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o000)).expect("changed");
    if std::fs::File::open(file.path()).is_ok() {
        println!("skipped: needs a user that may not read everything, not root");
        return;
    }
    refused(&["compare", "--on", &file.path().to_string_lossy()], &["no permission", "--on"]);
}

#[test]
fn json_that_cannot_be_written_is_said_before_anything_is_measured() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let nowhere = dir.path().join("none/such.json");
    refused(&["compare", "--json", &dir.path().to_string_lossy()], &["cannot write", "directory"]);
    refused(&["compare", "--json", &nowhere.to_string_lossy()], &["cannot write", "does not exist"]);
    refused(&["compare", "--json", ""], &["--json"]);
    refused(&["man", &nowhere.to_string_lossy()], &["not a directory"]);
}

#[test]
fn odd_arguments_never_panic() {
    let bytes = OsStr::from_bytes(b"\xff\xfe/\x01");
    let long = OsString::from("x".repeat(100_000));
    let newline = OsStr::new("two\nlines\x1b[31m");
    let odd = [OsStr::new(""), bytes, &long, newline, OsStr::new("-"), OsStr::new("--"), OsStr::new("\u{1f600}")];
    let places: [&[&str]; 12] = [
        &[],
        // Never just `compare`: with `--` for the odd argument it would measure for 90 s.
        &["compare", "--json", "/"],
        &["compare", "--on"],
        &["compare", "--on", "file:"],
        &["compare", "--policy"],
        &["compare", "--cache"],
        &["compare", "--json", "/", "--on"],
        &["replay-log"],
        &["bench"],
        &["completions"],
        &["man"],
        &["policies"],
    ];
    for place in places {
        for odd in odd {
            let args = place.iter().map(OsStr::new).chain([odd]);
            let what = format!("{place:?} {}", odd.display().to_string().chars().take(20).collect::<String>());
            // What an odd argument does where anything may be said is the command's matter; here it must end well.
            let got = foreread(args);
            let code = got.code.unwrap_or_else(|| panic!("{what}: ended by a signal"));
            assert!(code == 2 || code == 0, "{what}: exit code {code}: {}", got.err);
            assert!(!got.err.contains("panicked"), "{what}: {}", got.err);
            assert!(!got.err.contains('\u{1b}'), "{what}: an escape reached the terminal: {}", got.err);
            let lines = got.err.lines().count();
            assert!(lines <= 1 || got.err.contains("Usage: foreread"), "{what}: {lines} lines: {}", got.err);
            assert!(got.err.len() < 3000, "{what}: {} bytes of error", got.err.len());
        }
    }
}
