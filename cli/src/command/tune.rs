//! `foreread tune`: records a command or uses an existing trace, measures the storage, compares policies, and prints
//! what the user should set.
//!
//! ```text
//!   -- CMD, --pid N ──► foreread record, a child ──► trace, kept ─┐
//!   TRACE ────────────────────────────────────────────────────────┴─► storage (--on, or found) ──► lab ──► what to set
//! ```
//! `tune` does not change any setting.

use crate::args::JsonArgs;
use crate::args::values::{measuring, size};
use crate::fail::Fail;
use crate::out::{self, Outputs};
use crate::progress::Bar;
use crate::reads::{self, ReplayArgs};
use crate::signals::{self, CommandSignals, ENDING_COMMAND};
use crate::source;
use foreread::source::SourceName;
use foreread_lab::compare::{self, CompareOn, ComparePlan};
use foreread_lab::replay::Replay;
use foreread_lab::report::table::Style;
use foreread_lab::tune::{self, StorageFound, TuneOptions};
use foreread_os::failure::{Failure, FailureKind};
use foreread_os::open::{look, read_small_text};
use foreread_pagecache::{kept, program};
use foreread_report::json;
use signal_hook::consts::{SIGHUP, SIGTERM};
use std::ffi::OsStr;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

/// Record a program, measure its storage, recommend settings
///
/// Does all steps, from a recording to a recommendation, in one command. 'foreread tune' records the reads of a command ('foreread
/// record'), or takes a trace. Then it measures the disk that the reads waited for ('foreread probe'), or takes a model. On the model, it
/// compares several settings of the kernel's readahead, hints, and foreread's policies, in paired runs ('foreread compare'). At the end
/// it prints what to set and what gain to expect, with a 95 % confidence interval, and says so if no change would save 10 % of the time.
///
/// The advice follows the command's own output on stdout. If that output goes to a file, record first: foreread record -- CMD > FILE.
///
/// The recorded trace is kept. Ctrl-C ends the command (or, with --pid, only the recording); the advice is still printed.
///
/// The baseline of every comparison is the present state: the kernel's readahead with the disk's current read_ahead_kb.
/// All times are simulated and start with an empty cache; 'foreread probe --verify' shows how they compare with
/// measured times.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread tune -- grep -r TODO /srv/src
  foreread tune --pid 4711
  foreread tune app.frt --on /dev/sdb
  foreread tune app.strace --on model:nvme")]
pub struct TuneArgs {
    /// A trace in any known format
    #[arg(value_name = "TRACE", conflicts_with_all = ["command", "pid"])]
    pub trace: Option<OsString>,
    /// Record this process until it ends or Ctrl-C
    ///
    /// The children of the process are recorded too.
    #[arg(long, value_name = "PID", conflicts_with = "command")]
    pub pid: Option<u32>,
    /// Storage: PATH, model:NAME [default: from the trace]
    ///
    /// A file or block device is probed; its reads bypass the page cache. A model (model:NAME or model:FILE.toml) is
    /// used as it is. The default is the disk on which the reads of the trace took longest. Without --on, tune probes the file on this
    /// disk from which most was read, or the disk itself if the files are small.
    #[arg(long, value_name = "SOURCE")]
    pub on: Option<SourceName>,
    /// Time to measure the storage
    #[arg(long, value_name = "TIME", default_value = "14s", value_parser = measuring)]
    pub time: Duration,
    /// Runs of each policy on the model
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: Option<u32>,
    /// Memory for cached data, such as 512M
    #[arg(long, alias = "cache", value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,
    /// Where to write the trace [default: foreread-CMD.frt]
    #[arg(short, long, value_name = "TRACE", conflicts_with = "trace")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub replay: ReplayArgs,
    /// Seed of the first run
    #[arg(long, value_name = "N", default_value_t = 1, hide_short_help = true)]
    pub seed: u64,
    /// Show every step, and the table of all settings
    ///
    /// Below the table are the statistical test, the correction for multiple tests, the number of pairs of rows, and the
    /// significance level.
    #[arg(long)]
    pub why: bool,
    #[command(flatten)]
    pub output: JsonArgs,
    /// A command to record, and its arguments
    #[arg(value_name = "CMD", last = true)]
    pub command: Vec<OsString>,
}

/// Maximum size of a recorder's summary in bytes.
const MAX_SUMMARY_BYTES: u64 = 1 << 20;
/// Maximum number of file names tried if the user gives no name for the trace.
const MAX_NAMES: u32 = 1000;

