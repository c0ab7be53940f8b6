//! Tests of many sources in one engine: they share the cache and its limits, but never their bytes.

use crate::common::{
    Rng, by, in_threads, named, quiet, read_and_check, refused, right, wait_until, watch,
};
use foreread::eventlog::check_log;
use foreread::source::{Alignment, Defaults, Mem, Source, SourceError};
use foreread::{Advice, Engine, ListedFile, Listing, OpenError, Options, ReadError};
use foreread_testing::{
    self as testing, FaultAction, Faulty, HangingSource, Latch, Method, QueuedSource, passed_on,
    says,
};
use std::io::IoSliceMut;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

fn small() -> Options {
    watch();
    by("linux-6.18:max=128K", 4 << 20).threads(2)
}

/// Bytes that name the file as well as the place.
fn of_version(size: u64, version: u16) -> Arc<Mem> {
    Arc::new(Mem::generated(size, move |offset, buf| {
        testing::fill(buf, offset, version)
    }))
}

#[test]
fn one_file_after_the_other_leaves_nothing_behind() {
    let engine = Engine::new(small()).expect("an engine");
    let mut buf = vec![0; 20_000];
    for n in 0..20_000u32 {
        let reader = engine.open(of_version(20_000, n as u16));
        let reader = reader.expect("a number is free");
        if n % 4 == 0 {
            assert_eq!(read_and_check(&reader, &mut buf, 0, n as u16), 20_000);
        }
    }
    let gauges = engine.gauges();
    let left = (gauges.files, gauges.opens, gauges.pages);
    assert_eq!(left, (0, 0, 0), "{gauges:?}");
    assert_eq!(engine.meter().held_bytes(), 0);
    assert_eq!(engine.stats().demand_reads, 5000);
}

#[test]
fn the_last_reader_takes_the_pages_along_and_no_other_does() {
    let engine = Engine::new(small()).expect("an engine");
    let first = engine.open(of_version(1 << 20, 1)).expect("opened");
    let second = first.try_clone().expect("opened again");
    let other = engine.open(of_version(1 << 20, 2)).expect("opened");
    let mut buf = vec![0; 1 << 20];
    read_and_check(&first, &mut buf, 0, 1);
    read_and_check(&other, &mut buf, 0, 2);
    drop(first);
    let before = engine.stats().source_bytes;
    read_and_check(&second, &mut buf, 0, 1);
    // The pages were kept for the second reader.
    assert_eq!(engine.stats().source_bytes, before);
    drop(second);
    quiet(&other);
    let left = (engine.gauges().files, engine.gauges().pages);
    assert_eq!(left, (1, 256), "only the other file's pages are left");
}

/// The number of a closed file is used again while its readahead is still in flight: bytes that arrive late are discarded.
#[test]
fn late_bytes_of_a_closed_file_are_not_those_of_the_next() {
    let engine = Engine::new(small().threads(4)).expect("an engine");
    let mut buf = vec![0; 64 << 10];
    for n in 0..40u16 {
        let slow = Faulty::new(of_version(4 << 20, n), |call| match call.nth {
            0 => FaultAction::Pass,
            _ => FaultAction::Slow(Duration::from_millis(5)),
        });
        let slow = Arc::new(slow);
        let reader = engine.open(slow.clone()).expect("opened");
        read_and_check(&reader, &mut buf, 0, n);
        // Reaches the mark: the next window goes out, and no read waits for it.
        read_and_check(&reader, &mut buf, 64 << 10, n);
        while slow.calls() < 2 {
            std::thread::yield_now();
        }
        drop(reader);
        let next = engine.open(of_version(4 << 20, n + 1000)).expect("opened");
        for at in 0..8 {
            read_and_check(&next, &mut buf, at * (64 << 10), n + 1000);
        }
        quiet(&next);
    }
    let stats = engine.stats();
    assert!(stats.doomed_fetches > 0, "{stats:?}");
}

#[test]
fn threads_open_read_and_close_freely() {
    let log = tempfile::NamedTempFile::new().expect("a file");
    let engine = Engine::new(small().event_log(log.path())).expect("an engine");
    in_threads(4, |thread| {
        let (mut rng, mut buf) = (Rng(thread), vec![0; 100_000]);
        for n in 0..60 {
            let version = (thread * 1000 + n) as u16;
            let reader = engine.open(of_version(1 << 20, version)).expect("opened");
            for _ in 0..rng.below(12) {
                let len = rng.below(100_000) as usize;
                read_and_check(&reader, &mut buf[..len], rng.below(1 << 20), version);
            }
        }
    });
    assert_eq!((engine.gauges().files, engine.meter().held_bytes()), (0, 0));
    engine.end_event_log().expect("written");
    drop(engine);
    let text = std::io::BufReader::new(std::fs::File::open(log.path()).expect("the log"));
    let done = check_log(text).expect("identical");
    assert!(done.events > 1000, "{done:?}");
}

