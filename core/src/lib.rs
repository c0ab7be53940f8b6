//! The room that **decides**.
//!
//! Readahead is a decision, and a decision needs no bytes, no clock and no I/O: this crate holds the
//! policies, the page index and the [`machine::Machine`] between them, and nothing else. The engine
//! feeds it real reads and completions, the lab feeds it a virtual clock and a device model, and both
//! get the same answers.
//!
//! Never: waits, asks the time, holds bytes, does I/O, uses floating point or depends on a crate.
//!
//! ```text
//!            events in                                     actions out
//!   read, done, failed, ...  ──►  machine  ──►  submit a fetch, serve a read, drop pages, ...
//!                                 │     │
//!                      what next? │     │ what is here?
//!                              policy  cache
//! ```
#![no_std]
extern crate alloc;

pub mod cache;
pub mod event;
pub mod machine;
pub mod policy;
pub mod stats;
pub mod units;
