//! Bugs that other projects had: one room for each, named after the project and the number there, with what happened.
//!
//! The same circumstances, made here, must come out right. Never: a judgement; these are the bugs that good
//! programs of this kind have, and most were found by users.

use crate::common::nbd as served;

use crate::common::{Rng, named, only, quiet, read_and_check, watch};
use foreread::front::nbd::NbdSettings;
use foreread::nbd::wire::{self, command};
use foreread::source::{Mem, Nbd, Source};
use foreread::{Advice, Options, ReadError, Reader};
use foreread_testing::{self as testing, Call, FaultAction, Faulty};
use served::{MIB, Served, has};
use std::io::{IoSliceMut, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

fn sequential() -> Options {
    Options::default()
        .cache_bytes(4 * MIB)
        .policy("linux-6.18:max=128K")
}

/// slash2 #368: one readahead that failed took with it every request that depended on the page.
#[test]
fn slash2_368() {
    watch();
    let failed = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&failed);
    // What is ahead of the reads fails, slowly, so that both readers have joined it by then; asked again it works.
    let ahead = move |call: Call| {
        if call.offset >= 64 << 10 && count.fetch_add(1, Ordering::SeqCst) < 2 {
            std::thread::sleep(Duration::from_millis(100));
            return FaultAction::Fail(5);
        }
        FaultAction::Pass
    };
    let reader =
        Reader::open(Arc::new(Faulty::new(named(4 * MIB), ahead)), sequential()).expect("opened");
    let mut buf = vec![0; 32 << 10];
    (0..2).for_each(|i| assert_eq!(read_and_check(&reader, &mut buf, i << 15, 0), 32 << 10));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let own = reader.try_clone().expect("opened");
            scope.spawn(move || {
                let mut buf = vec![0; 32 << 10];
                (2..6)
                    .for_each(|i| assert_eq!(read_and_check(&own, &mut buf, i << 15, 0), 32 << 10));
            });
        }
    });
    quiet(&reader);
    assert!(
        failed.load(Ordering::SeqCst) >= 2 && reader.stats().failed_reads == 0,
        "{:?}",
        reader.stats()
    );
}

/// hf-mount #12: a reply was cut where the prefetched buffer ended; the kernel took it for the end of the file, and all readers
/// of the page cache with it.
#[test]
fn hf_mount_12() {
    watch();
    let size = 3 * MIB + 777;
    // The source stops short all the time as well.
    let short = Faulty::new(named(size), |call: Call| {
        FaultAction::Cut(4096 * (1 + call.nth as usize % 7) - 5)
    });
    let served = Served::of(
        Reader::open(Arc::new(short), sequential()).expect("opened"),
        NbdSettings::default(),
    );
    let mut client = served.client();
    let mut rng = Rng(12);
    let mut at = 0;
    while at < size {
        let len = (1 + rng.below(150_000)).min(size - at);
        client.send(command::READ, at, at, len as u32);
        assert_eq!(client.answer(), (at, 0));
        // As many bytes as were asked for, or the next answer would not be one.
        testing::check(&client.data(len as usize), at, 0).expect("right bytes");
        at += len;
    }
}

/// foyer #1286: a read was dropped while its I/O was in flight, and its buffer was freed and used again under it.
#[test]
fn foyer_1286() {
    watch();
    for round in 0..30_u64 {
        let slow = Arc::new(Faulty::slow(
            named(64 * MIB),
            round,
            Duration::from_millis(2),
        ));
        let reader = Reader::open(Arc::clone(&slow), sequential()).expect("opened");
        let other = reader.try_clone().expect("opened");
        let meter = reader.meter();
        let mut buf = vec![0; 32 << 10];
        (0..4).for_each(|i| assert_eq!(read_and_check(&reader, &mut buf, i << 15, 0), 32 << 10));
        // Its readahead is in flight. Another goes on in the same pool of buffers.
        drop(reader);
        for i in 0..4 {
            let at = 32 * MIB + (i << 15);
            assert_eq!(read_and_check(&other, &mut buf, at, 0), 32 << 10);
        }
        drop(other);
        assert_eq!(
            (meter.held_bytes(), Arc::strong_count(&slow)),
            (0, 1),
            "buffers and source were kept to the end"
        );
    }
}

