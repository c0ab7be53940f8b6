//! Several sequential readers at once, each with its own file and open description.
//!
//! What an enlarged readahead is for: while one reader's window is read, the others wait for theirs, and the longer
//! the windows, the less of the time goes into changing from one to another. The publication ran 1, 2, 4, 8 and 16
//! readers on a file of 1 GiB each; here they share out the size that the workload spans, or take `bytes` each.
//!
//! Never: two readers of one file, a pause, or a read that is not in order.
//!
//! ```text
//!   file 0   |--record--|--record--|--record--| ...      reader 0
//!   file 1   |--record--|--record--|--record--| ...      reader 1, at the same time
//! ```

use super::{Info, Job, Request, Workload, check_reads, too_small};
use foreread_core::policy::spec::SpecError;
use foreread_core::policy::{Param, Unit};
use foreread_core::units::MAX_OFFSET;

/// The most readers: each has a file, an open description and a request.
const MAX_STREAMS: u64 = 1 << 16;

/// What [`build_streams`] takes, but for the number of streams.
pub(super) const RECORD: Param = Param {
    key: "record",
    unit: Unit::Bytes,
    default: "32K",
    range: (1, MAX_OFFSET),
    help: "bytes of a read",
};
pub(super) const BYTES: Param = Param {
    key: "bytes",
    unit: Unit::Bytes,
    default: "0",
    range: (0, MAX_OFFSET),
    help: "bytes of each file; 0: all of them share the whole size",
};
pub(super) const fn think(default: &'static str) -> Param {
    Param {
        key: "think",
        unit: Unit::Count,
        default,
        range: (0, 1_000_000_000),
        help: "us between reads",
    }
}
pub(super) const fn streams(default: &'static str) -> Param {
    Param {
        key: "streams",
        unit: Unit::Count,
        default,
        range: (1, MAX_STREAMS),
        help: "readers, a file each",
    }
}

pub static INFO: Info = Info {
    name: "readers",
    summary: "sequential readers at once, a file each",
    origin: "Wu Fengguang, 'readahead: bump up the default readahead size', 2010: measurements by Vivek Goyal",
    least_bytes: 4 * (32 << 10),
    cache_bytes: None,
    params: &[streams("4"), RECORD, BYTES, think("0")],
    build: |values, size, _seed| build_streams(INFO.name, values, size),
};

/// This many streams, of the values of [`streams`], [`RECORD`], [`BYTES`] and [`think`].
pub(super) fn build_streams(name: &str, values: &[u64], size: u64) -> Result<Workload, SpecError> {
    let [streams, record, bytes, think_us] = *values else {
        unreachable!("four parameters")
    };
    let each = if bytes == 0 {
        size / streams / record * record
    } else {
        bytes
    };
    if each == 0 {
        return Err(too_small(
            name,
            size,
            format!("is less than {streams} records of {record} bytes"),
        ));
    }
    if each.checked_mul(streams).is_none_or(|all| all > size) {
        return Err(too_small(
            name,
            size,
            format!("is less than {streams} files of {each} bytes"),
        ));
    }
    check_reads(name, record, each.div_ceil(record).saturating_mul(streams))?;
    let read = |n: u64| Request {
        think_ns: think_us * 1000,
        ..Request::read(n * record, record.min(each - n * record))
    };
    let job = |n: u64| {
        Job::new(
            n as u32,
            n as u32,
            (0..each.div_ceil(record)).map(read).collect(),
        )
    };
    let mut workload = Workload::on_files(name, vec![each; streams as usize]);
    workload.jobs.extend((0..streams).map(job));
    Ok(workload)
}

#[cfg(test)]
mod tests {
    use crate::workload::parse;

    #[test]
    fn readers_share_the_size() {
        let workload = parse("readers")
            .expect("valid")
            .build(1 << 30, 0)
            .expect("fits");
        assert_eq!(
            (
                workload.reads(),
                workload.bytes(),
                workload.distinct_bytes(4096)
            ),
            (32_768, 1 << 30, 1 << 30)
        );
        assert_eq!(workload.files, [1 << 28; 4]);
        for (n, job) in workload.jobs.iter().enumerate() {
            assert_eq!(
                (job.file, job.open, job.depth, job.after),
                (n as u32, n as u32, 1, None)
            );
            assert!(
                job.requests
                    .windows(2)
                    .all(|w| w[0].offset + w[0].len == w[1].offset && w[0].len == 32_768)
            );
        }
        // Whole records when they share; the rest is not read.
        let workload = parse("readers:streams=3")
            .expect("valid")
            .build(1 << 20, 0)
            .expect("fits");
        assert_eq!(
            (workload.files.as_slice(), workload.reads()),
            (&[10 * 32_768; 3][..], 30)
        );
    }

    #[test]
    fn readers_of_files_of_a_given_size() {
        let build = |text: &str, size| parse(text).expect("valid").build(size, 0);
        let workload = build("readers:streams=2,bytes=100K", 1 << 20).expect("fits");
        assert_eq!((workload.reads(), workload.bytes()), (8, 204_800));
        assert_eq!(
            workload.jobs[1].requests[3].len, 4096,
            "the rest of the file"
        );
        for (text, size, why) in [
            ("readers", 131_071, "is less than 4 records of 32768 bytes"),
            (
                "readers:streams=2,bytes=100K",
                204_799,
                "is less than 2 files of 102400 bytes",
            ),
            (
                "readers:bytes=1G",
                1 << 30,
                "is less than 4 files of 1073741824 bytes",
            ),
        ] {
            assert_eq!(
                build(text, size).expect_err("too small").to_string(),
                format!("readers: size={size} {why}")
            );
        }
    }
}
