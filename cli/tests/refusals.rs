//! Bad usage and bad input: one line that says what, where and what to do, exit code 2, never a panic.

use crate::common::foreread;
use crate::common::odd::survive_odd_arguments;

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
    refused(
        &["compre"],
        &["'compre'", "nearest: compare", "'foreread -h' lists"],
    );
    refused(
        &["compare", "--policy", "linux-6"],
        &[
            "'linux-6'",
            "nearest: linux-6.18",
            "'foreread list policies' lists",
        ],
    );
    refused(
        &["compare", "--policy", "rbd-plain:triger=3"],
        &["'triger'", "nearest: trigger", "'foreread list policies'"],
    );
    refused(
        &["compare", "--polcy", "none"],
        &["'--polcy'", "'--policy'", "'foreread compare -h'"],
    );
    refused(
        &["compare", "sequentail"],
        &[
            "'sequentail'",
            "nearest: sequential",
            "'foreread list workloads' lists",
        ],
    );
    refused(
        &["compare", "random:recrod=4K"],
        &[
            "'recrod'",
            "nearest: record",
            "'foreread list workloads' lists",
        ],
    );
    refused(
        &["compare", "--on", "model:rdb"],
        &["'rdb'", "nearest: rbd", "'foreread list models' lists"],
    );
    refused(&["completions", "bsh"], &["'bsh'", "'bash'"]);
}

/// A command without '--' before it.
#[test]
fn a_command_that_is_to_run_comes_behind_two_dashes() {
    for words in [
        &["run", "true"][..],
        &["replay", "a.plan", "true"],
        &["record", "-o", "a.frt", "true"],
    ] {
        refused(
            words,
            &[
                "unexpected argument 'true'",
                "write '--' before the command that is to run",
            ],
        );
    }
    refused(
        &["tune", "true"],
        &["no such trace: true", "foreread tune -- CMD"],
    );
    for words in [
        &["run", "--nope", "--", "true"][..],
        &["trace", "formats", "true"],
    ] {
        assert!(
            !foreread(words).is_refused().contains("write '--'"),
            "{words:?}"
        );
    }
}

#[test]
fn sizes_and_numbers() {
    refused(
        &["compare", "--cache", "99999999999999999999"],
        &["--memory", "too large"],
    );
    refused(
        &["compare", "--memory", "9999999999999T"],
        &["--memory", "too large"],
    );
    let on_model = [
        "compare",
        "sequential",
        "--on",
        "model:nvme",
        "--size",
        "1M",
        "--runs",
        "1",
        "--cache",
    ];
    let with = |cache: &'static str| on_model.into_iter().chain([cache]).collect::<Vec<_>>();
    refused(
        &with("5"),
        &[
            "memory of 5 B for the cache",
            "fewer than four pages",
            "from 16K to ",
        ],
    );
    refused(
        &with("100T"),
        &[
            "memory of 100T for the cache",
            "more pages than can be counted",
        ],
    );
    refused(
        &[
            "compare",
            "sequential",
            "--on",
            "Cargo.toml",
            "--cache",
            "1T",
        ],
        &["memory of 1T for the cache", "of the memory"],
    );
    #[cfg(feature = "serve")]
    refused(
        &["serve", "Cargo.toml", "--unix", "s", "--cache", "5"],
        &["'5'", "at least 1M"],
    );
    refused(&["compare", "--size", "0"], &["--size", "zero bytes"]);
    refused(&["compare", "--size", "12Q"], &["--size", "not a size"]);
    refused(&["compare", "--page", "3000"], &["--page", "power of two"]);
    refused(&["compare", "--page", "2M"], &["--page", "power of two"]);
    refused(&["compare", "--runs", "0"], &["--runs", "1..=1000"]);
    refused(&["compare", "--runs", "many"], &["--runs"]);
    refused(&["compare", "--seed", "18446744073709551616"], &["--seed"]);
    refused(
        &["compare", "--policy", "rbd-plain:max=9999999999999T"],
        &["max", "too large"],
    );
}

