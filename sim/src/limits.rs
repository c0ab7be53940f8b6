//! The limits for the rows of a comparison: a lower bound for the time of any run, and the best schedule that a search
//! with perfect foresight finds (the oracle). Every policy's time is above the bound. The oracle's time is normally
//! between bound and policies. A policy can beat the oracle if it finds a schedule that the search does not (see
//! `lab/tests/limits/search.rs`), or if it gets better random latencies: random latencies depend on the request, and
//! policies send different requests. `compare` marks such rows.
//!
//! | file | holds |
//! |---|---|
//! | `bound.rs` | the lower bound, computed from the workload and the model |
//! | `path.rs` | the part of the bound that follows one reader, and the cost of gaps and cuts |
//! | `future.rs` | all future reads, cut into extents, with the next use of each |
//! | `oracle/` | the search among schedules, on the same device with the same random numbers |
//!
//! This code knows future reads. It only measures policies, and never serves reads.

pub mod bound;
mod future;
pub mod oracle;
mod path;

pub use future::MAX_TOUCHES;

/// The name of the oracle in `--policy` and in the table.
pub const ORACLE: &str = "oracle";
