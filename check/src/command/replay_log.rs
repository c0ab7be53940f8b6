//! `foreread check replay-log LOG`: replays the events of a log that the engine has recorded; the decision core must
//! decide the same actions as in the log.
//!
//! Logs compressed with gzip, zstd, xz or bzip2 are recognised by content and unpacked. The replay reads lines of
//! limited length, so a decompression bomb costs time but no memory.

use foreread::eventlog::{ReplayError, check_log_among};
use foreread_cli::fail::Fail;
use foreread_cli::out;
use foreread_history::{OPPONENTS, policies};
use foreread_os::open::stream;
use foreread_trace::input::unpack;
use std::io::BufReader;
use std::path::PathBuf;

/// Replay an event log of the engine, compare the actions
///
/// The engine can log every event for its core (the state machine that decides what to read) and every action of the
/// core. A new core that gets the same events must give the same actions. This shows that the simulator, which runs the
/// same core, predicts the engine.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints 'identical: N events, M actions', or the first difference (exit code 1).

Example:
  foreread check replay-log run.log")]
pub struct ReplayLogArgs {
    /// The event log, plain or compressed by gzip, zstd, xz or bzip2
    #[arg(value_name = "LOG")]
    pub log: PathBuf,
}

const REMEDY: &str = "name a log that the engine of this version has written";

/// Replays the log and prints `identical: N events, M actions`; at the first difference, the check fails.
pub fn run(args: &ReplayLogArgs) -> Result<(), Fail> {
    let log = args.log.as_path();
    let place = log.display();
    let file = stream(log)
        .map_err(|error| Fail::input("cannot read the log", format!("{place}: {error}"), REMEDY))?;
    let unpacked = unpack(Box::new(file))
        .map_err(|error| Fail::input("cannot read the log", format!("{place}: {error}"), REMEDY))?;
    let policies = [&policies()[..], OPPONENTS];
    match check_log_among(BufReader::new(unpacked), &policies, None) {
        Ok(done) => out::print(format!(
            "identical: {} events, {} actions\n",
            done.events, done.actions
        )),
        Err(difference @ ReplayError::Differs { .. }) => Err(Fail::check(
            "different",
            format!("{place}: {difference}"),
            "the log was written by another version of foreread, or this is a bug",
        )),
        Err(error) => Err(Fail::input(
            "bad event log",
            format!("{place}: {error}"),
            REMEDY,
        )),
    }
}