#[cfg(feature = "serve")]
#[test]
fn certificates_of_a_server() {
    let serve = ["serve", "Cargo.toml", "--unix", "s"];
    let with = |more: &[&'static str]| [&serve[..], more].concat();
    refused(&serve[..2], &["nowhere to listen", "--unix PATH", "--tcp"]);
    #[cfg(not(feature = "tls"))]
    assert!(
        foreread(with(&["--tls-certificates", "no/such"]))
            .err
            .contains("build it with --features tls")
    );
    #[cfg(feature = "tls")]
    {
        refused(
            &with(&["--tls-certificates", "no/such"]),
            &["missing", "no/such/server-cert.pem", "has to hold"],
        );
        refused(&with(&["--tls", "on"]), &["--tls-certificates"]);
        refused(&with(&["--tls-verify-peer"]), &["--tls-certificates"]);
        refused(
            &with(&["--tls-certificates", "x", "--tls", "off"]),
            &["'off'", "require", "on"],
        );
        let both = [
            "--tls-certificates",
            "x",
            "--tls",
            "on",
            "--tls-verify-peer",
        ];
        refused(
            &with(&both),
            &["--tls on: --tls-verify-peer; ", "leave --tls out"],
        );
    }
}

#[test]
fn prices_and_the_oracle() {
    for price in [
        "",
        "gb=-1",
        "gb=NaN",
        "requests=inf",
        "reqests=1",
        "gb=1,gb=1",
        "s3",
    ] {
        refused(
            &["compare", "--price", price],
            &["--price", "requests=USD,gb=USD", "s3-2026-11"],
        );
    }
    refused(
        &["compare", "--policy", "oracle"],
        &["scratch file", "--on model:NAME"],
    );
    refused(
        &["compare", "--policy", "oracle", "--on", "Cargo.toml"],
        &["Cargo.toml", "--on model:NAME"],
    );
}

#[test]
fn sources_that_cannot_be_measured() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let empty = dir.path().join("empty");
    std::fs::write(&empty, b"").expect("written");
    refused(
        &["compare", "--on", &dir.path().to_string_lossy()],
        &["directory", &dir.path().to_string_lossy(), "name a file"],
    );
    refused(
        &["compare", "--on", &format!("file:{}", empty.display())],
        &[
            "the file is empty, there is nothing to measure: file:/",
            "name a file",
        ],
    );
    refused(
        &[
            "compare",
            "--on",
            &dir.path().join("gone").to_string_lossy(),
        ],
        &["no such file", "gone"],
    );
    refused(
        &["compare", "--on", "gopher://host/x"],
        &["unknown kind of source 'gopher'", "'foreread list models'"],
    );
    refused(&["compare", "--on", ""], &["no source named"]);
    let file = dir.path().join("file");
    std::fs::write(&file, vec![0; 1 << 20]).expect("written");
    let remedy =
        "and a file is only read here; use --on model:NAME ('foreread list models' lists them)";
    refused(
        &["compare", "readers", "--on", &file.to_string_lossy()],
        &["readers opens 4 files,", remedy],
    );
    let faults = [
        "compare",
        "mmap-console:bytes=1M",
        "--on",
        &file.to_string_lossy(),
    ];
    refused(
        &faults,
        &[
            "mmap-console:bytes=1M takes page faults in mapped files,",
            remedy,
        ],
    );
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
    refused(
        &["compare", "--on", &file.path().to_string_lossy()],
        &["no permission", "--on"],
    );
}

#[test]
fn json_that_cannot_be_written_is_said_before_anything_is_measured() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let nowhere = dir.path().join("none/such.json");
    refused(
        &["compare", "--json", &dir.path().to_string_lossy()],
        &["cannot write", "directory"],
    );
    refused(
        &["compare", "--json", &nowhere.to_string_lossy()],
        &["cannot write", "does not exist"],
    );
    refused(&["compare", "--json", ""], &["--json"]);
    refused(&["man", &nowhere.to_string_lossy()], &["not a directory"]);
}

#[test]
fn what_is_cut_says_so() {
    let got = foreread([
        "compare",
        "sequential",
        "--on",
        "model:usb-2g",
        "--size",
        "100G",
        "--runs",
        "1",
        "--policy",
        "none",
    ]);
    let text = got.is_done().replace('\n', " ");
    assert!(
        text.contains("model:usb-2g holds ") && text.contains("--size 100G is cut to that."),
        "{text}"
    );
}

/// Each names what is missing and what to write.
#[test]
fn names_that_are_not_whole_are_answered_with_what_to_write() {
    let on = |name: &str, parts: &[&str]| refused(&["compare", "sequential", "--on", name], parts);
    #[cfg(feature = "rbd")]
    on(
        "rbd:pool",
        &["rbd:pool: no image is named", "write rbd:POOL/"],
    );
    #[cfg(feature = "object")]
    on(
        "s3:x",
        &["s3:x: it names no bucket", "write s3://BUCKET/KEY"],
    );
    #[cfg(feature = "object")]
    on(
        "s3://KEY:SECRET@b/k",
        &[
            "s3://b/k: the name of a bucket has no keys before it",
            "set AWS_ACCESS_KEY_ID",
        ],
    );
    #[cfg(feature = "serve")]
    {
        on(
            "nbd://nosuch.invalid/x",
            &[
                "nbd://nosuch.invalid/x: its host has no address",
                "check the host's name",
            ],
        );
        on(
            "nbd://127.0.0.1:1",
            &["Connection refused", "check that the server runs"],
        );
    }
    on("no/such/file", &["no such file", "name a file"]);
    #[cfg(not(feature = "mount"))]
    assert!(
        foreread(["mount", "a", "b"])
            .err
            .contains("build it with --features mount")
    );
}

#[cfg(feature = "object")]
#[test]
fn a_variable_that_cannot_be_used_is_refused_and_not_a_panic() {
    for (name, value) in [
        ("AWS_ENDPOINT_URL", "host:9000"),
        ("AWS_ENDPOINT_URL", "host"),
        ("AWS_SECRET_ACCESS_KEY", "x\n"),
    ] {
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_foreread"));
        command
            .args(["compare", "sequential", "--on", "s3://bucket/key"])
            .env("AWS_ACCESS_KEY_ID", "x")
            .env(name, value);
        let output = command.output().expect("the binary starts");
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(
            err.starts_with(&format!("foreread: s3://bucket/key: {name} "))
                && err.lines().count() == 1,
            "{err}"
        );
    }
}

