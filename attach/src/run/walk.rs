//! Lists the files that a command will read next if it reads folder after folder: their names, inode numbers and sizes, in the order of the
//! folders.
//!
//! ```text
//!   the command reads src/a, then src/b      two files of one folder: list it from there on
//!   src/c src/d src/sub/e src/sub/f src/g    depth first, as find, grep -r and tar go
//!   lib/h lib/i                              then the folders after src, in the order of the parent folder
//! ```
//! The files are in the order of readdir(3), in which programs also read them unless they sort the names. The decision core decides whether
//! the command follows this order: a listed file is read ahead only if the command seems to read the files in this order. The listing stays
//! at most [`MAX_LEAD`] files ahead of the command. The stat call on a listed file also loads its inode, for which the command would
//! otherwise wait.
//!
//! The listing follows no links, does not enter other file systems, and contains a limited number of files.

use foreread_observe::record::names::file_key;
use foreread_os::threads;
use foreread_trace::follow::call::FileKey;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Most files that are listed ahead of the one that the command has reached.
const MAX_LEAD: u64 = 512;
/// Most files that are listed in one run.
const MAX_LISTED: u64 = 1 << 19;
/// Most entries of one folder that are kept; the rest of a larger one is not read ahead.
const MAX_ENTRIES: usize = 1 << 18;
const BATCH: usize = 16;
/// Most levels above the first folder that are walked through.
const MAX_ABOVE: u32 = 6;
const MAX_DEPTH: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFile {
    pub key: FileKey,
    pub size: u64,
    pub path: PathBuf,
    /// The file before it, if it is in the same listing.
    pub after: Option<FileKey>,
    /// Its position: the listing continues as the command reaches files at higher positions.
    pub number: u64,
}

#[derive(Default)]
struct WalkState {
    /// A file at which a listing is to start, if none is running.
    begin: Option<PathBuf>,
    reached: u64,
    listed: Vec<ListedFile>,
    is_over: bool,
}

pub struct Lister {
    shared: Arc<(Mutex<WalkState>, Condvar)>,
    is_running: bool,
    wake: Arc<OwnedFd>,
    /// The folders of the latest files that were in no listing.
    recent: Vec<PathBuf>,
}

impl Lister {
    /// Creates a lister of folders that signals `wake`, an eventfd, when it has listed files.
    pub fn new(wake: Arc<OwnedFd>) -> Lister {
        Lister {
            shared: Arc::default(),
            is_running: false,
            wake,
            recent: Vec::new(),
        }
    }

    pub fn read(&mut self, path: &Path) {
        let Some(folder) = path.parent() else { return };
        let is_known = self.recent.iter().any(|known| known == folder);
        self.recent.insert(0, folder.to_path_buf());
        self.recent.truncate(16);
        if !is_known {
            return;
        }
        self.with(|shared| shared.begin = Some(path.to_path_buf()));
        if !self.is_running {
            let (shared, wake) = (Arc::clone(&self.shared), Arc::clone(&self.wake));
            self.is_running =
                threads::spawn("foreread-list", move || Walker::new(shared, wake).run()).is_ok();
        }
    }

    pub fn reached(&self, number: u64) {
        self.with(|shared| shared.reached = shared.reached.max(number));
    }

    pub fn listed(&self) -> Vec<ListedFile> {
        if !self.is_running {
            return Vec::new();
        }
        std::mem::take(&mut lock(&self.shared).listed)
    }

    fn with(&self, change: impl FnOnce(&mut WalkState)) {
        change(&mut lock(&self.shared));
        self.shared.1.notify_one();
    }
}

impl Drop for Lister {
    fn drop(&mut self) {
        self.with(|shared| shared.is_over = true);
    }
}

fn lock(shared: &(Mutex<WalkState>, Condvar)) -> MutexGuard<'_, WalkState> {
    shared.0.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Level {
    path: PathBuf,
    /// The remaining entries in reverse order.
    entries: Vec<(OsString, bool)>,
}

struct Walker {
    shared: Arc<(Mutex<WalkState>, Condvar)>,
    wake: Arc<OwnedFd>,
    levels: Vec<Level>,
    dev: u64,
    above: u32,
    last: Option<FileKey>,
    number: u64,
    batch: Vec<ListedFile>,
}

impl Walker {
    fn new(shared: Arc<(Mutex<WalkState>, Condvar)>, wake: Arc<OwnedFd>) -> Walker {
        Walker {
            shared,
            wake,
            levels: Vec::new(),
            dev: 0,
            above: 0,
            last: None,
            number: 0,
            batch: Vec::new(),
        }
    }

    fn run(mut self) {
        while self.number < MAX_LISTED {
            if !self.may_go_on() {
                return;
            }
            if !self.step() {
                self.send();
                self.levels.clear();
            }
            if self.batch.len() >= BATCH {
                self.send();
            }
        }
        self.send();
    }

    /// Waits until there is something to list; returns false at the end.
    fn may_go_on(&mut self) -> bool {
        loop {
            let mut shared = lock(&self.shared);
            if shared.is_over {
                return false;
            }
            if let Some(path) = shared.begin.take() {
                drop(shared);
                self.begin(&path);
                continue;
            }
            if !self.levels.is_empty() && self.number < shared.reached + MAX_LEAD {
                return true;
            }
            if self.batch.is_empty() {
                let woken = self.shared.1.wait(shared);
                drop(woken.unwrap_or_else(PoisonError::into_inner));
            } else {
                drop(shared);
                self.send();
            }
        }
    }

