//! Headers: files made here by hand or by the formats' own libraries, and damaged ones.

use foreread_plan::layout::{self, FORMATS, Format, LayoutError, Names, Part, ReadAt, parts};
use std::cell::Cell;
use std::io;
use std::ops::Range;

/// Bytes in memory, and how many of them were read.
struct Bytes(Vec<u8>, Cell<u64>);

impl ReadAt for Bytes {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let bytes = self
            .0
            .get(offset as usize..)
            .and_then(|rest| rest.get(..buf.len()));
        buf.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        self.1.set(self.1.get() + buf.len() as u64);
        Ok(())
    }
}

fn of(format: Format, bytes: &[u8], names: &[&str]) -> Result<Vec<Part>, LayoutError> {
    parts(
        format,
        &Bytes(bytes.to_vec(), Cell::new(0)),
        &Names::new(names.iter().map(|n| (*n).to_string()).collect()),
    )
}

fn told(parts: &[Part]) -> Vec<(&str, Range<u64>)> {
    parts
        .iter()
        .map(|part| (part.name.as_str(), part.range.clone()))
        .collect()
}

/// Every cut and every flipped byte gives parts within the file, or an error.
fn survives_damage(format: Format, whole: &[u8], head: usize) {
    let check = |bytes: &[u8]| {
        if let Ok(parts) = of(format, bytes, &[]) {
            assert!(
                parts
                    .iter()
                    .all(|p| p.range.start <= p.range.end && p.range.end <= bytes.len() as u64),
                "{parts:?}"
            );
        }
    };
    for len in 0..whole.len().min(head + 4) {
        check(&whole[..len]);
        check(&whole[whole.len() - len..]);
    }
    let places = (0..head.min(whole.len())).chain(whole.len().saturating_sub(head)..whole.len());
    for at in places {
        for bits in [1, 0x80, 0xff] {
            let mut bytes = whole.to_vec();
            bytes[at] ^= bits;
            check(&bytes);
        }
    }
}

fn safetensors() -> Vec<u8> {
    let header = r#"{"__metadata__":{"format":"pt"},"b.w":{"dtype":"F32","shape":[4],"data_offsets":[8,24]},"a.w":{"dtype":"F16","shape":[2,2],"data_offsets":[0,8]}}"#;
    [
        &(header.len() as u64).to_le_bytes()[..],
        header.as_bytes(),
        &[7; 24],
    ]
    .concat()
}

#[test]
fn safetensors_by_offset_and_name() {
    let file = safetensors();
    let start = file.len() as u64 - 24;
    let all = of(Format::Safetensors, &file, &[]).expect("parts");
    assert_eq!(
        told(&all),
        [
            ("header", 0..start),
            ("a.w", start..start + 8),
            ("b.w", start + 8..start + 24)
        ]
    );
    let one = of(Format::Safetensors, &file, &["b.*"]).expect("parts");
    assert_eq!(
        told(&one),
        [("header", 0..start), ("b.w", start + 8..start + 24)]
    );
    let none = of(Format::Safetensors, &file, &["c", "d.*"]).expect_err("no such name");
    assert_eq!(
        none.to_string(),
        "no part of the file has a name like c,d.*"
    );
    survives_damage(Format::Safetensors, &file, file.len());
    let huge = [&u64::MAX.to_le_bytes()[..], b"{}"].concat();
    assert!(
        of(Format::Safetensors, &huge, &[])
            .expect_err("refused")
            .to_string()
            .contains("longer than the file")
    );
    let cut = of(Format::Safetensors, &file[..file.len() - 1], &[]).expect_err("a tensor is cut");
    assert!(
        cut.to_string().contains("\"b.w\" is not within the file"),
        "{cut}"
    );
}

#[test]
fn only_headers_are_read() {
    let mut file = safetensors();
    let header = of(Format::Safetensors, &file, &[]).expect("parts")[0]
        .range
        .end;
    let source = Bytes(std::mem::take(&mut file), Cell::new(0));
    parts(Format::Safetensors, &source, &Names::default()).expect("parts");
    assert_eq!(source.1.get(), header);
}

