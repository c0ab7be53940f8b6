//! A tree of mostly small files, which are opened, read completely and closed, one after the other, as by `grep -r` or `tar`.
//!
//! For small files, a readahead window that suits a large file is useless, because most files end before readahead has begun. Readahead
//! within a file can only help in the few large files.
//!
//! The sizes are lognormal: half of the files are smaller than `median`, and one in a hundred is larger than `p99`. The defaults (4 KiB,
//! 128 KiB) are general knowledge of source trees, and were not measured; with them, the mean is 12 KiB. Opening a file costs nothing here;
//! on a real disk it reads the directory and the inode. The program has listed the folder before it opens the first file, so the source
//! knows the order of the files ([`Workload::listed`]).
//!
//! ```text
//!   open |--record--|-rest-| close   open |rest| close   open |--record--|--record--|-rest-| close ...
//! ```
//!
//! Files are added to the tree until their total size would exceed the size of the workload.

use super::{Info, Job, MAX_READS, Request, Workload, given, too_small};
use crate::rng::Rng;
use foreread_core::machine::MAX_IDS;
use foreread_core::policy::Param;
use foreread_core::policy::spec::SpecError;

pub static INFO: Info = Info {
    name: "tree",
    summary: "many small files, each opened and read whole, one after the other",
    origin: "the case that readahead cannot help; sizes from general knowledge of source trees",
    least_bytes: 128 << 20,
    cache_bytes: None,
    params: &[
        Param::count(
            "files",
            "5000",
            (1, MAX_IDS as u64),
            "files; fewer if the size has no room for them",
        ),
        Param::bytes(
            "median",
            "4K",
            (1, 1 << 30),
            "half of the files are smaller",
        ),
        Param::bytes(
            "p99",
            "128K",
            (1, 1 << 40),
            "one file in a hundred is larger; not below median",
        ),
        Param::bytes("record", "32K", (512, 1 << 30), "bytes of a read"),
    ],
    build,
};

fn build(values: &[u64], size: u64, seed: u64) -> Result<Workload, SpecError> {
    let [files, median, p99, record] = given(values);
    if p99 < median {
        return Err(SpecError::value(INFO.name, "p99", p99, format!("is less than median={median}")));
    }
    let sizes = sizes(&mut Rng::new(seed), files, (median, p99), size);
    if sizes.is_empty() {
        let why = "is too small for the first file".to_string();
        return Err(too_small(INFO.name, size, why));
    }
    let mut workload = Workload {
        listed: true,
        ..Workload::on_files(INFO.name, sizes)
    };
    let mut reads = 0;
    let mut last = None;
    for file in 0..workload.files.len() as u32 {
        let job = whole(file, workload.files[file as usize], record);
        reads += job.requests.len() as u64;
        super::check_reads(INFO.name, record, reads)?;
        workload.then(&mut last, job);
    }
    Ok(workload)
}

/// Lognormal sizes: at most `files` of them, and at most `room` bytes in total.
pub(super) fn sizes(rng: &mut Rng, files: u64, (median, p99): (u64, u64), room: u64) -> Vec<u64> {
    let mut left = room;
    let mut draw = || {
        let bytes = rng.lognormal(median as f64, p99 as f64).ceil() as u64;
        left = left.checked_sub(bytes)?;
        Some(bytes)
    };
    (0..files.min(MAX_READS)).map_while(|_| draw()).collect()
}

/// A job that reads `file` of `size` bytes from its first byte to its last; no other job has opened it.
pub(super) fn whole(file: u32, size: u64, record: u64) -> Job {
    let read = |n: u64| Request::record(n, record, size);
    Job::new(file, file, (0..size.div_ceil(record)).map(read).collect())
}

#[cfg(test)]
mod tests {
    use crate::workload::built;

    #[test]
    fn every_file_is_read_whole_after_the_one_before() {
        let workload = built("tree", 1 << 30, 1);
        assert_eq!((workload.files.len(), workload.jobs.len()), (5000, 5000));
        let all: u64 = workload.files.iter().sum();
        assert_eq!((workload.bytes(), workload.distinct_bytes(512)), (all, all));
        for (n, job) in workload.jobs.iter().enumerate() {
            let number = n as u32;
            let expected = (number, number, number.checked_sub(1));
            assert_eq!((job.file, job.open, job.after), expected);
            let bytes: u64 = job.requests.iter().map(|r| r.len).sum();
            assert_eq!(bytes, workload.files[n]);
            let mut pairs = job.requests.windows(2);
            assert!(pairs.all(|w| w[0].offset + w[0].len == w[1].offset));
        }
    }

    #[test]
    fn sizes_are_those_of_their_distribution() {
        let mut sizes = built("tree:files=20000", 10 << 30, 1).files;
        assert_eq!(sizes.len(), 20_000);
        assert!(sizes.iter().all(|&s| s > 0));
        let mean = sizes.iter().sum::<u64>() / 20_000;
        assert!((11 << 10..14 << 10).contains(&mean), "{mean}");
        sizes.sort_unstable();
        let off = |at: usize, bytes: u64| (sizes[at] as f64 / bytes as f64 - 1.0).abs();
        let (median, p99) = (off(10_000, 4096), off(19_800, 128 << 10));
        assert!(median < 0.05 && p99 < 0.1, "{median} {p99}");
    }

    #[test]
    fn a_tree_ends_at_its_size_limit() {
        let workload = built("tree", 1 << 20, 1);
        assert!(workload.files.len() < 1000 && workload.bytes() <= 1 << 20);
    }
}
