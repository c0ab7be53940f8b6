//! The example in `docs/trace-format.md`, byte for byte: it is a trace, it means what the page says, and a golden file
//! that every later version of foreread has to read the same.

use super::traces::{fixture, hex, read_bytes, trace, write};
use foreread_core::event::Advice;
use foreread_trace::check::{MAX_AFTER, MAX_NAME_BYTES};
use foreread_trace::{After, FileInfo, Flags, Header, Item, Lacks, Level, Op, Record, own};
use std::path::Path;

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
    };
    let file = |name: &str, size| {
        Item::File(FileInfo {
            name: name.to_string(),
            size,
        })
    };
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
    let hint = Record {
        op: Op::Hint(Advice::WillNeed),
        start_ns: Some(2500),
        ..Record::read(1, 512, 512)
    };
    let after = vec![After {
        record: 0,
        end: true,
        delay_ns: 5,
    }];
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
    let text = page
        .split(&format!("```{word}\n"))
        .nth(1)
        .expect("the block");
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
    assert_eq!(
        (read.header, read.items),
        (Some(header.clone()), items.clone())
    );
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
