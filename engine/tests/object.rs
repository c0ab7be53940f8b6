//! Tests of objects over HTTP: deadlines, versions, concurrent requests, and the bytes that an open returns.
//! `stores.rs` tests the wrong answers that every store may give.

use crate::common::{
    Rng, by, changed, named, opened, plain, quiet, read_and_check, read_right, read_source as read,
    refused, right, runtime, short_settings, wait_until, watch,
};
use foreread::source::object::{Object, ObjectSettings};
use foreread::source::{self, Mem, Source};
use foreread::{Options, ReadError, Reader};
use foreread_testing::{self as testing, Lie, Link, RangeServer, says};
use std::sync::Arc;
use std::time::Duration;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// No environment variables.
fn settings() -> ObjectSettings {
    short_settings(Vec::new())
}

fn serve(size: u64) -> RangeServer {
    watch();
    RangeServer::start(named(size)).expect("a port")
}

fn open(server: &RangeServer) -> Object {
    open_by(server, settings())
}

fn open_by(server: &RangeServer, settings: ObjectSettings) -> Object {
    Object::open_with(&server.url(), settings).unwrap_or_else(|error| panic!("{error}"))
}

/// Settings by which nothing ends a request that the server does not answer.
fn patient() -> ObjectSettings {
    let hour = Duration::from_secs(3600);
    ObjectSettings {
        first_byte: hour,
        stall: hour,
        total: hour,
        ..settings()
    }
}

/// Bytes of this version.
fn of_version(size: u64, version: u16) -> Mem {
    Mem::generated(size, move |at, buf| testing::fill(buf, at, version))
}

/// A server that looks at no condition answers 416 for a part beyond the new end. That is a change, and nothing cached of the
/// old object is served after it; an object of the same length or longer that answers so is only wrong.
#[test]
fn an_object_that_shrank_has_changed() {
    for date in [None, Some("Sat, 21 Nov 2026 10:00:00 GMT")] {
        let server = serve(0);
        server.replace(Mem::new(testing::pattern(0, 1 << 20, 1)), None, date);
        let object = open(&server);
        let reader = plain(Arc::new(object));
        let mut buf = vec![0; 4096];
        read_and_check(&reader, &mut buf, 0, 1);
        server.replace(Mem::new(testing::pattern(0, 10_000, 2)), None, date);
        let error = reader.read_at(&mut buf, 500_000).expect_err("changed");
        let is_change = matches!(error, ReadError::Changed { .. });
        assert!(is_change, "{date:?}: {error}");
        assert_eq!(reader.size(), 10_000);
        assert_eq!(reader.read_at(&mut buf, 500_000), Ok(0));
        // Nothing of the old one.
        assert_eq!(read_and_check(&reader, &mut buf, 0, 2), 4096);
        server.lie(Lie::Status(416, None), u64::MAX);
        let error = reader.read_at(&mut buf, 5000).expect_err("refused");
        let is_right = matches!(error, ReadError::Io { .. } | ReadError::Changed { .. });
        assert!(is_right, "{error}");
    }
}

/// Readahead ends when the last reader closes, though the server sends nothing and may take an hour to say so.
#[test]
fn a_close_ends_requests_that_nothing_needs() {
    let server = serve(64 * MIB);
    let object = Arc::new(open_by(&server, patient()));
    let options = Options::default().policy("linux-6.18:max=8M");
    let idle = Reader::open(Arc::clone(&object), options).expect("opened");
    let reader = idle.try_clone().expect("opened");
    let mut buf = vec![0; 4096];
    read_and_check(&reader, &mut buf, 0, 0);
    quiet(&reader);
    for lie in [Lie::Stall(1000), Lie::Silence] {
        server.lie(lie, 1);
    }
    reader.prefetch(MIB..9 * MIB).expect("taken");
    // Only the two that get no answer are left.
    wait_until("the others end", || {
        reader.engine().gauges().running_fetches <= 2
            && reader.engine().gauges().queued_fetches == 0
    });
    assert!(reader.engine().gauges().running_fetches > 0);
    drop(reader);
    quiet(&idle);
    assert_eq!(idle.stats().failed_fetches, 0);
    read_and_check(&idle, &mut buf, MIB, 0);
}

