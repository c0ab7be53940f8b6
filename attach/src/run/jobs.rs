//! The core's jobs on the page cache: the threads of a pool carry them out, and wait for the bytes.
//!
//! ```text
//!   demand  is the first byte there?  the command reads it; only when it has arrived is of interest
//!   ahead   what of it is absent? ──► readahead(2) in pieces ──► wait for the last byte of each
//! ```
//! readahead(2) returns when the requests are with the device. To learn when the bytes are there, a thread reads one byte of the last
//! page, which waits for that page alone and copies nothing else. There are as many threads as jobs in flight, up to a limit; they are begun
//! when they are first needed.

use super::find;
use crate::pool::{Next, Pool, Work};
use foreread_pagecache::advisor::{Job, Outcome};
use foreread_pagecache::resident;
use foreread_trace::follow::event::FileKey;
use rustix::io::{ReadWriteFlags, preadv2};
use std::collections::VecDeque;
use std::fs::File;
use std::io::IoSliceMut;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Threads, at most.
const MAX_THREADS: usize = 96;

/// What the page cache answers within: this long, and its bytes at this rate. Chosen: half of what the fastest disks take.
const CACHED_TIME: Duration = Duration::from_micros(40);
const CACHED_BYTES_PER_NS: u64 = 8;

/// How a job reaches its file.
#[derive(Clone)]
pub enum Access {
    Open(Arc<File>),
    /// A folder has it: it is opened for this job, if it is still the same.
    Path(Arc<PathBuf>, FileKey),
}

/// A job, and what is needed to do it.
#[derive(Clone)]
pub struct Task {
    /// Which storage's advisor it is from.
    pub dev: u32,
    pub job: Job,
    pub access: Access,
    /// The most that one call of readahead(2) reads here.
    pub piece: u64,
    /// When the command asked, or the core.
    pub since: Instant,
}

/// A job that has ended.
pub struct FinishedJob {
    pub task: Task,
    pub outcome: Outcome,
    /// When its first bytes were there, and when all were.
    pub first: Instant,
    pub at: Instant,
    /// Bytes that were asked of the storage.
    pub asked: u64,
}

/// Jobs that wait, and those that have ended.
#[derive(Default)]
pub struct JobQueue {
    tasks: VecDeque<Task>,
    ended: Vec<FinishedJob>,
    is_over: bool,
}

struct JobWork {
    wake: Arc<OwnedFd>,
}

impl Work for JobWork {
    type Queue = JobQueue;
    type Task = Task;
    type Ended = FinishedJob;

    fn next(&self, queue: &mut JobQueue) -> Next<Task> {
        match queue.tasks.pop_front() {
            _ if queue.is_over => Next::End,
            Some(task) => Next::Task(task),
            None => Next::Wait,
        }
    }

    fn carry_out(&self, task: Task) -> FinishedJob {
        carry_out(task)
    }

    fn ended(&self, queue: &mut JobQueue, ended: FinishedJob) -> bool {
        queue.ended.push(ended);
        // A counter that is full wakes as well.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        false
    }
}

/// The jobs of a run, and the threads that do them.
pub struct Jobs(Pool<JobWork>);

impl Jobs {
    /// Writes to `wake`, an event descriptor, whenever a job has ended.
    pub fn new(wake: Arc<OwnedFd>) -> Jobs {
        let work = JobWork { wake };
        Jobs(Pool::new("foreread-ahead", work, JobQueue::default()))
    }

    /// Does `task` on a thread of the pool.
    pub fn run(&self, task: Task) {
        // Where the system refuses all threads the run reads nothing ahead.
        self.0.add(MAX_THREADS, |queue| {
            queue.tasks.push_back(task);
            queue.tasks.len()
        });
    }

    /// The jobs that have ended since the last call.
    pub fn ended(&self) -> Vec<FinishedJob> {
        self.0.look(|queue| std::mem::take(&mut queue.ended))
    }
}

