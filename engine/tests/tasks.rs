//! Tests of reads by async tasks: with every kind of source and several runtimes, cancelled at every point, and next to
//! blocking reads.
//!
//! No time is measured.

use crate::common::{
    Rng, by, check_memory, is_alone, named, opened, quiet, right, runtime, this_test, wait_until,
    watch,
};
use foreread::source::{Mem, Source};
use foreread::{Options, ReadError, Reader};
use foreread_testing::{self as testing, Faulty, QueuedSource, needs};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::future::Future;
use std::io::Write;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const SIZE: u64 = (8 << 20) + 77;

fn options() -> Options {
    watch();
    by("linux-6.18:max=128K", 2 << 20)
}

/// What tasks can be read from: by workers, by a queue, by a ring, by the task alone.
fn sources() -> Vec<(String, Arc<dyn Source>, Options)> {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    let written = file.write_all(&testing::pattern(0, SIZE as usize, 0));
    written.expect("written");
    let real = foreread::source::open(&file.path().display().to_string()).expect("opened");
    let mut all: Vec<(String, Arc<dyn Source>, Options)> = Vec::new();
    let mut add = |name: &str, source, options| all.push((name.to_string(), source, options));
    add("mem", Arc::new(named(SIZE)), options());
    let mem = || Arc::new(named(SIZE));
    add("mem, one worker", mem(), options().threads(1));
    add("mem, the task alone", mem(), options().threads(0));
    add(&real.describe(), real, options());
    for seed in 0..4 {
        let queued = || QueuedSource::new(named(SIZE), seed);
        let shallow = queued().depth(1 << (2 * seed));
        add(&format!("queue {seed}"), Arc::new(shallow), options());
        let broken = Arc::new(queued().refused_from(20 * seed));
        add(&format!("queue {seed} that refuses"), broken, options());
    }
    let slow = Faulty::slow(named(SIZE), 7, Duration::from_micros(300));
    add("slow", Arc::new(slow), options());
    all
}

/// A task that reads here and there, and in order.
async fn reads(reader: &Reader, seed: u64, many: u64) -> u64 {
    let (mut rng, mut at, mut bytes) = (Rng(seed), seed * 12_345 % SIZE, 0);
    for _ in 0..many {
        if rng.below(4) == 0 {
            at = rng.below(SIZE);
        }
        let mut buf = vec![0; 1 + rng.below(200_000) as usize];
        let got = reader.read_at_async(&mut buf, at).await;
        let got = got.unwrap_or_else(|error| panic!("{error}"));
        let wanted = (buf.len() as u64).min(SIZE - at);
        assert_eq!(got as u64, wanted, "{} bytes at {at}", buf.len());
        right(&buf[..got], at, 0);
        (at, bytes) = (at + got as u64, bytes + got as u64);
        if at >= SIZE {
            let end = reader.read_at_async(&mut buf, SIZE).await;
            assert_eq!(end.expect("the end"), 0);
            at = 0;
        }
    }
    bytes
}

/// Nothing runs any more. Without workers, readahead that no read wanted may stay undone.
fn settle(name: &str, reader: &Reader) {
    if name.ends_with("the task alone") {
        assert_eq!(reader.engine().gauges().reads, 0);
    } else {
        check_memory(&quiet(reader), 4096);
    }
}

type Task<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Tasks that read by one reader each.
fn tasks<'a>(readers: impl IntoIterator<Item = &'a Reader>, many: u64) -> Vec<Task<'a, u64>> {
    let task = |(reader, seed)| Box::pin(reads(reader, seed, many)) as Task<'a, u64>;
    readers.into_iter().zip(0..).map(task).collect()
}

/// Runs tasks, all on this thread: polls those that were woken, sleeps when there are none.
fn run_all<T>(tasks: Vec<Task<'_, T>>) -> Vec<T> {
    pollster::block_on(FuturesUnordered::from_iter(tasks).collect())
}

