//! Workloads: the reads of a program in the order in which each of its readers (jobs) issues them.
//!
//! A workload is a list of jobs. A job issues its requests one after the other, with at most `depth` of them outstanding (`model.rs`). A
//! workload is written as `NAME:key=value,...`; its size and a seed turn it into a list of requests. The same text, size and seed give the
//! same requests on every machine.
//!
//! A workload has no writes, no data and no clock, and no request beyond the end of its file.
//!
//! ```text
//!   "interleaved:streams=8" ──parse──► Chosen ──build(size, seed)──► Workload
//!                                                                     └ job: file, open, depth
//!                                                                        └ request, request, ...
//! ```
//!
//! To add a workload, write its file and add it to the list at the end of this file. Another crate may have a separate list of workloads:
//! the crate creates [`Info`]s and parses their names with [`parse_among`].

pub mod model;

use foreread_core::notation::Spec;
use foreread_core::policy::Param;
use foreread_core::policy::spec::SpecError;
use foreread_core::units::MAX_OFFSET;
use std::num::NonZero;

pub use model::{Job, Link, Request, RequestKind, Workload};

/// The page size of workloads whose reads are those of a program above a page cache.
const PAGE_BYTES: u64 = 4096;

/// Maximum number of reads of a workload. All reads are created before the first is issued; at 32 bytes each, they take at most 1
/// GB.
pub const MAX_READS: u64 = 1 << 25;

/// The description of a workload.
pub struct Info {
    /// The name in `NAME:key=value,...`.
    pub name: &'static str,
    pub summary: &'static str,
    /// The publication that it reproduces, or its purpose.
    pub origin: &'static str,
    /// Smallest file size, in bytes, for which it can be generated.
    pub least_bytes: u64,
    /// The cache size that it requires, in bytes; `None` if any size will do.
    pub cache_bytes: Option<u64>,
    pub params: &'static [Param],
    /// Generates the requests. Arguments: the checked values of `params` in their order; the size in bytes of its file,
    /// or of all its files together; and the seed.
    pub build: fn(&[u64], u64, u64) -> Result<Workload, SpecError>,
}

/// A workload and the values of all its parameters.
#[derive(Clone)]
pub struct WorkloadChoice {
    pub info: &'static Info,
    /// The values of `info.params`, in their order.
    pub values: Vec<u64>,
    text: String,
}

impl WorkloadChoice {
    /// Generates the requests for a file of `size` bytes, or for files of this total size.
    pub fn build(&self, size: u64, seed: u64) -> Result<Workload, SpecError> {
        let mut workload = (self.info.build)(&self.values, size, seed)?;
        workload.name.clone_from(&self.text);
        Ok(workload)
    }
}

impl std::fmt::Display for WorkloadChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::fmt::Debug for WorkloadChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.text, self.values)
    }
}

/// Parses a workload in [`ALL`] that is written as `NAME:key=value,...`.
pub fn parse(text: &str) -> Result<WorkloadChoice, SpecError> {
    parse_among(text, ALL)
}

