//! Tests of bad usage and bad input: one line that says what is wrong, where, and what to do; exit code 2, and never a panic.

use crate::common::{
    BINARY, Got, foreread_at, foreread_in, run, says, survive_odd_arguments, text,
};
#[cfg(all(
    feature = "object",
    feature = "tls",
    feature = "serve",
    feature = "rbd"
))]
use crate::common::{entry, same};
use std::ffi::OsStr;
use std::path::Path;

/// Command lines that are refused, in a folder with `data` (1 MiB), `empty`, `reads.csv`, `strace`, `cut.frt`, `c\\u{1b}.frt`,
/// `cut.plan`, `bad.toml` and the folder `dir`. `''` is an empty word. Their lines are in `snapshots/refusals.txt`.
#[cfg(all(
    feature = "object",
    feature = "tls",
    feature = "serve",
    feature = "rbd"
))]
const REFUSED: &str = "\
compre
help compre
xyz
trace models
completions bsh
list policies --log loud
compare --polcy none
compare --policy linux-6
compare --policy rbd-plain:triger=3
compare --policy rbd-plain:max=9999999999999T
compare --policy oracle
compare --policy oracle --on data
compare sequentail
compare random:recrod=4K
compare readers --on data
compare mapped-random --on data
compare random --on model:nvme --format csv
compare --memory 99999999999999999999
compare sequential --on model:nvme --size 1M --runs 1 --memory 5
compare sequential --on model:nvme --size 1M --runs 1 --memory 100T
compare --size 0
compare --size 12Q
compare --runs 0
compare --runs many
compare --seed 18446744073709551616
compare --on ''
compare --on dir
compare --on file:empty
compare --on gone
compare --on gopher://host/x
compare --on model:rdb
compare --on model:bad.toml
list models --toml rdb
compare --on rbd:pool
compare --on s3:x
compare --on s3://KEY:PASSWORD@b/k
compare --on nbd://127.0.0.1:1
compare --json ''
compare --json dir
compare --json none/such.json
compare --html page --json page
compare sequential --html no/where.html
compare reads.csv --on model:nvme --mode closed
compare reads.csv --on model:nvme --mode deps
compare reads.csv --on model:nvme --mode open
man none
run true
record -o a.frt true
replay a.plan true
replay gone.plan
replay cut.plan -- echo started
tune true
tune gone.frt
explain strace --on strace
explain strace --on nbd+unix:///x?socket=no/such/socket
explain strace --on model:rdb
explain strace --policy linux-6
explain strace --policy linux-6.18,rbd-plain
explain strace --file nowhere
explain gone.frt
explain random --records 5
tune
tune strace
tune random
tune strace --on nbd://host/x
probe
probe reads.csv --buffered
probe model:rbd -o model.txt
probe model:rbd --verify x.toml
probe data --verify gone.toml
probe model:rbd --seconds 0
probe model:rdb
probe model:gone.toml
probe model:bad.toml --seconds=1
sweep sequential --on data
sweep sequential --on model:none-such
sweep sequentiel
sweep sequential --policy linux
sweep sequential --resume /dev/null/x
sweep sequential --resume reads.csv
sweep sequential --vary streams=1,2
compare interleaved --on model:rbd --vary streams
compare interleaved --on model:rbd --vary streems=1,2
compare interleaved --on model:rbd --policy rbd-plain --vary policy.triger=1,2
compare interleaved --on model:rbd --vary streams=0,1
compare interleaved --on model:rbd --policy rbd-plain --vary policy.trigger=1,x
compare interleaved --on model:rbd --vary streams=1,1000000
plan -o out.plan gone.frt
plan --format gguf -o out.plan data
trace info data
trace info dir
trace info reads.csv --format nope
trace info cut.frt cut.frt
trace import cut.frt
trace import c\u{1b}.frt -o out.frt
doctor --fix
doctor --to 1M
cache list gone
cache list dir
cache trim dir
cache trim dir --size 0
warm
warm s3://b/k
warm s3://b/k --disk-cache dir --max 1M
warm data --disk-cache dir
warm s3://b/k data
mount data
mount gone dir
mount s3://bucket/dir dir --attr-ttl soon
mount dir dir --control s
mount dir dir --plan gone
mount -d gone dir
--log warn mount -o x . dir
mount -do x . dir
mount -d -o ro,cahce=1G . dir
mount -d -o remount . dir
mount -d -o help . dir
serve data --unix s --plan gone
serve data
serve data --unix s --cache 5
serve data --unix s --policy linux-3.12
serve data --unix s --no-lock
serve data --unix s --tls on
serve data --unix s --tls-verify-peer
serve data --unix s --tls-certificates gone
serve data --unix s --tls-certificates x --tls off
serve data --unix s --tls-certificates x --tls on --tls-verify-peer
serve data --tcp localhost:1";

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

#[cfg(all(
    feature = "object",
    feature = "tls",
    feature = "serve",
    feature = "rbd"
))]
#[test]
fn errors_are_one_line() {
    let dir = folder();
    let place = dir.path().canonicalize().expect("there");
    let mut text = String::new();
    for words in REFUSED.lines() {
        let plain = [("XDG_CONFIG_HOME", OsStr::new("/dev/null"))];
        let args = words.split(' ').map(|word| word.trim_matches('\''));
        let mut got = foreread_at(dir.path(), &plain, args);
        got.err = got.err.replace(&place.display().to_string(), "FOLDER");
        assert!(!got.err.contains("PASSWORD"), "{}", got.err);
        got.is_refused();
        text += &entry(&words.replace('\u{1b}', "\\u{1b}"), &got);
    }
    let names = std::fs::read_dir(dir.path()).expect("there").count();
    assert_eq!(names, 9, "no output was begun");
    same("refusals", &text);
}

#[test]
fn an_invalid_variable_is_one_line() {
    #[cfg(feature = "object")]
    let s3 = "compare sequential --on s3://bucket/key";
    #[cfg(all(feature = "otlp", feature = "serve"))]
    let otlp = "serve /dev/null --unix /no/where";
    for (name, value, words) in [
        #[cfg(feature = "object")]
        ("AWS_ENDPOINT_URL", "host:9000", s3),
        #[cfg(feature = "object")]
        ("AWS_SECRET_ACCESS_KEY", "x\n", s3),
        #[cfg(all(feature = "otlp", feature = "serve"))]
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
        let got = foreread_at(Path::new("."), &variables, ["list", "policies"]);
        assert_eq!(got.code, Some(70), "{}", got.err);
        let begin = "foreread: internal error: ";
        assert!(got.err.starts_with(begin), "{}", got.err);
        assert!(got.err.lines().count() == 1 && !got.err.contains("password"));
        assert_eq!(got.out.is_empty(), place == "main");
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
        &["compare", "--memory"],
        &["compare", "--json", "/", "--on"],
        &["completions"],
        &["man"],
        &["list", "policies"],
    ];
    survive_odd_arguments(&places);
}