/// A server that takes two requests at once, and refuses more: nothing fails, and it is soon asked for no more than it takes.
#[test]
fn a_server_that_asks_for_fewer_requests_gets_fewer() {
    let server = serve(16 * MIB);
    server.at_most(2);
    server.link(Link::new(Duration::from_millis(5), 0));
    let settings = ObjectSettings {
        retries: 8,
        ..settings()
    };
    let object = Arc::new(open_by(&server, settings));
    let options = by("linux-6.18:max=2M", 64 << 20);
    let reader = Reader::open(Arc::clone(&object), options).expect("opened");
    let (mut buf, mut at) = (vec![0; 64 << 10], 0);
    while at < 16 * MIB {
        at += read_and_check(&reader, &mut buf, at, 0) as u64;
    }
    quiet(&reader);
    let (asked, refused) = (object.asked().requests, server.refused());
    println!("{refused} of {asked} refused");
    assert!(refused > 0, "it was asked for more at first");
    // With two at once every third or fourth answer allows one too many; without a limit most are refused.
    assert!(refused * 5 < asked * 2, "{refused} of {asked} refused");
    assert_eq!(reader.stats().failed_fetches, 0);
}

/// Of short requests more are under way than of long ones.
#[test]
fn short_requests_are_more_at_once() {
    let server = serve(512 * MIB);
    let settings = ObjectSettings {
        part_bytes: 8 * MIB,
        ..patient()
    };
    for (len, at_once) in [(64 * KIB, 48), (8 * MIB, 16)] {
        let object = open_by(&server, settings.clone());
        let reader = plain(Arc::new(object));
        server.lie(Lie::Silence, u64::MAX);
        for n in 1..=60 {
            let at = n * 8 * MIB;
            reader.prefetch(at..at + len).expect("taken");
        }
        let running = || reader.engine().gauges().running_fetches;
        wait_until("as many run", || running() >= at_once);
        let queued = reader.engine().gauges().queued_fetches;
        assert_eq!((running(), queued), (at_once, 0), "{len}");
        server.honest();
    }
}

/// Objects that are opened one after the other take each other's connections.
#[test]
fn connections_are_shared_by_all_objects_of_a_process() {
    let server = serve(MIB);
    for _ in 0..20 {
        read_right(&open(&server), 500_000, 1000, 0);
    }
    // An idle connection and a new one may race for a request.
    let connections = server.connections();
    assert!(connections <= 10, "{connections} for 40 requests");
}

/// Every request names its range and its version, and one that fails too often fails its read alone.
#[test]
fn repeated_failures_are_an_error_and_the_next_read_starts_clean() {
    let server = serve(MIB);
    let object = open(&server);
    // A read has twice the retries of the settings.
    server.lie(Lie::Status(503, None), 5);
    let line = read(&object, 4096, 50_000).expect_err("too often");
    let line = line.to_string();
    let is_line = line.starts_with("http://127.0.0.1:") && !line.contains('\n');
    assert!(is_line, "{line}");
    assert_eq!(object.asked().retries, 4);
    read_right(&object, 4096, 50_000, 0);
    let seen = server.seen();
    assert!(seen.iter().all(|seen| seen.range().is_some()));
    let mut conditions = seen[1..].iter().map(|seen| seen.header("if-match"));
    assert!(conditions.all(|condition| condition == Some("\"one\"")));
}

#[test]
fn a_broken_body_is_continued_after_the_received_bytes() {
    let server = serve(MIB);
    let object = open(&server);
    server.lie(Lie::Close(20_000), 1);
    read_right(&object, 0, 50_000, 0);
    let seen = server.seen();
    let ranges = seen.iter().filter_map(|seen| seen.header("range"));
    let wanted = ["bytes=0-131071", "bytes=0-49999", "bytes=20000-49999"];
    assert_eq!(Vec::from_iter(ranges), wanted);
    assert_eq!(object.asked().bytes, 128 * KIB + 50_000);
}

