//! `foreread record`: records a command, writes the trace, and prints a summary on stderr.
//!
//! ```text
//!   Ctrl-C on the terminal ──► the command gets it from the terminal; we wait for it to end
//!   a signal to us         ──► the command gets it from us            and write the trace
//! ```
//! foreread prints nothing while the command runs. Because the command may use stdout, foreread prints nothing to stdout, except the JSON
//! if `--json -` was given.

use super::run::watch_by;
use crate::args::JsonArgs;
use crate::args::values::size;
use crate::fail::{Fail, one_line};
use crate::out::Outputs;
use crate::signals::{CommandSignals, ENDING_COMMAND, exit_code};
use crate::traces::{passed_over, written};
use foreread_attach::run::WatchBy;
use foreread_lab::verdict::in_shell;
use foreread_observe::record::Target;
use foreread_observe::record::active::{ActiveRecording, RecordOptions, possible, start};
use foreread_observe::record::sampled::{self, SampledRecording};
use foreread_observe::record::{SwitchedOff, Understood, with_other_ways};
use foreread_os::ends;
use foreread_report::json;
use foreread_report::number::{amount, count, plural, size_b};
use foreread_trace::own;
use serde_json::json;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Record the reads of a program as a trace
///
/// Records every read of the command and its children: read, pread, readv, preadv, sendfile, copy_file_range, splice,
/// page faults in mappings, hints, and io_uring reads that use the page cache. Each record has the file, descriptor,
/// offset, length, times and thread. The records come from the kernel's tracepoints, which need root and tracefs. File
/// names are looked up by device and inode.
///
/// Without root, foreread samples what the command's threads are waiting for (--by sample), and sees the reads and
/// faults that block. For reads served from the page cache it counts the bytes and guesses the offsets; the trace and
/// the summary state how many reads were guessed.
///
/// The command runs in the foreground of the terminal.
///
/// To get every read without root: 'strace -f -ttt -T -y -o FILE CMD', then 'foreread trace import FILE'.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread record -o grep.frt -- grep -r TODO src
  foreread record -o db.frt --pid 4711")]
pub struct RecordArgs {
    /// Where to write the trace
    #[arg(short, long, value_name = "TRACE")]
    pub out: PathBuf,
    /// Record this process until it ends or Ctrl-C
    ///
    /// The children of the process are recorded too.
    #[arg(long, value_name = "PID", conflicts_with = "command")]
    pub pid: Option<u32>,
    /// How to observe reads [default: trace if permitted]
    ///
    /// trace: uses the kernel's tracepoints; needs root. sample: samples what the command's threads are waiting for; it
    /// needs no root, works in containers, and sees the reads that block.
    #[arg(long, value_name = "HOW", value_parser = watch_by())]
    pub by: Option<WatchBy>,
    /// Total memory for event buffers of all CPUs
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size)]
    pub memory: u64,
    /// Exit with 1 if events were lost or the recording was stopped
    #[arg(long)]
    pub exit_code: bool,
    /// Print no summary
    #[arg(short, long)]
    pub quiet: bool,
    #[command(flatten)]
    pub output: JsonArgs,
    /// The command and its arguments
    #[arg(value_name = "CMD", last = true, required_unless_present = "pid")]
    pub command: Vec<OsString>,
}

pub fn run(args: &RecordArgs) -> Result<(), Fail> {
    let trace = Some(args.out.as_os_str()).filter(|out| *out != "-");
    let trace = ("out", trace);
    let outputs = Outputs::new(&[trace, ("json", args.output.json.as_deref())])?;
    let out = args.out.clone();
    let target = args
        .pid
        .map_or_else(|| Target::Command(args.command.clone()), Target::Process);
    let folder = out
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
        .to_path_buf();
    let asked = RecordOptions {
        target,
        buffer_bytes: args.memory,
        folder,
    };
    let enough = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&enough);
    // Signals are passed to the command, or end the recording of a process.
    let signals = CommandSignals::begin(&ENDING_COMMAND, move |_, _| {
        flag.store(true, Ordering::Release);
    })?;
    let mut running = RunningRecording::begin(&asked, args.by)?;
    let command = args.pid.is_none().then(|| running.pid());
    let status = signals.until_end(command, || running.wait(&enough));
    let status = status.map_err(failed)?;
    let mut outcome = running.end(&out)?;
    let trace = &mut outcome.trace;
    let items = std::mem::replace(&mut trace.items, Box::new(std::iter::empty()));
    written(&out, |output| {
        own::write(&trace.header, items, &trace.left_out, output)
    })?;
    let left_out = trace.left_out.in_all();
    let bytes = std::fs::metadata(&out).map_or(0, |meta| meta.len());
    if !args.quiet {
        let mut text = outcome.in_words(bytes, args);
        text.push_str(&passed_over(left_out.clone()));
        // With JSON, the caller knows what to do next, as `tune` does.
        if args.output.json.is_none()
            && outcome.trace.counts.reads + outcome.trace.counts.faults > 0
        {
            let words = ["foreread", "tune", &out.display().to_string()];
            text.push_str(&format!("next: {}\n", in_shell(words)));
        }
        // A closed stderr is not an error.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
    let json = || outcome.to_json(bytes, &out, &left_out, status);
    outputs.emit(String::new, json, &[])?;
    if outcome.lost > 0 && args.exit_code {
        let what = format!("{} events were lost", outcome.lost);
        let remedy = "record with a larger --memory";
        return Err(Fail::check(what, out.display(), remedy));
    }
    if let Some(off) = outcome.off.as_ref().filter(|_| args.exit_code) {
        let remedy = "record it again while no other program uses tracefs";
        return Err(Fail::check(off.to_string(), out.display(), remedy));
    }
    match status.map(exit_code) {
        None | Some(0) => Ok(()),
        Some(code) => Err(Fail::Passed(code)),
    }
}

