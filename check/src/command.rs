//! The commands of `foreread-check`: each file has the arguments and the implementation of one command.

mod bench;
mod bench_policies;
mod conform;
mod conform_live;
mod replay_log;
mod reproduce;
#[cfg(feature = "object")]
mod store;

use clap::{CommandFactory, Parser, Subcommand};
use foreread_cli::CommandLine;
use foreread_cli::args::{GlobalArgs, with_help};
use foreread_cli::command::completions::{self, CompletionsArgs};
use foreread_cli::command::man::{self, ManArgs};
use foreread_cli::fail::Fail;

/// Verify foreread: published tables, decisions of the kernel and librbd, benchmarks
#[derive(Debug, Parser)]
#[command(
    name = "foreread-check",
    bin_name = "foreread check",
    version,
    max_term_width = 80,
    disable_help_subcommand = true,
    arg_required_else_help = true,
    after_help = "Example: foreread check reproduce crume-2014"
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    global: GlobalArgs,
}

// The help of a command is the doc comment of its arguments: a comment here would replace the long text of `--help`.
#[derive(Debug, Subcommand)]
enum Command {
    Reproduce(reproduce::ReproduceArgs),
    Conform(conform::ConformArgs),
    Bench(bench::BenchArgs),
    ReplayLog(replay_log::ReplayLogArgs),
    #[cfg(feature = "object")]
    Store(store::StoreArgs),
    #[command(hide = true)]
    Completions(CompletionsArgs),
    #[command(hide = true)]
    Man(ManArgs),
}

impl CommandLine for Args {
    const PROGRAM: &'static str = "foreread check";

    fn global(&self) -> &GlobalArgs {
        &self.global
    }

    fn run(&self) -> Result<(), Fail> {
        match &self.command {
            Command::Reproduce(asked) => reproduce::run(asked),
            Command::Conform(asked) => conform::run(asked),
            Command::Bench(asked) => bench::run(asked),
            Command::ReplayLog(asked) => replay_log::run(asked),
            #[cfg(feature = "object")]
            Command::Store(asked) => store::run(asked),
            Command::Completions(asked) => {
                completions::run(asked, &mut Args::command(), "foreread-check")
            }
            Command::Man(asked) => man::run(asked, with_help(Args::command())),
        }
    }
}
