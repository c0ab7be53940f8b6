//! Tests of a program's own source: its errors become one line; its panics, counts that are too large, and the end of
//! its reader are handled.
//!
//! No test waits for a fixed time. The examples, which have sources of their own, run and print what they should;
//! `cargo test` builds them, not this test.

use crate::common::{opened, watch};
use foreread::source::{
    Cause, Defaults, Extent, Holes, Sink, Source, SourceError, StreamingSource, WritableSource,
};
use foreread::{Engine, ErrorKind, Options};
use foreread_testing::{Latch, Method, needs, says};
use std::error::Error;
use std::io::IoSliceMut;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A source that is read by a function.
struct By<F>(F);

impl<F: Fn(&mut [IoSliceMut<'_>], u64) -> Result<usize, SourceError> + Send + Sync> Source
    for By<F>
{
    fn size(&self) -> u64 {
        64 << 20
    }

    fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, SourceError> {
        (self.0)(bufs, offset)
    }

    fn describe(&self) -> String {
        "mine".to_string()
    }

    fn defaults(&self) -> Defaults {
        Defaults::OBJECT
    }
}

fn room(bufs: &[IoSliceMut<'_>]) -> usize {
    bufs.iter().map(|buf| buf.len()).sum()
}

/// The line of a read that a source fails.
fn line(fail: impl Fn() -> SourceError + Send + Sync + 'static) -> String {
    let source = By(move |_: &mut [IoSliceMut<'_>], _| Err(fail()));
    let error = opened(source, Options::default()).read_at(&mut [0; 8], 0);
    error.expect_err("fails").to_string()
}

#[derive(Debug, thiserror::Error)]
#[error("server said {0}")]
struct Refused(u32);

#[test]
fn a_reads_error_line_has_the_sources_message() {
    let of = |error: fn() -> std::io::Error| line(move || SourceError::from(error()));
    let is = |line: String, said: &str, remedy: &str| {
        let wanted = format!("read of 8 bytes at 0 of mine: {said}; {remedy}");
        assert_eq!(line, wanted);
    };
    let remedy = "check the storage, or read again";
    let refused = of(|| std::io::Error::other(Refused(503)));
    is(refused, "server said 503", remedy);
    let numbered = of(|| std::io::Error::from_raw_os_error(111));
    is(numbered, "Connection refused (os error 111)", remedy);
    let own = line(|| SourceError::io(121, "reading lane 3"));
    is(own, "reading lane 3: Remote I/O error", remedy);
    let panics = line(|| panic!("my bug {}", 7));
    is(panics, "the source panicked: my bug 7", "fix the source");
}

#[test]
fn no_text_of_a_chain_of_an_io_error_comes_twice() {
    let deep = std::io::Error::other(std::io::Error::other(Refused(503)));
    let errors = [
        SourceError::from(deep),
        SourceError::from(std::io::Error::from_raw_os_error(111)),
        SourceError::from(std::io::Error::other("only text")),
    ];
    for error in &errors {
        let mut texts = vec![error.to_string()];
        let mut link = error.source();
        while let Some(error) = link {
            texts.push(error.to_string());
            link = error.source();
        }
        let mut once = texts.clone();
        once.dedup();
        assert!(texts.len() == 2 && once == texts, "{texts:?}");
    }
    let own = errors[0].source().and_then(|error| error.downcast_ref());
    assert_eq!(own.map(|refused: &Refused| refused.0), Some(503));
    // One that passed through `std::io` comes back as it was.
    let again = SourceError::from(std::io::Error::from(errors[1].clone()));
    assert_eq!(again, errors[1]);
}

#[test]
fn a_count_larger_than_the_buffers_is_an_error() {
    let source = By(|bufs: &mut [IoSliceMut<'_>], _| Ok(room(bufs) + 1));
    let error = opened(source, Options::default()).read_at(&mut [0; 8], 0);
    let error = error.expect_err("too many");
    assert_eq!(error.kind(), ErrorKind::Storage);
    assert!(error.to_string().contains("reports "), "{error}");
}

/// Fetches that have not begun are dropped with the last reader; those that have are waited for at the end of the engine.
#[test]
fn queued_fetches_are_dropped_with_their_reader() {
    watch();
    let latch = Arc::new(Latch::default());
    latch.hang(Method::ReadAt);
    let begun = Arc::new(AtomicU64::new(0));
    let ended = Arc::new(AtomicU64::new(0));
    let (held, begins, ends) = (Arc::clone(&latch), Arc::clone(&begun), Arc::clone(&ended));
    let source = By(move |bufs: &mut [IoSliceMut<'_>], _| {
        begins.fetch_add(1, Ordering::SeqCst);
        held.pass(Method::ReadAt);
        ends.fetch_add(1, Ordering::SeqCst);
        Ok(room(bufs))
    });
    let engine = Engine::new(Options::default().threads(2)).expect("an engine");
    let reader = engine.open(Arc::new(source)).expect("opens");
    reader.prefetch(0..32 << 20).expect("begun");
    while begun.load(Ordering::SeqCst) < 2 || engine.gauges().queued_fetches == 0 {
        std::thread::yield_now();
    }
    drop(reader);
    assert_eq!(ended.load(Ordering::SeqCst), 0, "they are under way");
    latch.release();
    drop(engine);
    assert_eq!(begun.load(Ordering::SeqCst), 2, "no more were begun");
    assert_eq!(ended.load(Ordering::SeqCst), 2, "these were waited for");
}

/// What an example prints.
fn example(name: &str, arguments: &[&str]) -> Option<String> {
    let mut program = std::env::current_exe().expect("a test");
    program.pop();
    let program = program.with_file_name("examples").join(name);
    if !program.exists() {
        println!("skipped: needs the examples (cargo build -p foreread --examples)");
        return None;
    }
    let out = Command::new(&program).args(arguments).output();
    let out = out.unwrap_or_else(|e| panic!("{}: {e}", program.display()));
    crate::common::passed(&out);
    Some(String::from_utf8(out.stdout).expect("text"))
}

#[test]
fn each_example_does_what_it_says() {
    let file = tempfile::NamedTempFile::new().expect("a scratch file");
    std::fs::write(file.path(), vec![2; 1_000_000]).expect("written");
    let source = format!("file:{}", file.path().display());
    for (name, arguments, words) in [
        ("embed", &[&source[5..]][..], "sum 2000000, "),
        ("custom_policy", &[], "256 reads, "),
        ("custom_source", &[], " times as fast, "),
        #[cfg(feature = "tokio")]
        ("async_source", &[], " times as fast, "),
        ("tasks", &[&source, "4", "400"], "4 at once: "),
        #[cfg(feature = "object")]
        ("ahead", &["1", "2", "2"], " of the time ("),
    ] {
        needs!(let out = example(name, arguments));
        says(&out, &[words]);
    }
}

// ---- the error of a source reaches the program with its type: ReadError ──source()──► SourceError ──source()──► Jammed ----

#[derive(Debug, thiserror::Error)]
#[error("drive {drive} is jammed")]
struct Jammed {
    drive: u32,
    #[source]
    motor: std::io::Error,
}

/// Fails every call by its own type of error.
struct JammedTape {
    streams: bool,
}

fn jammed<T>() -> Result<T, SourceError> {
    let motor = std::io::Error::other("the motor is hot");
    Err(SourceError::Other {
        errno: 16,
        what: "tape: jammed".to_string(),
        cause: Cause::new(Jammed { drive: 3, motor }),
    })
}

impl Source for JammedTape {
    fn size(&self) -> u64 {
        1 << 20
    }

    fn read_at(&self, _: &mut [IoSliceMut<'_>], _: u64) -> Result<usize, SourceError> {
        jammed()
    }

    fn describe(&self) -> String {
        "tape".to_string()
    }

    fn defaults(&self) -> Defaults {
        Defaults::OBJECT
    }

    fn streaming(&self) -> Option<&dyn StreamingSource> {
        self.streams.then_some(self)
    }

    fn writing(&self) -> Option<&dyn WritableSource> {
        Some(self)
    }

    fn holes(&self) -> Option<&dyn Holes> {
        Some(self)
    }
}

impl StreamingSource for JammedTape {
    fn stream(&self, _: u64, _: u64, _: &mut dyn Sink) -> Result<usize, SourceError> {
        jammed()
    }
}

impl Holes for JammedTape {
    fn extent_at(&self, _: u64) -> Result<Extent, SourceError> {
        jammed()
    }
}

impl WritableSource for JammedTape {
    fn allow_writes(&self) -> Result<(), SourceError> {
        Ok(())
    }

    fn write_at(&self, _: &[u8], _: u64) -> Result<(), SourceError> {
        jammed()
    }

    fn flush(&self) -> Result<(), SourceError> {
        jammed()
    }
}

/// The first error of that type in a chain.
fn below<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut link = Some(error);
    while let Some(error) = link {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        link = error.source();
    }
    None
}

fn is_whole(error: &(dyn Error + 'static), what: &str) {
    let of_source = below::<SourceError>(error);
    assert_eq!(of_source.map(SourceError::errno), Some(16), "{what}");
    let own = below::<Jammed>(error);
    assert_eq!(own.map(|jammed| jammed.drive), Some(3), "{what}");
    let motor = below::<std::io::Error>(error).map(ToString::to_string);
    assert_eq!(motor.as_deref(), Some("the motor is hot"), "{what}");
}

/// Of reads by threads and by tasks, of writes, flushes and extents.
#[test]
fn the_error_of_a_source_is_found_by_its_type() {
    for streams in [false, true] {
        for workers in [0, 2] {
            let what = format!("streams {streams}, workers {workers}");
            let options = Options::default().threads(workers);
            let reader = opened(JammedTape { streams }, options);
            let error = reader.read_at(&mut [0; 8], 0).expect_err("jammed");
            is_whole(&error, &what);
            let mut buf = [0; 8];
            let error = pollster::block_on(reader.read_at_async(&mut buf, 4096));
            is_whole(&error.expect_err("jammed"), &format!("a task, {what}"));
        }
    }
    let reader = opened(JammedTape { streams: false }, Options::default());
    is_whole(&reader.write_at(&[1], 0).expect_err("jammed"), "write");
    is_whole(&reader.flush().expect_err("jammed"), "flush");
    is_whole(&reader.extents(0, 9, 1).expect_err("jammed"), "extents");
}

/// A server that answers one request, for the first bytes of an object, and then is gone.
#[cfg(feature = "object")]
#[test]
fn what_a_client_of_objects_said_is_found_below_opens_and_reads() {
    use foreread::source::Object;
    use foreread::source::object::ObjectSettings;
    use std::io::{BufRead, BufReader, Write};

    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let server = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("a client");
        let lines = BufReader::new(client.try_clone().expect("a socket")).lines();
        let lines = lines.map_while(Result::ok);
        let head = lines.take_while(|line| !line.is_empty());
        assert!(head.count() > 0);
        let head = "HTTP/1.1 206 Partial Content\r\nContent-Length: 131072\r\nETag: \"a\"\r\n\
                    Content-Range: bytes 0-131071/1000000\r\nConnection: close\r\n\r\n";
        client.write_all(head.as_bytes()).expect("sent");
        client.write_all(&[7; 131_072]).expect("sent");
    });
    let settings = || ObjectSettings {
        retries: 0,
        ..ObjectSettings::default()
    };
    let url = format!("http://{address}/data?signature=secret");
    let object = Object::open_with(url.as_str(), settings()).expect("opens");
    server.join().expect("it answers");
    let reader = opened(object, Options::default());
    let read = reader.read_at(&mut [0; 8], 500_000).expect_err("gone");
    let open = Object::open_with(url.as_str(), settings()).map(drop);
    let open = open.expect_err("gone");
    for error in [&read as &(dyn Error + 'static), &open] {
        // Refused, where no other test has taken the port meanwhile.
        assert!(below::<std::io::Error>(error).is_some());
        assert!(below::<object_store::client::HttpError>(error).is_some());
        let mut link = Some(error);
        while let Some(error) = link {
            let text = format!("{error} {error:?}");
            assert!(!text.contains("secret"), "{text}");
            link = error.source();
        }
    }
}
