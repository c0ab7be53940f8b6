//! The table of commands. Each row has the command's arguments, the function that runs it, and the Cargo feature that enables it.
//!
//! To add a command, write a file in `command/` with its arguments and `run`, and add a `mod` line and a row here. A
//! command's help is the doc comment of its argument struct. A row of the table must not have a doc comment, because
//! that would replace the long text of `--help`.

#[cfg(feature = "object")]
mod cache;
#[cfg(feature = "lab")]
mod check;
#[cfg(feature = "lab")]
mod compare;
pub mod completions;
#[cfg(feature = "lab")]
mod doctor;
#[cfg(feature = "lab")]
mod explain;
mod first_page;
mod health;
#[cfg(feature = "lab")]
mod list;
pub mod man;
#[cfg(feature = "mount")]
mod mount;
#[cfg(feature = "lab")]
mod plan;
#[cfg(feature = "lab")]
mod probe;
#[cfg(feature = "lab")]
mod record;
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
#[cfg(feature = "mount")]
mod umount;
#[cfg(feature = "lab")]
mod warm;
#[cfg(feature = "lab")]
mod watch;

use crate::CommandLine;
use crate::args::{self, GlobalArgs};
use crate::fail::Fail;
use clap::{CommandFactory, Parser, Subcommand};
#[cfg(feature = "mount")]
use std::ffi::OsString;

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
    "mount" Mount(mount::MountArgs) => mount::run,
    "serve" Serve(serve::ServeArgs) => serve::run,
    "lab" Run(run::RunArgs) => run::run,
    "lab" Warm(warm::WarmArgs) => warm::run,
    "lab" Plan(plan::PlanArgs) => plan::run,
    "lab" Replay(replay_plan::ReplayPlanArgs) => replay_plan::run,
    "lab" Doctor(doctor::DoctorArgs) => doctor::run,
    "lab" Compare(Box<compare::CompareArgs>) => compare::run,
    "lab" Tune(Box<tune::TuneArgs>) => tune::run,
    "lab" Probe(probe::ProbeArgs) => probe::run,
    "lab" Record(record::RecordArgs) => record::run,
    "lab" Explain(Box<explain::ExplainArgs>) => explain::run,
    #[command(arg = args::hidden_force())]
    "lab" Watch(watch::WatchArgs) => watch::run,
    "lab" Trace(trace::TraceArgs) => trace::run,
    "lab" List(list::ListArgs) => list::run,
    "object" Cache(cache::CacheArgs) => cache::run,
    "lab" Check(check::CheckArgs) => check::run,
    "lab" Sweep(sweep::SweepArgs) => sweep::run,
    #[command(arg = args::hidden_force())]
    "mount" Umount(umount::UmountArgs) => umount::run,
    #[command(arg = args::hidden_force())]
    Health(health::HealthArgs) => health::run,
    #[command(arg = args::hidden_force())]
    Completions(completions::CompletionsArgs) => complete,
    Man(man::ManArgs) => describe,
}

/// Readahead (prefetch) for S3, RBD, NBD and files: measure, simulate, serve
///
/// Readahead fetches data before a program asks for it. 'foreread compare' runs a workload under several published
/// readahead policies, on a file, a block device or a storage model. It shows what each policy gains, how much unused data each reads,
/// and whether a difference is more than noise. 'serve' and 'mount' use the same policies.
#[derive(Debug, Parser)]
#[command(
    name = "foreread",
    version,
    long_version = first_page::version(),
    max_term_width = 80,
    arg_required_else_help = true,
    help_template = first_page::template(&Command::augment_subcommands(clap::Command::new(""))),
    // The manual page takes its example from here.
    after_help = first_page::EXAMPLE
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
    man::run(args, args::with_help(Args::command()))
}

impl CommandLine for Args {
    const PROGRAM: &'static str = "foreread";

    fn global(&self) -> &GlobalArgs {
        &self.global
    }

    fn run(&self) -> Result<(), Fail> {
        run_command(&self.command)
    }

    #[cfg(feature = "mount")]
    fn given(own: &[OsString]) -> Vec<OsString> {
        mount::background::arguments(own)
    }

    #[cfg(feature = "mount")]
    fn expanded(arguments: &[OsString]) -> Result<Vec<OsString>, Fail> {
        mount::options::expanded(arguments)
    }

    fn has_telemetry(&self) -> bool {
        match &self.command {
            #[cfg(feature = "mount")]
            Command::Mount(_) => true,
            #[cfg(feature = "serve")]
            Command::Serve(_) => true,
            #[cfg(feature = "lab")]
            Command::Run(_) => true,
            _ => false,
        }
    }

    fn left_out(command: &str) -> Option<&'static str> {
        left_out(command)
    }
}
