//! The named device models: their parameters, the sources of the parameters, and the measured errors of the models.
//!
//! A preset that was fitted to measurements states its error. Any other preset is marked as generic: it only shows trends and orders of
//! magnitude, and its results must not be quoted as results of a product. `sim/tests/cited.rs` compares generic presets, and presets made
//! from documentation, with published figures.
//!
//! Every parameter of a preset has a source.
//!
//! Units: KiB is 1024 bytes, MB/s is 10^6 bytes per second.

use super::Device;
use super::array::{Array, ArrayModel, Overhead};
use super::disk::{Disk, DiskModel, Slope};
use super::hdd::{BufferModel, Hdd, HddModel, Seek, TrackRates};
use super::lanes::{Lanes, LanesModel};
use super::net::{CHUNK_BYTES, Net, NetModel};
use super::sliced::SlicedArray;
use super::ssd::{Ssd, SsdModel, Tail};
use super::throttle::{Throttle, ThrottledDevice};
use foreread_core::machine::Config;
use foreread_core::policy::spec::SpecError;
use foreread_core::storage::{KindLimits, MAX_FETCH_BYTES};
use foreread_core::units::PageSize;

#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// The name in `model:NAME`.
    pub name: &'static str,
    /// A one-line description.
    pub summary: &'static str,
    /// The source of the figures.
    pub origin: &'static str,
    /// True when the figures were fitted to, or stated in, a publication; false for general knowledge.
    pub calibrated: bool,
    /// The error relative to the data used for the fit.
    pub fit_error: &'static str,
    pub capacity_bytes: u64,
    /// Host CPU time for each KiB that a reader receives (system call and copy), in nanoseconds.
    pub host_ns_per_kib: u64,
    pub host_origin: &'static str,
    /// Default number of concurrent commands.
    pub connections: u32,
    /// Default maximum size of a fetch in bytes.
    pub max_fetch_bytes: u64,
    /// A request rate limit in front of the model.
    pub throttle: Option<Throttle>,
    pub model: Model,
}

#[derive(Clone, Copy, Debug)]
pub enum Model {
    /// One command at a time.
    Disk(DiskModel),
    /// A mechanical disk with one head and a queue.
    Hdd(HddModel),
    /// One command at a time, with an overhead that depends on the number of readers.
    Array(ArrayModel),
    /// A flash drive: many dies, several channels, one link.
    Ssd(SsdModel),
    /// Many concurrent commands over a shared link.
    Net(NetModel),
    /// Several concurrent commands over one link: the model that a probe fits.
    Lanes(LanesModel),
}

impl Preset {
    /// Returns the limits of an engine that reads from this device: as many requests in flight as the device accepts, half of them
    /// for readahead.
    #[must_use]
    pub fn config(&self, page: PageSize, cache_bytes: u64) -> Config {
        let mut config = Config::new(page, cache_bytes);
        config.max_in_flight = self.connections;
        config.max_ahead_in_flight = self.connections / 2;
        config.max_short_ahead_in_flight = config.max_ahead_in_flight;
        config.max_fetch_bytes = self.max_fetch_bytes;
        config.bounded()
    }

    /// Creates an idle device of this kind, whose random numbers (if any) depend on `seed`.
    pub fn build(&self, seed: u64) -> Box<dyn Device> {
        let device = self.build_model(seed);
        match self.throttle {
            None => device,
            Some(throttle) => Box::new(ThrottledDevice::new(device, throttle)),
        }
    }

    fn build_model(&self, seed: u64) -> Box<dyn Device> {
        match self.model {
            Model::Disk(model) => Box::new(Disk::new(model)),
            Model::Hdd(model) => Box::new(Hdd::new(model, seed)),
            Model::Array(model) => match model.slices {
                None => Box::new(Array::new(model)),
                Some(slices) => Box::new(SlicedArray::new(model, slices)),
            },
            Model::Ssd(model) => Box::new(Ssd::new(model, seed)),
            Model::Net(model) => Box::new(Net::new(model, seed)),
            Model::Lanes(model) => Box::new(Lanes::new(model)),
        }
    }

