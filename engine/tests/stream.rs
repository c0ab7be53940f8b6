//! Tests of sources whose bytes arrive in parts: a read that waits for the first bytes continues before the last have arrived.
//!
//! No time is measured; latches control the order.

use crate::common::{Rng, by, check_memory, in_threads, named, quiet, read_and_check, right};
use foreread::eventlog;
use foreread::source::{Defaults, Mem, Sink, Source, SourceError, StreamingSource};
use foreread::{Advice, Options, ReadError, Reader};
use foreread_testing::passed_on;
use std::io::IoSliceMut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const SIZE: u64 = 4 << 20;

/// A body that may stop: no buffer that ends beyond `open` is filled until it is moved.
struct Body {
    inner: Arc<Mem>,
    open: Mutex<u64>,
    moved: Condvar,
    /// One stream in this many breaks in its middle; 0 is none.
    break_every: u64,
    streams: AtomicU64,
}

impl Body {
    fn new(open: u64, break_every: u64) -> Arc<Body> {
        let (open, moved, streams) = (Mutex::new(open), Condvar::new(), AtomicU64::new(0));
        Arc::new(Body {
            inner: Arc::new(named(SIZE)),
            open,
            moved,
            break_every,
            streams,
        })
    }

    fn let_go_on(&self) {
        *self.open.lock().expect("no panic") = u64::MAX;
        self.moved.notify_all();
    }
}

impl Source for Body {
    passed_on! {self => self.inner;
        size() -> u64;
        read_at(bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, SourceError>;
        defaults() -> Defaults;
        describe() -> String;
    }

    fn streaming(&self) -> Option<&dyn StreamingSource> {
        Some(self)
    }
}

impl StreamingSource for Body {
    fn stream(&self, len: u64, offset: u64, sink: &mut dyn Sink) -> Result<usize, SourceError> {
        let nth = self.streams.fetch_add(1, Ordering::SeqCst) + 1;
        let mut done = 0;
        while let Some(room) = sink.room().map(|room| room.len() as u64) {
            let end = (offset + done + room).min(SIZE);
            let mut open = self.open.lock().expect("no panic");
            while end > *open {
                if sink.is_cancelled() {
                    return Err(SourceError::io(125, "nothing needs it"));
                }
                let waited = self.moved.wait_timeout(open, Duration::from_millis(1));
                open = waited.expect("no panic").0;
            }
            drop(open);
            if self.break_every > 0 && nth.is_multiple_of(self.break_every) && done * 2 >= len {
                return Err(SourceError::io(104, "the body broke off"));
            }
            let Some(room) = sink.room() else { break };
            let got = self.read_at(&mut [IoSliceMut::new(room)], offset + done)?;
            sink.filled(got);
            done += got as u64;
        }
        Ok(done as usize)
    }
}

/// A reader of a body that stops after 256 KiB.
fn stopped() -> (Arc<Body>, Reader) {
    let body = Body::new(256 << 10, 0);
    let options = Options::default().policy("linux-6.18:max=1M");
    let reader = Reader::open(Arc::clone(&body), options).expect("opens");
    (body, reader)
}

#[test]
fn the_first_bytes_do_not_wait_for_the_last() {
    let (body, reader) = stopped();
    reader.advise(Advice::WillNeed, 0..SIZE).expect("taken");
    let mut buf = vec![0; 128 << 10];
    // The fetch of a MiB stops after its first 256 KiB: if it were delivered whole, this read would never end.
    for at in [0, 128 << 10] {
        assert_eq!(read_and_check(&reader, &mut buf, at, 0), buf.len());
    }
    assert!(
        reader.engine().gauges().running_fetches > 0,
        "it is still in flight"
    );
    body.let_go_on();
    assert_eq!(reader.read_at(&mut buf, SIZE - 1000).expect("there"), 1000);
    let bytes = quiet(&reader).pages * 4096;
    let read = reader.stats().source_bytes;
    assert_eq!(read, bytes, "nothing was read twice");
}

/// What is read ahead of a reader that has gone ends in its middle, though another description of the file is open, as in a mount.
#[test]
fn fetches_of_the_last_reader_are_cancelled() {
    let (body, idle) = stopped();
    let reader = idle.try_clone().expect("opens");
    reader.advise(Advice::WillNeed, 0..SIZE).expect("taken");
    let mut buf = vec![0; 128 << 10];
    assert_eq!(reader.read_at(&mut buf, 0).expect("there"), buf.len());
    assert!(reader.engine().gauges().running_fetches > 0, "it is held");
    drop(reader);
    // It is still held: fetches end here only if they are cancelled.
    let pages = quiet(&idle).pages;
    let is_what_came = (64..=64 * 4).contains(&pages);
    assert!(is_what_came, "{pages}: what had arrived, and no more");
    assert_eq!(idle.stats().failed_fetches, 0, "none failed");
    body.let_go_on();
    let mut at = 0;
    while at < SIZE {
        at += read_and_check(&idle, &mut buf, at, 0) as u64;
    }
}

/// Readahead of a reader that goes on is not cancelled by another one's end.
#[test]
fn another_readers_close_cancels_nothing() {
    let (body, reader) = stopped();
    let other = reader.try_clone().expect("opens");
    let mut buf = vec![0; 4096];
    for one in [&reader, &other] {
        read_and_check(one, &mut buf, 0, 0);
    }
    reader.advise(Advice::WillNeed, 0..SIZE).expect("taken");
    read_and_check(&reader, &mut buf, 128 << 10, 0);
    drop(other);
    assert!(reader.engine().gauges().running_fetches > 0);
    body.let_go_on();
    let (pages, stats) = (quiet(&reader).pages, reader.stats());
    assert_eq!(pages * 4096, stats.source_bytes, "each byte once");
    assert_eq!(stats.ra_failed_bytes, 0);
    assert!(pages * 4096 > 1 << 20, "all that was read ahead came");
}

/// Streams that break off in the middle, several threads, a small cache: right bytes or the error, and the log of it
/// gives identical actions.
#[test]
fn broken_streams_are_read_again_and_replay() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut progress = 0;
    for seed in 0..6 {
        let log = dir.path().join(seed.to_string());
        let body = Body::new(u64::MAX, 3);
        let options = by("linux-6.18:max=1M", 2 << 20).event_log(&log);
        let reader = Reader::open(Arc::clone(&body), options).expect("opens");
        in_threads(3, |thread| {
            let own = reader.try_clone().expect("opens");
            let (mut rng, mut buf) = (Rng(seed * 10 + thread), vec![0; 700_000]);
            let mut at = 0;
            for _ in 0..60 {
                let len = 1 + rng.below(buf.len() as u64) as usize;
                match own.read_at(&mut buf[..len], at) {
                    Ok(got) => {
                        assert_eq!(got as u64, (len as u64).min(SIZE - at));
                        right(&buf[..got], at, 0);
                    }
                    Err(ReadError::Io { errno: 104, .. }) => {}
                    Err(error) => panic!("another error: {error}"),
                }
                let next = Some(at + len as u64).filter(|next| *next < SIZE);
                at = next.unwrap_or_else(|| rng.below(SIZE));
            }
        });
        check_memory(&quiet(&reader), 4096);
        drop(reader);
        let text = std::fs::read(&log).expect("a log");
        progress += String::from_utf8_lossy(&text).matches("progress").count();
        eventlog::check_log(text.as_slice()).unwrap_or_else(|error| panic!("run {seed}: {error}"));
    }
    println!("{progress} parts came before their fetch was whole");
    assert!(progress > 100);
}