/// A source that refuses buffers at other addresses, as a device does.
struct Strict(Mem);

impl Source for Strict {
    passed_on! {self => self.0;
        size() -> u64;
        defaults() -> Defaults;
        describe() -> String;
    }

    fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, SourceError> {
        let mut buffers = bufs.iter().map(|buf| buf.as_ptr() as usize);
        if !buffers.all(|address| address.is_multiple_of(4096)) {
            return Err(SourceError::io(22, "alignment"));
        }
        self.0.read_at(bufs, offset)
    }

    fn alignment(&self) -> Alignment {
        Alignment {
            offset: 1,
            memory: 4096,
        }
    }
}

#[test]
fn buffers_suit_the_strictest_source_from_then_on() {
    let engine = Engine::new(small()).expect("an engine");
    let lax = engine.open(Arc::new(named(1 << 20))).expect("opened");
    let mut buf = vec![0; 5000];
    for at in 0..40 {
        read_and_check(&lax, &mut buf, at * 9000, 0);
    }
    let strict = Arc::new(Strict(named(1 << 20)));
    let strict = engine.open(strict).expect("opened");
    for at in 0..40 {
        read_and_check(&strict, &mut buf, at * 9000, 0);
        read_and_check(&lax, &mut buf, 1_000_000 - at * 9000, 0);
    }
}

#[test]
fn a_file_that_fails_leaves_the_others_alone() {
    let engine = Engine::new(small()).expect("an engine");
    let bad = Arc::new(Faulty::from_nth(named(1 << 20), 0));
    let bad = engine.open(bad).expect("opened");
    let good = engine.open(of_version(1 << 20, 7)).expect("opened");
    let mut buf = vec![0; 4096];
    for at in 0..64 {
        let read = bad.read_at(&mut buf, at * 4096);
        assert!(matches!(read, Err(ReadError::Io { .. })), "{read:?}");
        read_and_check(&good, &mut buf, at * 4096, 7);
    }
}

const HUNG_BYTES: usize = 2 << 20;

/// Calls every method of the source, one way or another. Errors do not matter here.
fn call_everything(engine: &Engine, source: Arc<dyn Source>, bytes: &Mem) {
    let Ok(reader) = engine.open(source) else {
        return;
    };
    let mut buf = vec![0; 200_000];
    let _ = reader.allow_writes();
    let _ = reader.write_at(&[1; 10], 0);
    let _ = reader.flush();
    for i in 0..4 {
        let _ = reader.read_at(&mut buf, i * 200_000);
    }
    let _ = reader.advise(Advice::WillNeed, 1 << 20..HUNG_BYTES as u64);
    let _ = engine.gauges();
    let _ = reader.read_at(&mut buf, HUNG_BYTES as u64 - 10);
    let _ = reader.describe();
    let _ = engine.streams(4);
    bytes.replace(vec![2; HUNG_BYTES]);
    let _ = reader.advise(Advice::DontNeed, 0..0);
    for i in 0..4 {
        let _ = reader.read_at(&mut buf, i * 300_000);
    }
    let _ = reader.size();
    let _ = reader.advise(Advice::DontNeed, 0..0);
    let _ = pollster::block_on(reader.read_at_async(&mut buf, 0));
    let _ = reader.advise(Advice::WillNeed, 1 << 20..HUNG_BYTES as u64);
}

/// A source that hangs where its latch says so.
fn hanging(source: impl Source + 'static, streams: bool) -> (Arc<dyn Source>, Arc<Latch>) {
    let (source, latch) = HangingSource::new(source, streams);
    (Arc::new(source), latch)
}

