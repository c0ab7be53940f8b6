//! `foreread compare`: checks its options, lets the crate `lab` measure, and prints the advice, the tables and the
//! JSON.
//!
//! The text is printed when all measurements have ended, and starts with the verdict over all tables. If there are several tables, a line
//! on stderr reports each table once it is complete. After Ctrl-C or an error of the source, the results so far are printed. Nothing is
//! printed while a run is measured, because printing could disturb it.

use crate::args::values::{size, time};
use crate::config;
use crate::fail::{Fail, note};
use crate::out::{self, Outputs};
use crate::policy_list;
use crate::progress::Bar;
use crate::reads::{self, ReplayArgs, RequestedReads};
use crate::signals;
use crate::source;
use foreread::source::SourceName;
use foreread_lab::compare::vary::Axis;
use foreread_lab::compare::{self, CompareOn, ComparePlan};
use foreread_lab::replay::{LoadedTrace, Replay, is_walk};
use foreread_lab::report::{Report, Table, page, screen, table, to_json};
use foreread_lab::verdict::{Step, in_shell, tables::of_tables};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Measure readahead policies on a file, a disk or a model
///
/// Without arguments it runs four workloads on a scratch file in the current folder (or in the folder for temporary files); this takes
/// half a minute. --on model:NAME uses a model instead. The runs are paired and interleaved: run i of every policy has the same reads
/// and, on a model, the same random numbers. A policy is called the fastest only if the difference is more than noise. Two policies are
/// called equal only if the confidence interval of the ratio of their times is within 5 %.
/// --why shows how this was tested.
///
/// If the source is a file, the policies read it with O_DIRECT, bypassing the page cache. The row 'kernel' does the
/// same reads through the page cache, with the device's own read_ahead_kb; the file's cached pages are dropped before
/// each run.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread compare sequential --on disk.img
  foreread compare --on model:rbd --policy linux-6.18:max=1M,rbd-plain
  foreread compare boot-ide --on model:rbd --json - | jq '.rows[].time_s.mean'")]
pub struct CompareArgs {
    /// NAME[:key=value,...] or a trace file [default: 4 workloads]
    ///
    /// 'foreread list workloads' lists the names, 'foreread trace formats' the formats of traces. Anything else
    /// is treated as a trace file; trace:FILE always is.
    #[arg(value_name = "WORKLOAD|TRACE")]
    pub workload: Option<OsString>,
    /// Storage: PATH, model:NAME, or nbd://, s3://...
    ///
    /// Nothing is written to a file or block device. PATH can also be given as file:PATH. 'foreread list models' lists
    /// the models. Sources such as nbd://HOST/EXPORT,
    /// nbd+unix:///EXPORT?socket=PATH and rbd:POOL/IMAGE[@SNAP] are read through the engine; nbds:// needs a build with
    /// --features tls; s3://, gs://, az://, hf:// and http(s):// need --features object. The default is a scratch file.
    #[arg(long, value_name = "SOURCE")]
    pub on: Option<SourceName>,
    /// Policies: a,b:key=value or 'all' [default: see --help]
    ///
    /// 'foreread list policies' lists them. The default is none, auto, linux-6.18 and rbd-plain; on a model or over a network, also
    /// linux-6.18 with max=4M and max=64M. 'none' is added if it is missing, because the others are compared with it. On a model,
    /// 'oracle' is included by default and can be in the list: it is the best schedule found with perfect foresight. Because it is found
    /// by a search, a policy may beat it in a run; a note then says by how much.
    #[arg(long, value_name = "LIST")]
    pub policy: Option<String>,
    /// Runs of each policy; significance tests need 2
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: Option<u32>,
    /// Time limit for all tables of --on [default: 90s]
    ///
    /// For example 30s or 5m. For a slow source, only part of it is read, fewer runs are made, and a policy that does not
    /// fit is left out. --runs and --size are always respected, however long they take. The limit does not apply to models, which run in
    /// virtual time.
    #[arg(long, value_name = "TIME", value_parser = time, requires = "on", conflicts_with = "runs")]
    pub time: Option<Duration>,
    /// Memory for cached data, such as 512M
    ///
    /// The size of the engine's cache. For a workload that uses mappings ('mapped-random', 'mapped-lookup', 'compile')
    /// on a model, it is the size of the kernel's page cache: the part of the memory limit that programs leave free. In
    /// the JSON, refault_bytes counts bytes that were read again because this memory was too small to keep them.
    #[arg(long, alias = "cache", value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,
    #[command(flatten)]
    pub replay: ReplayArgs,
    /// Seed of the first run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Bytes that the workload spans, such as 1G
    ///
    /// This is also the size of the scratch file. Default: the size of the file, or the workload's usual size.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub size: Option<u64>,
    /// Write each run's event log to this directory (only runs on files)
    ///
    /// The directory is created if needed. Each run writes one log, WORKLOAD-POLICY-RUN.log; 'foreread check
    /// replay-log' replays it and checks that the policy makes the same decisions. Writing the logs makes the runs
    /// slower.
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub event_log: Option<PathBuf>,
    /// Repeat for each of several values of a parameter
    ///
    /// KEY is a parameter of the workload ('streams=1,2,4,8'), 'memory', or 'policy.KEY' for a parameter of each policy
    /// that has it ('policy.max=32K,128K,512K'). There is a table for each value, or, with 'policy.KEY', a row for each
    /// policy at each value. At most 64 values.
    #[arg(long, value_name = "KEY=V,...")]
    pub vary: Option<String>,
    /// Print how differences were tested
    ///
    /// Adds a line below the table: the statistical test, the correction for multiple tests, the number of pairs of
    /// rows, and the significance level.
    #[arg(long)]
    pub why: bool,
    /// Write an HTML page to this file
    ///
    /// A single, self-contained HTML file without scripts. The page shows times with 95 % confidence intervals, bytes
    /// and latencies, and embeds the JSON.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub html: Option<OsString>,
    /// Write JSON to a file, or to stdout
    ///
    /// Schema foreread.compare/1; an array if there are several tables. With '-' the JSON replaces the tables. Write a name without a
    /// dot as ./NAME.
    #[arg(long, value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<OsString>,
}

