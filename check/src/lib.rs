//! Verification: checks foreread against publications, the kernel and librbd, and measures the quality of its policies.
//! The crate is a separate binary, `foreread-check`, which `foreread` runs for `check`, `reproduce`, `conform` and
//! `bench`.
//!
//! ```text
//!   command/ ──► reproduce    the tables of publications, reproduced
//!            ├─► conform      decisions compared with a kernel's and librbd's
//!            ├─► store        tests of a real object store
//!            └─► bench        reads per second; policies against opponents in many cells ──► evaluation
//! ```
//! The checks measure with the lab, and use `foreread-cli` for errors, output, progress and signals.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "a test may panic if a thread cannot be started"
    )
)]

pub mod bench;
mod command;
pub mod conform;
pub mod evaluation;
pub mod reproduce;
#[cfg(feature = "object")]
pub mod store;

use std::ffi::OsString;

/// Runs `foreread-check` with these arguments, of which the first is the program's name. Returns the exit code.
pub fn main(arguments: &[OsString]) -> u8 {
    foreread_cli::main_of::<command::Args>(arguments)
}
