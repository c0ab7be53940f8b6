//! `foreread warm` for objects: reads them into a disk cache.

use super::WarmArgs;
use crate::config;
use crate::fail::{Fail, note};
use crate::out::Outputs;
use crate::progress::Bar;
use crate::signals;
use foreread::source::disk_cache::{CacheFillCounts, CacheFillEnd, CacheFillReport, DiskCache};
use foreread::source::{self, SourceName};
use foreread_report::json;
use foreread_report::number::{amount, plural};
use foreread_report::progress::Progress;
use serde_json::json;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Maximum number of skipped objects named on stderr.
const MAX_NAMED: usize = 10;

/// Returns whether the sources are objects, which are read into the disk cache; files are read into the page cache.
pub fn is_asked(args: &WarmArgs) -> Result<bool, Fail> {
    let is_object = |path: &&Path| source::is_remote(&SourceName::from(*path));
    let paths = || args.paths.iter().map(|path| path.as_path());
    let objects = paths().filter(is_object).count();
    if objects == args.paths.len() {
        return Ok(true);
    }
    let file = paths().find(|path| !is_object(path));
    let place = file.map_or(String::new(), |path| path.display().to_string());
    if objects > 0 {
        let remedy = "warm files and objects in separate commands";
        return Err(Fail::input("a file among objects", place, remedy));
    }
    if args.disk_cache.is_some() {
        let remedy = "remove --disk-cache: files go to the page cache";
        return Err(Fail::input(
            "a disk cache holds only objects of stores",
            place,
            remedy,
        ));
    }
    Ok(false)
}

/// Totals over all sources.
#[derive(Default)]
struct Sum {
    counts: CacheFillCounts,
    left_out: Vec<(String, String)>,
    ended: Option<CacheFillEnd>,
    evicted_bytes: u64,
    dropped_bytes: u64,
}

impl Sum {
    fn add(&mut self, source: &SourceName, report: CacheFillReport) {
        self.counts = together(self.counts, report.counts);
        self.ended = self.ended.or(report.ended);
        self.evicted_bytes += report.evicted_bytes;
        self.dropped_bytes += report.dropped_bytes;
        let source = source.to_string();
        let named = |name: String| match source.strip_suffix('/') {
            Some(folder) => format!("{folder}/{name}"),
            None => source.clone(),
        };
        let left_out = report.left_out.into_iter();
        self.left_out
            .extend(left_out.map(|(name, why)| (named(name), why)));
    }

    fn left_bytes(&self) -> u64 {
        let CacheFillCounts {
            bytes,
            held_bytes,
            fetched_bytes,
            ..
        } = self.counts;
        bytes.saturating_sub(held_bytes + fetched_bytes)
    }
}

fn together(before: CacheFillCounts, more: CacheFillCounts) -> CacheFillCounts {
    let mut sum = more;
    sum.objects += before.objects;
    sum.bytes += before.bytes;
    sum.held_bytes += before.held_bytes;
    sum.fetched_bytes += before.fetched_bytes;
    sum
}

pub fn run(args: &WarmArgs, outputs: &Outputs) -> Result<(), Fail> {
    let sources: Vec<SourceName> = args
        .paths
        .iter()
        .map(|path| SourceName::from(path.as_path()))
        .collect();
    let Some(cache) = config::load()?.disk_cache(args.disk_cache.as_deref())? else {
        return Err(Fail::input(
            "objects need a disk cache, and none is given",
            &sources[0],
            "add --disk-cache DIR",
        ));
    };
    if cache.bytes().is_none() {
        return Err(Fail::input(
            "the disk cache is read-only",
            cache.dir().display(),
            "name a folder that this user may write to",
        ));
    }
    if args.max.is_some() {
        return Err(Fail::input(
            "--max applies only to the page cache",
            &sources[0],
            "write --disk-cache DIR,size=SIZE",
        ));
    }
    let signalled = signals::first()?;
    let began = Instant::now();
    let mut bar = Bar::of_bytes();
    bar.stage("on disk");
    let before_bytes = cache.bytes().unwrap_or(0);
    let mut sum = Sum::default();
    for source in &sources {
        if sum.ended.is_none() {
            let report = fill(&cache, source, &signalled, &mut bar, sum.counts)?;
            sum.add(source, report);
        }
    }
    // A source may have evicted what was fetched for the sources before it.
    let others_bytes = before_bytes.saturating_sub(sum.counts.held_bytes);
    if sum.ended.is_none() && sum.evicted_bytes > others_bytes {
        sum.ended = Some(CacheFillEnd::Full);
    }
    drop(bar);
    let seconds = began.elapsed().as_secs_f64();
    for (name, why) in sum.left_out.iter().take(MAX_NAMED) {
        note(format!("left out {name}: {why}"));
    }
    if sum.left_out.len() > MAX_NAMED {
        let more = sum.left_out.len() - MAX_NAMED;
        note(format!("... and {more} more were left out"));
    }
    if sum.evicted_bytes > 0 {
        let evicted = amount(sum.evicted_bytes);
        note(format!("{evicted} were evicted from the disk cache"));
    }
    print(outputs, &cache, &sum, seconds)?;
    ended(&sum, &cache, signalled.load(Ordering::Relaxed))
}

