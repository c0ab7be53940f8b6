//! [Wu 2010b]: Wu Fengguang, January 2010, "readahead: limit readahead size for small devices".
//!
//! Its tables of `dd` label the rows 4, 8, 16, ... KiB; [Wu 2010a] prints the rows of the Intel drive under 4, 16, 32, ...,
//! and the script that this posting prints sets 4, 16, 32, .... Both columns are kept ([`Labels`]).
//!
//! Never: a figure of another publication, but for the labels of the script.

/// What each run of `dd bs=4k count=102400` read, in bytes.
pub const DD_BYTES: f64 = 102_400.0 * 4096.0;

/// One row of a sweep.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// KiB of readahead as the script sets them, and as [Wu 2010a] prints them.
    pub script_kib: u64,
    /// KiB as printed here.
    pub printed_kib: u64,
    /// Seconds of each run.
    pub seconds: &'static [f64],
    /// The MB/s that `dd` printed for each, with its digits.
    pub printed: &'static [&'static str],
}

/// A device and its sweep.
#[derive(Clone, Copy, Debug)]
pub struct Sweep {
    /// The preset that models it.
    pub preset: &'static str,
    /// As it is named in the posting.
    pub device: &'static str,
    /// The rows.
    pub runs: &'static [Run],
    /// The size as printed that `==>` points to, KiB.
    pub plateau_kib: u64,
    /// The size as printed that `-->` points to, KiB.
    pub second_mark_kib: Option<u64>,
}

/// Which column of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Labels {
    /// 4, 16, 32, ...
    Script,
    /// 4, 8, 16, ...
    Printed,
}

impl Run {
    /// KiB of readahead under `labels`.
    #[must_use]
    pub fn kib(&self, labels: Labels) -> u64 {
        match labels {
            Labels::Script => self.script_kib,
            Labels::Printed => self.printed_kib,
        }
    }

    /// Mean seconds of the runs.
    #[must_use]
    pub fn mean_s(&self) -> f64 {
        self.seconds.iter().sum::<f64>() / self.seconds.len() as f64
    }

    /// Their mean, in 10^6 bytes a second.
    #[must_use]
    pub fn mb_per_s(&self) -> f64 {
        DD_BYTES / self.mean_s() / 1e6
    }
}

const fn run(
    script_kib: u64,
    printed_kib: u64,
    seconds: &'static [f64],
    printed: &'static [&'static str],
) -> Run {
    Run {
        script_kib,
        printed_kib,
        seconds,
        printed,
    }
}

const X25_M_RUNS: &[Run] = &[
    run(4, 4, &[3.40038, 3.42842], &["123", "122"]),
    run(16, 8, &[2.7362, 2.74528], &["153", "153"]),
    run(32, 16, &[2.59808, 2.58728], &["161", "162"]),
    run(64, 32, &[2.50488, 2.49138], &["167", "168"]),
    run(128, 64, &[2.12861, 2.13055], &["197", "197"]),
    run(256, 128, &[1.92905, 1.93176], &["217", "217"]),
    run(512, 256, &[1.75896, 1.78963], &["238", "234"]),
    run(1024, 512, &[1.67357, 1.69112], &["251", "248"]),
    run(2048, 1024, &[1.62115, 1.63206], &["259", "257"]),
    run(4096, 2048, &[1.56204, 1.58854], &["269", "264"]),
    run(8192, 4096, &[1.57949, 1.57426], &["266", "266"]),
];

const SANDISK_5000_RUNS: &[Run] = &[
    run(
        4,
        4,
        &[14.1593, 14.1699, 14.1782],
        &["29.6", "29.6", "29.6"],
    ),
    run(
        16,
        8,
        &[8.05231, 8.04463, 8.04758],
        &["52.1", "52.1", "52.1"],
    ),
    run(
        32,
        16,
        &[6.81751, 6.81564, 6.8146],
        &["61.5", "61.5", "61.5"],
    ),
    run(
        64,
        32,
        &[6.24176, 6.2438, 6.24645],
        &["67.2", "67.2", "67.1"],
    ),
    run(
        128,
        64,
        &[5.87828, 5.87858, 5.87481],
        &["71.4", "71.3", "71.4"],
    ),
    run(
        256,
        128,
        &[5.71649, 5.71804, 5.72055],
        &["73.4", "73.4", "73.3"],
    ),
    run(
        512,
        256,
        &[5.62466, 5.62304, 5.62114],
        &["74.6", "74.6", "74.6"],
    ),
    run(
        1024,
        512,
        &[5.61532, 5.62098, 5.61818],
        &["74.7", "74.6", "74.7"],
    ),
    run(
        2048,
        1024,
        &[5.50888, 5.6204, 5.62281],
        &["76.1", "74.6", "74.6"],
    ),
];

const USB_TECLAST_RUNS: &[Run] = &[
    run(4, 4, &[53.1635, 53.155, 53.107], &["7.9", "7.9", "7.9"]),
    run(
        16,
        8,
        &[23.4061, 23.3955, 23.4222],
        &["17.9", "17.9", "17.9"],
    ),
    run(
        32,
        16,
        &[17.1077, 17.0909, 17.0875],
        &["24.5", "24.5", "24.5"],
    ),
    run(
        64,
        32,
        &[14.6029, 14.5913, 14.5951],
        &["28.7", "28.7", "28.7"],
    ),
    run(
        128,
        64,
        &[14.5483, 14.5344, 14.5333],
        &["28.8", "28.9", "28.9"],
    ),
    run(
        256,
        128,
        &[13.7497, 13.7364, 13.731],
        &["30.5", "30.5", "30.5"],
    ),
    run(
        512,
        256,
        &[13.5521, 13.5415, 13.5554],
        &["30.9", "31.0", "30.9"],
    ),
    run(
        1024,
        512,
        &[13.5414, 13.5631, 13.5654],
        &["31.0", "30.9", "30.9"],
    ),
    run(
        2048,
        1024,
        &[13.574, 13.5686, 13.5667],
        &["30.9", "30.9", "30.9"],
    ),
];

