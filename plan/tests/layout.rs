//! Tests of headers: files made by hand or by the formats' own libraries, and damaged files.

use foreread_plan::layout::{FORMATS, Format, LayoutError, Names, Part, ReadAt, parts};
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
    let names = Names::new(names.iter().map(|n| (*n).to_string()).collect());
    parts(format, &Bytes(bytes.to_vec(), Cell::new(0)), &names)
}

/// Asserts that bytes are refused for a reason with these words.
fn refused(format: Format, bytes: &[u8], words: &str) {
    let error = of(format, bytes, &[]).expect_err("refused").to_string();
    assert!(error.contains(words), "{error}");
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
            let within =
                |range: &Range<u64>| range.start <= range.end && range.end <= bytes.len() as u64;
            assert!(parts.iter().all(|part| within(&part.range)), "{parts:?}");
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

fn safetensors(header: &str) -> Vec<u8> {
    let len = (header.len() as u64).to_le_bytes();
    [&len[..], header.as_bytes(), &[7; 24]].concat()
}

#[test]
fn safetensors_by_offset_and_name() {
    let file = safetensors(
        r#"{"__metadata__":{"format":"pt"},"b.w":{"dtype":"F32","shape":[4],"data_offsets":[8,24]},"a.w":{"dtype":"F16","shape":[2,2],"data_offsets":[0,8]}}"#,
    );
    let start = file.len() as u64 - 24;
    let (header, a, b) = (
        ("header", 0..start),
        ("a.w", start..start + 8),
        ("b.w", start + 8..start + 24),
    );
    let all = of(Format::Safetensors, &file, &[]).expect("parts");
    assert_eq!(told(&all), [header.clone(), a, b.clone()]);
    let one = of(Format::Safetensors, &file, &["b.*"]).expect("parts");
    assert_eq!(told(&one), [header, b]);
    let none = of(Format::Safetensors, &file, &["c", "d.*"]).expect_err("no such name");
    let words = "no part of the file has a name like c,d.*";
    assert_eq!(none.to_string(), words);
    survives_damage(Format::Safetensors, &file, file.len());
    let cut = &file[..file.len() - 1];
    refused(Format::Safetensors, cut, "\"b.w\" is not within the file");
    // Only the header is read.
    let source = Bytes(file, Cell::new(0));
    parts(Format::Safetensors, &source, &Names::default()).expect("parts");
    assert_eq!(source.1.get(), start);
}

/// What a header may not be, beside cuts and flipped bits.
#[test]
fn safetensors_have_no_holes_and_no_overlaps() {
    for (header, words) in [
        (
            r#"{"a":{"data_offsets":[8,16]}}"#,
            "a hole or an overlap before the tensor",
        ),
        (
            r#"{"a":{"data_offsets":[0,16]},"b":{"data_offsets":[8,24]}}"#,
            "\"b\"",
        ),
        (r#"{"a":{"data_offsets":[8,0]}}"#, "a hole or an overlap"),
        (
            r#"{"a":{"data_offsets":[0,18446744073709551615]}}"#,
            "larger than any file",
        ),
        (r#"{"a":{"dtype":"F32"}}"#, "data_offsets"),
        ("[]", "an object with tensors"),
        ("{} x", "trailing characters"),
    ] {
        refused(Format::Safetensors, &safetensors(header), words);
    }
    let huge = [&u64::MAX.to_le_bytes()[..], b"{}"].concat();
    refused(Format::Safetensors, &huge, "longer than the file");
    let spaces = of(Format::Safetensors, &safetensors("{}   "), &[]);
    assert_eq!(spaces.expect("spaces behind it are none").len(), 1);
}

fn gguf(alignment: Option<u32>) -> Vec<u8> {
    let u32s = |n: u32| n.to_le_bytes().to_vec();
    let u64s = |n: u64| n.to_le_bytes().to_vec();
    let string = |text: &str| [u64s(text.len() as u64), text.into()].concat();
    let mut head = vec![b"GGUF".to_vec(), u32s(3), u64s(2)];
    head.push(u64s(3 + u64::from(alignment.is_some())));
    head.extend([string("general.name"), u32s(8), string("tiny")]);
    head.extend([string("tokens"), u32s(9), u32s(8), u64s(2)]);
    head.extend([string("a"), string("b")]);
    head.extend([string("scores"), u32s(9), u32s(6), u64s(3), vec![0; 12]]);
    if let Some(alignment) = alignment {
        head.extend([string("general.alignment"), u32s(4), u32s(alignment)]);
    }
    head.extend([string("out.weight"), u32s(1), u64s(16), u32s(0), u64s(64)]);
    let dimensions = [u32s(2), u64s(4), u64s(4)].concat();
    head.extend([string("in.weight"), dimensions, u32s(0), u64s(0)]);
    let mut file = head.concat();
    let data = file
        .len()
        .next_multiple_of(alignment.unwrap_or(32).max(1) as usize);
    file.resize(data, 0);
    file.extend([1; 128]);
    file
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
    refused(Format::Gguf, &gguf(Some(0)), "alignment of 0");
    let big_endian = [&b"GGUF"[..], &3_u32.to_be_bytes(), &[0; 16]].concat();
    refused(Format::Gguf, &big_endian, "big-endian");
}

#[test]
fn a_pointer_of_git_lfs_is_called_one() {
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
    for (name, format) in FORMATS {
        let error = of(format, pointer, &[]).expect_err(name);
        let LayoutError::Other { what, remedy } = error else {
            panic!("{name}: {error}")
        };
        assert!(what.contains("Git LFS pointer"), "{name}: {what}");
        assert_eq!(remedy, "fetch it: git lfs pull");
    }
}

#[test]
fn an_index_of_the_files_of_a_model_is_called_one() {
    let index = br#" {"metadata": {"total_size": 9}, "weight_map": {"a": "model-00001-of-00002.safetensors"}}"#;
    for format in [Format::Safetensors, Format::Zip, Format::Gguf] {
        let error = of(format, index, &[]).expect_err("an index");
        let LayoutError::Other { what, remedy } = error else {
            panic!("{error}")
        };
        assert!(what.contains("an index of a model's files"), "{what}");
        assert!(remedy.contains("model-*.safetensors"), "{remedy}");
    }
}

fn zip_of(entries: &[(&str, usize)], large: bool) -> Vec<u8> {
    use std::io::Write;
    let mut writer = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
    let stored = zip::write::SimpleFileOptions::default()
        .compression_method(zip::CompressionMethod::Stored)
        .large_file(large);
    for (name, len) in entries {
        writer.start_file(*name, stored).expect("an entry");
        writer.write_all(&vec![5; *len]).expect("written");
    }
    writer.finish().expect("finished").into_inner()
}

#[test]
fn entries_of_a_zip_with_their_headers() {
    let entries = [("a/data.pkl", 10), ("a/data/0", 100), ("a/empty", 0)];
    let file = zip_of(&entries, false);
    let all = of(Format::Zip, &file, &[]).expect("parts");
    let names: Vec<&str> = all.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(names, ["header", "a/data.pkl", "a/data/0", "a/empty"]);
    let ends: Vec<u64> = all.iter().map(|part| part.range.end).collect();
    let starts: Vec<u64> = all.iter().map(|part| part.range.start).collect();
    // Entries follow one another, and the directory the last.
    let follow = [ends[3], 0, ends[1], ends[2]];
    assert_eq!(
        (starts.as_slice(), ends[0]),
        (&follow[..], file.len() as u64)
    );
    let data = of(Format::Zip, &file, &["*/data/*"]).expect("parts");
    assert_eq!(data.len(), 2);
    survives_damage(Format::Zip, &file, 120);
    // A program that unpacks itself is in front of its archive.
    let shifted = of(Format::Zip, &[&[1; 1000], &file[..]].concat(), &[]).expect("parts");
    let moved = told(&all).into_iter();
    let moved = moved.map(|(name, range)| (name, range.start + 1000..range.end + 1000));
    assert_eq!(told(&shifted), Vec::from_iter(moved));
    let commented = [&file[..file.len() - 2], &[3, 0], b"abc"].concat();
    let commented = of(Format::Zip, &commented, &[]).expect("parts");
    assert_eq!(commented[1..], all[1..]);
    refused(Format::Zip, b"no zip", "no end-of-directory record");
}

/// Entries whose size and place do not fit into 32 bits, as the format's library writes them.
#[test]
fn a_zip_of_large_files_has_wide_fields() {
    let mut file = zip_of(&[("a", 100), ("b", 100)], true);
    let plain = of(Format::Zip, &file, &[]).expect("parts");
    // The same with the fields of the directory moved into a zip64 part of `b`, whose extra field is the last of the directory.
    let entry = file.windows(4).rposition(|four| four == b"PK\x01\x02");
    let at = entry.expect("the entry of b");
    let word =
        |file: &[u8], at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("four"));
    let start = u64::from(word(&file, at + 42));
    let extra = u16::from_le_bytes([file[at + 30], file[at + 31]]);
    let head = [1_u16, 24].map(u16::to_le_bytes).concat();
    let wide = [head, [100, 100, start].map(u64::to_le_bytes).concat()].concat();
    file[at + 20..at + 28].fill(0xff);
    file[at + 42..at + 46].fill(0xff);
    file[at + 30..at + 32].copy_from_slice(&(28_u16).to_le_bytes());
    let tail = file.split_off(at + 47);
    file.extend(wide);
    file.extend(&tail[usize::from(extra)..]);
    let end = file.len() - 22;
    let bytes = word(&file, end + 12) + 28 - u32::from(extra);
    file[end + 12..end + 16].copy_from_slice(&bytes.to_le_bytes());
    let parts = of(Format::Zip, &file, &[]).expect("parts");
    assert_eq!(parts[1..], plain[1..]);
}

/// Ends as programs write them into a pipe: with values that are said to be in a zip64 end that is not there, or that has no locator.
#[test]
fn a_zip_from_a_pipe_is_found_without_its_zip64_end() {
    // `printf hello | zip -fz - - | cat`, of Info-ZIP 3.0: the offset of the directory is elsewhere.
    let piped = include_bytes!("files/piped.zip");
    let all = of(Format::Zip, piped, &[]).expect("parts");
    assert_eq!(told(&all), [("header", 82..163), ("-", 0..58)]);

    let file = zip_of(&[("a", 100), ("b", 200)], false);
    let plain = of(Format::Zip, &file, &[]).expect("parts");
    let end = file.len() - 22;
    let values =
        |file: &[u8], at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("four"));
    let (bytes, offset) = (values(&file, end + 12), values(&file, end + 16));
    // Counts, length and offset of the directory, each or all elsewhere.
    for fields in [8..12, 12..16, 16..20, 8..20] {
        let mut cut = file.clone();
        cut[end + fields.start..end + fields.end].fill(0xff);
        assert_eq!(
            of(Format::Zip, &cut, &[]).expect("parts")[1..],
            plain[1..],
            "{fields:?}"
        );
    }
    // The zip64 end without its locator.
    let mut wide = b"PK\x06\x06".to_vec();
    wide.extend(44_u64.to_le_bytes());
    wide.extend([0; 12]);
    wide.extend(
        [2, 2, u64::from(bytes), u64::from(offset)]
            .map(u64::to_le_bytes)
            .concat(),
    );
    let mut cut = [&file[..end], &wide, &file[end..]].concat();
    let end = cut.len() - 22;
    cut[end + 8..end + 20].fill(0xff);
    assert_eq!(of(Format::Zip, &cut, &[]).expect("parts")[1..], plain[1..]);
    // The locator without the zip64 end.
    let locator = [&b"PK\x06\x07"[..], &[0; 16]].concat();
    let end = file.len() - 22;
    let mut cut = [&file[..end], &locator, &file[end..]].concat();
    let end = cut.len() - 22;
    cut[end + 16..end + 20].fill(0xff);
    assert_eq!(of(Format::Zip, &cut, &[]).expect("parts")[1..], plain[1..]);
    // A count of 16 bits of more entries.
    let names: Vec<String> = (0..65_540).map(|n| n.to_string()).collect();
    let entries: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), 0)).collect();
    let mut many = zip_of(&entries, false);
    let wide = many
        .windows(4)
        .rposition(|four| four == b"PK\x06\x06")
        .expect("of so many");
    let end = many.len() - 22;
    many.drain(wide..end);
    let end = many.len() - 22;
    many[end + 8..end + 12].copy_from_slice(&[4, 0, 4, 0]);
    assert_eq!(of(Format::Zip, &many, &[]).expect("parts").len(), 65_541);
}