pub fn run(args: &TuneArgs) -> Result<(), Fail> {
    // Checks the storage before a program is run for it.
    let on = args.on.as_ref().map(storage).transpose()?;
    let trace = args.out.as_ref().map(|path| path.as_os_str());
    let outputs = Outputs::new(&[("out", trace), ("json", args.output.json.as_deref())])?;
    let out = outputs.file("out").map(Path::to_path_buf);
    let (trace, exit_code) = match &args.trace {
        Some(text) => (named(text)?, None),
        None if args.command.is_empty() && args.pid.is_none() => {
            let remedy = "name a command, such as 'foreread tune -- grep -r TODO src', a process (--pid N) or a trace";
            return Err(Fail::input("nothing to tune", "", remedy));
        }
        None => record(args, out, !outputs.has_text())?,
    };
    let passed = || {
        exit_code
            .filter(|code| *code != 0)
            .map_or(Ok(()), |code| Err(Fail::Passed(code)))
    };
    let replay = reads::ready(&trace, &args.replay).map(Arc::new);
    let found = replay.and_then(|replay| match on {
        Some(storage) => Ok((storage, None, replay)),
        None => {
            let (found, replay) = found(&trace, &args.replay, replay)?;
            Ok((compare::file(found.path), Some(found.chosen), replay))
        }
    });
    let (storage, chosen, replay) = match found {
        Ok(found) => found,
        Err(fail) if exit_code.is_none() => return Err(fail),
        // There is no advice, but the command has run.
        Err(fail) => {
            fail.report();
            return passed();
        }
    };
    let measured = storage.path().and_then(|path| look(path).ok());
    let is_dropped = measured
        .filter(|looked| looked.is_on_fuse())
        .and_then(|looked| looked.for_reading().ok())
        .is_some_and(|file| kept::is_dropped_by_open(&file) == Some(true));
    let partial = args.replay.only.is_some() || args.replay.records.is_some();
    let plan = ComparePlan {
        replay: Some(replay),
        runs: args.runs,
        cache_bytes: args.memory,
        seed: args.seed,
        ..ComparePlan::default()
    };
    let asked = TuneOptions {
        plan,
        storage,
        chosen,
        partial,
        is_dropped,
        seconds: args.time.as_secs_f64(),
        command: args
            .command
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        trace: Some(trace),
    };
    let tuned = {
        let mut bar = Bar::new();
        tune::tune(&asked, &mut bar)?
    };
    let style = Style {
        bold: out::may_style(),
        details: args.why,
    };
    outputs.emit(|| tune::render(&tuned, style), || json::pretty(&tuned), &[])?;
    passed()
}

/// The trace given by an argument.
fn named(text: &OsStr) -> Result<PathBuf, Fail> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut programs = std::env::split_paths(&path).map(|folder| folder.join(text));
    if !Path::new(text).exists() && programs.any(|program| program.is_file()) {
        let remedy = "to record a command, write it after two dashes: foreread tune -- CMD";
        return Err(Fail::input("no such trace", text.display(), remedy));
    }
    match reads::parse(Some(text))? {
        reads::RequestedReads::Trace(path) => Ok(path),
        reads::RequestedReads::Workload(_) | reads::RequestedReads::Usual => {
            let remedy =
                "name a trace, or a command after --; 'foreread compare' measures workloads";
            Err(Fail::input(
                "a workload has no files to tune for",
                text.display(),
                remedy,
            ))
        }
    }
}

/// Runs `foreread record`; returns the trace, and the exit code if a command was recorded.
fn record(
    args: &TuneArgs,
    out: Option<PathBuf>,
    json: bool,
) -> Result<(PathBuf, Option<u8>), Fail> {
    let scratch = tempfile::tempdir().map_err(|error| {
        Fail::input(
            "cannot create a temporary file for the summary",
            error,
            "set TMPDIR to a writable folder",
        )
    })?;
    let summary = scratch.path().join("summary.json");
    let force = out::force();
    let path = out.map_or_else(|| free_name(args), Ok)?;
    let mut command = program::again();
    command
        .arg("record")
        .arg("--out")
        .arg(&path)
        .arg("--json")
        .arg(&summary)
        .args(force.then_some("--force"));
    match args.pid {
        Some(pid) => {
            eprintln!(
                "foreread: process {pid} is recorded until it ends or Ctrl-C; advice follows"
            );
            command.arg("--pid").arg(pid.to_string());
        }
        None => drop(command.arg("--").args(&args.command)),
    }
    if json {
        command.stdout(std::io::stderr());
    }
    let (status, ended_by) = watched(&mut command)?;
    let Ok(summary) = read_small_text(&summary, MAX_SUMMARY_BYTES) else {
        // The recorder has printed the reason on stderr.
        return Err(Fail::Passed(signals::exit_code(status)));
    };
    match ended_by {
        0 => {}
        SIGTERM | SIGHUP => {
            eprintln!(
                "foreread: stopped by a signal; the trace is kept, continue with 'foreread tune {}'",
                path.display()
            );
            return Err(Fail::Passed(128 + ended_by as u8));
        }
        _ => eprintln!(
            "foreread: interrupted; the trace is kept, and the advice follows: Ctrl-C again ends tune without it"
        ),
    }
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap_or_default();
    Ok((
        path,
        summary["exit_code"]
            .as_u64()
            .and_then(|code| u8::try_from(code).ok()),
    ))
}

