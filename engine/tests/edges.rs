//! Tests of edge cases: the largest offsets, sizes of zero and one byte, short answers, the clock, signals, and no free
//! descriptors.
//!
//! Every edge case is run, not only reasoned about.

use crate::common::nbd as served;

use crate::common::{
    by, check_memory, in_threads, is_alone, named, only, opened, passed, plain, quiet,
    read_and_check, refused, this_test,
};
use foreread::front::nbd::NbdSettings;
use foreread::source::{Mem, Nbd};
use foreread::{Advice, Options, ReadError, Reader};
use foreread_core::event::{Action, Event};
use foreread_core::machine::{Config, Machine};
use foreread_core::policy::PolicySpec;
use foreread_core::units::{ByteRange, FileId, Nanos, OpenId, PageSize, ReadId};
use foreread_testing::{Call, FaultAction, Faulty, needs};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use served::{Client, MIB, Served};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Offsets near 0, the size, 2^31, 2^32, 2^62, 2^63 and 2^64, of sources of any size, under every policy: what there is, and
/// no more. (A file refuses offsets that the system does not know: `conformance.rs`.)
#[test]
fn the_largest_offsets_and_the_smallest_sizes() {
    for policy in foreread_history::policies() {
        for size in [0, 1, 511, 4095, 4096, 4097, 1 << 31, (1 << 62) - 1, 1 << 62] {
            // Bytes that name their offset modulo 2^63: enough to tell neighbours apart.
            let source = Mem::generated(size, |at, buf| {
                let bytes = (at..=u64::MAX).map(|at| (at % 251) as u8);
                buf.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
            });
            let options = Options::default()
                .policy(foreread_history::parse(policy.name).expect("a policy"))
                .cache_bytes(1 << 20)
                .threads(1);
            let reader = opened(source, options);
            let ends = [0, size, 1 << 31, 1 << 32, 1 << 62, 1 << 63, u64::MAX];
            let near = |end: u64| [5000, 1, 0].map(|back| end.saturating_sub(back));
            let behind = ends.map(|end| end.saturating_add(1));
            for offset in ends.into_iter().flat_map(near).chain(behind) {
                for len in [0, 1, 4096, 10_000] {
                    let what = format!("{}: {len} at {offset} of {size}", policy.name);
                    let mut buf = vec![0; len];
                    let got = reader.read_at(&mut buf, offset);
                    let got = got.unwrap_or_else(|e| panic!("{what}: {e}"));
                    let want = (len as u64).min(size.saturating_sub(offset)) as usize;
                    assert_eq!(got, want, "{what}");
                    let mut bytes = (offset..=u64::MAX).zip(&buf[..got]);
                    let right = bytes.all(|(at, byte)| (at % 251) as u8 == *byte);
                    assert!(right, "{what}");
                }
            }
            use Advice::{DontNeed, Normal, Random, Sequential, WillNeed};
            for range in [0..u64::MAX, u64::MAX - 1..u64::MAX, size..size] {
                for advice in [WillNeed, DontNeed, Sequential, Random, Normal] {
                    let taken = reader.advise(advice, range.clone());
                    taken.expect("a hint is no error");
                }
            }
            quiet(&reader);
        }
    }
}

/// Answers that stop short are asked to go on; one that returns nothing twice is the end, and an error before the size.
#[test]
fn short_answers_are_continued() {
    let size = 1 << 20;
    let short = |call: Call| FaultAction::Cut(1 + (call.nth as usize * 977) % 6000);
    let options = Options::default().cache_bytes(256 << 10);
    let reader = opened(Faulty::new(named(size), short), options);
    let mut buf = vec![0; 50_000];
    for at in (0..size).step_by(50_000) {
        let read = read_and_check(&reader, &mut buf, at, 0) as u64;
        assert_eq!(read, 50_000.min(size - at));
    }
    quiet(&reader);
    let stats = reader.stats();
    assert_eq!((stats.failed_reads, stats.failed_fetches), (0, 0));
    // Nothing once: asked again. Nothing twice: the end.
    for (stops, ends) in [(1, false), (2, true)] {
        let rule = move |call: Call| match (1..=stops).contains(&call.nth) {
            true => FaultAction::Cut(0),
            false => FaultAction::Cut(8192),
        };
        let reader = plain(Arc::new(Faulty::new(named(size), rule)));
        match reader.read_at(&mut buf[..16_384], 0) {
            Ok(read) => assert!(read == 16_384 && !ends, "{read}"),
            Err(error) => {
                let is_end = ends && matches!(error, ReadError::Short { .. });
                assert!(is_end, "{error}");
            }
        }
        // The next read starts clean.
        assert_eq!(read_and_check(&reader, &mut buf[..16_384], 0, 0), 16_384);
    }
}

