//! fio's log: golden files, what is refused, and that what is written is read again as it was.

use super::traces::{fixture, golden, read_bytes, read_files, refusal, write};
use foreread_core::event::Advice;
use foreread_trace::{After, FileInfo, Flags, Header, Item, Lacks, Op, Record};

#[test]
fn golden_logs() {
    for (name, format) in [("v3", "fio"), ("v2", "fio"), ("v2-waits", "fio")] {
        golden(
            &format!("fio/{name}.txt"),
            &read_files(format, &[fixture(&format!("fio/{name}.log"))]),
        );
    }
    let relative = read_files("fio:wait=relative-us", &[fixture("fio/v2-waits.log")]);
    golden("fio/v2-waits-relative.txt", &relative);
}

#[test]
fn what_is_wrong_is_named_by_its_line() {
    let v3 = |rest: &str| refusal("fio", format!("fio version 3 iolog\n1 a add\n{rest}"));
    let v2 = |rest: &str| refusal("fio", format!("fio version 2 iolog\na add\n{rest}"));
    let starts = |error: String, what: &str| assert!(error.starts_with(what), "{error}");
    starts(
        refusal("fio", "fio version 4 iolog\n"),
        "no first line 'fio version 3 iolog': t, line 1; ",
    );
    starts(
        refusal("fio", ""),
        "no first line 'fio version 3 iolog': t, line 1; ",
    );
    let number = "an offset or a length that is no number: t, line 3; fio cannot have spaces";
    starts(
        v3("2 my file read 0 4096\n"),
        "a line with too many or too few fields: t, line 3; fio cannot have spaces",
    );
    starts(v3("2 my file open\n"), number);
    starts(v2("my file open\n"), number);
    starts(v3("2 a read 4096"), number);
    starts(v3("2 a read -1 4096"), number);
    starts(v3("2 a"), "a line with too many or too few fields");
    starts(
        v3("a read 0 4096"),
        "no time in microseconds at the start of the line: t, line 3; ",
    );
    starts(
        v3("2 b read 0 4096"),
        "a file that was not added before: t, line 3; ",
    );
    starts(
        v3("2 b open"),
        "a file that was not added before: t, line 3; ",
    );
    starts(
        v3("2 a erase 0 4096"),
        "an action that fio does not have: t, line 3; ",
    );
    starts(
        v3("2 a read 0 4294967296"),
        "a length of over 32 bits: t, line 3; ",
    );
    starts(
        v3("2 a wait 5 0"),
        "a wait in a log that has times: t, line 3; ",
    );
    starts(
        v3("2 a read 9223372036854775808 1"),
        "a record that ends beyond 2^63 bytes: t, record 1; ",
    );
    starts(
        v3("2 a read 0 1\n1 a read 1 1"),
        "time goes backwards: t, record 2; ",
    );
    starts(
        v3(&format!("2 {} add", "x".repeat(256))),
        "a file name of over 255 bytes: t, line 3; ",
    );
    assert_eq!(
        read_bytes(
            "fio",
            format!("fio version 3 iolog\n2 {} add", "x".repeat(255))
        )
        .clean()
        .files()
        .len(),
        1
    );
    // As fio 3.33 writes it with numjobs=2, or with one write_iolog for two jobs.
    let several = "a second log in the file: fio wrote those of several jobs to it: t, line 4; give each job its own write_iolog";
    starts(
        v3("2 a read 0 4096\nfio version 3 iolog\n1 a add\n"),
        several,
    );
    starts(v2("a read 0 4096\nfio version 2 iolog\na add\n"), several);
    starts(
        v3(&"x".repeat(10 << 20)),
        "a line of over 64 KiB: t, line 3; ",
    );
    starts(
        v2("a wait 18446744073709551615 0"),
        "a wait of over 500 years: t, line 3; ",
    );
    // A wait that was unknown when the header was made.
    let late = "a read 0 4096\n".repeat(6000) + "a wait 5 0\n";
    starts(v2(&late), "the first wait comes late: t, line 6003; ");
    assert_eq!(
        read_bytes(
            "fio:wait=absolute-ms",
            format!("fio version 2 iolog\na add\n{late}")
        )
        .error,
        None
    );
    starts(
        refusal("fio:wait=ms", "fio version 2 iolog\n"),
        "'wait=ms' is not known: t; one of wait=absolute-ms, ",
    );
    starts(
        refusal("fio:speed=2", "fio version 2 iolog\n"),
        "unknown key 'speed' of the format fio: t; ",
    );
}

fn trace() -> (Header, Vec<Item>) {
    let file = |name: &str| {
        Item::File(FileInfo {
            name: name.to_string(),
            size: None,
        })
    };
    let read = |file, offset, len, us: u64| Record {
        start_ns: Some(us * 1000),
        ..Record::read(file, offset, len)
    };
    let write = Record {
        op: Op::Write,
        ..read(1, 0, 512, 2_500_000)
    };
    let records = [
        read(0, 0, 4096, 0),
        read(0, 4096, 4096, 1_000_000),
        read(1, 1 << 40, u64::from(u32::MAX), 2_000_000),
    ];
    let mut items = vec![file("a"), file("8,16")];
    items.extend(records.into_iter().map(Item::Record));
    items.extend([
        Item::Record(write),
        file("c"),
        Item::Record(read(2, 9, 9, 3_000_000)),
    ]);
    let lacks = Lacks {
        ends: true,
        threads: true,
        ..Lacks::default()
    };
    (
        Header {
            lacks,
            ..Header::default()
        },
        items,
    )
}

