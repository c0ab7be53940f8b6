//! The command `foreread`. The binary and the Python package call [`main`].
//!
//! The command parses its command line, calls the lab or the engine, and prints. Results go to stdout, progress and
//! errors to stderr; an error is one line, `foreread: what: where; remedy`. Exit codes: 0 done, 1 a check failed, 2 bad
//! usage or bad input, 3 not possible on this machine, 70 a bug of foreread. Other crates measure, decide and format
//! numbers.
//!
//! ```text
//!   args ──► command/: one file for each ──► lab or engine
//!                    │
//!            fail, out, progress
//! ```

#[cfg(not(any(feature = "lab", feature = "mount", feature = "serve")))]
compile_error!("enable at least one of the features lab, serve, mount");

pub mod args;
pub mod command;
mod config;
mod crash;
pub mod fail;
mod log;
#[cfg(feature = "otlp")]
mod otlp;
pub mod out;
#[cfg(feature = "lab")]
mod policy_list;
#[cfg(any(feature = "lab", feature = "object"))]
pub mod progress;
#[cfg(feature = "lab")]
pub mod reads;
#[cfg(any(feature = "mount", feature = "serve"))]
#[cfg_attr(not(feature = "lab"), path = "no_recording.rs")]
mod recording;
#[cfg(any(feature = "mount", feature = "serve"))]
mod serving;
pub mod signals;
#[cfg(feature = "lab")]
mod source;
#[cfg(feature = "lab")]
pub mod traces;

use args::GlobalArgs;
use clap::Parser;
use command::Args;
use fail::Fail;
use foreread_os::ends;
pub use foreread_pagecache::program::{Program, set as set_program};
use std::ffi::OsString;
use std::io::Write;

/// The command line of a program (`foreread` or `foreread-check`): its options, and what the program does.
pub trait CommandLine: Parser {
    /// The name of the program: "foreread".
    const PROGRAM: &'static str;

    fn global(&self) -> &GlobalArgs;

    fn run(&self) -> Result<(), Fail>;

    /// The effective command line, if it is not that of this process.
    fn given(own: &[OsString]) -> Vec<OsString> {
        own.to_vec()
    }

    /// The command line in the form that the parser accepts.
    fn expanded(arguments: &[OsString]) -> Result<Vec<OsString>, Fail> {
        Ok(arguments.to_vec())
    }

    /// Whether the command sends spans if the environment names a receiver.
    fn has_telemetry(&self) -> bool {
        false
    }

    /// The Cargo feature that a command needs and this build lacks.
    fn left_out(_command: &str) -> Option<&'static str> {
        None
    }
}

/// Runs the command that `arguments` describe: the program's name, then its arguments. Returns the exit code. A process may call this
/// function only once, because it sets process-wide handlers for panics, signals and the log.
pub fn main(arguments: &[OsString]) -> u8 {
    main_of::<Args>(arguments)
}

pub fn main_of<A: CommandLine>(arguments: &[OsString]) -> u8 {
    #[cfg(feature = "lab")]
    {
        let words = arguments.get(1..).unwrap_or_default();
        if foreread_observe::tracefs::instance::run_if_asked(words) {
            return 0;
        }
    }
    let code = crash::guarded(|| {
        #[cfg(debug_assertions)]
        crash::on_request();
        let Some(args) = args::parse::<A>(arguments)? else {
            return Ok(());
        };
        args::set_global(args.global());
        log::start(args.global().log, args.has_telemetry())?;
        #[cfg(feature = "object")]
        args.global().stores.set()?;
        out::fit_terminal();
        ends::say_by(|line| fail::note(line));
        let ran = args.run();
        #[cfg(feature = "otlp")]
        {
            ends::waits_for("the receiver of telemetry");
            otlp::end();
        }
        ends::is_over();
        ran
    });
    // Rust does this at the end of a program's `main`.
    let _ = std::io::stdout().flush();
    code
}
