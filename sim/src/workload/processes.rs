//! Several concurrent processes of three kinds, each with its own open file descriptions: the reads of a busy machine.
//!
//! ```text
//!   sequential   its own file       |--32K--|--32K--|--32K--| ...               copies or plays something
//!   random       one file for all     |4K|      |4K|   |4K|   ...              look-ups in a database
//!   grep         its own files      open |-32K-|rest| close  open |rest| close  searches a tree
//! ```
//!
//! Each kind of process needs a different readahead, and all processes share the cache and the device. The workload therefore shows whether
//! a policy makes one kind of process faster by taking cache or device time from another kind. The sequential files have half of the
//! workload's size, and the database and the trees have a quarter each. Each tree has as many files as fit, with the file sizes of the
//! workload `tree`. All processes start at the same time, and each reads all of its data. A random process reads as many records as fit in
//! a quarter of a sequential file, and reads each record at most once.
//!
//! The workload has no pauses, and no two processes share an open file description.

use super::random::distinct;
use super::tree::{sizes, whole};
use super::{Info, Job, Request, Workload, given, too_small};
use crate::rng::Rng;
use foreread_core::policy::Param;
use foreread_core::policy::spec::SpecError;

/// Bytes of a read of the sequential and grep processes, and of the random ones.
const RECORD: u64 = 32 << 10;
const SMALL_RECORD: u64 = 4 << 10;
/// Median and 0.99 quantile of the sizes of files in a tree.
const TREE_BYTES: (u64, u64) = (4 << 10, 128 << 10);
/// Maximum number of files in a tree: open descriptions are numbered, and the processes share the numbers.
const TREE_FILES: u64 = 4000;
/// Maximum number of processes of a kind.
const MAX_PROCESSES: u64 = 64;

const fn processes(key: &'static str, help: &'static str) -> Param {
    Param::count(key, "2", (0, MAX_PROCESSES), help)
}

pub static INFO: Info = Info {
    name: "processes",
    summary: "concurrent processes that read sequentially, randomly, and through a tree of small files",
    origin: "a machine with one setting for different programs; invented",
    least_bytes: 16 << 20,
    cache_bytes: None,
    params: &[
        processes("sequential", "processes that read a file sequentially"),
        processes("random", "processes that read random records of one file"),
        processes("grep", "processes that read small files whole"),
    ],
    build,
};

fn build(values: &[u64], size: u64, seed: u64) -> Result<Workload, SpecError> {
    let [sequential, random, grep] = given(values);
    let long = size / 2 / sequential.max(1) / RECORD * RECORD;
    let database = size / 4 / SMALL_RECORD * SMALL_RECORD;
    let lookups = (long / 4 / SMALL_RECORD).min(database / SMALL_RECORD);
    if lookups == 0 {
        let why = "is too small for all processes".to_string();
        return Err(too_small(INFO.name, size, why));
    }
    if sequential + random + grep == 0 {
        return Err(SpecError::value(INFO.name, "sequential", sequential, "leaves no process"));
    }
    let reads = (sequential * long + grep * size / 4) / RECORD + random * lookups;
    super::check_reads(INFO.name, SMALL_RECORD, reads)?;
    let mut rng = Rng::new(seed);
    // The database is file 0. The open descriptions of processes with a single file are numbered from 0, too.
    let mut workload = Workload::on_files(INFO.name, vec![database]);
    for n in 0..random {
        let read = |slot| Request::read(slot * SMALL_RECORD, SMALL_RECORD);
        let requests = distinct(database / SMALL_RECORD, lookups, rng.bits())
            .map(read)
            .collect();
        workload.then(&mut None, Job::new(0, n as u32, requests));
    }
    for _ in 0..sequential {
        add(&mut workload, &mut None, random, long);
    }
    for _ in 0..grep {
        let mut last = None;
        for bytes in sizes(&mut rng, TREE_FILES, TREE_BYTES, size / 4 / grep) {
            add(&mut workload, &mut last, random, bytes);
        }
    }
    Ok(workload)
}

/// Adds a file that is read whole through a new open description, numbered after those of the random processes.
fn add(workload: &mut Workload, last: &mut Option<u32>, opens: u64, bytes: u64) {
    let file = workload.files.len() as u32;
    workload.files.push(bytes);
    let job = whole(file, bytes, RECORD);
    workload.then(
        last,
        Job {
            open: opens as u32 + file,
            ..job
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::built;

    #[test]
    fn every_process_has_its_part_and_its_own_opens() {
        let size = 256 << 20;
        let workload = built("processes", size, 1);
        let begin_at_once = workload.jobs.iter().filter(|j| j.after.is_none()).count();
        assert_eq!(begin_at_once, 6);
        let read_by = |jobs: &[Job]| {
            let reads = jobs.iter().flat_map(|j| &j.requests);
            reads.map(|r| r.len).sum::<u64>()
        };
        let (random, rest) = workload.jobs.split_at(2);
        let (sequential, grep) = rest.split_at(2);
        assert_eq!((read_by(sequential), read_by(random)), (size / 2, size / 8));
        assert!(
            random
                .iter()
                .all(|j| j.file == 0 && j.requests.iter().all(|r| r.len == 4096))
        );
        assert_ne!(random[0].requests, random[1].requests);
        let searched = read_by(grep);
        assert!(
            (size / 4 / 10 * 9..=size / 4).contains(&searched),
            "{searched}"
        );
        assert!(grep.len() > 4000, "{}", grep.len());
        let mut opens: Vec<u32> = workload.jobs.iter().map(|j| j.open).collect();
        opens.sort_unstable();
        opens.dedup();
        let jobs = workload.jobs.len();
        assert_eq!(opens.len(), jobs, "one open description, two processes");
    }

    #[test]
    fn any_kind_may_be_left_out() {
        for (text, files) in [
            ("processes:random=0,grep=0", 3),
            ("processes:sequential=0,grep=0", 1),
            ("processes:grep=0", 3),
        ] {
            assert_eq!(built(text, 64 << 20, 1).files.len(), files, "{text}");
        }
    }
}
