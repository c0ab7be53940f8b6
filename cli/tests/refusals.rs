//! Tests of bad usage and bad input: one line that says what is wrong, where, and what to do; exit code 2, and never a panic.

use crate::common::{BINARY, FOREREAD, Got, entry, foreread_in, lines_of, run, same, says, text};
use std::ffi::OsStr;
use std::path::Path;

/// A folder with `data` (1 MiB), `empty`, `reads.csv`, `strace`, `cut.frt`, `c\u{1b}.frt`, `cut.plan`, `bad.toml` and the
/// folder `dir`.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let put =
        |name: &str, bytes: &[u8]| std::fs::write(dir.path().join(name), bytes).expect("room");
    put("data", &[7; 1 << 20]);
    put("empty", b"");
    put("reads.csv", b"offset,length\n0,4096\n4096,4096\n");
    let trace = |name: &str| std::fs::read(format!("../trace/tests/traces/{name}")).expect("there");
    put("strace", &trace("strace/full.strace"));
    let whole = trace("foreread/v1.frt");
    for name in ["cut.frt", "c\u{1b}.frt"] {
        put(name, &whole[..whole.len() - 40]);
    }
    put("cut.plan", b"foreread-plan 1\nruns: 1\n");
    put("bad.toml", b"schema = 1\n");
    std::fs::create_dir(dir.path().join("dir")).expect("room");
    dir
}

/// Command lines that are refused in that folder: those of the snapshot. `''` is an empty word.
#[test]
fn errors_are_one_line() {
    let dir = folder();
    let place = dir.path().canonicalize().expect("there");
    let mut text = String::new();
    for line in lines_of("refusals") {
        let words = line.replace("\\u{1b}", "\u{1b}");
        let plain = [("XDG_CONFIG_HOME", OsStr::new("/dev/null"))];
        let args = words.split(' ').map(|word| word.trim_matches('\''));
        let mut got = FOREREAD.at(dir.path(), &plain, args);
        got.err = got.err.replace(&place.display().to_string(), "FOLDER");
        assert!(!got.err.contains("PASSWORD"), "{}", got.err);
        got.is_refused();
        text += &entry(&line, &got);
    }
    let names = std::fs::read_dir(dir.path()).expect("there").count();
    assert_eq!(names, 9, "no output was begun");
    same("refusals", &text);
}

#[test]
fn an_invalid_variable_is_one_line() {
    let s3 = "compare sequential --on s3://bucket/key";
    let otlp = "serve /dev/null --unix /no/where";
    for (name, value, words) in [
        ("AWS_ENDPOINT_URL", "host:9000", s3),
        ("AWS_SECRET_ACCESS_KEY", "x\n", s3),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318", otlp),
        ("FOREREAD_LOG", "loud", "list policies"),
        ("FOREREAD_POLICY", "linux-6.18:max=x", "compare"),
    ] {
        let id = ("AWS_ACCESS_KEY_ID", OsStr::new("x"));
        let variables = [id, (name, OsStr::new(value))];
        foreread_in(&variables, words.split(' ')).refuses(name);
    }
}

/// A full disk and a closed pipe, wherever text or a trace is written.
#[test]
fn write_errors_are_reported_but_not_a_closed_pipe() {
    let dir = folder();
    let trace = dir.path().join("reads.csv");
    let lines = (0..40_000).map(|n| format!("{},4096\n", n * 4096));
    let lines = lines.collect::<String>();
    std::fs::write(&trace, format!("offset,length\n{lines}")).expect("room");
    let trace = text(&trace);
    let export = format!("trace export {trace} --to csv -o");
    for line in [
        &format!("{export} -"),
        "list policies --json",
        "completions bash",
        "compare --help",
    ] {
        let args = Vec::from_iter(line.split(' '));
        let shell = |line: &str| {
            let mut command = std::process::Command::new("bash");
            command.args(["-c", line, "bash", BINARY]).args(&args);
            let got = Got::from(&command.output().expect("a shell"));
            (got.code, got.err)
        };
        let (code, err) = shell("\"$@\" > /dev/full");
        says(&err, &["No space left"]);
        assert_eq!((code, err.lines().count()), (Some(2), 1), "{args:?}: {err}");
        let closed = shell("\"$@\" | true; exit ${PIPESTATUS[0]}");
        assert_eq!(closed, (Some(0), String::new()), "{args:?}");
        // Nothing can be said on a closed stderr; the exit code still says it.
        let nonsense = shell("\"$@\" --nonsense 2> /dev/full; exit $?").0;
        assert!(nonsense == Some(2) || args.contains(&"--help"), "{args:?}");
    }
    run(format!("{export} /dev/full")).refuses("No space left");
}

/// A panic is made on request in builds with debug assertions: in the main thread, and in another.
#[test]
fn a_panic_is_one_line_with_an_exit_code_of_its_own() {
    for place in ["main", "thread"] {
        let variables = [
            ("FOREREAD_PANIC", OsStr::new(place)),
            ("RUST_BACKTRACE", OsStr::new("0")),
        ];
        let got = FOREREAD.at(Path::new("."), &variables, ["list", "policies"]);
        assert_eq!(got.code, Some(70), "{}", got.err);
        let begin = "foreread: internal error: ";
        assert!(got.err.starts_with(begin), "{}", got.err);
        assert!(got.err.lines().count() == 1 && !got.err.contains("password"));
        assert_eq!(got.out.is_empty(), place == "main");
    }
}

#[test]
fn odd_arguments_never_panic() {
    // Never just `compare`: with `--` for the odd argument it would measure for 90 s.
    let places = "|compare --json /|compare --on|compare --on file:|compare --policy|compare --memory|\
        compare --json / --on|completions|man|list policies";
    FOREREAD.survives_odd_arguments(places);
}
