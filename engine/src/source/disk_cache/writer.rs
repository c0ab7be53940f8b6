//! Writes what was fetched, behind the reader: a queue with a limit, and one thread.
//!
//! ```text
//!   fetch ──► Tee ──copies──► piece of up to 1 MiB ──► queue (64 MiB) ──► thread: room? ──► file ──► index, claim given back
//!                └─ no room in the queue: left out, counted                          └─ no: left out, counted
//! ```
//! A reader never waits here. What is in the queue when a process ends is written then, as long as that takes at most a few seconds.

use super::folder::PieceFile;
use super::piece::{MAX_PIECE_BYTES, PieceBuffer};
use super::room::Evictor;
use super::shared::{CacheFiles, CacheState, CachedVersion, Counts};
use crate::source::Source;
use foreread_os::threads::Task;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes of pieces that wait or are being filled. Chosen: what a link of 10 Gb/s brings in 50 ms.
const MAX_QUEUED_BYTES: u64 = 64 << 20;
/// Uses of pieces that wait to be noted; more are not.
const MAX_NOTES: usize = 4096;

enum Job {
    /// A piece to be written, and what of it was claimed.
    Write {
        version: Arc<CachedVersion>,
        buffer: PieceBuffer,
    },
    /// What was claimed and is not written.
    GiveBack {
        version: Arc<CachedVersion>,
        range: Range<u64>,
    },
    /// A piece was used.
    Note {
        version: Arc<CachedVersion>,
        piece: PieceFile,
        again: bool,
    },
    /// A piece is none.
    Remove {
        version: Arc<CachedVersion>,
        piece: PieceFile,
    },
}

#[derive(Default)]
struct WriteQueue {
    state: Mutex<QueueState>,
    /// There is work, or an end.
    ready: Condvar,
    /// The queue is empty, and nothing is being written.
    done: Condvar,
}

#[derive(Default)]
struct QueueState {
    jobs: VecDeque<Job>,
    bytes: u64,
    notes: usize,
    is_working: bool,
    ends: bool,
    /// The process whose thread takes from it: a fork has none.
    thread_of: Option<u32>,
}

