//! Round trips of foreread's format, and the errors of invalid files.

use super::{BLOCK, BlockHead, DONE, *};
use crate::error::TraceError;
use crate::format::Output;
use crate::input::Input;
use crate::test_bytes::SharedBytes;
use crate::{After, FileInfo, Flags, Header, Item, Items, Lacks, LeftOut, Level, Op, Record, open};
use foreread_core::event::Advice;
use foreread_sim::rng::Rng;
use std::path::Path;

fn written(header: &Header, items: Vec<Item>, left_out: &LeftOut) -> Result<Vec<u8>, TraceError> {
    let to = SharedBytes::default();
    let output = Output::new("t.frt", Box::new(to.clone()));
    let items: Items = Box::new(items.into_iter().map(Ok));
    write(header, items, left_out, output)?;
    let bytes = to.bytes();
    Ok(bytes)
}

fn bytes_of(items: Vec<Item>) -> Vec<u8> {
    written(&Header::default(), items, &LeftOut::default()).expect("writable")
}

fn opened(bytes: &[u8]) -> Result<crate::Import, TraceError> {
    let bytes = std::io::Cursor::new(bytes.to_vec());
    let input = Input::of(Path::new("t.frt"), Box::new(bytes))?;
    open::read(input, None)
}

fn items_of(bytes: &[u8]) -> Result<Vec<Item>, TraceError> {
    opened(bytes)?.items.collect()
}

fn refusal(bytes: &[u8]) -> String {
    items_of(bytes).expect_err("refused").to_string()
}

/// Items with every field, with minimum, maximum and other values.
fn all_kinds(count: u64, seed: u64) -> Vec<Item> {
    let mut rng = Rng::new(seed);
    let names = [
        ("/data/a b", Some(1 << 40)),
        ("", None),
        ("ü\u{1b}[31m\n", Some(7)),
    ];
    let file = |(name, size): (&str, _)| FileInfo::new(name, size);
    let mut items: Vec<Item> = names.map(file).map(Item::File).to_vec();
    let ops = [
        Op::Read,
        Op::Write,
        Op::Fault,
        Op::Hint(Advice::WillNeed),
        Op::Hint(Advice::Normal),
    ];
    let (mut now, mut previous) = (0, 0);
    for number in 0..count {
        let mut one_of = |n: u64| rng.below(n) == 0;
        let (is_new, is_odd, has_flags, waits) = (one_of(3), one_of(3), one_of(4), one_of(8));
        let [start, end, returned] = [0; 3].map(|_| one_of(2));
        let offset = if is_new { rng.below(1 << 62) } else { previous };
        let len = if is_odd { rng.below(1 << 33) } else { 4096 };
        previous = offset + len;
        now += rng.bits() >> (24 + rng.below(40));
        let after = |_| After::new(rng.below(number), rng.below(2) == 0, rng.below(1 << 50));
        let after = if waits && number > 0 {
            (0..3).map(after).collect()
        } else {
            Vec::new()
        };
        let start_ns = start.then_some(now);
        items.push(Item::Record(Record {
            op: ops[rng.below(5) as usize],
            file: rng.below(3) as u32,
            open: rng.bits() as u32 >> rng.below(32),
            thread: rng.bits() as u32 >> rng.below(32),
            offset,
            len,
            returned: returned.then_some(len / 2),
            start_ns,
            end_ns: start_ns.filter(|_| end).map(|start| start + 5),
            flags: Flags(if has_flags { rng.bits() as u16 } else { 0 }),
            after,
        }));
    }
    items
}

#[test]
fn whatever_an_importer_yields_round_trips() {
    let lacks = Lacks {
        ends: true,
        ops: true,
        ..Lacks::default()
    };
    let header = Header {
        format: "csv".to_string(),
        time_unit: "100 ns since 1601".to_string(),
        offset_unit: "bytes".to_string(),
        lacks,
        level: Level::BelowCache,
        notes: vec!["one \"note\"\n".to_string()],
        sampled_ns: Some(7),
    };
    let left_out = LeftOut::default();
    left_out.count("trims");
    left_out.earlier("trims".to_string(), 2);
    // Several blocks: more items than one may have.
    let items = all_kinds(MAX_BLOCK_ITEMS as u64 + 5_000, 1);
    let bytes = written(&header, items.clone(), &left_out).expect("writable");
    let import = opened(&bytes).expect("a trace");
    assert_eq!(import.header, header);
    let back: Vec<Item> = import.items.collect::<Result<_, _>>().expect("whole");
    assert!(back == items);
    assert_eq!(import.left_out.in_all().get("trims"), Some(&3));
    let empty = items_of(&bytes_of(Vec::new())).expect("an empty trace is one");
    assert!(empty.is_empty());
}