/// A recording in progress.
enum RunningRecording {
    Traced(Box<ActiveRecording>),
    Sampled(SampledRecording),
}

/// The result of a recording.
struct RecordOutcome {
    trace: Understood,
    seconds: f64,
    /// CPU time of the recorder.
    drain_cpu_seconds: f64,
    lost: u64,
    off: Option<SwitchedOff>,
    by: WatchBy,
}

impl RunningRecording {
    /// Starts recording with the requested method, or else with tracing if possible.
    fn begin(asked: &RecordOptions, by: Option<WatchBy>) -> Result<RunningRecording, Fail> {
        let is_traced = match by {
            Some(by) => by == WatchBy::Trace,
            None => possible().is_ok(),
        };
        if is_traced {
            let running = start(asked).map_err(with_other_ways)?;
            return Ok(RunningRecording::Traced(Box::new(running)));
        }
        Ok(RunningRecording::Sampled(sampled::start(&asked.target)?))
    }

    fn pid(&self) -> u32 {
        match self {
            RunningRecording::Traced(running) => running.pid(),
            RunningRecording::Sampled(running) => running.pid(),
        }
    }

    fn wait(&mut self, enough: &AtomicBool) -> std::io::Result<Option<ExitStatus>> {
        match self {
            RunningRecording::Traced(running) => running.wait(enough),
            RunningRecording::Sampled(running) => running.wait(enough),
        }
    }

    fn end(self, out: &Path) -> Result<RecordOutcome, Fail> {
        match self {
            RunningRecording::Traced(running) => {
                ends::waits_for("the kernel's tracing");
                let captured = running.finish().map_err(with_other_ways)?;
                let (seconds, drain_cpu_seconds) = (captured.seconds, captured.drain_cpu_seconds);
                let lost = captured.lost.overrun + captured.lost.dropped;
                let off = captured.off.clone();
                ends::waits_for("the names of files that were read");
                let trace = captured.understand(out)?;
                Ok(RecordOutcome {
                    seconds,
                    drain_cpu_seconds,
                    trace,
                    lost,
                    off,
                    by: WatchBy::Trace,
                })
            }
            RunningRecording::Sampled(running) => {
                let captured = running.finish();
                Ok(RecordOutcome {
                    seconds: captured.seconds,
                    drain_cpu_seconds: captured.cpu_seconds(),
                    trace: captured.understand(),
                    lost: 0,
                    off: None,
                    by: WatchBy::Sample,
                })
            }
        }
    }
}

fn failed(error: std::io::Error) -> Fail {
    Fail::input("cannot wait for the command", error, "record it again")
}

/// The summary that is printed at the end.
impl RecordOutcome {
    fn in_words(&self, bytes: u64, args: &RecordArgs) -> String {
        let c = &self.trace.counts;
        let mut text = String::new();
        if self.lost > 0 {
            let buffer = size_b(args.memory);
            text.push_str(&format!(
                "events were lost, so the trace has gaps: use a --memory larger than {buffer}\n"
            ));
        }
        text.push_str(&format!(
            "{} ({}) has {} of {} ({}), {}, {}, {} in {:.3} s\n",
            args.out.display(),
            amount(bytes),
            plural(c.reads, "read"),
            plural(self.trace.files, "file"),
            amount(c.read_bytes),
            plural(c.faults, "fault"),
            plural(c.hints, "hint"),
            plural(c.writes, "write"),
            self.seconds
        ));
        let notes = self.trace.header.notes.iter();
        notes.for_each(|note| text.push_str(&format!("note: {}\n", one_line(note))));
        let (events, size) = (count(self.trace.events), amount(self.trace.event_bytes));
        let ms = self.drain_cpu_seconds * 1e3;
        text.push_str(&match self.by {
            WatchBy::Sample => format!(
                "cost: {events} samples, {ms:.1} ms of CPU time ({:.1} %)\n",
                self.drain_cpu_seconds / self.seconds * 100.0
            ),
            WatchBy::Trace => format!(
                "cost: {events} events ({size}), {} lost; saving them took {ms:.1} ms\n",
                count(self.lost)
            ),
        });
        text
    }

    fn to_json(
        &self,
        bytes: u64,
        out: &Path,
        left_out: &std::collections::BTreeMap<String, u64>,
        status: Option<ExitStatus>,
    ) -> String {
        json::pretty(&json!({
            "schema": "foreread.record/1",
            "by": self.by,
            "trace": out.display().to_string(),
            "trace_bytes": bytes,
            "seconds": self.seconds,
            "drain_cpu_seconds": self.drain_cpu_seconds,
            "exit_code": status.map(exit_code),
            "files": self.trace.files,
            "files_without_name": self.trace.nameless,
            "events": self.trace.events,
            "event_bytes": self.trace.event_bytes,
            "lost_events": self.lost,
            "switched_off": self.off.as_ref().map(ToString::to_string),
            "counts": self.trace.counts,
            "left_out": left_out,
            "notes": self.trace.header.notes,
        }))
    }
}
