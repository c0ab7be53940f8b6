//! The files that the command reads: their device and inode numbers, their file numbers in the decision core, and how foreread opens them.
//!
//! ```text
//!   unknown ──► search: found ──► known ──► read to its end, others since ──► forgotten
//!      │            └─► not found three times, or completely cached: ignored for a while
//!      └── listed in a folder ──► known at its first read
//! ```
//! A file is ignored for [`IGNORED`] if all of it was already in the page cache when the run began, because readahead could gain nothing.
//! For most commands, all shared libraries are already cached, and so are ignored.
//!
//! This module keeps no files open.

use super::find::{Finder, FoundFile, Way};
use super::jobs::Access;
use super::tasks::Tasks;
use super::walk::ListedFile;
use foreread_core::units::FileId;
use foreread_pagecache::advisor::Advisor;
use foreread_pagecache::resident;
use foreread_trace::follow::call::FileKey;
use rustix::fs::{AtFlags, StatxFlags, statx};
use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A file of at most this size that was read to its end is forgotten when [`MAX_READ`] others have been read since.
const SMALL_BYTES: u64 = 1 << 20;
const MAX_READ: usize = 32;
/// Most files that are remembered as missed.
const MAX_COLD: usize = 1 << 20;
/// How long a completely cached file is ignored.
const IGNORED: Duration = Duration::from_secs(2);
/// How long a file is ignored that was not found the first time; four times as long each further time.
const NOT_FOUND: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Unknown,
    Ignored,
    Sought,
    Known(FileId),
    /// A folder listing has it: its number, its size, its position in the listing. From now on it is known.
    Listed(FileId, u64, u64),
}

enum Entry {
    Ignored {
        until: Instant,
        times: u32,
    },
    /// A search is running; how often it was not found.
    Sought(u32),
    File(FileId),
}

pub struct WatchedFile {
    pub file: FileId,
    pub size: u64,
    pub path: Option<PathBuf>,
}

/// The next file in a folder listing that the command has not read yet.
pub struct NextListed {
    pub key: FileKey,
    pub size: u64,
    pub number: u64,
}

struct FileEntry {
    access: Access,
    size: u64,
    /// Its position in the listing, until it is read.
    number: Option<u64>,
    is_open: bool,
}

impl FileEntry {
    /// The file, if it is in a listing and the command has not read it yet.
    fn next(&self) -> Option<NextListed> {
        Some(NextListed {
            key: self.access.key,
            size: self.size,
            number: self.number?,
        })
    }
}

#[derive(Default)]
pub struct Files {
    /// Files with a missed page.
    cold: HashSet<FileKey>,
    entries: HashMap<FileKey, Entry>,
    known: Vec<FileEntry>,
    /// Files of the listing that have not been reached yet, in order.
    listed: VecDeque<FileId>,
    /// Small files that were read to their end, oldest first.
    read: VecDeque<FileId>,
    unknown: u64,
}

/// The size of a file; `None` if it has no name any more. No server is queried, so the size may be slightly out of date.
fn size_of(access: &Access) -> Option<u64> {
    let file = access.open()?;
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = statx(file, "", flags, StatxFlags::BASIC_STATS).ok()?;
    (stat.stx_nlink > 0).then_some(stat.stx_size)
}

impl Files {
    pub fn look(&mut self, key: FileKey, now: Instant) -> State {
        match self.entries.get(&key) {
            None => State::Unknown,
            Some(Entry::Ignored { until, .. }) if *until > now => State::Ignored,
            Some(Entry::Ignored { .. }) => State::Unknown,
            Some(Entry::Sought(_)) => State::Sought,
            Some(Entry::File(file)) => {
                let known = &mut self.known[file.0 as usize];
                if known.is_open {
                    return State::Known(*file);
                }
                known.is_open = true;
                State::Listed(*file, known.size, known.number.take().unwrap_or(0))
            }
        }
    }

