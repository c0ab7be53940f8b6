//! Writes what was fetched, behind the reader: a queue with a limit, and one thread, or a few where each waits for a server.
//!
//! ```text
//!   fetch ──► Tee ──copies──► piece of up to 1 MiB ──► queue (128 MiB) ──► thread: room? ──► file ──► index, claim given back
//!                └─ no room in the queue: left out, counted                          └─ no: left out, counted
//! ```
//! A reader never waits here. What is in the queue when a process ends is written then, as long as that takes at most a few seconds.

use super::folder::PieceFile;
use super::names::NewListing;
use super::piece::{MAX_PIECE_BYTES, PieceBuffer};
use super::shared::{CachedVersion, Counts};
use super::tier::Tier;
use crate::source::Source;
use foreread_os::host::Host;
use foreread_os::threads::spawn;
use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of pieces that wait or are being filled, at most, and the part of the machine's memory that they may be. Chosen: what 200 MB/s
/// bring while the thread gets no processor for 0.6 s.
const MAX_QUEUED_BYTES: u64 = 128 << 20;
const QUEUED_PART: u64 = 16;
/// Buffers that are kept for the next pieces, of those that are as long as a piece can be.
const MAX_SPARE: usize = 8;
/// Uses of pieces that wait to be noted; more are not.
const MAX_NOTES: usize = 4096;

enum Job {
    /// A piece to be written, and what of it was claimed.
    Write {
        version: Arc<CachedVersion>,
        buffer: PieceBuffer,
        claimed: bool,
    },
    /// A piece was used.
    Note {
        version: Arc<CachedVersion>,
        piece: PieceFile,
    },
    /// An object was opened by its name, and is this version.
    Latest(Arc<CachedVersion>),
    /// A folder of a store was listed.
    Names(NewListing),
    /// A piece is none.
    Remove {
        version: Arc<CachedVersion>,
        piece: PieceFile,
    },
}

impl Job {
    /// Bytes of memory that wait with it.
    fn held_bytes(&self) -> u64 {
        match self {
            Job::Write { buffer, .. } => buffer.held_bytes(),
            Job::Names(listing) => listing.names.as_ref().map_or(0, |names| names.bytes()),
            Job::Note { .. } | Job::Latest(_) | Job::Remove { .. } => 0,
        }
    }
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
    spare: Vec<Vec<u8>>,
    notes: usize,
    ends: bool,
    /// Threads that take from it, those of them that work, and the process that they are of: a fork has none.
    threads: usize,
    working: usize,
    threads_of: Option<u32>,
}

