//! The binary `foreread-csi`: parses its arguments and serves until SIGTERM. An error is printed as one line.

use clap::Parser;
use foreread_csi::Arguments;
use std::process::ExitCode;

fn main() -> ExitCode {
    match foreread_csi::run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("foreread-csi: {failure}");
            ExitCode::from(2)
        }
    }
}