/// rocksdb #14337: a ring could not be made at run time, though the first could, and every read failed instead of taking another
/// way.
#[test]
fn rocksdb_14337() {
    const CHILD: &str = "FOREREAD_TEST_RINGS";
    watch();
    if std::env::var_os(CHILD).is_some() {
        let mut buf = vec![0; 200_000];
        for version in 0..3 {
            let file = tempfile::NamedTempFile::new().expect("a file");
            std::fs::write(file.path(), testing::pattern(0, 1 << 20, version)).expect("written");
            let reader =
                Reader::open(file.path().to_str().expect("UTF-8"), sequential()).expect("opened");
            for at in (0..MIB).step_by(200_000) {
                assert_eq!(
                    read_and_check(&reader, &mut buf, at, version) as u64,
                    200_000.min(MIB - at)
                );
            }
        }
        return;
    }
    if !has("strace", "strace") {
        return;
    }
    for inject in [
        "inject=io_uring_setup:error=ENOMEM:when=2+",
        "inject=io_uring_setup:error=EPERM",
    ] {
        let mut strace = Command::new("strace");
        strace.args([
            "-f",
            "-qq",
            "-o",
            "/dev/null",
            "-e",
            "trace=io_uring_setup",
            "-e",
            inject,
        ]);
        strace
            .arg(std::env::current_exe().expect("this test"))
            .args(only(module_path!(), "rocksdb_14337"))
            .env(CHILD, "1");
        let out = strace.output().expect("started");
        assert!(
            out.status.success(),
            "{inject}: {}",
            String::from_utf8_lossy(&out.stdout)
        );
    }
}

/// mountpoint-s3 #136: the object was replaced between two requests of one read, which then returned half of each.
#[test]
fn mountpoint_136() {
    watch();
    for n in 1..12 {
        let source = Arc::new(Mem::new(testing::pattern(0, 4 << 20, 1)));
        let (inner, done) = (Arc::clone(&source), AtomicBool::new(false));
        // Replaced in front of the nth request, as another program would.
        let replace = move |call: Call| {
            if call.nth == n && !done.swap(true, Ordering::SeqCst) {
                inner.replace(testing::pattern(0, 4 << 20, 2));
            }
            FaultAction::Pass
        };
        let options = Options::default()
            .cache_bytes(64 * MIB)
            .policy("none")
            .threads(1);
        let mut options = options;
        options.limits.max_fetch_bytes = Some(256 << 10);
        let reader = Reader::open(Arc::new(Faulty::new(source, replace)), options).expect("opened");
        let mut buf = vec![0; 4 << 20];
        let first = reader.read_at(&mut buf, 0);
        assert!(
            matches!(first, Err(ReadError::Changed { .. })),
            "request {n}: {first:?}"
        );
        assert_eq!(
            read_and_check(&reader, &mut buf, 0, 2),
            4 << 20,
            "the next read is all of the new version"
        );
    }
}

