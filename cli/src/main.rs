//! The binary `foreread`: calls the library's `main` with the arguments of this process.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Executed through /proc/self/exe it would be named "exe" in ps and in messages of other programs.
    foreread_pagecache::program::take_name();
    foreread_pagecache::program::tune_heap();
    ExitCode::from(foreread_cli::main(&Vec::from_iter(std::env::args_os())))
}
