//! The two reads with which `blkid` recognises the content of a small device: 1 KiB at offset 0, then 16 KiB at offset 1536.
//!
//! The first read is at the start of the device, and the second seems to continue it. So the kernel of 2010 read 48 KiB instead of the
//! requested 17 KiB. On a slow device, this readahead costs seconds. The remedy at that time was `advice=random`: the hint RANDOM on the
//! whole device before the first read.
//!
//! The workload has no other reads.
//!
//! ```text
//!   |--1024--|  512  |------------------- 16384 -------------------|   not needed, partly read ahead ...
//! ```

use foreread_core::event::Advice;
use foreread_core::policy::Param;
use foreread_core::policy::spec::SpecError;
use foreread_sim::workload::{Info, Request, Workload, check_size};

/// Offset and length of each read.
const READS: [(u64, u64); 2] = [(0, 1024), (1536, 16_384)];
const MIN_BYTES: u64 = READS[1].0 + READS[1].1;

pub static INFO: Info = Info {
    name: "blkid",
    summary: "two reads, 17 KiB in total, that recognise a small device",
    origin: "Wu Fengguang, 'readahead: limit readahead size for small devices', 2010: Linus Torvalds's report on blkid",
    least_bytes: MIN_BYTES,
    cache_bytes: None,
    params: &[Param::word(
        "advice",
        &["normal", "random"],
        "normal",
        "the hint on the whole device before the first read",
    )],
    build,
};

fn build(values: &[u64], size: u64, _seed: u64) -> Result<Workload, SpecError> {
    check_size(INFO.name, size, MIN_BYTES)?;
    let hint = (values == [1]).then(|| Request::hint(Advice::Random, 0, size));
    let reads = READS.map(|(offset, len)| Request::read(offset, len));
    Ok(Workload::single(
        INFO.name,
        size,
        1,
        hint.into_iter().chain(reads).collect(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_workload as parse;

    #[test]
    fn the_two_published_reads() {
        let build = |text: &str, size| parse(text).expect("valid").build(size, 0);
        let mut workload = build("blkid", 505_000).expect("fits");
        assert_eq!((workload.reads(), workload.bytes()), (2, 17_408));
        assert_eq!(workload.distinct_bytes(4096), 20_480);
        let mut requests = vec![Request::read(0, 1024), Request::read(1536, 16_384)];
        assert_eq!(workload.jobs[0].requests, requests);
        workload = build("blkid:advice=random", 505_000).expect("fits");
        requests.insert(0, Request::hint(Advice::Random, 0, 505_000));
        assert_eq!(workload.jobs[0].requests, requests);
        let error = build("blkid", MIN_BYTES - 1).expect_err("too small");
        let expected = "blkid: size=17919 is less than the 17920 bytes that it needs";
        assert_eq!(error.to_string(), expected);
    }
}
