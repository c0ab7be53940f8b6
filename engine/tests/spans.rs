//! Tests of the spans of `tracing`: `open` covers the opening of a source by name, `fetch` covers a read of the source.
//!
//! Example: a reader without worker threads reads 4 KiB. The span `fetch` is entered on the caller's thread, with `offset` and
//! `bytes`. Names of sources are shown without their secrets.

use crate::common::alone;
use foreread::{Options, Reader};
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps the name and the fields of each span of this crate.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<String>>>);

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).expect("a string");
    }
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("foreread") && metadata.name() != "read"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut text = span.metadata().name().to_string();
        span.record(&mut Fields(&mut text));
        let mut all = self.0.lock().expect("no panic");
        all.push(text);
        Id::from_u64(all.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// In a process without other tests: whether a span is enabled is cached for the process, and tests beside it have no subscriber.
#[test]
fn opening_and_fetching_have_spans() {
    alone(
        module_path!(),
        "opening_and_fetching_have_spans",
        spans_of_a_read,
    );
}

fn spans_of_a_read() {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    std::io::Write::write_all(&mut file, &[7; 100_000]).expect("written");
    let spans = Spans::default();
    tracing::subscriber::with_default(spans.clone(), || {
        // Without workers the caller's thread fetches, and without a queue it waits for each fetch.
        let options = Options::default()
            .policy("none")
            .threads(0)
            .io(foreread::source::Io::Threads);
        let reader = Reader::open(file.path(), options).expect("opened");
        assert_eq!(reader.read_at(&mut [0; 4096], 8192).expect("read"), 4096);
        assert_eq!(
            reader
                .read_at(&mut [0; 4096], 8192)
                .expect("a hit: no fetch"),
            4096
        );
        assert!(Reader::open("nbd://user:secret@127.0.0.1:1/x", Options::default()).is_err());
    });
    let spans = spans.0.lock().expect("no panic").clone();
    assert_eq!(
        spans
            .iter()
            .filter(|span| span.starts_with("fetch"))
            .count(),
        1,
        "{spans:?}"
    );
    assert!(
        spans.contains(&"fetch offset=8192 bytes=4096".to_string()),
        "{spans:?}"
    );
    assert!(
        spans[0].starts_with("open source=") && spans[0].contains(&*file.path().to_string_lossy()),
        "{spans:?}"
    );
    assert!(
        spans.iter().all(|span| !span.contains("secret")),
        "{spans:?}"
    );
}
