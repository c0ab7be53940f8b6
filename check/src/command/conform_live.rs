//! `foreread check conform linux` without a recording: compares the running kernel's decisions with ours, as a table or as JSON.
//!
//! The check leaves no device, mount or file on the machine. The first signal (Ctrl-C, for example) ends the check after the current
//! episode (about sixty operations); the second signal ends it at once.

use crate::conform::live::{CellOutcome, CellOutcomes, CellSelection, FileSystem, check, table};
use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser};
use foreread_cli::fail::{Fail, note};
use foreread_cli::out::Outputs;
use foreread_cli::progress::Bar;
use foreread_cli::signals;
use foreread_report::json;
use serde::Serialize;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

/// No readahead, one page, an odd number (the kernel rounds it to 64), the kernel's default, a number of pages that is
/// not a power of two, a typical setting for streaming, and more than the largest command.
const READ_AHEAD_KIB: [u64; 7] = [0, 4, 65, 128, 1000, 1024, 8192];
/// All combinations together take about three minutes.
const OPERATIONS: u64 = 10_000;

/// The value of `--fs` that selects all file systems; the other values are the names of [`FileSystem::ALL`].
pub const ALL_FS: &str = "all";

fn file_systems() -> PossibleValuesParser {
    let named = FileSystem::ALL.map(|fs| PossibleValue::new(fs.name()).help(fs.about()));
    let all = [PossibleValue::new(ALL_FS).help("All of them")];
    PossibleValuesParser::new(named.into_iter().chain(all))
}

/// Whether files are read through mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ConformMmap {
    /// Reads and hints only
    No,
    /// Page faults and readahead(2), with reads in between
    Yes,
    /// One run with mappings, and one without
    Both,
}

#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    kernel: String,
    policy: &'static str,
    seed: u64,
    cells: &'a [CellOutcome],
    left_out: &'a [String],
}

/// Options of a check that runs live: against the running kernel or, for some options, against librbd.
#[derive(Debug, clap::Args)]
pub struct ConformLiveArgs {
    /// linux without --check: file systems [default: all available ones]
    #[arg(long, value_name = "FS,...", hide_short_help = true, value_delimiter = ',', conflicts_with = "check",
        value_parser = file_systems())]
    pub fs: Vec<String>,
    /// linux without --check: values of the device's read_ahead_kb [default: 0,4,65,128,1000,1024,8192]
    #[arg(long, value_name = "KIB,...", hide_short_help = true, value_delimiter = ',', conflicts_with = "check",
        value_parser = clap::value_parser!(u64).range(0..=1 << 20))]
    pub read_ahead_kb: Vec<u64>,
    /// linux without --check: whether files are read through mappings [default: both]
    #[arg(
        long,
        value_name = "WHETHER",
        hide_short_help = true,
        conflicts_with = "check"
    )]
    pub mmap: Option<ConformMmap>,
    /// linux without --check: operations per combination of the options above [default: 10000]; rbd: random sequences [default: 200]
    #[arg(long, value_name = "N", hide_short_help = true, conflicts_with = "check", value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub operations: Option<u64>,
    /// linux: keep the recordings in this folder
    #[arg(short, long, value_name = "DIR", conflicts_with = "check")]
    pub out: Option<PathBuf>,
    /// linux without --check: write JSON to a file, or to stdout (schema foreread.conform-linux/2)
    #[arg(long, value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-", hide_short_help = true, conflicts_with = "check")]
    pub json: Option<OsString>,
}

impl ConformLiveArgs {
    /// Returns whether the command line contains an option that exists only for `conform linux`.
    pub fn is_asked(&self) -> bool {
        let ConformLiveArgs {
            fs,
            read_ahead_kb,
            mmap,
            operations: _,
            out,
            json,
        } = self;
        let chosen = !fs.is_empty() || !read_ahead_kb.is_empty() || mmap.is_some();
        chosen || out.is_some() || json.is_some()
    }
}

