//! The largest piece of a device, by settings of the test's and by this machine's.

use foreread_os::host::devices::Device;
use foreread_pagecache::readahead::{DEFAULT_PIECE_BYTES, piece_bytes, piece_of};
use std::fs;

fn piece(read_ahead: Option<u64>, max_request: Option<u64>) -> u64 {
    piece_of(&Device {
        read_ahead,
        max_request,
        ..Device::default()
    })
}

#[test]
fn the_larger_of_both_settings_counts() {
    assert_eq!(
        piece(Some(128 << 10), Some(1280 << 10)),
        1280 << 10,
        "the larger of the two"
    );
    assert_eq!(piece(Some(16 << 20), None), 16 << 20);
    assert_eq!(piece(None, None), DEFAULT_PIECE_BYTES);
}

#[test]
fn settings_out_of_range_give_a_piece_that_works() {
    assert_eq!(piece(Some(0), None), DEFAULT_PIECE_BYTES);
    assert!(piece(Some(u64::MAX), None) > 1 << 40);
}

#[test]
fn every_file_of_this_machine_has_a_piece() {
    let file = fs::File::open("/proc/self/exe").expect("opened");
    let piece = piece_bytes(&file);
    assert!(
        piece >= 4096 && piece.is_multiple_of(foreread_pagecache::page_bytes()),
        "{piece}"
    );
}
