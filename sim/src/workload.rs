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
use foreread_core::policy::spec::SpecError;
use foreread_core::policy::{Param, Unit};
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

pub const fn count(
    key: &'static str,
    default: &'static str,
    range: (u64, u64),
    help: &'static str,
) -> Param {
    Param {
        key,
        unit: Unit::Count,
        default,
        range,
        help,
    }
}

/// A parameter that is a number of bytes.
pub const fn bytes(
    key: &'static str,
    default: &'static str,
    range: (u64, u64),
    help: &'static str,
) -> Param {
    Param {
        unit: Unit::Bytes,
        ..count(key, default, range, help)
    }
}

pub const fn record(default: &'static str) -> Param {
    bytes("record", default, (1, MAX_OFFSET), "bytes of a read")
}

pub const fn think(default: &'static str) -> Param {
    count("think", default, (0, 1_000_000_000), "us between reads")
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
pub fn too_small(name: &str, size: u64, why: String) -> SpecError {
    SpecError::Value {
        name: name.to_string(),
        key: "size".to_string(),
        value: size.to_string(),
        why,
    }
}

/// Refuses records so small that there would be more than [`MAX_READS`] reads.
fn check_reads(name: &str, record: u64, reads: u64) -> Result<(), SpecError> {
    if reads <= MAX_READS {
        return Ok(());
    }
    Err(SpecError::Value {
        name: name.to_string(),
        key: "record".to_string(),
        value: record.to_string(),
        why: format!("makes {reads} reads of this size, more than {MAX_READS}"),
    })
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

    #[test]
    fn no_more_reads_than_memory_has_room_for() {
        for name in ["sequential:record=1", "interleaved:record=1,streams=1"] {
            let chosen = parse(name).expect("valid");
            let error = chosen
                .build(MAX_READS + 1, 1)
                .expect_err("beyond it")
                .to_string();
            assert!(
                error.ends_with("record=1 makes 33554433 reads of this size, more than 33554432"),
                "{error}"
            );
        }
        assert_eq!(check_reads("any", 1, MAX_READS), Ok(()));
        assert!(parse(&format!("random:count={}", MAX_READS + 1)).is_err());
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
        assert!(matches!(
            parse("random:record=0"),
            Err(SpecError::Value { .. })
        ));
    }
}
