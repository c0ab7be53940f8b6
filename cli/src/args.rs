//! The arguments of every command, and the one line that a wrong one gets.
//!
//! `-h` shows the first paragraph of each comment and fits 24 lines of 80 columns; `--help` shows all of it.
//! Never: looks at a file or a registry. What an argument means is its command's matter.

mod compare;
mod explain;
mod models;
#[cfg(feature = "fuse")]
mod mount;
#[cfg(feature = "fuse")]
mod next;
mod plan;
mod probe;
mod record;
mod replay;
mod run;
#[cfg(feature = "nbd")]
mod serve;
mod sweep;
mod trace;
mod tune;
mod values;
mod watch;

pub use compare::{CompareArgs, ReplayMode};
pub use explain::ExplainArgs;
pub use models::ModelsArgs;
#[cfg(feature = "fuse")]
pub use mount::MountArgs;
#[cfg(feature = "fuse")]
pub use next::NextArgs;
pub use plan::{PlanArgs, ReplayPlanArgs, WarmArgs};
pub use probe::ProbeArgs;
pub use record::RecordArgs;
pub use replay::ReplayArgs;
pub use run::RunArgs;
#[cfg(feature = "nbd")]
pub use serve::ServeArgs;
#[cfg(feature = "tls")]
pub use serve::TlsMode;
pub use sweep::SweepArgs;
pub use trace::{ExportArgs, ImportArgs, InfoArgs, TraceArgs, TraceCommand};
pub use tune::TuneArgs;
pub use watch::WatchArgs;

use crate::fail::Fail;
use crate::log::LogLevel;
use crate::names;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};
use clap_complete::Shell;
use std::ffi::OsString;
use std::path::PathBuf;

macro_rules! examples {
    () => {
        "Example: foreread compare boot-ide --on model:rbd --policy none,linux-6.18"
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
// 18 commands in the list leave no room for a line of each option, nor for all commands: some are hidden in it and named below. Manual pages have the examples from the second place.
#[command(
    arg_required_else_help = true,
    help_template = concat!(
        "{about}\n{usage-heading} {usage}\n\nCommands:\n{subcommands}\n\n",
        "Also: bench, check, completions, conform, man, models, next, policies,\n      replay-log, sweep, watch, workloads\n",
        "Options: -h, --help (long), -V, --version\n",
        examples!()
    ),
    after_help = examples!()
)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub global: GlobalArgs,
}

/// The options that every command has.
#[derive(Debug, clap::Args)]
pub struct GlobalArgs {
    /// What to report on stderr: off, error, warn, info, debug, trace
    ///
    /// Clients, reconnections and errors of sources, one line each. Default: FOREREAD_LOG, or warn.
    #[arg(
        id = "log-level",
        long = "log",
        value_name = "LEVEL",
        global = true,
        hide_short_help = true,
        hide_possible_values = true
    )]
    pub log: Option<LogLevel>,
    /// Replace output files that are there
    ///
    /// Of every option that names a file to write (-o, --json, --html, --svg, --record ...). Without it a file or link that is there is
    /// refused. A link is never followed: with --force it is replaced. Pipes, terminals, /dev/stdout and '-' are written as they are.
    #[arg(long, global = true, hide_short_help = true)]
    pub force: bool,
}

/// The commands. The help of each is the comment of its arguments: a comment here would replace the long text of `--help`.
#[derive(Debug, Subcommand)]
pub enum Command {
    Compare(Box<CompareArgs>),
    Explain(Box<ExplainArgs>),
    Tune(Box<TuneArgs>),
    Probe(ProbeArgs),
    Record(RecordArgs),
    Run(RunArgs),
    Plan(PlanArgs),
    Replay(ReplayPlanArgs),
    Warm(WarmArgs),
    /// Make the published tables again (foreread-check)
    Reproduce(CheckArgs),
    #[cfg(feature = "nbd")]
    Serve(ServeArgs),
    #[cfg(feature = "fuse")]
    Mount(MountArgs),
    #[cfg(feature = "fuse")]
    #[command(hide = true)]
    Next(NextArgs),
    Import(ImportArgs),
    Export(ExportArgs),
    Trace(TraceArgs),
    /// List the policies: parameters, defaults, units, origin
    #[command(
        hide = true,
        after_help = "\
Written NAME or NAME:key=value,key=value; sizes take K, M, G, T.

Example:
  foreread compare --policy linux-6.18:max=1M,rbd-plain:trigger=3,max=1M"
    )]
    Policies(ListArgs),
    #[command(hide = true)]
    Models(ModelsArgs),
    /// List the workloads: parameters, defaults, units, origin
    #[command(
        hide = true,
        after_help = "\
Written NAME or NAME:key=value,key=value; sizes take K, M, G, T.

Example:
  foreread compare random:record=16K --on model:nvme"
    )]
    Workloads(ListArgs),
    /// Check decisions against a kernel's or librbd's (foreread-check)
    #[command(hide = true)]
    Conform(CheckArgs),
    #[command(hide = true)]
    Sweep(SweepArgs),
    #[command(hide = true)]
    Watch(WatchArgs),
    #[command(hide = true)]
    ReplayLog(ReplayLogArgs),
    /// Measure foreread itself (foreread-check)
    #[command(hide = true)]
    Bench(CheckArgs),
    /// Run a check: reproduce, conform, bench (foreread-check)
    #[command(hide = true)]
    Check(CheckArgs),
    #[command(hide = true)]
    Completions(CompletionsArgs),
    #[command(hide = true)]
    Man(ManArgs),
}

