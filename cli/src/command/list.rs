//! `foreread list`: lists the names that other commands accept. Each list has a file in `list/` and a row in the table
//! of this file.

mod catalog;
mod models;
mod policies;
mod workloads;

use crate::args::JsonArgs;
use crate::fail::Fail;
use clap::Subcommand;

/// List policies, models or workloads: parameters, defaults, units
///
/// Other commands accept an entry as NAME or NAME:key=value,key=value. Sizes take K, M, G, T.
#[derive(Debug, clap::Args)]
#[command(disable_help_subcommand = true)]
pub struct ListArgs {
    /// What to list.
    #[command(subcommand)]
    pub command: ListCommand,
}

/// The lists.
#[derive(Debug, Subcommand)]
pub enum ListCommand {
    /// List the policies: parameters, defaults, units, origin
    #[command(after_help = "\
Example:
  foreread compare --policy linux-6.18:max=1M,rbd-plain:trigger=3,max=1M")]
    Policies(JsonArgs),
    Models(models::ModelsArgs),
    /// List the workloads: parameters, defaults, units, origin
    #[command(after_help = "\
Example:
  foreread compare random:record=16K --on model:nvme")]
    Workloads(JsonArgs),
}

/// Prints the list.
pub fn run(args: &ListArgs) -> Result<(), Fail> {
    match &args.command {
        ListCommand::Policies(asked) => policies::run(asked),
        ListCommand::Models(asked) => models::run(asked),
        ListCommand::Workloads(asked) => workloads::run(asked),
    }
}