/// The limits of every number, and the largest items.
#[test]
fn the_edges_come_back() {
    let name = "n".repeat(4096);
    let mut items = vec![Item::File(FileInfo::new(name, Some(i64::MAX as u64)))];
    let far = Record::read(0, i64::MAX as u64 - 1, 1).at(0);
    let late = Record::read(0, 0, i64::MAX as u64).between(u64::MAX, u64::MAX);
    let reader = Record {
        open: u32::MAX,
        thread: u32::MAX,
        returned: Some(0),
        ..Record::read(0, 0, 0)
    };
    let after = After::new(0, true, u64::MAX);
    let waits = Record {
        after: vec![after; 1024],
        flags: Flags(u16::MAX),
        ..Record::read(0, 0, 1)
    };
    items.extend([far, late, reader, waits].map(Item::Record));
    assert!(items_of(&bytes_of(items.clone())).expect("whole") == items);
}

#[test]
fn a_steady_reader_costs_little() {
    let file = Item::File(FileInfo::new("a", None));
    let record = |i: u64| Record::read(0, i * 4096, 4096).at(i * 1000);
    let records = (0..100_000).map(record).map(Item::Record);
    let len = bytes_of([file].into_iter().chain(records).collect()).len();
    assert!(len < 100_000 / 50, "{len} bytes for 100,000 records");
}

/// The position of the first block, and its head.
fn first_block(bytes: &[u8]) -> (usize, BlockHead) {
    let at = 16 + u32::from_le_bytes(bytes[8..12].try_into().expect("four")) as usize;
    let head = bytes[at..at + 20].try_into().expect("twenty");
    (at, BlockHead::of(head))
}

fn head(tag: [u8; 4], stored: usize, plain: usize, items: u32) -> BlockHead {
    let (stored, plain) = (stored as u32, plain as u32);
    BlockHead {
        tag,
        stored,
        plain,
        items,
        crc: 0,
    }
}

/// The header of an empty trace, then these blocks as given, then an end for `records` of 1 file.
fn forged(blocks: &[(BlockHead, Vec<u8>)], records: u64) -> Vec<u8> {
    let empty = bytes_of(Vec::new());
    let mut bytes = empty[..first_block(&empty).0].to_vec();
    let json = format!("{{\"files\":1,\"records\":{records}}}").into_bytes();
    let end = head(DONE, json.len(), json.len(), 0);
    for (head, body) in blocks.iter().chain([&(end, json)]) {
        bytes.extend(head.sealed(body).bytes());
        bytes.extend(body);
    }
    bytes
}

fn block_of(plain: &[u8], items: u32) -> (BlockHead, Vec<u8>) {
    let body = zstd::bulk::compress(plain, 1).expect("memory");
    (head(BLOCK, body.len(), plain.len(), items), body)
}