impl Drop for Jobs {
    /// Threads that wait for a storage are not waited for: they end by themselves, or with the process.
    fn drop(&mut self) {
        self.0.change(|queue| {
            queue.is_over = true;
            queue.tasks.clear();
        });
    }
}

fn carry_out(task: Task) -> FinishedJob {
    let file = match &task.access {
        Access::Open(file) => Some(Arc::clone(file)),
        Access::Path(path, key) => find::open(path)
            .filter(|file| find::key_of(file).is_some_and(|(found, _)| found == *key))
            .map(Arc::new),
    };
    // A fetch is of whole pages, and a file ends inside its last one.
    let size = file
        .as_deref()
        .and_then(find::key_of)
        .map_or(0, |(_, size)| size);
    let range = task.job.range.start..task.job.range.end.min(size);
    let done = |outcome| JobResult {
        outcome,
        asked: 0,
        first: Instant::now(),
    };
    let JobResult {
        outcome,
        asked,
        first,
    } = match file {
        None => done(Outcome::Failed),
        Some(_) if range.is_empty() => done(Outcome::Failed),
        Some(file) if task.job.is_demand => done(wait_for(&file, &range)),
        Some(file) => ahead(&file, range, task.piece),
    };
    FinishedJob {
        task,
        outcome,
        first,
        at: Instant::now(),
        asked,
    }
}

/// Waits until the bytes that the command reads are there.
fn wait_for(file: &File, range: &Range<u64>) -> Outcome {
    if is_there(file, range.start) && is_there(file, range.end - 1) {
        return Outcome::AtHand;
    }
    let came = touch(file, range.start) && touch(file, range.end - 1);
    if came {
        Outcome::Arrived
    } else {
        Outcome::Failed
    }
}

/// What came of a job.
struct JobResult {
    outcome: Outcome,
    asked: u64,
    first: Instant,
}

/// Reads what is absent, and waits for it.
fn ahead(file: &File, range: Range<u64>, piece: u64) -> JobResult {
    let began = Instant::now();
    let done = |outcome, asked, first| JobResult {
        outcome,
        asked,
        first,
    };
    let says = resident::cached(file, &range).is_ok_and(|cached| cached.is_some());
    let Ok(absent) = resident::fetch_absent(file, range.clone(), piece) else {
        return done(Outcome::Failed, 0, began);
    };
    if absent.is_empty() && is_there(file, range.end - 1) {
        return done(Outcome::AtHand, 0, began);
    }
    let mut came = absent.first().is_none_or(|part| touch(file, part.start));
    let first = Instant::now();
    came = came
        && absent
            .iter()
            .all(|part| touch(file, part.end.min(range.end) - 1))
        && touch(file, range.end - 1);
    let asked: u64 = absent.iter().map(|part| part.end - part.start).sum();
    if came && !says && was_cached(began.elapsed(), asked) {
        return done(Outcome::AtHand, 0, first);
    }
    let outcome = if came {
        Outcome::Arrived
    } else {
        Outcome::Failed
    };
    done(outcome, asked, first)
}

/// Whether bytes came too soon for any storage: of a file of another user the kernel does not say what is in the cache.
fn was_cached(after: Duration, bytes: u64) -> bool {
    after < CACHED_TIME + Duration::from_nanos(bytes / CACHED_BYTES_PER_NS)
}

/// Whether the byte at `at` can be had without waiting.
pub fn is_there(file: &File, at: u64) -> bool {
    let mut byte = [0];
    let got = preadv2(
        file,
        &mut [IoSliceMut::new(&mut byte)],
        at,
        ReadWriteFlags::NOWAIT,
    );
    got == Ok(1)
}

/// Waits for the byte at `at`.
fn touch(file: &File, at: u64) -> bool {
    file.read_at(&mut [0], at).is_ok_and(|bytes| bytes == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_at_the_speed_of_memory_was_cached() {
        let us = Duration::from_micros;
        assert!(was_cached(us(30), 4096) && was_cached(us(500), 4 << 20));
        // A disk of 3 GB/s and 70 us.
        assert!(!was_cached(us(70), 4096) && !was_cached(us(1400), 4 << 20));
    }
}
