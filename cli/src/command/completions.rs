//! `foreread completions SHELL`: prints a completion script generated from the argument definitions.

use crate::fail::Fail;
use crate::out;
use clap_complete::Shell;

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  foreread completions bash > /etc/bash_completion.d/foreread")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// Prints the completion script. The script is generated in memory first, because the generator of clap would panic if stdout is a closed
/// pipe.
pub fn run(args: &CompletionsArgs, command: &mut clap::Command, program: &str) -> Result<(), Fail> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, program, &mut script);
    out::print(script)
}
