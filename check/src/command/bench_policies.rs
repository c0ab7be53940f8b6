//! `foreread bench policies`: passes checked options to the bench, prints the text, writes JSON and page.
//!
//! The first signal that ends a command stops the schedule: the runs that have begun are ended, what is complete is reported, and the
//! exit code is 128 and the number of the signal. The second one ends the process at once; with `--resume` no finished run
//! is lost either way.

use super::bench::{BenchCells, BenchPoliciesArgs};
use crate::bench::policies::{self, BenchOptions, CellFilter};
use crate::evaluation::{Design, verdict};
use foreread_cli::fail::{Fail, note};
use foreread_cli::out::{self, Outputs};
use foreread_cli::progress::Bar;
use foreread_cli::reads::{self, Part, RequestedReads};
use foreread_cli::signals;
use foreread_lab::replay::Replay;
use foreread_pagecache::program;
use foreread_report::width;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The largest list of recordings that is read: a line has 100 bytes.
const MAX_INDEX_BYTES: u64 = 1 << 20;

/// Measures and prints.
pub fn run(args: &BenchPoliciesArgs) -> Result<(), Fail> {
    let mut outputs = Outputs::new(args.json.as_ref(), &[("html", args.html.as_deref())])?;
    let resume = args.resume.as_deref();
    let resume = resume
        .map(|path| out::resumable("resume", path))
        .transpose()?;
    if let Some(path) = &resume {
        outputs.and("resume", path.clone())?;
    }
    let options = BenchOptions {
        design: design(args),
        judged: if args.policy.is_empty() {
            vec![verdict::JUDGED.to_string()]
        } else {
            args.policy.clone()
        },
        only: args
            .only
            .iter()
            .map(|text| CellFilter::parse(text))
            .collect(),
        recordings: recordings(args)?,
        draw: args.draw,
        threads: args.threads.map_or_else(processors, usize::from),
        runs_file: resume,
        build: build(),
    };
    let (stop, signal) = stopped_by_a_signal()?;
    let results = {
        let mut bar = Bar::with_time_left();
        policies::run(&options, &stop, &mut bar)?
    };
    outputs.emit(
        || results.to_text(width::columns()),
        || results.to_json(),
        &[("html", &|| results.to_html())],
    )?;
    let [done, all] = results.runs();
    if done == all {
        return results
            .broken_credit()
            .map_or(Ok(()), |why| Err(Fail::check(why, "", "")));
    }
    note(match &options.runs_file {
        Some(path) => format!(
            "stopped after {done} of {all} runs; the same command continues from {}",
            path.display()
        ),
        None => {
            format!("stopped after {done} of {all} runs; with --resume FILE they would be kept")
        }
    });
    Err(Fail::Passed(
        128 + u8::try_from(signal.load(Ordering::Relaxed)).unwrap_or(0),
    ))
}

fn design(args: &BenchPoliciesArgs) -> Design {
    match args.cells {
        _ if args.full => Design::Full,
        Some(BenchCells::Baseline) => Design::Baseline,
        Some(BenchCells::Full) => Design::Full,
        Some(BenchCells::Validation) => Design::Validation,
        Some(BenchCells::Fractional) | None => Design::Fractional,
    }
}

/// The recorded workloads that were asked for.
fn recordings(args: &BenchPoliciesArgs) -> Result<Vec<Arc<Replay>>, Fail> {
    if design(args) != Design::Validation {
        return args.trace.iter().map(|path| trace(path)).collect();
    }
    let folder = &args.recordings;
    let index = folder.join("index.csv");
    let text = foreread_os::open::read_small_text(&index, MAX_INDEX_BYTES).map_err(|error| {
        Fail::input(
            "cannot read the list of recordings",
            format!("{}: {error}", index.display()),
            "name their folder with --recordings; check/record-programs makes one",
        )
    })?;
    let mut names: Vec<&str> = text
        .lines()
        .skip(1)
        .filter_map(|line| line.split(',').next_back())
        .collect();
    names.sort_unstable();
    names.iter().map(|name| trace(&folder.join(name))).collect()
}

/// The recorded workload of a file.
fn trace(path: &Path) -> Result<Arc<Replay>, Fail> {
    let marked: OsString = [OsStr::new("trace:"), path.as_os_str()]
        .into_iter()
        .collect();
    let RequestedReads::Trace(path) = reads::parse(Some(&marked))? else {
        return Err(Fail::input(
            "not a trace",
            path.display(),
            "name the file of a trace",
        ));
    };
    let part = Part {
        format: None,
        limit: None,
        only: None,
        mode: None,
        think: None,
    };
    reads::ready(&path, &part).map(Arc::new)
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Differs between two builds: size and time of the binary. A copy counts as another build, which costs some repeated runs.
fn build() -> String {
    let meta = std::fs::metadata(program::file());
    meta.map_or_else(
        |_| "unknown".to_string(),
        |m| format!("{} {}.{:09}", m.len(), m.mtime(), m.mtime_nsec()),
    )
}

/// A flag that the first signal sets, and the number of the signal.
fn stopped_by_a_signal() -> Result<(Arc<AtomicBool>, Arc<AtomicUsize>), Fail> {
    let (stop, number) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    signals::end_at_second_signal()?;
    for signal in signals::ending() {
        let value = usize::try_from(signal).unwrap_or(0);
        signal_hook::flag::register_usize(signal, Arc::clone(&number), value)
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(signals::no_handler)?;
    }
    Ok((stop, number))
}