/// All events at the same nanosecond, under every policy; and a log of many threads, in which time only goes on.
#[test]
fn equal_times_and_a_clock_that_never_goes_back() {
    for policy in foreread_history::policies() {
        let page = PageSize::new(policy.page_bytes.unwrap_or(4096)).expect("a page");
        let config = Config::new(page, 1 << 20).bounded();
        let mut machine = Machine::new(config, PolicySpec::of(policy));
        let (open, file, size, random) = (OpenId(0), FileId(0), 1 << 24, false);
        let reads = (0..200).map(|n| Event::Read {
            read: ReadId(n),
            open,
            range: ByteRange::between(n * 10_000, n * 10_000 + 10_000),
            random,
        });
        let (mut fetches, mut served) = (Vec::new(), 0);
        for event in std::iter::once(Event::Open { open, file, size }).chain(reads) {
            let mut queue = vec![event];
            while let Some(event) = queue.pop() {
                machine.handle(Nanos(0), event);
                while let Some(action) = machine.poll() {
                    match action {
                        Action::Submit { fetch, range, .. } => fetches.push((fetch, range.len())),
                        Action::Serve { lease, range, .. } => {
                            served += range.len();
                            queue.push(Event::Release { lease });
                        }
                        _ => {}
                    }
                }
                if queue.is_empty() {
                    let done = fetches.pop();
                    queue.extend(done.map(|(fetch, bytes)| Event::Done { fetch, bytes }));
                }
            }
        }
        assert_eq!(served, 200 * 10_000, "{}", policy.name);
    }
    let log = tempfile::NamedTempFile::new().expect("a file");
    let options = Options::default().cache_bytes(1 << 20);
    let options = options.event_log(log.path());
    let reader = opened(named(16 * MIB), options);
    in_threads(8, |thread| {
        let (own, mut buf) = (reader.try_clone().expect("opened"), vec![0; 5000]);
        for i in thread * 200..(thread + 1) * 200 {
            assert_eq!(read_and_check(&own, &mut buf, i * 5000, 0), 5000);
        }
    });
    reader.engine().end_event_log().expect("written");
    let text = std::fs::read_to_string(log.path()).expect("a log");
    let lines = text.lines().filter_map(|line| line.strip_prefix("E "));
    let times = lines.filter_map(|line| line.split(' ').next()?.parse().ok());
    let times: Vec<u64> = times.collect();
    assert!(times.is_sorted() && times.len() > 1000, "{}", times.len());
}

/// A hint far larger than the cache, a reader that reads on: readahead is refused, demand is not, memory stays.
#[test]
fn readahead_is_refused_before_demand() {
    let reader = opened(named(256 * MIB), Options::default().cache_bytes(MIB));
    let all = 0..256 * MIB;
    reader.advise(Advice::WillNeed, all).expect("taken");
    let mut buf = vec![0; 100_000];
    for i in 0..200 {
        assert_eq!(read_and_check(&reader, &mut buf, i * 1_000_000, 0), 100_000);
    }
    let gauges = quiet(&reader);
    check_memory(&gauges, 4096);
    let is_right = gauges.pages <= 256 && reader.stats().failed_reads == 0;
    assert!(is_right, "{gauges:?}");
}