fn gguf(alignment: Option<u32>) -> Vec<u8> {
    let string = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let u32s = |n: u32| n.to_le_bytes().to_vec();
    let u64s = |n: u64| n.to_le_bytes().to_vec();
    let mut head = [
        b"GGUF".to_vec(),
        u32s(3),
        u64s(2),
        u64s(3 + u64::from(alignment.is_some())),
    ]
    .concat();
    head.extend([string("general.name"), u32s(8), string("tiny")].concat());
    head.extend(
        [
            string("tokens"),
            u32s(9),
            u32s(8),
            u64s(2),
            string("a"),
            string("b"),
        ]
        .concat(),
    );
    head.extend([string("scores"), u32s(9), u32s(6), u64s(3), vec![0; 12]].concat());
    if let Some(alignment) = alignment {
        head.extend([string("general.alignment"), u32s(4), u32s(alignment)].concat());
    }
    head.extend([string("out.weight"), u32s(1), u64s(16), u32s(0), u64s(64)].concat());
    head.extend(
        [
            string("in.weight"),
            u32s(2),
            u64s(4),
            u64s(4),
            u32s(0),
            u64s(0),
        ]
        .concat(),
    );
    head.resize(
        head.len()
            .next_multiple_of(alignment.unwrap_or(32).max(1) as usize),
        0,
    );
    head.extend([1; 128]);
    head
}

#[test]
fn gguf_tensors_end_where_the_next_begins() {
    for alignment in [None, Some(64), Some(256)] {
        let file = gguf(alignment);
        let data = file.len() as u64 - 128;
        let all = of(Format::Gguf, &file, &[]).expect("parts");
        let expected = [
            ("header", 0..data),
            ("in.weight", data..data + 64),
            ("out.weight", data + 64..data + 128),
        ];
        assert_eq!(told(&all), expected, "{alignment:?}");
        survives_damage(Format::Gguf, &file, data as usize);
    }
    assert!(
        of(Format::Gguf, &gguf(Some(0)), &[])
            .is_err_and(|error| error.to_string().contains("alignment of 0"))
    );
    let big_endian = [&b"GGUF"[..], &3_u32.to_be_bytes(), &[0; 16]].concat();
    let error = of(Format::Gguf, &big_endian, &[]).expect_err("refused");
    let converts = |remedy: &str| remedy.contains("gguf_convert_endian.py");
    assert!(
        matches!(&error, LayoutError::Other { what, remedy } if what.contains("big-endian") && converts(remedy))
    );
}

#[test]
fn a_pointer_of_git_lfs_is_called_one() {
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
    for (name, format) in FORMATS
        .into_iter()
        .filter(|(_, format)| *format != Format::Zarr)
    {
        let error = of(format, pointer, &[]).expect_err(name);
        let is_pointer = |what: &str, remedy: &str| {
            what.contains("pointer of Git LFS") && remedy == "fetch it: git lfs pull"
        };
        assert!(
            matches!(&error, LayoutError::Other { what, remedy } if is_pointer(what, remedy)),
            "{name}: {error}"
        );
    }
}

