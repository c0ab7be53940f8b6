//! `foreread cache`: lists, verifies, trims and removes the contents of a disk cache.
//!
//! ```text
//!   list, stat   read names and dates       verify   reads every byte       trim, remove   delete files
//! ```
//! The command creates no folder, and deletes only files that belong to the cache.

use crate::args::JsonArgs;
use crate::fail::{Fail, note};
use crate::out::{self, Outputs};
use crate::progress::Bar;
use crate::signals;
use clap::Subcommand;
use foreread::source::SourceName;
use foreread::source::disk_cache::{
    BlockState, CacheInspector, DiskCacheSettings, ListingSummary, NOTATION, OLD_FOLDER,
    VersionSummary,
};
use foreread_report::block::{self, Block, Column, Table};
use foreread_report::number::{amount, count, cut, or_dash, percent, plural};
use foreread_report::progress::Progress;
use foreread_report::width;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{BufRead, IsTerminal, Write};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

/// List, verify or trim a disk cache
///
/// DIR is the folder of --disk-cache of 'foreread mount', 'serve' and 'warm'. Other processes may keep using the cache
/// meanwhile; they fetch removed data again. To delete a whole cache, use 'rm -r'.
#[derive(Debug, clap::Args)]
#[command(disable_help_subcommand = true)]
#[command(after_help = "\
Examples:
  foreread cache list /var/cache/foreread
  foreread cache remove /var/cache/foreread s3://bucket/old/")]
pub struct CacheArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: CacheCommand,
}

/// Commands for a disk cache. The help text of a command is its doc comment, or that of its argument struct.
#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// List the cached versions, by source
    ///
    /// 'part' is the cached fraction of the source. 'use' is 'again' for a version that was read after it was written.
    #[command(after_help = "\
Example:
  foreread cache list /var/cache/foreread s3://bucket/data/")]
    List(ShownArgs),
    /// Print how much is cached, and how much space is free on the file system
    ///
    /// The cache's size limit is not shown: it belongs to the commands that use the cache.
    Stat(ShownArgs),
    Verify(VerifyArgs),
    Trim(TrimArgs),
    Remove(RemoveArgs),
}

/// A cache and, optionally, a source in it.
#[derive(Debug, clap::Args)]
pub struct PartArgs {
    /// The folder of --disk-cache
    ///
    /// Add ,others=trusted if other users may write to the folder.
    #[arg(value_name = "DIR")]
    pub dir: String,
    /// Only this source; with a trailing /, all sources below it
    #[arg(value_name = "SOURCE")]
    pub source: Option<SourceName>,
}

#[derive(Debug, clap::Args)]
pub struct ShownArgs {
    #[command(flatten)]
    pub part: PartArgs,
    #[command(flatten)]
    pub output: JsonArgs,
}

/// Read every byte and remove invalid blocks
///
/// Readers verify every block that they read anyway, but this command finds a failing disk earlier. Ctrl-C stops it and
/// prints what was found so far. The exit code is 1 if a block is invalid.
#[derive(Debug, clap::Args)]
pub struct VerifyArgs {
    #[command(flatten)]
    pub part: PartArgs,
    /// Remove nothing; print what would be removed
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub output: JsonArgs,
}

/// Remove cached objects until the cache is no larger than a size
///
/// Removes cached versions of objects in the order in which the cache evicts them: versions used once before versions
/// used again, and the least recently used first. A version that takes more than a 16th of the size is removed in parts
/// of 8 MiB.
#[derive(Debug, clap::Args)]
pub struct TrimArgs {
    /// The folder of --disk-cache
    ///
    /// Add ,others=trusted if other users may write to the folder.
    #[arg(value_name = "DIR")]
    pub dir: String,
    /// The size that the cache may keep, such as 10G
    #[arg(long, value_name = "SIZE", value_parser = crate::args::values::size)]
    pub size: u64,
}

/// Remove everything, or all versions of a source
///
/// Cached folder listings are removed as well. Without SOURCE it asks for confirmation on a terminal, and fails if there is none.
#[derive(Debug, clap::Args)]
pub struct RemoveArgs {
    #[command(flatten)]
    pub part: PartArgs,
    /// Do not ask for confirmation
    #[arg(long)]
    pub yes: bool,
}

