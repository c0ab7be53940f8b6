//! Reads of large random records, of which many are outstanding at the same time: `aio-stress` as it was run in 2003.
//!
//! This workload checks that a policy still reads each request in one piece after it has stopped reading ahead. The published run has a
//! file of 1 GiB, records of 64 KiB and depth 64, and reads each record once.
//!
//! One kernel of the published table (plain 2.6.0-test2) had no asynchronous buffered reads: each `aio_read` ended before the next call
//! began. For the results of this kernel, run the workload with `depth=1`; for those of the patched kernels, with the default depth.
//!
//! The original program submits its requests eight at a time ("ios per iteration 8, max io_submit 8"). When eight have ended, it submits
//! eight more, so 56 to 64 are outstanding. The parameter `batch=8` does the same; by default a request is submitted whenever another
//! request ends.
//!
//! If `places=again` is set, a read begins at any page of the file, independently of other reads. The program `aio-stress` chooses its
//! reads in this way (general knowledge of the program; the posting does not mention it). With `places=again`, reads overlap, and a cache
//! that holds the file serves some of the reads; this is not possible in a run that bypasses the cache.
//!
//! Unless `places=again` is set, no record is read twice, and the rest of the file after the last whole record is not read.
//!
//! ```text
//!   |   |-2-|   |   |-65|   |-1-|   |-4-|   |-3-| ...      1 to 64 are submitted together, 65 when the first of them ends
//! ```

use super::random::distinct;
use super::{Info, MAX_READS, PAGE_BYTES, Request, Workload, given, record, whole_records};
use crate::rng::Rng;
use foreread_core::policy::Param;
use foreread_core::policy::spec::SpecError;

/// The index of the word `again` of `places`.
const AGAIN: u64 = 1;

pub static INFO: Info = Info {
    name: "aio-random",
    summary: "large random records, 64 outstanding, each once",
    origin: "Suparna Bhattacharya, 'Readahead issues and AIO read speedup', linux-kernel 2003: aio-stress, 1 GiB",
    least_bytes: 64 << 10,
    cache_bytes: None,
    params: &[
        record("64K"),
        Param::count(
            "depth",
            "64",
            (1, 1024),
            "reads outstanding; 1 is a kernel without asynchronous reads",
        ),
        Param::count(
            "count",
            "16384",
            (1, MAX_READS),
            "reads; at most one for each record of the file",
        ),
        Param::word(
            "places",
            &["once", "again"],
            "once",
            "once: each record at most once; again: any page each time, as in aio-stress",
        ),
        Param::count(
            "batch",
            "1",
            (1, 1024),
            "reads submitted together, when this many have ended",
        ),
    ],
    build,
};

fn build(values: &[u64], size: u64, seed: u64) -> Result<Workload, SpecError> {
    let [record, depth, count, places, batch] = given(values);
    let slots = whole_records(INFO.name, size, record)?;
    let requests = if places == AGAIN {
        let mut rng = Rng::new(seed);
        let last = (size - record) / PAGE_BYTES;
        (0..count)
            .map(|_| Request::read(rng.below(last + 1) * PAGE_BYTES, record))
            .collect()
    } else {
        let read = |slot| Request::read(slot * record, record);
        distinct(slots, count.min(slots), seed).map(read).collect()
    };
    let mut workload = Workload::single(INFO.name, size, depth as u32, requests);
    workload
        .jobs
        .iter_mut()
        .for_each(|job| job.batch = batch.min(depth) as u32);
    Ok(workload)
}

#[cfg(test)]
mod tests {
    use crate::workload::built;

    #[test]
    fn every_record_of_the_published_file_once() {
        let workload = built("aio-random", 1 << 30, 1);
        let requests = &workload.jobs[0].requests;
        let mut all = requests.iter();
        assert!(all.all(|r| r.offset % 65_536 == 0 && r.len == 65_536));
        let next = requests
            .windows(2)
            .filter(|w| w[0].offset + w[0].len == w[1].offset)
            .count();
        assert!(next < 10, "{next} follow each other: not random");
    }

    #[test]
    fn any_page_each_time() {
        let build = |text: &str, size| built(text, size, 1);
        let workload = build("aio-random:places=again", 1 << 30);
        assert_eq!((workload.reads(), workload.bytes()), (16_384, 1 << 30));
        let requests = &workload.jobs[0].requests;
        let mut all = requests.iter();
        assert!(all.all(|r| r.offset % 4096 == 0 && r.offset + r.len <= 1 << 30));
        assert!(requests.iter().any(|r| r.offset % 65_536 != 0));
        // As many random reads as the file has records cover 1 - 1/e of it.
        let part = workload.distinct_bytes(4096) as f64 / (1u64 << 30) as f64;
        assert!((part - 0.632).abs() < 0.01, "{part}");
        let least = build("aio-random:places=again,count=9", 65_536);
        assert!(least.jobs[0].requests.iter().all(|r| r.offset == 0));
    }

    #[test]
    fn batches_are_no_deeper_than_the_queue() {
        let batch = |text: &str| built(text, 1 << 20, 1).jobs[0].batch;
        let texts = [
            "aio-random",
            "aio-random:batch=8",
            "aio-random:batch=8,depth=1",
        ];
        assert_eq!(texts.map(batch), [1, 8, 1]);
    }
}
