//! More slow readers than fit with their readahead windows into the cache: pages that were read ahead are evicted before their reader reads
//! them.
//!
//! A reader whose readahead windows have `W` bytes has up to two windows in the cache, and the least recently touched pages are
//! evicted. The readers therefore evict each other's pages (thrash) as soon as `streams * 2 * W` is more than the size of the cache. With
//! the default cache of 16 MiB, readers thrash from 64 readers on with windows of 128 KiB, from 16 readers on with 512 KiB, and from 8
//! readers on with 1 MiB.
//!
//! The readers pause between reads, like clients of a server that display or store the data. If the readers never paused, all of them would
//! wait for the device. The readahead of such readers would be in flight rather than in the cache, and be stopped by the limit on bytes in
//! flight (half of the cache), not by eviction.
//!
//! ```text
//!   cache   |──window A──|──window B──|──window C──| ... |──window Z──|
//!            ▲ evicted for the next window of Z, before A has read it
//! ```
//!
//! No two readers share a file, and all reads are sequential.

use super::readers::{BYTES, RECORD, build_streams, streams};
use super::{Info, think};

pub static INFO: Info = Info {
    name: "thrash",
    summary: "slow sequential readers whose windows do not fit into its cache of 16 MiB",
    origin: "Wu Fengguang 2010, the posting of readers: it mentions readahead thrashing without measurements; invented",
    least_bytes: 96 * (32 << 10),
    cache_bytes: Some(16 << 20),
    params: &[streams("96"), RECORD, BYTES, think("500000")],
    build: |values, size, _seed| build_streams(INFO.name, values, size),
};

#[cfg(test)]
mod tests {
    #[test]
    fn windows_of_128_kib_do_not_fit_into_16_mib() {
        let workload = crate::workload::built("thrash", 1 << 30, 0);
        assert!(workload.jobs.len() * 2 * (128 << 10) > 16 << 20);
        let mut reads = workload.jobs.iter().flat_map(|j| &j.requests);
        assert!(reads.all(|r| r.think_ns == 500_000_000));
    }
}