/// Maximum number of invalid blocks listed by name.
const MAX_FAULTS: usize = 100;
/// Maximum characters of a version in a table: an ETag has 34.
const VERSION_WIDTH: usize = 16;
/// Interval of the progress bar.
const TICK: Duration = Duration::from_millis(50);
const NANOS: i128 = 1_000_000_000;

pub fn run(args: &CacheArgs) -> Result<(), Fail> {
    match &args.command {
        CacheCommand::List(asked) => list(asked),
        CacheCommand::Stat(asked) => stat(asked),
        CacheCommand::Verify(asked) => verify(asked),
        CacheCommand::Trim(asked) => trim(asked),
        CacheCommand::Remove(asked) => remove(asked),
    }
}

fn open(dir: &str) -> Result<CacheInspector, Fail> {
    let settings = DiskCacheSettings::parse(dir)
        .map_err(|why| Fail::input("bad disk cache", why, format!("write {NOTATION}")))?;
    Ok(CacheInspector::open(settings)?)
}

/// A cache, and the versions and listings that the arguments select.
struct AskedVersions {
    cache: CacheInspector,
    versions: Vec<VersionSummary>,
    listings: Vec<ListingSummary>,
}

fn asked(part: &PartArgs) -> Result<AskedVersions, Fail> {
    let cache = open(&part.dir)?;
    let (mut versions, unreadable) = cache.versions();
    if unreadable > 0 {
        let folders = plural(unreadable, "folder");
        note(format!("{folders} cannot be read by this user"));
    }
    let mut listings = cache.listings();
    if let Some(source) = &part.source {
        let name = source.to_string();
        let below = format!("{name}/");
        let has_below = versions.iter().any(|version| version.is_of(&below));
        versions.retain(|version| version.is_of(&name));
        listings.retain(|listing| listing.is_of(&name));
        if versions.is_empty() && listings.is_empty() {
            let remedy = if has_below {
                format!("write {below} for all sources below it")
            } else {
                format!("'foreread cache list {}' lists all names", part.dir)
            };
            let what = "no version of it is in the cache";
            return Err(Fail::input(what, name, remedy));
        }
    }
    Ok(AskedVersions {
        cache,
        versions,
        listings,
    })
}

// ---- list ----

fn version_json(version: &VersionSummary) -> Value {
    json!({
        "source": version.source,
        "version": version.version,
        "file": version.file,
        "size_bytes": version.size_bytes,
        "held_bytes": version.held_bytes,
        "used_again": version.used_again,
        "file_bytes": version.file_bytes,
        "last_used_s": seconds(version.last_used_ns),
    })
}

fn listing_json(listing: &ListingSummary) -> Value {
    json!({
        "source": listing.source,
        "names": listing.names,
        "file_bytes": listing.file_bytes,
        "listed_s": listing.listed_s,
    })
}

fn seconds(at_ns: i128) -> Option<i64> {
    i64::try_from(at_ns.div_euclid(NANOS)).ok()
}

fn list(args: &ShownArgs) -> Result<(), Fail> {
    let outputs = Outputs::new(&[("json", args.output.json.as_deref())])?;
    let AskedVersions {
        versions, listings, ..
    } = asked(&args.part)?;
    let in_json = json!({
        "schema": "foreread.cache-list/1",
        "versions": Vec::from_iter(versions.iter().map(version_json)),
        "listings": Vec::from_iter(listings.iter().map(listing_json)),
    });
    let in_words = || list_in_words(&versions, &listings);
    outputs.emit(in_words, || format!("{in_json:#}\n"), &[])
}

