//! The binary `foreread`: the command of the library beside it, with the arguments of this process.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(foreread_cli::main(&Vec::from_iter(std::env::args_os())))
}
