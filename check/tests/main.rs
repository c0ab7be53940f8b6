//! The tests of `foreread-check` as one binary, because linking is the slow part of a test build.

mod bench_policies;
mod command;
mod command_conform_live;
mod common;
mod conform;
#[cfg(feature = "rbd")]
mod conform_rbd;
mod page;
mod recorded_programs;
mod reproduce;