    /// Returns a lower bound for the time in which this device can read `bytes` distinct bytes, from its first command on. The bound holds
    /// for any division into commands, in any order, and with any overlap. The bound may not be achievable. The bound does not include the
    /// time that the host needs. The bound also ignores a request rate limit (throttle), because such a limit does not delay a single long
    /// command.
    pub fn least_ns(&self, bytes: u64) -> u64 {
        match self.model {
            _ if bytes == 0 => 0,
            Model::Disk(model) => model.least_ns(bytes),
            Model::Hdd(model) => model.least_ns(bytes),
            Model::Array(model) => model.least_ns(bytes),
            Model::Ssd(model) => model.least_ns(bytes),
            Model::Net(model) => model.least_ns(bytes),
            Model::Lanes(model) => model.least_ns(bytes),
        }
    }
}

/// Returns the preset called `name`.
pub fn find(name: &str) -> Result<&'static Preset, SpecError> {
    PRESETS
        .iter()
        .find(|p| p.name == name)
        .ok_or_else(|| SpecError::UnknownName {
            name: name.to_string(),
            known: PRESETS.iter().map(|p| p.name).collect(),
        })
}

/// Queue depth of SATA's native command queuing.
const NCQ: u32 = 32;
/// Commands that a host queues for a device that processes one at a time. Chosen: as many as for the other presets.
const HOST_QUEUE: u32 = 32;
const MS: u64 = 1_000_000;
const MB_PER_S: u64 = 1_000_000;
const KIB: u64 = 1024;
const NO_HOST: &str = "0: the published figures that it was fitted to include the host";
const HOST_NOW: &str = "assumption: 0.05 to 0.1 us/KiB on a present CPU, its middle";

/// Returns all presets: first those from publications, oldest first, then those of current devices.
pub static PRESETS: &[Preset] = &[
    DISK_2003,
    HDD_THEORY,
    EVA,
    RAID_6DISK,
    X25_M,
    SANDISK_5000,
    USB_TECLAST,
    USB_CRUZER,
    USB_2G,
    TINY_USB,
    RBD,
    HDD_7200,
    SSD_SATA,
    NVME,
    OBJECT_NEAR,
    OBJECT_FAR,
    EBS_GP3,
    NFS,
    S3_REGION,
];

// Mechanical disks, and arrays of them.

