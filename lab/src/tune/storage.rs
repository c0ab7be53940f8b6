//! Where the files of a trace live on this machine.
//!
//! The file that most bytes were read of and that is here, by its absolute name, stands for the storage of them all: one
//! storage is tuned at a time. Never: opens anything; whoever probes it does.

use crate::replay::Replay;
use std::path::{Path, PathBuf};

/// A smaller file cannot be probed: requests of several sizes have to fit in it several times.
pub const FEWEST_BYTES: u64 = 8 << 20;

/// None of the files is here, or none is large enough.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {trace}; name the storage: --on PATH of a large file or a block device there, or --on model:NAME")]
pub struct NoStorage {
    what: String,
    trace: String,
}

/// The file to probe.
///
/// # Errors
/// There is none.
pub fn largest_file(replay: &Replay) -> Result<PathBuf, NoStorage> {
    let mut bytes = vec![0_u64; replay.loaded.names.len()];
    for job in &replay.workload.jobs {
        let sum: u64 = job.requests.iter().filter(|r| r.demands()).map(|r| r.len).sum();
        bytes[job.file as usize] += sum;
    }
    let size = |path: &Path| std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|meta| meta.len());
    let names = replay.loaded.names.iter().zip(bytes).filter(|(name, _)| name.starts_with('/'));
    let here: Vec<(PathBuf, u64, u64)> =
        names.filter_map(|(name, read)| Some((PathBuf::from(name), read, size(Path::new(name))?))).collect();
    let fit = here.iter().filter(|(_, _, size)| *size >= FEWEST_BYTES).max_by_key(|(_, read, _)| *read);
    match fit {
        Some((path, _, _)) => Ok(path.clone()),
        None => {
            let what = match here.len() {
                0 => "none of its files is on this machine by that name",
                _ => "none of its files that are here is larger than 8 MiB, too small to measure a storage by",
            };
            Err(NoStorage { what: what.to_string(), trace: replay.workload.name.clone() })
        }
    }
}