fn fill(
    cache: &DiskCache,
    source: &SourceName,
    signalled: &AtomicUsize,
    bar: &mut Bar,
    before: CacheFillCounts,
) -> Result<CacheFillReport, Fail> {
    let tree = source::open_tree(source)?;
    let filled = cache.fill(&*tree, &mut |counts| {
        let counts = together(before, counts);
        bar.step(counts.held_bytes + counts.fetched_bytes, counts.bytes);
        signalled.load(Ordering::Relaxed) == 0
    });
    filled.map_err(|error| Fail::input("cannot fetch", error, "start it again"))
}

fn print(outputs: &Outputs, cache: &DiskCache, sum: &Sum, seconds: f64) -> Result<(), Fail> {
    let counts = sum.counts;
    let rate = counts.fetched_bytes as f64 / seconds.max(1e-9);
    let in_words = || {
        let fetched = amount(counts.fetched_bytes);
        format!(
            "{} of {}: {fetched} fetched in {seconds:.3} s ({}/s), {} were on disk\n",
            plural(counts.objects, "object"),
            amount(counts.bytes),
            amount(rate as u64),
            amount(counts.held_bytes)
        )
    };
    let left_out = |(name, why): &(String, String)| json!({ "name": name, "why": why });
    let whole = json!({
        "schema": "foreread.warm-disk/1",
        "disk_cache": cache.dir().display().to_string(),
        "objects": counts.objects,
        "bytes": counts.bytes,
        "held_bytes": counts.held_bytes,
        "fetched_bytes": counts.fetched_bytes,
        "left_bytes": sum.left_bytes(),
        "evicted_bytes": sum.evicted_bytes,
        "dropped_bytes": sum.dropped_bytes,
        "out_of_room": matches!(sum.ended, Some(CacheFillEnd::Full | CacheFillEnd::Refused)),
        "seconds": seconds,
        "rate_bytes_per_s": rate,
        "left_out": sum.left_out.iter().map(left_out).collect::<Vec<_>>(),
    });
    outputs.emit(in_words, || json::pretty(&whole), &[])
}

/// The error if not everything was fetched.
fn ended(sum: &Sum, cache: &DiskCache, signal: usize) -> Result<(), Fail> {
    let rest = amount(sum.left_bytes());
    if signal > 0 {
        note(format!(
            "stopped with {rest} left to fetch; run the same command again to continue"
        ));
        return Err(Fail::Passed(128 + signal as u8));
    }
    let what = match sum.left_bytes() {
        0 => "part of what was fetched was evicted again".to_string(),
        _ => format!("{rest} were not fetched"),
    };
    let dir = cache.dir().display();
    match sum.ended {
        Some(CacheFillEnd::Full) => {
            let place = format!(
                "{what}: {dir} may have {}",
                amount(cache.settings().size_bytes)
            );
            let remedy = "set a larger size: DIR,size=SIZE";
            Err(Fail::check("the disk cache is full", place, remedy))
        }
        Some(CacheFillEnd::Refused) => {
            let remedy = "free some space, set a smaller free=, or name another disk";
            Err(Fail::check(
                "the disk is full",
                format!("{what}: {dir}"),
                remedy,
            ))
        }
        Some(CacheFillEnd::Stopped) | None if sum.dropped_bytes > 0 => {
            let dropped = amount(sum.dropped_bytes);
            let place = format!("{dropped} were fetched but not written to {dir}");
            Err(Fail::check(
                "the disk was too slow",
                place,
                "start it again",
            ))
        }
        Some(CacheFillEnd::Stopped) | None if sum.left_out.is_empty() => Ok(()),
        Some(CacheFillEnd::Stopped) | None => Err(Fail::check(
            "some objects were skipped",
            "see above",
            "check them",
        )),
    }
}