#[test]
fn every_source_gives_its_bytes_to_tasks() {
    for (name, source, options) in sources() {
        println!("{name}");
        let reader = Reader::open(source, options).expect("opened");
        let readers: Vec<Reader> = (0..16).map(|_| reader.try_clone().expect("room")).collect();
        let bytes: u64 = run_all(tasks(&readers, 30)).iter().sum();
        let is_right = bytes > 16 * 30 * 10_000 && reader.stats().demand_bytes == bytes;
        assert!(is_right, "{bytes}");
        settle(&name, &reader);
    }
}

/// The first task that waits looks into the queue for all of them. Where its runtime does not poll it again, a thread does.
#[test]
fn a_task_that_is_not_polled_again_holds_up_no_other() {
    let mut polled = sources();
    polled.retain(|(name, ..)| !name.ends_with("the task alone"));
    for (name, source, options) in polled {
        println!("{name}");
        let reader = Reader::open(source, options.policy("none")).expect("opened");
        let mut buf = [0; 4096];
        let mut stalled = Box::pin(reader.read_at_async(&mut buf, 40_960));
        let first = poll(stalled.as_mut(), Waker::noop());
        assert!(first.is_pending(), "nothing is cached");
        assert_eq!(run_all(tasks([&reader; 8], 10)).len(), 8);
        assert_eq!(pollster::block_on(stalled.as_mut()).expect("read"), 4096);
        drop(stalled);
        right(&buf, 40_960, 0);
        settle(&name, &reader);
    }
}

/// Polls once.
fn poll<T>(task: Pin<&mut impl Future<Output = T>>, waker: &Waker) -> Poll<T> {
    task.poll(&mut Context::from_waker(waker))
}

/// A task that polled once and is kept attends to no queue: what it began ends while other files alone are read.
#[test]
fn the_queue_of_a_task_that_is_kept_is_polled_while_others_read() {
    let kept = Arc::new(QueuedSource::new(named(SIZE), 3));
    let reader = Reader::open(Arc::clone(&kept), options()).expect("opened");
    let other = reader.engine().open(Arc::new(named(SIZE))).expect("opened");
    let mut buf = [0; 4096];
    let mut stalled = Box::pin(reader.read_at_async(&mut buf, 0));
    let first = poll(stalled.as_mut(), Waker::noop());
    assert!(first.is_pending(), "nothing is cached");
    assert!(kept.under_way() > 0, "it was submitted");
    wait_until("no thread reaps what the task began", || {
        other.read_at(&mut [0; 512], 0).expect("read");
        kept.under_way() == 0
    });
    assert_eq!(pollster::block_on(stalled).expect("read"), 4096);
    right(&buf, 0, 0);
    settle("queue", &reader);
}

/// Runtimes that have nothing in common: one thread without anything, one thread, several threads.
#[test]
fn any_runtime_will_do() {
    for (name, source, options) in sources() {
        let reader = Arc::new(Reader::open(source, options).expect("opened"));
        assert!(pollster::block_on(reads(&reader, 1, 20)) > 0, "{name}");
        for runtime in [0, 2].map(runtime) {
            let tasks = (0..8).map(|seed| {
                let reader = Arc::clone(&reader);
                runtime.spawn(async move { reads(&reader, seed, 20).await })
            });
            for task in Vec::from_iter(tasks) {
                assert!(runtime.block_on(task).expect("no panic") > 0, "{name}");
            }
        }
        settle(&name, &reader);
    }
}

/// Tasks and threads on one file, both with their own reads.
#[test]
fn tasks_and_threads_share_a_file() {
    for (name, source, options) in sources() {
        println!("{name}");
        let reader = Reader::open(source, options).expect("opened");
        std::thread::scope(|scope| {
            for seed in 100..103 {
                let own = reader.try_clone().expect("room");
                scope.spawn(move || {
                    let (mut rng, mut buf) = (Rng(seed), vec![0; 70_000]);
                    for _ in 0..60 {
                        let at = rng.below(SIZE);
                        let got = own.read_at(&mut buf, at).expect("readable");
                        right(&buf[..got], at, 0);
                    }
                });
            }
            assert_eq!(run_all(tasks([&reader; 6], 20)).len(), 6);
        });
        settle(&name, &reader);
    }
}

