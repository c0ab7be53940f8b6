//! `foreread run`: runs a command with readahead, and prints on stderr what was read ahead and how long the command waited.
//!
//! ```text
//!   Ctrl-C on the terminal ──► the command gets it from the terminal, we wait for its end
//!   a signal to us         ──► the command gets it from us
//! ```
//! foreread prints nothing while the command runs. Because the command may use stdout, foreread prints nothing to stdout, except the JSON
//! if `--json -` was given.

use crate::args::JsonArgs;
use crate::fail::{Fail, one_line};
use crate::out::Outputs;
use crate::signals::{CommandSignals, ENDING_COMMAND, cannot_wait, exit_code};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use foreread::OpenError;
use foreread_attach::run::command::start;
use foreread_attach::run::{RunOptions, RunReport, WatchBy};
use foreread_core::policy::PolicySpec;
use foreread_lab::verdict::{Means, Step, Verdict, in_shell};
use foreread_observe::record::Target;
use foreread_os::ends;
use foreread_report::json;
use foreread_report::number::{amount, plural};
use serde_json::json;
use signal_hook::consts::{SIGUSR1, SIGUSR2};
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Read ahead for an unmodified program while it runs
///
/// Watches the reads and page faults of the command and its children. Reads into the page cache what comes next: the next parts of files
/// that are read or mapped, and the next files of a folder. The kernel's own readahead stays on, and cached data is not read again. As
/// root, foreread uses the kernel's tracepoints. Without root, foreread samples what the command's threads are waiting for, and sees the
/// reads that block. If there is nothing to gain, it stops watching, and says so at the end.
///
/// The command runs in the foreground of the terminal.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread run -- python3 serve.py --model /mnt/models/7b
  foreread run -- grep -r TODO /mnt/src
  foreread run --pid 4711")]
pub struct RunArgs {
    /// The readahead policy; see 'foreread list policies'
    #[arg(long, value_name = "POLICY", default_value = "auto", value_parser = policy)]
    pub policy: PolicySpec,
    /// How to observe reads [default: trace if permitted]
    ///
    /// trace: uses the kernel's tracepoints; needs root. sample: samples what the command's threads are waiting for; it
    /// needs no root, works in containers, and sees the reads that block.
    #[arg(long, value_name = "HOW", value_parser = watch_by())]
    pub by: Option<WatchBy>,
    /// Print no summary
    #[arg(short, long)]
    pub quiet: bool,
    #[command(flatten)]
    pub output: JsonArgs,
    /// Watch this process until it ends or Ctrl-C
    ///
    /// The children of the process are watched too.
    #[arg(long, value_name = "PID", conflicts_with = "command")]
    pub pid: Option<u32>,
    /// The command and its arguments
    #[arg(value_name = "CMD", last = true, required_unless_present = "pid")]
    pub command: Vec<OsString>,
}

pub fn watch_by() -> impl TypedValueParser<Value = WatchBy> {
    PossibleValuesParser::new(["trace", "sample"]).map(|word| match word.as_str() {
        "trace" => WatchBy::Trace,
        _ => WatchBy::Sample,
    })
}

fn policy(text: &str) -> Result<PolicySpec, String> {
    PolicySpec::parse(text).map_err(|error| OpenError::Policy(error).to_string())
}

pub fn run(args: &RunArgs) -> Result<(), Fail> {
    let outputs = Outputs::new(&[("json", args.output.json.as_deref())])?;
    let options = RunOptions {
        target: args
            .pid
            .map_or_else(|| Target::Command(args.command.clone()), Target::Process),
        policy: args.policy.clone(),
        by: args.by,
    };
    let heard = [&ENDING_COMMAND[..], &[SIGUSR1, SIGUSR2]].concat();
    let enough = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&enough);
    // Signals go to the command, or end the run if it is attached to a process.
    let signals = CommandSignals::begin(&heard, move |signal, _| {
        flag.fetch_or(ENDING_COMMAND.contains(&signal), Ordering::Release);
    })?;
    #[cfg(feature = "otlp")]
    let began = std::time::Instant::now();
    let mut running = start(&options)?;
    let status = signals.until_end(running.pid(), || running.wait(&enough));
    let status = status.map_err(cannot_wait)?;
    ends::waits_for("the kernel's tracing, or the storage");
    let report = running.finish();
    #[cfg(feature = "otlp")]
    send(began.elapsed(), &report, status);
    let verdict = report.verdict(&in_shell(
        args.command.iter().map(|word| word.to_string_lossy()),
    ));
    if !args.quiet {
        // A closed stderr is not an error.
        let words = in_words(&report) + &advice(&verdict);
        let _ = std::io::stderr().write_all(words.as_bytes());
    }
    let json = || to_json(&report, status);
    outputs.emit(String::new, json, &[])?;
    match status.map_or(0, exit_code) {
        0 => Ok(()),
        code => Err(Fail::Passed(code)),
    }
}

#[cfg(feature = "otlp")]
fn send(took: std::time::Duration, report: &RunReport, status: Option<ExitStatus>) {
    let mut fields = serde_json::to_value(report).unwrap_or_default();
    let code = status.map_or(0, exit_code);
    if let Some(fields) = fields.as_object_mut() {
        fields.insert("exit_code".to_string(), json!(code));
    }
    let error = (code != 0).then(|| format!("exit code {code}"));
    crate::otlp::send_command("run", took, &fields, error);
}

/// Suggests alternatives for a command that gained nothing.
fn advice(verdict: &Verdict) -> String {
    let steps = verdict
        .steps
        .iter()
        .filter(|step| step.means != Means::Measure);
    let lines = |step: &Step| {
        let lines = step.text.lines().map(|line| format!("    {line}\n"));
        format!("  {}\n{}", step.why, lines.collect::<String>())
    };
    steps.map(lines).collect()
}

fn in_words(report: &RunReport) -> String {
    let mut lines = Vec::new();
    lines.extend(report.finding().map(|finding| one_line(&finding)));
    if report.ahead_bytes > 0 {
        let guessed = match report.guessed_bytes {
            0 => String::new(),
            bytes => format!(", {} probably", amount(bytes)),
        };
        let unused = match report.by {
            WatchBy::Sample => "apparently unused",
            WatchBy::Trace => "not used",
        };
        lines.push(format!(
            "{} read ahead: {} used{guessed}, {} of it late; {} {unused}",
            amount(report.ahead_bytes),
            amount(report.used_bytes),
            amount(report.late_bytes),
            amount(report.unused_bytes)
        ));
    }
    let waits = match report.waits {
        0 => String::new(),
        waits => format!(" in {}", plural(waits, "read")),
    };
    lines.push(format!(
        "took {:.2} s, at least {:.2} s of it waiting for the storage{waits}; {} watched",
        report.seconds,
        report.waiting_seconds,
        plural(report.files, "file")
    ));
    format!("foreread: {}\n", lines.join("\n  "))
}

fn to_json(report: &RunReport, status: Option<ExitStatus>) -> String {
    let mut whole = serde_json::to_value(report).unwrap_or_default();
    whole["schema"] = json!("foreread.run/1");
    whole["exit_code"] = json!(status.map(exit_code));
    whole["nothing_to_gain"] = json!(report.nothing());
    json::pretty(&whole)
}
