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
    for format in [Format::Safetensors, Format::Gguf] {
        let error = of(format, index, &[]).expect_err("an index");
        let LayoutError::Other { what, remedy } = error else {
            panic!("{error}")
        };
        assert!(what.contains("an index of a model's files"), "{what}");
        assert!(remedy.contains("model-*.safetensors"), "{remedy}");
    }
}