/// A list.
#[derive(Debug, clap::Args)]
pub struct ListArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Replay an event log on a fresh core, compare the actions
///
/// The engine can log every event that it feeds to its core, and every action of the core. A fresh core fed with the same
/// events must give the same actions; then what the simulator says is what the engine does.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints 'identical: N events, M actions', or the first difference (exit code 1).

Example:
  foreread replay-log run.log")]
pub struct ReplayLogArgs {
    /// The event log, plain or compressed by gzip, zstd, xz or bzip2
    #[arg(value_name = "LOG")]
    pub log: PathBuf,
}

/// What goes to `foreread-check`: everything behind the command's name.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct CheckArgs {
    /// Its arguments; -h lists them
    #[arg(
        value_name = "ARGUMENTS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub arguments: Vec<OsString>,
}

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

/// Print the manual page, or write all of them
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread man | man -l -
  foreread man ~/.local/share/man/man1")]
pub struct ManArgs {
    /// Write foreread.1 and a page for each command to this directory
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Answers what the parser refused: help and version are results, everything else is one line.
///
/// `command` is what was parsed for, `program` what a user calls it.
pub fn refuse(
    error: &clap::Error,
    command: &clap::Command,
    program: &str,
    arguments: &[OsString],
) -> Result<(), Fail> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            error.print().map_err(|e| match e.kind() {
                std::io::ErrorKind::BrokenPipe => Fail::Closed,
                _ => Fail::input(
                    "cannot write",
                    format!("stdout: {e}"),
                    "free some space or write elsewhere",
                ),
            })
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // The help screen is what a bare `foreread` asks for; it goes to stderr, since nothing was done.
            let _ = error.print();
            Err(Fail::Said)
        }
        ErrorKind::UnknownArgument if !cfg!(feature = "tls") && wants_tls(error) => Err(
            Fail::Cannot("this build has no TLS; build it with --features tls".to_string()),
        ),
        // Below a command the parser's own line names what there is.
        ErrorKind::InvalidSubcommand if command_asked(command, arguments).is_empty() => {
            let name = match error.get(ContextKind::InvalidSubcommand) {
                Some(ContextValue::String(name)) => name.as_str(),
                _ => "",
            };
            if let Some(feature) = left_out(name) {
                let line =
                    format!("this build has no '{name}'; build it with --features {feature}");
                return Err(Fail::Cannot(line));
            }
            let known: Vec<&str> = command
                .get_subcommands()
                .map(clap::Command::get_name)
                .collect();
            Err(names::unknown(
                "command",
                name,
                &known,
                &format!("{program} -h"),
            ))
        }
        _ => Err(Fail::Input(in_one_line(error, command, program, arguments))),
    }
}

/// The feature that a command needs, where this build was made without it.
fn left_out(name: &str) -> Option<&'static str> {
    let fuse = cfg!(feature = "fuse");
    let all = [
        ("mount", "fuse", fuse),
        ("next", "fuse", fuse),
        ("serve", "nbd", cfg!(feature = "nbd")),
    ];
    all.into_iter()
        .find(|(command, _, built)| *command == name && !built)
        .map(|(_, feature, _)| feature)
}

/// The argument that is not known is one of those for TLS.
fn wants_tls(error: &clap::Error) -> bool {
    matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(name)) if name.starts_with("--tls"))
}

/// The parser's complaint and its tips without its usage, and the command that helps.
fn in_one_line(
    error: &clap::Error,
    command: &clap::Command,
    program: &str,
    arguments: &[OsString],
) -> String {
    let text = error.render().to_string();
    let mut parts = Vec::new();
    for paragraph in text.split("\n\n") {
        let line = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some(what) = line.strip_prefix("error: ") {
            parts.push(what.to_string());
        } else if let Some(tip) = line.strip_prefix("tip: ") {
            parts.push(tip.to_string());
        }
    }
    let asked = command_asked(command, arguments);
    if error.kind() == ErrorKind::UnknownArgument
        && is_a_commands_word(error, command, asked.trim_start())
    {
        parts.push("write '--' before the command that is to run".to_string());
    }
    parts.push(format!("see '{program}{asked} -h'"));
    parts.join("; ")
}

/// Whether the argument that is not known looks like a command's name, and `asked` runs commands, which it takes behind '--' alone.
fn is_a_commands_word(error: &clap::Error, command: &clap::Command, asked: &str) -> bool {
    let is_word = matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(word)) if !word.starts_with('-'));
    let runs = |command: &clap::Command| command.get_positionals().any(clap::Arg::is_last_set);
    is_word && command.find_subcommand(asked).is_some_and(runs)
}

/// ` compare`, if that is the command that was asked for. The parser does not always say.
fn command_asked(command: &clap::Command, arguments: &[OsString]) -> String {
    let asked = arguments.get(1).cloned().unwrap_or_default();
    let known = command.get_subcommands().any(|c| asked == c.get_name());
    if known {
        format!(" {}", asked.display())
    } else {
        String::new()
    }
}
