//! Tests of cursors: `std::io` on a thread, and what remains of an error after conversion.
//!
//! The bytes of a test source encode their offset, so a cursor with a wrong position is detected at the first read.

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
