//! Threads that find files: opening one may wait for its file system, without an end where a server is gone.
//!
//! ```text
//!   a file is read that is not known ──► task ──► thread: find.rs ──► found, or not ──► the run, which has kept what was read of it meanwhile
//! ```
//! Never: a wait of the run for a thread.

use super::find::{Finder, FoundFile};
use super::tasks::{TaskKind, Tasks};
use foreread_trace::follow::event::FileKey;

/// A file that is looked for.
#[derive(Clone, Copy)]
pub struct SoughtFile {
    pub key: FileKey,
    /// Which thread reads it, and how.
    pub thread: u32,
    pub is_mapped: bool,
}

/// What came of it.
pub struct FinishedSearch {
    pub key: FileKey,
    pub found: Option<FoundFile>,
}

/// Looks for files. Where there is no thread none is found.
pub type Seeker = Tasks<SearchKind>;

#[derive(Default)]
pub struct SearchKind(Finder);

impl TaskKind for SearchKind {
    type Task = SoughtFile;
    type Ended = FinishedSearch;

    const NAME: &'static str = "foreread-find";
    /// Those of file systems that do not answer are lost for the run.
    const MAX_THREADS: usize = 4;

    fn carry_out(&self, task: SoughtFile) -> FinishedSearch {
        let found = self.0.find(task.thread, task.key, task.is_mapped);
        let key = task.key;
        FinishedSearch { key, found }
    }
}
