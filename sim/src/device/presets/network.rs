//! Devices that answer many commands at once over a shared link.
//!
//! Never: a figure without an origin.

use super::{HOST_NOW, MB_PER_S, MS, Model, NO_HOST, Preset, UNCALIBRATED};
use crate::device::net::{CHUNK_BYTES, NetModel};

/// An answer comes whole: the client delivers nothing of an object read that has arrived in part, and a reply is one
/// message. With answers that take turns on the link useless reads do not cost what was published.
///
/// Capacity and connections are not published. 16 is more than a detector with windows of 4 MiB has in flight.
pub(super) const RBD: Preset = Preset {
    name: "rbd",
    summary: "Ceph RBD volume of 2014: round trip 0.690 ms, 62.5 MB/s",
    origin: "Adam Crume, ceph-devel 2014: boot-ide and grep-ide without readahead",
    calibrated: true,
    fit_error: "two figures from two rows: no error estimate",
    capacity_bytes: 100 << 30,
    host_ns_per_kib: 0,
    host_origin: NO_HOST,
    connections: 16,
    model: Model::Net(NetModel {
        rtt_ns: 690_000,
        rtt_p99_ns: None,
        connection_bytes_per_s: 62_500_000,
        link_bytes_per_s: 62_500_000,
        connections: 16,
        chunk_bytes: None,
    }),
};

/// One command moves at less than the link's pace, because few of the drive's channels work on it; 64 commands at
/// about 61 us make 1.05 million reads/s of 4 KiB. The tail is a lognormal of sigma 0.2, without the collisions
/// with writes and erases that a busy drive has.
pub(super) const NVME: Preset = Preset {
    name: "nvme",
    summary: "NVMe drive of today, PCIe 4: 60 us, 3 GB/s a command, 6.5 GB/s in total",
    origin: "general knowledge of TLC drives on PCIe 4",
    calibrated: false,
    fit_error: UNCALIBRATED,
    capacity_bytes: 1_000_000_000_000,
    host_ns_per_kib: 75,
    host_origin: HOST_NOW,
    connections: 64,
    model: Model::Net(NetModel {
        rtt_ns: 60_000,
        rtt_p99_ns: Some(95_000),
        connection_bytes_per_s: 3_000 * MB_PER_S,
        link_bytes_per_s: 6_500 * MB_PER_S,
        connections: 64,
        chunk_bytes: Some(CHUNK_BYTES),
    }),
};

/// A 10 Gbit/s network card in front of any number of servers.
pub(super) const OBJECT_NEAR: Preset = Preset {
    name: "object-near",
    summary: "object store, same region, warm connections: first byte after 15 ms, 100 MB/s each",
    origin: "J. Snyder 2023, notes on S3: 15 ms, 100 MB/s an operation; tail (p99 = 5 medians) and link are assumptions",
    calibrated: false,
    fit_error: UNCALIBRATED,
    capacity_bytes: 5 << 40,
    host_ns_per_kib: 75,
    host_origin: HOST_NOW,
    connections: 32,
    model: Model::Net(NetModel {
        rtt_ns: 15 * MS,
        rtt_p99_ns: Some(75 * MS),
        connection_bytes_per_s: 100 * MB_PER_S,
        link_bytes_per_s: 1_250 * MB_PER_S,
        connections: 32,
        chunk_bytes: Some(CHUNK_BYTES),
    }),
};

/// The published rules of thumb for the first byte differ by ten: this is the other end of them.
pub(super) const OBJECT_FAR: Preset = Preset {
    name: "object-far",
    summary: "object store, far or slow: first byte after 120 ms, 100 MB/s each",
    origin: "rule of thumb, 100 to 200 ms for small objects; tail (p99 = 5 medians) and link are assumptions",
    model: Model::Net(NetModel {
        rtt_ns: 120 * MS,
        rtt_p99_ns: Some(600 * MS),
        connection_bytes_per_s: 100 * MB_PER_S,
        link_bytes_per_s: 1_250 * MB_PER_S,
        connections: 32,
        chunk_bytes: Some(CHUNK_BYTES),
    }),
    ..OBJECT_NEAR
};
