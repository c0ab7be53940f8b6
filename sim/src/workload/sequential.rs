//! One reader, from the first byte of the file to the last.
//!
//! What every readahead is for, and the case in which it must not cost anything. Never: a gap, an overlap.
//!
//! ```text
//!   |--record--|--record--|--record--|-rest-|
//! ```

use super::{Info, Request, Workload, check_reads};
use foreread_core::policy::spec::SpecError;
use foreread_core::policy::{Param, Unit};
use foreread_core::units::MAX_OFFSET;

const PARAMS: &[Param] = &[
    Param {
        key: "record",
        unit: Unit::Bytes,
        default: "128K",
        range: (1, MAX_OFFSET),
        help: "bytes of a read",
    },
    Param {
        key: "depth",
        unit: Unit::Count,
        default: "1",
        range: (1, 1024),
        help: "reads outstanding",
    },
    Param {
        key: "think",
        unit: Unit::Count,
        default: "0",
        range: (0, 1_000_000_000),
        help: "us between reads",
    },
];

pub static INFO: Info = Info {
    name: "sequential",
    summary: "one reader, the whole file in order",
    origin: "the common case",
    least_bytes: 1,
    cache_bytes: None,
    params: PARAMS,
    build,
};

fn build(values: &[u64], size: u64, _seed: u64) -> Result<Workload, SpecError> {
    let [record, depth, think_us] = *values else {
        unreachable!("three parameters")
    };
    let read = |n| {
        let offset = n * record;
        Request {
            think_ns: think_us * 1000,
            ..Request::read(offset, record.min(size - offset))
        }
    };
    let reads = size.div_ceil(record);
    check_reads(INFO.name, record, reads)?;
    Ok(Workload::single(
        INFO.name,
        size,
        depth as u32,
        (0..reads).map(read).collect(),
    ))
}

#[cfg(test)]
mod tests {
    use crate::workload::{Request, parse};

    #[test]
    fn covers_the_file_once_in_order() {
        let workload = parse("sequential:record=4K,depth=3,think=7")
            .expect("valid")
            .build(10_000, 0)
            .expect("fits");
        let request = |offset, len| Request {
            think_ns: 7000,
            ..Request::read(offset, len)
        };
        assert_eq!(
            workload.jobs[0].requests,
            [request(0, 4096), request(4096, 4096), request(8192, 1808)]
        );
        assert_eq!(workload.jobs[0].depth, 3);
        assert_eq!(
            parse("sequential")
                .expect("valid")
                .build(0, 0)
                .expect("empty")
                .reads(),
            0
        );
    }
}
