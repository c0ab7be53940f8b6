//! What no readahead can beat: the lines beside which the rows of a comparison are read.
//!
//! | file | holds |
//! |---|---|
//! | `bound.rs` | a time that no run can be below, computed from the workload and the model |
//! | `future.rs` | all that will be read, cut into extents, with the next use of each |
//! | `oracle/` | a run of a readahead that knows it, on the same device with the same luck |
//!
//! Never: a policy. What is here knows the future, so it is for measuring others, and serves nobody.

pub mod bound;
mod future;
pub mod oracle;

pub use future::MAX_TOUCHES;

/// The name of the oracle's row, and of what asks for it in `--policy`.
pub const ORACLE: &str = "oracle";
