//! Verification: checks foreread against publications, the kernel and librbd, and measures how good its
//! policies are. It is a separate binary, `foreread-check`, which `foreread` runs for
//! `check`, `reproduce`, `conform` and `bench`.
//!
//! ```text
//!   command/ ──► reproduce    the tables of publications, made again
//!            ├─► conform      decisions beside a kernel's and librbd's
//!            ├─► store        tests of a real object store
//!            └─► bench        reads a second; policies beside opponents in many cells ──► evaluation
//! ```
//! It measures by the lab and talks by the command's own means (`foreread-cli`): errors, output, progress, signals.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "a test may panic where a thread is refused"
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

/// Runs `foreread-check`: its name, then its arguments. Returns the exit code.
pub fn main(arguments: &[OsString]) -> u8 {
    foreread_cli::main_of::<command::Args>(arguments)
}