    pub fn seek(&mut self, key: FileKey) {
        let times = match self.entries.get(&key) {
            Some(Entry::Ignored { times, .. }) => *times,
            _ => 0,
        };
        self.entries.insert(key, Entry::Sought(times));
    }

    /// Processes the result of a search for a file. Returns `None` if readahead can gain nothing for the file.
    pub fn found(&mut self, search: FinishedSearch, now: Instant) -> Option<WatchedFile> {
        let FinishedSearch {
            key,
            found,
            is_cached,
            is_dropping,
        } = search;
        let times = match self.entries.get(&key) {
            Some(Entry::Sought(times)) => *times,
            // A folder listing has found it in the meantime.
            Some(Entry::File(_)) => return None,
            _ => 0,
        };
        let mut ignore = |until, times| {
            self.entries.insert(key, Entry::Ignored { until, times });
        };
        let Some(FoundFile { size, path, way }) = found else {
            self.unknown += u64::from(times == 0 && !is_dropping);
            ignore(
                now + NOT_FOUND * 4_u32.saturating_pow(times.min(8)),
                times + 1,
            );
            return None;
        };
        if is_cached && !self.cold.contains(&key) {
            ignore(now + IGNORED, 0);
            return None;
        }
        let file = self.add(FileEntry {
            access: Access::new(key, way),
            size,
            number: None,
            is_open: true,
        })?;
        Some(WatchedFile { file, size, path })
    }

    pub fn missed(&mut self, key: FileKey) {
        if self.cold.len() < MAX_COLD
            && self.cold.insert(key)
            && matches!(self.entries.get(&key), Some(Entry::Ignored { .. }))
        {
            self.entries.remove(&key);
        }
    }

    pub fn list(&mut self, listed: ListedFile) -> Option<FileId> {
        if let Some(Entry::File(file)) = self.entries.get(&listed.key) {
            return Some(*file);
        }
        let id = self.add(FileEntry {
            access: Access::new(listed.key, Way::Places(vec![listed.path])),
            size: listed.size,
            number: Some(listed.number),
            is_open: false,
        })?;
        self.listed.push_back(id);
        Some(id)
    }

    pub fn next_listed(&mut self) -> Option<NextListed> {
        while let Some(file) = self.listed.front() {
            if let Some(next) = self.known[file.0 as usize].next() {
                return Some(next);
            }
            self.listed.pop_front();
        }
        None
    }

    /// Returns the files before the position `number` of the listing that the command has not read yet.
    pub fn listed_before(&self, number: u64) -> Vec<NextListed> {
        let known = self.listed.iter().map(|file| &self.known[file.0 as usize]);
        let open = known.filter_map(FileEntry::next);
        open.take_while(|listed| listed.number < number).collect()
    }

    /// Removes the files before the position `number` of the listing from the files that the command may read next.
    pub fn pass_listed(&mut self, number: u64) {
        while let Some(file) = self.listed.front()
            && self.known[file.0 as usize]
                .number
                .is_none_or(|of_file| of_file < number)
        {
            self.listed.pop_front();
        }
    }

    fn add(&mut self, known: FileEntry) -> Option<FileId> {
        let id = FileId(self.known.len() as u32);
        if !Advisor::takes(id) {
            return None;
        }
        self.entries.insert(known.access.key, Entry::File(id));
        self.known.push(known);
        Some(id)
    }

    pub fn id(&self, key: FileKey) -> Option<FileId> {
        match self.entries.get(&key)? {
            Entry::File(file) => Some(*file),
            Entry::Ignored { .. } | Entry::Sought(_) => None,
        }
    }

    pub fn size(&self, file: FileId) -> u64 {
        self.known[file.0 as usize].size
    }

    /// Updates the size of a file if it is read beyond its known end, and returns the new size.
    pub fn grown(&mut self, file: FileId, end: u64) -> Option<u64> {
        let known = &mut self.known[file.0 as usize];
        // A read of the last page ends after the end of the file.
        if end < known.size.saturating_add(4096) {
            return None;
        }
        let size = size_of(&known.access)?;
        let has_grown = size > known.size;
        known.size = known.size.max(size);
        has_grown.then_some(size)
    }