/// Written by pyarrow 26.
#[test]
fn columns_of_parquet() {
    let file = include_bytes!("files/pyarrow.parquet");
    let all = of(Format::Parquet, file, &[]).expect("parts");
    let names: Vec<&str> = all.iter().map(|part| part.name.as_str()).collect();
    let columns = ["header", "t_start_ns", "offset", "len_req", "file", "extra"];
    assert_eq!(names, columns);
    assert_eq!(
        (all[0].range.end, all[1].range.start),
        (file.len() as u64, 4)
    );
    let follow = |pair: &[Part]| pair[0].range.end <= pair[1].range.start;
    assert!(all[1..].windows(2).all(follow), "{all:?}");
    let one = of(Format::Parquet, file, &["offset"]).expect("parts");
    assert_eq!(one[1..], all[2..3]);
    survives_damage(Format::Parquet, file, 873);
}

/// Files of one column and two row groups, both of 60 bytes from byte 500 on, written by hand: where they say that a dictionary
/// is; in two of them the list of encodings has the Thrift type I16 and not I32.
#[test]
fn columns_of_parquet_as_other_writers_have_them() {
    for (file, first) in [
        (&include_bytes!("files/no-dictionary.parquet")[..], 500),
        (&include_bytes!("files/dictionary-0.parquet")[..], 500),
        (&include_bytes!("files/dictionary-400.parquet")[..], 400),
    ] {
        let parts = of(Format::Parquet, file, &["a"]).expect("parts");
        let chunk = ("a", first..first + 60);
        assert_eq!(told(&parts)[1..], [chunk.clone(), chunk]);
        survives_damage(Format::Parquet, file, 300);
    }
}