/// A waker that counts.
#[derive(Default)]
struct Count(AtomicU64);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Polls until it is done, or this many times. Nothing if it was given up.
fn poll_at_most<T>(future: impl Future<Output = T>, most: u64) -> Option<T> {
    let mut future = pin!(future);
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    for nth in 0..most {
        if let Poll::Ready(done) = poll(future.as_mut(), &waker) {
            return Some(done);
        }
        while count.0.load(Ordering::SeqCst) <= nth {
            std::thread::yield_now();
        }
    }
    None
}

/// Given up after every number of polls, a read leaves nothing: no place, no fetch, no lease, no byte.
#[test]
fn cancelled_at_every_point() {
    for (name, source, options) in sources() {
        let reader = Reader::open(source, options.cache_bytes(1 << 20)).expect("opened");
        let (mut finished, mut given_up) = (0, 0);
        // A task that polls its queue is polled thousands of times.
        for most in (0..10).chain([1000, 1 << 40]) {
            for seed in 0..8 {
                let (offset, len) = match seed {
                    0 => (SIZE - 10, 100),
                    _ => (seed * 1_000_003, 900_000),
                };
                let mut buf = vec![0; len];
                match poll_at_most(reader.read_at_async(&mut buf, offset), most) {
                    Some(got) => {
                        right(&buf[..got.expect("readable")], offset, 0);
                        finished += 1;
                    }
                    None => given_up += 1,
                }
            }
            settle(&name, &reader);
        }
        println!("{name}: {finished} finished, {given_up} given up");
        assert!(given_up >= 8 && finished > 0);
        // The places are free: as many reads as ever.
        assert!(pollster::block_on(reads(&reader, 3, 10)) > 0);
    }
}

/// Threads of this process, mappings of its memory, and those of them that are rings.
fn kept() -> (usize, usize, usize) {
    let threads = std::fs::read_dir("/proc/self/task").expect("Linux");
    let mappings = std::fs::read_to_string("/proc/self/maps").expect("Linux");
    let rings = mappings.matches("anon_inode:[io_uring]").count();
    (threads.count(), mappings.lines().count(), rings)
}

/// Reads that are given up keep no thread and no mapping: neither rings nor stacks.
#[test]
fn cancelled_reads_keep_no_thread_and_no_mapping() {
    needs!(is_alone(this_test!()));
    let round = || {
        for (name, source, options) in sources() {
            let reader = Reader::open(source, options.cache_bytes(1 << 20)).expect("opened");
            for (most, offset) in [(0, 0), (1, 1_000_003), (2, 5_000_009), (3, 70_001)] {
                let mut buf = vec![0; 900_000];
                poll_at_most(reader.read_at_async(&mut buf, offset), most);
            }
            settle(&name, &reader);
        }
    };
    // What the allocator, its arenas and the stacks that are used again take, they mostly take now.
    (0..3).for_each(|_| round());
    let before = kept();
    let rounds = 100;
    (0..rounds).for_each(|_| round());
    // A thread that has ended may be in the list of the kernel for a moment, and one that is not joined takes a moment to end.
    wait_until("threads stay", || kept().0 <= before.0 + 1);
    let after = kept();
    assert_eq!(after.2, before.2, "rings");
    // A stack is two mappings: one kept in each round would be 200. glibc keeps the stacks of at most 20 ended threads, and at most eight arenas a processor.
    let (before, after) = (before.1, after.1);
    println!("{before} and {after} mappings");
    assert!(after < before + rounds);
}

#[test]
fn errors_reach_the_task_they_belong_to() {
    for threads in [1, 4] {
        let faulty = Faulty::share(QueuedSource::new(named(SIZE), 5), 11, 200);
        let reader = opened(faulty, options().threads(threads));
        let (mut failed, mut read) = (0, 0);
        let mut buf = vec![0; 10_000];
        for i in 0..400 {
            let offset = i * 20_011 % SIZE;
            match pollster::block_on(reader.read_at_async(&mut buf, offset)) {
                Ok(got) => {
                    right(&buf[..got], offset, 0);
                    read += 1;
                }
                Err(ReadError::Io { .. }) => failed += 1,
                Err(other) => panic!("{other}"),
            }
        }
        println!("{read} read, {failed} failed");
        assert!(failed > 10 && read > 200);
        quiet(&reader);
    }
}

