//! [Bhattacharya 2003]: Suparna Bhattacharya, August 2003, "Readahead issues and AIO read speedup".
//!
//! Never: a figure of another publication.

/// MB that each run reads, of 2^20 bytes: "1024.00 MB".
pub(crate) const RUN_MIB: f64 = 1024.0;
/// One run of aio-stress: what, MB/s as printed (of 2^20 bytes: 1024.00 MB in 47.74 s are 21.45), seconds.
pub const AIO: [(&str, f64, f64); 4] = [
    ("sync", 8.54, 119.91),
    ("broken", 2.40, 426.10),
    ("fixed", 21.45, 47.74),
    ("direct", 17.71, 57.81),
];
/// Bytes of the file, all of which are read.
pub(crate) const FILE_BYTES: u64 = 1 << 30;
/// Bytes of a record.
pub const RECORD: u64 = 64 << 10;
/// Requests outstanding.
pub const DEPTH: u32 = 64;
/// "ios per iteration 8", "max io_submit 8".
pub const BATCH: u32 = 8;
/// "Throughput is now 2.5x that in vanilla 2.6.0-test2", with its digits.
pub(crate) const TIMES_VANILLA: &str = "2.5";
