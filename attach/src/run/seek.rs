//! Threads that find files: opening one may wait for its file system, without an end where a server is gone.
//!
//! ```text
//!   a file is read that is not known ──► task ──► thread: find.rs ──► found, or not ──► the run, which has kept what was read of it meanwhile
//! ```
//! Never: a wait of the run for a thread.

use super::find::{Finder, FoundFile};
use crate::pool::{Next, Pool, Work};
use foreread_trace::follow::event::FileKey;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Threads, at most. Those of file systems that do not answer are lost for the run.
const MAX_THREADS: usize = 4;

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

#[derive(Default)]
pub struct SearchQueue {
    tasks: VecDeque<SoughtFile>,
    ended: Vec<FinishedSearch>,
    is_over: bool,
}

struct SearchWork {
    finder: Finder,
    wake: Arc<OwnedFd>,
}

impl Work for SearchWork {
    type Queue = SearchQueue;
    type Task = SoughtFile;
    type Ended = FinishedSearch;

    fn next(&self, queue: &mut SearchQueue) -> Next<SoughtFile> {
        match queue.tasks.pop_front() {
            _ if queue.is_over => Next::End,
            Some(task) => Next::Task(task),
            None => Next::Wait,
        }
    }

    fn carry_out(&self, task: SoughtFile) -> FinishedSearch {
        let found = self.finder.find(task.thread, task.key, task.is_mapped);
        let key = task.key;
        FinishedSearch { key, found }
    }

    fn ended(&self, queue: &mut SearchQueue, ended: FinishedSearch) -> bool {
        queue.ended.push(ended);
        // A counter that is full wakes as well.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        false
    }
}

pub struct Seeker(Pool<SearchWork>);

impl Seeker {
    /// Writes to `wake`, an event descriptor, whenever a search has ended.
    pub fn new(wake: Arc<OwnedFd>) -> Seeker {
        let finder = Finder::default();
        let work = SearchWork { finder, wake };
        Seeker(Pool::new("foreread-find", work, SearchQueue::default()))
    }

    /// Looks for a file. Where the system refuses all threads none is found.
    pub fn seek(&self, sought: SoughtFile) {
        self.0.add(MAX_THREADS, |queue| {
            queue.tasks.push_back(sought);
            queue.tasks.len()
        });
    }

    /// The searches that have ended since the last call.
    pub fn ended(&self) -> Vec<FinishedSearch> {
        self.0.look(|queue| std::mem::take(&mut queue.ended))
    }
}

impl Drop for Seeker {
    /// Threads that wait for a file system are not waited for.
    fn drop(&mut self) {
        self.0.change(|queue| {
            queue.is_over = true;
            queue.tasks.clear();
        });
    }
}