/// Growth is seen, and a new version is one error, as for a thread.
#[test]
fn growth_and_change_are_seen() {
    for threads in [0, 2] {
        let source = Arc::new(Mem::new(testing::pattern(0, 10_000, 0)));
        let reader = Reader::open(Arc::clone(&source), options().threads(threads)).expect("opened");
        let mut buf = vec![0; 20_000];
        let read = |buf: &mut [u8], at| pollster::block_on(reader.read_at_async(buf, at));
        assert_eq!(read(&mut buf, 5_000), Ok(5_000));
        source.append(&testing::pattern(10_000, 3_000, 0));
        assert_eq!(read(&mut buf, 5_000), Ok(8_000));
        right(&buf[..8_000], 5_000, 0);
        source.replace(testing::pattern(0, 9_000, 1));
        let told = read(&mut buf, 8_000);
        assert!(matches!(told, Err(ReadError::Changed { .. })), "{told:?}");
        assert_eq!(read(&mut buf, 8_000), Ok(1_000), "the new one");
        right(&buf[..1_000], 8_000, 1);
        assert_eq!(read(&mut [], 0), Ok(0));
    }
}

/// A waker that panics harms no other task.
#[test]
fn a_waker_s_panic_is_its_own() {
    struct Bad;
    impl Wake for Bad {
        fn wake(self: Arc<Self>) {
            panic!("a waker that panics, on purpose");
        }
    }
    let reader = opened(QueuedSource::new(named(SIZE), 1), options());
    let (mut mine, mut buf) = (vec![0; 4096], vec![0; 4096]);
    let waker = Waker::from(Arc::new(Bad));
    let mut read = Box::pin(reader.read_at_async(&mut mine, 0));
    assert!(poll(read.as_mut(), &waker).is_pending());
    let other = pollster::block_on(reader.read_at_async(&mut buf, 4 << 20));
    assert_eq!(other.expect("read"), 4096);
    right(&buf, 4 << 20, 0);
    assert_eq!(pollster::block_on(read).expect("read"), 4096);
    right(&mine, 0, 0);
    quiet(&reader);
}

/// The thread that reaped a queue keeps nothing of a closed file, though the engine stays.
#[test]
fn nothing_is_kept_of_a_closed_file() {
    let engine = foreread::Engine::new(options()).expect("an engine");
    for round in 0..20_u64 {
        let queued: Arc<dyn Source> = Arc::new(QueuedSource::new(named(SIZE), round));
        let weak = Arc::downgrade(&queued);
        let reader = engine.open(queued).expect("opened");
        let mut buf = vec![0; 50_000];
        pollster::block_on(reader.read_at_async(&mut buf, round * 1000)).expect("read");
        drop(reader);
        assert!(weak.upgrade().is_none(), "the source is closed");
    }
    assert_eq!((engine.gauges().files, engine.gauges().reads), (0, 0));
    // The threads that attended have ended, and are joined while the engine lives: with one or two that are still ending.
    wait_until("threads that ended are not joined", || {
        drop(engine.open(Arc::new(named(SIZE))).expect("opened"));
        engine.gauges().unjoined_threads <= engine.gauges().threads + 2
    });
}

/// No program should; one that does gets right bytes and a right count.
#[test]
fn a_read_polled_again_after_its_end_is_a_new_one() {
    for (name, source, options) in sources() {
        let reader = Reader::open(source, options).expect("opened");
        let mut buf = [0; 100];
        let mut read = pin!(reader.read_at_async(&mut buf, SIZE - 50));
        for _ in 0..3 {
            let again = std::future::poll_fn(|context| read.as_mut().poll(context));
            let got = pollster::block_on(again);
            assert_eq!(got.ok(), Some(50), "{name}");
        }
        settle(&name, &reader);
    }
}
