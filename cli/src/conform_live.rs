//! `foreread conform linux` without a recording: the running kernel's decisions beside ours, as a table or as JSON.
//!
//! Never: leaves anything behind; the first signal ends it after the episode under way, the second at once.

use crate::args::{ConformArgs, ConformFs};
use crate::fail::{Fail, note};
use crate::out;
use crate::progress::Bar;
use crate::signals;
use foreread_lab::conform::live::{FileSystem, Found, LiveError, Wanted, check, table};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

/// A small device's readahead, the kernel's default, and what is set for disks that stream.
const READ_AHEAD_KIB: [u64; 3] = [16, 128, 1024];
const OPERATIONS: u64 = 100_000;

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    kernel: String,
    policy: &'static str,
    seed: u64,
    cells: &'a [Found],
}

/// Whether options stand there that are for this alone.
pub fn is_asked(args: &ConformArgs) -> bool {
    let ConformArgs { fs, read_ahead_kb, operations, record, json, .. } = args;
    !fs.is_empty() || !read_ahead_kb.is_empty() || operations.is_some() || record.is_some() || *json
}

/// Records, compares, prints; a divergence is a failed check.
pub fn run(args: &ConformArgs) -> Result<(), Fail> {
    if args.predict.is_some() {
        return Err(Fail::Input("--predict is for --check REC; record with -o DIR first, then check that".to_string()));
    }
    if let Some(folder) = args.record.as_ref().filter(|folder| !folder.is_dir()) {
        return Err(Fail::input("no such folder for recordings", folder.display(), "make it first"));
    }
    if let Some(odd) = args.read_ahead_kb.iter().find(|kib| *kib % 4 != 0) {
        return Err(Fail::input("read_ahead_kb is no whole number of pages", odd, "take a multiple of 4"));
    }
    let stop = Arc::new(AtomicBool::new(false));
    signals::end_at_second_signal()?;
    for signal in signals::ending() {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(signals::no_handler)?;
    }
    let seed = args.seed.unwrap_or_else(drawn);
    let wanted = Wanted {
        file_systems: file_systems(&args.fs),
        read_ahead_kib: if args.read_ahead_kb.is_empty() {
            READ_AHEAD_KIB.to_vec()
        } else {
            args.read_ahead_kb.clone()
        },
        operations: args.operations.unwrap_or(OPERATIONS),
        seed,
        keep: args.record.clone(),
        heard: None,
    };
    note(format!("seed {seed}"));
    let found = check(&wanted, &stop, &mut Bar::new()).map_err(|error| match error {
        LiveError::Recording(_) => Fail::Check(error.to_string()),
        // What was ended half-way is no divergence.
        LiveError::Io { .. } | LiveError::Cannot(_) | LiveError::Ended => Fail::Cannot(error.to_string()),
    })?;
    let kernel = foreread_lab::conform::live::kernel();
    if args.json {
        let report = Report { schema: "foreread.conform-linux/1", kernel, policy: "linux-6.18", seed, cells: &found };
        let text = serde_json::to_string_pretty(&report).map_err(|error| Fail::Cannot(error.to_string()))?;
        out::print(text + "\n")?;
    } else {
        out::print(table(&kernel, seed, &found))?;
    }
    match found.iter().find_map(|found| Some((found, found.first.as_ref()?))) {
        None => Ok(()),
        Some((found, first)) => {
            let Found { file_system, read_ahead_kb, .. } = found;
            let again = if args.record.is_none() { "; to keep the recording, add --seed and -o DIR" } else { "" };
            Err(Fail::Check(format!("{file_system} at {read_ahead_kb} KiB, seed {seed}: {first}{again}")))
        }
    }
}

fn file_systems(asked: &[ConformFs]) -> Vec<FileSystem> {
    let all = [FileSystem::Ext4, FileSystem::Ext4Journal, FileSystem::Xfs];
    if asked.is_empty() {
        return all.to_vec();
    }
    let wants = |fs: &FileSystem| {
        asked.iter().any(|asked| match asked {
            ConformFs::Ext4 => *fs == FileSystem::Ext4,
            ConformFs::Ext4Journal => *fs == FileSystem::Ext4Journal,
            ConformFs::Xfs => *fs == FileSystem::Xfs,
            ConformFs::All => true,
        })
    };
    all.into_iter().filter(wants).collect()
}

/// A seed that differs from run to run and is short enough to type.
fn drawn() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    foreread_lab::draw::mix(now ^ u64::from(std::process::id())) >> 32
}
