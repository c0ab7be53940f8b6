//! Tests of the commands of `foreread-check`: help, outputs, errors; `store` against a bucket that keeps its promises and a
//! server that does not; `conform linux --check`; `bench policies` on a few cells; `replay-log`.

use crate::common::{FOREREAD, Got, foreread, listed, says};
use foreread::eventlog::EventLog;
use foreread_core::event::Event;
use foreread_core::machine::{Config, Machine};
use foreread_core::policy::PolicySpec;
use foreread_core::units::{ByteRange, FileId, Nanos, OpenId, PageSize, ReadId};
use foreread_testing::machine::{signal, wait_until};
use serde_json::Value;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn short_help_fits_24_lines_of_80_columns() {
    FOREREAD.fits(&[]);
    assert_eq!(
        listed(foreread(["-h"]).is_done()),
        ["reproduce", "conform", "bench", "replay-log", "store"]
    );
}

#[test]
fn no_output_follows_a_link_or_replaces_a_file_unasked() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = [
        "bench policies --json OUT",
        "reproduce crume-2014 --json OUT",
    ];
    FOREREAD.follows_no_link(&options, dir.path(), Path::new(""));
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
    let places = "|bench|replay-log|reproduce --runs|conform linux --check";
    FOREREAD.survives_odd_arguments(places);
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

const RECORDING: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/recordings/ext4j-128.jsonl"
);

/// One page more in the recording than we read is reported with its line and is exit code 1.
#[test]
fn a_difference_is_reported() {
    let got = foreread(["conform", "linux", "--check", RECORDING]);
    let agree =
        "The policy linux-6.18 agrees with the recorded kernel.\ndecisions 1028 divergences 0\n";
    assert_eq!(got.is_done(), agree);
    let text = std::fs::read_to_string(RECORDING).expect("the recording");
    let file = tempfile::NamedTempFile::new().expect("a scratch file");
    let wrong = text.replacen("\"added\":[[", "\"added\":[[77777,0],[", 1);
    std::fs::write(file.path(), wrong).expect("written");
    let path = file.path().to_string_lossy();
    for (level, part) in [
        ("full", "the kernel's 77777:0"),
        ("pages", "only by the kernel [77777]"),
    ] {
        let got = foreread(["conform", "linux", "--level", level, "--check", &path]);
        says(got.assert_code(1), &[part]);
        says(&got.out, &["divergences 1"]);
    }
}

/// Each is one line, and nothing is made for it.
#[test]
fn uncheckable_profiles_are_refused() {
    let nonsense = tempfile::NamedTempFile::new().expect("a scratch file");
    std::fs::write(nonsense.path(), "nonsense\n").expect("written");
    let nonsense = nonsense.path().to_string_lossy().into_owned();
    for (args, said) in [
        (&["linux", "--check", &nonsense][..], "line 1"),
        (
            &["linux", "--check", RECORDING, "--cluster", "x"],
            "is for 'conform rbd'",
        ),
        (&["linux", "-o", "no/such/folder"], "create it first"),
        (&["linux", "--fs", "tmpfs"], "tmpfs"),
        (&["rbd", "--check", RECORDING], "for 'conform linux'"),
        (&["rbd", "--fs", "xfs"], "are for 'conform linux'"),
        (
            &["rbd", "--cluster", "no/such.conf"],
            "no such configuration: no/such.conf",
        ),
    ] {
        let got = foreread(["conform"].into_iter().chain(args.iter().copied()));
        says(got.assert_code(2), &[said]);
        assert_eq!(got.out, "", "{args:?}");
    }
}

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(String::from).collect()
}

