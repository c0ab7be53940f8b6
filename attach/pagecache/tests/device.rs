//! The piece of a device, by a sysfs of the test's and by this machine's.

use foreread_pagecache::device::{DEFAULT_PIECE_BYTES, Device, piece_bytes};
use std::fs;
use std::path::Path;

fn write(sys: &Path, file: &str, text: &str) {
    let path = sys.join(file);
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(path, text).expect("written");
}

#[test]
fn a_partition_has_the_queue_of_its_disk() {
    let sys = tempfile::tempdir().expect("a folder");
    write(sys.path(), "devices/sda/queue/read_ahead_kb", "128\n");
    write(sys.path(), "devices/sda/queue/max_sectors_kb", "1280\n");
    write(sys.path(), "devices/sda/queue/rotational", "1\n");
    write(sys.path(), "devices/sda/sda1/partition", "1\n");
    fs::create_dir_all(sys.path().join("dev/block")).expect("made");
    std::os::unix::fs::symlink("../../devices/sda/sda1", sys.path().join("dev/block/8:1"))
        .expect("linked");
    let device = Device::by_number(sys.path(), (8, 1));
    assert_eq!(
        (device.read_ahead, device.max_request, device.rotates),
        (Some(128 << 10), Some(1280 << 10), Some(true))
    );
    assert_eq!(device.piece_bytes(), 1280 << 10, "the larger of the two");
}

#[test]
fn without_a_block_device_the_bdi_is_asked() {
    let sys = tempfile::tempdir().expect("a folder");
    write(sys.path(), "class/bdi/0:52/read_ahead_kb", "16384\n");
    let device = Device::by_number(sys.path(), (0, 52));
    assert_eq!(
        (device.queue.clone(), device.piece_bytes()),
        (None, 16 << 20)
    );
    assert_eq!(
        Device::by_number(sys.path(), (0, 53)).piece_bytes(),
        DEFAULT_PIECE_BYTES
    );
}

#[test]
fn settings_out_of_range_give_a_piece_that_works() {
    let sys = tempfile::tempdir().expect("a folder");
    write(sys.path(), "class/bdi/0:1/read_ahead_kb", "0\n");
    write(
        sys.path(),
        "class/bdi/0:2/read_ahead_kb",
        "18446744073709551615\n",
    );
    write(sys.path(), "class/bdi/0:3/read_ahead_kb", "many\n");
    assert_eq!(
        Device::by_number(sys.path(), (0, 1)).piece_bytes(),
        DEFAULT_PIECE_BYTES
    );
    assert!(Device::by_number(sys.path(), (0, 2)).piece_bytes() > 1 << 40);
    assert_eq!(
        Device::by_number(sys.path(), (0, 3)).piece_bytes(),
        DEFAULT_PIECE_BYTES
    );
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