const USB_CRUZER_RUNS: &[Run] = &[
    run(4, 4, &[65.3449, 65.3759, 65.3405], &["6.4", "6.4", "6.4"]),
    run(
        16,
        8,
        &[31.2002, 31.1914, 31.6836],
        &["13.4", "13.4", "13.2"],
    ),
    run(
        32,
        16,
        &[23.5281, 23.4705, 23.5859],
        &["17.8", "17.9", "17.8"],
    ),
    run(
        64,
        32,
        &[19.6786, 19.719, 19.7548],
        &["21.3", "21.3", "21.2"],
    ),
    run(
        128,
        64,
        &[19.6219, 19.6125, 19.594],
        &["21.4", "21.4", "21.4"],
    ),
    run(
        256,
        128,
        &[18.021, 18.0527, 18.0694],
        &["23.3", "23.2", "23.2"],
    ),
    run(
        512,
        256,
        &[17.978, 17.6483, 17.9324],
        &["23.3", "23.8", "23.4"],
    ),
    run(
        1024,
        512,
        &[17.659, 17.9403, 17.986],
        &["23.8", "23.4", "23.3"],
    ),
    run(
        2048,
        1024,
        &[17.9437, 18.0634, 17.9469],
        &["23.4", "23.2", "23.4"],
    ),
];

const USB_2G_RUNS: &[Run] = &[
    run(4, 4, &[62.6246, 60.5872, 62.2581], &["6.7", "6.9", "6.7"]),
    run(
        16,
        8,
        &[35.7505, 35.764, 35.7396],
        &["11.7", "11.7", "11.7"],
    ),
    run(
        32,
        16,
        &[33.7949, 33.8041, 33.8015],
        &["12.4", "12.4", "12.4"],
    ),
    run(
        64,
        32,
        &[31.3851, 31.381, 31.3784],
        &["13.4", "13.4", "13.4"],
    ),
    run(
        128,
        64,
        &[31.3478, 31.3494, 31.3486],
        &["13.4", "13.4", "13.4"],
    ),
    run(
        256,
        128,
        &[30.7384, 30.7337, 30.728],
        &["13.6", "13.6", "13.6"],
    ),
    run(
        512,
        256,
        &[30.5439, 30.544, 30.5433],
        &["13.7", "13.7", "13.7"],
    ),
    run(
        1024,
        512,
        &[30.5408, 30.543, 30.5447],
        &["13.7", "13.7", "13.7"],
    ),
    run(
        2048,
        1024,
        &[30.5919, 30.5893, 30.5939],
        &["13.7", "13.7", "13.7"],
    ),
];

/// The five devices, in the order of the posting.
pub const SWEEPS: [Sweep; 5] = [
    Sweep {
        preset: "x25-m",
        device: "SSD 80G Intel x25-M SSDSA2M080",
        runs: X25_M_RUNS,
        plateau_kib: 2048,
        second_mark_kib: None,
    },
    Sweep {
        preset: "sandisk-5000",
        device: "SSD 30G SanDisk SATA 5000",
        runs: SANDISK_5000_RUNS,
        plateau_kib: 256,
        second_mark_kib: None,
    },
    Sweep {
        preset: "usb-teclast",
        device: "USB stick 32G Teclast CoolFlash",
        runs: USB_TECLAST_RUNS,
        plateau_kib: 128,
        second_mark_kib: None,
    },
    Sweep {
        preset: "usb-cruzer",
        device: "USB stick 4G SanDisk Cruzer",
        runs: USB_CRUZER_RUNS,
        plateau_kib: 128,
        second_mark_kib: None,
    },
    Sweep {
        preset: "usb-2g",
        device: "USB stick 2G 0204:6025",
        runs: USB_2G_RUNS,
        plateau_kib: 128,
        second_mark_kib: Some(32),
    },
];

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Limits by capacity: bytes, KiB of readahead. The code printed in the posting divides by 2 MiB and gives the first.
pub const LIMITS: [(u64, u64); 9] = [
    (2 * MIB, 4),
    (8 * MIB, 8),
    (32 * MIB, 16),
    (128 * MIB, 32),
    (512 * MIB, 64),
    (2 * GIB, 128),
    (8 * GIB, 256),
    (32 * GIB, 512),
    (128 * GIB, 1024),
];

/// The later posting of the same patch, which divides by 256 KiB.
pub(crate) const LIMITS_LATER: [(u64, u64); 8] = [
    (MIB, 8),
    (4 * MIB, 16),
    (16 * MIB, 32),
    (64 * MIB, 64),
    (256 * MIB, 128),
    (GIB, 256),
    (4 * GIB, 512),
    (16 * GIB, 1024),
];

/// Linus Torvalds's device: bytes, and bytes a second.
pub const TINY: (u64, f64) = (505_000, 15_000.0);
/// What `blkid` reads there, offset and length, and the pages that the posting says each became.
pub const BLKID: [(u64, u64, u64); 2] = [(0, 1024, 4), (1536, 16_384, 8)];
/// "but still kernel read-ahead turns it into 48kB".
pub(crate) const BLKID_KIB: u64 = 48;
/// "Turning a 16kB read into a 64kB one is a big deal".
pub(crate) const TURNED_KIB: u64 = 64;
/// "when it's about 15% of the whole device!".
pub(crate) const TURNED_PERCENT: u64 = 15;
