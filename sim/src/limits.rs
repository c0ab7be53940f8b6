//! The limits beside which the rows of a comparison are read: a time that no run can be below, and the best schedule that
//! a search with perfect foresight finds. The time of every policy is above the first; the second is between the two,
//! except where a policy happens on a schedule that the search does not (see `lab/tests/limits/search.rs`), or on better draws: where
//! latencies are random, each depends on the request, and a policy makes other requests. `compare` says where that is so.
//!
//! | file | holds |
//! |---|---|
//! | `bound.rs` | a time that no run can be below, computed from the workload and the model |
//! | `path.rs` | its parts that follow one reader, and what gaps and cuts cost |
//! | `future.rs` | all that will be read, cut into extents, with the next use of each |
//! | `oracle/` | the schedules that are tried, on the same device with the same random numbers, and the search among them |
//!
//! Never: a policy. This code knows the future, so it measures policies and serves no reads.

pub mod bound;
mod future;
pub mod oracle;
mod path;

pub use future::MAX_TOUCHES;

/// The name of the oracle's row, and of what asks for it in `--policy`.
pub const ORACLE: &str = "oracle";
