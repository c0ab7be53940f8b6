//! One file is read sequentially, except that in each group of reads, the last read arrives first. The storage receives reads in this order
//! if several threads or clients pass on the reads of one sequential reader.
//!
//! The program itself reads sequentially; the changed order is what a server, a FUSE daemon or an image library receives. For a readahead
//! policy that expects each read to begin where the last read ended, the sequence breaks twice in every group.
//!
//! Reads have no gaps between them and do not overlap. The group at the end of the file may be shorter; its last read still comes first.
//!
//! ```text
//!   distance 1    |--2--|--1--|--4--|--3--|-5-|
//!   distance 3    |--2--|--3--|--4--|--1--|--6--|--7--|--8--|--5--|
//! ```

use super::{Info, Request, Workload, check_reads, given, record};
use foreread_core::policy::Param;
use foreread_core::policy::spec::SpecError;

pub static INFO: Info = Info {
    name: "out-of-order",
    summary: "the whole file sequentially, but one read of each group comes before the others",
    origin: "invented here: the most reported case of lost readahead, reads of one stream sent by several threads",
    least_bytes: 1,
    cache_bytes: None,
    params: &[
        record("128K"),
        Param::count(
            "distance",
            "1",
            (1, 1024),
            "reads that are overtaken; 1: pairs, second before first",
        ),
        Param::count("depth", "1", (1, 1024), "reads outstanding"),
    ],
    build,
};

fn build(values: &[u64], size: u64, _seed: u64) -> Result<Workload, SpecError> {
    let [record, distance, depth] = given(values);
    let reads = size.div_ceil(record);
    check_reads(INFO.name, record, reads)?;
    let group = distance + 1;
    let read = |n: u64| {
        let first = n - n % group;
        let last = (first + group).min(reads) - 1;
        let record_at = if n == first { last } else { n - 1 };
        Request::record(record_at, record, size)
    };
    let requests = (0..reads).map(read).collect();
    Ok(Workload::single(INFO.name, size, depth as u32, requests))
}

#[cfg(test)]
mod tests {
    use crate::workload::built;

    /// The records of a file of `size` bytes in the order in which they are read.
    fn order(text: &str, size: u64) -> Vec<u64> {
        let workload = built(text, size, 0);
        let bytes = [workload.bytes(), workload.distinct_bytes(1)];
        assert_eq!(bytes, [size, size], "all of it, once");
        let reads = workload.jobs[0].requests.iter();
        reads.map(|r| r.offset / 4096).collect()
    }

    #[test]
    fn one_of_each_group_comes_first() {
        assert_eq!(order("out-of-order:record=4K", 5 * 4096), [1, 0, 3, 2, 4]);
        let far =
            |distance, size| order(&format!("out-of-order:record=4K,distance={distance}"), size);
        assert_eq!(far(3, 6 * 4096 - 1), [3, 0, 1, 2, 5, 4]);
        assert_eq!(far(9, 3 * 4096), [2, 0, 1]);
        assert_eq!(order("out-of-order:record=4K", 1), [0]);
        assert!(order("out-of-order", 0).is_empty());
    }
}
