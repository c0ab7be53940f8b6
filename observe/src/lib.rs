//! Observes what programs read.
//!
//! ```text
//!   a command, a process ──► kernel ──tracepoints──► tracefs ──► record ──► a trace
//!   a program ───────────► /proc ──samples─────────────────► sample ──► touches
//!   a mount, a server ─────► the engine ────────────────────► recorder ──► a trace
//! ```
//! This crate makes no readahead decisions and does not affect the observed programs.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "a test may panic if a thread cannot be started"
    )
)]

pub mod record;
pub mod recorder;
pub mod sample;
pub mod touch;
pub mod tracefs;