/// mountpoint-s3 #933: after an error on a seek forward the state was not reset, and later reads met a broken queue.
#[test]
fn mountpoint_933() {
    watch();
    let bad = 20 * MIB..20 * MIB + (256 << 10);
    let area = bad.clone();
    let rule = move |call: Call| {
        if area.contains(&call.offset) {
            FaultAction::Fail(5)
        } else {
            FaultAction::Pass
        }
    };
    let source = Arc::new(Faulty::new(named(64 * MIB), rule));
    // Not the present kernel's: it quarters its window for good with each failed read, and has none after three.
    let options =
        sequential().policy(foreread_history::parse("linux-3.12:max=128K").expect("a policy"));
    let reader = Reader::open(Arc::clone(&source), options).expect("opened");
    let mut buf = vec![0; 64 << 10];
    for round in 0..5 {
        (0..8).for_each(|i| {
            assert_eq!(
                read_and_check(&reader, &mut buf, (round * 8 + i) << 16, 0),
                64 << 10
            )
        });
        for _ in 0..2 {
            assert!(matches!(
                reader.read_at(&mut buf, bad.start),
                Err(ReadError::Io { errno: 5, .. })
            ));
        }
        (0..8).for_each(|i| {
            assert_eq!(
                read_and_check(&reader, &mut buf, bad.end + ((round * 8 + i) << 16), 0),
                64 << 10
            );
        });
    }
    source.heal();
    assert_eq!(read_and_check(&reader, &mut buf, bad.start, 0), 64 << 10);
    let before = reader.stats();
    (1..30).for_each(|i| {
        assert_eq!(
            read_and_check(&reader, &mut buf, 40 * MIB + (i << 16), 0),
            64 << 10
        )
    });
    quiet(&reader);
    assert!(
        reader.stats().ra_bytes > before.ra_bytes,
        "readahead goes on"
    );
}

/// Every read around an end, by every way to get there: what there is, and no more.
fn around_the_ends(size: u64) {
    watch();
    for policy in [
        "none",
        "linux-6.18:max=128K",
        "rbd-plain",
        "linux-2.6.0:max=64K",
    ] {
        let options = Options::default()
            .policy(foreread_history::parse(policy).expect("a policy"))
            .cache_bytes(256 << 10);
        let reader = Reader::open(Arc::new(named(size)), options).expect("opened");
        let mut buf = vec![0; 70_000];
        for end in [size, size / 2, 65_536, 4096] {
            for before in [0, 1, 4095, 4096, 4097, 30_000] {
                for len in [1, 2, 4095, 4096, 8193, 70_000] {
                    let at = end.saturating_sub(before);
                    let got = read_and_check(&reader, &mut buf[..len], at, 0) as u64;
                    assert_eq!(
                        got,
                        (len as u64).min(size.saturating_sub(at)),
                        "{policy}: {len} at {at} of {size}"
                    );
                }
            }
        }
        quiet(&reader);
    }
}

/// fsspec #110: the arithmetic of the read-ahead cache at the end of a file lost bytes.
#[test]
fn fsspec_110() {
    [1, 4095, 4097, 100_001, 262_144]
        .into_iter()
        .for_each(around_the_ends);
}

/// s3fs #220: a seek back from near the end returned bytes of another place.
#[test]
fn s3fs_220() {
    watch();
    let size = 5 * MIB + 123;
    let reader =
        Reader::open(Arc::new(named(size)), sequential().cache_bytes(512 << 10)).expect("opened");
    let mut buf = vec![0; 100_000];
    for step in 0..60 {
        let back = step * 70_001;
        let at = (size - 10).saturating_sub(back);
        // To the end, back, on from there, and over the end.
        for at in [
            size - 10,
            at,
            at + 50_000,
            size - 1,
            size,
            at.saturating_sub(1),
        ] {
            let got = read_and_check(&reader, &mut buf, at, 0) as u64;
            assert_eq!(got, 100_000.min(size.saturating_sub(at)), "at {at}");
        }
    }
}

