//! [Wu 2010a]: Wu Fengguang, January 2010, "Use 512kb max readahead size, and 32kb min readahead size".
//!
//! Never: a figure of another publication.

/// The theory of a disk of 100 MB/s and 8 ms: size in KiB; then, as printed, transfer and latency in ms,
/// utilisation in %, KB/s. 64 KiB are 0.625 ms, printed as 0.62: half to even.
pub const THEORY: [(u64, &str, &str, &str, &str); 11] = [
    (4, "0.04", "8.04", "0.49", "497.57"),
    (8, "0.08", "8.08", "0.97", "990.33"),
    (16, "0.16", "8.16", "1.92", "1961.69"),
    (32, "0.31", "8.31", "3.76", "3849.62"),
    (64, "0.62", "8.62", "7.25", "7420.29"),
    (128, "1.25", "9.25", "13.51", "13837.84"),
    (256, "2.50", "10.50", "23.81", "24380.95"),
    (512, "5.00", "13.00", "38.46", "39384.62"),
    (1024, "10.00", "18.00", "55.56", "56888.89"),
    (2048, "20.00", "28.00", "71.43", "73142.86"),
    (4096, "40.00", "48.00", "83.33", "85333.33"),
];

/// Its access time, ms.
pub(crate) const THEORY_ACCESS_MS: u64 = 8;

/// Intel X25-M, `dd`: readahead in KiB, MB/s of two runs. The same runs stand in [Wu 2010b] with their seconds and other
/// labels.
pub(crate) const X25_M_MB_PER_S: [(u64, [u64; 2]); 11] = [
    (4, [123, 122]),
    (16, [153, 153]),
    (32, [161, 162]),
    (64, [167, 168]),
    (128, [197, 197]),
    (256, [217, 217]),
    (512, [238, 234]),
    (1024, [251, 248]),
    (2048, [259, 257]),
    (4096, [269, 264]),
    (8192, [266, 266]),
];

/// The patch: before or after it, the policy that has these defaults, the key, KiB.
pub(crate) const DEFAULTS: [(&str, &str, &str, u64); 4] = [
    ("before", "linux-2.6.31", "max", 128),
    ("before", "linux-2.6.0", "min", 16),
    ("after", "linux-thrashsafe", "max", 512),
    ("after", "linux-thrashsafe", "min", 32),
];
/// "It will now cost 1MB readahead buffer per stream", KiB.
pub(crate) const STREAM_BUFFER_KIB: u64 = 1024;

/// A "readahead hit ratio".
#[derive(Clone, Copy, Debug)]
pub struct HitRatio {
    /// Size of read-around.
    pub kib: u64,
    pub used_mb: u64,
    pub read_mb: u64,
}

const fn hits(kib: u64, used_mb: u64, read_mb: u64) -> HitRatio {
    HitRatio {
        kib,
        used_mb,
        read_mb,
    }
}

/// Under X.
pub const HITS_DESKTOP: [HitRatio; 3] = [
    hits(128, 143, 230),
    hits(512, 138, 248),
    hits(1024, 130, 253),
];
pub const HITS_CONSOLE: [HitRatio; 2] = [hits(128, 30, 56), hits(1024, 30, 59)];

/// One line of Vivek Goyal's measurements: this many sequential readers, then KB/s and the largest latency in us with
/// windows of 128 KiB and of 512 KiB.
#[derive(Clone, Copy, Debug)]
pub struct Readers {
    /// NR.
    pub readers: u32,
    /// 2.6.33-rc5, 128 KiB.
    pub small: (u64, f64),
    /// 2.6.33-rc5-readahead, 512 KiB.
    pub large: (u64, f64),
}

const fn readers(readers: u32, small: (u64, f64), large: (u64, f64)) -> Readers {
    Readers {
        readers,
        small,
        large,
    }
}

/// HP EVA behind two paths, ext3, cfq, files of 1 GiB, reads of 32 KiB.
pub const EVA: [Readers; 5] = [
    readers(1, (141_768, 130_965.0), (190_302, 97_937.3)),
    readers(2, (131_979, 135_402.0), (185_636, 223_286.0)),
    readers(4, (132_351, 420_733.0), (185_986, 363_658.0)),
    readers(8, (133_152, 455_434.0), (184_352, 428_478.0)),
    readers(16, (130_316, 674_499.0), (185_646, 594_311.0)),
];

/// 5 or 6 SATA disks in stripes behind a hardware RAID controller.
pub const RAID: [Readers; 5] = [
    readers(1, (147_569, 14_369.7), (160_191, 22_752.0)),
    readers(2, (124_716, 243_932.0), (149_343, 184_698.0)),
    readers(4, (123_451, 327_665.0), (147_183, 430_875.0)),
    readers(8, (122_486, 455_102.0), (144_568, 484_045.0)),
    readers(16, (117_645, 1.039_57e6), (137_485, 1.062_57e6)),
];
