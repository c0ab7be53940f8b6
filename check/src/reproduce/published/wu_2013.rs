//! [Wu 2013]: Wu Fengguang, August 2013, "readahead: make context readahead more conservative".
//!
//! Never: a figure of another publication.

/// Taobao's queries a second, the words of `linux-3.12:context=`, in the order printed: fastest first.
pub const QPS: [(&str, f64); 4] = [
    ("off", 7536.0),
    ("conservative", 7129.0),
    ("slow-ramp", 6717.0),
    ("original", 5581.0),
];

/// Which read of the neighbours N, N+1, N+2 starts readahead: "start RA on the 3rd read", and before "whenever reading
/// page N+1 when it happen to read N recently". Of `slow-ramp` the post says that its size alone is another.
pub(crate) const STARTS: [(&str, f64); 3] =
    [("original", 2.0), ("slow-ramp", 2.0), ("conservative", 3.0)];

/// One line of Miao Xie's sysbench, random reads of 64 KiB in a file of 2 GB, one thread: MB/s before and after.
#[derive(Clone, Copy, Debug)]
pub struct Sysbench {
    /// `SSD` or `hard disk`.
    pub device: &'static str,
    /// The file system.
    pub fs: &'static str,
    /// Original context readahead.
    pub before: f64,
    /// The conservative one.
    pub after: f64,
}

const fn sysbench(device: &'static str, fs: &'static str, before: f64, after: f64) -> Sysbench {
    Sysbench {
        device,
        fs,
        before,
        after,
    }
}

/// All four.
pub const SYSBENCH: [Sysbench; 4] = [
    sysbench("SSD", "btrfs", 69.0, 121.0),
    sysbench("SSD", "ext4", 104.0, 121.0),
    sysbench("hard disk", "btrfs", 10.65, 10.09),
    sysbench("hard disk", "ext4", 9.98, 10.04),
];
/// Size of the file: "2GB".
pub(crate) const SYSBENCH_BYTES: u64 = 2 << 30;
/// `--file-block-size=64K`.
pub(crate) const SYSBENCH_RECORD: u64 = 64 << 10;
/// `--max-requests=10000`: 625 MiB are 10,000 of them.
pub(crate) const SYSBENCH_READS: u64 = 10_000;
/// "read IO amount: 625MB".
pub(crate) const SYSBENCH_MIB: u64 = 625;