impl WriteQueue {
    fn hold(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub struct Writer {
    most_queued: u64,
    queue: Arc<WriteQueue>,
    tier: Arc<dyn Tier>,
    /// Threads at most.
    most_threads: usize,
}

impl Writer {
    pub fn new(tier: Arc<dyn Tier>, most_threads: usize) -> Writer {
        let part = Host::here().memory_bytes() / QUEUED_PART;
        Writer {
            most_queued: MAX_QUEUED_BYTES.min(part),
            queue: Arc::default(),
            tier,
            most_threads,
        }
    }

    /// Takes what a fetch of this range brings. `claimed` says that other processes wait for it.
    pub fn tee(
        self: &Arc<Writer>,
        version: &Arc<CachedVersion>,
        source: &Arc<dyn Source>,
        now: VersionCount,
        range: Range<u64>,
        claimed: bool,
    ) -> Tee {
        Tee {
            writer: Arc::clone(self),
            version: Arc::clone(version),
            source: Arc::clone(source),
            now,
            range,
            claimed,
            buffer: None,
        }
    }

    /// A piece was used.
    pub fn note(&self, version: &Arc<CachedVersion>, piece: PieceFile) {
        let version = Arc::clone(version);
        self.push_note(Job::Note { version, piece });
    }

    /// An object was opened by its name, and is this version.
    pub fn note_latest(&self, version: &Arc<CachedVersion>) {
        self.push_note(Job::Latest(Arc::clone(version)));
    }

    /// A file has the name of a piece and is none.
    pub fn remove(&self, version: &Arc<CachedVersion>, piece: PieceFile) {
        let version = Arc::clone(version);
        self.push_note(Job::Remove { version, piece });
    }

    /// A folder of a store was listed. It is left out where the queue has no room for its names.
    pub fn keep(&self, listing: NewListing) {
        let job = Job::Names(listing);
        let fits = {
            let mut state = self.queue.hold();
            let bytes = state.bytes + job.held_bytes();
            let fits = bytes <= self.most_queued && state.notes < MAX_NOTES;
            state.bytes = if fits { bytes } else { state.bytes };
            fits
        };
        if fits {
            self.push(job);
        }
    }

    /// The most that [`Writer::queued_bytes`] may be.
    pub fn most_queued(&self) -> u64 {
        self.most_queued
    }

    /// Bytes of pieces that wait or are being filled.
    pub fn queued_bytes(&self) -> u64 {
        self.queue.hold().bytes
    }

    /// Waits until all that was fetched is written, at most that long. Is it?
    pub fn flush(&self, most: Duration) -> bool {
        let state = self.queue.hold();
        if state.threads_of != Some(std::process::id()) {
            return state.jobs.is_empty();
        }
        let waited = self.queue.done.wait_timeout_while(state, most, |state| {
            state.working > 0 || !state.jobs.is_empty()
        });
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Room for the file of one piece, if the queue has it.
    fn buffer(&self, offset: u64, most: u64) -> Option<PieceBuffer> {
        let most_held = PieceBuffer::held_for(offset, most);
        let mut state = self.queue.hold();
        if state.bytes + most_held > self.most_queued {
            return None;
        }
        state.bytes += most_held;
        let is_long = most_held > MAX_PIECE_BYTES / 2;
        let spare = is_long.then(|| state.spare.pop()).flatten();
        drop(state);
        Some(PieceBuffer::new(offset, most, spare))
    }

    /// Queues what may be left out, where the tier takes such jobs and not too many wait.
    fn push_note(&self, job: Job) {
        if self.tier.is_tended() && self.queue.hold().notes < MAX_NOTES {
            self.push(job);
        }
    }

    fn push(&self, job: Job) {
        let mut state = self.queue.hold();
        state.notes += usize::from(!matches!(job, Job::Write { .. }));
        state.jobs.push_back(job);
        let here = Some(std::process::id());
        if state.threads_of != here {
            (state.threads_of, state.threads, state.working) = (here, 0, 0);
        }
        if state.threads >= self.most_threads.min(state.working + state.jobs.len()) {
            drop(state);
            self.queue.ready.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        let (queue, tier) = (Arc::clone(&self.queue), Arc::clone(&self.tier));
        if spawn("foreread-cache", move || work(&queue, &*tier)).is_ok() {
            return;
        }
        // Nothing is kept then; the next piece tries again.
        let jobs = {
            let mut state = self.queue.hold();
            state.threads -= 1;
            if state.threads > 0 {
                return;
            }
            state.notes = 0;
            let jobs = std::mem::take(&mut state.jobs);
            state.bytes -= jobs.iter().map(Job::held_bytes).sum::<u64>();
            jobs
        };
        jobs.iter().for_each(|job| give_back(&*self.tier, job));
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.hold().ends = true;
        self.queue.ready.notify_all();
    }
}

/// Which of the versions that a source has had is read.
pub struct VersionCount {
    count: Arc<AtomicU64>,
    was: u64,
}

impl VersionCount {
    pub fn new(count: &Arc<AtomicU64>) -> VersionCount {
        VersionCount {
            was: count.load(Ordering::Relaxed),
            count: Arc::clone(count),
        }
    }

    fn is_same(&self) -> bool {
        self.count.load(Ordering::Relaxed) == self.was
    }
}

/// Takes what arrives for a range, piece after piece.
pub struct Tee {
    writer: Arc<Writer>,
    version: Arc<CachedVersion>,
    source: Arc<dyn Source>,
    now: VersionCount,
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
                let most = self.range.end - start;
                let writer = &self.writer;
                self.buffer = writer
                    .tier
                    .is_writing()
                    .then(|| writer.buffer(start, most))
                    .flatten();
            }
            let taken = match &mut self.buffer {
                Some(buffer) => buffer.take(bytes),
                None => {
                    // What has no room is left out up to where the next piece begins.
                    let left = MAX_PIECE_BYTES - start % MAX_PIECE_BYTES;
                    let left_out = left.min(bytes.len() as u64);
                    if self.writer.tier.is_writing() {
                        let counts = &self.writer.tier.state().counts;
                        Counts::add(&counts.dropped_bytes, left_out);
                    }
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
        let is_same =
            self.now.is_same() && self.source.exact_version().as_ref() == Some(&self.version.exact);
        if extent.len > 0 && is_same {
            self.writer.push(Job::Write {
                version: Arc::clone(&self.version),
                buffer,
                claimed: self.claimed,
            });
            return;
        }
        self.writer.queue.hold().bytes -= buffer.held_bytes();
        self.give_back(extent.offset..extent.end());
    }

    fn give_back(&self, range: Range<u64>) {
        if self.claimed && !range.is_empty() {
            self.writer.tier.give_back(&self.version, &range);
        }
    }
}

impl Drop for Tee {
    fn drop(&mut self) {
        self.send();
        self.give_back(self.range.clone());
    }
}

fn work(queue: &WriteQueue, tier: &dyn Tier) {
    let mut state = queue.hold();
    loop {
        let Some(mut job) = state.jobs.pop_front() else {
            if state.working == 0 {
                queue.done.notify_all();
            }
            if state.ends {
                state.threads -= 1;
                return;
            }
            state = queue
                .ready
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        state.working += 1;
        drop(state);
        if catch_unwind(AssertUnwindSafe(|| done(&mut job, tier))).is_err() {
            tier.state().writes.off(Instant::now());
        }
        give_back(tier, &job);
        state = queue.hold();
        state.working -= 1;
        state.bytes -= job.held_bytes();
        if let Job::Write { buffer, .. } = job
            && buffer.held_bytes() > MAX_PIECE_BYTES
            && state.spare.len() < MAX_SPARE
        {
            state.spare.push(buffer.into_memory());
        }
        state.notes = state.jobs.len().min(state.notes);
    }
}

/// Does a job.
fn done(job: &mut Job, tier: &dyn Tier) {
    match job {
        Job::Write {
            version, buffer, ..
        } => {
            let state = tier.state();
            if !(state.writes.is_on() && tier.write(version, buffer)) {
                Counts::add(&state.counts.refused_writes, 1);
            }
        }
        Job::Note { version, piece } => tier.note(version, *piece),
        Job::Latest(version) => tier.note_latest(version),
        Job::Names(listing) => tier.keep_names(listing),
        Job::Remove { version, piece } => tier.remove(version, *piece),
    }
}

/// What was claimed for a job is fetched.
fn give_back(tier: &dyn Tier, job: &Job) {
    match job {
        Job::Write { claimed: false, .. } => {}
        Job::Write {
            version, buffer, ..
        } => {
            let extent = buffer.extent();
            tier.give_back(version, &(extent.offset..extent.end()));
        }
        Job::Note { .. } | Job::Latest(_) | Job::Names(_) | Job::Remove { .. } => {}
    }
}
