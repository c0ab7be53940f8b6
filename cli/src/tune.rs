//! `foreread tune`: records a command or takes a trace, has the lab measure and compare, prints what to set.
//!
//! ```text
//!   -- CMD ──► foreread record, a child ──► trace ─┐
//!   TRACE ─────────────────────────────────────────┴─► storage (--on, or its largest file here) ──► lab ──► what to set
//! ```
//! Never: sets anything.

use crate::args::TuneArgs;
use crate::compare::refused;
use crate::fail::Fail;
use crate::out::{self, JsonTo, json_to};
use crate::progress::Bar;
use crate::reads::{self, Part};
use crate::source::{self, On};
use foreread::source::SourceName;
use foreread_lab::compare::Plan;
use foreread_lab::explain::ExplainError;
use foreread_lab::replay::Replay;
use foreread_lab::report::table::Style;
use foreread_lab::tune::{self, Asked, Storage, TuneError};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

/// Records, measures and prints.
pub fn run(args: &TuneArgs) -> Result<(), Fail> {
    let json = json_to(args.json.as_ref())?;
    // What is wrong with it is said before a program is run for it.
    let on = args.on.as_ref().map(storage).transpose()?;
    let out = args.out.as_ref().map(|path| out::writable("out", path.as_os_str())).transpose()?;
    out::distinct(&[("out", out.as_deref()), ("json", out::file(json.as_ref()))])?;
    let (trace, _kept) = trace(args, out, json == Some(JsonTo::Stdout))?;
    let part = Part::from(&args.replay);
    let replay = Arc::new(reads::ready(&trace, &part)?);
    let storage = on.map_or_else(|| found(&replay), Ok)?;
    let plan =
        Plan { replay: Some(replay), runs: args.runs, cache_bytes: args.cache, seed: args.seed, ..Plan::default() };
    let asked = Asked { plan, storage, seconds: f64::from(args.seconds) };
    let tuned = {
        let mut bar = Bar::new();
        tune::tune(&asked, &mut bar).map_err(broken)?
    };
    if json != Some(JsonTo::Stdout) {
        out::print(tune::render(&tuned, Style { bold: out::may_style() }))?;
    }
    let Some(to) = json else { return Ok(()) };
    let text = serde_json::to_string_pretty(&tuned).expect("a struct of numbers and strings can always be written");
    to.write(&(text + "\n"))
}

/// The trace, and the folder that it is in, if that is to go with us.
fn trace(args: &TuneArgs, out: Option<PathBuf>, json: bool) -> Result<(PathBuf, Option<TempDir>), Fail> {
    let Some(text) = &args.trace else {
        let scratch = || {
            let remedy = "name a place for the trace with --out";
            tempfile::tempdir().map_err(|e| Fail::input("no place for a trace", e, remedy))
        };
        let (path, kept) = match out {
            Some(path) => (path, None),
            None => {
                let dir = scratch()?;
                (dir.path().join("recorded.frt"), Some(dir))
            }
        };
        return record(&args.command, &path, kept.is_none(), json).map(|()| (path, kept));
    };
    match reads::parse(Some(text))? {
        reads::Asked::Trace(path) => Ok((path, None)),
        reads::Asked::Workload(_) | reads::Asked::Usual => {
            let remedy = "name a trace, or a command behind --; 'foreread compare' measures workloads";
            Err(Fail::input("a workload has no files to tune for", text.display(), remedy))
        }
    }
}

/// Runs `foreread record` on the command. What the command makes of it is the command's matter, as long as a trace is
/// there. Of a trace that goes with us nothing is `told`; `json` keeps stdout for the JSON.
fn record(command: &[OsString], path: &Path, told: bool, json: bool) -> Result<(), Fail> {
    let cannot = |error: &dyn std::fmt::Display| {
        Fail::Cannot(format!(
            "cannot record: {error}; record a trace by 'strace -f -ttt -T -y -o FILE CMD' and name it"
        ))
    };
    let program = std::env::current_exe().map_err(|error| cannot(&error))?;
    let arguments: [&OsStr; 4] = ["record".as_ref(), "--force".as_ref(), "--out".as_ref(), path.as_os_str()];
    let mut child = Command::new(program);
    if json {
        child.stdout(std::io::stderr());
    }
    let quiet = (!told).then_some("--quiet");
    let status = child.args(arguments).args(quiet).arg("--").args(command).status().map_err(|error| cannot(&error))?;
    let has_trace = std::fs::metadata(path).is_ok_and(|meta| meta.len() > 0);
    match status.code() {
        _ if has_trace => Ok(()),
        // It has said why on stderr.
        Some(3) => {
            Err(Fail::Cannot("nothing was recorded, so there is nothing to tune; see the line before".to_string()))
        }
        _ => Err(Fail::input("nothing was recorded", "see the line before", "or name a trace instead of a command")),
    }
}

/// What `--on` names.
fn storage(name: &SourceName) -> Result<Storage, Fail> {
    match source::parse(name)? {
        On::File(path) => Ok(Storage::Probe(path)),
        On::Model(preset) => Ok(Storage::Model(preset)),
        On::ModelLive(preset) => {
            let remedy = format!("use --on model:{}, which is the same in virtual time", preset.name);
            Err(Fail::input("a storage that is measured, or a model", format!("--on {name}"), &remedy))
        }
        On::Source(_) => {
            let remedy = "name a file or block device, or a model: model:NAME, model:FILE.toml";
            Err(Fail::input("this kind of source cannot be probed", format!("--on {name}"), remedy))
        }
    }
}

/// Where the files of the trace live.
fn found(replay: &Replay) -> Result<Storage, Fail> {
    tune::largest_file(replay).map(Storage::Probe).map_err(|error| Fail::Input(error.to_string()))
}

fn broken(error: TuneError) -> Fail {
    match error {
        TuneError::Compare(error) | TuneError::Explain(ExplainError::Compare(error)) => refused(error),
        TuneError::Explain(error) => Fail::Check(error.to_string()),
        TuneError::Probe(error) => Fail::Input(error.to_string()),
    }
}
