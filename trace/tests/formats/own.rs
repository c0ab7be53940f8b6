//! The example in `docs/trace-format.md`, byte for byte: it is a trace, it means what the page says, and a golden file
//! that every later version of foreread has to read the same.

use super::bytes::SharedBytes;
use foreread_core::event::Advice;
use foreread_trace::format::{Output, Pairs};
use foreread_trace::input::Input;
use foreread_trace::{
    After, FileInfo, Flags, Header, Item, Items, Lacks, Level, Op, Record, open, own,
};
use std::io::Cursor;
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

fn written() -> Vec<u8> {
    let (header, items) = example();
    let to = SharedBytes::default();
    let items: Items = Box::new(items.into_iter().map(Ok));
    let output = Output {
        path: "t".into(),
        to: Box::new(to.clone()),
    };
    own::export(&header, Pairs::default(), items, output).expect("writable");
    to.bytes()
}

/// The digits in the first block of the page that begins with three quotes and this word.
fn block(page: &str, word: &str) -> Vec<u8> {
    let text = page
        .split(&format!("```{word}\n"))
        .nth(1)
        .expect("the block")
        .split("```")
        .next()
        .expect("its end");
    let digits: String = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or(""))
        .collect();
    let digits: Vec<u8> = digits.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| {
        u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hexadecimal")
    };
    digits.chunks(2).map(byte).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .chunks(32)
        .map(|c| {
            c.iter()
                .map(|b| format!("{b:02x}"))
                .collect::<Vec<_>>()
                .join(" ")
                + "\n"
        })
        .collect()
}

#[test]
fn the_page_is_right_to_the_byte() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("../docs/trace-format.md")).expect("the page");
    let bytes = block(&page, "hex");
    assert!(
        bytes == std::fs::read(root.join("tests/traces/foreread/v1.frt")).expect("the golden file")
    );
    let import = open::read(
        vec![Input::of(Path::new("t"), Box::new(Cursor::new(bytes.clone()))).expect("bytes")],
        None,
    );
    let import =
        import.unwrap_or_else(|error| panic!("{error}; it should be\n{}", hex(&written())));
    let (header, items) = example();
    assert_eq!(import.header, header);
    assert_eq!(
        import.items.collect::<Result<Vec<_>, _>>().expect("whole"),
        items
    );
    // The second block of the page is what the first has packed.
    let at = 16 + u32::from_le_bytes(bytes[8..12].try_into().expect("four")) as usize;
    let stored = u32::from_le_bytes(bytes[at + 4..at + 8].try_into().expect("four")) as usize;
    let plain =
        zstd::bulk::decompress(&bytes[at + 20..at + 20 + stored], 1 << 20).expect("a frame");
    assert_eq!(hex(&block(&page, "plain")), hex(&plain));
}

#[test]
fn what_is_written_today_means_the_same() {
    let input = Input::of(Path::new("t"), Box::new(Cursor::new(written()))).expect("bytes");
    let items = open::read(vec![input], Some("foreread"))
        .expect("a trace")
        .items;
    assert_eq!(
        items.collect::<Result<Vec<_>, _>>().expect("whole"),
        example().1
    );
}

#[test]
fn limits_on_the_page_are_those_of_the_code() {
    let page = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/trace-format.md"),
    );
    let page = page.expect("the page");
    let limits = [
        own::MAX_JSON_BYTES,
        own::MAX_BLOCK_BYTES,
        own::MAX_STORED_BYTES,
        own::MAX_BLOCK_ITEMS,
        4096,
        1024,
    ];
    for limit in limits {
        assert!(
            page.contains(&format!("| {limit} |")),
            "{limit} is not on the page"
        );
    }
    assert!(page.contains(&format!("version {}", own::VERSION)));
}
