//! Tests of `replay-log`: an identical log, a different log, and a file that is not a log.

use crate::common::foreread;
use foreread::eventlog::EventLog;
use foreread_core::event::Event;
use foreread_core::machine::{Config, Machine};
use foreread_core::policy::PolicySpec;
use foreread_core::units::{ByteRange, FileId, Nanos, OpenId, PageSize, ReadId};
use std::fs::File;
use std::path::Path;

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
        Event::Read {
            read: ReadId(n),
            open,
            range,
            random: false,
        }
    };
    let events = [
        Event::Open {
            open,
            file,
            size: 1 << 20,
        },
        read(0),
        read(1),
        read(2),
    ];
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
fn a_log_of_our_own_is_identical() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let path = dir.path().join("run.log");
    let (events, actions) = write_log(&path);
    assert!(actions > 0);
    let got = foreread([Path::new("replay-log"), &path]);
    assert_eq!(
        got.is_done(),
        format!("identical: {events} events, {actions} actions\n")
    );
}

#[test]
fn one_changed_action_is_found() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let path = dir.path().join("run.log");
    write_log(&path);
    let log = std::fs::read_to_string(&path).expect("text");
    let line = log
        .lines()
        .position(|l| l.starts_with("A submit"))
        .expect("a submit");
    std::fs::write(&path, log.replacen(" demand\n", " ahead\n", 1)).expect("written");
    let got = foreread([Path::new("replay-log"), &path]);
    assert_eq!(
        (got.code, got.out.as_str(), got.err.lines().count()),
        (Some(1), "", 1),
        "{}",
        got.err
    );
    assert!(
        got.err.starts_with("foreread: different: ")
            && got.err.contains(&format!("line {}", line + 1)),
        "{}",
        got.err
    );
}

/// A log of five lines: a cache of this many pages, one open file without end, and one event on it.
fn five_lines(pages: u64, max_fetch: u64, policy: &str, event: &str) -> String {
    format!(
        "foreread-events 1\nconfig page=4096 capacity_pages={pages} max_fetch_bytes={max_fetch} max_in_flight=64 \
         max_ahead_in_flight=16 max_piggyback_bytes=131072 keep_windows_apart=0\npolicy {policy}\n\
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
        let limited = format!(
            "ulimit -v 1500000; exec '{}' replay-log '{}'",
            env!("CARGO_BIN_EXE_foreread-check"),
            path.display()
        );
        let got = std::process::Command::new("sh")
            .args(["-c", &limited])
            .output()
            .expect("a shell");
        (
            got.status.code(),
            String::from_utf8_lossy(&got.stderr).into_owned(),
        )
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
                assert!(
                    code == Some(2) && error.contains(what) && error.contains("line 2"),
                    "{event}: {error}"
                );
            }
            let (code, error) = run(five_lines(1 << 28, 4 << 20, policy, event));
            // A policy without readahead answers advice with nothing, as the log does.
            let ended = code == Some(0) || code == Some(1) && error.contains("different");
            assert!(ended, "{event} under {policy}: {code:?} {error}");
        }
    }
    let (code, error) = run(five_lines(
        1 << 28,
        4 << 20,
        "none",
        "open 1048576 1048576 1",
    ));
    assert_eq!((code, error.as_str()), (Some(0), ""));
}