fn list_in_words(versions: &[VersionSummary], listings: &[ListingSummary]) -> String {
    if versions.is_empty() && listings.is_empty() {
        return "The cache is empty.\n".to_string();
    }
    let now = now_ns();
    let part = |version: &VersionSummary| {
        let size = version.size_bytes.filter(|size| *size > 0)?;
        Some(version.held_bytes.min(size) as f64 / size as f64)
    };
    let columns = vec![
        Column::new("part", |version: &VersionSummary| {
            or_dash(part(version), |part| percent(part) + " %")
        }),
        Column::new("of", |version: &VersionSummary| {
            or_dash(version.size_bytes, amount)
        }),
        Column::new("use", |version: &VersionSummary| {
            if version.used_again { "again" } else { "once" }.to_string()
        }),
        Column::new("last use", |version: &VersionSummary| {
            age(version.last_used_ns, now)
        }),
        Column::new("version", |version: &VersionSummary| {
            or_dash(version.version.as_deref(), |text| cut(text, VERSION_WIDTH))
        })
        .left(),
        Column::new("source", |version: &VersionSummary| named(version)).left(),
    ];
    let table = Table::new("", columns, versions).wide();
    let pieces = (!versions.is_empty()).then_some(Block::Table(table));
    let columns = vec![
        Column::new("names", |listing: &ListingSummary| count(listing.names)),
        Column::new("listed", |listing: &ListingSummary| {
            age(i128::from(listing.listed_s) * NANOS, now)
        }),
        Column::new("folder", |listing: &ListingSummary| listing.source.clone()).left(),
    ];
    let table = Table::new("", columns, listings).wide();
    let names = (!listings.is_empty()).then_some(Block::Table(table));
    block::text(
        pieces.into_iter().chain(names),
        width::columns(),
        out::may_style(),
    )
}

/// The source of a version, or its file name if the source is unknown.
fn named(version: &VersionSummary) -> String {
    let unknown = || format!("not known, {}", version.file);
    version.source.clone().unwrap_or_else(unknown)
}

fn now_ns() -> i128 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| now.as_nanos() as i128)
}

/// An age, rounded to one unit.
fn age(at_ns: i128, now: i128) -> String {
    let seconds = (now - at_ns).max(0) / NANOS;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

// ---- stat ----

fn stat(args: &ShownArgs) -> Result<(), Fail> {
    let outputs = Outputs::new(&[("json", args.output.json.as_deref())])?;
    let AskedVersions {
        cache,
        versions,
        listings,
    } = asked(&args.part)?;
    let sources = versions
        .iter()
        .filter_map(|version| version.source.as_deref());
    let sources = sources.collect::<BTreeSet<&str>>().len() as u64;
    let held_bytes: u64 = versions.iter().map(|version| version.held_bytes).sum();
    let (again, once): (Vec<_>, Vec<_>) = versions.iter().partition(|version| version.used_again);
    let bytes_of = |part: &[&VersionSummary]| part.iter().map(|one| one.file_bytes).sum::<u64>();
    let (bytes_again, bytes_once) = (bytes_of(&again), bytes_of(&once));
    let names = listings.iter().map(|listing| listing.names).sum::<u64>();
    let listing_bytes: u64 = listings.iter().map(|listing| listing.file_bytes).sum();
    let oldest = versions.iter().map(|version| version.last_used_ns).min();
    let space = cache.space();
    let in_json = json!({
        "schema": "foreread.cache-stat/1",
        "versions": versions.len(),
        "sources": sources,
        "versions_again": again.len(),
        "held_bytes": held_bytes,
        "file_bytes": bytes_once + bytes_again,
        "again_file_bytes": bytes_again,
        "oldest_used_s": oldest.and_then(seconds),
        "listings": listings.len(),
        "listed_names": names,
        "listing_file_bytes": listing_bytes,
        "free_bytes": space.map(|(free, _)| free),
        "total_bytes": space.map(|(_, total)| total),
        "has_old_folder": cache.has_old_folder(),
    });
    let in_words = || {
        let all = |count: usize, one: &str| plural(count as u64, one);
        let queue = |part: &[&VersionSummary], bytes| {
            format!("{} of {}", amount(bytes), all(part.len(), "version"))
        };
        let of = format!(
            "{}, {}",
            all(versions.len(), "version"),
            plural(sources, "source")
        );
        let listed = format!(
            "{}, {} of {}",
            amount(listing_bytes),
            plural(names, "name"),
            all(listings.len(), "folder")
        );
        let free = |(free, total)| format!("{} of {}", amount(free), amount(total));
        let mut rows = vec![
            ("on disk", amount(bytes_once + bytes_again)),
            ("of", of),
            ("used once", queue(&once, bytes_once)),
            ("used again", queue(&again, bytes_again)),
            (
                "oldest use",
                or_dash(oldest, |at| age(at, now_ns()) + " ago"),
            ),
            ("listings", listed),
            ("free", or_dash(space, free)),
        ];
        if cache.has_old_folder() {
            let dir = args.part.dir.split(',').next().unwrap_or_default();
            let how = format!(
                "an older version of foreread wrote it, and this version does not use it; 'rm -r {dir}/{OLD_FOLDER}' removes it"
            );
            rows.push((OLD_FOLDER, how));
        }
        let cells = |(key, value): (&str, String)| [key.to_string(), value];
        let rows = Vec::from_iter(rows.into_iter().map(cells));
        let table = Table::of_cells(rows).left().wide();
        block::text([Block::Table(table)], width::columns(), false)
    };
    outputs.emit(in_words, || format!("{in_json:#}\n"), &[])
}

// ---- verify ----

/// What was verified, and the first invalid blocks.
#[derive(Default)]
struct Verified {
    versions: u64,
    bytes: u64,
    wrong: u64,
    unreadable: u64,
    faults: Vec<Fault>,
}

#[derive(Serialize)]
struct Fault {
    source: Option<String>,
    file: String,
    offset: u64,
    why: String,
}

impl Verified {
    fn add(&mut self, version: &VersionSummary, blocks: &Range<u64>, state: BlockState) {
        self.bytes += blocks.end - blocks.start;
        let why = match state {
            BlockState::Right => return,
            BlockState::Wrong => {
                self.wrong += 1;
                "its header or a checksum is wrong".to_string()
            }
            BlockState::Unreadable(errno) => {
                self.unreadable += 1;
                std::io::Error::from_raw_os_error(errno).to_string()
            }
        };
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(Fault {
                source: version.source.clone(),
                file: version.file.clone(),
                offset: blocks.start,
                why,
            });
        }
    }
}

