//! Defaults of a comparison: how many runs, how many bytes and how much time.
//!
//! On a model a run costs only processor time, so there are many runs. On a file and on a remote source each run really
//! reads, so the time of a table is limited.

/// Runs on a model: they are cheap, and an evaluation needs at least 20 seeds.
pub const MODEL_RUNS: u32 = 20;
/// Runs on a file that the user named: real hardware needs at least ten pairs.
pub const FILE_RUNS: u32 = 10;
/// Runs on the scratch file of a call without arguments.
pub const SCRATCH_RUNS: u32 = 5;
/// Default time, in seconds, for all tables of a named source together. Each table ends with its share of the time once it has
/// [`MIN_RUNS`], unless a number of runs was given.
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
/// Default size of the cache: small enough for any machine, larger than any window.
pub const CACHE_BYTES: u64 = 256 << 20;
/// Default number of bytes that a workload spans on a model, and the most on a file.
pub const SPAN_BYTES: u64 = 1 << 30;
/// Size of the scratch file: `boot-ide` needs this much.
pub const SCRATCH_BYTES: u64 = 1 << 30;
/// Bytes of the scratch file that a workload spans if it does not need more: all workloads together have 30 seconds.
pub const SCRATCH_SPAN_BYTES: u64 = 128 << 20;
/// The common case, the case that readahead must not make slower, the case that many policies lose, and the boot of a
/// machine. There is not enough time to run all workloads.
pub const USUAL_WORKLOADS: [&str; 4] = ["sequential", "random", "interleaved", "boot-ide"];
/// Like [`USUAL_WORKLOADS`], for the scratch file of a call without arguments: a boot alone would take the 30
/// seconds.
pub const SCRATCH_WORKLOADS: [&str; 4] = ["sequential", "random", "interleaved", "list-of-archive"];
/// The model that replaces the scratch file if a workload cannot run on a file: a network volume with published figures.
pub const SCRATCH_MODEL: &str = "rbd";
