//! Runs the command `foreread` in the Python process. The installed script `foreread` executes `foreread/__main__.py`, which calls this
//! code.
//!
//! ```text
//!   foreread tune -- CMD ──► python ──► __main__.main ──► command ──► foreread_cli::main ──► exit code
//!                                         child: python -m foreread record ... (what `start` says)
//! ```
//! The thread is detached from the interpreter during the whole command, because the command runs no Python code.

use foreread_cli::{Program, main, set_program};
use pyo3::prelude::*;
use std::ffi::OsString;

/// Runs the command `foreread` with this command line (the name, then the arguments). To start itself again, the
/// command executes `start`; `file` is the binary that contains its code.
pub fn run(py: Python<'_>, arguments: &[OsString], start: Vec<OsString>, file: OsString) -> u8 {
    set_program(Program {
        start,
        file: file.into(),
    });
    py.detach(|| main(arguments))
}
