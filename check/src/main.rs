//! The binary `foreread-check`, which `foreread check` runs.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(foreread_check::main(&Vec::from_iter(std::env::args_os())))
}
