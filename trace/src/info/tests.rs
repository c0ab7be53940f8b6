//! Tests with a trace whose figures were all counted by hand.

use super::*;
use crate::{After, FileInfo, Items, Lacks, LeftOut};
use foreread_core::event::Advice;

fn import(header: Header, items: Vec<Item>) -> Import {
    let items: Items = Box::new(items.into_iter().map(Ok));
    Import {
        header,
        items,
        left_out: LeftOut::default(),
    }
}

fn file(name: &str) -> Item {
    Item::File(FileInfo::new(name, None))
}

/// Thread 1 reads a file in three pieces of 4K, 1 ms each, and thinks 2 ms; thread 2 reads one of them again meanwhile.
fn by_hand() -> Vec<Item> {
    let ms = 1_000_000;
    let read = |thread, offset, start: u64, end: u64| Record {
        thread,
        open: thread,
        start_ns: Some(start * ms),
        end_ns: Some(end * ms),
        ..Record::read(0, offset, 4096)
    };
    let write = read(1, 0, 20, 21).op(Op::Write);
    let hint = Record {
        op: Op::Hint(Advice::Random),
        len: 0,
        end_ns: None,
        ..read(1, 1 << 30, 21, 21)
    };
    let ahead = read(2, 8192, 22, 30).flags(Flags::AHEAD);
    let late = Record {
        after: vec![After::new(0, true, 0)],
        ..read(2, 0, 25, 26)
    };
    let records = [
        read(1, 0, 0, 1),
        read(1, 4096, 3, 4),
        read(2, 4096, 5, 6),
        read(1, 8192, 6, 7),
    ];
    let records = records.into_iter().chain([write, hint, ahead, late]);
    [file("a")]
        .into_iter()
        .chain(records.map(Item::Record))
        .collect()
}

#[test]
fn figures_match_a_manual_count() {
    let header = Header {
        format: "f".to_string(),
        level: Level::Program,
        ..Header::default()
    };
    let info = of(import(header, by_hand())).expect("whole");
    let counts = (info.files, info.opens, info.threads);
    assert_eq!(counts, (1, Some(2), Some(2)));
    let pages = |records, pages: u64| Count {
        records,
        bytes: pages * 4096,
    };
    assert_eq!(info.by_op["read"], pages(6, 6));
    assert_eq!(info.by_op["write"], pages(1, 1));
    assert_eq!(info.by_op["hint"], pages(1, 0));
    assert_eq!((info.ahead.records, info.dependent), (1, 1));
    let sizes = info.read_bytes.as_ref().expect("reads");
    assert_eq!((sizes.p50, sizes.max, sizes.number), (4096, 4096, 6));
    // 4096 and 8192 of thread 1, and 8192 of thread 2 after its 4096.
    assert_eq!(info.sequential, pages(3, 3));
    assert_eq!(info.sequential_share, Some(0.5));
    let streams = info.streams.bytes.as_ref().expect("streams");
    let longest = info.streams.longest_reads;
    let seen = (streams.number, streams.min, streams.max, longest);
    assert_eq!(seen, (2, 8192, 12288, 3));
    assert_eq!((info.span_ns, info.span_bytes), (Some(30_000_000), 1 << 30));
    let latency = info.read_latency_ns.as_ref().expect("ends");
    assert_eq!((latency.p50, latency.max), (1_000_000, 8_000_000));
    // Thread 1: 2 and 2 ms; thread 2: 16 ms, then a read that overlaps.
    let think = info.think_ns.as_ref().expect("ends");
    let times = (think.number, think.p50, think.max);
    assert_eq!(times, (3, 2_000_000, 16_000_000));
    assert_eq!(info.overlapping, 1);
    assert!(info.lacks.is_empty(), "{:?}", info.lacks);
    let json: serde_json::Value = serde_json::from_str(&info.to_json()).expect("JSON");
    assert_eq!(json["sequential_share"], 0.5);
}

/// A thread waits 50 ms for an inode: the counts and the time span include this read, the figures about reads do not.
#[test]
fn metadata_reads_are_counted_separately() {
    let ms = 1_000_000;
    let own = Record {
        open: 7,
        thread: 1,
        flags: Flags::AHEAD.with(Flags::METADATA),
        start_ns: Some(40 * ms),
        end_ns: Some(90 * ms),
        ..Record::read(1, 1 << 40, 12288)
    };
    let items = by_hand().into_iter();
    let items = items.chain([file("/dev/sda"), Item::Record(own)]);
    let info = of(import(Header::default(), items.collect())).expect("whole");
    let plain = of(import(Header::default(), by_hand())).expect("whole");
    let metadata = Count {
        records: 1,
        bytes: 12288,
    };
    assert_eq!(info.metadata, metadata);
    let (with, without) = (info.by_op["read"].records, plain.by_op["read"].records);
    assert_eq!((with, info.ahead), (without + 1, plain.ahead));
    let spans = (info.span_ns, info.span_bytes, info.opens);
    assert_eq!(spans, (Some(90 * ms), plain.span_bytes, plain.opens));
    let reads = |info: &Info| {
        let max = |summary: &Option<Summary>| summary.as_ref().map(|one| (one.number, one.max));
        let of = [&info.read_bytes, &info.read_latency_ns, &info.think_ns];
        (of.map(max), info.overlapping)
    };
    assert_eq!(reads(&info), reads(&plain));
}

#[test]
fn missing_fields_are_named() {
    let header = Header {
        lacks: Lacks::ALL,
        level: Level::BelowCache,
        ..Header::default()
    };
    let items = vec![file("a"), Item::Record(Record::read(0, 0, 512))];
    let info = of(import(header, items)).expect("whole");
    assert_eq!((info.opens, info.threads, info.span_ns), (None, None, None));
    let text = info.lacks.join("\n");
    for words in [
        "no times: compare replays the trace",
        "no open descriptions",
        "no threads",
        "no operations",
        "taken below a cache: hits are missing, and upper layers' readahead is included",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let half = Header {
        lacks: Lacks {
            ends: true,
            ..Lacks::default()
        },
        ..Header::default()
    };
    let timed = Record::read(0, 0, 512).at(0);
    let info = of(import(half, vec![file("a"), Item::Record(timed)])).expect("whole");
    let first = &info.lacks[0];
    let words = "no end times: think times are unknown, so compare replays";
    assert!(first.starts_with(words), "{first}");
    let empty = of(import(Header::default(), Vec::new())).expect("whole");
    assert_eq!(empty.sequential_share, None);
}

/// Hostile records cost neither memory nor time.
#[test]
fn records_of_any_size_are_counted() {
    let huge = |i: u64| Record {
        open: i as u32,
        thread: i as u32,
        ..Record::read(0, i, (i64::MAX as u64) - i)
    };
    let records = (0..200).map(|i| Item::Record(huge(i)));
    let items = [file("a")].into_iter().chain(records);
    let info = of(import(Header::default(), items.collect())).expect("whole");
    assert_eq!(info.by_op["read"].bytes, u64::MAX);
}
