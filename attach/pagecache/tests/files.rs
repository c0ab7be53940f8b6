//! Files of a temporary folder: into the cache, out of it, and what the kernel says of them.

use foreread_os::host::devices::Device;
use foreread_pagecache::readahead::{DEFAULT_PIECE_BYTES, piece_bytes, piece_of};
use foreread_pagecache::{page_bytes, readahead, resident, whole_pages};
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use tempfile::NamedTempFile;

const MIB: u64 = 1 << 20;

/// A file of `len` bytes with no page in the cache; nothing where its file system keeps all pages (tmpfs), and in an emulator: the kernel
/// below has pages of another size, and mincore(2) writes a byte for each of them.
fn cold(len: u64) -> Option<(NamedTempFile, File)> {
    if std::env::var_os("FOREREAD_EMULATED").is_some() {
        eprintln!("skipped: needs a kernel of this machine (FOREREAD_EMULATED is set)");
        return None;
    }
    let folder = std::env::var_os("CARGO_TARGET_TMPDIR")
        .unwrap_or_else(|| env!("CARGO_TARGET_TMPDIR").into());
    let mut file = NamedTempFile::new_in(folder).expect("a file");
    let bytes: Vec<u8> = (0..len).map(|i| i as u8 ^ (i >> 12) as u8).collect();
    file.write_all(&bytes).expect("written");
    file.as_file().sync_all().expect("synced");
    let reader = File::open(file.path()).expect("opened");
    forget(&reader);
    if resident::cached_pages(&reader, &(0..len)).is_ok_and(|pages| pages > 0) {
        eprintln!("skipped: the pages of this file system cannot be dropped");
        return None;
    }
    Some((file, reader))
}

/// Like [`cold`], for a test that needs cachestat(2).
fn cold_and_counted(len: u64) -> Option<(NamedTempFile, File)> {
    let (file, reader) = cold(len)?;
    let has = resident::cached_pages(&reader, &(0..1)).is_ok();
    if !has {
        eprintln!("skipped: no cachestat(2) here");
    }
    has.then_some((file, reader))
}

/// Drops what is cached of a file.
fn forget(file: &File) {
    fadvise(file, 0, None, Advice::DontNeed).expect("dropped");
}

/// Reads bytes of a file, which are in the cache then.
fn bring(file: &File, at: u64, bytes: u64) {
    let mut buffer = vec![0; bytes as usize];
    file.read_exact_at(&mut buffer, at).expect("read");
}

fn cached(file: &File, range: Range<u64>) -> Option<u64> {
    resident::cached(file, &range).expect("asked")
}

fn absent(file: &File, range: Range<u64>) -> Vec<Range<u64>> {
    resident::absent(file, range).expect("asked")
}

#[test]
fn a_range_longer_than_a_piece_is_read_whole() {
    let Some((_kept, file)) = cold_and_counted(24 * MIB) else {
        return;
    };
    let piece = readahead::piece_bytes(&file);
    let calls = readahead::start(&file, MIB..23 * MIB, piece).expect("readahead");
    assert_eq!(calls, (22 * MIB).div_ceil(piece));
    assert_eq!(cached(&file, MIB..23 * MIB), Some(22 * MIB));
    readahead::wait(&file, &(MIB..23 * MIB)).expect("it arrives");
    forget(&file);
    assert_eq!(cached(&file, 0..24 * MIB), Some(0));
}

#[test]
fn one_call_for_more_than_a_piece_caches_a_part() {
    let Some((_kept, file)) = cold_and_counted(64 * MIB) else {
        return;
    };
    let piece = readahead::piece_bytes(&file);
    if piece >= 64 * MIB {
        return;
    }
    // The reason for pieces: remove this test when the kernel reads what it is asked for.
    readahead::start(&file, 0..64 * MIB, u64::MAX).expect("readahead");
    let there = cached(&file, 0..64 * MIB);
    assert_eq!(there, Some(piece), "the piece that the device takes");
}

#[test]
fn what_is_absent_is_found() {
    let Some((_kept, file)) = cold_and_counted(8 * MIB) else {
        return;
    };
    assert_eq!(
        absent(&file, 0..8 * MIB),
        Vec::from_iter(std::iter::once(0..8 * MIB))
    );
    // readahead(2) reads exactly what it is asked for, a fault may read around it.
    readahead::start(&file, 2 * MIB..3 * MIB, MIB).expect("readahead");
    readahead::start(&file, 5 * MIB..5 * MIB + page_bytes(), MIB).expect("readahead");
    // 128 KiB of which one page is there are asked for whole.
    let found = absent(&file, 0..8 * MIB);
    assert_eq!(found, [0..2 * MIB, 3 * MIB..8 * MIB]);
    assert_eq!(absent(&file, 2 * MIB..3 * MIB), []);
    bring(&file, 0, 8 * MIB);
    assert_eq!(absent(&file, 100..8 * MIB - 100), []);
}

#[test]
fn a_part_of_a_page_is_cached_when_the_page_is() {
    let Some((_kept, file)) = cold_and_counted(MIB) else {
        return;
    };
    let page = page_bytes();
    assert_eq!(whole_pages(&(page - 1..page + 1)), 0..2 * page);
    assert_eq!(cached(&file, page - 1..2 * page - 1), Some(0));
    bring(&file, 0, MIB);
    assert_eq!(cached(&file, page - 1..2 * page - 1), Some(page));
    let none = resident::cached_pages(&file, &(0..0)).expect("asked");
    assert_eq!(none, 0, "an empty range is not the whole file");
}

#[test]
fn pages_are_told_apart() {
    let Some((_kept, file)) = cold(4 * MIB) else {
        return;
    };
    let pages = || resident::pages(&file, &(0..4 * MIB)).expect("mincore");
    assert!(!pages().contains(&true));
    bring(&file, 3 * MIB, MIB);
    let pages = pages();
    assert_eq!(pages.len() as u64, 4 * MIB / page_bytes());
    assert!(!pages[0] && pages[pages.len() / 4 * 3..].iter().all(|there| *there));
}

#[test]
fn what_has_no_pages_is_an_error() {
    let Some((_kept, file)) = cold(MIB) else {
        return;
    };
    let (pipe, _other) = rustix::pipe::pipe().expect("a pipe");
    let of_pipe = readahead::start(&pipe, 0..MIB, MIB);
    assert!(of_pipe.is_err(), "a pipe has no pages");
    let far = readahead::start(&file, u64::MAX - 5..u64::MAX, MIB);
    assert!(far.is_err(), "an offset larger than any file");
}

// The largest piece of a device, by settings of the test's and by this machine's.

#[test]
fn the_larger_of_both_settings_is_the_piece() {
    let piece = |read_ahead, max_request| {
        piece_of(&Device {
            read_ahead,
            max_request,
            ..Device::default()
        })
    };
    assert_eq!(piece(Some(128 << 10), Some(1280 << 10)), 1280 << 10);
    assert_eq!(piece(Some(16 << 20), None), 16 << 20);
    assert_eq!(piece(None, None), DEFAULT_PIECE_BYTES);
    assert_eq!(piece(Some(0), None), DEFAULT_PIECE_BYTES);
    assert!(piece(Some(u64::MAX), None) > 1 << 40);
}

#[test]
fn every_file_of_this_machine_has_a_piece() {
    let file = File::open("/proc/self/exe").expect("opened");
    let piece = piece_bytes(&file);
    assert!(
        piece >= 4096 && piece.is_multiple_of(page_bytes()),
        "{piece}"
    );
}
