//! The crate that **measures**: it compares policies, replays traces, explains runs, tunes settings and probes storage.
//!
//! On device models the crate runs the simulator of `foreread-sim`, on real storage the engine `foreread`, and it reports the results of
//! both in the same format. Traces come from `foreread-trace`. This crate prints nothing.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "a test may panic if a thread cannot be started"
    )
)]

pub mod compare;
pub mod explain;
pub mod glance;
pub mod grid;
pub mod live;
pub mod probe;
pub mod replay;
pub mod report;
mod station;
pub mod tune;
pub mod verdict;
