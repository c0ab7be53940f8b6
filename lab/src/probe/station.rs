//! The trait for storage that can be probed: describes the storage, and measures a point (request size and queue depth)
//! for one time slice.

use super::Spread;
use super::grid::Task;
use foreread_os::failure::Failure;
use foreread_os::host::devices::Device;
use hdrhistogram::Histogram;
use std::time::Duration;

pub(super) struct Slice {
    pub reads: u64,
    pub bytes_per_s: f64,
    /// The rate of the second half of the slice.
    pub late_bytes_per_s: f64,
    pub latency: Histogram<u64>,
    /// How long the slice took, with the warm-up.
    pub seconds: f64,
}

/// A real source or a model on which slices are measured.
pub(super) trait Station {
    /// Facts that are known before measuring. `buffered`: the page cache may answer.
    fn about(&self, buffered: bool) -> Result<About, Failure>;

    /// Number of bytes, from the start, that are read.
    fn span(&self) -> u64;

    fn slice(&mut self, task: Task, length: Duration, seed: u64) -> Result<Slice, Failure>;

    /// Nanoseconds of a hit of the engine's cache for each KiB: the call, the look-up and the copy.
    fn host_ns_per_kib(&self) -> Result<Spread, Failure>;

    fn is_virtual(&self) -> bool {
        false
    }
}

/// Facts that are known before measuring.
pub(super) struct About {
    pub source: String,
    pub how: String,
    pub capacity_bytes: u64,
    pub direct: bool,
    pub readahead_bytes: Option<u64>,
    pub disk: Option<Device>,
    pub notes: Vec<String>,
}

/// Minimum size of a file or device to measure: requests of several sizes must fit into it several times.
pub const MIN_BYTES: u64 = 8 << 20;

/// The error for a source that is too small.
pub(super) fn too_small(bytes: u64) -> Failure {
    let remedy = "name a file of at least 8 MiB on the same disk, ideally 1 GiB, or its block device (findmnt shows it)";
    Failure::input(format!("{bytes} bytes are too few to measure"), "", remedy)
}

/// The error for a source on which reads would measure the page cache.
pub(super) fn cached(place: &str) -> Failure {
    let why = "direct I/O (O_DIRECT) is refused here, so reads would measure the page cache instead of the storage";
    let remedy = "probe the block device, or a file on another file system, or add --buffered to measure reads through \
                  the cache";
    Failure::input(place, why, remedy)
}