pub fn run(args: &CompareArgs) -> Result<(), Fail> {
    let signalled = signals::first()?;
    let plan = ComparePlan {
        stop: Arc::clone(&signalled),
        ..check(args)?
    };
    let json = ("json", args.json.as_deref());
    let html = ("html", args.html.as_deref());
    let outputs = Outputs::new(&[json, html])?;
    let missing = tables(args, &plan, &outputs)?;
    match signalled.load(Ordering::Relaxed) {
        0 => Ok(()),
        signal => {
            if !missing.is_empty() {
                note(format!("interrupted; not measured: {}", missing.join(", ")));
            }
            Err(Fail::Passed(128 + signal as u8))
        }
    }
}

/// Measures and prints the tables. Returns the tables that were not started because the plan was stopped.
fn tables(args: &CompareArgs, plan: &ComparePlan, outputs: &Outputs) -> Result<Vec<String>, Fail> {
    let plans = match &args.vary {
        Some(text) => Axis::parse(text)?.plans(plan)?,
        None => vec![plan.clone()],
    };
    let mut tables = Vec::new();
    let ended = compare::run_each(&plans, &mut Bar::new(), |bar, table| {
        tables.push(table);
        let table = &tables[tables.len() - 1];
        // If there are several tables, the first ones are reported before the last is complete.
        if plan.workload.is_none() && plan.replay.is_none() {
            bar.aside(|| note(table.in_a_line()));
        }
    });
    // If the source fails or Ctrl-C stops the measurement, the results so far are still printed.
    if ended.is_ok() || !tables.is_empty() {
        print(args, plan, &tables, outputs)?;
    }
    Ok(ended?)
}

fn print(
    args: &CompareArgs,
    plan: &ComparePlan,
    tables: &[Table],
    outputs: &Outputs,
) -> Result<(), Fail> {
    let style = table::Style {
        bold: out::may_style(),
        details: args.why,
    };
    // Whether 'foreread run' could help: it works on files of this machine.
    let is_here = |on: &CompareOn| on.path().is_some() || on.is_simulated();
    let trace = plan.replay.as_ref().map(|replay| &*replay.loaded);
    let trace = trace.filter(|_| plan.on.as_ref().is_none_or(is_here));
    let is_walk =
        trace.is_some_and(|trace| LoadedTrace::is_through_page_cache(trace) && is_walk(trace));
    let reports: Vec<Report> = tables
        .iter()
        .map(|table| Report {
            is_walk,
            ..Report::of(table)
        })
        .collect();
    let verdict = of_tables(&reports, |runs| again(args.on.as_ref(), runs));
    let file = plan.on.as_ref().and_then(|on| on.path());
    let verdict = verdict.map(|verdict| match file {
        Some(path) => verdict.with_disk(path),
        None => verdict,
    });
    let why = verdict.as_ref().map(|verdict| verdict.why.as_str());
    let steps = verdict.as_ref().map_or(&[][..], |verdict| &verdict.steps);
    outputs.emit(
        || screen(&reports, why, steps.iter().flat_map(Step::next), style),
        || to_json(&reports),
        &[("html", &|| {
            page::compare(&reports, why, steps.iter().map(Step::copy).collect())
        })],
    )
}

/// The command that repeats the measurement with more runs. A time limit excludes a number of runs.
fn again(on: Option<&SourceName>, runs: u32) -> String {
    let mut words = reads::again(on, &["--runs", "--time"]);
    words.extend(["--runs".to_string(), runs.to_string()]);
    in_shell(words)
}

/// Checks the arguments as far as possible without measuring. The lab chooses values that are not given.
fn check(args: &CompareArgs) -> Result<ComparePlan, Fail> {
    let on = args.on.as_ref().map(source::parse).transpose()?;
    let (policies, oracle) = policy_list::parse(args.policy.as_deref())?;
    let (workload, replay) = match reads::parse(args.workload.as_deref())? {
        RequestedReads::Usual => (None, None),
        RequestedReads::Workload(name) => (Some(name), None),
        RequestedReads::Trace(path) => (None, Some(Arc::new(replay(&path, args)?))),
    };
    if replay.is_none() {
        args.replay.none_is_set()?;
    }
    Ok(ComparePlan {
        workload,
        replay,
        on,
        policies,
        alone: false,
        oracle,
        runs: args.runs,
        limit_ms: args
            .time
            .map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)),
        cache_bytes: args.memory,
        seed: args.seed,
        size_bytes: args.size,
        event_logs: args.event_log.clone(),
        replaces_logs: out::force(),
        site: config::load()?.site(args.policy.is_some()),
        ..ComparePlan::default()
    })
}

/// Reads and prepares the trace.
fn replay(path: &Path, args: &CompareArgs) -> Result<Replay, Fail> {
    if args.size.is_some() {
        let remedy = "leave it out; --records N replays the first N records";
        return Err(Fail::input(
            "the size of a trace is fixed",
            "--size",
            remedy,
        ));
    }
    let varied = args
        .vary
        .as_deref()
        .is_some_and(|vary| vary.trim_start().starts_with("think="));
    if varied && args.replay.think.is_some() {
        return Err(Fail::input(
            "think is set twice",
            "--think and --vary think",
            "leave --think out",
        ));
    }
    reads::ready(path, &args.replay)
}
