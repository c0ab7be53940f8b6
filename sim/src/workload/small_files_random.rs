//! One program that reads random records of a small file, then of the next small file.
//!
//! A policy may decide to read a file of a few MiB completely. If the program needs only a twentieth of the file, reading all of
//! it takes longer than no readahead at all, except on storage with a very long latency.
//!
//! ```text
//!   file 0   |  |4|     |1|   |3|  |2|  |        `percent` of its records, in any order
//!   file 1   |    |2| |3|        |1|    |        each file has `file` bytes, the last one has the rest
//! ```
//!
//! Readers of indexes, dictionaries and small databases behave like this.

use super::Job;
use super::random::distinct;
use super::{Info, Request, Workload, check_reads, equal_files, given, record, whole_records};
use crate::rng::Rng;
use foreread_core::policy::Param;
use foreread_core::policy::spec::SpecError;
use foreread_core::units::MAX_OFFSET;

pub static INFO: Info = Info {
    name: "small-files-random",
    summary: "one program, random records of one small file after the other",
    origin: "indexes and small databases; the figures are chosen here",
    least_bytes: 1 << 20,
    cache_bytes: None,
    params: &[
        record("4K"),
        Param::bytes("file", "16M", (4096, MAX_OFFSET), "bytes of a file"),
        Param::count(
            "percent",
            "5",
            (1, 100),
            "percent of a file's records that are read",
        ),
    ],
    build,
};

fn build(values: &[u64], size: u64, seed: u64) -> Result<Workload, SpecError> {
    let [record, file, percent] = given(values);
    whole_records(INFO.name, file.min(size), record)?;
    let sizes = equal_files(size, file);
    let wanted = |bytes: u64| (bytes / record * percent).div_ceil(100);
    check_reads(
        INFO.name,
        record,
        sizes.iter().map(|bytes| wanted(*bytes)).sum(),
    )?;
    let mut rng = Rng::new(seed);
    let (mut workload, mut last) = (Workload::on_files(INFO.name, sizes.clone()), None);
    for (n, bytes) in (0..).zip(sizes) {
        let places = distinct(bytes / record, wanted(bytes), rng.bits());
        let reads = places.map(|place| Request::read(place * record, record));
        workload.then(&mut last, Job::new(n, n, reads.collect()));
    }
    Ok(workload)
}

#[cfg(test)]
mod tests {
    use crate::workload::built;

    #[test]
    fn a_twentieth_of_each_file_once() {
        let workload = built("small-files-random", 40 << 20, 1);
        assert_eq!(workload.files, [16 << 20, 16 << 20, 8 << 20]);
        let reads = workload.jobs.iter().map(|job| job.requests.len());
        assert!(reads.eq([205, 205, 103]));
        let distinct = workload.distinct_bytes(4096);
        assert_eq!(distinct, workload.bytes(), "no record twice");
        assert!(!workload.listed && workload.jobs[2].after == Some(1));
    }
}