/// SIGTERM during the cells of a device: runs that were over are kept, and the command says how to continue.
#[test]
fn a_signal_keeps_what_was_measured() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let runs = dir.path().join("runs.jsonl");
    let mut command = Command::new(FOREREAD.0);
    let line = "bench policies --cells baseline --only @nvme --jobs 1 --resume";
    command
        .args(line.split(' '))
        .arg(&runs)
        .env("XDG_CONFIG_HOME", "/dev/null");
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
    let child = command.stderr(Stdio::piped()).spawn();
    let child = child.expect("the binary starts");
    wait_until("six runs are over", || lines(&runs).len() > 5);
    signal(child.id(), "-TERM");
    let got = Got::from(&child.wait_with_output().expect("it ends"));
    got.assert_code(128 + 15);
    says(&got.out, &["Note: Stopped after"]);
    let kept = lines(&runs);
    let is_json = |line: &String| serde_json::from_str::<Value>(line).is_ok();
    assert!(kept.len() > 5 && kept.iter().all(is_json), "{kept:?}");
    let after = format!("foreread: stopped after {} of ", kept.len());
    says(&got.err, &[&after, "the same command continues from"]);
}

/// The other recording is no trace at all: it is not loaded where it is not chosen.
#[test]
fn only_the_chosen_recordings_are_loaded() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let at = |name: &str| dir.path().join(name);
    let rows = (0..4).map(|n| format!("{},4096,{}\n", n * 4096, n * 1000));
    let reads = format!("offset,length,start_ns\n{}", rows.collect::<String>());
    std::fs::write(at("good.csv"), reads).expect("written");
    std::fs::write(at("odd.csv"), "no trace").expect("written");
    std::fs::write(at("index.csv"), "kind,trace\na,good.csv\nb,odd.csv\n").expect("written");
    let folder = dir.path().to_string_lossy().into_owned();
    let bench = |more: &[&str]| {
        let fixed = "bench policies --cells validation --policy none --recordings".split(' ');
        let words = fixed.chain([folder.as_str()]).chain(more.iter().copied());
        foreread(words.collect::<Vec<_>>())
    };
    assert!(bench(&[]).is_refused().contains("odd.csv"));
    let got = bench(&["--only", "good.csv"]);
    assert!(got.is_done().contains("Note: 2 recordings,"), "{}", got.out);
    let refused = bench(&["--only", "gone.csv"]);
    assert!(refused.is_refused().contains("no such cell: gone.csv"));
}

/// Writes the log of three sequential reads, of which nothing ever arrives. Returns events and actions.
fn write_log(path: &Path) -> (u64, u64) {
    let config = Config::new(PageSize::new(4096).expect("a page size"), 1 << 20);
    let policy = PolicySpec::parse("linux-6.18").expect("a policy");
    let mut log = EventLog::new(
        Box::new(File::create(path).expect("created")),
        &config,
        &policy,
    );
    let mut machine = Machine::new(config, policy);
    let (open, file) = (OpenId(0), FileId(0));
    let read = |n: u64| {
        let range = ByteRange::new(n * 4096, 4096).expect("in range");
        Event::read(ReadId(n), open, range)
    };
    let events = [Event::open(open, file, 1 << 20), read(0), read(1), read(2)];
    let mut actions = 0;
    for (n, event) in events.iter().enumerate() {
        log.event(Nanos(n as u64), event);
        machine.handle(Nanos(n as u64), *event);
        while let Some(action) = machine.poll() {
            log.action(&action);
            actions += 1;
        }
    }
    log.flush().expect("written");
    (events.len() as u64, actions)
}

#[test]
fn a_log_of_our_own_is_identical_and_one_changed_action_is_found() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let path = dir.path().join("run.log");
    let (events, actions) = write_log(&path);
    assert!(actions > 0);
    let got = foreread([Path::new("replay-log"), &path]);
    let identical = format!("identical: {events} events, {actions} actions\n");
    assert_eq!(got.is_done(), identical);
    let log = std::fs::read_to_string(&path).expect("text");
    let line = log.lines().position(|line| line.starts_with("A submit"));
    let line = line.expect("a submit");
    std::fs::write(&path, log.replacen(" demand\n", " ahead\n", 1)).expect("written");
    let got = foreread([Path::new("replay-log"), &path]);
    assert_eq!(got.assert_code(1).lines().count(), 1);
    let parts = ["foreread: different: ", &format!("line {}", line + 1)];
    says(&got.err, &parts);
    assert_eq!(got.out, "");
}

