//! Finds the storage on which the reads of a trace waited longest, and a file or device of this storage that can be
//! measured.
//!
//! ```text
//!   files of the trace ──► by disk: bytes that were read, time that the reads took ──► the disk with the longest time
//!                                                                                      │
//!        measured there: the file that was read most, if it has 8 MiB    ◄─────────────┤
//!                        else the block device itself                    ◄─────────────┤
//!                        else the first large file below the mount point ◄─────────────┘
//! ```
//! Example: a program that maps 64 MiB on a slow disk reads 90 MiB of libraries from a fast disk. The slow disk is tuned, because reads
//! from it take 95 % of the time of all reads. One disk is tuned at a time; files on other disks are counted and left out. This module does
//! not measure: the probe reads the chosen file or device.

use crate::probe::MIN_BYTES;
use crate::replay::Replay;
use foreread::source::FileSource;
use foreread_os::failure::Failure;
use foreread_os::host::devices::Device;
use foreread_os::host::{DeviceNumber, Host};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The search for a large file stops at a file of this size.
const LARGE_BYTES: u64 = 256 << 20;
/// Most folder entries that the search for a large file examines: a second on a slow disk.
const MAX_ENTRIES: usize = 20_000;

/// The result of the search for the storage device of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct StorageFound {
    pub path: PathBuf,
    /// Why this storage was chosen.
    pub chosen: WorkloadChoice,
    pub names: BTreeSet<String>,
}

/// The chosen storage device, and the figures that led to this choice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkloadChoice {
    /// The disk, and how much of it was read.
    pub disk: OnDisk,
    /// Its share of all bytes that were read. Null without bytes.
    pub bytes_share: Option<f64>,
    /// Its share of the time that all reads took. Null if the trace has no times.
    pub time_share: Option<f64>,
    /// Which file or device of it is measured, and why.
    pub probed: String,
    /// The other disks, the one with the longest time first.
    pub others: Vec<OnDisk>,
    /// Files of the trace that do not exist on this machine under their names, and how much of them was read.
    pub not_here: OnDisk,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OnDisk {
    /// Name of the disk, such as `sdb`, or `0:44`, the number of a mount without a disk.
    pub disk: String,
    pub files: u64,
    pub bytes: u64,
    /// Sum of the durations of its reads. Null if the trace has no times.
    pub time_s: Option<f64>,
}

impl OnDisk {
    fn add(&mut self, bytes: u64, time_ns: Option<u64>) {
        self.files += 1;
        self.bytes += bytes;
        self.time_s = time_ns
            .map(|ns| self.time_s.unwrap_or(0.0) + ns as f64 / 1e9)
            .or(self.time_s);
    }

    /// Disks are ordered by time; if times are equal, by bytes.
    fn rank(&self) -> (u64, u64) {
        ((self.time_s.unwrap_or(0.0) * 1e9) as u64, self.bytes)
    }
}

/// A disk, and the files of the trace that are on it.
struct Candidate {
    sum: OnDisk,
    disk: Device,
    files: Vec<CandidateFile>,
}

struct CandidateFile {
    name: String,
    /// Bytes read from this file.
    read: u64,
    /// Metadata of the file, if it exists under its name.
    meta: Option<Metadata>,
}

/// Finds the storage device on which the reads of a trace waited longest.
/// Returns an error if no file of the trace exists on this machine, or if the disk of the files has no file or device that can be measured.
pub fn find(replay: &Replay) -> Result<StorageFound, Failure> {
    let error = |what: &str| {
        let remedy = "name the storage: --on PATH of a large file or a block device there, or --on model:NAME";
        Failure::input(what, &replay.workload.name, remedy)
    };
    let mut disks: BTreeMap<String, Candidate> = BTreeMap::new();
    let (host, mut not_here) = (Host::here(), OnDisk::default());
    for (name, read) in replay
        .loaded
        .names
        .iter()
        .zip(replay.loaded.read_of_files())
    {
        let meta = name
            .starts_with('/')
            .then(|| std::fs::metadata(name).ok())
            .flatten();
        let meta = meta.filter(|meta| meta.is_file() || meta.file_type().is_block_device());
        let disk = if meta.is_some() {
            host.device_of(Path::new(name)).ok()
        } else {
            number_of(name).map(|number| host.device(number))
        };
        let Some(disk) = disk else {
            not_here.add(read.bytes, read.time_ns);
            continue;
        };
        let number = disk.number.to_string();
        let sum = OnDisk {
            disk: disk.name.clone().unwrap_or_else(|| number.clone()),
            ..OnDisk::default()
        };
        let one = disks.entry(number).or_insert(Candidate {
            sum,
            disk,
            files: Vec::new(),
        });
        one.sum.add(read.bytes, read.time_ns);
        one.files.push(CandidateFile {
            name: name.clone(),
            read: read.bytes,
            meta,
        });
    }
    let mut disks: Vec<Candidate> = disks.into_values().collect();
    disks.sort_by_key(|one| std::cmp::Reverse(one.sum.rank()));
    if disks.is_empty() {
        return Err(error(
            "none of its files exists on this machine under its recorded name",
        ));
    }
    let first = disks.remove(0);
    let Some((path, probed)) = probed(&first) else {
        let name = &first.sum.disk;
        return Err(error(&format!(
            "nothing on {name} can be measured: no file of at least 8 MiB, and no block device"
        )));
    };
    let all = || {
        disks
            .iter()
            .map(|one| &one.sum)
            .chain([&first.sum, &not_here])
    };
    let bytes: u64 = all().map(|sum| sum.bytes).sum();
    let time_s: f64 = all().filter_map(|sum| sum.time_s).sum();
    let chosen = WorkloadChoice {
        bytes_share: foreread_sim::stats::ratio(first.sum.bytes as f64, bytes as f64),
        time_share: first
            .sum
            .time_s
            .and_then(|one| foreread_sim::stats::ratio(one, time_s)),
        disk: first.sum,
        probed,
        others: disks.into_iter().map(|one| one.sum).collect(),
        not_here,
    };
    Ok(StorageFound {
        path,
        chosen,
        names: first.files.into_iter().map(|file| file.name).collect(),
    })
}