/// With no descriptor left, clients wait or are turned away, those that are in are served, and room that is made is used.
#[test]
fn without_descriptors_connected_clients_are_served() {
    needs!(is_alone(this_test!()));
    let served = Served::new(named(MIB));
    let mut clients = [served.client(), served.client()];
    let open = std::fs::read_dir("/proc/self/fd").expect("there").count() as u64;
    let limit = Rlimit {
        current: Some(open + 6),
        maximum: getrlimit(Resource::Nofile).maximum,
    };
    setrlimit(Resource::Nofile, limit).expect("lowered");
    // Both ends are ours, so each costs two: the server runs out first or we do.
    let mut waiting = Vec::new();
    while let Ok(stream) = UnixStream::connect(served.path()) {
        waiting.push(stream);
    }
    assert!(!waiting.is_empty());
    std::thread::sleep(Duration::from_millis(200));
    for client in &mut clients {
        client.reads(1, 4096, 4096);
    }
    let error = refused(Reader::open("/etc/passwd", Options::default()), "none left");
    let remedy = "raise the limit of open files (ulimit -n)";
    assert!(error.to_string().ends_with(remedy), "{error}");
    let last = waiting.pop().expect("one");
    drop(waiting);
    Client::begin(last).send(0, 1, 0, 1);
    served.client();
    assert!(foreread::front::nbd::make_room(1000) < 2000);
}

/// A process that is stopped and goes on has its waiting calls interrupted: no read notices.
#[test]
fn an_interrupted_call_is_made_again() {
    const CHILD: &str = "FOREREAD_TEST_SIGNALS";
    if std::env::var_os(CHILD).is_none() {
        let mut child = Command::new(std::env::current_exe().expect("a path"));
        child.args(only(this_test!()));
        let child = child.env(CHILD, "1").stdout(Stdio::piped());
        let mut child = child.stderr(Stdio::piped()).spawn().expect("started");
        let pid = Pid::from_child(&child);
        let until = Instant::now() + Duration::from_secs(60);
        while child.try_wait().expect("asked").is_none() {
            assert!(Instant::now() < until, "it does not end");
            let _ = kill_process(pid, Signal::STOP);
            std::thread::sleep(Duration::from_millis(2));
            let _ = kill_process(pid, Signal::CONT);
            std::thread::sleep(Duration::from_millis(7));
        }
        return passed(&child.wait_with_output().expect("ended"));
    }
    let slow = Faulty::slow(named(16 * MIB), 1, Duration::from_millis(4));
    let reader = plain(Arc::new(slow));
    let settings = NbdSettings {
        stall: Duration::from_secs(20),
        ..NbdSettings::default()
    };
    let served = Served::of(reader, settings);
    // Its sockets have a time limit, and such calls are interrupted even without a handler.
    let source = Nbd::open_within(&served.uri(), Duration::from_secs(20)).expect("connected");
    let reader = opened(source, Options::default().cache_bytes(MIB));
    let mut buf = vec![0; 64 << 10];
    for at in (0..200).map(|i| i * (64 << 10)) {
        assert_eq!(read_and_check(&reader, &mut buf, at, 0), 64 << 10);
    }
}

/// A source beyond the largest offset is refused when it is opened; a run longer than a fetch may be is fetched in parts.
#[test]
fn a_source_and_a_fetch_have_their_largest_size() {
    let large = |size| {
        let zeroes = Mem::generated(size, |_, buf| buf.fill(0));
        Reader::open(Arc::new(zeroes), by("none", 8 << 20))
    };
    for size in [(1 << 62) + 1, 1 << 63, u64::MAX] {
        let error = refused(large(size), "too large");
        assert!(matches!(error, foreread::OpenError::TooLarge { .. }));
        let why = format!("the source has {size} bytes: at most");
        assert!(error.to_string().starts_with(&why), "{error}");
    }
    let reader = large(1 << 62).expect("as large as one may be");
    assert_eq!(reader.read_at(&mut vec![1; 2 << 20], 0), Ok(2 << 20));
    assert_eq!(reader.stats().source_reads, 2, "of 1 MiB each");
}
