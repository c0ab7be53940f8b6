//! Tests that a fresh machine gives identical actions for the event log of a live run, and different ones for a modified log.
//!
//! No log causes a panic.

use crate::common::{Rng, by, named, opened};
use foreread::eventlog::{self, LogCheck, ReplayError};
use foreread::{Advice, Options, Origin, Reader};
use foreread_core::event::Event;
use foreread_core::machine::Note;
use foreread_core::policy::ALL;
use foreread_history::{parse, policies};
use foreread_testing::{Faulty, QueuedSource, says};
use std::path::Path;
use std::sync::Arc;

const POLICIES: [&str; 5] = [
    "linux-6.18:max=128K",
    "rbd-plain",
    "none",
    "linux-6.18:max=1M",
    "rbd-plain:trigger=2",
];

/// One live run with several threads, faults, hints, an append and a new version.
fn live(seed: u64, log: &Path) -> (u64, u64) {
    const SIZE: u64 = 4 << 20;
    let policy = POLICIES[seed as usize % POLICIES.len()];
    let per_mille = if seed.is_multiple_of(3) { 30 } else { 0 };
    let source = Arc::new(Faulty::share(named(SIZE), seed, per_mille));
    let options = Options::default().policy(policy).event_log(log);
    let mut options = options.threads(1 + seed as u32 % 4);
    options.cache_bytes = (64 << 10) << (seed % 5);
    options.limits.max_in_flight = 2 + seed as u32 % 7;
    // Every other run hands its transfers to a queue.
    let origin: Origin = match seed % 2 {
        0 => Arc::clone(&source).into(),
        _ => Arc::new(QueuedSource::new(Arc::clone(&source), seed)).into(),
    };
    let reader = Reader::open(origin, options).expect("opens");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (reader, source) = (&reader, &source);
            scope.spawn(move || {
                let own = reader.try_clone().expect("opens");
                let mut rng = Rng(seed * 100 + thread);
                let mut buf = vec![0; 100_000];
                let mut at = rng.below(SIZE);
                for step in 0..150 {
                    let len = 1 + rng.below(30_000) as usize;
                    // Errors are part of the run; that they are the right ones is another test's matter.
                    let _ = own.read_at(&mut buf[..len], at);
                    at += len as u64;
                    if rng.below(8) == 0 {
                        at = rng.below(SIZE);
                    }
                    let ahead = at..at + 200_000;
                    match rng.below(40) {
                        0 => own.advise(Advice::WillNeed, ahead).expect("taken"),
                        1 => own.advise(Advice::DontNeed, 0..at).expect("taken"),
                        2 if thread == 0 && step > 50 => source.inner().append(&[0; 1000]),
                        _ => {}
                    }
                }
            });
        }
    });
    let stats = reader.stats();
    drop(reader);
    (stats.demand_reads, stats.ra_ops)
}

fn check(text: &[u8]) -> Result<LogCheck, ReplayError> {
    eventlog::check_log(text)
}

#[test]
fn twenty_live_runs() {
    let dir = tempfile::tempdir().expect("a directory");
    let (mut reads, mut ahead, mut events, mut actions) = (0, 0, 0, 0);
    for seed in 0..20 {
        let log = dir.path().join(seed.to_string());
        let (r, a) = live(seed, &log);
        let text = std::fs::read(&log).expect("a log");
        let done = check(&text).unwrap_or_else(|error| panic!("run {seed}: {error}"));
        (reads, ahead) = (reads + r, ahead + a);
        (events, actions) = (events + done.events, actions + done.actions);
    }
    println!("{reads} reads, {ahead} readaheads, {events} events, {actions} identical actions");
    assert!(reads > 10_000 && ahead > 1000);
}