/// The device of `inode 12 of 7:0`, as `record` names a file whose name it did not find.
fn number_of(name: &str) -> Option<DeviceNumber> {
    let (inode, device) = name.strip_prefix("inode ")?.split_once(" of ")?;
    inode.parse::<u64>().ok()?;
    DeviceNumber::parse(device)
}

/// The file or device of a disk to measure, and why.
fn probed(one: &Candidate) -> Option<(PathBuf, String)> {
    let fits = |meta: &Metadata| meta.len() >= MIN_BYTES || meta.file_type().is_block_device();
    let of_trace = one
        .files
        .iter()
        .filter(|file| file.meta.as_ref().is_some_and(fits))
        .max_by_key(|file| file.read);
    if let Some(CandidateFile { name, .. }) = of_trace {
        return Some((
            PathBuf::from(name),
            format!("{name}, the file on this storage from which most bytes were read"),
        ));
    }
    let none = "no file of the trace on this storage has at least 8 MiB";
    if let Some(path) = block_device(&one.disk) {
        let why = format!(
            "{}, the block device itself, because {none}",
            path.display()
        );
        return Some((path, why));
    }
    let here = one
        .files
        .iter()
        .find_map(|file| Some((Path::new(&file.name), file.meta.as_ref()?.dev())))?;
    let path = large_file(mount_point(here.0, here.1)?, here.1)?;
    let why = format!(
        "{}, a file on the same mount, because {none}",
        path.display()
    );
    Some((path, why))
}

/// The node of a disk, if it can be read with direct I/O.
fn block_device(disk: &Device) -> Option<PathBuf> {
    let path = Path::new("/dev").join(disk.name.as_ref()?.replace('!', "/"));
    let is_block = std::fs::metadata(&path).is_ok_and(|meta| meta.file_type().is_block_device());
    let is_direct = || FileSource::open(&path).is_ok_and(|source| source.is_direct());
    (is_block && is_direct()).then_some(path)
}

/// The topmost folder on this device that contains the file.
fn mount_point(file: &Path, dev: u64) -> Option<PathBuf> {
    let file = std::fs::canonicalize(file).ok()?;
    let on_it = |folder: &&Path| std::fs::metadata(folder).is_ok_and(|meta| meta.dev() == dev);
    file.ancestors()
        .skip(1)
        .take_while(on_it)
        .last()
        .map(Path::to_path_buf)
}

/// A large file with all its blocks, in or below a folder on one device.
fn large_file(folder: PathBuf, dev: u64) -> Option<PathBuf> {
    let mut best: Option<(u64, PathBuf)> = None;
    let mut next = VecDeque::from([folder]);
    let mut looked = 0;
    while let Some(folder) = next.pop_front() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            looked += 1;
            let Ok(meta) = entry.metadata() else { continue };
            if meta.is_dir() && meta.dev() == dev {
                next.push_back(entry.path());
            }
            // In a file with holes the probe would measure memory.
            let is_whole = meta.is_file() && meta.dev() == dev && meta.blocks() * 512 >= meta.len();
            if is_whole
                && meta.len() >= MIN_BYTES
                && best.as_ref().is_none_or(|(size, _)| meta.len() > *size)
            {
                best = Some((meta.len(), entry.path()));
            }
        }
        if looked >= MAX_ENTRIES || best.as_ref().is_some_and(|(size, _)| *size >= LARGE_BYTES) {
            break;
        }
    }
    best.map(|(_, path)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_name_has_its_device() {
        assert_eq!(
            number_of("inode 12 of 7:0"),
            Some(DeviceNumber { major: 7, minor: 0 })
        );
        assert_eq!(
            (number_of("inode of 7:0"), number_of("/inode 12 of 7:0")),
            (None, None)
        );
    }

    #[test]
    fn a_large_file_is_found_below_the_mount_point() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a scratch directory");
        let deep = dir.path().join("a/b");
        std::fs::create_dir_all(&deep).expect("room");
        let sparse = dir.path().join("sparse");
        std::fs::File::create(&sparse)
            .and_then(|file| file.set_len(64 << 20))
            .expect("room");
        let dev = std::fs::metadata(dir.path()).expect("there").dev();
        assert_eq!(
            large_file(dir.path().to_path_buf(), dev),
            None,
            "it has holes only"
        );
        std::fs::write(deep.join("large"), vec![1; MIN_BYTES as usize]).expect("room");
        assert_eq!(
            large_file(dir.path().to_path_buf(), dev),
            Some(deep.join("large"))
        );
        assert_eq!(
            large_file(dir.path().to_path_buf(), dev + 1),
            None,
            "another device"
        );
    }
}