/// Reads another file in every way, and asks the engine what it can say without asking a source.
fn read_another(engine: &Engine) {
    let good = engine.open(of_version(4 << 20, 7)).expect("opened");
    let mut buf = vec![0; 50_000];
    for i in 0..40 {
        read_and_check(&good, &mut buf, i * 50_000, 7);
        read_and_check(&good, &mut buf[..4096], i * 40_000, 7);
    }
    assert_eq!(good.read_at(&mut buf, 4 << 20), Ok(0));
    read_and_check(&good, &mut buf, (4 << 20) - 10, 7);
    let again = good.try_clone().expect("opened again");
    read_and_check(&again, &mut buf, 3 << 20, 7);
    assert!(again.size() == 4 << 20 && engine.stats().demand_reads > 80);
}

/// A source that hangs in any of its methods blocks its readers, and no reader of another file.
#[test]
fn no_source_call_holds_up_another_file() {
    for &method in Method::ALL {
        let engine = Engine::new(small()).expect("an engine");
        let bytes = Arc::new(Mem::new(vec![1; HUNG_BYTES]));
        // Read by threads where it is their method that hangs.
        let hanging = match method {
            Method::ReadAt | Method::Stream => {
                hanging(Arc::clone(&bytes), method == Method::Stream)
            }
            _ => hanging(QueuedSource::new(Arc::clone(&bytes), 1), false),
        };
        let (source, latch) = hanging;
        latch.hang(method);
        std::thread::scope(|scope| {
            let (engine, bytes) = (&engine, &bytes);
            scope.spawn(move || call_everything(engine, source, bytes));
            // Nothing is interrupted where the thread that attends has ended before the reader is closed.
            let rare = method == Method::QueueInterrupt;
            let held = latch.holds_within(Duration::from_secs(if rare { 1 } else { 20 }));
            assert!(held || rare, "{method:?} is never called");
            let (done, is_done) = channel();
            scope.spawn(move || {
                read_another(engine);
                let _ = done.send(());
            });
            let read = is_done.recv_timeout(Duration::from_secs(20));
            latch.release();
            assert!(read.is_ok(), "{method:?} holds up another file");
        });
    }
}

/// A source that hangs in reads may keep every worker. Then readahead and the reads of tasks wait; threads read other files,
/// and another engine has workers to itself.
#[test]
fn a_source_that_keeps_every_worker_holds_up_readahead_and_tasks_alone() {
    let engine = Engine::new(small()).expect("an engine");
    let (source, latch) = HangingSource::new(of_version(4 << 20, 1), false);
    let hung = engine.open(Arc::new(source)).expect("opened");
    latch.hang(Method::ReadAt);
    hung.advise(Advice::WillNeed, 0..2 << 20).expect("taken");
    wait_until("both workers hang", || latch.held() == 2);
    std::thread::scope(|scope| {
        let (done, is_done) = channel();
        for task in [false, true] {
            let (engine, done) = (&engine, done.clone());
            scope.spawn(move || {
                if task {
                    let good = engine.open(of_version(4 << 20, 8)).expect("opened");
                    let mut buf = vec![0; 50_000];
                    let read = pollster::block_on(good.read_at_async(&mut buf, 70_000));
                    assert_eq!(read, Ok(50_000));
                    right(&buf, 70_000, 8);
                } else {
                    read_another(engine);
                }
                let _ = done.send(task);
            });
        }
        let first = is_done.recv_timeout(Duration::from_secs(20));
        let second = is_done.recv_timeout(Duration::from_millis(300));
        let other = Engine::new(small()).expect("an engine");
        let other = other.open(of_version(1 << 20, 9)).expect("opened");
        let elsewhere = pollster::block_on(other.read_at_async(&mut [0; 5000], 1000));
        latch.release();
        assert_eq!(first, Ok(false), "threads read on");
        let is_held = second.is_err();
        // If it has one, SEMANTICS.md can promise more.
        assert!(is_held, "a task has no worker");
        assert_eq!(elsewhere, Ok(5000), "another engine has workers to itself");
        let last = is_done.recv_timeout(Duration::from_secs(20));
        assert_eq!(last, Ok(true), "it went on when the source did");
    });
    quiet(&hung);
}

// ---- the order of files: what is read ahead before a file is opened, and how long it is kept ----

const SIZE: usize = 12_000;

fn by_policy(policy: &str) -> Engine {
    watch();
    Engine::new(Options::default().policy(policy).cache_bytes(16 << 20)).expect("an engine")
}

/// File `n`: its own bytes, a few milliseconds away.
fn far(n: u16) -> Arc<dyn Source> {
    let bytes = Mem::new(testing::pattern(0, SIZE, n));
    Arc::new(Faulty::slow(bytes, n.into(), Duration::from_millis(3)))
}

