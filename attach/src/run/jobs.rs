//! Carries out the jobs of the decision core on the page cache, in threads of a pool that wait for the bytes.
//!
//! ```text
//!   demand  is the first byte there?  the command reads it; a thread notes when it arrives
//!   ahead   which parts are missing? ──► readahead(2) in pieces ──► wait for the last byte of each
//! ```
//! readahead(2) returns when the requests have been submitted to the device. To learn when the bytes have arrived, a
//! thread tries to read one byte of the last page until it succeeds. A thread closes its file after [`HELD`] and opens
//! it again, so that the command can unmount the file system, delete the file or take a lease. There are as many
//! threads as jobs in flight, up to a limit; each thread is started when it is first needed.

use super::find::{Way, key_of};
use super::tasks::Tasks;
use foreread_pagecache::advisor::{Job, Outcome};
use foreread_pagecache::resident;
use foreread_trace::follow::call::FileKey;
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::fs::File;
use std::io::IoSliceMut;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How fast the page cache answers: within this time, plus the transfer at this rate. Chosen: half of what the fastest
/// disks take.
const CACHED_TIME: Duration = Duration::from_micros(40);
const CACHED_BYTES_PER_NS: u64 = 8;

/// How long a file is kept open while a thread waits for its bytes.
const HELD: Duration = Duration::from_millis(20);
/// Pauses between two tries to read a byte: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(5);
/// If bytes have not arrived by then, they are given up.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// How a job opens its file, and the device and inode numbers that the file must have.
#[derive(Clone)]
pub struct Access {
    pub way: Arc<Way>,
    pub key: FileKey,
}

impl Access {
    pub fn new(key: FileKey, way: Way) -> Access {
        let way = Arc::new(way);
        Access { way, key }
    }

    pub fn open(&self) -> Option<File> {
        self.way.open(self.key)
    }
}

struct OpenedFile<'a> {
    access: &'a Access,
    file: Option<File>,
    since: Instant,
}

impl OpenedFile<'_> {
    fn of(access: &Access) -> Option<OpenedFile<'_>> {
        Some(OpenedFile {
            access,
            file: Some(access.open()?),
            since: Instant::now(),
        })
    }

    fn wait(&mut self, at: u64) -> bool {
        let began = Instant::now();
        let mut pause = FIRST_PAUSE;
        while began.elapsed() < MAX_WAIT {
            let Some(file) = &self.file else {
                return false;
            };
            match look(file, at) {
                Ok(bytes) => return bytes == 1,
                Err(Errno::AGAIN | Errno::INTR) => {}
                // This file system always waits, such as overlayfs.
                Err(Errno::OPNOTSUPP) => match resident::is_there(file, at) {
                    Some(true) => return true,
                    Some(false) => {}
                    None => return file.read_at(&mut [0], at).is_ok_and(|n| n == 1),
                },
                Err(_) => return false,
            }
            let is_held = self.since.elapsed() + pause <= HELD;
            if !is_held {
                self.file = None;
            }
            std::thread::sleep(pause);
            if !is_held {
                self.file = self.access.open();
                self.since = Instant::now();
            }
            pause = (pause * 5 / 4).min(LONGEST_PAUSE);
        }
        false
    }
}

/// A readahead job of the decision core, and how to open its file.
pub struct Task {
    /// The storage whose advisor has created it.
    pub dev: u32,
    pub job: Job,
    pub access: Access,
    /// Most bytes that one call of readahead(2) reads here.
    pub piece: u64,
    /// When the command or the core requested it.
    pub since: Instant,
}

pub struct FinishedJob {
    pub task: Task,
    pub result: JobResult,
    /// When all its bytes had arrived.
    pub at: Instant,
}

pub struct JobResult {
    pub outcome: Outcome,
    /// Bytes that were requested from the storage.
    pub asked: u64,
    /// When the first bytes had arrived.
    pub first: Instant,
}

impl JobResult {
    /// The result of a job that has requested nothing.
    fn none(outcome: Outcome) -> JobResult {
        JobResult {
            outcome,
            asked: 0,
            first: Instant::now(),
        }
    }
}

/// The jobs of a run, and the threads that carry them out. If no thread can be started, foreread reads nothing ahead.
pub type Jobs = Tasks<Task, FinishedJob>;

const MAX_THREADS: usize = 96;

pub fn jobs(wake: Arc<OwnedFd>) -> Jobs {
    Tasks::new("foreread-ahead", MAX_THREADS, wake, carry_out)
}

fn carry_out(task: Task) -> FinishedJob {
    let mut file = OpenedFile::of(&task.access);
    // A fetch consists of whole pages, but a file may end inside its last one.
    let opened = file.as_ref().and_then(|opened| opened.file.as_ref());
    let size = opened.and_then(key_of).map_or(0, |(_, size)| size);
    let range = task.job.range.start..task.job.range.end.min(size);
    let result = match &mut file {
        Some(_) if range.is_empty() => JobResult::none(Outcome::Failed),
        Some(file) if task.job.is_demand => JobResult::none(wait_for(file, &range)),
        Some(file) => ahead(file, range, task.piece),
        None => JobResult::none(Outcome::Failed),
    };
    drop(file);
    FinishedJob {
        task,
        result,
        at: Instant::now(),
    }
}

fn wait_for(opened: &mut OpenedFile<'_>, range: &Range<u64>) -> Outcome {
    let (first, last) = (range.start, range.end - 1);
    if let Some(file) = &opened.file
        && is_there(file, first)
        && is_there(file, last)
    {
        return Outcome::AtHand;
    }
    if opened.wait(first) && opened.wait(last) {
        Outcome::Arrived
    } else {
        Outcome::Failed
    }
}

/// Reads the missing bytes, and waits for them.
fn ahead(opened: &mut OpenedFile<'_>, range: Range<u64>, piece: u64) -> JobResult {
    let began = Instant::now();
    let Some(file) = &opened.file else {
        return JobResult::none(Outcome::Failed);
    };
    let says = resident::cached(file, &range).is_ok_and(|cached| cached.is_some());
    let Ok(absent) = resident::fetch_absent(file, range.clone(), piece) else {
        return JobResult::none(Outcome::Failed);
    };
    if absent.is_empty() && is_there(file, range.end - 1) {
        return JobResult::none(Outcome::AtHand);
    }
    let mut came = absent.first().is_none_or(|part| opened.wait(part.start));
    let first = Instant::now();
    came = came
        && absent
            .iter()
            .all(|part| opened.wait(part.end.min(range.end) - 1))
        && opened.wait(range.end - 1);
    let asked: u64 = absent.iter().map(|part| part.end - part.start).sum();
    if came && !says && was_cached(began.elapsed(), asked) {
        return JobResult::none(Outcome::AtHand);
    }
    let outcome = match came {
        true => Outcome::Arrived,
        false => Outcome::Failed,
    };
    JobResult {
        outcome,
        asked,
        first,
    }
}

/// Whether bytes came too fast for any storage: for a file of another user the kernel does not report what is cached.
fn was_cached(after: Duration, bytes: u64) -> bool {
    after < CACHED_TIME + Duration::from_nanos(bytes / CACHED_BYTES_PER_NS)
}

pub fn is_there(file: &File, at: u64) -> bool {
    look(file, at) == Ok(1)
}

/// Tries to read the byte at `at` without waiting.
fn look(file: &File, at: u64) -> Result<usize, Errno> {
    let mut byte = [0];
    preadv2(
        file,
        &mut [IoSliceMut::new(&mut byte)],
        at,
        ReadWriteFlags::NOWAIT,
    )
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
