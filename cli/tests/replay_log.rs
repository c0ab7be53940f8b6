//! `replay-log`: identical, different, and not a log.

mod common;
use common::foreread;
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
    let mut log = EventLog::new(Box::new(File::create(path).expect("created")), &config, &policy);
    let mut machine = Machine::new(config, policy);
    let (open, file) = (OpenId(0), FileId(0));
    let read = |n: u64| {
        let range = ByteRange::new(n * 4096, 4096).expect("in range");
        Event::Read { read: ReadId(n), open, range, random: false }
    };
    let events = [Event::Open { open, file, size: 1 << 20 }, read(0), read(1), read(2)];
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
    assert_eq!(got.is_done(), format!("identical: {events} events, {actions} actions\n"));
}

#[test]
fn one_changed_action_is_found() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let path = dir.path().join("run.log");
    write_log(&path);
    let log = std::fs::read_to_string(&path).expect("text");
    let line = log.lines().position(|l| l.starts_with("A submit")).expect("a submit");
    std::fs::write(&path, log.replacen(" demand\n", " ahead\n", 1)).expect("written");
    let got = foreread([Path::new("replay-log"), &path]);
    assert_eq!((got.code, got.out.as_str(), got.err.lines().count()), (Some(1), "", 1), "{}", got.err);
    assert!(
        got.err.starts_with("foreread: different: ") && got.err.contains(&format!("line {}", line + 1)),
        "{}",
        got.err
    );
}

#[test]
fn what_is_no_log_is_refused() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let path = dir.path().join("no.log");
    for bytes in [&b""[..], b"\x00\xff\x00", b"foreread-events 99\n", b"foreread-events 1\nconfig\n"] {
        std::fs::write(&path, bytes).expect("written");
        let got = foreread([Path::new("replay-log"), &path]);
        assert!(got.is_refused().contains("bad event log"), "{}", got.err);
    }
    assert!(foreread([Path::new("replay-log"), &dir.path().join("gone")]).is_refused().contains("cannot read"));
    foreread([Path::new("replay-log"), dir.path()]).is_refused();
}
