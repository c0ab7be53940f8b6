//! The room that **measures**: comparison, replay, recording, explanation, tuning, reproduction, conformance, benches.
//!
//! It drives the simulator of `foreread-sim`, and the engine `foreread` on real storage, and puts both into the same
//! rows; traces come from `foreread-trace`. Never: prints.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "a test may panic where a thread is refused"
    )
)]

pub mod bench;
pub mod bench_policies;
pub mod compare;
pub mod conform;
pub mod device_number;
pub mod evaluation;
pub mod explain;
pub mod import_bench;
pub mod live;
pub mod planning;
pub mod probe;
pub mod program;
pub mod record;
pub mod recorder;
pub mod replay;
pub mod report;
pub mod reproduce;
pub mod run;
pub mod sweep;
pub mod tracefs;
pub mod tune;
pub mod warm;
pub mod watch;