    pub fn access(&self, file: FileId) -> Access {
        self.known[file.0 as usize].access.clone()
    }

    /// Records that the command has read a file up to `end`. Returns a file that is no longer needed, if there is one.
    pub fn used(&mut self, file: FileId, end: u64) -> Option<FileId> {
        let known = &self.known[file.0 as usize];
        if known.size > SMALL_BYTES || end < known.size || self.read.contains(&file) {
            return None;
        }
        self.read.push_back(file);
        if self.read.len() <= MAX_READ {
            return None;
        }
        let done = self.read.pop_front()?;
        self.known[done.0 as usize].is_open = false;
        Some(done)
    }

    pub fn unknown(&self) -> u64 {
        self.unknown
    }
}

// Threads that search for files, because opening a file may wait for its file system (forever, if a server is gone).
//
// ```text
//   an unknown file is read ──► task ──► thread: find.rs ──► found, or not ──► the run, which has kept the reads in the meantime
// ```
// The thread that runs the main loop never waits for these threads.

pub struct SoughtFile {
    pub key: FileKey,
    /// The thread that reads it, and how.
    pub thread: u32,
    pub is_mapped: bool,
    /// Bytes that it has read, if they were cached when the read was observed.
    pub read: Option<Range<u64>>,
}

pub struct FinishedSearch {
    pub key: FileKey,
    /// The file, which is closed again.
    pub found: Option<FoundFile>,
    pub is_cached: bool,
    /// Whether its file system drops the cached pages of a file when it is opened: then nothing can be read ahead for
    /// another program.
    pub is_dropping: bool,
}

/// Searches for files on threads. If no thread can be started, no file is found.
pub type Seeker = Tasks<SoughtFile, FinishedSearch>;

/// Threads that wait for a file system that does not answer are lost for the run.
const MAX_SEARCHES: usize = 4;

pub fn seeker(wake: Arc<OwnedFd>) -> Seeker {
    let finder = Finder::default();
    Tasks::new("foreread-find", MAX_SEARCHES, wake, move |task| {
        search(&finder, &task)
    })
}

fn search(finder: &Finder, task: &SoughtFile) -> FinishedSearch {
    let key = task.key;
    let mut search = FinishedSearch {
        key,
        found: None,
        is_cached: false,
        is_dropping: finder.is_dropping(key),
    };
    // If it drops its pages, do not open the file again: that would drop what the command has read.
    if !search.is_dropping
        && let Some((file, found)) = finder.find(task.thread, key, task.is_mapped)
    {
        search.is_dropping = finder.look(key, &file, task.read.as_ref());
        let cached = resident::cached(&file, &(0..found.size)).ok().flatten();
        search.is_cached = cached.is_some_and(|bytes| bytes >= found.size);
        search.found = (!search.is_dropping).then_some(found);
    }
    search
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_listing_are_passed_in_its_order() {
        let mut files = Files::default();
        let key = |ino| FileKey { dev: 7, ino };
        for number in 1..=5 {
            let listed = ListedFile {
                key: key(number),
                size: 10 * number,
                path: PathBuf::from("/x"),
                after: None,
                number,
            };
            files.list(listed).expect("a number");
        }
        let numbers = |files: &Files, before| {
            let listed = files.listed_before(before).into_iter();
            listed.map(|one| one.number).collect::<Vec<u64>>()
        };
        // The second is read.
        assert!(matches!(
            files.look(key(2), Instant::now()),
            State::Listed(_, 20, 2)
        ));
        assert_eq!(numbers(&files, 5), [1, 3, 4]);
        files.pass_listed(4);
        assert_eq!(numbers(&files, 9), [4, 5]);
        let next = files.next_listed().expect("there is one");
        assert_eq!((next.key, next.size, next.number), (key(4), 40, 4));
    }
}
