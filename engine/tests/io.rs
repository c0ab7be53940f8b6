//! Tests of cursors: `std::io` on a thread, the traits of tokio in tasks, and what remains of an error
//! after conversion.
//!
//! The bytes of a test source encode their offset, so a cursor with a wrong position is detected at the first read.
//! Example: a poll with a buffer of 64 KiB is pending; the next one has a buffer of 1,000 bytes; both get the bytes
//! from the cursor's position on.

use crate::common::{by, named, opened, right};
use foreread::io::ReadCursor;
use foreread::source::SourceError;
use foreread::{OpenError, Options, ReadError, Reader};
use foreread_testing::{self as testing, Faulty};
use std::io::{Error, ErrorKind, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;

const SIZE: u64 = (3 << 20) + 77;

fn options() -> Options {
    by("linux-6.18:max=128K", 2 << 20)
}

fn reader() -> Reader {
    opened(named(SIZE), options())
}

#[test]
fn std_read_goes_through_the_whole_source() {
    let reader = reader();
    let (mut all, mut copied) = (Vec::new(), Vec::new());
    let read = reader.cursor().read_to_end(&mut all);
    assert_eq!(read.expect("read"), SIZE as usize);
    right(&all, 0, 0);
    let mut cursor = ReadCursor::new(reader.try_clone().expect("a clone"));
    let copy = std::io::copy(&mut cursor, &mut copied);
    assert_eq!(copy.expect("copied"), SIZE);
    assert_eq!(cursor.position(), SIZE);
    assert_eq!(copied, all);
    assert_eq!(cursor.reader().size(), SIZE);
}

#[test]
fn seeks_match_std() {
    let reader = reader();
    let mut cursor = ReadCursor::new(Arc::new(reader));
    let invalid = Err(ErrorKind::InvalidInput);
    for (to, at) in [
        (SeekFrom::End(-100), Ok(SIZE - 100)),
        (SeekFrom::Current(50), Ok(SIZE - 50)),
        (SeekFrom::Start(u64::MAX), Ok(u64::MAX)),
        (SeekFrom::Current(1), invalid),
        // A seek that fails moves nothing.
        (SeekFrom::Current(0), Ok(u64::MAX)),
        (SeekFrom::Start(10), Ok(10)),
        (SeekFrom::Current(-11), invalid),
        (SeekFrom::End(-100), Ok(SIZE - 100)),
    ] {
        assert_eq!(cursor.seek(to).map_err(|error| error.kind()), at, "{to:?}");
    }
    let mut buf = [0; 100];
    cursor.read_exact(&mut buf).expect("the tail");
    right(&buf, SIZE - 100, 0);
    assert_eq!(cursor.read(&mut buf).expect("the end"), 0);
    cursor.seek(SeekFrom::Current(-50)).expect("inside");
    let error = cursor.read_exact(&mut buf).expect_err("50 are left");
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn paths_of_any_kind_are_opened() {
    let dir = tempfile::tempdir().expect("a folder");
    let odd: PathBuf = dir.path().join("nbd:looks like a name");
    std::fs::write(&odd, testing::pattern(0, 5000, 0)).expect("written");
    let by_file = Reader::open_file(&odd, options()).expect("any path");
    let by_path = Reader::open(odd.as_path(), options()).expect("a path");
    let by_buf = Reader::open(odd.clone(), options()).expect("a path");
    let sizes = [by_file, by_path, by_buf].map(|reader| reader.size());
    assert_eq!(sizes, [5000; 3]);
    let here = std::env::current_dir().expect("a folder");
    assert!(Reader::open_file(here.join("nothing is here"), options()).is_err());
    assert!(foreread::source::FileSource::open(odd.to_str().expect("text")).is_ok());
}

#[test]
fn errors_are_io_errors_and_come_back() {
    let broken = Faulty::from_nth(named(SIZE), 0);
    let reader = opened(broken, options());
    let mut buf = [0; 10];
    let direct = reader.read_at(&mut buf, 0).expect_err("broken");
    // The source counts its reads in what it says.
    let error = reader.cursor().read(&mut buf).expect_err("broken");
    let line = error.to_string();
    assert!(line.starts_with("read of 10 bytes at 0 of "), "{line}");
    let kind = Error::from_raw_os_error(direct.errno()).kind();
    assert_eq!(error.kind(), kind);
    let back = error.downcast::<ReadError>().expect("the same");
    assert_eq!(back.to_string(), line, "the whole line is kept");

    let missing = Reader::open("file:/nothing/here", options()).map(drop);
    let error = Error::from(missing.expect_err("missing"));
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let back = error.downcast::<OpenError>();
    assert!(matches!(back, Ok(OpenError::Source(_))), "{back:?}");
    let back = SourceError::from(Error::from_raw_os_error(13));
    let is_denied =
        matches!(&back, SourceError::Other { errno: 13, what, .. } if what.contains("denied"));
    assert!(is_denied, "{back:?}");
    assert_eq!(Error::from(back).kind(), ErrorKind::PermissionDenied);
    let back = SourceError::from(Error::other("no number"));
    assert_eq!(back.errno(), 5);
}

#[cfg(feature = "tokio")]
mod tasks {
    use super::*;
    use crate::common::{Rng, runtime, wait_until};
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    /// A source that makes reads wait, and a reader of it that reads nothing ahead.
    fn slow() -> Reader {
        let source = Faulty::slow(named(SIZE), 7, Duration::from_micros(300));
        opened(source, options().cache_bytes(1 << 20))
    }

    fn poll(cursor: &mut ReadCursor<&Reader>, buf: &mut [u8]) -> Poll<std::io::Result<usize>> {
        let context = &mut Context::from_waker(Waker::noop());
        let mut buf = tokio::io::ReadBuf::new(buf);
        let read = tokio::io::AsyncRead::poll_read(Pin::new(cursor), context, &mut buf);
        read.map_ok(|()| buf.filled().len())
    }

    /// Polls until it is ready, each time with another buffer. Returns how often it was pending.
    fn read_with_changing_buffers(cursor: &mut ReadCursor<&Reader>, rng: &mut Rng) -> u64 {
        let (mut pending, at) = (0, cursor.position());
        loop {
            // The first is longer than a quarter of the cache, so that its read comes in pieces.
            let most = if pending == 0 { 900_000 } else { 100_000 };
            let mut buf = vec![0xAA; 1 + rng.below(most) as usize];
            if let Poll::Ready(read) = poll(cursor, &mut buf) {
                let read = read.expect("read");
                assert!(read > 0, "not the end at {at}");
                right(&buf[..read], at, 0);
                assert_eq!(cursor.position(), at + read as u64);
                return pending;
            }
            pending += 1;
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn seek(cursor: &mut ReadCursor<&Reader>, to: u64) -> u64 {
        cursor.seek(SeekFrom::Start(to)).expect("inside")
    }

    #[test]
    fn every_poll_may_bring_another_buffer() {
        let (reader, mut rng) = (slow(), Rng(11));
        let (mut cursor, mut pending) = (reader.cursor(), 0);
        for _ in 0..200 {
            if cursor.position() >= SIZE - 200_000 || rng.below(10) == 0 {
                seek(&mut cursor, rng.below(SIZE - 300_000));
            }
            pending += read_with_changing_buffers(&mut cursor, &mut rng);
        }
        assert!(pending > 20, "{pending} polls were pending");
    }

    #[test]
    fn a_cursor_that_is_dropped_or_moved_gives_its_read_up() {
        let (reader, mut rng, mut given_up) = (slow(), Rng(5), 0);
        for n in 0..100_u64 {
            let (mut cursor, mut buf) = (reader.cursor(), vec![0; 70_000]);
            seek(&mut cursor, rng.below(SIZE - 100_000));
            given_up += u64::from(poll(&mut cursor, &mut buf).is_pending());
            if n % 2 == 0 {
                let at = seek(&mut cursor, n);
                cursor.read_exact(&mut buf[..50]).expect("read");
                right(&buf[..50], at, 0);
            }
        }
        assert!(given_up > 20, "{given_up} reads were given up");
        // No slot is left behind: as many reads as ever fit.
        wait_until("reads are left", || reader.gauges().reads == 0);
    }

    #[test]
    fn tokio_copies_from_many_cursors() {
        use tokio::io::{AsyncReadExt, AsyncSeekExt};
        let reader = Arc::new(slow());
        let runtime = runtime(2);
        let each = (0..4_u64).map(|n| {
            let mut cursor = ReadCursor::new(Arc::clone(&reader));
            runtime.spawn(async move {
                let (start, mut all) = (n * SIZE / 5, Vec::new());
                let sought = AsyncSeekExt::seek(&mut cursor, SeekFrom::Start(start)).await;
                sought.expect("inside");
                let copy = tokio::io::copy(&mut cursor, &mut all).await;
                assert_eq!(copy.expect("copied"), SIZE - start);
                right(&all, start, 0);
                let read = AsyncReadExt::read(&mut cursor, &mut [0; 1]).await;
                assert_eq!(read.expect("the end"), 0);
            })
        });
        for task in Vec::from_iter(each) {
            runtime.block_on(task).expect("no panic");
        }
    }

    #[test]
    fn an_error_in_a_task_is_the_error_of_the_read() {
        let reader = opened(Faulty::from_nth(named(SIZE), 0), options());
        let (mut cursor, mut buf) = (reader.cursor(), [0; 10]);
        let read = pollster::block_on(tokio::io::AsyncReadExt::read(&mut cursor, &mut buf));
        assert!(read.expect_err("broken").downcast::<ReadError>().is_ok());
        assert_eq!(cursor.position(), 0);
    }
}