#[test]
fn invalid_blocks_are_refused_by_record() {
    let sound = block_of(&[0, 1, b'a'], 1);
    let items = items_of(&forged(std::slice::from_ref(&sound), 0));
    assert_eq!(items.expect("the forge is sound").len(), 1);
    // A decompression bomb: a megabyte of zeros that claims to be 100 bytes, or to exceed the limit of a block.
    let (_, bomb) = block_of(&vec![0; 1 << 20], 1);
    let stored = bomb.len();
    let claim = |plain, items| (head(BLOCK, stored, plain, items), bomb.clone());
    let small = |plain, items| (head(BLOCK, sound.1.len(), plain, items), sound.1.clone());
    let large = format!("a block whose header states {stored} bytes, 2147483648 unpacked: ");
    let long = [&[0][..], &[0xff; 9], &[2]].concat();
    let one = |plain: &[u8]| block_of(plain, 1);
    for (block, what) in [
        (claim(100, 1), "a block that cannot be unpacked (Dest"),
        (claim(1 << 31, 1), large.as_str()),
        (
            claim(1 << 20, 1 << 20),
            "a block whose header states 1048576",
        ),
        (small(4, 1), "a block of 4 bytes unpacks to 3: "),
        (small(3, 0), "a block whose header states 0 items: "),
        (
            one(&[0, 1, b'a', 0]),
            "a block with bytes after its last item: ",
        ),
        (one(&[0, 2, b'a']), "an item reaches beyond its block: "),
        (one(&[0, 1, 0xff]), "a file name that is not UTF-8: "),
        (one(&[0x0f]), "an item of an unknown kind: "),
        (one(&[0x81, 2]), "a record of an unknown shape: "),
        (one(&long), "a number of more than 64 bits: "),
        (
            sound.clone(),
            "0 records of 1 files, but the end marker says 7 of 1: ",
        ),
    ] {
        let records = if block == sound { 7 } else { 0 };
        let said = refusal(&forged(&[block], records));
        let place =
            "t.frt, record 1; the file is damaged: copy it again, or import the trace again";
        assert!(said.starts_with(what) && said.ends_with(place), "{said}");
    }
}

/// The checks of every trace, in the bytes of this format.
#[test]
fn a_large_offset_and_a_backward_time_name_their_record() {
    // A file; a read of 1 byte at 2^63 (as a difference: 2^64 - 1 is -2^63); the same at 0.
    let offset = |word: &[u8]| [&[0, 1, b'a', 0x11], word, &[1]].concat();
    let minus_2_63 = [[0xff; 9].as_slice(), &[1]].concat();
    let far = refusal(&forged(&[block_of(&offset(&minus_2_63), 2)], 1));
    let what = "a record that ends beyond 2^63 bytes: t.frt, record 1; ";
    assert!(far.starts_with(what), "{far}");
    let count = |blocks: &[_], records| items_of(&forged(blocks, records)).expect("sound").len();
    assert_eq!(count(&[block_of(&offset(&[0]), 2)], 1), 2);
    // Within a block, times only increase; the next block may start with any time.
    let timed = |start: u8| [0xf1, 1, start];
    let first = block_of(&[&[0, 1, b'a'], &timed(9)[..]].concat(), 2);
    let back = refusal(&forged(&[first.clone(), block_of(&timed(8), 1)], 2));
    let what = "time goes backwards: t.frt, record 2; sort the trace by time";
    assert_eq!(back, what);
    assert_eq!(count(&[first, block_of(&timed(9), 1)], 2), 3);
}

#[test]
fn every_cut_and_every_flipped_bit_is_noticed() {
    let bytes = bytes_of(all_kinds(40, 2));
    let (first, _) = first_block(&bytes);
    for cut in 0..bytes.len() {
        let said = refusal(&bytes[..cut]);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(cut < first || said.contains(", record "), "{cut}: {said}");
    }
    for bit in 0..8 * bytes.len() {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(items_of(&bytes).is_err(), "bit {bit}");
    }
    let behind = refusal(&[&bytes[..], b"x"].concat());
    let what = "bytes after the end of the trace: t.frt, record 41";
    assert!(behind.starts_with(what), "{behind}");
    let mut other = bytes.clone();
    other[7] = 2;
    let what =
        "a foreread trace of version 2; only version 1 can be read: t.frt; import the trace again";
    assert!(refusal(&other).starts_with(what));
    other = bytes;
    other[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(refusal(&other).starts_with("a header larger than 64 KiB: t.frt; "));
}

#[test]
fn limits_apply_when_reading_and_writing() {
    let header = |len: usize| Header {
        notes: vec!["kept".to_string(), "x".repeat(len)],
        ..Header::default()
    };
    let fits = written(&header(60_000), Vec::new(), &LeftOut::default()).expect("writable");
    assert_eq!(opened(&fits).expect("a trace").header.notes.len(), 2);
    let large = written(&header(70_000), Vec::new(), &LeftOut::default()).expect("writable");
    assert_eq!(opened(&large).expect("a trace").header.notes, ["kept"]);
}
