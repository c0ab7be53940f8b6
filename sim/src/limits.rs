//! Two limits for the times in a comparison of policies: a lower bound for any run, and the best schedule that a search with perfect
//! foresight finds (the oracle). Every policy's time is above the bound. The oracle's time is normally between the bound and the
//! times of the policies. A policy can beat the oracle if it finds a better schedule than the search, or if it happens to get shorter
//! random latencies. Random latencies depend on the requests, and each policy sends different requests. `foreread compare` marks the
//! rows of policies that beat the oracle.
//!
//! | file | holds |
//! |---|---|
//! | `bound.rs` | the lower bound, computed from the workload and the model |
//! | `path.rs` | the part of the bound that follows one reader, and the cost of gaps and cuts |
//! | `future.rs` | all future reads, cut into extents, with the next use of each |
//! | `oracle/` | the search among schedules, on the same device with the same random numbers |
//!
//! Because the code of these limits knows future reads, it is used only to judge policies, and never to serve reads.

pub mod bound;
mod future;
pub mod oracle;
mod path;

pub use future::MAX_TOUCHES;

/// The name of the oracle in `--policy` and in the table.
pub const ORACLE: &str = "oracle";
