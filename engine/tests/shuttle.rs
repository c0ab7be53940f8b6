//! Tests of thread interleavings: the driver, its queue, its workers and its tasks under a scheduler that tries many orders.
//!
//! Empty unless built for it: `RUSTFLAGS='--cfg shuttle' cargo test -p foreread --no-default-features --test shuttle`.
//! In this build no wait times out, so a lost wakeup is a deadlock, and is reported with the order that caused it.
//! `FOREREAD_ORDERS` sets the number of orders for each test. There is no real storage and no real time.

#![allow(
    clippy::disallowed_methods,
    reason = "a test may panic if a thread cannot be started"
)]
#![cfg(shuttle)]

use foreread::source::{Mem, Source};
use foreread::{Advice, Options, ReadError, Reader};
use foreread_testing::{self as testing, Faulty, QueuedSource};
use shuttle::{future, thread};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const SIZE: u64 = 1 << 20;

/// Tries orders: half of them at random, half with few and well-placed changes of thread (PCT).
fn orders(test: impl Fn() + Send + Sync + Clone + 'static) {
    let all = std::env::var("FOREREAD_ORDERS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(400);
    shuttle::check_random(test.clone(), all / 2);
    shuttle::check_pct(test, all / 2, 3);
}

fn named() -> Mem {
    Mem::generated(SIZE, |offset, buf| testing::fill(buf, offset, 0))
}

fn options() -> Options {
    Options::default()
        .cache_bytes(256 << 10)
        .policy("linux-6.18:max=64K")
        .threads(2)
}

fn read(reader: &Reader, offset: u64, len: usize) {
    let mut buf = vec![0; len];
    let got = reader
        .read_at(&mut buf, offset)
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(got as u64, (len as u64).min(SIZE - offset));
    testing::check(&buf, offset, 0).expect("right bytes");
}

async fn read_async(reader: &Reader, offset: u64, len: usize) {
    let mut buf = vec![0; len];
    let got = reader
        .read_at_async(&mut buf, offset)
        .await
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(got as u64, (len as u64).min(SIZE - offset));
    testing::check(&buf[..got], offset, 0).expect("right bytes");
}

/// Two in order, one here and there, and hints between.
fn some_threads(reader: Reader) {
    let reader = Arc::new(reader);
    let threads: Vec<_> = (0..3_u64)
        .map(|me| {
            let reader = Arc::new(reader.try_clone().expect("room"));
            thread::spawn(move || {
                for i in 0..4_u64 {
                    match me {
                        0 => read(&reader, i * 30_000, 30_000),
                        1 => read(&reader, 100_000 + i * 16_384, 16_384),
                        _ => read(&reader, (i * 333_331) % SIZE, 5000),
                    }
                    if me == 2 {
                        reader
                            .advise(Advice::WillNeed, i * 65_536..i * 65_536 + 50_000)
                            .expect("taken");
                    }
                }
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().expect("no panic"));
    assert_eq!(reader.engine().gauges().reads, 0);
}

/// Sources that differ in the thread that reads: workers, a queue, a queue that refuses, callers alone.
fn sources(n: u64) -> (Arc<dyn Source>, Options) {
    match n {
        0 => (Arc::new(named()), options()),
        1 => (Arc::new(named()), options().threads(0)),
        2 => (Arc::new(QueuedSource::new(named(), 3)), options()),
        3 => (
            Arc::new(QueuedSource::new(named(), 4).depth(2)),
            options().threads(1),
        ),
        4 => (
            Arc::new(QueuedSource::new(named(), 5).refused_from(3)),
            options(),
        ),
        _ => (
            Arc::new(QueuedSource::new(named(), 6)),
            options().threads(0),
        ),
    }
}

#[test]
fn threads() {
    for n in 0..6 {
        orders(move || {
            let (source, options) = sources(n);
            some_threads(Reader::open(source, options).expect("opened"));
        });
    }
}

#[test]
fn tasks_beside_threads() {
    for n in 0..6 {
        orders(move || {
            let (source, options) = sources(n);
            let reader = Arc::new(Reader::open(source, options).expect("opened"));
            let own = Arc::clone(&reader);
            let blocking =
                thread::spawn(move || (0..3).for_each(|i| read(&own, i * 40_000, 40_000)));
            let tasks: Vec<_> = (0..3_u64)
                .map(|me| {
                    let reader = Arc::clone(&reader);
                    future::spawn(async move {
                        for i in 0..3 {
                            read_async(&reader, (me * 222_222 + i * 20_000) % SIZE, 20_000).await;
                        }
                        // Past the end: the source is asked.
                        read_async(&reader, SIZE - 10, 100).await;
                    })
                })
                .collect();
            tasks
                .into_iter()
                .for_each(|task| future::block_on(task).expect("no panic"));
            blocking.join().expect("no panic");
        });
    }
}

/// Some fail, the others are right; readahead that fails has no owner.
#[test]
fn failing_sources() {
    for n in 0..3 {
        orders(move || {
            let faulty = Faulty::share(named(), n, 200);
            let reader = if n == 0 {
                Reader::open(Arc::new(faulty), options())
            } else {
                Reader::open(Arc::new(QueuedSource::new(faulty, n)), options())
            };
            let reader = Arc::new(reader.expect("opened"));
            let threads: Vec<_> = (0..2_u64)
                .map(|me| {
                    let reader = Arc::clone(&reader);
                    thread::spawn(move || {
                        let mut buf = vec![0; 20_000];
                        for i in 0..5 {
                            let offset = me * 500_000 + i * 20_000;
                            match reader.read_at(&mut buf, offset) {
                                Ok(got) => {
                                    testing::check(&buf[..got], offset, 0).expect("right bytes")
                                }
                                Err(ReadError::Io { .. }) => {}
                                Err(other) => panic!("{other}"),
                            }
                        }
                    })
                })
                .collect();
            threads
                .into_iter()
                .for_each(|thread| thread.join().expect("no panic"));
        });
    }
}

/// Closed by one thread while another reads a neighbour, and the engine dropped with readahead under way.
#[test]
fn closing() {
    for n in 0..6 {
        orders(move || {
            let (source, options) = sources(n);
            let first = Reader::open(source, options).expect("opened");
            let second = first.engine().open(sources(2).0).expect("opened");
            let closer = thread::spawn(move || {
                read(&first, 0, 50_000);
                first
                    .advise(Advice::WillNeed, 200_000..400_000)
                    .expect("taken");
            });
            let given_up = thread::spawn(move || {
                let mut buf = vec![0; 60_000];
                let mut read = Box::pin(second.read_at_async(&mut buf, 0));
                let waker = std::task::Waker::noop();
                let _ = read
                    .as_mut()
                    .poll(&mut std::task::Context::from_waker(waker));
                drop(read);
                self::read(&second, 100_000, 30_000);
            });
            closer.join().expect("no panic");
            given_up.join().expect("no panic");
        });
    }
}

/// Two read the same pages again and again, a third overwrites them: no read that begins after a write gives what was before it.
#[test]
fn hits_beside_writes() {
    const PAGE: usize = 4096;
    orders(|| {
        let source = Arc::new(Mem::new(vec![0; 4 * PAGE]));
        let reader = Arc::new(
            Reader::open(source, Options::default().policy("none").threads(0)).expect("opened"),
        );
        reader.allow_writes().expect("memory");
        let written = Arc::new([const { AtomicU8::new(0) }; 2]);
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (reader, written) = (Arc::clone(&reader), Arc::clone(&written));
                thread::spawn(move || {
                    let mut buf = vec![0; PAGE];
                    for n in 0..8_usize {
                        let page = n / 4;
                        let least = written[page].load(Ordering::SeqCst);
                        assert_eq!(reader.read_at(&mut buf, (page * PAGE) as u64), Ok(PAGE));
                        assert!(
                            buf[0] >= least && buf.iter().all(|byte| *byte == buf[0]),
                            "{} after {least}",
                            buf[0]
                        );
                    }
                })
            })
            .collect();
        for stamp in 1..4_u8 {
            for page in 0..2 {
                reader
                    .write_at(&[stamp; PAGE], (page * PAGE) as u64)
                    .expect("written");
                written[page].store(stamp, Ordering::SeqCst);
            }
        }
        readers
            .into_iter()
            .for_each(|thread| thread.join().expect("no panic"));
        let stats = reader.stats();
        assert_eq!(
            (
                stats.demand_reads,
                stats.hits + stats.late_hits + stats.misses
            ),
            (16, 16)
        );
    });
}