/// What a header may not be, beside cuts and flipped bits.
#[test]
fn safetensors_have_no_holes_and_no_overlaps() {
    let file = |header: &str| {
        [
            &(header.len() as u64).to_le_bytes()[..],
            header.as_bytes(),
            &[7; 24],
        ]
        .concat()
    };
    let said = |header: &str| {
        of(Format::Safetensors, &file(header), &[])
            .expect_err(header)
            .to_string()
    };
    assert!(
        said(r#"{"a":{"data_offsets":[8,16]}}"#).contains("a hole or an overlap before the tensor")
    );
    assert!(said(r#"{"a":{"data_offsets":[0,16]},"b":{"data_offsets":[8,24]}}"#).contains("\"b\""));
    assert!(said(r#"{"a":{"data_offsets":[8,0]}}"#).contains("a hole or an overlap"));
    assert!(
        said(r#"{"a":{"data_offsets":[0,18446744073709551615]}}"#).contains("beyond all files")
    );
    assert!(said(r#"{"a":{"dtype":"F32"}}"#).contains("data_offsets"));
    assert!(said("[]").contains("an object of tensors"));
    assert!(said("{} x").contains("trailing characters"));
    assert_eq!(
        of(Format::Safetensors, &file("{}   "), &[])
            .expect("a header with spaces behind it")
            .len(),
        1
    );
}

#[test]
fn entries_of_a_zip_with_their_headers() {
    use std::io::Write;
    let mut writer = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
    let stored =
        zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, len) in [
        ("archive/data.pkl", 10),
        ("archive/data/0", 100),
        ("archive/empty", 0),
    ] {
        writer.start_file(name, stored).expect("an entry");
        writer.write_all(&vec![5; len]).expect("written");
    }
    let file = writer.finish().expect("finished").into_inner();
    let all = of(Format::Zip, &file, &[]).expect("parts");
    let names: Vec<&str> = all.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "header",
            "archive/data.pkl",
            "archive/data/0",
            "archive/empty"
        ]
    );
    assert_eq!(all[0].range.end, file.len() as u64);
    assert_eq!(all[1].range.start, 0);
    for pair in all[1..].windows(2) {
        assert_eq!(
            pair[0].range.end, pair[1].range.start,
            "entries follow one another: {all:?}"
        );
    }
    assert_eq!(
        all[3].range.end, all[0].range.start,
        "the directory follows the last"
    );
    let data = of(Format::Zip, &file, &["*/data/*"]).expect("parts");
    assert_eq!(data.len(), 2);
    survives_damage(Format::Zip, &file, 120);
    // A program that unpacks itself is in front of its archive.
    let shifted = of(Format::Zip, &[&[1; 1000], &file[..]].concat(), &[]).expect("parts");
    let moved: Vec<_> = all
        .iter()
        .map(|part| {
            (
                part.name.as_str(),
                part.range.start + 1000..part.range.end + 1000,
            )
        })
        .collect();
    assert_eq!(told(&shifted), moved);
    let commented = [&file[..file.len() - 2], &[3, 0], b"abc"].concat();
    assert_eq!(
        of(Format::Zip, &commented, &[]).expect("parts")[1..],
        all[1..]
    );
    assert!(
        of(Format::Zip, b"no zip", &[])
            .is_err_and(|error| error.to_string().contains("no end of a directory"))
    );
}

/// Entries whose size and place do not fit into 32 bits, as the format's library writes them.
#[test]
fn a_zip_of_large_files_has_wide_fields() {
    use std::io::Write;
    let mut writer = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
    let stored =
        zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for name in ["a", "b"] {
        writer
            .start_file(name, stored.large_file(true))
            .expect("an entry");
        writer.write_all(&[5; 100]).expect("written");
    }
    let mut file = writer.finish().expect("finished").into_inner();
    let plain = of(Format::Zip, &file, &[]).expect("parts");
    // The same with the fields of the directory moved into a zip64 part of `b`, whose extra field is the last of the directory.
    let at = file
        .windows(4)
        .rposition(|four| four == b"PK\x01\x02")
        .expect("the entry of b");
    let start = u32::from_le_bytes(file[at + 42..at + 46].try_into().expect("four"));
    let extra = u16::from_le_bytes([file[at + 30], file[at + 31]]);
    let wide: Vec<u8> = [
        &1_u16.to_le_bytes()[..],
        &24_u16.to_le_bytes(),
        &[100_u64, 100, u64::from(start)]
            .map(u64::to_le_bytes)
            .concat(),
    ]
    .concat();
    file[at + 20..at + 28].fill(0xff);
    file[at + 42..at + 46].fill(0xff);
    file[at + 30..at + 32].copy_from_slice(&(28_u16).to_le_bytes());
    let tail = file.split_off(at + 47);
    file.extend(wide);
    file.extend(&tail[usize::from(extra)..]);
    let end = file.len() - 22;
    let bytes = u32::from_le_bytes(file[end + 12..end + 16].try_into().expect("four")) + 28
        - u32::from(extra);
    file[end + 12..end + 16].copy_from_slice(&bytes.to_le_bytes());
    let parts = of(Format::Zip, &file, &[]).expect("parts");
    assert_eq!(parts[1..], plain[1..]);
}

#[test]
fn columns_of_parquet_by_row_group() {
    use parquet::data_type::Int64Type;
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use std::sync::Arc;
    let schema = parquet::schema::parser::parse_message_type(
        "message t { required int64 a; required int64 b; }",
    );
    let mut file = Vec::new();
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer =
        SerializedFileWriter::new(&mut file, Arc::new(schema.expect("a schema")), properties)
            .expect("a writer");
    for group in 0..2 {
        let mut rows = writer.next_row_group().expect("a group");
        while let Some(mut column) = rows.next_column().expect("a column") {
            let values: Vec<i64> = (0..100).map(|i| i * (group + 1)).collect();
            column
                .typed::<Int64Type>()
                .write_batch(&values, None, None)
                .expect("written");
            column.close().expect("closed");
        }
        rows.close().expect("closed");
    }
    writer.close().expect("closed");
    let all = of(Format::Parquet, &file, &[]).expect("parts");
    let names: Vec<&str> = all.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(names, ["header", "a", "b", "a", "b"]);
    assert_eq!(all[0].range.end, file.len() as u64);
    assert!(
        all[1..]
            .windows(2)
            .all(|pair| pair[0].range.end <= pair[1].range.start),
        "{all:?}"
    );
    assert_eq!(of(Format::Parquet, &file, &["b"]).expect("parts").len(), 3);
    survives_damage(Format::Parquet, &file, 300);
}

/// A file of one column with one chunk from byte 500 on, written by hand: where it says that a dictionary is, and the Thrift type
/// of its list of encodings (4: I16, 5: I32).
fn parquet_by_hand(dictionary: Option<i64>, encodings: u8) -> Vec<u8> {
    const I32: u8 = 5;
    const I64: u8 = 6;
    const BINARY: u8 = 8;
    const LIST: u8 = 9;
    const STRUCT: u8 = 12;
    fn number(value: i64) -> Vec<u8> {
        let (mut left, mut bytes) = (((value << 1) ^ (value >> 63)) as u64, Vec::new());
        while left > 127 {
            bytes.push(left as u8 | 128);
            left >>= 7;
        }
        bytes.push(left as u8);
        bytes
    }
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let list = |kind: u8, items: &[Vec<u8>]| {
        [vec![(items.len() as u8) << 4 | kind], items.concat()].concat()
    };
    let record = |fields: &[(u8, u8, Vec<u8>)]| {
        let (mut bytes, mut last) = (Vec::new(), 0);
        for (id, kind, value) in fields {
            bytes.push((id - last) << 4 | kind);
            bytes.extend(value);
            last = *id;
        }
        bytes.push(0);
        bytes
    };
    let mut column = vec![
        (1, I32, number(1)),
        (2, LIST, list(encodings, &[number(0), number(3)])),
        (3, LIST, list(BINARY, &[text("a")])),
        (4, I32, number(0)),
        (5, I64, number(10)),
        (6, I64, number(60)),
        (7, I64, number(60)),
        (9, I64, number(500)),
    ];
    column.extend(dictionary.map(|at| (11, I64, number(at))));
    let chunk = record(&[(2, I64, number(500)), (3, STRUCT, record(&column))]);
    let group = record(&[
        (1, LIST, list(STRUCT, &[chunk])),
        (2, I64, number(60)),
        (3, I64, number(10)),
    ]);
    let root = record(&[(4, BINARY, text("s")), (5, I32, number(1))]);
    let leaf = record(&[
        (1, I32, number(1)),
        (3, I32, number(0)),
        (4, BINARY, text("a")),
    ]);
    let schema = list(STRUCT, &[root, leaf]);
    let groups = list(STRUCT, &[group]);
    let footer = record(&[
        (1, I32, number(1)),
        (2, LIST, schema),
        (3, I64, number(10)),
        (4, LIST, groups),
    ]);
    [
        &b"PAR1"[..],
        &[0; 996],
        &footer,
        &(footer.len() as u32).to_le_bytes(),
        b"PAR1",
    ]
    .concat()
}

#[test]
fn columns_of_parquet_as_other_writers_have_them() {
    for encodings in [5, 4] {
        for (dictionary, first) in [(None, 500), (Some(0), 500), (Some(400), 400)] {
            let file = parquet_by_hand(dictionary, encodings);
            let parts = of(Format::Parquet, &file, &["a"]).expect("parts");
            assert_eq!(
                parts[1].range,
                first..first + 60,
                "{dictionary:?}, {encodings}"
            );
            survives_damage(Format::Parquet, &file, 300);
        }
    }
}

#[test]
fn chunks_of_zarr_in_the_order_of_the_array() {
    let store = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = store.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, text).expect("written");
    };
    write("zarr.json", r#"{"node_type":"group"}"#);
    write("v3/zarr.json", r#"{"node_type":"array"}"#);
    for chunk in ["c/0/10", "c/0/2", "c/1/0"] {
        write(&format!("v3/{chunk}"), "123");
    }
    write("v2/.zarray", "{}");
    for chunk in ["1.0", "0.10", "0.9"] {
        write(&format!("v2/{chunk}"), "12345");
    }
    write("readme.txt", "no part of an array");
    let told = |names: &[&str]| -> Vec<String> {
        let names = Names::new(names.iter().map(|name| (*name).to_string()).collect());
        let files = layout::zarr(store.path(), &names).expect("files");
        files
            .iter()
            .map(|file| {
                file.path
                    .strip_prefix(store.path())
                    .expect("below")
                    .display()
                    .to_string()
            })
            .collect()
    };
    let metadata = ["v2/.zarray", "v3/zarr.json", "zarr.json"];
    let chunks = [
        "v2/0.9",
        "v2/0.10",
        "v2/1.0",
        "v3/c/0/2",
        "v3/c/0/10",
        "v3/c/1/0",
    ];
    assert_eq!(told(&[]), [&metadata[..], &chunks].concat());
    assert_eq!(told(&["v3"]), [&metadata[..], &chunks[3..]].concat());
    assert!(layout::zarr(store.path(), &Names::new(vec!["v4".into()])).is_err());
    write("v2/.zarray", "{");
    let refused = || {
        layout::zarr(store.path(), &Names::default())
            .expect_err("damaged")
            .to_string()
    };
    assert!(refused().contains(".zarray: EOF"), "{}", refused());
    // Of another user's store: neither is waited for, nor read without end.
    let metadata = store.path().join("v2/.zarray");
    let fifo = rustix::fs::FileType::Fifo;
    std::fs::remove_file(&metadata).expect("removed");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &metadata,
        fifo,
        rustix::fs::Mode::from(0o600),
        0,
    )
    .expect("made");
    assert!(refused().contains(".zarray: it is a FIFO"), "{}", refused());
    std::fs::remove_file(&metadata).expect("removed");
    std::os::unix::fs::symlink("/dev/zero", &metadata).expect("made");
    assert!(
        refused().contains(".zarray: it is a device"),
        "{}",
        refused()
    );
    std::fs::remove_file(&metadata).expect("removed");
    std::fs::File::create(&metadata)
        .and_then(|file| file.set_len((16 << 20) + 1))
        .expect("a sparse file");
    assert!(
        refused().contains(".zarray: it has more than 16777216 bytes"),
        "{}",
        refused()
    );
    let empty = tempfile::tempdir().expect("a folder");
    assert!(layout::zarr(empty.path(), &Names::default()).is_err());
}