fn verify(args: &VerifyArgs) -> Result<(), Fail> {
    let outputs = Outputs::new(&[("json", args.output.json.as_deref())])?;
    let AskedVersions {
        cache, versions, ..
    } = asked(&args.part)?;
    let removes = !args.dry_run;
    let mut found = Verified::default();
    let signal = each_version("checked", &versions, &mut |version, goes_on| {
        found.versions += 1;
        cache.verify(version, removes, &mut |blocks, state| {
            found.add(version, &blocks, state);
            goes_on(blocks.end - blocks.start)
        })?;
        Ok(())
    })?;
    let in_json = json!({
        "schema": "foreread.cache-verify/1",
        "versions": found.versions,
        "bytes": found.bytes,
        "wrong": found.wrong,
        "unreadable": found.unreadable,
        "removed": if removes { found.wrong } else { 0 },
        // Whether every block was read; false after a signal.
        "whole": signal == 0,
        "faults": found.faults,
    });
    let in_words = || in_words(&found, removes);
    outputs.emit(in_words, || format!("{in_json:#}\n"), &[])?;
    ended(signal, "the rest was not read")?;
    if found.wrong + found.unreadable == 0 {
        return Ok(());
    }
    let what = format!(
        "{} wrong",
        plural_is(found.wrong + found.unreadable, "block")
    );
    let remedy = match found.unreadable {
        0 => "check the disk; readers fetch the blocks again",
        _ => "check the disk, or name another folder",
    };
    Err(Fail::check(what, &args.part.dir, remedy))
}

/// `1 block is`, `2 blocks are`.
fn plural_is(n: u64, one: &str) -> String {
    format!("{} {}", plural(n, one), if n == 1 { "is" } else { "are" })
}

fn in_words(found: &Verified, removes: bool) -> String {
    let mut text = String::new();
    for fault in &found.faults {
        let source = fault.source.as_deref().unwrap_or("not known");
        let Fault {
            file, offset, why, ..
        } = fault;
        text += &format!("{file} at {offset}: {why} ({source})\n");
    }
    let named = found.faults.len() as u64;
    let left_out = found.wrong + found.unreadable - named;
    if left_out > 0 {
        text += &format!("... and {left_out} more\n");
    }
    let done = if removes { "removed" } else { "kept" };
    text += &format!(
        "{} read, {}: {} wrong",
        plural(found.versions, "version"),
        amount(found.bytes),
        found.wrong
    );
    if found.wrong > 0 {
        text += &format!(" and {done}");
    }
    if found.unreadable > 0 {
        text += &format!(", {} not readable", found.unreadable);
    }
    text + "\n"
}

