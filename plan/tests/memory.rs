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

/// GGUF with `count` tensors of this name, all of the first byte of the data.
fn gguf(path: &Path, count: u64, name: &[u8]) -> File {
    let counts = [count, 0].map(u64::to_le_bytes).concat();
    let head = [&b"GGUF"[..], &3_u32.to_le_bytes(), &counts].concat();
    let len = (name.len() as u64).to_le_bytes();
    let tensor = |_| [&len, name, &[0; 16]].concat();
    around(path, head, tensor, count, vec![7; 64])
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
    let many = safetensors(&path, "{", &tensor, 1_000_000, "}");
    assert_eq!(told(Format::Safetensors, &many), "1 parts", "empty tensors");
    let more = safetensors(&path, "{", &tensor, 1_100_000, "}");
    assert!(told(Format::Safetensors, &more).contains("more than 1048576 parts"));
    let key = |n: u64| format!("{}\"{n:x}\":\"\"", if n == 0 { "" } else { "," });
    let metadata = safetensors(&path, "{\"__metadata__\":{", &key, 7_000_000, "}}");
    assert_eq!(told(Format::Safetensors, &metadata), "1 parts");
    assert_eq!(
        told(Format::Gguf, &gguf(&path, 1_000_000, &[b'a'; 70])),
        "2 parts",
        "all but the last are empty"
    );
    // Each byte that is no UTF-8 becomes a character of three bytes.
    assert_eq!(
        told(Format::Gguf, &gguf(&path, 1450, &[0xff; 1 << 16])),
        "more than 256 MiB of names, paths and ranges"
    );
    let took = peak_kib().expect("as above") - before;
    assert!(took < CAP_KIB, "{took} KiB");
    println!("memory: {took} KiB for headers of up to 100 MB");
}
