//! `foreread conform linux --check REC`: our decisions beside those that a kernel took.

use crate::args::{ConformArgs, ConformWhat};
use crate::fail::Fail;
use crate::out;
use foreread_lab::conform::linux;

const REMEDY: &str = "name a recording in JSON lines, plain or gzipped";

/// Checks and prints `decisions N divergences M`; a divergence is a failed check, and the first one is told.
pub fn run(args: &ConformArgs) -> Result<(), Fail> {
    let ConformArgs { what: ConformWhat::Linux, check } = args;
    let place = check.display();
    let recording = linux::open(check)
        .map_err(|error| Fail::input("cannot read the recording", format!("{place}: {error}"), REMEDY))?;
    let verdict = linux::check_pages(recording).map_err(|error| Fail::Input(format!("{place}: {error}")))?;
    out::print(format!("decisions {} divergences {}\n", verdict.decisions, verdict.divergences))?;
    match verdict.first {
        None => Ok(()),
        Some(first) => Err(Fail::Check(format!("{place}: {first}"))),
    }
}