/// A log of five lines: a cache of this many pages, one open file without end, and one event on it.
fn five_lines(pages: u64, max_fetch: u64, policy: &str, event: &str) -> String {
    format!(
        "foreread-events 1\nconfig page=4096 capacity_pages={pages} max_fetch_bytes={max_fetch} max_in_flight=64 \
         max_ahead_in_flight=16 max_piggyback_bytes=131072 keep_windows_apart=0 max_short_ahead_in_flight=16\npolicy {policy}\n\
         E 0 open 0 0 {}\nE 1 {event}\n",
        1_u64 << 61
    )
}

/// The memory of a replay does not follow the numbers in a log: what is above the limits is refused, and what is at
/// them ends within 1.5 GB of address space.
#[test]
fn a_short_log_takes_little_memory() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let path = dir.path().join("large.log");
    let run = |text: String| {
        std::fs::write(&path, text).expect("written");
        let script = "ulimit -v 1500000; exec \"$0\" replay-log \"$1\"";
        let mut shell = Command::new("sh");
        let got = shell.args(["-c", script, FOREREAD.0]).arg(&path).output();
        let got = Got::from(&got.expect("a shell"));
        (got.code, got.err)
    };
    let far = 1_u64 << 60;
    let all = [
        format!("advise 0 willneed 0 {far}"),
        format!("want 0 0 {far}"),
        format!("read 0 0 0 {far} 0"),
    ];
    for event in &all {
        for policy in ["none", "linux-6.18"] {
            for (pages, max_fetch, what) in [
                (1 << 36, 4 << 20, "capacity_pages"),
                (1 << 28, 4096, "pages of max_fetch_bytes"),
            ] {
                let (code, error) = run(five_lines(pages, max_fetch, policy, event));
                assert_eq!(code, Some(2), "{event}: {error}");
                says(&error, &[what, "line 2"]);
            }
            let (code, error) = run(five_lines(1 << 28, 4 << 20, policy, event));
            // A policy without readahead answers advice with nothing, as the log does.
            let ended = code == Some(0) || code == Some(1) && error.contains("different");
            assert!(ended, "{event} under {policy}: {code:?} {error}");
        }
    }
    let open = five_lines(1 << 28, 4 << 20, "none", "open 1048576 1048576 1");
    assert_eq!(run(open), (Some(0), String::new()));
}

#[cfg(feature = "object")]
mod store {
    use super::*;
    use foreread::source::Mem;
    use foreread_testing::{BucketServer, Lie, RangeServer, pattern};

    fn check(variables: &[(String, String)], args: &[&str]) -> Got {
        let mut command = Command::new(FOREREAD.0);
        command.env_clear().env("FOREREAD_OBJECT", "retries=0");
        command.envs(variables.iter().cloned()).arg("store");
        Got::from(&command.args(args).output().expect("runs"))
    }

    #[test]
    fn a_bucket_that_keeps_its_promises_passes() {
        let server = BucketServer::start().expect("a port");
        server.put("dir/large", pattern(0, 3 << 20, 0));
        server.put("dir/a b", pattern(0, 10, 0));
        let keys = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];
        let mut variables = server.variables();
        variables.extend(keys.map(|name| (name.to_string(), "key".to_string())));
        let got = check(&variables, &["s3://bucket/dir/"]);
        got.assert_code(0);
        let lines = [
            "s3://bucket/dir/ passes all 7 tests.",
            "its names can be listed: 2 names, 2 files",
            "by ETag; 3145728 bytes",
            "credentials: the variable AWS_ACCESS_KEY_ID",
        ];
        says(&got.out, &lines);
        let large = ["s3://bucket/dir/large", "--bytes", "1M", "--json", "-"];
        let json = check(&server.variables(), &large).json();
        assert_eq!(json["schema"], "foreread/check-store/1");
        assert_eq!(json["checks"].as_array().map(Vec::len), Some(4));
        let is_less = json["bytes"].as_u64().is_some_and(|bytes| bytes < 2 << 20);
        assert!(is_less, "the limit: {json}");
    }

    #[test]
    fn a_server_that_breaks_one_fails_it_by_name() {
        let server = RangeServer::start(Mem::new(pattern(0, 1 << 20, 0))).expect("a port");
        server.lie(Lie::ContentRange, u64::MAX);
        let got = check(&[], &[&server.url()]);
        assert_ne!(got.code, Some(0));
        says(&got.err, &["a different part"]);
    }
}
