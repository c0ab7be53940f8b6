//! One reader reads a file from the first byte to the last.
//!
//! Readahead exists for such reads, and must not make them slower. Records have no gaps between them and do not overlap.
//!
//! ```text
//!   |--record--|--record--|--record--|-rest-|
//! ```

use super::{Info, Request, Workload, check_reads, given, record, think};
use foreread_core::policy::Param;
use foreread_core::policy::spec::SpecError;

pub static INFO: Info = Info {
    name: "sequential",
    summary: "one reader, the whole file sequentially",
    origin: "the common case",
    least_bytes: 1,
    cache_bytes: None,
    params: &[
        record("128K"),
        Param::count("depth", "1", (1, 1024), "reads outstanding"),
        think("0"),
    ],
    build,
};

fn build(values: &[u64], size: u64, _seed: u64) -> Result<Workload, SpecError> {
    let [record, depth, think_us] = given(values);
    let read = |n| Request::record(n, record, size).think(think_us * 1000);
    let reads = size.div_ceil(record);
    check_reads(INFO.name, record, reads)?;
    let requests = (0..reads).map(read).collect();
    Ok(Workload::single(INFO.name, size, depth as u32, requests))
}

#[cfg(test)]
mod tests {
    use crate::workload::{Request, built};

    #[test]
    fn covers_the_file_once_in_order() {
        let workload = built("sequential:record=4K,depth=3,think=7", 10_000, 0);
        let request = |offset, len| Request::read(offset, len).think(7000);
        assert_eq!(
            workload.jobs[0].requests,
            [request(0, 4096), request(4096, 4096), request(8192, 1808)]
        );
        assert_eq!(workload.jobs[0].depth, 3);
    }
}
