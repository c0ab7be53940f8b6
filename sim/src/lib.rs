//! The simulator: device models, workloads, and the state machine of `foreread-core` on a virtual clock.
//!
//! ```text
//!   workload ──► simulator ◄── device        limits: the bound and the oracle of the same reads
//!                    └──► RunResult ──► stats: intervals, tests, Holm's correction
//! ```
//! Each random number is computed from a key, such as seed, file and offset ([`rng`]), so the same call gives the same results on
//! any machine. This crate uses no files and no real clock, and does not depend on `foreread-engine`.

pub mod device;
pub mod limits;
pub mod rng;
pub mod scheduler;
pub mod simulator;
pub mod stats;
pub mod time_queue;
pub mod workload;
