//! Tests with a source that is an async client: on runtimes of both kinds, driven or not, and with clients that never
//! answer, panic, stop early or return too much.
//!
//! No test waits for a fixed time.

use crate::common::{opened, read_and_check, right, runtime, watch};
use bytes::Bytes;
use foreread::source::{self, AsyncSource, Defaults, SourceError};
use foreread::{Options, Reader};
use foreread_testing::{self as testing, says};
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use tokio::runtime::{Runtime, RuntimeFlavor};

const SIZE: u64 = (8 << 20) + 77;

/// What the client does when it is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Whole,
    Short,
    TooLong,
    Panics,
    Never,
}

struct Client {
    way: Way,
    asked: Mutex<Vec<Range<u64>>>,
    is_asked: AtomicBool,
    dropped: Arc<AtomicU64>,
}

/// Counts a call that has ended, in whichever way.
struct Ends(Arc<AtomicU64>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn client(way: Way) -> Arc<Client> {
    Arc::new(Client {
        way,
        asked: Mutex::default(),
        is_asked: AtomicBool::new(false),
        dropped: Arc::default(),
    })
}

impl AsyncSource for Client {
    fn size(&self) -> u64 {
        SIZE
    }

    async fn read_at(&self, range: Range<u64>) -> Result<Bytes, SourceError> {
        let _ends = Ends(Arc::clone(&self.dropped));
        self.asked.lock().expect("no panic").push(range.clone());
        self.is_asked.store(true, Ordering::SeqCst);
        tokio::task::yield_now().await;
        let len = (range.end - range.start) as usize;
        let len = match self.way {
            Way::Whole => len,
            Way::Short => len.min(10_000),
            Way::TooLong => len + 1,
            Way::Panics => panic!("my bug"),
            Way::Never => std::future::pending().await,
        };
        Ok(testing::pattern(range.start, len, 0).into())
    }

    fn describe(&self) -> String {
        "client".to_string()
    }

    fn defaults(&self) -> Defaults {
        Defaults::NBD
    }
}

fn several() -> Runtime {
    runtime(2)
}

fn single() -> Runtime {
    runtime(0)
}

fn open(client: &Arc<Client>, runtime: &Runtime, options: Options) -> Arc<Reader> {
    watch();
    let source = source::from_async(Arc::clone(client), runtime.handle().clone());
    Arc::new(opened(source, options))
}

/// With workers and without.
fn options() -> [Options; 2] {
    [Options::default(), Options::default().threads(0)]
}

async fn read_all(reader: &Reader) {
    let (mut buf, mut at) = (vec![0; 50_000], 0);
    while at < SIZE {
        let read = reader.read_at_async(&mut buf, at).await.expect("read");
        right(&buf[..read], at, 0);
        assert!(read > 0);
        at += read as u64;
    }
}

fn read_all_blocking(reader: &Reader) {
    let (mut buf, mut at) = (vec![0; 50_000], 0);
    while at < SIZE {
        at += read_and_check(reader, &mut buf, at, 0) as u64;
    }
}

#[test]
fn tasks_and_threads_read_right_bytes_on_both_kinds_of_runtimes() {
    for way in [Way::Whole, Way::Short] {
        for options in options() {
            for runtime in [several(), single()] {
                let flavor = runtime.handle().runtime_flavor();
                if options.threads == Some(0) && flavor == RuntimeFlavor::CurrentThread {
                    continue;
                }
                let client = client(way);
                let reader = open(&client, &runtime, options.clone());
                runtime.block_on(read_all(&reader));
                // By threads that the runtime keeps for calls that block.
                let blocks = open(&client, &runtime, options.clone());
                let read = runtime.spawn_blocking(move || read_all_blocking(&blocks));
                runtime.block_on(read).expect("no panic");
            }
        }
    }
}

/// The worker that blocks started the tasks that have to answer it.
#[test]
fn a_read_that_blocks_in_a_task_is_answered_by_the_other_workers() {
    for options in options() {
        let runtime = several();
        let reader = open(&client(Way::Whole), &runtime, options);
        read_all_blocking(&reader);
        let again = open(&client(Way::Whole), &runtime, Options::default());
        let task = runtime.spawn(async move { read_all_blocking(&again) });
        runtime.block_on(task).expect("no panic");
    }
}

/// One thread cannot wait for itself: an error that says what to do, not a hang.
#[test]
fn a_read_that_blocks_the_only_thread_fails() {
    let runtime = single();
    let reader = open(&client(Way::Whole), &runtime, Options::default());
    let error = runtime.block_on(async { reader.read_at(&mut [0; 8], 0) });
    let text = error.expect_err("it would wait for itself").to_string();
    says(&text, &["use read_at_async"]);
    runtime.block_on(read_all(&reader));
    // Without workers the reads of tasks block, too.
    let alone = open(&client(Way::Whole), &runtime, Options::default().threads(0));
    let error = runtime.block_on(async { alone.read_at_async(&mut [0; 8], 0).await });
    let text = error.expect_err("it would wait for itself").to_string();
    says(&text, &["with worker threads"]);
}

/// Inside `block_on` and outside of it, where no thread drives the runtime, with readahead or a read under way.
#[test]
fn a_reader_is_dropped_at_once_and_gives_its_memory_back() {
    for way in [Way::Whole, Way::Never] {
        for inside in [true, false] {
            let (runtime, client) = (single(), client(way));
            let reader = open(&client, &runtime, Options::default());
            let meter = reader.engine().meter();
            runtime.block_on(async {
                let mut buf = vec![0; 65_536];
                for n in 0..10 {
                    let mut read = Box::pin(reader.read_at_async(&mut buf, n * 65_536));
                    // A few turns of the runtime, then the read is given up.
                    for _ in 0..10 {
                        let turn = poll_fn(|c| Poll::Ready(read.as_mut().poll(c).is_ready()));
                        if turn.await {
                            break;
                        }
                        tokio::task::yield_now().await;
                    }
                }
                (!inside).then_some(reader)
            });
            assert_eq!(meter.held_bytes(), 0);
            // The tasks end when the runtime is driven again.
            runtime.block_on(async {
                let begun = || client.asked.lock().expect("no panic").len() as u64;
                while client.dropped.load(Ordering::SeqCst) < begun() {
                    tokio::task::yield_now().await;
                }
            });
        }
    }
}

#[test]
fn reads_fail_after_the_runtime_has_ended() {
    let runtime = several();
    let waits = client(Way::Never);
    let reader = open(&waits, &runtime, Options::default());
    let error = std::thread::scope(|scope| {
        let read = scope.spawn(|| reader.read_at(&mut [0; 8], 0));
        while !waits.is_asked.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        runtime.shutdown_background();
        read.join().expect("no panic")
    });
    for error in [error, reader.read_at(&mut [0; 8], 0)] {
        let text = error.expect_err("no answer").to_string();
        says(&text, &["the async runtime that its client uses has ended"]);
    }
}

#[test]
fn a_panic_and_an_answer_that_is_too_long_are_errors() {
    let bug = "client: the source panicked: my bug; fix the source";
    for (way, wanted) in [(Way::Panics, bug), (Way::TooLong, "client reports ")] {
        let runtime = several();
        let reader = open(&client(way), &runtime, Options::default());
        let error = reader.read_at(&mut [0; 8], 0).expect_err("fails");
        says(&error.to_string(), &[wanted]);
        assert!(!reader.engine().is_stopped());
    }
}

/// The pieces of a fetch are one request, so that far storage is asked as seldom as by a thread.
#[test]
fn a_fetch_is_one_request() {
    let (runtime, client) = (several(), client(Way::Whole));
    let reader = open(&client, &runtime, Options::default().policy("none"));
    let mut buf = vec![0; 1 << 20];
    // A task's, which goes by the queue.
    let read = runtime.block_on(reader.read_at_async(&mut buf, 0));
    assert_eq!(read.expect("read"), 1 << 20);
    right(&buf, 0, 0);
    let asked = client.asked.lock().expect("no panic");
    assert_eq!((asked.len(), &asked[0]), (1, &(0..1 << 20)));
}
