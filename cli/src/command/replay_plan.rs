//! `foreread replay`: reads the ranges of a plan into the page cache, while a command runs or without a command.
//!
//! ```text
//!   CMD starts ──► the plan is read ──► CMD ends ──► reading stops ──► report
//!   a signal to us ──► CMD gets it; without CMD, reading stops; after CMD has ended, we end
//! ```
//! When it ends, `foreread replay` waits at most 1.5 s for storage that does not answer. If foreread is killed, CMD continues. Because CMD
//! may use stdout, foreread prints nothing to stdout, except the JSON if `--json -` was given.

use super::plan::{left_out_json, name, next, objects};
use crate::args::JsonArgs;
use crate::args::values::size;
use crate::fail::{Fail, note, say};
use crate::out::Outputs;
use crate::signals::exit_code;
use crate::signals::{CommandSignals, ENDING_COMMAND, cannot_wait};
use crate::traces;
use foreread_attach::planning::of_traces;
use foreread_attach::warm::{Budget, FetchUse, FillReport, FillSettings, Filler, judge};
use foreread_observe::record::Target;
use foreread_observe::record::active::{ActiveRecording, RecordOptions, start};
use foreread_os::ends;
use foreread_pagecache::program;
use foreread_plan::runs::Selection;
use foreread_plan::{Plan, text};
use foreread_report::json;
use foreread_report::number::{amount, three};
use serde_json::json;
use std::ffi::OsString;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

/// Read a plan into the page cache while a command runs
///
/// The ranges are read in the plan's order, with as many concurrent requests as the storage can serve at once; cached
/// ranges are skipped. CMD starts at once and runs in the foreground of the terminal. When CMD ends, reading stops.
/// Without CMD, foreread returns when the ranges of the plan are cached.
///
/// Filling stops when seven eighths of the memory of the control group or the machine are used; with CMD, it continues
/// once CMD has read what was cached. Files that have changed since the plan was made are skipped and reported.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread replay model.plan -- python3 serve.py
  foreread record -o app.frt -- ./app; foreread replay app.frt -- ./app")]
pub struct ReplayPlanArgs {
    /// A plan made by 'foreread plan', or a trace
    #[arg(value_name = "PLAN")]
    pub plan: PathBuf,
    /// Maximum bytes to read
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max: Option<u64>,
    /// Report which bytes were fetched, used, late, unused (needs root)
    #[arg(long)]
    pub report: bool,
    #[command(flatten)]
    pub output: JsonArgs,
    /// The command and its arguments
    #[arg(value_name = "CMD", last = true)]
    pub command: Vec<OsString>,
}

/// Size of the event buffers if a report is requested.
const EVENT_BYTES: u64 = 64 << 20;

/// Reads the plan in a file. A trace is treated as one run, and its plan includes every file that was read.
fn opened(path: &Path) -> Result<Plan, Fail> {
    if text::is_one(path) || !path.is_file() || traces::open(path, None).is_err() {
        return Ok(text::open(path)?);
    }
    let selection = Selection {
        at_least: (1, 1),
        max_bytes: None,
    };
    let planned = of_traces(&[path.to_path_buf()], None, &selection)?;
    name(&planned.left_out);
    if planned.plan.ranges.is_empty() {
        let remedy = "record a run that reads files";
        return Err(Fail::input(
            "there is nothing to replay",
            path.display(),
            remedy,
        ));
    }
    note(format!(
        "{} is a trace: all its reads are replayed; 'foreread plan' makes a plan from several traces",
        path.display()
    ));
    Ok(planned.plan)
}

