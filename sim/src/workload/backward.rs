//! One reader, from the end of the file to its start.
//!
//! What reads backward: a log searched for its last entries, an index at the end of a container, `tac`. Everything
//! is wanted, nothing in the order that readahead looks for.
//!
//! Never: a gap, an overlap.
//!
//! ```text
//!   |--3--|--2--|-1-|
//! ```

use super::{Info, Request, Workload, check_reads};
use foreread_core::policy::spec::SpecError;
use foreread_core::policy::{Param, Unit};
use foreread_core::units::MAX_OFFSET;

const PARAMS: &[Param] = &[Param {
    key: "record",
    unit: Unit::Bytes,
    default: "64K",
    range: (1, MAX_OFFSET),
    help: "bytes of a read",
}];

pub static INFO: Info = Info {
    name: "backward",
    summary: "one reader, the whole file from its end to its start",
    origin: "invented here: the order that forward readahead cannot follow",
    least_bytes: 1,
    cache_bytes: None,
    params: PARAMS,
    build,
};

fn build(values: &[u64], size: u64, _seed: u64) -> Result<Workload, SpecError> {
    let [record] = *values else {
        unreachable!("one parameter")
    };
    let reads = size.div_ceil(record);
    check_reads(INFO.name, record, reads)?;
    let read = |n| {
        let offset = n * record;
        Request::read(offset, record.min(size - offset))
    };
    Ok(Workload::single(
        INFO.name,
        size,
        1,
        (0..reads).rev().map(read).collect(),
    ))
}

#[cfg(test)]
mod tests {
    use crate::workload::{MAX_READS, Request, parse};

    #[test]
    fn covers_the_file_once_from_its_end() {
        let build = |text: &str, size| parse(text).expect("valid").build(size, 0);
        let read = Request::read;
        let workload = build("backward:record=4K", 10_000).expect("fits");
        assert_eq!(
            workload.jobs[0].requests,
            [read(8192, 1808), read(4096, 4096), read(0, 4096)]
        );
        assert_eq!(build("backward", 1 << 20).expect("fits").reads(), 16);
        assert_eq!(
            build("backward", 1).expect("fits").jobs[0].requests,
            [read(0, 1)]
        );
        assert_eq!(build("backward", 0).expect("empty").reads(), 0);
        let error = build("backward:record=1", MAX_READS + 1)
            .expect_err("too many")
            .to_string();
        assert!(
            error.ends_with("record=1 makes 33554433 reads of this size, more than 33554432"),
            "{error}"
        );
    }
}
