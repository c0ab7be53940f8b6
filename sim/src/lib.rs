//! The simulator: device models, workloads, and the state machine of `foreread-core` on a virtual clock.
//!
//! ```text
//!   workload ──► simulator ◄── device        limits: the bound and the oracle of the same reads
//!                    └──► RunResult ──► stats: intervals, tests, Holm's correction
//! ```
//! All random numbers are computed from keys ([`rng`]), so the same call gives the same figures on any machine. The
//! crate uses no engine, no files and no real clock.

pub mod device;
pub mod limits;
pub mod rng;
pub mod scheduler;
pub mod simulator;
pub mod stats;
pub mod time_queue;
pub mod workload;
