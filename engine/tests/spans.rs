//! Tests of the spans of `tracing`, as a subscriber gets them. The parts of the span of a read add up to its bytes and its
//! stall, and it records an error. `open` covers the opening of a source by name, `fetch` a read of the source.
//!
//! Each test runs in its own process, because `tracing` caches for the whole process whether a span is enabled, and
//! other tests have no subscriber.

use crate::common::{SpanFields, Traced, is_alone, plain, this_test};
use foreread::source::Mem;
use foreread::{Options, Reader};
use foreread_testing::{Faulty, needs};
use std::io::IoSliceMut;
use std::sync::Arc;

/// The spans of this thread.
fn all_spans_of(work: impl FnOnce()) -> Vec<SpanFields> {
    let traced = Traced::default();
    tracing::subscriber::with_default(traced.clone(), work);
    std::mem::take(&mut *traced.spans.lock().expect("no panic"))
}

/// Those of what it reads.
fn spans_of(work: impl FnOnce()) -> Vec<SpanFields> {
    let mut spans = all_spans_of(work);
    spans.retain(|of| of["span"] == "read");
    spans
}

/// `bytes`, and those that were present, in flight and absent.
fn parts(of: &SpanFields) -> [u64; 4] {
    ["bytes", "hit_bytes", "late_bytes", "missed_bytes"]
        .map(|name| of[name].parse().expect("a number"))
}

#[test]
fn a_reads_bytes_are_counted_by_page_state() {
    needs!(is_alone(this_test!()));
    let source = Arc::new(Mem::new(vec![7; 100_100]));
    let reader = plain(source);
    let mut buf = [0; 8192];
    let spans = spans_of(|| {
        let mut read = |offset| reader.read_at(&mut buf, offset).expect("read");
        assert_eq!(read(0), 8192);
        assert_eq!(read(4096), 8192, "half of it is cached");
        assert_eq!(read(10), 8192);
        assert_eq!(read(10), 8192, "without the lock");
        assert_eq!(read(100_000), 100, "the end");
        assert_eq!(read(200_000), 0);
        let (mut one, mut two) = ([0; 10], [0; 5000]);
        let bufs = &mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
        assert_eq!(reader.read_vectored_at(bufs, 12_000).expect("read"), 5010);
        for _ in 0..2 {
            let mut task = [0; 4096];
            let read = pollster::block_on(reader.read_at_async(&mut task, 40_960));
            assert_eq!(read.expect("read"), 4096);
        }
    });
    let found: Vec<_> = spans.iter().map(parts).collect();
    let want = [
        [8192, 0, 0, 8192],
        [8192, 4096, 0, 4096],
        [8192, 8192, 0, 0],
        [8192, 8192, 0, 0],
        [100, 0, 0, 100],
        [0; 4],
        [5010, 288, 0, 4722],
        [4096, 0, 0, 4096],
        [4096, 4096, 0, 0],
    ];
    assert_eq!(found, want);
    let stalls = spans.iter().map(|of| of["stall_ns"].parse::<u64>());
    let stalls = stalls.map(|stall| stall.expect("a number")).sum::<u64>();
    assert_eq!(stalls, reader.stats().stall_ns, "as the counter has it");
    let asked = |n: usize| [&spans[n]["offset"][..], &spans[n]["asked_bytes"]];
    assert_eq!(asked(1), ["4096", "8192"]);
    assert_eq!(asked(4), ["100000", "8192"]);
    assert!(spans.iter().all(|of| of["source"] == reader.describe()));
}

/// With readahead a page may be in flight when it is read: it is late, and no hit.
#[test]
fn parts_add_up_with_readahead() {
    needs!(is_alone(this_test!()));
    let source = Arc::new(Mem::new(vec![7; 4_000_000]));
    let reader = Reader::open(source, Options::default()).expect("opened");
    let mut buf = vec![0; 50_000];
    let spans = spans_of(|| {
        for _ in 0..2 {
            let mut at = 0;
            while let read @ 1.. = reader.read_at(&mut buf, at).expect("read") {
                at += read as u64;
            }
            assert_eq!(at, 4_000_000);
        }
    });
    let mut sums = [0; 4];
    for span in &spans {
        let parts = parts(span);
        assert_eq!(parts[0], parts[1..].iter().sum::<u64>(), "{span:?}");
        (0..4).for_each(|n| sums[n] += parts[n]);
    }
    assert_eq!(sums[0], 8_000_000);
    assert!(sums[1] >= 4_000_000, "{sums:?}");
}

#[test]
fn a_failed_read_gives_the_reason() {
    needs!(is_alone(this_test!()));
    let faulty = Faulty::nth(Mem::new(vec![7; 10_000]), 0);
    let reader = Reader::open(Arc::new(faulty), Options::default().policy("none"));
    let reader = reader.expect("opened");
    let spans = spans_of(|| {
        reader.read_at(&mut [0; 10], 0).expect_err("it fails");
    });
    let [span] = &spans[..] else {
        panic!("{spans:?}")
    };
    let has = |field| span.contains_key(field);
    assert!(has("error") && !has("bytes"), "{span:?}");
}

/// Names of sources are shown without their secrets.
#[test]
fn opening_and_fetching_have_spans() {
    needs!(is_alone(this_test!()));
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), [7; 100_000]).expect("written");
    let spans = all_spans_of(|| {
        // Without workers the caller's thread fetches, and without a queue it waits for each fetch.
        let options = Options::default().policy("none").threads(0);
        let options = options.io(foreread::source::Io::Threads);
        let reader = Reader::open(file.path(), options).expect("opened");
        let read = || reader.read_at(&mut [0; 4096], 8192).expect("read");
        assert_eq!([read(), read()], [4096; 2], "the second one needs no fetch");
        let name = "nbd://user:secret@127.0.0.1:1/x";
        assert!(Reader::open(name, Options::default()).is_err());
    });
    let fetches = spans.iter().filter(|of| of["span"] == "fetch");
    let fetches = Vec::from_iter(fetches.map(|of| [&of["offset"][..], &of["bytes"]]));
    assert_eq!(fetches, [["8192", "4096"]], "{spans:?}");
    assert_eq!(spans[0]["span"], "open");
    assert!(spans[0]["source"].contains(&*file.path().to_string_lossy()));
    let text = format!("{spans:?}");
    assert!(!text.contains("secret"), "{text}");
}
