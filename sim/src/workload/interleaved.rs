//! Several sequential streams that read through one open file description, one read of each stream after the other.
//!
//! Each stream reads its own part of the file sequentially. A policy that keeps one state for each open file description sees only
//! jumps; a policy that checks the cached pages around a read can distinguish the streams.
//!
//! No read crosses the border between two parts.
//!
//! ```text
//!   |--1--|--5--|--9--|...  |--2--|--6--|--10-|...  |--3--|--7--|...  |--4--|--8--|...
//!    stream 0                stream 1                stream 2          stream 3
//! ```

use super::{Info, Request, Workload, check_reads, given, record, too_small};
use foreread_core::policy::Param;
use foreread_core::policy::spec::SpecError;

pub static INFO: Info = Info {
    name: "interleaved",
    summary: "several sequential streams through one open description, in turn",
    origin: "the case that one state for each open description cannot follow",
    least_bytes: 1,
    cache_bytes: None,
    params: &[
        Param::count("streams", "4", (1, 1 << 20), "streams that take turns"),
        record("16K"),
    ],
    build,
};

fn build(values: &[u64], size: u64, _seed: u64) -> Result<Workload, SpecError> {
    let [streams, record] = given(values);
    // Parts of equal length in whole records; the remainder at the end of the file is not read.
    let rounds = size / record / streams;
    if rounds == 0 {
        let why = format!("is less than {streams} records of {record} bytes");
        return Err(too_small(INFO.name, size, why));
    }
    check_reads(INFO.name, record, rounds * streams)?;
    let read = |n| {
        let (round, stream) = (n / streams, n % streams);
        Request::read((stream * rounds + round) * record, record)
    };
    Ok(Workload::single(
        INFO.name,
        size,
        1,
        (0..rounds * streams).map(read).collect(),
    ))
}

#[cfg(test)]
mod tests {
    use crate::workload::built;

    #[test]
    fn streams_take_turns() {
        let workload = built("interleaved:streams=3,record=10", 70, 0);
        let offsets: Vec<u64> = workload.jobs[0].requests.iter().map(|r| r.offset).collect();
        assert_eq!(offsets, [0, 20, 40, 10, 30, 50]);
        assert_eq!((workload.jobs.len(), workload.jobs[0].depth), (1, 1));
    }
}
