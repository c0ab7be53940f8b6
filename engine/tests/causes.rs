//! Tests that the error of a source reaches the reading program with its type, in whichever way the read waits.
//!
//! ```text
//!   ReadError ──source()──► SourceError ──source()──► Jammed, the source's own type
//! ```

use crate::common::opened;
use foreread::source::{
    Cause, Defaults, Extent, Holes, Sink, Source, SourceError, StreamingSource, WritableSource,
};
use foreread::{Options, Reader};
use std::error::Error;
use std::io::IoSliceMut;
use std::sync::Arc;

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
}

#[test]
fn writes_flushes_and_extents_keep_it_too() {
    let reader = Reader::open(Arc::new(JammedTape { streams: false }), Options::default());
    let reader = reader.expect("opens");
    is_whole(&reader.write_at(&[1], 0).expect_err("jammed"), "write");
    is_whole(&reader.flush().expect_err("jammed"), "flush");
    is_whole(&reader.extents(0, 9, 1).expect_err("jammed"), "extents");
}

/// An error of `std::io` that a source passes on by `?`.
#[test]
fn a_programs_error_in_an_io_error_is_the_cause() {
    let error = SourceError::from(std::io::Error::other(Jammed {
        drive: 3,
        motor: std::io::Error::other("the motor is hot"),
    }));
    let own = below::<Jammed>(&error);
    assert_eq!(own.map(|jammed| jammed.drive), Some(3));
}

#[test]
fn a_file_that_does_not_open_keeps_the_systems_error() {
    let error = foreread::source::open("/nowhere/at/all").expect_err("there is none");
    let io = below::<std::io::Error>(&error).expect("kept");
    assert_eq!(io.kind(), std::io::ErrorKind::NotFound);
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
        assert!(
            lines
                .map_while(Result::ok)
                .take_while(|line| !line.is_empty())
                .count()
                > 0
        );
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
