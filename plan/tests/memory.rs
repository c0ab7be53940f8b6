//! Tests that memory is limited, whatever a header contains. This is a binary of its own because it measures the whole process.

use foreread_plan::layout::{Format, Names, parts};
use foreread_plan::runs::MAX_BYTES;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// What a header may take beyond what the process had: the account, and a header that is held as a whole.
const CAP_KIB: u64 = (MAX_BYTES as u64 + (128 << 20)) >> 10;

/// The most memory that this process had so far.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// A file of these parts, written one by one: all together would be memory of this process.
fn file(path: &Path, parts: impl Iterator<Item = Vec<u8>>) -> File {
    let mut to = BufWriter::new(File::create(path).expect("room"));
    for part in parts {
        to.write_all(&part).expect("room");
    }
    to.flush().expect("room");
    File::open(path).expect("written")
}

/// `begin`, what `each` gives `count` times, and `end`.
fn around(
    path: &Path,
    begin: Vec<u8>,
    each: impl Fn(u64) -> Vec<u8>,
    count: u64,
    end: Vec<u8>,
) -> File {
    let each = (0..count).map(each);
    file(path, std::iter::once(begin).chain(each).chain([end]))
}

/// A safetensors file whose header is between these, `count` times the middle.
fn safetensors(
    path: &Path,
    begin: &str,
    each: &dyn Fn(u64) -> String,
    count: u64,
    end: &str,
) -> File {
    let middle: usize = (0..count).map(|n| each(n).len()).sum();
    let len = (begin.len() + middle + end.len()) as u64;
    let begin = [&len.to_le_bytes(), begin.as_bytes()].concat();
    around(path, begin, |n| each(n).into_bytes(), count, end.into())
}

/// A zip file whose directory names one entry `count` times.
fn zip(path: &Path, count: u64, long: usize) -> File {
    let name = |n: u64| format!("{n:0>long$}").into_bytes();
    let name_len = (long as u16).to_le_bytes();
    let entry = [&b"PK\x03\x04"[..], &[0; 22], &name_len, &[0; 2], &name(0)].concat();
    let mut head = [&b"PK\x01\x02"[..], &[0; 42]].concat();
    head[28..30].copy_from_slice(&name_len);
    let (bytes, at) = (count * (46 + long as u64), entry.len() as u64);
    let counts = [count, count, bytes, at].map(u64::to_le_bytes).concat();
    let end_at = (at + bytes).to_le_bytes();
    let end = [
        &b"PK\x06\x06"[..],
        &44_u64.to_le_bytes(),
        &[0; 12],
        &counts,
        b"PK\x06\x07",
        &[0; 4],
        &end_at,
        &[0; 4],
        b"PK\x05\x06",
        &[0; 4],
        &[0xff; 12],
        &[0; 2],
    ];
    let each = |n| [&head[..], &name(n)].concat();
    around(path, entry, each, count, end.concat())
}

/// GGUF with `count` tensors, all of the first byte of the data.
fn gguf(path: &Path, count: u64) -> File {
    let counts = [count, 0].map(u64::to_le_bytes).concat();
    let head = [&b"GGUF"[..], &3_u32.to_le_bytes(), &counts].concat();
    let tensor = |n| {
        let name = format!("{n:070}");
        [&70_u64.to_le_bytes(), name.as_bytes(), &[0; 16]].concat()
    };
    around(path, head, tensor, count, vec![7; 64])
}

/// Parquet with `count` row groups of one column, written by hand (tests/layout.rs).
fn parquet(path: &Path, count: u32) -> File {
    // Metadata: path "a" (3), 0 bytes (7) from byte 4 on (9).
    let group = b"\x19\x1c\x3c\x39\x18\x01a\x46\x00\x26\x08\x00\x00\x00";
    let digit = |n: u32| (count >> (7 * n)) as u8 & 0x7f | if n < 4 { 0x80 } else { 0 };
    let head = [&b"PAR1\x49\xfc"[..], &[0, 1, 2, 3, 4].map(digit)].concat();
    let len = (head.len() - 4 + group.len() * count as usize + 1) as u32;
    let end = [&[0][..], &len.to_le_bytes(), b"PAR1"].concat();
    around(path, head, |_| group.to_vec(), u64::from(count), end)
}

#[test]
fn a_header_takes_no_more_than_the_account() {
    let Some(before) = peak_kib() else {
        println!("skipped: needs /proc/self/status");
        return;
    };
    let folder = tempfile::tempdir().expect("a scratch directory");
    let path = folder.path().join("file");
    let told = |format, file: &File| match parts(format, file, &Names::default()) {
        Ok(parts) => format!("{} parts", parts.len()),
        Err(error) => error.to_string(),
    };
    let tensor = |n: u64| {
        format!(
            "{}\"{n:x}\":{{\"data_offsets\":[0,0]}}",
            if n == 0 { "" } else { "," }
        )
    };
    let shape = safetensors(
        &path,
        "{\"a\":{\"shape\":[0",
        &|_| ",0".to_string(),
        45_000_000,
        "],\"data_offsets\":[0,0]}}",
    );
    assert_eq!(
        told(Format::Safetensors, &shape),
        "1 parts",
        "a shape of 45 million dimensions, in 90 MB"
    );
    let groups = parquet(&path, 6_000_000);
    assert!(
        told(Format::Parquet, &groups).contains("more than 1048576 parts"),
        "six million row groups, in 84 MB"
    );
    assert_eq!(
        told(Format::Parquet, &parquet(&path, 1000)),
        "1 parts",
        "empty chunks"
    );
    let many = safetensors(&path, "{", &tensor, 1_000_000, "}");
    assert_eq!(told(Format::Safetensors, &many), "1 parts", "empty tensors");
    let more = safetensors(&path, "{", &tensor, 1_100_000, "}");
    assert!(told(Format::Safetensors, &more).contains("more than 1048576 parts"));
    let key = |n: u64| format!("{}\"{n:x}\":\"\"", if n == 0 { "" } else { "," });
    let metadata = safetensors(&path, "{\"__metadata__\":{", &key, 7_000_000, "}}");
    assert_eq!(told(Format::Safetensors, &metadata), "1 parts");
    assert_eq!(
        told(Format::Zip, &zip(&path, 1_000_000, 8)),
        "1000001 parts"
    );
    assert!(told(Format::Zip, &zip(&path, 1_100_000, 8)).contains("more than 1048576 entries"));
    // 300 MB of names.
    assert_eq!(
        told(Format::Zip, &zip(&path, 10_000, 30_000)),
        "more than 256 MiB of names, paths and ranges"
    );
    assert_eq!(
        told(Format::Gguf, &gguf(&path, 1_000_000)),
        "2 parts",
        "all but the last are empty"
    );
    let took = peak_kib().expect("as above") - before;
    assert!(took < CAP_KIB, "{took} KiB");
    println!("memory: {took} KiB for headers of up to 300 MB");
}