pub fn run(args: &ReplayPlanArgs) -> Result<(), Fail> {
    let outputs = Outputs::new(&[("json", args.output.json.as_deref())])?;
    let plan = opened(&args.plan)?;
    if objects(&plan).is_some() {
        let remedy = format!("use '{}'", next(&plan, &args.plan));
        return Err(Fail::input(
            "the plan is of objects or of a mount, whose files are not in the page cache",
            args.plan.display(),
            remedy,
        ));
    }
    let reports = args.report || args.output.json.is_some();
    let alone = args.command.is_empty();
    // The signal that stopped reading, if there is no command.
    let ended_by = Arc::new(AtomicI32::new(0));
    let by = Arc::clone(&ended_by);
    let signals = CommandSignals::begin(&ENDING_COMMAND, move |signal, over| {
        if alone {
            // The next signal ends this process.
            over.store(true, Ordering::Release);
            by.store(signal, Ordering::Release);
        }
    })?;
    let settings = FillSettings {
        budget: Budget::now(args.max),
        follows_program: !alone,
        keeps_times: reports,
    };
    let mut program = Program::start(args, reports)?;
    let filler = Filler::start(Arc::new(plan), settings);
    // A running command continues without readahead.
    let filler = filler.map_err(|error| Fail::input("cannot read ahead", error, "start it again"));
    let filler = match (filler, alone) {
        (Ok(filler), _) => Some(filler),
        (Err(fail), true) => return Err(fail),
        (Err(fail), false) => {
            fail.report();
            None
        }
    };
    let status = signals.until_end(program.pid(), || {
        let ended = wait(&mut program, filler.as_ref(), &ended_by);
        ends::waits_for("reads of the plan");
        filler.iter().for_each(Filler::stop);
        ended
    });
    let code = status.map_err(cannot_wait)?;
    let passed = || match code {
        None | Some(0) => Ok(()),
        Some(code) => Err(Fail::Passed(code)),
    };
    let Some(filled) = filler.map(|filler| filler.end()) else {
        return passed();
    };
    if filled.given_up > 0 {
        note(format!(
            "{} reads were given up: the storage did not answer",
            filled.given_up
        ));
    }
    name(&filled.left_out);
    let judged = program.judge(&filled);
    // With a command, the exit code is the command's.
    let fails = filled.has_nothing() && code.is_none();
    if args.report || !fails && (code.is_none() || filled.has_nothing()) {
        say(in_words(&filled, judged.as_ref()));
    }
    ends::waits_for("the output");
    let json = || to_json(&args.plan, &filled, judged.as_ref(), code);
    outputs.emit(String::new, json, &[])?;
    if fails {
        let remedy = "make the plan again with 'foreread plan'";
        let what = "every file of the plan was left out";
        return Err(Fail::check(what, args.plan.display(), remedy));
    }
    passed()
}

/// The command that runs while the plan is read.
enum Program {
    None,
    Plain(Child),
    Recorded(Option<Box<ActiveRecording>>),
}

impl Program {
    fn start(args: &ReplayPlanArgs, reports: bool) -> Result<Program, Fail> {
        let Some((first, rest)) = args.command.split_first() else {
            return Ok(Program::None);
        };
        if reports {
            let target = Target::Command(args.command.clone());
            let folder = std::env::temp_dir();
            match start(&RecordOptions {
                target,
                buffer_bytes: EVENT_BYTES,
                folder,
            }) {
                Ok(running) => return Ok(Program::Recorded(Some(Box::new(running)))),
                Err(error) if error.is_of_command() => return Err(error.into()),
                Err(error) => note(format!(
                    "the report cannot say how much of the plan is used: {error}"
                )),
            }
        }
        Ok(Program::Plain(program::begin(first, rest)?))
    }

    fn pid(&self) -> Option<u32> {
        match self {
            Program::None => None,
            Program::Plain(child) => Some(child.id()),
            Program::Recorded(running) => running.as_ref().map(|running| running.pid()),
        }
    }

    /// How much of the plan was used according to the recording, if there is one.
    fn judge(&mut self, filled: &FillReport) -> Option<FetchUse> {
        let Program::Recorded(running) = self else {
            return None;
        };
        ends::waits_for("the kernel's tracing");
        let captured = running
            .take()?
            .finish()
            .map_err(|error| note(format!("the report is incomplete: {error}")))
            .ok()?;
        ends::waits_for("the names of files that were read");
        let understood = captured.understand(Path::new("the report"));
        let judged = understood.and_then(|understood| judge(filled, understood.items));
        judged
            .map_err(|error| note(format!("the report is incomplete: {error}")))
            .ok()
    }
}

