//! How many runs, how many bytes and how much time a comparison takes where nothing is said.
//!
//! On a model a run costs processor time alone, so there are many; on a file and on a remote source each run reads for real,
//! so a table has a time in which it ends.

/// Runs on a model: cheap, and evaluation asks for at least 20 seeds.
pub const MODEL_RUNS: u32 = 20;
/// Runs on a file that the user named: at least ten pairs on real hardware.
pub const FILE_RUNS: u32 = 10;
/// Runs on the scratch file of a call without arguments.
pub const SCRATCH_RUNS: u32 = 5;
/// Seconds that all tables of a named source take together, where nothing is said: each ends with its part of them, once it has
/// [`MIN_RUNS`] and no number of runs was asked for.
pub const NAMED_SECONDS: u64 = 90;
/// Runs of the rows of a table, one of which may read nothing ahead: [`MIN_RUNS`] of six. A run is shortened to that part of its time.
pub(super) const RUNS_OF_TABLE: u64 = 18;
/// A workload spans no less than this on such a source: below it no readahead gets going.
pub(super) const MIN_REMOTE_SPAN_BYTES: u64 = 256 << 10;
/// The same of the scratch file of a call without arguments, which is written in a few seconds more.
pub(super) const SCRATCH_SECONDS: u64 = 22;
/// Below this no interval means anything.
pub(super) const MIN_RUNS: u32 = 3;
/// The cache: small enough for any machine, larger than any window.
pub const CACHE_BYTES: u64 = 256 << 20;
/// Bytes that a workload spans on a model, or at most on a file, unless told otherwise.
pub const SPAN_BYTES: u64 = 1 << 30;
/// Size of the scratch file: what `boot-ide` needs.
pub const SCRATCH_BYTES: u64 = 1 << 30;
/// Bytes of the scratch file that a workload spans which does not need more: 30 seconds have to do for all.
pub const SCRATCH_SPAN_BYTES: u64 = 128 << 20;
/// The common case, the case that readahead must not make slower, the one that many lose, and a machine's start.
/// All of them would not do in the time.
pub const USUAL_WORKLOADS: [&str; 4] = ["sequential", "random", "interleaved", "boot-ide"];
/// The same on the scratch file of a call without arguments: a boot alone would take the 30 seconds.
pub const SCRATCH_WORKLOADS: [&str; 4] = ["sequential", "random", "interleaved", "list-of-archive"];
/// The model that takes the place of the scratch file, where a workload cannot be run on a file: a network volume with published figures.
pub const SCRATCH_MODEL: &str = "rbd";