impl WriteQueue {
    fn hold(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub struct Writer {
    queue: Arc<WriteQueue>,
    shared: Arc<CacheState>,
    thread: Mutex<Option<Task<()>>>,
}

impl Writer {
    pub fn new(shared: Arc<CacheState>) -> Writer {
        Writer {
            queue: Arc::default(),
            shared,
            thread: Mutex::default(),
        }
    }

    /// Takes what a fetch of this range brings. `claimed` says that other processes wait for it.
    pub fn tee(
        self: &Arc<Writer>,
        version: &Arc<CachedVersion>,
        source: &Arc<dyn Source>,
        range: Range<u64>,
        claimed: bool,
    ) -> Tee {
        Tee {
            writer: Arc::clone(self),
            version: Arc::clone(version),
            source: Arc::clone(source),
            range,
            claimed,
            buffer: None,
        }
    }

    /// A piece was used.
    pub fn note(&self, version: &Arc<CachedVersion>, piece: PieceFile, again: bool) {
        if self.queue.hold().notes < MAX_NOTES {
            let version = Arc::clone(version);
            self.push(Job::Note {
                version,
                piece,
                again,
            });
        }
    }

    /// A file has the name of a piece and is none.
    pub fn remove(&self, version: &Arc<CachedVersion>, piece: PieceFile) {
        let version = Arc::clone(version);
        self.push(Job::Remove { version, piece });
    }

    /// Waits until all that was fetched is written, at most that long. Is it?
    pub fn flush(&self, most: Duration) -> bool {
        let state = self.queue.hold();
        if state.thread_of != Some(std::process::id()) {
            return state.jobs.is_empty();
        }
        let waited = self.queue.done.wait_timeout_while(state, most, |state| {
            state.is_working || !state.jobs.is_empty()
        });
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Room for the file of one piece, if the queue has it.
    fn buffer(&self, offset: u64, most: u64) -> Option<PieceBuffer> {
        let room = MAX_QUEUED_BYTES.checked_sub(MAX_PIECE_BYTES * 2)?;
        if !self.shared.writes.is_on() || self.queue.hold().bytes > room {
            return None;
        }
        let buffer = PieceBuffer::new(offset, most);
        self.queue.hold().bytes += buffer.held_bytes();
        Some(buffer)
    }

    fn push(&self, job: Job) {
        let mut state = self.queue.hold();
        state.notes += usize::from(matches!(job, Job::Note { .. }));
        state.jobs.push_back(job);
        if state.thread_of == Some(std::process::id()) {
            drop(state);
            self.queue.ready.notify_one();
            return;
        }
        state.thread_of = Some(std::process::id());
        drop(state);
        let (queue, shared) = (Arc::clone(&self.queue), Arc::clone(&self.shared));
        let thread = Task::start("foreread-cache", move || work(&queue, &shared));
        match thread {
            Ok(thread) => {
                *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
            }
            // Nothing is kept then; the next piece tries again.
            Err(_) => {
                let jobs = {
                    let mut state = self.queue.hold();
                    (state.thread_of, state.bytes, state.notes) = (None, 0, 0);
                    std::mem::take(&mut state.jobs)
                };
                let opened = self.shared.opened();
                jobs.into_iter().for_each(|job| give_back(&opened, &job));
            }
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.hold().ends = true;
        self.queue.ready.notify_one();
    }
}

/// Takes what arrives for a range, piece after piece.
pub struct Tee {
    writer: Arc<Writer>,
    version: Arc<CachedVersion>,
    source: Arc<dyn Source>,
    /// What has not come yet.
    range: Range<u64>,
    claimed: bool,
    buffer: Option<PieceBuffer>,
}

impl Tee {
    /// Bytes from `at` on, which is where those before them ended.
    pub fn take(&mut self, at: u64, mut bytes: &[u8]) {
        if at != self.range.start {
            return;
        }
        while !bytes.is_empty() {
            let start = self.range.start;
            if self.buffer.is_none() {
                self.buffer = self.writer.buffer(start, self.range.end - start);
            }
            let taken = match &mut self.buffer {
                Some(buffer) => buffer.take(bytes),
                None => {
                    // What has no room is left out up to where the next piece begins.
                    let left = MAX_PIECE_BYTES - start % MAX_PIECE_BYTES;
                    let left_out = left.min(bytes.len() as u64);
                    let counts = &self.writer.shared.counts;
                    Counts::add(&counts.dropped_bytes, left_out);
                    self.give_back(start..start + left_out);
                    left_out as usize
                }
            };
            self.range.start += taken as u64;
            bytes = &bytes[taken..];
            if taken == 0 || self.buffer.as_ref().is_some_and(PieceBuffer::is_full) {
                self.send();
            }
        }
    }

    fn send(&mut self) {
        let Some(buffer) = self.buffer.take() else {
            return;
        };
        let extent = buffer.extent();
        // What arrived is of the version that the source has now, or of one before.
        let is_same = self.source.exact_version().as_ref() == Some(&self.version.exact);
        if extent.len > 0 && is_same {
            let version = Arc::clone(&self.version);
            self.writer.push(Job::Write { version, buffer });
            return;
        }
        self.writer.queue.hold().bytes -= buffer.held_bytes();
        self.give_back(extent.offset..extent.end());
    }

    fn give_back(&self, range: Range<u64>) {
        if self.claimed && !range.is_empty() {
            let version = Arc::clone(&self.version);
            self.writer.push(Job::GiveBack { version, range });
        }
    }
}

impl Drop for Tee {
    fn drop(&mut self) {
        self.send();
        self.give_back(self.range.clone());
    }
}

fn work(queue: &WriteQueue, shared: &CacheState) {
    let mut evictor = Evictor::default();
    let mut state = queue.hold();
    loop {
        let Some(job) = state.jobs.pop_front() else {
            state.is_working = false;
            queue.done.notify_all();
            if state.ends {
                return;
            }
            state = queue
                .ready
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        state.is_working = true;
        drop(state);
        let bytes = done(job, shared, &mut evictor);
        state = queue.hold();
        state.bytes -= bytes;
        state.notes = state.jobs.len().min(state.notes);
    }
}

/// Does a job. Returns the bytes that it held.
fn done(mut job: Job, shared: &CacheState, evictor: &mut Evictor) -> u64 {
    let opened = shared.opened();
    match &mut job {
        Job::Write { version, buffer } => {
            let written = shared.writes.is_on() && write(shared, &opened, evictor, version, buffer);
            if !written {
                Counts::add(&shared.counts.refused_writes, 1);
            }
        }
        Job::GiveBack { .. } => {}
        Job::Note {
            version,
            piece,
            again,
        } => {
            // One that is gone was evicted.
            let _ = opened.folder.note_use(version.hash, *piece, *again);
        }
        Job::Remove { version, piece } => remove(&opened, version, *piece),
    }
    give_back(&opened, &job);
    match job {
        Job::Write { buffer, .. } => buffer.held_bytes(),
        _ => 0,
    }
}

fn give_back(opened: &CacheFiles, job: &Job) {
    match job {
        Job::Write { version, buffer } => {
            let extent = buffer.extent();
            opened
                .claims
                .give_back(version.hash, &(extent.offset..extent.end()));
        }
        Job::GiveBack { version, range } => opened.claims.give_back(version.hash, range),
        Job::Note { .. } | Job::Remove { .. } => {}
    }
}

fn remove(opened: &CacheFiles, version: &CachedVersion, piece: PieceFile) {
    if opened.folder.remove_piece(version.hash, piece).is_ok() {
        opened.account.change(0, piece.extent.file_bytes());
    }
}

/// Writes a piece, if there is room for it.
fn write(
    shared: &CacheState,
    opened: &Arc<CacheFiles>,
    evictor: &mut Evictor,
    version: &CachedVersion,
    buffer: &mut PieceBuffer,
) -> bool {
    let extent = buffer.extent();
    if !evictor.make_room(shared, opened, extent.file_bytes()) {
        return false;
    }
    let piece = buffer.seal(version.hash);
    let put = |opened: &CacheFiles| {
        if !version.index.is_made() {
            opened.folder.make_version(version.hash, &about(version))?;
            version.index.set_made(true);
        }
        version.index.changing(&opened.folder, version.hash, || {
            opened.folder.put_piece(version.hash, extent, &piece)
        })
    };
    let mut opened = Arc::clone(opened);
    let mut done = put(&opened);
    if done == Err(Errno::NOENT) {
        // The version's folder was removed, or that of the cache.
        version.index.set_made(false);
        done = put(&opened);
        if done == Err(Errno::NOENT) && shared.open_again() {
            opened = shared.opened();
            done = put(&opened);
        }
    }
    match done {
        Ok(()) => {
            opened.account.change(extent.file_bytes(), 0);
            evictor.wrote(extent.file_bytes());
            Counts::add(&shared.counts.written, 1);
            Counts::add(&shared.counts.written_bytes, u64::from(extent.len));
            for covered in version.index.written(extent) {
                remove(&opened, version, covered);
            }
            true
        }
        Err(errno) => {
            shared.write_failed(errno);
            false
        }
    }
}

/// What people read of a version.
fn about(version: &CachedVersion) -> String {
    format!(
        "source {}\nversion {}\nsize {}\n",
        line(&version.exact.shown),
        line(&version.exact.version),
        version.size
    )
}

fn line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}
