//! One reader reads a file from its end to its start.
//!
//! Programs that read like this are `tac`, a search for the last entries of a log, and a program that reads an index at the end of a
//! container file. All data is needed, but not in the order that readahead expects.
//!
//! Records have no gaps between them and do not overlap.
//!
//! ```text
//!   |--3--|--2--|-1-|
//! ```

use super::{Info, Request, Workload, check_reads, given, record};
use foreread_core::policy::spec::SpecError;

pub static INFO: Info = Info {
    name: "backward",
    summary: "one reader, the whole file from its end to its start",
    origin: "invented here: the order that forward readahead cannot follow",
    least_bytes: 1,
    cache_bytes: None,
    params: &[record("64K")],
    build,
};

fn build(values: &[u64], size: u64, _seed: u64) -> Result<Workload, SpecError> {
    let [record] = given(values);
    let reads = size.div_ceil(record);
    check_reads(INFO.name, record, reads)?;
    let read = |n| Request::record(n, record, size);
    let requests = (0..reads).rev().map(read).collect();
    Ok(Workload::single(INFO.name, size, 1, requests))
}

#[cfg(test)]
mod tests {
    use crate::workload::{Request, built};

    #[test]
    fn covers_the_file_once_from_its_end() {
        let read = Request::read;
        let workload = built("backward:record=4K", 10_000, 0);
        assert_eq!(
            workload.jobs[0].requests,
            [read(8192, 1808), read(4096, 4096), read(0, 4096)]
        );
        assert_eq!(built("backward", 1, 0).jobs[0].requests, [read(0, 1)]);
    }
}
