//! Disks that turn, and arrays of them.
//!
//! Never: a figure without an origin.

use super::{HOST_NOW, KIB, MB_PER_S, MS, Model, NCQ, NO_HOST, Preset};
use crate::device::array::{ArrayModel, Overhead};
use crate::device::disk::{DiskModel, Slope};
use crate::device::hdd::{BufferModel, HddModel, Seek, TrackRates};
use foreread_core::storage::MAX_FETCH_BYTES;

/// "100MB/s" is 102,400 KiB/s: with 10^8 bytes/s the last row of the table would be 3.9 % off.
pub(super) const HDD_THEORY: Preset = Preset {
    name: "hdd-theory",
    summary: "disk of 2010 in theory: 8 ms access time, 100 MiB/s",
    origin: "Wu Fengguang, 'readahead: bump up the default readahead size', 2010: table of I/O sizes",
    calibrated: true,
    fit_error: "exact: the published table is this formula",
    capacity_bytes: 500_000_000_000,
    host_ns_per_kib: 0,
    host_origin: "0: the published table has no host",
    connections: NCQ,
    max_fetch_bytes: MAX_FETCH_BYTES,
    throttle: None,
    model: Model::Disk(DiskModel {
        command_ns: 8 * MS,
        max_transfer_bytes: None,
        slopes: &[Slope::new(0, 9_765_625)],
    }),
};

/// The program counts MB of 2^20 bytes: its 1024 MB in 47.74 s are "21.45 MB/s". Nothing is published about the drive
/// but what it did: turns, seek, rate and overhead were searched here for the smallest error of three figures. One
/// figure is left over: the same load past the cache was measured at 17.71 MB/s, 15 % below what this disk does.
/// A page behind the last one is a hit only if the head read on while no other command waited; that alone gives the
/// 2.40 MB/s of 64 streams which read page by page, so neither hits nor lost turns need to be assumed.
pub(super) const DISK_2003: Preset = Preset {
    name: "disk-2003",
    summary: "disk of 2003: 7200 rpm, one head, a queue of 64 that is served nearest first",
    origin: "Suparna Bhattacharya, linux-kernel, August 2003: aio-stress, 64 KiB random reads of 1 GiB",
    calibrated: true,
    fit_error: "64 KiB one at a time +3 %, 64 at once -3 %, page by page in 64 streams -6 % (8.54, 21.45, 2.40 MiB/s)",
    capacity_bytes: 36_000_000_000,
    host_ns_per_kib: 0,
    host_origin: NO_HOST,
    connections: 64,
    max_fetch_bytes: MAX_FETCH_BYTES,
    throttle: None,
    model: Model::Hdd(HddModel {
        capacity_bytes: 36_000_000_000,
        rpm: 7_200,
        command_ns: 50_000,
        seek: Seek {
            settle_ns: 0,
            root_ns: 17_370_000,
            linear_from: 1.0,
            full_ns: 0,
        },
        bytes_per_s: TrackRates {
            outer: 52_000_000,
            inner: 31_000_000,
        },
        buffer: BufferModel {
            segments: 8,
            segment_bytes: 256 * KIB,
            hit_ns: 200_000,
            interface_bytes_per_s: 160_000_000,
        },
        queue_depth: 64,
        patience_ns: 500 * MS,
    }),
};

/// The throughputs are of ext3 with an elevator that gives readers time slices; its long waits are not modelled here
/// (`device/sliced.rs`).
pub(super) const EVA: Preset = Preset {
    name: "eva",
    summary: "disk array of 2010: HP EVA over two paths, 219.6 MB/s shared",
    origin: "Vivek Goyal's table in Wu Fengguang 2010, the posting of hdd-theory: 1 to 16 readers; fitted here",
    calibrated: true,
    fit_error: "throughput at most 0.8 % off in ten rows, with six figures",
    capacity_bytes: 1 << 40,
    host_ns_per_kib: 0,
    host_origin: NO_HOST,
    connections: NCQ,
    max_fetch_bytes: MAX_FETCH_BYTES,
    throttle: None,
    model: Model::Array(ArrayModel {
        overhead: &[
            Overhead::new(1, 306_000),
            Overhead::new(2, 373_000),
            Overhead::new(4, 370_000),
            Overhead::new(8, 367_000),
            Overhead::new(16, 384_000),
        ],
        ps_per_kib: 4_662_005,
        slices: None,
    }),
};

/// The rate itself falls with the readers here, which one overhead for each number of them cannot follow.
pub(super) const RAID_6DISK: Preset = Preset {
    name: "raid-6disk",
    summary: "disk array of 2010: 5 or 6 SATA disks in stripes, hardware RAID, 160.5 MB/s shared",
    origin: "Vivek Goyal's table in Wu Fengguang 2010, the posting of hdd-theory: 1 to 16 readers; fitted here",
    fit_error: "throughput at most 4.8 % off in ten rows, with six figures",
    model: Model::Array(ArrayModel {
        overhead: &[
            Overhead::new(1, 42_000),
            Overhead::new(2, 205_000),
            Overhead::new(4, 219_000),
            Overhead::new(8, 232_000),
            Overhead::new(16, 286_000),
        ],
        ps_per_kib: 6_381_621,
        slices: None,
    }),
    ..EVA
};

/// An average move takes 8 ms. The drive keeps 32 segments of 4 MiB of its buffer, half of it, for reads.
pub(super) const HDD_7200: Preset = Preset {
    name: "hdd-7200",
    summary: "disk of today: 4 TB, 7200 rpm, 250 MB/s outside to 120 MB/s inside, queue of 32",
    origin: "general knowledge of 7200 rpm drives: seek 1 to 16 ms, nearest first",
    calibrated: false,
    fit_error: "generic: median error 4.6 % beside two figures of the WD Ultrastar DC HC310, 4 TB, to which it was not fitted \
                (OEM specification 1.4, 4.5.1: seek 7.4 ms, latency 4.16 ms; data sheet: 255 MB/s)",
    capacity_bytes: 4_000_000_000_000,
    host_ns_per_kib: 75,
    host_origin: HOST_NOW,
    connections: NCQ,
    max_fetch_bytes: MAX_FETCH_BYTES,
    throttle: None,
    model: Model::Hdd(HddModel {
        capacity_bytes: 4_000_000_000_000,
        rpm: 7_200,
        command_ns: 300_000,
        seek: Seek {
            settle_ns: MS,
            root_ns: 12_780_000,
            linear_from: 0.3,
            full_ns: 16 * MS,
        },
        bytes_per_s: TrackRates {
            outer: 250 * MB_PER_S,
            inner: 120 * MB_PER_S,
        },
        buffer: BufferModel {
            segments: 32,
            segment_bytes: 4096 * KIB,
            hit_ns: 100_000,
            interface_bytes_per_s: 550 * MB_PER_S,
        },
        queue_depth: NCQ,
        patience_ns: 1000 * MS,
    }),
};