    fn begin(&mut self, path: &Path) {
        self.send();
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return;
        };
        let Ok(meta) = fs::symlink_metadata(path) else {
            return;
        };
        (self.dev, self.above, self.last) = (meta.dev(), 0, Some(file_key(meta.dev(), meta.ino())));
        self.levels.clear();
        lock(&self.shared).reached = self.number;
        self.levels.extend(list_after(folder, name));
    }

    /// Processes the next entry; returns false when the listing has ended.
    fn step(&mut self) -> bool {
        let Some(level) = self.levels.last_mut() else {
            return false;
        };
        let Some((name, is_folder)) = level.entries.pop() else {
            return self.leave();
        };
        let path = level.path.join(name);
        let Ok(meta) = fs::symlink_metadata(&path) else {
            return true;
        };
        if meta.dev() != self.dev {
            return true;
        }
        if is_folder {
            if self.levels.len() < MAX_DEPTH {
                self.levels.extend(list(&path));
            }
        } else if meta.is_file() {
            self.number += 1;
            let listed = ListedFile {
                key: file_key(meta.dev(), meta.ino()),
                size: meta.len(),
                path,
                after: self.last,
                number: self.number,
            };
            self.last = Some(listed.key);
            self.batch.push(listed);
        }
        true
    }

    fn leave(&mut self) -> bool {
        let Some(done) = self.levels.pop() else {
            return false;
        };
        if !self.levels.is_empty() {
            return true;
        }
        let (Some(above), Some(name)) = (done.path.parent(), done.path.file_name()) else {
            return false;
        };
        self.above += 1;
        let same = |meta: &fs::Metadata| meta.dev() == self.dev;
        if self.above > MAX_ABOVE || !fs::symlink_metadata(above).is_ok_and(|meta| same(&meta)) {
            return false;
        }
        self.levels.extend(list_after(above, name));
        !self.levels.is_empty()
    }

    fn send(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        lock(&self.shared).listed.append(&mut self.batch);
        // A full counter also wakes the run.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
    }
}

/// The files and folders in a folder. A folder that cannot be read completely is not listed.
fn list(path: &Path) -> Option<Level> {
    let mut entries: Vec<(OsString, bool)> = Vec::new();
    for entry in fs::read_dir(path).ok()?.take(MAX_ENTRIES) {
        let entry = entry.ok()?;
        if let Ok(kind) = entry.file_type()
            && (kind.is_file() || kind.is_dir())
        {
            entries.push((entry.file_name(), kind.is_dir()));
        }
    }
    entries.reverse();
    Some(Level {
        path: path.to_path_buf(),
        entries,
    })
}

fn list_after(path: &Path, name: &OsStr) -> Option<Level> {
    let mut level = list(path)?;
    if let Some(at) = level.entries.iter().position(|(entry, _)| entry == name) {
        level.entries.truncate(at);
    }
    Some(level)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    fn below(folder: &Path, found: &mut Vec<PathBuf>) {
        let entries = fs::read_dir(folder).expect("a folder");
        for entry in entries.map(|entry| entry.expect("an entry")) {
            let kind = entry.file_type().expect("a type");
            if kind.is_dir() {
                below(&entry.path(), found);
            } else if kind.is_file() {
                found.push(entry.path());
            }
        }
    }

    /// From the second file that was read on, all that is behind it, and behind its folder, depth first, in the order of the folders.
    #[test]
    fn files_come_in_the_order_of_their_folders() {
        let root = tempfile::tempdir().expect("a folder for temporary files");
        for (folder, files) in [("a", 5), ("a/inner", 3), ("b", 4), ("c/deep/deeper", 2)] {
            fs::create_dir_all(root.path().join(folder)).expect("made");
            (0..files).for_each(|n| {
                fs::write(root.path().join(folder).join(format!("f{n}")), "x").expect("room")
            });
        }
        std::os::unix::fs::symlink(root.path(), root.path().join("a/loop")).expect("made");
        let mut all = Vec::new();
        below(root.path(), &mut all);
        let wake = Arc::new(eventfd(0, EventfdFlags::NONBLOCK).expect("an event descriptor"));
        let mut lister = Lister::new(wake);
        let is_second = |n: &usize| all[*n].parent() == all[n - 1].parent();
        let second = (1..all.len()).find(is_second).expect("one");
        lister.read(&all[second - 1]);
        let listed = lister.listed();
        assert!(listed.is_empty(), "one file of a folder is no walk");
        lister.read(&all[second]);
        let expected = &all[second + 1..];
        let mut listed = Vec::new();
        while listed.len() < expected.len() {
            listed.extend(lister.listed());
        }
        let paths = listed.iter().map(|one| &one.path).take(expected.len());
        assert!(paths.eq(expected), "{listed:?}");
        let afters = listed.iter().skip(1).filter_map(|one| one.after);
        let before = listed[..listed.len() - 1].iter().map(|one| one.key);
        assert!(afters.eq(before), "{listed:?}");
    }
}
