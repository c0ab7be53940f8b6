//! Several concurrent sequential readers, each with its own file and open file description.
//!
//! Large readahead helps such readers, because while the device reads one reader's window, the other readers wait. The longer the
//! windows are, the less time the disk spends on switching between readers. The published measurements were made with 1, 2, 4, 8 and 16
//! readers on a file of 1 GiB each. In this workload, the readers share the size of the workload equally, or have files of `bytes` each.
//!
//! No two readers share a file, there are no pauses, and all reads are sequential.
//!
//! ```text
//!   file 0   |--record--|--record--|--record--| ...      reader 0
//!   file 1   |--record--|--record--|--record--| ...      reader 1, at the same time
//! ```

use super::{
    Info, Job, Request, Workload, check_reads, given, record, think, too_small,
};
use foreread_core::policy::Param;
use foreread_core::policy::spec::SpecError;
use foreread_core::units::MAX_OFFSET;

/// Maximum number of readers: each has a file, an open description and a request.
const MAX_STREAMS: u64 = 1 << 16;

/// The parameters of [`build_streams`], other than the number of streams.
pub(super) const RECORD: Param = record("32K");
pub(super) const BYTES: Param = Param::bytes(
    "bytes",
    "0",
    (0, MAX_OFFSET),
    "bytes of each file; 0: the files divide the whole size",
);
pub(super) const fn streams(default: &'static str) -> Param {
    Param::count("streams", default, (1, MAX_STREAMS), "readers, one file each")
}

pub static INFO: Info = Info {
    name: "readers",
    summary: "concurrent sequential readers, one file each",
    origin: "Wu Fengguang, 'readahead: bump up the default readahead size', 2010: measurements by Vivek Goyal",
    least_bytes: 4 * (32 << 10),
    cache_bytes: None,
    params: &[streams("4"), RECORD, BYTES, think("0")],
    build: |values, size, _seed| build_streams(INFO.name, values, size),
};

/// Builds this many streams, from the values of [`streams`], [`RECORD`], [`BYTES`] and [`think`].
pub(super) fn build_streams(name: &str, values: &[u64], size: u64) -> Result<Workload, SpecError> {
    let [streams, record, bytes, think_us] = given(values);
    let each = if bytes == 0 {
        size / streams / record * record
    } else {
        bytes
    };
    if each == 0 {
        let why = format!("is less than {streams} records of {record} bytes");
        return Err(too_small(name, size, why));
    }
    if each.checked_mul(streams).is_none_or(|all| all > size) {
        let why = format!("is less than {streams} files of {each} bytes");
        return Err(too_small(name, size, why));
    }
    check_reads(name, record, each.div_ceil(record).saturating_mul(streams))?;
    let read = |n: u64| Request::record(n, record, each).think(think_us * 1000);
    let requests: Vec<Request> = (0..each.div_ceil(record)).map(read).collect();
    let job = |n: u64| Job::new(n as u32, n as u32, requests.clone());
    let mut workload = Workload::on_files(name, vec![each; streams as usize]);
    workload.jobs.extend((0..streams).map(job));
    Ok(workload)
}

#[cfg(test)]
mod tests {
    use crate::workload::built;

    #[test]
    fn readers_share_the_size() {
        let workload = built("readers", 1 << 30, 0);
        assert_eq!(workload.files, [1 << 28; 4]);
        for (n, job) in (0..).zip(&workload.jobs) {
            assert_eq!((job.file, job.open, job.depth, job.after), (n, n, 1, None));
            let mut pairs = job.requests.windows(2);
            assert!(pairs.all(|w| w[0].offset + w[0].len == w[1].offset && w[0].len == 32_768));
        }
        // If the files divide the size, each has whole records; the rest is not read.
        assert_eq!(
            built("readers:streams=3", 1 << 20, 0).files,
            [10 * 32_768; 3]
        );
        let given = built("readers:streams=2,bytes=100K", 1 << 20, 0);
        assert_eq!(given.jobs[1].requests[3].len, 4096, "the rest of the file");
    }
}