/// fsspec #2150: an inclusive end was taken for an exclusive one, and each read fetched a block too many.
#[test]
fn fsspec_2150() {
    watch();
    let asked = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&asked);
    let rule = move |call: Call| {
        count.fetch_add(call.len, Ordering::SeqCst);
        FaultAction::Pass
    };
    let reader = Reader::open(
        Arc::new(Faulty::new(named(64 * MIB), rule)),
        Options::default().policy("none"),
    );
    let (reader, mut buf) = (reader.expect("opened"), vec![0; 65_536]);
    for (i, (lead, len, pages)) in [
        (0, 4096, 1),
        (0, 65_536, 16),
        (0, 1, 1),
        (4095, 1, 1),
        (4095, 2, 2),
        (4096, 4096, 1),
        (1, 4096, 2),
        (0, 4097, 2),
    ]
    .into_iter()
    .enumerate()
    {
        asked.store(0, Ordering::SeqCst);
        assert_eq!(
            read_and_check(&reader, &mut buf[..len], i as u64 * MIB + lead, 0),
            len
        );
        assert_eq!(
            asked.load(Ordering::SeqCst),
            pages * 4096,
            "{len} at {lead}"
        );
    }
}

/// arrow #46346: a hint that the system refused made the file impossible to open.
#[test]
fn arrow_46346() {
    watch();
    let source = Arc::new(Faulty::from_nth(named(4 * MIB), 0));
    let reader = Reader::open(Arc::clone(&source), sequential()).expect("opened");
    for advice in [
        Advice::WillNeed,
        Advice::Sequential,
        Advice::Random,
        Advice::DontNeed,
        Advice::Normal,
    ] {
        reader.advise(advice, 0..4 * MIB).expect("a hint is a hint");
        reader
            .advise(advice, u64::MAX - 1..u64::MAX)
            .expect("a hint is a hint");
    }
    quiet(&reader);
    assert!(source.faults() > 0, "the hint was followed, and failed");
    source.heal();
    assert_eq!(
        read_and_check(&reader, &mut vec![0; 1 << 20], 0, 0),
        1 << 20
    );
    let served = Served::of(
        Reader::open(Arc::new(named(MIB)), sequential()).expect("opened"),
        NbdSettings::default(),
    );
    let mut client = served.client();
    client.send(command::CACHE, 1, 0, 1 << 20);
    assert_eq!(client.answer(), (1, 0));
}

/// A server by hand: it agrees on 16 MiB, and then `answer` gets each request and the socket.
fn by_hand(
    path: &Path,
    clients: usize,
    answer: impl Fn(&mut UnixStream, wire::Request) -> bool + Send + Sync + 'static,
) {
    let listener = UnixListener::bind(path).expect("a socket");
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming().take(clients) {
            let (mut stream, answer) = (stream.expect("a client"), Arc::clone(&answer));
            std::thread::spawn(move || {
                let hello = [
                    &wire::MAGIC.to_be_bytes()[..],
                    &wire::OPTION_MAGIC.to_be_bytes(),
                    &[0, 3],
                ]
                .concat();
                stream.write_all(&hello).expect("sent");
                let mut head = [0; 20];
                stream.read_exact(&mut head).expect("flags and an option");
                let len = u32::from_be_bytes(head[16..].try_into().expect("four"));
                stream
                    .read_exact(&mut vec![0; len as usize])
                    .expect("its data");
                let mut reply = Vec::new();
                let flags = wire::transmission::HAS_FLAGS | wire::transmission::READ_ONLY;
                let export =
                    [&[0, 0][..], &(16 * MIB).to_be_bytes(), &flags.to_be_bytes()].concat();
                for (kind, data) in [(wire::reply::INFO, &export[..]), (wire::reply::ACK, &[])] {
                    reply.extend(wire::OPTION_REPLY_MAGIC.to_be_bytes());
                    reply.extend(wire::option::GO.to_be_bytes());
                    reply.extend(kind.to_be_bytes());
                    reply.extend((data.len() as u32).to_be_bytes());
                    reply.extend(data);
                }
                stream.write_all(&reply).expect("sent");
                let mut bytes = [0; wire::Request::BYTES];
                while stream.read_exact(&mut bytes).is_ok() {
                    if !answer(
                        &mut stream,
                        wire::Request::parse(&bytes).expect("a request"),
                    ) {
                        return;
                    }
                }
            });
        }
    });
}

