//! Runs the built binary, without a terminal and with a plain environment.
#![allow(dead_code, reason = "each test binary uses its part of this")]

mod got;
pub mod help;
pub mod html;
pub mod odd;
pub mod outputs;
pub mod process;
pub mod recorded;
pub mod server;
pub mod snapshot;

pub use got::{Got, foreread, foreread_at, foreread_in};

use std::io::{BufRead, BufReader};
use std::process::Child;

/// The first line of what runs, with its end: by it a server or a mount says that it is there. Nothing where it ends without.
pub fn first_line(process: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(process.stdout.take().expect("piped"))
        .read_line(&mut line)
        .expect("its line");
    line
}

const BINARY: &str = env!("CARGO_BIN_EXE_foreread");
