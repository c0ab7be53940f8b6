//! One reader, a record at the start of every stride, to the end of the file.
//!
//! A column of a table of fixed rows, the headers of a container: the next read is predictable, but not from its
//! neighbours. A policy that takes the gaps for a stream reads them too; one that wants reads to touch does nothing.
//!
//! Never: a record that overlaps the next one.
//!
//! ```text
//!   |--1--|         |--2--|         |--3--|
//!   ├─record┤
//!   ├──── stride ───┤
//! ```

use super::{Info, Request, Workload, check_reads};
use foreread_core::policy::spec::SpecError;
use foreread_core::policy::{Param, Unit};
use foreread_core::units::MAX_OFFSET;

const PARAMS: &[Param] = &[
    Param {
        key: "record",
        unit: Unit::Bytes,
        default: "64K",
        range: (1, MAX_OFFSET),
        help: "bytes of a read",
    },
    Param {
        key: "stride",
        unit: Unit::Bytes,
        default: "512K",
        range: (1, MAX_OFFSET),
        help: "bytes from one read to the next, no less than the record",
    },
];

pub static INFO: Info = Info {
    name: "strided",
    summary: "one reader, a record at every stride",
    origin: "invented here: the gap that ZFS and mountpoint-s3 users ask their readahead to step over",
    least_bytes: 1,
    cache_bytes: None,
    params: PARAMS,
    build,
};

fn build(values: &[u64], size: u64, _seed: u64) -> Result<Workload, SpecError> {
    let [record, stride] = *values else {
        unreachable!("two parameters")
    };
    if stride < record {
        return Err(SpecError::Value {
            name: INFO.name.to_string(),
            key: "stride".to_string(),
            value: stride.to_string(),
            why: format!("is less than the record of {record} bytes; reads would overlap"),
        });
    }
    let reads = size.div_ceil(stride);
    check_reads(INFO.name, record, reads)?;
    let read = |n| {
        let offset = n * stride;
        Request::read(offset, record.min(size - offset))
    };
    Ok(Workload::single(
        INFO.name,
        size,
        1,
        (0..reads).map(read).collect(),
    ))
}

#[cfg(test)]
mod tests {
    use crate::workload::{MAX_READS, Request, parse};

    #[test]
    fn a_record_at_every_stride() {
        let build = |text: &str, size| parse(text).expect("valid").build(size, 0);
        let workload = build("strided:record=4K,stride=10000", 22_000).expect("fits");
        let read = Request::read;
        assert_eq!(
            workload.jobs[0].requests,
            [read(0, 4096), read(10_000, 4096), read(20_000, 2000)]
        );
        assert_eq!(
            build("strided:record=4K,stride=10000", 20_000)
                .expect("fits")
                .reads(),
            2
        );
        let default = build("strided", 64 << 20).expect("fits");
        assert_eq!((default.reads(), default.bytes()), (128, 8 << 20));
        assert_eq!(build("strided", 0).expect("empty").reads(), 0);
        // Reads may touch.
        assert_eq!(
            build("strided:record=4K,stride=4K", 8192)
                .expect("fits")
                .bytes(),
            8192
        );
    }

    #[test]
    fn limits() {
        let error = |text: &str, size| {
            parse(text)
                .expect("valid")
                .build(size, 0)
                .expect_err(text)
                .to_string()
        };
        let text = error("strided:record=8K,stride=4K", 1 << 20);
        assert_eq!(
            text,
            "strided: stride=4096 is less than the record of 8192 bytes; reads would overlap"
        );
        let text = error("strided:record=1,stride=2", 2 * MAX_READS + 1);
        assert!(
            text.ends_with("record=1 makes 33554433 reads of this size, more than 33554432"),
            "{text}"
        );
    }
}
