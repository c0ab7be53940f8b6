//! One reader that reads sequentially, skips some records, and reads on, as a program does that leaves out parts of its input.
//!
//! The reads are nearly sequential. A policy that gives up the stream at a skip loses the data that it has read ahead, and starts
//! with a small window each time.
//!
//! Reads only go forward and do not overlap.
//!
//! ```text
//!   |--|--|--|--| read in order |--|     |--|--|--|--| ...
//!   ├────────── read ─────────────┤ skip ├─── read ───
//! ```

use super::{Info, MAX_READS, Request, Workload, check_reads, given, record};
use foreread_core::policy::Param;
use foreread_core::policy::spec::SpecError;

pub static INFO: Info = Info {
    name: "skip",
    summary: "one reader, sequential with gaps: reads 399 records, skips 99",
    origin: "the pattern that users of mountpoint-s3 report; the size of a record is chosen here",
    least_bytes: 1,
    cache_bytes: None,
    params: &[
        record("4K"),
        Param::count("read", "399", (1, MAX_READS), "reads in a row"),
        Param::count("skip", "99", (0, MAX_READS), "records skipped after that"),
    ],
    build,
};

fn build(values: &[u64], size: u64, _seed: u64) -> Result<Workload, SpecError> {
    let [record, read, skip] = given(values);
    let records = size.div_ceil(record);
    let period = read + skip;
    let reads = records / period * read + (records % period).min(read);
    check_reads(INFO.name, record, reads)?;
    let request = |n| Request::record(n / read * period + n % read, record, size);
    let requests = (0..reads).map(request).collect();
    Ok(Workload::single(INFO.name, size, 1, requests))
}

#[cfg(test)]
mod tests {
    use crate::workload::{Request, built};

    /// The records of a file of `size` bytes that are read.
    fn records(text: &str, size: u64) -> Vec<u64> {
        let workload = built(text, size, 0);
        let reads = workload.jobs[0].requests.iter();
        let inside = |r: &Request| r.offset + r.len <= size && r.len > 0;
        assert!(reads.clone().all(inside));
        reads.map(|r| r.offset / 4096).collect()
    }

    #[test]
    fn reads_some_and_skips_some() {
        let of = |size| records("skip:read=3,skip=2", size);
        assert_eq!(of(13 * 4096), [0, 1, 2, 5, 6, 7, 10, 11, 12]);
        assert_eq!(of(14 * 4096), of(13 * 4096));
        assert_eq!(of(6 * 4096 + 1), [0, 1, 2, 5, 6]);
        assert_eq!(records("skip:read=3,skip=0", 4 * 4096), [0, 1, 2, 3]);
    }

    #[test]
    fn the_reported_pattern_is_the_default() {
        let workload = built("skip", 2 * 498 * 4096, 0);
        assert_eq!(workload.reads(), 2 * 399);
        let pairs = workload.jobs[0].requests.windows(2);
        let gaps = pairs.map(|w| w[1].offset - w[0].offset - w[0].len);
        assert!(gaps.filter(|gap| *gap != 0).eq([99 * 4096]));
    }
}
