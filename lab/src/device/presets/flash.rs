//! Flash: drives and sticks.
//!
//! Never: a figure without an origin.

use super::{KIB, Model, NCQ, NO_HOST, Preset};
use crate::device::disk::{DiskModel, Slope};

/// The same measurements were published a second time under half the window sizes, from the second row on. These
/// figures hold for the labels of the first publication, which the published script and four other devices support.
pub(super) const X25_M: Preset = Preset {
    name: "x25-m",
    summary: "SATA SSD of 2010: Intel X25-M 80 GB",
    origin: "Wu Fengguang 2010, the posting of hdd-theory: dd at 11 readahead sizes, 2 runs; 3 slopes fitted here",
    calibrated: true,
    fit_error: "throughput at most 1.4 % off the mean of the two runs (rms 0.8 %), 2.3 % off a single one",
    capacity_bytes: 80_000_000_000,
    host_ns_per_kib: 400,
    host_origin: "assumption: 0.3 to 0.5 us/KiB on a CPU of 2010; the measurements cannot tell",
    connections: NCQ,
    model: Model::Disk(DiskModel {
        command_ns: 9_390,
        max_transfer_bytes: u64::MAX,
        slopes: &[
            Slope { from_bytes: 0, ps_per_kib: 6_018_000 },
            Slope { from_bytes: 64 * KIB, ps_per_kib: 4_267_000 },
            Slope { from_bytes: 256 * KIB, ps_per_kib: 3_838_000 },
        ],
    }),
};

/// What USB mass storage moves with one command: 240 sectors.
const USB_TRANSFER_BYTES: u64 = 120 * KIB;

/// Nothing but capacity and rate is published: a command costs nothing of its own.
pub(super) const TINY_USB: Preset = Preset {
    name: "tiny-usb",
    summary: "a very small, very slow USB device of 2010: 505 kB, 15 kB/s",
    origin: "Wu Fengguang 2010, 'readahead: limit readahead size for small devices': Linus Torvalds's device",
    calibrated: true,
    fit_error: "exact: the two published figures; no overhead is known",
    capacity_bytes: 505_000,
    host_ns_per_kib: 0,
    host_origin: NO_HOST,
    connections: 1,
    model: Model::Disk(DiskModel {
        command_ns: 0,
        max_transfer_bytes: USB_TRANSFER_BYTES,
        slopes: &[Slope { from_bytes: 0, ps_per_kib: 68_266_666_667 }],
    }),
};