/// Called with the number of bytes that are done since the last call. Returns false after a signal.
type GoesOn<'a> = &'a mut dyn FnMut(u64) -> bool;

/// Calls `work` for each version, with a progress bar, until a signal arrives. Returns the signal, or 0.
fn each_version(
    what: &str,
    versions: &[VersionSummary],
    work: &mut dyn FnMut(&VersionSummary, GoesOn<'_>) -> Result<(), Fail>,
) -> Result<usize, Fail> {
    let signalled = signals::first()?;
    let signal = || signalled.load(Ordering::Relaxed);
    let mut bar = Bar::of_bytes();
    bar.stage(what);
    let total = versions.iter().map(|version| version.file_bytes).sum();
    let (mut done, mut drawn) = (0, Instant::now());
    let mut goes_on = |bytes: u64| {
        done += bytes;
        if drawn.elapsed() >= TICK {
            drawn = Instant::now();
            bar.step(done.min(total), total);
        }
        signal() == 0
    };
    for version in versions {
        if !goes_on(0) {
            break;
        }
        work(version, &mut goes_on)?;
    }
    Ok(signal())
}

/// Reports that a signal stopped the command, and exits with the code of a process ended by that signal.
fn ended(signal: usize, left: &str) -> Result<(), Fail> {
    if signal == 0 {
        return Ok(());
    }
    note(format!("stopped by a signal; {left}"));
    Err(Fail::Passed(128 + signal as u8))
}

// ---- trim, remove ----

fn trim(args: &TrimArgs) -> Result<(), Fail> {
    let cache = open(&args.dir)?;
    let signalled = signals::first()?;
    let trimmed = cache.trim(args.size, &mut |_| signalled.load(Ordering::Relaxed) == 0)?;
    out::print(format!(
        "{} removed; {} left\n",
        amount(trimmed.removed_bytes),
        amount(trimmed.left_bytes)
    ))?;
    let signal = signalled.load(Ordering::Relaxed);
    ended(signal, "run the same command again to continue")?;
    if trimmed.left_bytes > args.size {
        let remedy = "run the command again: other processes write to the cache, or this user may not remove its files";
        return Err(Fail::check(
            "the cache is still larger than the given size",
            &args.dir,
            remedy,
        ));
    }
    Ok(())
}

fn remove(args: &RemoveArgs) -> Result<(), Fail> {
    let AskedVersions {
        cache,
        versions,
        listings,
    } = asked(&args.part)?;
    let bytes: u64 = versions.iter().map(|version| version.file_bytes).sum();
    let all = format!(
        "{}, {}",
        plural(versions.len() as u64, "version"),
        amount(bytes)
    );
    let has_any = !versions.is_empty() || !listings.is_empty();
    if args.part.source.is_none() && !args.yes && has_any && !agrees(&args.part.dir, &all)? {
        return out::print("nothing removed\n");
    }
    let (mut removed, mut removed_bytes) = (0, 0);
    let signal = each_version("removed", &versions, &mut |version, goes_on| {
        let bytes = cache.remove(version)?;
        removed += 1;
        removed_bytes += bytes;
        goes_on(bytes);
        Ok(())
    })?;
    for listing in listings.iter().filter(|_| signal == 0) {
        cache.remove_listing(listing)?;
    }
    if args.part.source.is_none() && signal == 0 {
        cache.remove_listings()?;
    }
    out::print(format!(
        "{} removed, {}\n",
        plural(removed, "version"),
        amount(removed_bytes)
    ))?;
    ended(signal, "run the same command again to continue")
}

/// Asks for confirmation to remove everything.
fn agrees(dir: &str, all: &str) -> Result<bool, Fail> {
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        return Err(Fail::input(
            "cannot ask for confirmation without a terminal",
            format!("{dir}: {all}"),
            "add --yes, or name a source",
        ));
    }
    let mut answer = String::new();
    // If the question cannot be shown, the answer is no.
    let asked = write!(std::io::stderr(), "Remove {all} from {dir}? [y/N] ");
    let read = asked.and_then(|()| std::io::stdin().lock().read_line(&mut answer));
    Ok(read.is_ok() && ["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}
