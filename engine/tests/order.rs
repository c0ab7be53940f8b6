//! Tests of the order of files: what is read ahead before a file is opened, how long it is kept, and what happens when
//! its source changes.

use crate::common::watch;
use foreread::source::{Mem, Source};
use foreread::{Engine, ListedFile, Listing, OpenError, Options};
use foreread_testing::{self as testing, Faulty};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SIZE: usize = 12_000;

fn engine(policy: &str) -> Engine {
    Engine::new(Options::default().policy(policy).cache_bytes(16 << 20)).expect("an engine")
}

/// File `n`: its own bytes, a few milliseconds away.
fn far(n: u16) -> Arc<dyn Source> {
    Arc::new(Faulty::slow(
        Mem::new(testing::pattern(0, SIZE, n)),
        u64::from(n),
        Duration::from_millis(3),
    ))
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
        assert_eq!(testing::check(&buf, 0, n as u16), Ok(()), "file {n}");
    }
    let stats = engine.stats();
    assert_eq!(stats.demand_reads, files.len() as u64);
    stats.hits + stats.late_hits
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Files of a listing are read ahead when a few of them were read in turn; those of a plan from the first one on. A policy that
/// takes no notice of an order reads each when it is asked for.
#[test]
fn files_are_read_ahead_before_they_are_opened() {
    watch();
    for (policy, listing, expected) in [
        ("auto", Listing::Found, 85..=98),
        ("auto", Listing::Planned, 95..=99),
        ("linux-6.18", Listing::Planned, 0..=0),
    ] {
        let engine = engine(policy);
        assert_eq!(engine.follows_order(), policy == "auto");
        let ahead = read_all(&engine, &chain(&engine, 100, listing));
        assert!(
            expected.contains(&ahead),
            "{policy}, {listing:?}: {ahead} of 100 read ahead"
        );
    }
}

/// A listed file is no open file, and keeps its pages until it is listed no more.
#[test]
fn a_listed_file_keeps_its_pages_until_it_is_dropped() {
    watch();
    let engine = engine("auto");
    let files = chain(&engine, 40, Listing::Planned);
    assert_eq!(engine.gauges().files, 0);
    let reader = files[0].open().expect("opened");
    reader.read_at(&mut [0; SIZE], 0).expect("read");
    assert_eq!((engine.gauges().files, engine.gauges().opens), (1, 1));
    wait_until("read ahead", || {
        engine.gauges().pages >= 20 && engine.gauges().open_fetches == 0
    });
    drop(files);
    assert_eq!(
        engine.gauges().pages,
        SIZE.div_ceil(4096) as u64,
        "what was read of the file that has a reader"
    );
    drop(reader);
    assert_eq!((engine.gauges().files, engine.gauges().pages), (0, 0));
}

/// The number of a file is used again when it is gone; its place in the order is not that of the next one with that number.
#[test]
fn a_place_ends_with_its_file() {
    watch();
    let engine = engine("auto");
    let gone = engine.list(far(0), None, Listing::Planned).expect("listed");
    let place = gone.position();
    drop(gone);
    let first = engine.list(far(1), None, Listing::Planned).expect("listed");
    assert_ne!(first.position(), place);
    let _behind = engine
        .list(far(2), Some(place), Listing::Planned)
        .expect("listed");
    first
        .open()
        .expect("opened")
        .read_at(&mut [0; SIZE], 0)
        .expect("read");
    assert_eq!(engine.stats().ra_ops, 0, "nothing is behind it");
}

/// What was read ahead of a version is not given out as another one's.
#[test]
fn a_listed_file_that_changed_is_not_opened() {
    watch();
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine("auto");
    let path = |n: u16| folder.path().join(n.to_string());
    let list = |n: u16, after: Option<&ListedFile>| {
        std::fs::write(path(n), testing::pattern(0, SIZE, n)).expect("written");
        engine
            .list(path(n), after.map(ListedFile::position), Listing::Planned)
            .expect("listed")
    };
    let first = list(1, None);
    let second = list(2, Some(&first));
    std::fs::write(path(2), testing::pattern(0, SIZE + 5000, 3)).expect("written");
    let reader = first.open().expect("opened");
    reader.read_at(&mut [0; 100], 0).expect("read");
    wait_until("noticed", || {
        matches!(second.open(), Err(OpenError::Changed { .. }))
    });
    let error = second.open().map(drop).expect_err("changed").to_string();
    assert!(
        error.contains("/2") && error.ends_with("changed since it was listed; list it again"),
        "{error}"
    );
    assert_eq!(
        reader.read_at(&mut vec![0; SIZE], 0),
        Ok(SIZE),
        "the other one is as it was"
    );
}