/// The request that opens an object brings its first bytes: a small one is read by it alone, and a change is noticed behind them.
#[test]
fn the_first_bytes_come_with_the_request_that_opens() {
    let asked = |size: u64, reads: &[(u64, usize)]| {
        let server = serve(size);
        let source = Arc::new(open(&server));
        let reader = plain(Arc::clone(&source) as Arc<dyn Source>);
        for &(offset, len) in reads {
            read_and_check(&reader, &mut vec![0; len], offset, 0);
        }
        source.asked().requests
    };
    assert_eq!(asked(100_000, &[(0, 100_000)]), 1);
    assert_eq!(asked(MIB, &[(0, 4096), (65_536, 4096)]), 1);
    assert_eq!(asked(MIB, &[(0, 150_000)]), 2, "the rest");
    let elsewhere = [(500_000, 4096), (0, 4096)];
    assert_eq!(asked(MIB, &elsewhere), 2, "a reader that begins elsewhere");
    let log = tempfile::NamedTempFile::new().expect("a file");
    let server = serve(MIB);
    let options = Options::default().policy("none").event_log(log.path());
    let reader = opened(open(&server), options);
    server.replace(of_version(MIB, 7), Some("\"other\""), None);
    let mut buf = vec![0; 65_536];
    read_and_check(&reader, &mut buf, 0, 0);
    let error = reader.read_at(&mut buf, 500_000).expect_err("another");
    assert!(matches!(error, ReadError::Changed { .. }), "{error}");
    // They are not measured: a copy would count as a source that answers at once.
    is_logged_once(&reader, &log, " athand ");
}

/// The log of a reader replays, and has this event once.
fn is_logged_once(reader: &Reader, log: &tempfile::NamedTempFile, event: &str) {
    reader.engine().end_event_log().expect("written");
    let text = std::fs::read_to_string(log.path()).expect("there");
    let of_event = text.lines().filter(|line| line.contains(event));
    assert_eq!(of_event.count(), 1, "{text}");
    foreread::eventlog::check_log(text.as_bytes()).expect("identical");
}

/// The first read of an object knows how far away its server is, since the request that opened it was answered: 31 times what it reads is
/// fetched ahead, and not as much again.
#[test]
fn the_answer_to_the_request_that_opens_is_a_latency() {
    let server = serve(32 * MIB);
    server.link(Link::new(Duration::from_millis(5), 0));
    let log = tempfile::NamedTempFile::new().expect("a file");
    let reader = opened(open(&server), Options::default().event_log(log.path()));
    let again = reader.try_clone().expect("opened again");
    read_and_check(&reader, &mut vec![0; 65_536], 0, 0);
    let stats = reader.stats();
    assert!(stats.ra_planned_bytes >= MIB, "{stats:?}");
    drop(again);
    // Once for a file.
    is_logged_once(&reader, &log, " answered ");
}

/// Each deadline alone: the others are far away.
#[test]
fn each_deadline_ends_its_operation() {
    let far = Duration::from_secs(1000);
    let near = Duration::from_millis(80);
    let only = |set: &dyn Fn(&mut ObjectSettings)| {
        let mut settings = ObjectSettings {
            first_byte: far,
            stall: far,
            total: far,
            retries: 0,
            ..settings()
        };
        set(&mut settings);
        settings
    };
    let dribble = Lie::Dribble(Duration::from_millis(5));
    let (first, rest) = (only(&|s| s.first_byte = near), only(&|s| s.stall = near));
    let whole = only(&|s| (s.total, s.slowest_bytes_per_second) = (near, u64::MAX));
    for (set, lie, words) in [
        (first.clone(), Lie::Silence, "no byte came within 80ms"),
        (first, Lie::Stall(0), "no byte came within 80ms"),
        (rest, Lie::Stall(1000), "the bytes stopped coming for 80ms"),
        (whole, dribble, "longer than 80ms in all"),
    ] {
        let server = serve(MIB);
        let object = open_by(&server, set);
        server.lie(lie, 1);
        let error = read(&object, 0, 50_000).expect_err(words);
        says(&error.to_string(), &[words]);
        let late = rustix::io::Errno::TIMEDOUT.raw_os_error();
        assert_eq!(error.errno(), late, "{error}");
        // A busy machine may be late once more, but not always.
        let bytes = (0..50).find_map(|_| read(&object, 0, 50_000).ok());
        right(&bytes.expect("it is not late any more"), 0, 0);
    }
}

