//! Every importer against small traces of our own: what it makes of them, item by item, and what it refuses.
//!
//! ```text
//!   traces/FORMAT/NAME             the trace; NAME.hex: as hexadecimal digits, "# ..." being comments
//!   traces/FORMAT/NAME.items       first line: the format that is named, or "detected"; then header, items, end
//!   traces/FORMAT/NAME+KEY.items   the same trace with other keys
//! ```
//!
//! `FOREREAD_BLESS=1` writes the items from the first line: look at every line before it is committed.
//!
//! And the example in `docs/trace-format.md`, byte for byte: it is a trace, it means what the page says, and a golden file
//! that every later version of foreread has to read the same.

use super::traces::{Read, fixture, fixtures, hex, input, named, read, read_bytes, trace, write};
use foreread_core::event::Advice;
use foreread_trace::catalog::ALL;
use foreread_trace::check::{MAX_AFTER, MAX_NAME_BYTES};
use foreread_trace::{After, FileInfo, Flags, Header, Item, Lacks, Level, Op, Record, own};
use std::fmt::Write;
use std::path::Path;

fn header(header: &Header) -> String {
    let lacks = match Vec::<String>::from(header.lacks).join(" ") {
        lacks if lacks.is_empty() => "nothing".to_string(),
        lacks => lacks,
    };
    let mut text = format!(
        "header: {}; time {}; offset {}; lacks {lacks}; level {:?}\n",
        header.format, header.time_unit, header.offset_unit, header.level
    );
    for note in &header.notes {
        writeln!(text, "note: {note}").expect("memory");
    }
    text
}

fn record(number: usize, r: &Record) -> String {
    let mut text = format!(
        "{number} {:?} file {} open {} thread {} at {} len {}",
        r.op, r.file, r.open, r.thread, r.offset, r.len
    );
    let flags = (r.flags.0 != 0).then_some(u64::from(r.flags.0));
    for (name, value) in [
        ("returned", r.returned),
        ("start", r.start_ns),
        ("end", r.end_ns),
        ("flags", flags),
    ] {
        if let Some(value) = value {
            write!(text, " {name} {value}").expect("memory");
        }
    }
    for after in &r.after {
        let what = if after.end { "end" } else { "start" };
        let (record, delay) = (after.record, after.delay_ns);
        write!(text, " after {what} of {record} + {delay}").expect("memory");
    }
    text + "\n"
}

fn shown(read: &Read) -> String {
    let mut text = read.header.as_ref().map_or_else(String::new, header);
    let (mut files, mut records) = (0, 0);
    for item in &read.items {
        match item {
            Item::File(file) => {
                let size = file.size.map(|size| format!(" of {size} bytes"));
                let size = size.unwrap_or_default();
                writeln!(text, "file {files}: {:?}{size}", file.name).expect("memory");
                files += 1;
            }
            Item::Record(r) => {
                text += &record(records, r);
                records += 1;
            }
        }
    }
    if let Some(error) = &read.error {
        writeln!(text, "error: {error}").expect("memory");
    }
    for (reason, n) in &read.left_out {
        writeln!(text, "left out: {n} {reason}").expect("memory");
    }
    text
}

#[test]
fn every_trace_gives_its_items() {
    let bless = std::env::var_os("FOREREAD_BLESS").is_some();
    for path in ALL.iter().flat_map(|format| fixtures(format.name, true)) {
        let want = std::fs::read_to_string(&path).expect("text");
        let items = path.file_stem().and_then(|n| n.to_str()).expect("a name");
        let name = items.split('+').next().expect("a name");
        let bytes = trace(&path.with_file_name(name));
        let got = shown(&read(named(&want), input(name, bytes)));
        let first = want.lines().next().expect("the format");
        let got = format!("{first}\n{got}");
        if bless {
            std::fs::write(&path, got).expect("writable");
        } else if got != want {
            panic!("{}\n--- is\n{got}--- should be\n{want}", path.display());
        }
    }
}

fn example() -> (Header, Vec<Item>) {
    let lacks = Lacks {
        opens: true,
        ..Lacks::default()
    };
    let header = Header {
        format: "example".to_string(),
        time_unit: "us".to_string(),
        offset_unit: "512 B sectors".to_string(),
        lacks,
        level: Level::BelowCache,
        notes: vec!["made by hand".to_string()],
        sampled_ns: None,
    };
    let file = |name: &str, size| Item::File(FileInfo::new(name, size));
    let first = Record {
        thread: 7,
        start_ns: Some(1000),
        end_ns: Some(1300),
        ..Record::read(0, 8192, 4096)
    };
    let next = Record {
        offset: 12288,
        start_ns: Some(2000),
        end_ns: Some(2100),
        ..first.clone()
    };
    let short = Record {
        op: Op::Write,
        returned: Some(100),
        flags: Flags::DIRECT,
        ..Record::read(1, 0, 512)
    };
    let hint = Record::read(1, 512, 512)
        .op(Op::Hint(Advice::WillNeed))
        .at(2500);
    let after = vec![After::new(0, true, 5)];
    let waits = Record {
        op: Op::Fault,
        start_ns: Some(2500),
        after,
        ..Record::read(1, 1 << 40, 4096)
    };
    let mut items = vec![
        file("a", Some(1 << 20)),
        Item::Record(first),
        Item::Record(next),
        file("b", None),
    ];
    items.extend([short, hint, waits].map(Item::Record));
    (header, items)
}

/// The digits in the first block of the page that begins with three quotes and this word.
fn block(page: &str, word: &str) -> Vec<u8> {
    let begin = format!("```{word}\n");
    let text = page.split(&begin).nth(1).expect("the block");
    hex(text.split("```").next().expect("its end"))
}

#[test]
fn the_page_is_right_to_the_byte() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/trace-format.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let bytes = block(&page, "hex");
    assert!(bytes == trace(&fixture("foreread/v1.frt")));
    let read = read_bytes("foreread", bytes.clone()).clean();
    let (header, items) = example();
    assert_eq!(read.header.as_ref(), Some(&header));
    assert_eq!(read.items, items);
    // The second block of the page is what the first has packed.
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four")) as usize;
    let at = 16 + word(8);
    let stored = &bytes[at + 20..at + 20 + word(at + 4)];
    let plain = zstd::bulk::decompress(stored, 1 << 20).expect("a frame");
    assert_eq!(block(&page, "plain"), plain);
    // What is written today means the same.
    let (written, _) = write("foreread", &header, &items).expect("writable");
    assert_eq!(read_bytes("foreread", written).clean().items, items);
    for limit in [
        own::MAX_JSON_BYTES,
        own::MAX_BLOCK_BYTES,
        own::MAX_STORED_BYTES,
        own::MAX_BLOCK_ITEMS,
        MAX_NAME_BYTES,
        MAX_AFTER,
    ] {
        assert!(page.contains(&format!("| {limit} |")), "{limit}");
    }
    assert!(page.contains(&format!("version {}", own::VERSION)));
}
