//! `foreread completions SHELL`: the completion script, generated from the arguments themselves.

use crate::args::Args;
use crate::fail::Fail;
use crate::out;
use clap::CommandFactory;
use clap_complete::Shell;

/// Prints it. Written to memory first: the generator panics on a closed pipe.
pub fn run(shell: Shell) -> Result<(), Fail> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "foreread", &mut script);
    out::print(script)
}
