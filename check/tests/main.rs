//! The tests of `foreread-check` as one binary, because linking is the slow part of a test build.

mod bench_policies;
mod command;
mod command_bench_policies;
mod command_conform;
mod command_conform_live;
mod command_replay_log;
#[cfg(feature = "object")]
mod command_store;
mod common;
mod conform;
#[cfg(feature = "rbd")]
mod conform_rbd;
mod device_fits;
mod page;
mod recorded_programs;
mod reproduce;
