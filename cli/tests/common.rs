//! Runs the built binary, without a terminal and with a plain environment.
#![allow(dead_code, reason = "each test binary uses its part of this")]

mod got;
pub mod help;
pub mod html;
pub mod odd;
pub mod outputs;
pub mod recorded;

pub use got::{Got, foreread, foreread_in};

const BINARY: &str = env!("CARGO_BIN_EXE_foreread");
