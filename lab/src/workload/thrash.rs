//! More sequential readers than the cache has room for: pages that were read ahead leave before their reader comes.
//!
//! A reader that keeps windows of `W` bytes has up to two of them in the cache, and what leaves is what was touched
//! least recently. So the readers thrash as soon as `streams * 2 * W` is more than the cache: with windows of 128 KiB
//! and a cache of 16 MiB (`--cache 16M`) from 64 readers on, with 512 KiB from 16, with 1 MiB from 8. In a cache of
//! 256 MiB the default number of streams does not thrash, and the workload is `readers`.
//!
//! ```text
//!   cache   |──window A──|──window B──|──window C──| ... |──window Z──|
//!            ▲ leaves for the next of Z, before A has come to it
//! ```
//!
//! Never: two readers of one file, a pause, or a read that is not in order.

use super::Info;
use super::readers::{BYTES, RECORD, build_streams, streams};

/// What there is to know of it.
pub static INFO: Info = Info {
    name: "thrash",
    summary: "so many sequential readers that their windows do not fit into a cache of 16 MiB (--cache 16M)",
    origin: "Wu Fengguang 2010, the posting of readers: 'readahead thrashing', described and not measured",
    least_bytes: 128 * (32 << 10),
    params: &[streams("128"), RECORD, BYTES],
    build: |values, size, _seed| build_streams(INFO.name, values, size),
};

#[cfg(test)]
mod tests {
    use crate::workload::parse;

    #[test]
    fn windows_of_128_kib_do_not_fit_into_16_mib() {
        let workload = parse("thrash").expect("valid").build(1 << 30, 0).expect("fits");
        assert!(workload.jobs.len() * 2 * (128 << 10) > 16 << 20);
        assert_eq!((workload.reads(), workload.bytes(), workload.files.len()), (32_768, 1 << 30, 128));
        let error = parse("thrash").expect("valid").build(1 << 20, 0).expect_err("too small").to_string();
        assert_eq!(error, "thrash: size=1048576 is less than 128 records of 32768 bytes");
    }
}
