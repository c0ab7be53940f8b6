//! Tests of reads without the driver's lock: the bytes are current, the reads are counted, and the same errors end them
//! as other reads.

use crate::common::{Rng, by, in_threads, named, opened, right};
use foreread::eventlog;
use foreread::policy::{Answer, Ask, Info, Policy, PolicySpec, Scope};
use foreread::source::Mem;
use foreread::{Options, ReadError, Reader};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

const PAGE: usize = 4096;

fn read(reader: &Reader, offset: u64) {
    let mut buf = [0; PAGE];
    assert_eq!(reader.read_at(&mut buf, offset), Ok(PAGE));
    right(&buf, offset, 0);
}

/// Two threads may be behind the lock at most one at a time: the one inside a policy holds it here, and waits for the other.
static INSIDE: Barrier = Barrier::new(2);

#[derive(Default)]
struct Waits;

impl Policy for Waits {
    fn on_miss(&mut self, ask: &Ask<'_>, _answer: &mut Answer) {
        match ask.request.start() {
            // The other thread reads now, and says when it has.
            1_048_576 => _ = (INSIDE.wait(), INSIDE.wait()),
            2_097_152 => panic!("a policy that panics"),
            _ => {}
        }
    }
}

static WAITS: Info = Info {
    name: "waits",
    summary: "stays behind the driver's lock",
    origin: "this test",
    scope: Scope::Open,
    page_bytes: None,
    params: &[],
    build: |_| Box::new(Waits),
};

#[test]
fn a_hit_needs_no_lock_and_a_stopped_engine_serves_no_hit() {
    let options = Options::default().policy(PolicySpec::of(&WAITS)).threads(1);
    let reader = Arc::new(opened(named(8 << 20), options));
    // The second read finds that the page is read again, the third needs nothing more.
    (0..3).for_each(|_| read(&reader, 0));
    let other = Arc::clone(&reader);
    let holder = thread::spawn(move || read(&other, 1 << 20));
    INSIDE.wait();
    (0..5).for_each(|_| read(&reader, 0));
    INSIDE.wait();
    holder.join().expect("read");
    // Counted all the same.
    let stats = reader.stats();
    assert_eq!((stats.demand_reads, stats.hits), (9, 7));
    // What holds behind the lock after a panic is unknown.
    let other = Arc::clone(&reader);
    let panics = thread::spawn(move || _ = other.read_at(&mut [0; PAGE], 2 << 20));
    panics.join().expect_err("panics behind the lock");
    let met = reader.read_at(&mut [0; PAGE], 0);
    assert!(matches!(met, Err(ReadError::Stopped { .. })), "{met:?}");
    assert!(reader.engine().is_stopped(), "what keeps engines sees it");
}

/// A writer counts up the stamp of every page, again and again. A read that begins after a write has returned sees it or a later
/// one, and each page whole.
#[test]
fn no_reader_sees_overwritten_bytes() {
    const PAGES: u64 = 40;
    let reader = opened(Mem::new(vec![0; PAGES as usize * PAGE]), Options::default());
    reader.allow_writes().expect("memory");
    let written = [const { AtomicU64::new(0) }; PAGES as usize];
    in_threads(4, |me| {
        if me == 3 {
            for stamp in 1..300_u64 {
                let bytes = stamp.to_le_bytes().repeat(PAGE / 8);
                for page in 0..PAGES {
                    let done = reader.write_at(&bytes, page * PAGE as u64);
                    done.expect("written");
                    written[page as usize].store(stamp, Ordering::SeqCst);
                }
                thread::yield_now();
            }
            return;
        }
        let own = reader.try_clone().expect("room");
        let (mut rng, mut buf) = (Rng(me), vec![0; PAGE]);
        for _ in 0..60_000 {
            let page = rng.below(PAGES);
            let least = written[page as usize].load(Ordering::SeqCst);
            assert_eq!(own.read_at(&mut buf, page * PAGE as u64), Ok(PAGE));
            let stamp = u64::from_le_bytes(buf[..8].try_into().expect("eight"));
            assert!(stamp >= least, "page {page}: {stamp}, {least} was written");
            let is_whole = buf.chunks(8).all(|part| part == stamp.to_le_bytes());
            assert!(is_whole, "page {page} is torn");
        }
    });
    let stats = reader.stats();
    assert_eq!(stats.demand_reads, 180_000, "every read is counted");
    assert!(stats.hits > 90_000, "{stats:?}");
}

/// Eight threads in a set twice as large as the cache: pages come and go under hits, none is lost from the counters, and the log
/// of it all replays.
#[test]
fn hits_beside_eviction_are_logged_and_replay() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("log");
    let options = by("linux-6.18:max=64K", 2 << 20).event_log(&log).threads(2);
    let reader = opened(named(4 << 20), options);
    in_threads(8, |me| {
        let mut rng = Rng(me);
        for _ in 0..2000 {
            // Most reads in a small part.
            let pages = if rng.below(8) == 0 { 1024 } else { 100 };
            read(&reader, rng.below(pages) * PAGE as u64);
        }
    });
    let (stats, own) = (
        reader.engine().end_event_log().expect("written"),
        reader.own_stats(),
    );
    assert_eq!((stats.demand_reads, own.demand_reads), (16_000, 16_000));
    assert_eq!(stats.hits + stats.late_hits + stats.misses, 16_000);
    let text = std::fs::read_to_string(log).expect("a log");
    let is_hit = |line: &&str| line.starts_with("E ") && line.contains(" hit ");
    let hits = text.lines().filter(is_hit).count();
    assert!(hits > 4000, "{hits} reads took no lock");
    eventlog::check_log(text.as_bytes()).expect("identical");
}

/// A task's first poll finds what is there, as a thread's read does.
#[test]
fn a_task_hits_without_the_lock() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("log");
    let options = Options::default().policy("none").event_log(&log);
    let reader = opened(named(1 << 20), options);
    for _ in 0..100 {
        let mut buf = [0; PAGE];
        let read = pollster::block_on(reader.read_at_async(&mut buf, 8192));
        assert_eq!(read, Ok(PAGE));
        right(&buf, 8192, 0);
    }
    drop(reader);
    let text = std::fs::read_to_string(log).expect("a log");
    assert_eq!(text.matches(" hit ").count(), 98, "all but the first two");
}