/// A log that was ended is of the moment of its counters, and stays as it is; an observer of its replay gets every
/// read in it.
#[test]
fn an_ended_log_is_the_counters_of_its_moment() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("log");
    let options = by("linux-6.18:max=128K", 64 << 20).event_log(&log);
    let reader = opened(named(4 << 20), options.threads(2));
    let read = |n: u64| {
        let read = reader.read_at(&mut [0; 8192], n * 8192);
        assert_eq!(read.expect("read"), 8192);
    };
    (0..100).for_each(read);
    let stats = reader.engine().end_event_log().expect("written");
    (100..200).for_each(read);
    let reads = (stats.demand_reads, reader.stats().demand_reads);
    assert_eq!(reads, (100, 200));
    drop(reader);
    let text = std::fs::read(&log).expect("a log");
    let (mut reads, mut served, mut ahead) = (0, 0, 0);
    let done = eventlog::check_log_among(
        text.as_slice(),
        &[ALL],
        Some(&mut |event, notes| {
            reads += u64::from(matches!(event, Event::Read { .. } | Event::Hit { .. }));
            for note in notes {
                match note {
                    Note::Served { bytes, .. } => served += bytes,
                    Note::Window { bytes, refused, .. } => ahead += bytes - refused,
                    _ => {}
                }
            }
        }),
    );
    assert_eq!(done.expect("identical"), check(&text).expect("identical"));
    let planned = stats.ra_planned_bytes - stats.ra_refused_bytes;
    assert_eq!((reads, served, ahead), (100, stats.demand_bytes, planned));
}

/// What a log has of each kind; which of them come depends on when the threads run.
const KINDS: [&str; 4] = ["A submit", "A serve", "A drop", "A fail"];

/// A whole log for the tests of what is wrong with one, with a line of each kind.
fn sample() -> String {
    let mut logs = (3..103).map(|seed| {
        let dir = tempfile::tempdir().expect("a directory");
        let log = dir.path().join("log");
        live(seed, &log);
        std::fs::read_to_string(log).expect("a log")
    });
    let has_all = |text: &String| {
        let has = |kind| text.lines().any(|line| line.starts_with(kind));
        KINDS.into_iter().all(has)
    };
    logs.find(has_all).expect("one has all")
}

#[test]
fn a_touched_log_is_noticed() {
    let text = sample();
    assert!(check(text.as_bytes()).is_ok());
    let lines: Vec<&str> = text.lines().collect();
    let at = |start: &str| {
        let found = lines.iter().position(|line| line.starts_with(start));
        found.expect("there is one")
    };
    let with = |n: usize, new: &str| {
        let mut lines = lines.clone();
        lines[n] = new;
        lines.join("\n") + "\n"
    };
    let differs = |text: String, line: usize| match check(text.as_bytes()) {
        Err(ReplayError::Differs { line: l, .. }) => assert_eq!(l, line as u64 + 1),
        other => panic!("{other:?}"),
    };
    for start in KINDS {
        let n = at(start);
        let (front, last) = lines[n].rsplit_once(' ').expect("fields");
        let other = match last {
            "demand" => "ahead",
            "ahead" => "demand",
            "last" => "more",
            "more" => "last",
            "io:5" => "io:6",
            _ => "0x5",
        };
        differs(with(n, &format!("{front} {other}")), n);
    }
    // An action too few or too many; a whole event gone, so that its action answers to nothing; the end cut off.
    let n = at("A submit");
    let without = |n: usize| [&lines[..n], &lines[n + 1..]].concat().join("\n") + "\n";
    differs(without(n), n);
    differs(with(n, &format!("{}\n{}", lines[n], lines[n])), n + 1);
    assert!(check(without(at("A ") - 1).as_bytes()).is_err());
    let last = text.rfind("\nE ").expect("an event");
    let ends = text[..last]
        .rfind("\nA submit")
        .expect("a submit near the end")
        + 1;
    let event = text[..ends].lines().count();
    let cut: String = text.lines().take(event).flat_map(|l| [l, "\n"]).collect();
    differs(cut, event);
    // In the middle of a line: a log that ends behind one may be whole.
    let half = text[..text.len() / 2].trim_end();
    assert!(check(half.as_bytes()).is_err());
    // Other limits, another policy: other decisions.
    for (part, other) in [
        ("capacity_pages=", "capacity_pages=1"),
        ("policy linux-6.18:max=1048576", "policy none"),
    ] {
        assert!(check(text.replacen(part, other, 1).as_bytes()).is_err());
    }
}

