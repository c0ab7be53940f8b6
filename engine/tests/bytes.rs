//! Reads every byte of a real file, with each policy and pattern, through caches that are too small for it.
//!
//! The bytes encode their own offset, so a misplaced byte is detected. Nothing is measured.

use crate::common::{
    Rng, check_memory, in_threads, named, opened, quiet, read_and_check, right, wait_until,
};
use foreread::source::Io;
use foreread::{Advice, Options, Reader};
use foreread_history::policies;
use foreread_testing as testing;
use std::io::{IoSliceMut, Write};
use std::sync::{Arc, Mutex};

const SIZE: u64 = 64 << 20;
const THREADS: u64 = 4;
const REGION: u64 = SIZE / THREADS;

type Reads = Vec<(u64, usize)>;

/// What one thread reads, in order. All threads together read every byte once.
fn pattern(name: &str, thread: u64) -> Reads {
    let from = thread * REGION;
    let steps = |step: u64| (0..REGION / step).map(move |i| (from + i * step, step as usize));
    let mut rng = Rng(thread + 1);
    let mut all = Reads::new();
    match name {
        "sequential" => all.extend(steps(16 << 10)),
        "backward" => all.extend(steps(16 << 10).rev()),
        "random" => {
            all.extend(steps(4 << 10));
            rng.shuffle(&mut all);
        }
        "interleaved" => {
            let streams = 4;
            let part = REGION / streams;
            let turn = |i: u64| (from + i % streams * part + i / streams * (8 << 10), 8 << 10);
            all.extend((0..REGION / (8 << 10)).map(turn));
        }
        "unaligned" => {
            let mut at = from;
            while at < from + REGION {
                let len = (1 + rng.below(40_000)).min(from + REGION - at);
                all.push((at, len as usize));
                at += len;
            }
            let middle = all.len() / 2;
            rng.shuffle(&mut all[middle..]);
        }
        _ => panic!("no pattern {name}"),
    }
    all
}

/// By io_uring, where it is allowed, and by threads.
const WAYS: [Io; 2] = [Io::Queue, Io::Threads];

const PATTERNS: [&str; 5] = [
    "sequential",
    "random",
    "interleaved",
    "backward",
    "unaligned",
];

fn big_file() -> tempfile::NamedTempFile {
    crate::common::watch();
    let mut file = tempfile::NamedTempFile::new().expect("a scratch file");
    let mut block = vec![0; 1 << 20];
    for at in (0..SIZE).step_by(block.len()) {
        testing::fill(&mut block, at, 0);
        file.write_all(&block).expect("room for 64 MiB");
    }
    file.as_file().sync_all().expect("written");
    file
}

/// Each thread reads through its own open description, except in the random pattern, where all share one. Only every
/// `step`th read of the pattern is made.
fn run(path: &str, options: Options, name: &str, step: usize) {
    let page = options.page_bytes;
    let capacity = options.cache_bytes;
    let reader = Arc::new(Reader::open(path, options).expect("opens"));
    let total = Mutex::new(0);
    in_threads(THREADS, |thread| {
        let own = match name {
            "random" => Arc::clone(&reader),
            _ => Arc::new(reader.try_clone().expect("opens")),
        };
        let (mut buf, mut sum) = (vec![0; 64 << 10], 0);
        for (at, len) in pattern(name, thread).into_iter().step_by(step) {
            sum += read_and_check(&own, &mut buf[..len], at, 0) as u64;
        }
        *total.lock().expect("no panic") += sum;
    });
    let total = *total.lock().expect("no panic");
    assert!(step > 1 || total == SIZE);
    let (gauges, stats) = (quiet(&reader), reader.stats());
    let done = (stats.demand_bytes, stats.failed_reads, stats.failed_fetches);
    assert_eq!(done, (total, 0, 0));
    let is_full = gauges.pages * page <= capacity && stats.evicted_pages > 0;
    assert!(is_full, "{gauges:?}");
    check_memory(&gauges, page);
    let meter = reader.engine().meter();
    drop(reader);
    assert_eq!(meter.held_bytes(), 0);
}

#[test]
fn every_policy_and_pattern() {
    let file = big_file();
    let path = format!("file:{}", file.path().display());
    for io in WAYS {
        let reader = Reader::open(path.as_str(), Options::default().io(io));
        println!("{}", reader.expect("opens").describe());
    }
    for (n, policy) in policies().iter().enumerate() {
        for (m, name) in PATTERNS.into_iter().enumerate() {
            // Both ways of each in the long runs; here they take turns, and the way that is usual gets the usual policies.
            let io = match policy.name == "linux-6.18" || (n + m) % 2 == 0 {
                true => Io::Queue,
                false => Io::Threads,
            };
            let policy = foreread_history::parse(policy.name).expect("a policy");
            let options = Options::default().policy(policy).cache_bytes(4 << 20);
            run(&path, options.io(io), name, 1);
        }
    }
}

