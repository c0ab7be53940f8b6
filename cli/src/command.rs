//! The table of commands: a row for each, with its arguments, what runs it, and the feature of the build that has it.
//!
//! A new command is a file in `command/` with its arguments and `run`, and a `mod` line and a row here. The help of a command is the
//! comment of its arguments: a comment here would replace the long text of `--help`.

#[cfg(feature = "object")]
mod cache;
#[cfg(feature = "lab")]
mod check;
#[cfg(feature = "lab")]
mod compare;
pub mod completions;
#[cfg(feature = "lab")]
mod convert;
#[cfg(feature = "lab")]
mod doctor;
#[cfg(feature = "lab")]
mod explain;
pub mod man;
#[cfg(feature = "lab")]
mod models;
#[cfg(feature = "mount")]
mod mount;
#[cfg(feature = "mount")]
mod next;
#[cfg(feature = "lab")]
mod plan;
#[cfg(feature = "lab")]
mod policies;
#[cfg(feature = "lab")]
mod probe;
#[cfg(feature = "lab")]
mod record;
#[cfg(feature = "lab")]
mod replay_log;
#[cfg(feature = "lab")]
mod replay_plan;
#[cfg(feature = "lab")]
mod run;
#[cfg(feature = "serve")]
mod serve;
#[cfg(feature = "lab")]
mod sweep;
#[cfg(feature = "lab")]
mod trace;
#[cfg(feature = "lab")]
mod tune;
#[cfg(feature = "lab")]
mod warm;
#[cfg(feature = "lab")]
mod watch;
#[cfg(feature = "lab")]
mod workloads;

use crate::CommandLine;
use crate::args::GlobalArgs;
#[cfg(feature = "lab")]
use crate::args::ListArgs;
use crate::fail::Fail;
use clap::{CommandFactory, Parser, Subcommand};

