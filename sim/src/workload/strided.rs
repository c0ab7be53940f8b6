//! One reader reads a record at the start of every stride (a fixed distance), to the end of the file.
//!
//! Examples are a column of a table with fixed-size rows, and the headers of a container. The next read is predictable from the earlier
//! reads, but it is not adjacent to them. A policy that takes the reads for a sequential stream also reads the gaps; a policy that expects
//! adjacent reads does not read ahead.
//!
//! Records do not overlap.
//!
//! ```text
//!   |--1--|         |--2--|         |--3--|
//!   ├─record┤
//!   ├──── stride ───┤
//! ```

use super::{Info, Request, Workload, check_reads, given, record};
use foreread_core::policy::Param;
use foreread_core::policy::spec::SpecError;
use foreread_core::units::MAX_OFFSET;

pub static INFO: Info = Info {
    name: "strided",
    summary: "one reader, a record at every stride",
    origin: "invented here: the gap that ZFS and mountpoint-s3 users ask their readahead to step over",
    least_bytes: 1,
    cache_bytes: None,
    params: &[
        record("64K"),
        Param::bytes(
            "stride",
            "512K",
            (1, MAX_OFFSET),
            "bytes from one read to the next, at least the record",
        ),
    ],
    build,
};

fn build(values: &[u64], size: u64, _seed: u64) -> Result<Workload, SpecError> {
    let [record, stride] = given(values);
    if stride < record {
        return Err(SpecError::value(INFO.name, "stride", stride, format!("is less than the record of {record} bytes; reads would overlap")));
    }
    let reads = size.div_ceil(stride);
    check_reads(INFO.name, record, reads)?;
    let read = |n| {
        let offset = n * stride;
        Request::read(offset, record.min(size - offset))
    };
    let requests = (0..reads).map(read).collect();
    Ok(Workload::single(INFO.name, size, 1, requests))
}

#[cfg(test)]
mod tests {
    use crate::workload::{Request, built};

    #[test]
    fn a_record_at_every_stride() {
        let workload = built("strided:record=4K, stride=10000", 22_000, 0);
        let read = Request::read;
        assert_eq!(
            workload.jobs[0].requests,
            [read(0, 4096), read(10_000, 4096), read(20_000, 2000)]
        );
    }
}