fn cannot(error: std::io::Error) -> Fail {
    if error.kind() == ErrorKind::WouldBlock {
        let refused = program::not_begun(OsStr::new("foreread record"), &error);
        let kind = FailureKind::Cannot;
        return Failure { kind, ..refused }.into();
    }
    let remedy = "record a trace with 'strace -f -ttt -T -y -o FILE CMD', and pass it to tune";
    Fail::cannot("cannot record", error, remedy)
}

/// `foreread-CMD.frt` in this folder, or in the folder for temporary files if this one is not writable; with a number
/// if the file exists.
fn free_name(args: &TuneArgs) -> Result<PathBuf, Fail> {
    let name = match (args.pid, args.command.first()) {
        (Some(pid), _) => pid.to_string(),
        (None, Some(program)) => Path::new(program)
            .file_name()
            .unwrap_or(program)
            .to_string_lossy()
            .into_owned(),
        (None, None) => "trace".to_string(),
    };
    let is_writable = tempfile::tempfile_in(".").is_ok();
    let folder = if is_writable {
        PathBuf::new()
    } else {
        std::env::temp_dir()
    };
    let numbered = |n: u32| {
        if n == 1 {
            format!("foreread-{name}.frt")
        } else {
            format!("foreread-{name}-{n}.frt")
        }
    };
    let free = (1..=MAX_NAMES)
        .map(|n| folder.join(numbered(n)))
        .find(|path| !path.exists());
    free.ok_or_else(|| {
        Fail::input(
            "no free name for the trace",
            numbered(1),
            "name one with --out",
        )
    })
}

/// Runs the recorder until it ends, and passes signals on to it. Also returns the signal that has ended it, or 0: after
/// Ctrl-C the advice still follows, after SIGTERM or SIGHUP it does not.
fn watched(command: &mut Command) -> Result<(ExitStatus, i32), Fail> {
    let ended_by = Arc::new(AtomicI32::new(0));
    let by = Arc::clone(&ended_by);
    let signals = CommandSignals::begin(&ENDING_COMMAND, move |signal, _| {
        if matches!(signal, SIGTERM | SIGHUP) || by.load(Ordering::Acquire) == 0 {
            by.store(signal, Ordering::Release);
        }
    })?;
    let mut child = command.spawn().map_err(cannot)?;
    let status = signals.until_end(Some(child.id()), || child.wait());
    Ok((status.map_err(cannot)?, ended_by.load(Ordering::Acquire)))
}

fn storage(name: &SourceName) -> Result<CompareOn, Fail> {
    let on = source::parse(name)?;
    if on.can_be_probed() {
        return Ok(on);
    }
    let (what, remedy) = match on.preset() {
        Some(preset) => (
            "tune accepts a file, a block device or a model",
            format!(
                "use --on model:{}, which simulates the same device in virtual time",
                preset.name
            ),
        ),
        None => (
            "this kind of source cannot be probed",
            "name a file or block device, or a model: model:NAME, model:FILE.toml".to_string(),
        ),
    };
    Err(Fail::input(what, format!("--on {name}"), &remedy))
}

/// The storage that the reads waited for, why it was chosen, and its reads.
fn found(
    trace: &Path,
    part: &ReplayArgs,
    replay: Arc<Replay>,
) -> Result<(StorageFound, Arc<Replay>), Fail> {
    let mut found = tune::find(&replay)?;
    let all_there = replay
        .loaded
        .names
        .iter()
        .all(|name| found.names.contains(name));
    let replay = match all_there {
        true => replay,
        false => {
            let names = Arc::new(std::mem::take(&mut found.names));
            Arc::new(reads::ready_of(trace, part, Some(names))?)
        }
    };
    Ok((found, replay))
}
