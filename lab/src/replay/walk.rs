//! Detects whether a recorded program reads the files of folders in listing order. For such a program, `foreread run`
//! can read ahead the next files, which it knows from the folder listings.

use super::LoadedTrace;
use foreread_os::threads::Task;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

/// Fewest files of a walk.
const WALK_FILES: usize = 32;
/// Part of the files that a walk reads to their ends, and in the order of their folders.
const WALK_WHOLE: f64 = 0.8;
/// Most entries of a folder that a walk skips between two files: other kinds of files, and excluded ones.
const WALK_NEAR: usize = 8;
/// Most folders that are listed, and most entries of each.
const MAX_LISTED: usize = 256;
const MAX_ENTRIES: usize = 1 << 16;
/// Fewest files per folder on average: `run` lists a folder from its second file on.
const WALK_IN_FOLDER: usize = 4;

/// Returns whether the program of the trace reads the files of folders one after the other, each to its end, in the order of the folder
/// listings. For such a program, `foreread run` knows the next reads from the folder listings. A compiler also reads whole header files of
/// a folder, but not in the order of the listing: a compilation took a tenth longer under `foreread run` than without it.
#[must_use]
pub fn is_walk(trace: &LoadedTrace) -> bool {
    let files = trace
        .names
        .iter()
        .zip(&trace.files)
        .zip(trace.read_of_files());
    let (mut count, mut whole, mut folders) = (0_usize, 0_usize, BTreeSet::new());
    for ((name, size), read) in files {
        count += 1;
        whole += usize::from(read.bytes >= *size);
        folders.insert(name.rsplit_once('/').map_or("", |(folder, _)| folder));
    }
    count >= WALK_FILES
        && whole as f64 >= WALK_WHOLE * count as f64
        && folders.len() * WALK_IN_FOLDER <= count
        && follows_folders(trace)
}

/// Whether most files come directly after the previous one in their folder's listing, or a few entries later. Folders that do not exist
/// on this machine are ignored.
fn follows_folders(trace: &LoadedTrace) -> bool {
    let mut listed: BTreeMap<&str, BTreeMap<OsString, usize>> = BTreeMap::new();
    let (mut asked, mut followed) = (0_usize, 0_usize);
    let names: Vec<(&str, &str)> = trace
        .files_in_order()
        .into_iter()
        .filter_map(|file| trace.names[file].rsplit_once('/'))
        .collect();
    for pair in names.windows(2) {
        let [(before, one), (folder, next)] = [pair[0], pair[1]];
        let is_new = !listed.contains_key(folder);
        if before != folder || is_new && listed.len() >= MAX_LISTED {
            continue;
        }
        if is_new {
            let Some(found) = places(folder) else { break };
            listed.insert(folder, found);
        }
        let places = &listed[folder];
        let place = |name: &str| places.get(OsStr::new(name));
        if let Some((one, next)) = place(one).zip(place(next)) {
            asked += 1;
            followed += usize::from((one + 1..=one + WALK_NEAR).contains(next));
        }
    }
    followed as f64 >= WALK_WHOLE * asked as f64
}

/// If listing a folder takes longer, its storage does not answer: a trace may name a mount whose server is gone.
const PATIENCE: Duration = Duration::from_secs(2);

/// The position of each entry in a folder's listing; empty if the folder does not exist. Returns `None` if the
/// storage does not answer.
fn places(folder: &str) -> Option<BTreeMap<OsString, usize>> {
    let folder = PathBuf::from(folder);
    if !folder.is_absolute() {
        return Some(BTreeMap::new());
    }
    let listed = Task::start("foreread-list", move || {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name());
        names.zip(0..MAX_ENTRIES).collect()
    });
    listed.ok()?.within(PATIENCE)
}