/// Records the running kernel, compares the recording with our decisions, and prints the result; if a decision differs,
/// the check fails.
pub fn run(args: &ConformLiveArgs, seed: Option<u64>) -> Result<(), Fail> {
    if let Some(folder) = args.out.as_ref().filter(|folder| !folder.is_dir()) {
        return Err(Fail::input(
            "no such folder for recordings",
            folder.display(),
            "create it first",
        ));
    }
    let outputs = Outputs::new(&[("json", args.json.as_deref())])?;
    let stop = Arc::new(AtomicBool::new(false));
    signals::end_at_second_signal()?;
    for signal in signals::ending() {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(signals::no_handler)?;
    }
    let seed = seed.unwrap_or_else(drawn);
    let wanted = wanted(args, seed);
    note(format!("seed {seed}"));
    let checked = check(&wanted, &stop, &mut Bar::new())?;
    let kernel = crate::conform::live::kernel();
    let CellOutcomes { cells, left_out } = &checked;
    let in_json = || {
        let report = Report {
            schema: "foreread.conform-linux/2",
            kernel: kernel.clone(),
            policy: "linux-6.18",
            seed,
            cells,
            left_out,
        };
        json::pretty(&report)
    };
    outputs.emit(|| table(&kernel, seed, &checked), in_json, &[])?;
    let again = if args.out.is_none() {
        "; to keep the recording, add --seed and -o DIR"
    } else {
        ""
    };
    let told = |of: fn(&CellOutcome) -> Option<&String>| {
        let (found, first) = checked
            .cells
            .iter()
            .find_map(|found| Some((found, of(found)?)))?;
        let CellOutcome {
            file_system,
            read_ahead_kb,
            ..
        } = found;
        Some(format!(
            "{file_system} at {read_ahead_kb} KiB, seed {seed}: {first}{again}"
        ))
    };
    let pressed = checked
        .cells
        .iter()
        .map(|found| found.pressure_differences)
        .sum();
    judge(
        told(|found| found.first.as_ref()),
        pressed,
        told(|found| found.first_under_pressure.as_ref()),
    )
}

fn wanted(args: &ConformLiveArgs, seed: u64) -> CellSelection {
    let asked = &args.read_ahead_kb;
    CellSelection {
        file_systems: chosen_file_systems(&args.fs),
        read_ahead_kib: if asked.is_empty() {
            READ_AHEAD_KIB.to_vec()
        } else {
            asked.clone()
        },
        mmap: match args.mmap {
            Some(ConformMmap::No) => vec![false],
            Some(ConformMmap::Yes) => vec![true],
            Some(ConformMmap::Both) | None => vec![false, true],
        },
        operations: args.operations.unwrap_or(OPERATIONS),
        seed,
        keep: args.out.clone(),
        what_there_is: is_all(&args.fs),
    }
}

/// Converts the differences of a comparison to the result of the command: if a decision differs, the check fails. If decisions differ only
/// under memory pressure, the check neither passes nor fails (exit code 3).
pub fn judge(
    first: Option<String>,
    pressed: u64,
    first_pressed: Option<String>,
) -> Result<(), Fail> {
    match (first, first_pressed) {
        (Some(first), _) => Err(Fail::check(first, "", "")),
        (None, None) => Ok(()),
        (None, Some(first)) => Err(Fail::cannot(
            format!(
                "the kernel was short of memory in the {pressed} test sequences (episodes) that differ, so they prove nothing"
            ),
            "",
            format!(
                "repeat the check with more memory free (see /proc/pressure/memory). The first: {first}"
            ),
        )),
    }
}

fn chosen_file_systems(asked: &[String]) -> Vec<FileSystem> {
    let wants = |fs: &FileSystem| asked.iter().any(|name| name == fs.name());
    FileSystem::ALL
        .into_iter()
        .filter(|fs| is_all(asked) || wants(fs))
        .collect()
}

/// Whether all file systems are requested.
fn is_all(asked: &[String]) -> bool {
    asked.is_empty() || asked.iter().any(|name| name == ALL_FS)
}

/// A random seed that is short enough to type.
fn drawn() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64);
    foreread_sim::rng::mix(now ^ u64::from(std::process::id())) >> 32
}