/// A full disk and a closed pipe, wherever text or a trace is written.
#[test]
fn what_cannot_be_written_is_said_and_a_closed_pipe_is_not() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let trace = dir.path().join("t.csv");
    let lines: String = (0..40_000)
        .map(|n| format!("{},4096\n", n * 4096))
        .collect();
    std::fs::write(&trace, format!("offset,length\n{lines}")).expect("room");
    let trace = trace.to_str().expect("UTF-8");
    let commands: [&[&str]; 4] = [
        &["trace", "export", trace, "--format", "csv", "-o", "-"],
        &[
            "trace",
            "export",
            trace,
            "--format",
            "fio:version=2",
            "-o",
            "-",
        ],
        &["list", "policies", "--json"],
        &["compare", "-h"],
    ];
    for args in commands {
        let shell = |line: &str| {
            let mut command = std::process::Command::new("bash");
            command
                .args(["-c", line, "bash", env!("CARGO_BIN_EXE_foreread")])
                .args(args);
            let output = command.output().expect("a shell");
            (
                output.status.code(),
                String::from_utf8_lossy(&output.stderr).into_owned(),
            )
        };
        let (code, err) = shell("\"$@\" > /dev/full");
        assert!(
            err.contains("No space left") && err.contains("free some space"),
            "{args:?}: {err}"
        );
        assert_eq!((code, err.lines().count()), (Some(2), 1), "{args:?}: {err}");
        let closed = shell("\"$@\" | true; exit ${PIPESTATUS[0]}");
        assert_eq!(closed, (Some(0), String::new()), "{args:?}");
        // Nothing can be said on a closed stderr; the exit code still says it.
        let nonsense = shell("\"$@\" --nonsense 2> /dev/full; exit $?").0;
        assert!(
            nonsense == Some(2) || args.contains(&"-h"),
            "{args:?}: {nonsense:?}"
        );
    }
    for format in ["csv", "fio:version=2"] {
        let got = foreread([
            "trace",
            "export",
            trace,
            "--format",
            format,
            "-o",
            "/dev/full",
        ]);
        assert!(
            got.is_refused()
                .contains("cannot be written (No space left"),
            "{format}: {}",
            got.err
        );
    }
}

/// A panic is made on request in builds with debug assertions: in the main thread, and in another.
#[test]
fn a_panic_is_one_line_with_an_exit_code_of_its_own() {
    for place in ["main", "thread"] {
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_foreread"));
        let output = command
            .args(["list", "policies"])
            .env("FOREREAD_PANIC", place)
            .env_remove("RUST_BACKTRACE")
            .output();
        let output = output.expect("the binary starts");
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(70), "{err}");
        assert!(
            err.starts_with("foreread: internal error: ") && err.contains("please report it"),
            "{err}"
        );
        assert!(
            err.lines().count() == 1 && !err.contains("password"),
            "{err}"
        );
        assert_eq!(output.stdout.is_empty(), place == "main");
    }
}

#[test]
fn the_level_of_the_log_is_one_of_six() {
    refused(&["list", "policies", "--log", "loud"], &["'loud'", "--log"]);
    let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_foreread"));
    let output = command
        .args(["list", "policies"])
        .env("FOREREAD_LOG", "loud")
        .output()
        .expect("the binary starts");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(
        err.starts_with(
            "foreread: no level of a log: FOREREAD_LOG=loud; write off, error, warn, info"
        ),
        "{err}"
    );
}

#[test]
fn text_is_as_wide_as_the_terminal() {
    for (columns, most) in [("20", 40), ("60", 60), ("500", 200), ("wide", 100)] {
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_foreread"));
        command.args([
            "compare",
            "sequential",
            "--on",
            "model:nvme",
            "--size",
            "4M",
            "--runs",
            "2",
        ]);
        let output = command
            .env("COLUMNS", columns)
            .output()
            .expect("the binary starts");
        let text = String::from_utf8_lossy(&output.stdout);
        // A line to paste is not broken.
        let widest = text
            .lines()
            .filter(|line| !line.starts_with("    foreread "))
            .map(|line| line.chars().count())
            .max()
            .unwrap_or(0);
        assert!(
            widest <= most && widest > most / 2,
            "{widest} of {most}: {text}"
        );
    }
}

#[test]
fn odd_arguments_never_panic() {
    let places: [&[&str]; 10] = [
        &[],
        // Never just `compare`: with `--` for the odd argument it would measure for 90 s.
        &["compare", "--json", "/"],
        &["compare", "--on"],
        &["compare", "--on", "file:"],
        &["compare", "--policy"],
        &["compare", "--cache"],
        &["compare", "--json", "/", "--on"],
        &["completions"],
        &["man"],
        &["list", "policies"],
    ];
    survive_odd_arguments(&places);
}