/// Like [`parse`], but for the workloads in `list`; programs that define additional workloads need this function.
pub fn parse_among(text: &str, list: &[&'static Info]) -> Result<WorkloadChoice, SpecError> {
    let spec = Spec::parse(text)?;
    let Some(info) = list.iter().copied().find(|i| i.name == spec.name) else {
        return Err(SpecError::UnknownName {
            name: spec.name,
            known: list.iter().map(|i| i.name).collect(),
        });
    };
    Ok(WorkloadChoice {
        info,
        values: spec.values(info.params)?,
        text: text.to_string(),
    })
}

pub const fn record(default: &'static str) -> Param {
    Param::bytes("record", default, (1, MAX_OFFSET), "bytes of a read")
}

pub const fn think(default: &'static str) -> Param {
    Param::count("think", default, (0, 1_000_000_000), "us between reads")
}

/// The values passed to [`Info::build`], one for each of its parameters.
pub fn given<const N: usize>(values: &[u64]) -> [u64; N] {
    values.try_into().expect("a value for each parameter")
}

/// The number of whole records in a file; an error if it is zero.
fn whole_records(name: &str, size: u64, record: u64) -> Result<u64, SpecError> {
    let why = || format!("is less than one record of {record} bytes");
    NonZero::new(size / record)
        .map(NonZero::get)
        .ok_or_else(|| too_small(name, size, why()))
}

/// Maximum number of files of a workload of equal files.
const MAX_EQUAL_FILES: u64 = 4096;

/// Sizes of the files if `size` bytes are divided into files of `file` bytes; the last file has the rest.
fn equal_files(size: u64, file: u64) -> Vec<u64> {
    let files = size.div_ceil(file).min(MAX_EQUAL_FILES);
    (0..files).map(|n| file.min(size - n * file)).collect()
}

/// Returns the error for a file that is too small for a workload. The error names the size in the same way as a parameter of the workload.
fn too_small(name: &str, size: u64, why: String) -> SpecError {
    SpecError::value(name, "size", size, why)
}

/// Refuses a file of fewer bytes than the workload needs.
pub fn check_size(name: &str, size: u64, least: u64) -> Result<(), SpecError> {
    if size >= least {
        return Ok(());
    }
    let why = format!("is less than the {least} bytes that it needs");
    Err(too_small(name, size, why))
}

/// Refuses records so small that there would be more than [`MAX_READS`] reads.
fn check_reads(name: &str, record: u64, reads: u64) -> Result<(), SpecError> {
    if reads <= MAX_READS {
        return Ok(());
    }
    Err(SpecError::value(
        name,
        "record",
        record,
        format!("makes {reads} reads of this size, more than {MAX_READS}"),
    ))
}

/// Lists every workload once; creates the modules and the registry.
macro_rules! workloads {
    ($($module:ident),* $(,)?) => {
        $(pub mod $module;)*
        /// Every workload, in the order in which `foreread list workloads` shows them.
        pub static ALL: &[&Info] = &[$(&$module::INFO),*];
    };
}

workloads!(
    sequential,
    random,
    dense_random,
    clustered_random,
    interleaved,
    readers,
    out_of_order,
    strided,
    skip,
    backward,
    aio_random,
    thrash,
    tree,
    processes,
    mapped_random,
    mapped_lookup,
    compile,
    list_of_archive,
    small_files_random,
    mapped_libraries,
    new_files,
);

#[cfg(test)]
fn built(text: &str, size: u64, seed: u64) -> Workload {
    parse(text).expect(text).build(size, seed).expect(text)
}

#[cfg(test)]
fn refused(text: &str, size: u64, seed: u64) -> String {
    let refused = parse(text).expect(text).build(size, seed);
    refused.expect_err(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreread_core::machine::MAX_IDS;

    #[test]
    fn every_workload_stays_in_its_file_and_is_stable() {
        for info in ALL {
            let chosen = parse(info.name).expect("its own name");
            for size in [1 << 30, (3 << 30) + 777].map(|size: u64| size.max(info.least_bytes)) {
                let workload = chosen.build(size, 1).expect(info.name);
                assert_eq!(workload.name, info.name);
                assert!(
                    workload.files.iter().sum::<u64>() <= size,
                    "{} at {size}",
                    info.name
                );
                for job in &workload.jobs {
                    let inside = |r: &Request| {
                        r.len > 0 && r.offset + r.len <= workload.files[job.file as usize]
                    };
                    assert!(job.requests.iter().all(inside), "{} at {size}", info.name);
                    assert!(
                        job.depth > 0 && job.open < MAX_IDS && job.file < MAX_IDS,
                        "{}",
                        info.name
                    );
                }
                let mut file_of = std::collections::HashMap::new();
                for (number, job) in workload.jobs.iter().enumerate() {
                    assert!(
                        job.after.is_none_or(|j| (j as usize) < number),
                        "{}: a job after itself",
                        info.name
                    );
                    assert_eq!(
                        *file_of.entry(job.open).or_insert(job.file),
                        job.file,
                        "{}: two files",
                        info.name
                    );
                }
                assert_eq!(workload, chosen.build(size, 1).expect(info.name));
            }
        }
    }

    #[test]
    fn a_workload_keeps_the_requested_name() {
        let chosen = parse("random:count=3").expect("valid");
        assert_eq!(
            (chosen.to_string().as_str(), chosen.values.as_slice()),
            ("random:count=3", &[4096, 3][..])
        );
        assert_eq!(
            chosen.build(1 << 20, 0).expect("fits").name,
            "random:count=3"
        );
    }

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    /// Files, depth of the first job, reads and bytes; none of these reads anything twice.
    #[test]
    fn what_each_workload_reads() {
        for (text, size, expected) in [
            ("sequential", 0, [1, 1, 0, 0]),
            ("random", GIB, [1, 1, 4096, 16 * MIB]),
            ("random:count=100", 10_000, [1, 1, 2, 8192]),
            ("dense-random:density=1", 10_000, [1, 1, 1, 4096]),
            // 256 clusters, of which a tenth (rounded up) is visited, with 32 records each.
            ("clustered-random", 64 * MIB, [1, 1, 832, 3328 * KIB]),
            ("clustered-random:percent=1", 256 * KIB, [1, 1, 1, 4096]),
            ("readers", GIB, [4, 1, 32_768, GIB]),
            ("readers:streams=3", MIB, [3, 1, 30, 960 * KIB]),
            ("readers:streams=2,bytes=100K", MIB, [2, 1, 8, 200 * KIB]),
            ("out-of-order", 16 * MIB, [1, 1, 128, 16 * MIB]),
            ("out-of-order:depth=7", MIB, [1, 7, 8, MIB]),
            ("strided", 64 * MIB, [1, 1, 128, 8 * MIB]),
            ("strided", 0, [1, 1, 0, 0]),
            ("strided:record=4K,stride=4K", 8192, [1, 1, 2, 8192]),
            ("strided:record=4K,stride=10000", 20_000, [1, 1, 2, 8192]),
            ("skip", 0, [1, 1, 0, 0]),
            ("backward", MIB, [1, 1, 16, MIB]),
            ("backward", 0, [1, 1, 0, 0]),
            ("aio-random", GIB, [1, 64, 16_384, GIB]),
            ("aio-random", 200_000, [1, 64, 3, 192 * KIB]),
            ("aio-random:count=9,depth=1", GIB, [1, 1, 9, 576 * KIB]),
            // 341 whole records for each.
            ("thrash", GIB, [96, 1, 32_736, 1023 * MIB]),
            ("thrash", 3 * MIB, [96, 1, 96, 3 * MIB]),
            ("new-files", 20 * MIB, [3, 1, 320, 20 * MIB]),
        ] {
            let of = built(text, size, 1);
            let [files, depth] = [of.files.len() as u64, u64::from(of.jobs[0].depth)];
            let found = [files, depth, of.reads(), of.bytes()];
            assert_eq!(found, expected, "{text} of {size}");
            assert_eq!(of.distinct_bytes(1), of.bytes(), "{text}");
        }
    }

    #[test]
    fn what_is_too_small_for_a_workload() {
        let whole = "random: size=4095 is less than one record of 4096 bytes";
        assert_eq!(refused("random", 4095, 1), whole);
        for (text, size, why) in [
            ("dense-random", 4095, "one record of 4096 bytes"),
            ("clustered-random", 262_143, "one cluster of 262144"),
            ("clustered-random:record=512K", GIB, "one record of 524288"),
            ("interleaved", 65_535, "4 records of 16384 bytes"),
            ("readers", 131_071, "4 records of 32768 bytes"),
            ("readers:bytes=1G", GIB, "4 files of 1073741824 bytes"),
            ("readers:streams=2,bytes=100K", 204_799, "files of 102400"),
            ("strided:record=8K,stride=4K", MIB, "reads would overlap"),
            ("aio-random", 65_535, "one record of 65536 bytes"),
            ("thrash", 3 * MIB - 1, "96 records of 32768 bytes"),
            ("tree", 100, "size=100 is too small for the first file"),
            ("tree:p99=1K", GIB, "p99=1024 is less than median=4096"),
            ("processes:sequential=0,random=0,grep=0", MIB, "no process"),
            ("processes:sequential=64", MIB, "small for all processes"),
            ("mapped-random:run=3", 12_287, "one record of 12288 bytes"),
            ("mapped-lookup:inner=400", MIB, "one record of 1654784"),
            ("compile", 161 * MIB, "for code, library and 1100 files"),
            ("list-of-archive:record=2M", MIB, "is less than"),
            ("small-files-random:record=2M", MIB, "is less than"),
            (
                "mapped-libraries:libraries=4000",
                64 * MIB,
                "only 2 pages for each",
            ),
            ("new-files:record=2M", MIB, "is less than"),
        ] {
            let refused = refused(text, size, 1);
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn no_more_reads_than_memory_has_room_for() {
        for (text, size) in [
            ("sequential:record=1", MAX_READS + 1),
            ("interleaved:record=1,streams=1", MAX_READS + 1),
            ("backward:record=1", MAX_READS + 1),
            ("out-of-order:record=1", MAX_READS + 1),
            ("skip:record=1,skip=0", MAX_READS + 1),
            ("strided:record=1,stride=2", 2 * MAX_READS + 1),
            ("clustered-random:record=1,percent=100,visited=100", GIB),
            // 4.6 reads for each record at 99 %: 2^23 records are too many, though fewer than the limit.
            ("dense-random:density=99,record=1", MAX_READS / 4),
        ] {
            let refused = refused(text, size, 1);
            assert!(
                refused.ends_with("reads of this size, more than 33554432"),
                "{refused}"
            );
        }
        assert_eq!(check_reads("any", 1, MAX_READS), Ok(()));
        // Skipped records do not count.
        built("skip:record=1,read=1,skip=33554432", 1 << 40, 0);
    }

    #[test]
    fn values_out_of_range() {
        for text in [
            "random:record=0",
            "random:count=33554433",
            "dense-random:density=0",
            "dense-random:density=100",
            "out-of-order:distance=0",
            "skip:read=0",
        ] {
            assert!(
                matches!(parse(text), Err(SpecError::Value { .. })),
                "{text}"
            );
        }
    }

    #[test]
    fn errors_say_what_is_known() {
        let Err(SpecError::UnknownName { known, .. }) = parse("sequentail") else {
            panic!("there is no such name")
        };
        assert!(
            known.starts_with(&["sequential", "random", "dense-random"])
                && known.len() == ALL.len()
        );
        let Err(SpecError::UnknownKey { known, .. }) = parse("sequential:recrod=4K") else {
            panic!("no such key")
        };
        assert_eq!(known, ["record", "depth", "think"]);
    }
}
