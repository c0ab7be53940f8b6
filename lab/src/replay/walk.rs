//! Whether the reads of a trace are a walk through folders, of which `foreread run` knows the next file by their lists.

use super::LoadedTrace;
use foreread_os::threads::Task;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

/// Fewer files are no walk.
const WALK_FILES: usize = 32;
/// Part of the files that a walk reads to their ends, and in the order of their folders.
const WALK_WHOLE: f64 = 0.8;
/// Entries of a folder that a walk passes over at most: other kinds of files, and those that it was told to.
const WALK_NEAR: usize = 8;
/// Folders that are listed, and entries of each.
const MAX_LISTED: usize = 256;
const MAX_ENTRIES: usize = 1 << 16;
/// Files of a folder, in the mean: `run` lists a folder from its second file on.
const WALK_IN_FOLDER: usize = 4;

/// A program that goes through folders and reads their files to the end, one after the other, in the order in which their folders list them.
/// `run` knows what it reads next by listing the folders. A compiler reads whole headers of one folder too, and in another order: there
/// `run` gained nothing, and cost a tenth.
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

/// Whether most files come after the one that their folder lists before them, or few places behind it. Folders that are not on this machine say
/// nothing.
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

/// A folder that takes longer is on a storage that does not answer: a trace may name a mount whose server is gone.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where each entry of a folder is in its list: none of a folder that is not here. Nothing where it does not answer.
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
