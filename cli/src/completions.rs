//! `foreread completions SHELL`: the completion script, generated from the arguments themselves.

use crate::command::Args;
use crate::fail::Fail;
use crate::out;
use clap::CommandFactory;
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

/// Prints it. Written to memory first: the generator panics on a closed pipe.
pub fn run(args: &CompletionsArgs) -> Result<(), Fail> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "foreread", &mut script);
    out::print(script)
}
