//! One program that reads new files completely, one after the other. A policy can apply what it has learned about the storage to
//! each new file.
//!
//! No file is in a folder listing, so the next file is unknown until it is opened. A policy that keeps its state separately for each file
//! begins with small windows in each file.
//!
//! ```text
//!   file 0  |--|--|--| ... |   file 1  |--|--|--| ... |   file 2 ...
//! ```
//!
//! Loaders of training data (in shards) read like this, and so do merges of sorted runs.

use super::{Info, Job, Request, Workload, check_reads, equal_files, given, record, whole_records};
use foreread_core::policy::Param;
use foreread_core::policy::spec::SpecError;
use foreread_core::units::MAX_OFFSET;

pub static INFO: Info = Info {
    name: "new-files",
    summary: "one program reads new files sequentially, one after the other, without a listing",
    origin: "shards of training data; the figures are chosen here",
    least_bytes: 1 << 20,
    cache_bytes: None,
    params: &[
        record("64K"),
        Param::bytes("file", "8M", (4096, MAX_OFFSET), "bytes of a file"),
    ],
    build,
};

fn build(values: &[u64], size: u64, _seed: u64) -> Result<Workload, SpecError> {
    let [record, file] = given(values);
    whole_records(INFO.name, file.min(size), record)?;
    check_reads(INFO.name, record, size.div_ceil(record))?;
    let sizes = equal_files(size, file);
    let (mut workload, mut last) = (Workload::on_files(INFO.name, sizes.clone()), None);
    for (n, bytes) in (0..).zip(sizes) {
        let reads = (0..bytes.div_ceil(record)).map(|at| Request::record(at, record, bytes));
        workload.then(&mut last, Job::new(n, n, reads.collect()));
    }
    Ok(workload)
}

#[cfg(test)]
mod tests {
    use crate::workload::built;

    #[test]
    fn each_file_is_read_whole_before_the_next() {
        let workload = built("new-files", 20 << 20, 1);
        assert_eq!(workload.files, [8 << 20, 8 << 20, 4 << 20]);
        assert!(!workload.listed && workload.jobs[1].after == Some(0));
    }
}
