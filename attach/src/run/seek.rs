//! Threads that search for files, because opening a file may wait for its file system (forever, if a server is gone).
//!
//! ```text
//!   an unknown file is read ──► task ──► thread: find.rs ──► found, or not ──► the run, which has kept the reads in the meantime
//! ```
//! The thread that runs the main loop never waits for these threads.

use super::find::{Finder, FoundFile, Way};
use super::tasks::{TaskKind, Tasks};
use foreread_pagecache::resident;
use foreread_trace::follow::call::FileKey;
use std::ops::Range;
use std::path::PathBuf;

/// A file to search for.
#[derive(Clone)]
pub struct SoughtFile {
    pub key: FileKey,
    /// The thread that reads it, and how.
    pub thread: u32,
    pub is_mapped: bool,
    /// Bytes that it has read, if they were cached when the read was observed.
    pub read: Option<Range<u64>>,
}

/// A file that was found, and closed again.
pub struct SearchedFile {
    pub size: u64,
    /// Its path, which leads to the files next to it.
    pub path: Option<PathBuf>,
    pub way: Way,
    /// Whether the whole file is in the page cache.
    pub is_cached: bool,
}

/// The result of a search.
pub struct FinishedSearch {
    pub key: FileKey,
    pub found: Option<SearchedFile>,
    /// Whether its file system drops the cached pages of a file when it is opened: then nothing can be read ahead for
    /// another program.
    pub is_dropping: bool,
}

/// Searches for files on threads. If no thread can be started, no file is found.
pub type Seeker = Tasks<SearchKind>;

#[derive(Default)]
pub struct SearchKind(Finder);

impl TaskKind for SearchKind {
    type Task = SoughtFile;
    type Ended = FinishedSearch;

    const NAME: &'static str = "foreread-find";
    /// Threads that wait for a file system that does not answer are lost for the run.
    const MAX_THREADS: usize = 4;

    fn carry_out(&self, task: SoughtFile) -> FinishedSearch {
        let key = task.key;
        let mut search = FinishedSearch {
            key,
            found: None,
            is_dropping: self.0.is_dropping(key),
        };
        // Do not open the file again: that would drop what the command has read.
        if search.is_dropping {
            return search;
        }
        if let Some(found) = self.0.find(task.thread, key, task.is_mapped) {
            search.is_dropping = self.0.look(key, &found.file, task.read.as_ref());
            let FoundFile {
                file,
                size,
                path,
                way,
            } = found;
            let cached = resident::cached(&file, &(0..size)).ok().flatten();
            search.found = (!search.is_dropping).then_some(SearchedFile {
                size,
                path,
                way,
                is_cached: cached.is_some_and(|bytes| bytes >= size),
            });
        }
        search
    }
}
