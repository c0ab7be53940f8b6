//! Devices that answer many commands at once over a shared link.
//!
//! Never: a figure without an origin.

use super::{HOST_NOW, KIB, MB_PER_S, MS, Model, NO_HOST, Preset};
use crate::device::net::{CHUNK_BYTES, NetModel};
use crate::device::throttle::Throttle;
use foreread_core::storage::{KindLimits, MAX_FETCH_BYTES};

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
    max_fetch_bytes: MAX_FETCH_BYTES,
    throttle: None,
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
    fit_error: "generic: median error 13.5 % beside four figures of the Lexar NM790, 4 TB, to which it was not fitted \
                (KitGuru's review: 20,176 reads/s of 4 KiB alone, 87,037 of 4, 132,941 of 8, 479,318 of 32)",
    capacity_bytes: 1_000_000_000_000,
    host_ns_per_kib: 75,
    host_origin: HOST_NOW,
    connections: 64,
    max_fetch_bytes: MAX_FETCH_BYTES,
    throttle: None,
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
    fit_error: "generic: median error 48.7 % beside four figures of S3 in its region, to which it was not fitted \
                (AnyBlob, VLDB 2023: 30 ms and 20 ms/MiB in the median): twice as fast",
    capacity_bytes: 5 << 40,
    host_ns_per_kib: 75,
    host_origin: HOST_NOW,
    connections: KindLimits::OBJECT.requests,
    max_fetch_bytes: KindLimits::OBJECT.max_fetch_bytes,
    throttle: None,
    model: Model::Net(NetModel {
        rtt_ns: 15 * MS,
        rtt_p99_ns: Some(75 * MS),
        connection_bytes_per_s: 100 * MB_PER_S,
        link_bytes_per_s: 1_250 * MB_PER_S,
        connections: KindLimits::OBJECT.requests,
        chunk_bytes: Some(CHUNK_BYTES),
    }),
};

/// The published rules of thumb for the first byte differ by ten: this is the other end of them.
pub(super) const OBJECT_FAR: Preset = Preset {
    name: "object-far",
    summary: "object store, far or slow: first byte after 120 ms, 100 MB/s each",
    origin: "rule of thumb, 100 to 200 ms for small objects; tail (p99 = 5 medians) and link are assumptions",
    fit_error: "generic: median error 13.1 % beside two figures of AWS's performance guide for S3, to which it was not fitted \
                (100 to 200 ms for small objects, 85 to 90 MB/s a connection)",
    model: Model::Net(NetModel {
        rtt_ns: 120 * MS,
        rtt_p99_ns: Some(600 * MS),
        connection_bytes_per_s: 100 * MB_PER_S,
        link_bytes_per_s: 1_250 * MB_PER_S,
        connections: KindLimits::OBJECT.requests,
        chunk_bytes: Some(CHUNK_BYTES),
    }),
    ..OBJECT_NEAR
};

/// What a volume gets without paying for more. A request of up to 256 KiB counts as one, so reads of 4 KiB are limited by their
/// number and those from 44 KiB on by their bytes. Unlike `gp2` it saves no credits for bursts. AWS states "single-digit
/// milliseconds": 1 ms is the least of that, and an assumption.
pub(super) const EBS_GP3: Preset = Preset {
    name: "ebs-gp3",
    summary: "AWS EBS gp3 at its baseline: 3,000 requests/s of up to 256 KiB, 125 MiB/s",
    origin: "AWS, documentation of EBS volume types: gp3 baseline; first byte after 1 ms is an assumption",
    calibrated: true,
    fit_error: "median error 0.0 % beside four documented figures: 3,000 reads/s of 4 and of 16 KiB, 125 MiB/s of 256 KiB and of 1 MiB",
    capacity_bytes: 1 << 40,
    host_ns_per_kib: 75,
    host_origin: HOST_NOW,
    connections: 32,
    max_fetch_bytes: MAX_FETCH_BYTES,
    throttle: Some(Throttle {
        requests_per_s: 3000,
        request_bytes: 256 * KIB,
        burst_requests: 1,
    }),
    model: Model::Net(NetModel {
        rtt_ns: MS,
        rtt_p99_ns: None,
        connection_bytes_per_s: 125 << 20,
        link_bytes_per_s: 125 << 20,
        connections: 64,
        chunk_bytes: Some(CHUNK_BYTES),
    }),
};

/// A managed NFS server. Requests of any length count as one against the limit.
pub(super) const NFS: Preset = Preset {
    name: "nfs",
    summary: "NFS by AWS EFS, bursting: 250 us, 500 MiB/s a client, 35,000 requests/s",
    origin: "AWS, documentation of EFS: performance summary, reads, bursting throughput; no tail is published",
    calibrated: true,
    fit_error: "median error 0.2 % beside three documented figures: 250 us (the least), 500 MiB/s a client, 35,000 reads/s",
    capacity_bytes: 8 << 40,
    host_ns_per_kib: 75,
    host_origin: HOST_NOW,
    connections: 64,
    max_fetch_bytes: MAX_FETCH_BYTES,
    throttle: Some(Throttle {
        requests_per_s: 35_000,
        request_bytes: u64::MAX,
        burst_requests: 1,
    }),
    model: Model::Net(NetModel {
        rtt_ns: 250_000,
        rtt_p99_ns: None,
        connection_bytes_per_s: 500 << 20,
        link_bytes_per_s: 500 << 20,
        connections: 64,
        chunk_bytes: Some(CHUNK_BYTES),
    }),
};

/// 20 ms/MiB is 52.4 MB/s. The paper needs 200 to 250 requests of 16 MiB at once for 100 Gbit/s; 225 is their middle.
pub(super) const S3_REGION: Preset = Preset {
    name: "s3-region",
    summary: "S3 in its region over 100 Gbit/s: first byte after 30 ms, 52 MB/s a request",
    origin: "Durner, Leis, Neumann: Exploiting Cloud Object Storage (AnyBlob), VLDB 2023; the tail (p99 = 5 medians) is an assumption",
    calibrated: true,
    fit_error: "median error 0.2 % beside five figures: 30, 50, 190, 350 ms for 1 KiB, 1, 8, 16 MiB; 12.5 GB/s of 225 requests at once",
    capacity_bytes: 5 << 40,
    host_ns_per_kib: 75,
    host_origin: HOST_NOW,
    connections: 225,
    max_fetch_bytes: KindLimits::OBJECT.max_fetch_bytes,
    throttle: None,
    model: Model::Net(NetModel {
        rtt_ns: 30 * MS,
        rtt_p99_ns: Some(150 * MS),
        connection_bytes_per_s: 52_428_800,
        link_bytes_per_s: 12_500 * MB_PER_S,
        connections: 256,
        chunk_bytes: Some(CHUNK_BYTES),
    }),
};