/// "100MB/s" is 102,400 KiB/s; with 10^8 bytes/s the last row of the table would be 3.9 % off.
const HDD_THEORY: Preset = Preset {
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

/// The program counts MB of 2^20 bytes: its 1024 MB in 47.74 s are "21.45 MB/s". Only the results of the drive are
/// published: revolutions, seek, rate and overhead were searched for the smallest error in three figures. One figure
/// was not used: the same load without the page cache was measured at 17.71 MB/s, 15 % below this model. A page after
/// the last one is a hit only if the head read on while no other command waited. This alone gives the 2.40 MB/s of 64
/// streams that read page by page, so neither hits nor lost revolutions need to be assumed.
const DISK_2003: Preset = Preset {
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

/// The throughputs are those of ext3 with an I/O scheduler that gives readers time slices; its long waits are not
/// modelled here (see `device/sliced.rs`).
const EVA: Preset = Preset {
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

/// The rate itself decreases with the number of readers here, which a single overhead per number of readers cannot
/// reproduce.
const RAID_6DISK: Preset = Preset {
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

/// An average seek takes 8 ms. The drive uses 32 segments of 4 MiB, half of its buffer, for reads.
const HDD_7200: Preset = Preset {
    name: "hdd-7200",
    summary: "disk of today: 4 TB, 7200 rpm, 250 MB/s outside to 120 MB/s inside, queue of 32",
    origin: "general knowledge of 7200 rpm drives: seek 1 to 16 ms, nearest first",
    calibrated: false,
    fit_error: "generic: median error 4.6 % against two figures of the WD Ultrastar DC HC310, 4 TB, to which it was not fitted \
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

// Flash: drives and sticks.

/// The same measurements were published a second time, from the second row on with half the window sizes. These figures
/// use the labels of the first publication, which the published script and four other devices support.
const X25_M: Preset = Preset {
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

/// Published in the posting of the small drives, which labels the rows differently: see [`X25_M`].
const SANDISK_5000: Preset = Preset {
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

/// The maximum transfer of one USB mass storage command: 240 sectors.
const USB_TRANSFER_BYTES: u64 = 120 * KIB;

/// On all three sticks 64 KiB and 128 KiB are equally fast, although every other doubling helps: 128 KiB are two
/// transfers.
const USB_TECLAST: Preset = Preset {
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

/// With a single slope, windows of 16 KiB are 7.4 % off; a knee there corrects this.
const USB_CRUZER: Preset = Preset {
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

const USB_2G: Preset = Preset {
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

/// Only capacity and rate are published, so a command has no fixed cost.
const TINY_USB: Preset = Preset {
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

/// A single read of 4 KiB takes about 100 us. Die times and tail are those of TLC flash; the probability of a collision
/// is an assumption for a drive that is written to occasionally.
const SSD_SATA: Preset = Preset {
    name: "ssd-sata",
    summary: "SATA SSD of today: 8 channels of 4 dies, 550 MB/s, queue of 32",
    origin: "general knowledge of TLC drives on SATA",
    calibrated: false,
    fit_error: "generic: median error 27.0 % against three figures of the Samsung 870 EVO, 1 TB, to which it was not fitted \
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

// Devices that process many commands concurrently over a shared link.

/// A reply arrives as a whole: the client delivers no part of an object read before all of it has arrived, and a reply
/// is one message. If replies alternated on the link, useless reads would not cost as much as was published.
///
/// Capacity and number of connections are not published. 16 is more than a detector with windows of 4 MiB has in
/// flight.
const RBD: Preset = Preset {
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

/// A single command is slower than the link, because only few of the drive's channels work on it. 64 commands of about
/// 61 us give 1.05 million reads/s of 4 KiB. The tail is lognormal with sigma 0.2, without the collisions with writes
/// and erases of a busy drive.
const NVME: Preset = Preset {
    name: "nvme",
    summary: "NVMe drive of today, PCIe 4: 60 us, 3 GB/s a command, 6.5 GB/s in total",
    origin: "general knowledge of TLC drives on PCIe 4",
    calibrated: false,
    fit_error: "generic: median error 13.5 % against four figures of the Lexar NM790, 4 TB, to which it was not fitted \
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
const OBJECT_NEAR: Preset = Preset {
    name: "object-near",
    summary: "object store, same region, warm connections: first byte after 15 ms, 100 MB/s each",
    origin: "J. Snyder 2023, notes on S3: 15 ms, 100 MB/s an operation; tail (p99 = 5 medians) and link are assumptions",
    calibrated: false,
    fit_error: "generic: median error 48.7 % against four figures of S3 in its region, to which it was not fitted \
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

/// The published rules of thumb for the first byte differ by a factor of ten; this is the slow end.
const OBJECT_FAR: Preset = Preset {
    name: "object-far",
    summary: "object store, far or slow: first byte after 120 ms, 100 MB/s each",
    origin: "rule of thumb, 100 to 200 ms for small objects; tail (p99 = 5 medians) and link are assumptions",
    fit_error: "generic: median error 13.1 % against two figures of AWS's performance guide for S3, to which it was not fitted \
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

/// The baseline of a volume, without paid extras. A request of up to 256 KiB counts as one, so reads of 4 KiB are
/// limited by their number, and reads of 44 KiB or more by their bytes. Unlike `gp2` it accumulates no credits for
/// bursts. AWS states "single-digit milliseconds"; 1 ms is the minimum of that, and an assumption.
const EBS_GP3: Preset = Preset {
    name: "ebs-gp3",
    summary: "AWS EBS gp3 at its baseline: 3,000 requests/s of up to 256 KiB, 125 MiB/s",
    origin: "AWS, documentation of EBS volume types: gp3 baseline; first byte after 1 ms is an assumption",
    calibrated: true,
    fit_error: "median error 0.0 % against four documented figures: 3,000 reads/s of 4 and of 16 KiB, 125 MiB/s of 256 KiB and of 1 MiB",
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

/// A managed NFS server. A request counts as one against the limit, whatever its length.
const NFS: Preset = Preset {
    name: "nfs",
    summary: "NFS by AWS EFS, bursting: 250 us, 500 MiB/s a client, 35,000 requests/s",
    origin: "AWS, documentation of EFS: performance summary, reads, bursting throughput; no tail is published",
    calibrated: true,
    fit_error: "median error 0.2 % against three documented figures: 250 us (the least), 500 MiB/s a client, 35,000 reads/s",
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

/// 20 ms/MiB is 52.4 MB/s. The paper needs 200 to 250 concurrent requests of 16 MiB for 100 Gbit/s; 225 is the middle.
const S3_REGION: Preset = Preset {
    name: "s3-region",
    summary: "S3 in its region over 100 Gbit/s: first byte after 30 ms, 52 MB/s a request",
    origin: "Durner, Leis, Neumann: Exploiting Cloud Object Storage (AnyBlob), VLDB 2023; the tail (p99 = 5 medians) is an assumption",
    calibrated: true,
    fit_error: "median error 0.2 % against five figures: 30, 50, 190, 350 ms for 1 KiB, 1, 8, 16 MiB; 12.5 GB/s of 225 requests at once",
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Command, run_dry};

    /// Nanoseconds of one read of `kib` on the idle device.
    fn read_ns(name: &str, kib: u64) -> u64 {
        let mut device = find(name).expect("a preset").build(0);
        device.submit(0, Command::new(0, 0, 0, kib * KIB));
        run_dry(device.as_mut()).last().expect("an arrival").0
    }

    #[test]
    fn every_preset_has_its_figures_and_a_name_of_its_own() {
        for (i, preset) in PRESETS.iter().enumerate() {
            assert!(
                PRESETS[..i].iter().all(|p| p.name != preset.name),
                "{} is listed twice",
                preset.name
            );
            assert!(std::ptr::eq(
                find(preset.name).expect("found by its name"),
                preset
            ));
            assert!(
                preset.capacity_bytes > 0 && preset.connections > 0,
                "{}",
                preset.name
            );
            assert_eq!(
                preset.calibrated,
                !preset.fit_error.starts_with("generic: "),
                "{}",
                preset.name
            );
            if let Model::Net(net) = preset.model {
                assert!(
                    net.connection_bytes_per_s <= net.link_bytes_per_s,
                    "{}",
                    preset.name
                );
                assert!(
                    net.rtt_p99_ns
                        .is_none_or(|p99| net.rtt_ns > 0 && p99 >= net.rtt_ns),
                    "{}",
                    preset.name
                );
                assert!(preset.connections <= net.connections, "{}", preset.name);
            }
            assert!(read_ns(preset.name, 4) > 0);
        }
    }

    #[test]
    fn an_unknown_name_carries_the_known_ones() {
        let Err(SpecError::UnknownName { name, known }) = find("rdb") else {
            panic!("there is no such preset")
        };
        assert_eq!(name, "rdb");
        assert_eq!(known.len(), PRESETS.len());
        assert!(
            known.contains(&"rbd") && known.contains(&"disk-2003"),
            "{known:?}"
        );
    }
}