/// The first byte and each next one in time, the whole long after both deadlines: a slow body that is well.
#[test]
fn a_large_body_that_moves_is_not_ended() {
    let server = serve(MIB);
    server.link(Link::new(Duration::ZERO, 400_000));
    // A busy machine may hold bytes up longer than they may stay away; not every time.
    let in_one = (0..5).any(|_| {
        let object = open(&server);
        read_right(&object, 0, MIB as usize, 0);
        object.asked().retries == 0
    });
    assert!(in_one, "a body of 2.6 s that never stops for a second");
}

/// Replaced between two requests of one body: the rest is not taken from the new version.
#[test]
fn a_broken_body_does_not_go_on_in_another_version() {
    let server = serve(MIB);
    let slow = ObjectSettings {
        pause: Duration::from_millis(50),
        ..settings()
    };
    let object = open_by(&server, slow);
    server.lie(Lie::Close(20_000), 1);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(&object, 0, 50_000));
        while server.seen().len() < 2 {
            std::thread::yield_now();
        }
        server.replace(of_version(MIB, 1), Some("\"two\""), None);
        changed(reader.join().expect("no panic"), "another");
    });
}

/// Through the engine: a stream of reads, the object replaced in the middle. Bytes of one version, the notice, bytes of
/// the other; no slot is lost.
#[test]
fn a_stream_over_a_replaced_object_never_mixes() {
    for seed in 0..4 {
        let server = serve(4 * MIB);
        let source: Arc<dyn Source> = Arc::new(open(&server));
        let reader = Reader::open(source, Options::default().cache_bytes(2 * MIB)).expect("opened");
        let mut rng = Rng(seed);
        // So that a window of 512 KiB in flight does not reach the end.
        let at = rng.below(3 * MIB);
        let mut notices = 0;
        let mut buf = vec![0; 32 * KIB as usize];
        for offset in (0..4 * MIB).step_by(buf.len()) {
            if (offset..offset + buf.len() as u64).contains(&at) {
                server.replace(of_version(4 * MIB, 1), Some("\"two\""), None);
            }
            match reader.read_at(&mut buf, offset) {
                // Old until the notice, new from then on.
                Ok(len) => assert_eq!(testing::check(&buf[..len], offset, notices), Ok(())),
                Err(ReadError::Changed { .. }) => notices += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(notices, 1, "seed {seed}");
        quiet(&reader);
    }
}

#[test]
fn open_errors_are_one_line_without_secrets() {
    let server = serve(MIB);
    let port = server.address().port();
    let own = |path: &str| format!("http://user:secret@127.0.0.1:{port}/{path}?token=secret");
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let free = format!("http://user:secret@{}/x", free.expect("a port"));
    let tls = format!("https://user:secret@127.0.0.1:{port}/object");
    let fails = |name: &str, words: &str| {
        let line = refused(Object::open_with(name, settings()), words).to_string();
        assert!(!line.contains('\n') && !line.contains("secret"), "{line}");
        says(&line, &[words]);
    };
    fails(&own("missing"), "answered 404; check the URL");
    server.lie(Lie::Status(403, None), 1);
    fails(&own("object"), "answered 403; check the user and password");
    server.lie(Lie::IgnoreRange, 1);
    fails(&own("object"), "use a server that supports ranges");
    let host = "http://nosuch.invalid/x";
    fails(host, "its host name cannot be resolved");
    fails(&tls, "https://127.0.0.1");
    fails(&free, "cannot be made");

    // What was sent, and where it is shown.
    let object = Object::open_with(&own("object"), settings()).expect("opened");
    let basic = Some("Basic dXNlcjpzZWNyZXQ=");
    let last = server.seen().pop().expect("asked");
    let sent = (last.header("authorization"), last.target.as_str());
    assert_eq!(sent, (basic, "/object?token=secret"));
    let shown = format!("http://127.0.0.1:{port}/object?..., by ETag");
    assert_eq!(object.describe(), shown);
    server.lie(Lie::Status(404, None), 1);
    let line = read(&object, 0, 10).expect_err("gone").to_string();
    assert!(!line.contains("secret"), "{line}");
}

#[test]
fn sources_are_opened_by_name_and_inside_another_runtime() {
    let server = serve(MIB);
    let object = source::open(&server.url()).expect("opened");
    let usual = ObjectSettings::default().requests;
    assert_eq!(object.defaults().requests, usual);
    runtime(0).block_on(async { read_right(&*object, 0, 10_000, 0) });
}
