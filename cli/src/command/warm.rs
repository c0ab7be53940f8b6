//! `foreread warm`: reads whole files into the page cache, or objects into a disk cache, with a progress bar.

#[cfg(feature = "object")]
mod onto_disk;

use super::plan::{left_out_json, name};
use crate::args::JsonArgs;
use crate::args::values::size;
use crate::fail::{Fail, note};
use crate::out::Outputs;
use crate::progress::Bar;
#[cfg(not(feature = "object"))]
use foreread::source::{SourceName, is_remote};
use foreread_attach::warm::{Budget, FillSettings, Filler, whole_files};
use foreread_report::json;
use foreread_report::number::{amount, exact_size};
use foreread_report::progress::Progress;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Read files into the page cache, or objects into a disk cache
///
/// Reads whole files, and folders recursively, at the full rate of the storage. Cached data is not read again, so an
/// interrupted command continues where it stopped. The command stops when seven eighths of the memory of the control
/// group or the machine are used, and reports that.
///
/// Objects (s3://BUCKET/KEY, or s3://BUCKET/PREFIX/ for all objects below it) go to the disk cache of --disk-cache,
/// from which 'mount' and 'serve' read. The command stops when that cache reaches its size limit or its free-space
/// reserve.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread warm model/*.safetensors
  foreread warm --disk-cache /var/cache/foreread s3://bucket/model/")]
pub struct WarmArgs {
    /// Files and folders, or objects and prefixes of stores
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,
    /// Disk cache for objects: DIR[,size=50G][,free=10%]
    ///
    /// Takes the same values as --disk-cache of 'foreread mount'. Default: FOREREAD_DISK_CACHE, then the key
    /// 'disk-cache' of the settings files.
    #[cfg(feature = "object")]
    #[arg(long, value_name = "DIR")]
    pub disk_cache: Option<String>,
    /// Maximum bytes to read
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max: Option<u64>,
    #[command(flatten)]
    pub output: JsonArgs,
}

/// Interval of the progress bar.
const TICK: Duration = Duration::from_millis(50);

#[cfg(not(feature = "object"))]
/// The page cache holds only files: other sources must be mounted first.
fn refuse_sources(paths: &[PathBuf]) -> Result<(), Fail> {
    let mut names = paths.iter().filter(|path| !path.exists());
    let name = names.find_map(|path| {
        let name = SourceName::from(path.as_path());
        is_remote(&name).then_some(name)
    });
    name.map_or(Ok(()), |name| {
        let remedy = format!("mount it (foreread mount {name} DIR), then foreread warm DIR");
        Err(Fail::input("warm takes files and folders", name, remedy))
    })
}

pub fn run(args: &WarmArgs) -> Result<(), Fail> {
    let outputs = Outputs::new(&[("json", args.output.json.as_deref())])?;
    #[cfg(feature = "object")]
    if onto_disk::is_asked(args)? {
        return onto_disk::run(args, &outputs);
    }
    #[cfg(not(feature = "object"))]
    refuse_sources(&args.paths)?;
    let (plan, mut left_out) = whole_files(&args.paths);
    let signalled = crate::signals::first()?;
    let budget = Budget::now(args.max);
    let limit = args.max.filter(|max| *max == budget.whole());
    let settings = FillSettings {
        budget,
        follows_program: false,
        keeps_times: false,
    };
    let filler = Filler::start(Arc::new(plan), settings)
        .map_err(|error| Fail::input("cannot read ahead", error, "start it again"))?;
    let mut bar = Bar::with_time_left();
    bar.stage("MB in the page cache");
    while !filler.is_done() {
        let counts = filler.counts();
        bar.step(
            counts.done_bytes / 1_000_000,
            counts.planned_bytes / 1_000_000,
        );
        if signalled.load(Ordering::Relaxed) > 0 {
            filler.stop();
            break;
        }
        std::thread::sleep(TICK);
    }
    let filled = filler.end();
    drop(bar);
    left_out.extend(filled.left_out.iter().cloned());
    if filled.given_up > 0 {
        note(format!(
            "{} reads were given up: the storage did not answer",
            filled.given_up
        ));
    }
    name(&left_out);
    let counts = filled.counts;
    let rest = counts.planned_bytes - counts.done_bytes;
    let whole = || {
        json::pretty(&json!({
            "schema": "foreread.warm/1",
            "bytes": counts.planned_bytes,
            "cached_bytes": counts.cached_bytes,
            "fetched_bytes": counts.fetched_bytes,
            "left_bytes": rest,
            "out_of_room": filled.out_of_room,
            "seconds": filled.seconds,
            "rate_bytes_per_s": filled.rate,
            "latency_ns": filled.latency_ns,
            "left_out": left_out_json(&left_out),
        }))
    };
    let (fetched, cached) = (amount(counts.fetched_bytes), amount(counts.cached_bytes));
    let seconds = filled.seconds;
    let text = || format!("{fetched} read in {seconds:.3} s, {cached} were cached\n");
    outputs.emit(text, whole, &[])?;
    let signal = signalled.load(Ordering::Relaxed);
    if signal > 0 {
        note(format!(
            "stopped with {} left to read; run the same command again to continue",
            amount(rest)
        ));
        return Err(Fail::Passed(128 + signal as u8));
    }
    if filled.out_of_room {
        let what = format!("{} were not read", amount(rest));
        let (why, remedy) = match limit {
            Some(max) => (
                format!("--max {} is reached", exact_size(max)),
                "name fewer files, or a larger --max",
            ),
            None => (
                "the memory is full".to_string(),
                "name fewer files, or allow more memory",
            ),
        };
        return Err(Fail::check(why, what, remedy));
    }
    if left_out.is_empty() {
        Ok(())
    } else {
        let what = "some files were skipped";
        Err(Fail::check(what, "see above", "check them"))
    }
}
