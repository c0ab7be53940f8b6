//! The command `foreread`: it talks. The binary calls [`main`], and so does the Python package.
//!
//! Thin: parses, calls the lab or the engine, prints. Results go to stdout, progress and errors to stderr; an
//! error is one line, `foreread: what: where; remedy`. Exit codes: 0 done, 1 a check failed, 2 bad usage or bad
//! input, 3 not on this machine, 70 a bug of ours. Never: measures, decides or formats a number itself.
//!
//! ```text
//!   args ──► one file per command ──► lab or engine
//!                    │
//!            fail, out, names, progress
//! ```

pub mod args;
mod catalog;
mod check;
mod compare;
pub mod compare_error;
mod completions;
mod config;
pub mod convert;
mod crash;
mod explain;
pub mod fail;
mod log;
mod man;
mod models;
#[cfg(feature = "fuse")]
mod mount;
pub mod names;
#[cfg(feature = "fuse")]
mod next;
pub mod out;
mod plan;
mod policies;
mod policy_list;
mod probe;
pub mod progress;
pub mod reads;
mod record;
#[cfg(any(feature = "fuse", feature = "nbd"))]
mod recording;
mod replay_log;
mod replay_plan;
mod run;
#[cfg(feature = "nbd")]
mod serve;
#[cfg(any(feature = "fuse", feature = "nbd"))]
mod serving;
pub mod signals;
mod source;
mod sweep;
mod trace;
mod tune;
mod vary;
mod warm;
mod watch;
mod workloads;

use args::{Args, Command};
use clap::Parser;
use fail::Fail;
pub use foreread_pagecache::program::{Program, set as set_program};
use std::ffi::OsString;
use std::io::Write;

/// A command line that is parsed, refused and carried out as `foreread`'s is.
pub trait CommandLine: Parser {
    /// What a user calls it: "foreread".
    const PROGRAM: &'static str;

    fn global(&self) -> &args::GlobalArgs;

    fn run(&self) -> Result<(), Fail>;
}

impl CommandLine for Args {
    const PROGRAM: &'static str = "foreread";

    fn global(&self) -> &args::GlobalArgs {
        &self.global
    }

    fn run(&self) -> Result<(), Fail> {
        run(self)
    }
}

/// Runs the command: its name, then its arguments. Returns the exit code. Once in a process, which is the command's from then on:
/// panics, signals and the log are handled as the commands need it.
#[must_use]
pub fn main(arguments: &[OsString]) -> u8 {
    main_of::<Args>(arguments)
}

/// The same of another command line.
#[must_use]
pub fn main_of<A: CommandLine>(arguments: &[OsString]) -> u8 {
    let words = arguments.get(1..).unwrap_or_default();
    if foreread_observe::tracefs::guard::run_if_asked(words)
        || foreread_attach::watch::guard::run_if_asked(words)
    {
        return 0;
    }
    let code = crash::guarded(|| {
        #[cfg(debug_assertions)]
        crash::on_request();
        let args = match A::try_parse_from(arguments) {
            Ok(args) => args,
            Err(error) => return args::refuse(&error, &A::command(), A::PROGRAM, arguments),
        };
        log::start(args.global().log)?;
        out::fit_terminal();
        out::set_force(args.global().force);
        args.run()
    });
    // Rust does so where its own `main` ends.
    let _ = std::io::stdout().flush();
    code
}

fn run(args: &Args) -> Result<(), Fail> {
    let global = &args.global;
    match &args.command {
        Command::Compare(asked) => compare::run(asked),
        Command::Explain(asked) => explain::run(asked),
        Command::Import(asked) => convert::import(asked),
        Command::Export(asked) => convert::export(asked),
        Command::Trace(asked) => trace::run(&asked.command),
        Command::Policies(asked) => policies::run(asked.json),
        Command::Models(asked) => models::run(asked),
        Command::Workloads(asked) => workloads::run(asked.json),
        Command::Probe(asked) => probe::run(asked),
        Command::Record(asked) => record::run(asked),
        Command::Run(asked) => run::run(asked),
        Command::Plan(asked) => plan::run(asked),
        Command::Replay(asked) => replay_plan::run(asked),
        Command::Warm(asked) => warm::run(asked),
        #[cfg(feature = "nbd")]
        Command::Serve(asked) => serve::run(asked),
        #[cfg(feature = "fuse")]
        Command::Mount(asked) => mount::run(asked),
        #[cfg(feature = "fuse")]
        Command::Next(asked) => next::run(asked),
        Command::ReplayLog(asked) => replay_log::run(&asked.log),
        Command::Sweep(asked) => sweep::run(asked),
        Command::Tune(asked) => tune::run(asked),
        Command::Watch(asked) => watch::run(asked),
        Command::Check(asked) => check::run(None, asked, global),
        Command::Bench(asked) => check::run(Some("bench"), asked, global),
        Command::Conform(asked) => check::run(Some("conform"), asked, global),
        Command::Reproduce(asked) => check::run(Some("reproduce"), asked, global),
        Command::Completions(asked) => completions::run(asked.shell),
        Command::Man(asked) => man::run(asked.dir.as_deref()),
    }
}