/// As small as a cache can be, with other page sizes, and without worker threads.
#[test]
fn tiny_caches_and_other_pages() {
    let file = big_file();
    let path = format!("file:{}", file.path().display());
    for (policy, page, pages, threads) in [
        ("none", 512, 4, 4),
        ("rbd-plain", 512, 300, 2),
        ("rbd-plain", 64 << 10, 16, 4),
        ("none", 1 << 20, 4, 4),
        ("linux-6.18:max=1M", 4096, 16, 4),
        ("linux-6.18:max=64K", 4096, 16, 0),
        ("linux-6.18:max=1M", 4096, 1024, 0),
    ] {
        let options = Options::default()
            .policy(policy)
            .page_bytes(page)
            .cache_bytes(page * pages)
            .threads(threads);
        for io in WAYS {
            let options = options.clone().io(io);
            let step = if page < 4096 { 16 } else { 4 };
            match threads {
                0 => idle_crew(&path, options),
                _ => run(&path, options, "unaligned", step),
            }
        }
    }
}

/// Without workers every read ends all the same. Readahead that no read joins stays unread, or is reaped by the next caller.
fn idle_crew(path: &str, options: Options) {
    let reader = Reader::open(path, options).expect("opens");
    in_threads(THREADS, |thread| {
        let (own, mut buf) = (reader.try_clone().expect("opens"), vec![0; 64 << 10]);
        for (at, len) in pattern("unaligned", thread).into_iter().take(400) {
            assert_eq!(read_and_check(&own, &mut buf[..len], at, 0), len);
        }
    });
    wait_until("fetches run", || {
        reader.engine().gauges().running_fetches == 0
    });
    let gauges = reader.engine().gauges();
    let left = (gauges.reads, gauges.threads, gauges.missed_calls);
    assert_eq!(left, (0, 0, 0));
    assert!(reader.stats().ra_bytes > 0);
}

/// One read may be larger than the whole cache; it is served in pieces.
#[test]
fn reads_larger_than_the_cache() {
    let file = big_file();
    let path = format!("file:{}", file.path().display());
    for policy in policies() {
        let policy = foreread_history::parse(policy.name).expect("a policy");
        let options = Options::default().policy(policy).cache_bytes(1 << 20);
        let reader = Reader::open(path.as_str(), options).expect("opens");
        in_threads(THREADS, |thread| {
            let (mut buf, at) = (vec![0; 9_000_001], thread * REGION + 77);
            assert_eq!(read_and_check(&reader, &mut buf, at, 0), buf.len());
        });
        let tail = read_and_check(&reader, &mut vec![0; 10 << 20], SIZE - 5_000_000, 0);
        assert_eq!(tail, 5_000_000);
        check_memory(&quiet(&reader), 4096);
    }
}

/// Hints change what is cached and never what is read.
#[test]
fn hints() {
    let options = Options::default().policy("linux-6.18:max=128K");
    let reader = opened(named(1 << 20), options);
    reader.advise(Advice::WillNeed, 0..1 << 20).expect("taken");
    quiet(&reader);
    let mut buf = vec![0; 1 << 20];
    assert_eq!(read_and_check(&reader, &mut buf, 0, 0), 1 << 20);
    reader.advise(Advice::DontNeed, 0..u64::MAX).expect("taken");
    let gauges = quiet(&reader);
    assert_eq!((gauges.pages, gauges.held_bytes), (0, 0));
    for advice in [Advice::Random, Advice::Sequential, Advice::Normal] {
        let crossed = std::ops::Range { start: 5, end: 3 };
        let taken = reader.advise(advice, crossed);
        taken.expect("an empty range is one");
        assert_eq!(read_and_check(&reader, &mut buf[..5000], 500_000, 0), 5000);
    }
}

/// Several buffers are one read: right bytes in their order, whatever their lengths, and short only at the end.
#[test]
fn several_buffers() {
    let size = 3_000_000;
    let reader = opened(named(size), Options::default().cache_bytes(1 << 20));
    let mut rng = Rng(7);
    for _ in 0..300 {
        let len = |_| [0, 1, 511, 4096, 70_000, 400_000][rng.below(6) as usize];
        let lens = Vec::from_iter((0..9).map(len));
        let many = 1 + rng.below(9) as usize;
        let mut bufs = Vec::from_iter(lens[..many].iter().map(|len| vec![0xee; *len]));
        let offset = rng.below(size + 9);
        let total = bufs.iter().map(Vec::len).sum::<usize>();
        let slices = bufs.iter_mut().map(|buf| IoSliceMut::new(buf));
        let mut slices = Vec::from_iter(slices);
        let reads = reader.stats().demand_reads;
        let got = reader.read_vectored_at(&mut slices, offset);
        let got = got.expect("readable");
        assert_eq!(got as u64, (total as u64).min(size.saturating_sub(offset)));
        let reads = reader.stats().demand_reads - reads;
        assert_eq!(reads, u64::from(got > 0), "one read");
        let all = bufs.concat();
        right(&all[..got], offset, 0);
        let is_kept = all[got..].iter().all(|byte| *byte == 0xee);
        assert!(is_kept, "nothing beyond what was read is touched");
    }
}