fn hand(stream: &mut UnixStream, request: wire::Request, pieces: usize, pause: Duration) -> bool {
    let mut data = vec![0; request.len as usize];
    testing::fill(&mut data, request.offset, 0);
    let sent = stream.write_all(&wire::simple(0, request.cookie));
    sent.is_ok()
        && data.chunks(data.len().div_ceil(pieces)).all(|piece| {
            std::thread::sleep(pause);
            stream.write_all(piece).is_ok()
        })
}

/// aws-sdk-js #8098: no time limit on the body of an answer; a download hung for seven hours.
#[test]
fn aws_js_8098() {
    watch();
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("s");
    let healthy = Arc::new(AtomicBool::new(false));
    let now = Arc::clone(&healthy);
    by_hand(&socket, 3, move |stream, request| {
        if now.load(Ordering::SeqCst) {
            return hand(stream, request, 1, Duration::ZERO);
        }
        // A head that promises, a first half, and then nothing.
        let half = vec![0; request.len as usize / 2];
        let sent = stream
            .write_all(&wire::simple(0, request.cookie))
            .and_then(|()| stream.write_all(&half));
        std::thread::sleep(Duration::from_secs(20));
        sent.is_ok()
    });
    let uri = format!("nbd+unix:///?socket={}", socket.display());
    let source = Nbd::open_within(&uri, Duration::from_millis(200)).expect("connected");
    let reader = Reader::open(Arc::new(source), Options::default().policy("none")).expect("opened");
    let error = reader
        .read_at(&mut vec![0; 100_000], 0)
        .expect_err("half an answer");
    assert!(matches!(error, ReadError::Io { errno: 110, .. }), "{error}");
    healthy.store(true, Ordering::SeqCst);
    assert_eq!(
        read_and_check(&reader, &mut vec![0; 100_000], 0, 0),
        100_000,
        "the slot is free again"
    );
    quiet(&reader);
}

/// wal-rus #28: one limit on the time of the whole answer ended large ones that came well.
#[test]
fn wal_rus_28() {
    watch();
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("s");
    by_hand(&socket, 1, |stream, request| {
        hand(stream, request, 12, Duration::from_millis(60))
    });
    // The limit on the whole answer grows with its length: five times the silence for 4 MiB.
    let uri = format!("nbd+unix:///?socket={}", socket.display());
    // In all three times as long as it may be silent.
    let source = Nbd::open_within(&uri, Duration::from_millis(240)).expect("connected");
    let mut buf = vec![0; 4 << 20];
    assert_eq!(
        source
            .read_at(&mut [IoSliceMut::new(&mut buf)], 4096)
            .expect("it goes on coming"),
        4 << 20
    );
    testing::check(&buf, 4096, 0).expect("right bytes");
}

/// nbdkit's readahead filter: one window for all connections, so two clients that read in order looked like one at random.
#[test]
fn nbdkit_global_window() {
    let reader = Reader::open(Arc::new(named(64 * MIB)), sequential()).expect("opened");
    let watched = reader.try_clone().expect("opened");
    let served = Served::of(reader, NbdSettings::default());
    let mut clients = [served.client(), served.client(), served.client()];
    for i in 0..256_u64 {
        for (me, client) in clients.iter_mut().enumerate() {
            let offset = me as u64 * 20 * MIB + i * 4096;
            client.send(command::READ, i, offset, 4096);
            assert_eq!(client.answer(), (i, 0));
            testing::check(&client.data(4096), offset, 0).expect("right bytes");
        }
    }
    quiet(&watched);
    let stats = watched.stats();
    let served_ahead = stats.hits + stats.late_hits;
    // Of 768 reads, each stream misses its first and hardly another.
    assert!(served_ahead >= 768 - 9, "{served_ahead} of 768, {stats:?}");
    // Three windows of at most 128 KiB that were not read yet.
    let asked = 3 * 256 * 4096;
    assert!(
        stats.source_bytes <= asked + 3 * 2 * (128 << 10),
        "{} for {asked}",
        stats.source_bytes
    );
}
