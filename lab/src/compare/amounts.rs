//! The defaults of a comparison: the number of runs, the number of bytes, and the time.
//!
//! On a device model, a run takes only some CPU time, so there are many runs. On a file or a remote source, each run
//! takes real time, so the time of a table (one workload on one source) is limited.

/// Default number of runs on a device model: these runs take little time, and an evaluation needs at least 20 seeds.
pub const MODEL_RUNS: u32 = 20;
/// Default number of runs on a file that the user gives: on real hardware, a comparison needs at least ten pairs of
/// runs.
pub const FILE_RUNS: u32 = 10;
/// Number of runs on the scratch file, which is measured if the user gives no source.
pub const SCRATCH_RUNS: u32 = 5;
/// Default time, in seconds, for all tables of a source that the user gives. Measuring a table ends when the table's part of this time is
/// used up and at least [`MIN_RUNS`] runs are done, unless the user set the number of runs.
pub const NAMED_SECONDS: u64 = 90;
/// Assumed number of runs in a table: [`MIN_RUNS`] of six rows. A workload is shortened until a run without readahead takes at
/// most this part of the table's time.
pub(super) const RUNS_OF_TABLE: u64 = 18;
/// Smallest span of a workload on such a source: in less, no readahead gets going.
pub(super) const MIN_REMOTE_SPAN_BYTES: u64 = 256 << 10;
/// Like [`NAMED_SECONDS`], for the scratch file of a call without arguments; writing the file takes a few seconds
/// more.
pub(super) const SCRATCH_SECONDS: u64 = 22;
/// With fewer runs no interval has a meaning.
pub(super) const MIN_RUNS: u32 = 3;
/// Default size of the cache: small enough for any machine, but larger than any readahead window.
pub const CACHE_BYTES: u64 = 256 << 20;
/// Default number of bytes that a workload spans on a device model; on a file, this number is the default maximum.
pub const SPAN_BYTES: u64 = 1 << 30;
/// Size of the scratch file: this is as much as the workload `boot-ide` needs.
pub const SCRATCH_BYTES: u64 = 1 << 30;
/// Number of bytes of the scratch file that a workload spans if it does not need more, because all workloads together
/// should take at most 30 seconds.
pub const SCRATCH_SPAN_BYTES: u64 = 128 << 20;
/// The default workloads: the common case, the case that readahead must not make slower, a case in which many policies fail, and the boot
/// of a machine. Running all workloads would take too long.
pub const USUAL_WORKLOADS: [&str; 4] = ["sequential", "random", "interleaved", "boot-ide"];
/// Like [`USUAL_WORKLOADS`], but for the scratch file, where all workloads together should take at most 30 seconds. The boot of a machine
/// alone would take that long, so it is left out.
pub const SCRATCH_WORKLOADS: [&str; 4] = ["sequential", "random", "interleaved", "list-of-archive"];
/// The model that replaces the scratch file if a workload cannot run on a file: a network volume with published figures.
pub const SCRATCH_MODEL: &str = "rbd";