#[test]
fn an_invalid_log_is_an_error_with_its_line() {
    let head = "foreread-events 1\nconfig page=4096 capacity_pages=100 max_fetch_bytes=4194304 max_in_flight=64 \
                max_ahead_in_flight=16 max_piggyback_bytes=131072 keep_windows_apart=0 max_short_ahead_in_flight=16\npolicy none\n";
    let empty = check(head.as_bytes()).expect("a log without events");
    assert_eq!(empty, LogCheck::default());
    let after = |line: &str| format!("{head}{line}");
    let large = head.replace("capacity_pages=100", "capacity_pages=18446744073709551615");
    for (text, line) in [
        (String::new(), 1),
        ("foreread-events 2\n".to_string(), 1),
        ("\0\u{7f}ELF\n".to_string(), 1),
        ("foreread-events 1\nconfig\n".to_string(), 2),
        (large, 2),
        (head.replace("policy none", "policy nothing"), 3),
        (after("nonsense\n"), 4),
        (after("E 1 timer"), 4),
        (after("A wake 1\n"), 4),
        (after("E 1 open 4000000000 0 10\n"), 4),
        (after("E 1 open 0 4000000000 10\n"), 4),
        (after(&format!("E 1 {}\n", "x".repeat(1 << 20))), 4),
    ] {
        let error = check(text.as_bytes()).expect_err("no log");
        let said = error.to_string();
        let is_line = !said.contains('\n') && said.len() < 400;
        let begin = format!("line {line}: ");
        assert!(is_line && said.starts_with(&begin), "{said}");
    }
    let error = check(&[head.as_bytes(), b"E 1 \xff\n"].concat()).expect_err("not text");
    assert!(error.to_string().starts_with("line 4: "));
}

/// Whatever a log holds, replay ends, with an error or without.
#[test]
fn no_log_panics() {
    let text = sample();
    let begin = text.split_inclusive('\n').take(400);
    let short = begin.collect::<String>().into_bytes();
    let mut rng = Rng(11);
    for _ in 0..3000 {
        let mut bytes = short.clone();
        for _ in 0..=rng.below(3) {
            let at = rng.below(bytes.len() as u64) as usize;
            match rng.below(3) {
                0 => bytes[at] = b"0123456789 AE\n"[rng.below(14) as usize],
                1 => bytes[at] = rng.next() as u8,
                _ => drop(bytes.remove(at)),
            }
        }
        let _ = check(&bytes);
    }
    // Events alone, so that no difference stops the machine early: any sequence of them is only handled.
    let events = text.lines().filter(|line| line.starts_with('E'));
    let events = Vec::from_iter(events.take(600));
    let head: Vec<&str> = text.lines().take(3).collect();
    for _ in 0..300 {
        let mut mixed = events.clone();
        (0..20).for_each(|_| mixed.swap(rng.below(600) as usize, rng.below(600) as usize));
        feed(&head, &mixed);
    }
}

/// Feeds events and takes every answer, as replay does, without comparing.
fn feed(head: &[&str], events: &[&str]) {
    use foreread_core::machine::{Config, Machine};
    use foreread_core::units::PageSize;
    let policy = head[2].strip_prefix("policy ").expect("a policy");
    let policy = foreread::PolicySpec::parse(policy).expect("a policy");
    let config = Config::new(PageSize::new(4096).expect("a page"), 256 << 10);
    let mut machine = Machine::new(config, policy);
    for event in events {
        let logged = eventlog::parse_event(event).expect("an event");
        machine.handle(logged.at, logged.event);
        while machine.poll().is_some() {}
    }
}

/// A maximum that goes by the size of the source is a plain number in the log, so that a log alone is enough.
#[test]
fn a_maximum_by_capacity_is_logged_as_it_came_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("log");
    let policy = "linux-3.12:max=512K+capacity-2010b";
    let open = |size| {
        let policy = parse(policy).expect("a policy");
        let options = Options::default().policy(policy);
        Reader::open(Arc::new(named(size)), options.event_log(&log))
    };
    let check = |log: &[u8]| eventlog::check_log_among(log, &[&policies()], None);
    for (size, max) in [
        (4 << 20, 16 << 10),
        ((4 << 20) - 1, 8 << 10),
        (505_000, 4 << 10),
    ] {
        let reader = open(size).expect("opens");
        assert_eq!(reader.policy().values[0], max);
        assert_eq!(reader.policy().to_string(), policy);
        let mut buf = vec![0; 100_000];
        for i in 0..5 {
            reader.read_at(&mut buf, i * 100_000).expect("reads");
        }
        drop(reader);
        let text = std::fs::read_to_string(&log).expect("a log");
        let line = format!("\npolicy linux-3.12:max={max},context=conservative\n");
        assert!(text.contains(&line), "{size}");
        assert!(check(text.as_bytes()).is_ok(), "{size}");
        // Such a log would be ambiguous.
        let open_again = text.replace(&format!("max={max}"), "max=capacity");
        let error = check(open_again.as_bytes()).expect_err("no capacity here");
        let words = ["max depends on the storage capacity, which is not known here"];
        says(&error.to_string(), &words);
    }
}
