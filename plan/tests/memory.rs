//! Memory has a cap, whatever a header holds. Alone in its binary: it looks at the process as a whole.

use foreread_plan::account::MAX_BYTES;
use foreread_plan::layout::{Format, Names, parts};
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

fn file(path: &Path, write: impl FnOnce(&mut dyn Write)) -> File {
    let mut to = BufWriter::new(File::create(path).expect("room"));
    write(&mut to);
    to.flush().expect("room");
    File::open(path).expect("written")
}

/// A safetensors file whose header is between these, `count` times the middle.
fn safetensors(
    path: &Path,
    begin: &str,
    each: &dyn Fn(usize) -> String,
    count: usize,
    end: &str,
) -> File {
    let middle: usize = (0..count).map(|n| each(n).len()).sum();
    file(path, |to| {
        let len = (begin.len() + middle + end.len()) as u64;
        to.write_all(&len.to_le_bytes()).expect("room");
        to.write_all(begin.as_bytes()).expect("room");
        (0..count).for_each(|n| to.write_all(each(n).as_bytes()).expect("room"));
        to.write_all(end.as_bytes()).expect("room");
    })
}

/// A zip file whose directory names one entry `count` times.
fn zip(path: &Path, count: u64, long: usize) -> File {
    let name = |n: u64| format!("{n:0>long$}");
    let name_len = (long as u16).to_le_bytes();
    file(path, |to| {
        let entry = [
            b"PK\x03\x04".as_slice(),
            &[0; 22],
            &name_len,
            &[0; 2],
            name(0).as_bytes(),
        ]
        .concat();
        to.write_all(&entry).expect("room");
        let mut head = [b"PK\x01\x02".as_slice(), &[0; 42]].concat();
        head[28..30].copy_from_slice(&name_len);
        for n in 0..count {
            to.write_all(&head)
                .and_then(|()| to.write_all(name(n).as_bytes()))
                .expect("room");
        }
        let (bytes, at) = (count * (46 + long as u64), entry.len() as u64);
        let end = [count, count, bytes, at].map(u64::to_le_bytes).concat();
        to.write_all(
            &[
                b"PK\x06\x06".as_slice(),
                &44_u64.to_le_bytes(),
                &[0; 12],
                &end,
            ]
            .concat(),
        )
        .expect("room");
        to.write_all(
            &[
                b"PK\x06\x07".as_slice(),
                &[0; 4],
                &(at + bytes).to_le_bytes(),
                &[0; 4],
            ]
            .concat(),
        )
        .expect("room");
        to.write_all(&[b"PK\x05\x06".as_slice(), &[0; 4], &[0xff; 12], &[0; 2]].concat())
            .expect("room");
    })
}

/// GGUF with `count` tensors, all of the first byte of the data.
fn gguf(path: &Path, count: u64) -> File {
    file(path, |to| {
        to.write_all(
            &[
                b"GGUF".as_slice(),
                &3_u32.to_le_bytes(),
                &count.to_le_bytes(),
                &0_u64.to_le_bytes(),
            ]
            .concat(),
        )
        .expect("room");
        for n in 0..count {
            let name = format!("{n:070}");
            let tensor = [&70_u64.to_le_bytes(), name.as_bytes(), &[0; 16]].concat();
            to.write_all(&tensor).expect("room");
        }
        to.write_all(&[7; 64]).expect("room");
    })
}

/// Parquet with `count` row groups of one column, written by hand (tests/layout.rs).
fn parquet(path: &Path, count: u32) -> File {
    // Metadata: path "a" (3), 0 bytes (7) from byte 4 on (9).
    let group = b"\x19\x1c\x3c\x39\x18\x01a\x46\x00\x26\x08\x00\x00\x00";
    let count_bytes: Vec<u8> = (0..5)
        .map(|n| (count >> (7 * n)) as u8 & 0x7f | if n < 4 { 0x80 } else { 0 })
        .collect();
    file(path, |to| {
        let head = [b"\x49\xfc".as_slice(), &count_bytes].concat();
        to.write_all(b"PAR1")
            .and_then(|()| to.write_all(&head))
            .expect("room");
        (0..count).for_each(|_| to.write_all(group).expect("room"));
        let len = (head.len() + group.len() * count as usize + 1) as u32;
        to.write_all(b"\x00")
            .and_then(|()| to.write_all(&len.to_le_bytes()))
            .expect("room");
        to.write_all(b"PAR1").expect("room");
    })
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
    let tensor = |n: usize| {
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
    let key = |n: usize| format!("{}\"{n:x}\":\"\"", if n == 0 { "" } else { "," });
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
