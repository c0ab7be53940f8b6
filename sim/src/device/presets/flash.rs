//! Flash: drives and sticks.
//!
//! Never: a figure without an origin.

use super::{HOST_NOW, HOST_QUEUE, KIB, MB_PER_S, Model, NCQ, NO_HOST, Preset};
use crate::device::disk::{DiskModel, Slope};
use crate::device::ssd::{SsdModel, Tail};
use foreread_core::storage::MAX_FETCH_BYTES;

/// The same measurements were published a second time under half the window sizes, from the second row on. These
/// figures hold for the labels of the first publication, which the published script and four other devices support.
pub(super) const X25_M: Preset = Preset {
    name: "x25-m",
    summary: "SATA SSD of 2010: Intel X25-M 80 GB",
    origin: "Wu Fengguang 2010, the posting of hdd-theory: dd at 11 readahead sizes, 2 runs; 3 slopes fitted here",
    calibrated: true,
    fit_error: "throughput at most 1.3 % off the mean of the two runs (rms 0.8 %), 2.1 % off a single one",
    capacity_bytes: 80_000_000_000,
    host_ns_per_kib: 400,
    host_origin: "assumption: 0.3 to 0.5 us/KiB on a CPU of 2010; the measurements cannot tell",
    connections: NCQ,
    max_fetch_bytes: MAX_FETCH_BYTES,
    throttle: None,
    model: Model::Disk(DiskModel {
        command_ns: 9_390,
        max_transfer_bytes: None,
        slopes: &[
            Slope::new(0, 6_018_000),
            Slope::new(64 * KIB, 4_267_000),
            Slope::new(256 * KIB, 3_838_000),
        ],
    }),
};

/// The posting of the small drives, which labels the rows anew: see [`X25_M`].
pub(super) const SANDISK_5000: Preset = Preset {
    name: "sandisk-5000",
    summary: "SATA SSD of 2010: SanDisk SATA 5000, 30 GB",
    origin: "Wu Fengguang 2010, 'readahead: limit readahead size for small devices': dd at 9 readahead sizes, 3 runs; \
             sizes as its script sets them (4, 16, 32 KiB, ...), not as its table prints them (4, 8, 16, ...)",
    calibrated: true,
    fit_error: "throughput at most 2.9 % off the mean of three runs (rms 1.4 %)",
    capacity_bytes: 30_000_000_000,
    host_ns_per_kib: 400,
    host_origin: X25_M.host_origin,
    connections: NCQ,
    max_fetch_bytes: MAX_FETCH_BYTES,
    throttle: None,
    model: Model::Disk(DiskModel {
        command_ns: 85_900,
        max_transfer_bytes: None,
        slopes: &[Slope::new(0, 13_720_000)],
    }),
};

/// What USB mass storage moves with one command: 240 sectors.
const USB_TRANSFER_BYTES: u64 = 120 * KIB;

/// In all three sticks 64 KiB and 128 KiB are equally fast, though each other doubling gains: 128 KiB are two transfers.
pub(super) const USB_TECLAST: Preset = Preset {
    name: "usb-teclast",
    summary: "USB stick of 2010: Teclast CoolFlash, 32 GB",
    fit_error: "throughput at most 4.1 % off the mean of three runs (rms 1.6 %)",
    capacity_bytes: 32_000_000_000,
    connections: HOST_QUEUE,
    max_fetch_bytes: MAX_FETCH_BYTES,
    throttle: None,
    model: Model::Disk(DiskModel {
        command_ns: 410_000,
        max_transfer_bytes: Some(USB_TRANSFER_BYTES),
        slopes: &[Slope::new(0, 29_260_000)],
    }),
    ..SANDISK_5000
};

/// One slope is 7.4 % off for windows of 16 KiB, a knee there mends it.
pub(super) const USB_CRUZER: Preset = Preset {
    name: "usb-cruzer",
    summary: "USB stick of 2010: SanDisk Cruzer, 4 GB",
    fit_error: "throughput at most 2.1 % off the mean of three runs (rms 1.1 %)",
    capacity_bytes: 4_000_000_000,
    model: Model::Disk(DiskModel {
        command_ns: 446_000,
        max_transfer_bytes: Some(USB_TRANSFER_BYTES),
        slopes: &[Slope::new(0, 48_250_000), Slope::new(16 * KIB, 39_220_000)],
    }),
    ..USB_TECLAST
};

pub(super) const USB_2G: Preset = Preset {
    name: "usb-2g",
    summary: "USB stick of 2010: 0204:6025, 2 GB",
    fit_error: "throughput at most 4.0 % off the mean of three runs (rms 1.5 %)",
    capacity_bytes: 2_000_000_000,
    model: Model::Disk(DiskModel {
        command_ns: 310_000,
        max_transfer_bytes: Some(USB_TRANSFER_BYTES),
        slopes: &[Slope::new(0, 71_520_000)],
    }),
    ..USB_TECLAST
};

/// Nothing but capacity and rate is published: a command has no fixed cost.
pub(super) const TINY_USB: Preset = Preset {
    name: "tiny-usb",
    summary: "a very small, very slow USB device of 2010: 505 kB, 15 kB/s",
    origin: "Wu Fengguang 2010, 'readahead: limit readahead size for small devices': Linus Torvalds's device",
    calibrated: true,
    fit_error: "exact: the two published figures; no overhead is known",
    capacity_bytes: 505_000,
    host_ns_per_kib: 0,
    host_origin: NO_HOST,
    connections: HOST_QUEUE,
    max_fetch_bytes: MAX_FETCH_BYTES,
    throttle: None,
    model: Model::Disk(DiskModel {
        command_ns: 0,
        max_transfer_bytes: Some(USB_TRANSFER_BYTES),
        slopes: &[Slope::new(0, 68_266_666_667)],
    }),
};

/// 4 KiB take about 100 us alone. Times of the dies and the tail are those of TLC flash; odds of a collision are an
/// assumption for a drive that is written to now and then.
pub(super) const SSD_SATA: Preset = Preset {
    name: "ssd-sata",
    summary: "SATA SSD of today: 8 channels of 4 dies, 550 MB/s, queue of 32",
    origin: "general knowledge of TLC drives on SATA",
    calibrated: false,
    fit_error: "generic: median error 27.0 % beside three figures of the Samsung 870 EVO, 1 TB, to which it was not fitted \
                (quoted by KitGuru 2021: 13,000 and 98,000 reads/s of 4 KiB at depth 1 and 32, 560 MB/s)",
    capacity_bytes: 1_000_000_000_000,
    host_ns_per_kib: 75,
    host_origin: HOST_NOW,
    connections: NCQ,
    max_fetch_bytes: MAX_FETCH_BYTES,
    throttle: None,
    model: Model::Ssd(SsdModel {
        channels: 8,
        dies_per_channel: 4,
        page_bytes: 16 * KIB,
        command_ns: 25_000,
        read_ns: 60_000,
        channel_bytes_per_s: 400 * MB_PER_S,
        link_bytes_per_s: 550 * MB_PER_S,
        queue_depth: NCQ,
        tail: Some(Tail {
            read_p99_ns: 95_000,
            collisions_per_million: 1_000,
            program_ns: 750_000,
            erase_ns: 3_800_000,
        }),
    }),
};