macro_rules! commands {
    ($($(#[$attribute:meta])* $($feature:literal)? $name:ident($args:ty) => $run:path,)*) => {
        #[derive(Debug, Subcommand)]
        enum Command {
            $($(#[cfg(feature = $feature)])? $(#[$attribute])* $name($args),)*
        }

        fn run_command(command: &Command) -> Result<(), Fail> {
            match command {
                $($(#[cfg(feature = $feature)])? Command::$name(args) => $run(args),)*
            }
        }

        fn left_out(command: &str) -> Option<&'static str> {
            let all = [$($((stringify!($name), $feature, cfg!(feature = $feature)),)?)*];
            let named = |name: &str| name.to_lowercase() == command.replace('-', "");
            let found = all.into_iter().find(|(name, _, _)| named(name));
            found.filter(|(_, _, built)| !built).map(|(_, feature, _)| feature)
        }
    };
}

commands! {
    "lab" Compare(Box<compare::CompareArgs>) => compare::run,
    "lab" Explain(Box<explain::ExplainArgs>) => explain::run,
    "lab" Tune(Box<tune::TuneArgs>) => tune::run,
    #[command(hide = true)]
    "lab" Doctor(doctor::DoctorArgs) => doctor::run,
    "lab" Probe(probe::ProbeArgs) => probe::run,
    "lab" Record(record::RecordArgs) => record::run,
    "lab" Run(run::RunArgs) => run::run,
    "lab" Plan(plan::PlanArgs) => plan::run,
    "lab" Replay(replay_plan::ReplayPlanArgs) => replay_plan::run,
    "lab" Warm(warm::WarmArgs) => warm::run,
    /// Make the published tables again (foreread-check)
    "lab" Reproduce(check::CheckArgs) => check::reproduce,
    "serve" Serve(serve::ServeArgs) => serve::run,
    "mount" Mount(mount::MountArgs) => mount::run,
    #[command(hide = true)]
    "mount" Next(next::NextArgs) => next::run,
    #[command(hide = true)]
    "object" Cache(cache::CacheArgs) => cache::run,
    "lab" Import(convert::ImportArgs) => convert::import,
    "lab" Export(convert::ExportArgs) => convert::export,
    "lab" Trace(trace::TraceArgs) => trace::run,
    /// List the policies: parameters, defaults, units, origin
    #[command(
        hide = true,
        after_help = "\
Written NAME or NAME:key=value,key=value; sizes take K, M, G, T.

Example:
  foreread compare --policy linux-6.18:max=1M,rbd-plain:trigger=3,max=1M"
    )]
    "lab" Policies(ListArgs) => policies::run,
    #[command(hide = true)]
    "lab" Models(models::ModelsArgs) => models::run,
    /// List the workloads: parameters, defaults, units, origin
    #[command(
        hide = true,
        after_help = "\
Written NAME or NAME:key=value,key=value; sizes take K, M, G, T.

Example:
  foreread compare random:record=16K --on model:nvme"
    )]
    "lab" Workloads(ListArgs) => workloads::run,
    /// Check decisions against a kernel's or librbd's (foreread-check)
    #[command(hide = true)]
    "lab" Conform(check::CheckArgs) => check::conform,
    #[command(hide = true)]
    "lab" Sweep(sweep::SweepArgs) => sweep::run,
    #[command(hide = true)]
    "lab" Watch(watch::WatchArgs) => watch::run,
    #[command(hide = true)]
    "lab" ReplayLog(replay_log::ReplayLogArgs) => replay_log::run,
    /// Measure foreread itself (foreread-check)
    #[command(hide = true)]
    "lab" Bench(check::CheckArgs) => check::bench,
    /// Run a check: reproduce, conform, bench (foreread-check)
    #[command(hide = true)]
    "lab" Check(check::CheckArgs) => check::check,
    #[command(hide = true)]
    Completions(completions::CompletionsArgs) => complete,
    #[command(hide = true)]
    Man(man::ManArgs) => describe,
}

#[cfg(feature = "lab")]
macro_rules! examples {
    () => {
        "Example: foreread compare boot-ide --on model:rbd --policy none,linux-6.18"
    };
}
#[cfg(not(feature = "lab"))]
macro_rules! examples {
    () => {
        "Example: foreread serve disk.img --unix disk.sock"
    };
}

/// What the list of commands leaves out.
#[cfg(feature = "lab")]
macro_rules! also {
    () => {
        "Also: bench, cache, check, completions, conform, doctor, man, models, next,\n      policies, replay-log, sweep, watch, workloads\n"
    };
}
#[cfg(not(feature = "lab"))]
macro_rules! also {
    () => {
        "Also: cache, completions, man\n"
    };
}

/// Readahead (prefetch) for S3, RBD, NBD and files: measure, simulate, serve
///
/// Readahead fetches data before a program asks for it. 'foreread compare' runs a workload under several published
/// readahead policies, on a file, a block device or a model of a storage, and shows what each one gains, what it
/// reads for nothing, and whether the difference is more than noise. 'serve' and 'mount' use the same policies.
///
/// Exit codes: 0 done, 1 a check failed, 2 bad usage or bad input, 3 not on this machine, 70 a bug
/// of foreread.
#[derive(Debug, Parser)]
#[command(
    name = "foreread",
    version,
    max_term_width = 80,
    disable_help_subcommand = true
)]
// The commands in the list leave no room for a line of each option, nor for all commands: some are hidden in it and named below. Manual pages have the examples from the second place.
#[command(
    arg_required_else_help = true,
    help_template = concat!(
        "{about}\n{usage-heading} {usage}\n\nCommands:\n{subcommands}\n\n",
        also!(),
        "Options: -h, --help (long), -V, --version\n",
        examples!()
    ),
    after_help = examples!()
)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    global: GlobalArgs,
}

fn complete(args: &completions::CompletionsArgs) -> Result<(), Fail> {
    completions::run(args, &mut Args::command(), "foreread")
}

fn describe(args: &man::ManArgs) -> Result<(), Fail> {
    man::run(args, Args::command())
}

impl CommandLine for Args {
    const PROGRAM: &'static str = "foreread";

    fn global(&self) -> &GlobalArgs {
        &self.global
    }

    fn run(&self) -> Result<(), Fail> {
        run_command(&self.command)
    }

    fn left_out(command: &str) -> Option<&'static str> {
        left_out(command)
    }
}
