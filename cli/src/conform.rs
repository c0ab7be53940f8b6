//! `foreread conform linux --check REC`: our decisions beside those that a kernel took.

use crate::args::{ConformArgs, ConformLevel, ConformWhat};
use crate::fail::Fail;
use crate::out;
use foreread_lab::conform::linux::{self, Level};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

const REMEDY: &str = "name a recording in JSON lines, plain or gzipped";

/// Checks and prints `decisions N divergences M`; a divergence is a failed check, and the first one is told.
pub fn run(args: &ConformArgs) -> Result<(), Fail> {
    let ConformArgs { what: ConformWhat::Linux, check, level, predict } = args;
    let place = check.display();
    let recording = linux::open(check)
        .map_err(|error| Fail::input("cannot read the recording", format!("{place}: {error}"), REMEDY))?;
    let level = match level {
        ConformLevel::Pages => Level::Pages,
        ConformLevel::Full => Level::Full,
    };
    let unwritable = |error: std::io::Error| {
        let place = predict.as_ref().map_or(String::new(), |path| path.display().to_string());
        Fail::input("cannot write the predictions", format!("{place}: {error}"), "name a file that can be written")
    };
    let whole = |path: &Path| path.canonicalize().ok();
    if predict.as_deref().and_then(whole).is_some_and(|out| Some(out) == whole(check)) {
        return Err(Fail::input("the predictions would take the recording's place", place, "name another file"));
    }
    let mut out = predict.as_ref().map(File::create).transpose().map_err(unwritable)?.map(BufWriter::new);
    let verdict = linux::check(recording, level, out.as_mut().map(|out| out as &mut dyn Write))
        .map_err(|error| Fail::Input(format!("{place}: {error}")))?;
    out.map_or(Ok(()), |mut out| out.flush()).map_err(unwritable)?;
    if verdict.operations == 0 {
        return Err(Fail::input("nothing to check", format!("{place} has no operation"), "record something first"));
    }
    out::print(format!("decisions {} divergences {}\n", verdict.decisions, verdict.divergences))?;
    match verdict.first {
        None => Ok(()),
        Some(first) => Err(Fail::Check(format!("{place}: {first}"))),
    }
}