/// All but the times: those of a log that would begin at 0 are 1 us later.
#[test]
fn what_is_written_is_read_again() {
    let (header, items) = trace();
    let (bytes, left_out) = write("fio", &header, &items).expect("written");
    assert_eq!(left_out, []);
    let text = String::from_utf8(bytes.clone()).expect("text");
    assert!(
        text.starts_with(
            "fio version 3 iolog\n1 a add\n1 a open\n1 8,16 add\n1 8,16 open\n1 a read 0 4096\n"
        ),
        "{text}"
    );
    assert!(
        text.ends_with(
            "3000001 c read 9 9\n3000001 a close\n3000001 8,16 close\n3000001 c close\n"
        ),
        "{text}"
    );
    let again = read_bytes("fio", bytes).clean();
    let later = |us: u64, open: bool| {
        let change = |item: &Item| match item {
            Item::Record(r) => Item::Record(Record {
                start_ns: r.start_ns.map(|ns| ns + us * 1000),
                // Added is open number 0, opened is the next.
                open: if open { 2 * r.file + 1 } else { r.open },
                ..r.clone()
            }),
            other => other.clone(),
        };
        items.iter().map(change).collect::<Vec<_>>()
    };
    assert_eq!(again.items, later(1, true));
    // From 1 us on nothing moves.
    let (bytes, _) = write("fio", &header, &later(7, false)).expect("written");
    assert_eq!(read_bytes("fio", bytes).clean().items, later(7, true));
}

#[test]
fn version_2_keeps_milliseconds_or_no_times() {
    let (header, items) = trace();
    let (bytes, left_out) = write("fio:version=2", &header, &items).expect("written");
    assert_eq!(left_out, []);
    let starts = |bytes: Vec<u8>| {
        let read = read_bytes("fio", bytes).clean();
        read.records()
            .iter()
            .map(|r| r.start_ns.map(|ns| ns / 1_000_000))
            .collect::<Vec<_>>()
    };
    assert_eq!(starts(bytes), [0, 1000, 2000, 2500, 3000].map(Some));
    // A trace without times is a version 2 by itself, and without waits.
    let untimed = Header {
        lacks: Lacks {
            starts: true,
            ..header.lacks
        },
        ..header.clone()
    };
    let items: Vec<Item> = items
        .into_iter()
        .map(|item| match item {
            Item::Record(r) => Item::Record(Record {
                start_ns: None,
                ..r
            }),
            other => other,
        })
        .collect();
    let (bytes, _) = write("fio", &untimed, &items).expect("written");
    assert!(bytes.starts_with(b"fio version 2 iolog\n") && !bytes.windows(4).any(|w| w == b"wait"));
    assert_eq!(starts(bytes), [None; 5]);
    let error = write("fio:version=3", &untimed, &items).expect_err("refused");
    assert!(
        error.starts_with("a record without a time: out, record 1; "),
        "{error}"
    );
}

#[test]
fn what_fio_cannot_say_is_refused_or_counted() {
    let (header, mut items) = trace();
    for name in ["", "a b", "a\tb", "a\u{a0}b", &"x".repeat(256)] {
        let file = Item::File(FileInfo {
            name: name.to_string(),
            size: None,
        });
        let error = write("fio", &header, &[file]).expect_err("refused");
        assert!(
            error.starts_with("a file name that fio cannot read")
                && error.contains(": out, record 1; "),
            "{error}"
        );
    }
    let large = Item::Record(Record {
        start_ns: Some(0),
        ..Record::read(0, 0, 1 << 32)
    });
    let error = write("fio", &header, &[items[0].clone(), large]).expect_err("refused");
    assert!(
        error.starts_with("a request of 4 GiB or more: out, record 1; "),
        "{error}"
    );
    let last = Record {
        start_ns: Some(4_000_000_000),
        ..Record::read(0, 0, 10)
    };
    items.push(items[0].clone());
    let after = vec![After {
        record: 0,
        end: true,
        delay_ns: 0,
    }];
    for record in [
        Record {
            op: Op::Hint(Advice::Random),
            ..last.clone()
        },
        Record {
            op: Op::Fault,
            ..last.clone()
        },
        Record {
            len: 0,
            ..last.clone()
        },
        Record {
            returned: Some(9),
            end_ns: Some(4_000_000_001),
            flags: Flags::DIRECT,
            after,
            file: 3,
            ..last.clone()
        },
        Record {
            start_ns: Some(4_000_000_001),
            returned: Some(10),
            ..last
        },
    ] {
        items.push(Item::Record(record));
    }
    let (bytes, mut left_out) = write("fio", &header, &items).expect("written");
    left_out.sort_unstable();
    let expected = [
        "dependencies",
        "empty requests",
        "files with the name of another one",
        "flags",
        "hints",
        "lengths that came",
        "page faults",
        "parts of a microsecond",
        "times of completion",
    ];
    assert_eq!(left_out, expected.map(|what| (what, 1)));
    assert_eq!(read_bytes("fio", bytes).clean().records().len(), 7);
}
