//! The binary `foreread`: the command of the library beside it, with the arguments of this process.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Begun by itself it has the name "exe": ps and the messages of others shall name the command.
    foreread_pagecache::program::take_name();
    foreread_pagecache::program::tune_heap();
    ExitCode::from(foreread_cli::main(&Vec::from_iter(std::env::args_os())))
}