/// `count` files, each listed behind the one before it.
fn chain(engine: &Engine, count: u16, listing: Listing) -> Vec<ListedFile> {
    let mut files: Vec<ListedFile> = Vec::new();
    for n in 0..count {
        let after = files.last().map(ListedFile::position);
        files.push(engine.list(far(n), after, listing).expect("listed"));
    }
    files
}

/// Opens and reads file after file. How many reads found their bytes read ahead, in the cache or under way.
fn read_all(engine: &Engine, files: &[ListedFile]) -> u64 {
    for (n, file) in files.iter().enumerate() {
        let reader = file.open().expect("opened");
        let mut buf = vec![0; SIZE];
        assert_eq!(reader.read_at(&mut buf, 0), Ok(SIZE));
        right(&buf, 0, n as u16);
    }
    let stats = engine.stats();
    assert_eq!(stats.demand_reads, files.len() as u64);
    stats.hits + stats.late_hits
}

/// Files of a listing are read ahead when a few of them were read in turn; those of a plan from the first one on. A policy that
/// takes no notice of an order reads each when it is asked for.
#[test]
fn files_are_read_ahead_before_they_are_opened() {
    for (policy, listing, expected) in [
        ("auto", Listing::Found, 85..=98),
        ("auto", Listing::Planned, 95..=99),
        ("linux-6.18", Listing::Planned, 0..=0),
    ] {
        let engine = by_policy(policy);
        assert_eq!(engine.follows_order(), policy == "auto");
        let ahead = read_all(&engine, &chain(&engine, 100, listing));
        let is_right = expected.contains(&ahead);
        assert!(is_right, "{policy}, {listing:?}: {ahead} of 100 read ahead");
    }
}

/// A listed file is no open file, and keeps its pages until it is listed no more.
#[test]
fn a_listed_file_keeps_its_pages_until_it_is_dropped() {
    let engine = by_policy("auto");
    let files = chain(&engine, 40, Listing::Planned);
    assert_eq!(engine.gauges().files, 0);
    let reader = files[0].open().expect("opened");
    reader.read_at(&mut [0; SIZE], 0).expect("read");
    assert_eq!((engine.gauges().files, engine.gauges().opens), (1, 1));
    wait_until("read ahead", || {
        engine.gauges().pages >= 20 && engine.gauges().open_fetches == 0
    });
    drop(files);
    // What was read of the file that has a reader.
    assert_eq!(engine.gauges().pages, SIZE.div_ceil(4096) as u64);
    drop(reader);
    assert_eq!((engine.gauges().files, engine.gauges().pages), (0, 0));
}

/// The number of a file is used again when it is gone; its place in the order is not that of the next one with that number.
#[test]
fn a_place_ends_with_its_file() {
    let engine = by_policy("auto");
    let list = |n, after| {
        let listed = engine.list(far(n), after, Listing::Planned);
        listed.expect("listed")
    };
    let gone = list(0, None);
    let place = gone.position();
    drop(gone);
    let first = list(1, None);
    assert_ne!(first.position(), place);
    let _behind = list(2, Some(place));
    let reader = first.open().expect("opened");
    reader.read_at(&mut [0; SIZE], 0).expect("read");
    assert_eq!(engine.stats().ra_ops, 0, "nothing is behind it");
}

/// What was read ahead of a version is not given out as another one's.
#[test]
fn a_listed_file_that_changed_is_not_opened() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = by_policy("auto");
    let path = |n: u16| folder.path().join(n.to_string());
    let list = |n: u16, after: Option<&ListedFile>| {
        std::fs::write(path(n), testing::pattern(0, SIZE, n)).expect("written");
        let after = after.map(ListedFile::position);
        let listed = engine.list(path(n), after, Listing::Planned);
        listed.expect("listed")
    };
    let first = list(1, None);
    let second = list(2, Some(&first));
    std::fs::write(path(2), testing::pattern(0, SIZE + 5000, 3)).expect("written");
    let reader = first.open().expect("opened");
    reader.read_at(&mut [0; 100], 0).expect("read");
    let is_changed = || matches!(second.open(), Err(OpenError::Changed { .. }));
    wait_until("noticed", is_changed);
    let error = refused(second.open(), "changed").to_string();
    let remedy = "changed since it was listed; list it again";
    says(&error, &["/2", remedy]);
    // The other one is as it was.
    assert_eq!(reader.read_at(&mut vec![0; SIZE], 0), Ok(SIZE));
}