/// Waits for the command, or without one for the plan. Returns the exit code of the command, or of the signal that ended the reading;
/// `None` if the whole plan was read without a command.
fn wait(
    program: &mut Program,
    filler: Option<&Filler>,
    ended_by: &AtomicI32,
) -> std::io::Result<Option<u8>> {
    match program {
        Program::None => loop {
            match ended_by.load(Ordering::Acquire) {
                0 if filler.is_some_and(|filler| !filler.is_done()) => {
                    std::thread::sleep(Duration::from_millis(5))
                }
                0 => break Ok(None),
                signal => break Ok(Some(128 + (signal & 127) as u8)),
            }
        },
        Program::Plain(child) => child.wait().map(|status| Some(exit_code(status))),
        Program::Recorded(Some(running)) => {
            let status = running.wait(&AtomicBool::new(false))?;
            Ok(status.map(exit_code))
        }
        Program::Recorded(None) => Ok(None),
    }
}

/// Fewer fetched bytes say nothing about the rate of the storage.
const MIN_RATED_BYTES: u64 = 16 << 20;

fn in_words(filled: &FillReport, judged: Option<&FetchUse>) -> String {
    let counts = filled.counts;
    let mut text = format!("foreread: of {} planned: ", amount(counts.planned_bytes));
    if filled.has_nothing() {
        text.push_str("every file was left out; make the plan again with 'foreread plan'");
        return text;
    }
    text.push_str(&format!(
        "{} fetched in {:.3} s",
        amount(counts.fetched_bytes),
        filled.seconds
    ));
    if counts.fetched_bytes >= MIN_RATED_BYTES {
        let [rate, latency] = [filled.rate, filled.latency_ns].map(|n| three(n as f64 / 1e6));
        text.push_str(&format!(
            " (at most {rate} MB/s, a read takes {latency} ms)"
        ));
    }
    text.push_str(&format!(", {} were cached", amount(counts.cached_bytes)));
    if let Some(judged) = judged.filter(|_| counts.fetched_bytes > 0) {
        let (used, late, unused) = (
            amount(judged.used_bytes),
            amount(judged.late_bytes),
            amount(judged.unused_bytes),
        );
        text.push_str(&format!(
            "; of the fetched bytes: {used} used, {late} of it late, {unused} unused"
        ));
        if judged.metadata_bytes > 0 {
            let metadata = amount(judged.metadata_bytes);
            text.push_str(&format!(
                ", {metadata} of file system metadata (use unknown)"
            ));
        }
    }
    if let Some(judged) = judged {
        text.push_str(&format!(
            "; reads and page faults took {:.3} s",
            judged.waited_ns as f64 / 1e9
        ));
    }
    if filled.out_of_room {
        text.push_str("; memory limited how much was read ahead");
    }
    if filled.unknown_files > 0 {
        text.push_str(&format!(
            "; for {} files the kernel does not report which pages are cached",
            filled.unknown_files
        ));
    }
    text
}

fn to_json(
    plan: &Path,
    filled: &FillReport,
    judged: Option<&FetchUse>,
    code: Option<u8>,
) -> String {
    let FillReport { counts, .. } = filled;
    json::pretty(&json!({
        "schema": "foreread.replay/1",
        "plan": plan.display().to_string(),
        "planned_bytes": counts.planned_bytes,
        "planned_ranges": counts.planned_ranges,
        "looked_at_bytes": counts.done_bytes,
        "cached_bytes": counts.cached_bytes,
        "fetched_bytes": counts.fetched_bytes,
        "left_out_bytes": counts.left_out_bytes,
        "used_bytes": judged.map(|judged| judged.used_bytes),
        "late_bytes": judged.map(|judged| judged.late_bytes),
        "metadata_bytes": judged.map(|judged| judged.metadata_bytes),
        "unused_bytes": judged.map(|judged| judged.unused_bytes),
        "waited_ns": judged.map(|judged| judged.waited_ns),
        "seconds": filled.seconds,
        "latency_ns": filled.latency_ns,
        "rate_bytes_per_s": filled.rate,
        "out_of_room": filled.out_of_room,
        "unknown_files": filled.unknown_files,
        "left_out": left_out_json(&filled.left_out),
        "exit_code": code,
    }))
}
