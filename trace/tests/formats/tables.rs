//! Tables: what is written is read again as it was, what is too large or too late is refused.

use super::traces::{Read, read_bytes, refused, write};
use foreread_core::event::Advice;
use foreread_trace::input::MAX_LINE_BYTES;
use foreread_trace::order::MAX_RECORDS_DISORDER;
use foreread_trace::{After, FileInfo, Flags, Header, Item, Lacks, Op, Record};
use std::fmt::Write;

fn file(name: &str, size: Option<u64>) -> Item {
    Item::File(FileInfo::new(name, size))
}

/// Something of everything.
fn full() -> Vec<Item> {
    let with = |change: fn(&mut Record)| {
        let mut record = Record::read(0, 4096, 512);
        change(&mut record);
        Item::Record(record)
    };
    vec![
        file("a, \"quoted\"\nname", Some(1 << 40)),
        with(|r| (r.start_ns, r.end_ns, r.open, r.thread) = (Some(7), Some(9), 3, u32::MAX)),
        file("vm@snap", None),
        with(|r| (r.file, r.op, r.returned, r.start_ns) = (1, Op::Write, Some(0), Some(7))),
        with(|r| {
            (r.flags, r.op, r.start_ns) = (Flags::AHEAD.with(Flags::EXECUTABLE), Op::Fault, Some(8))
        }),
        with(|r| (r.offset, r.len, r.op) = (i64::MAX as u64, 0, Op::Hint(Advice::WillNeed))),
        with(|r| r.len = 1 << 40),
        with(|r| {
            r.after = vec![After::new(0, true, 0), After::new(1, false, u64::MAX)];
        }),
    ]
}

fn again(header: &Header, items: &[Item]) -> (Read, Vec<(&'static str, u64)>) {
    let (bytes, left_out) = write("csv", header, items).expect("written");
    (read_bytes("csv", bytes).clean(), left_out)
}

#[test]
fn csv_round_trips() {
    let (read, left_out) = again(&Header::default(), &full());
    assert_eq!((read.items, left_out), (full(), vec![]));
    assert_eq!(read.header.expect("read").lacks, Lacks::default());
    // What the trace lacks has no column, and is lacking again.
    let header = Header {
        lacks: Lacks::ALL,
        ..Header::default()
    };
    let items = vec![file("a", None), Item::Record(Record::read(0, 1, 2))];
    let (read, _) = again(&header, &items);
    let lacks = read.header.expect("read").lacks;
    assert_eq!((read.items, lacks), (items, Lacks::ALL));
}

#[test]
fn files_of_one_name_become_one_and_are_counted() {
    let record = Item::Record(Record::read(1, 1, 2));
    let items = vec![file("a", None), file("a", None), record];
    let (_, left_out) = again(&Header::default(), &items);
    let one = "files that were merged with another file of the same name";
    assert_eq!(left_out, [(one, 1)]);
}

#[test]
fn an_overlong_line_is_named() {
    let long = vec![b'1'; MAX_LINE_BYTES + 1];
    for format in ["csv", "blkparse:action=Q"] {
        let what = "a line longer than 64 KiB: t, line 1; ";
        refused(format, long.clone(), what);
    }
    let [x, y] = ["x", "y"].map(|letter| letter.repeat(40 << 10));
    let quoted = format!("offset,length,file\n0,1,\"{x}\n{y}\"\n");
    refused("csv", quoted, "a row longer than 64 KiB: t, line 3; ");
}

/// A second is too late by more than the window allows, a whole window is not.
#[test]
fn time_goes_backwards_by_the_window_and_no_more() {
    for refused in [false, true] {
        let ahead = MAX_RECORDS_DISORDER + usize::from(refused);
        let mut text = String::new();
        for i in 0..ahead {
            writeln!(text, "4096,512,{}.5", i + 1).expect("memory");
        }
        text += "0,512,0.25\n";
        let read = read_bytes("csv:columns=offset+len+time_s", text);
        let want = "time goes backwards by more than 65536 records: t, record 65538; sort the trace by time";
        assert_eq!(read.error.as_deref(), refused.then_some(want));
        if !refused {
            assert_eq!(read.records()[0].offset, 0);
            assert_eq!(read.records()[1].start_ns, Some(1_250_000_000));
        }
    }
}
