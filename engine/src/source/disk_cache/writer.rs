//! Writes fetched data to the cache in the background. The writer has a bounded queue and one thread, or several threads if the
//! cache is on a server, because then each write waits for a reply.
//!
//! ```text
//!   fetch ──► Tee ──copies──► run of blocks, up to 1 MiB ──► queue (128 MiB) ──► thread: room? ──► tier, claim released
//!                └─ queue full: skipped, counted                                         └─ no: skipped, counted
//! ```
//! A reader never waits for a write. When the process ends, the writer has a few seconds to write the queue; what remains is
//! dropped.

use super::claims::CLAIM_BYTES;
use super::hash::BLOCK_BYTES;
use super::object::{DIRECT_ALIGN, LARGE_BYTES};
use super::shared::{CachedVersion, Counts};
use super::tier::{Note, Tier};
use crate::source::Source;
use crate::sync::lock;
use foreread_os::host::Host;
use foreread_os::threads::spawn;
use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum bytes of runs that are queued or being filled; `QUEUED_PART`: they use at most this part of the machine's memory. Chosen: the
/// data that arrives at 200 MB/s while the thread gets no processor for 0.6 s.
const MAX_QUEUED_BYTES: u64 = 128 << 20;
const QUEUED_PART: u64 = 16;
/// The queue keeps at least this much even if the memory cache is small: two runs that are being filled and two that are being written.
const MIN_QUEUED_BYTES: u64 = 4 << 20;
/// Maximum number of buffers that are kept for the next runs: the allocator returns the memory of each, and maps it again.
const MAX_SPARE: usize = 8;
/// A run of 1 MiB, and what aligns it.
const SPARE_BYTES: usize = CLAIM_BYTES as usize + DIRECT_ALIGN;
/// Maximum number of queued notes; further notes are dropped.
const MAX_NOTES: usize = 4096;
/// Memory that a job uses besides its bytes.
const JOB_BYTES: u64 = 256;
/// How long the queue stays empty before the written bytes are added to the cache's account: four system calls.
const SETTLED_AFTER: Duration = Duration::from_millis(500);
/// Pause of writes after a bug (panic).
const PANIC_PAUSE: Duration = Duration::from_secs(30);

enum Job {
    Write(Run),
    Note(Note),
}

/// Consecutive blocks to be written.
struct Run {
    version: Arc<CachedVersion>,
    offset: u64,
    bytes: RunBytes,
    /// Bytes that the queue counts for this run.
    held: u64,
    claimed: Range<u64>,
}

/// The bytes of a run. They begin at a multiple of [`DIRECT_ALIGN`] in memory if they are to be written with direct I/O.
struct RunBytes {
    buffer: Vec<u8>,
    start: usize,
}

impl RunBytes {
    fn new(mut buffer: Vec<u8>, is_aligned: bool) -> RunBytes {
        buffer.clear();
        let start = if is_aligned {
            buffer.as_ptr().align_offset(DIRECT_ALIGN)
        } else {
            0
        };
        buffer.resize(start, 0);
        RunBytes { buffer, start }
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..]
    }
}

impl Job {
    /// Memory that the queued job uses.
    fn held_bytes(&self) -> u64 {
        match self {
            Job::Write(run) => run.held,
            Job::Note(Note::Names(listing)) => {
                listing.names.as_ref().map_or(0, |names| names.bytes())
            }
            Job::Note(_) => 0,
        }
    }

    /// Releases the claim of this job.
    fn give_back(&self, tier: &dyn Tier) {
        if let Job::Write(run) = self {
            tier.give_back(&run.version, &run.claimed);
        }
    }
}

#[derive(Default)]
struct WriteQueue {
    state: Mutex<QueueState>,
    /// Signalled when there is work, or when the writer ends.
    ready: Condvar,
    /// Signalled when the queue is empty, no write is running, and the account is right.
    done: Condvar,
}

#[derive(Default)]
struct QueueState {
    jobs: VecDeque<Job>,
    /// Bytes of `jobs`; `bytes` also has those that are being filled or written.
    waiting: u64,
    bytes: u64,
    /// Buffers of earlier runs; none is longer than [`SPARE_BYTES`].
    spare: Vec<Vec<u8>>,
    notes: usize,
    /// Whether jobs were done since the last call of [`Tier::settle`].
    is_unsettled: bool,
    /// Whether a caller waits until all is written.
    is_awaited: bool,
    ends: bool,
    /// Number of threads of this queue. `working` is the number of those that are busy, and `threads_of` is their process: a forked child
    /// has none of them.
    threads: usize,
    working: usize,
    threads_of: Option<u32>,
}

impl QueueState {
    /// Whether fetched data or its account is not written yet.
    fn is_busy(&self) -> bool {
        self.working > 0 || self.is_unsettled || !self.jobs.is_empty()
    }
}

pub struct Writer {
    most_queued: AtomicU64,
    queue: Arc<WriteQueue>,
    tier: Arc<dyn Tier>,
    /// Maximum number of threads.
    most_threads: usize,
}

impl Writer {
    pub fn new(tier: Arc<dyn Tier>, most_threads: usize) -> Writer {
        let part = Host::here().memory_bytes() / QUEUED_PART;
        Writer {
            most_queued: AtomicU64::new(MAX_QUEUED_BYTES.min(part)),
            queue: Arc::default(),
            tier,
            most_threads,
        }
    }

    /// Returns a `Tee`, to which a fetch of this range passes its data, and which queues this data for writing. `claimed` is true
    /// if this process has claimed (locked) the range, so that other processes may wait for it.
    pub fn tee(
        self: &Arc<Writer>,
        version: &Arc<CachedVersion>,
        source: &Arc<dyn Source>,
        accepted: &Arc<AtomicU64>,
        range: Range<u64>,
        claimed: bool,
    ) -> Tee {
        Tee {
            writer: Arc::clone(self),
            version: Arc::clone(version),
            source: Arc::clone(source),
            began_with: accepted.load(Ordering::Relaxed),
            accepted: Arc::clone(accepted),
            range,
            claimed,
            run: None,
        }
    }

    /// Queues a note for the tier. The note is dropped if the queue has no space for it.
    pub fn note(&self, note: Note) {
        let job = Job::Note(note);
        let mut state = lock(&self.queue.state);
        let bytes = state.bytes + job.held_bytes();
        if bytes <= self.most_queued() && state.notes < MAX_NOTES {
            state.bytes = bytes;
            drop(state);
            self.push(job);
        }
    }

    /// The limit for [`Writer::queued_bytes`].
    pub fn most_queued(&self) -> u64 {
        self.most_queued.load(Ordering::Relaxed)
    }

    /// Limits the queue to this many bytes from now on.
    pub fn bound_queue(&self, bytes: u64) {
        let bytes = bytes.max(MIN_QUEUED_BYTES);
        self.most_queued.fetch_min(bytes, Ordering::Relaxed);
    }

    /// Returns the number of bytes that are queued or being collected.
    pub fn queued_bytes(&self) -> u64 {
        lock(&self.queue.state).bytes
    }

    /// Waits at most this long until all fetched data is written to disk. Returns true if all data is written.
    pub fn flush(&self, most: Duration) -> bool {
        let mut state = lock(&self.queue.state);
        if state.threads_of != Some(std::process::id()) {
            return state.jobs.is_empty();
        }
        state.is_awaited = state.is_busy();
        self.queue.ready.notify_all();
        let waited = self
            .queue
            .done
            .wait_timeout_while(state, most, |state| state.is_busy());
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Returns a buffer for `most` bytes of a version, and the bytes that the queue counts for it. Returns `None` if the queue has no room.
    fn buffer(&self, version: &CachedVersion, most: u64) -> Option<(RunBytes, u64)> {
        let is_large = version.size > LARGE_BYTES;
        let held = most + JOB_BYTES + if is_large { DIRECT_ALIGN as u64 } else { 0 };
        let mut state = lock(&self.queue.state);
        if state.bytes + held > self.most_queued() {
            return None;
        }
        state.bytes += held;
        let is_aligned = self.is_direct(version, state.waiting);
        let is_long = most > CLAIM_BYTES / 2;
        let capacity = if is_long { SPARE_BYTES } else { held as usize };
        let fits = |spare: &Vec<u8>| spare.capacity() >= capacity;
        let spare = state.spare.iter().rposition(fits);
        let spare = spare.map(|at| state.spare.swap_remove(at));
        drop(state);
        let buffer = spare.unwrap_or_else(|| Vec::with_capacity(capacity));
        Some((RunBytes::new(buffer, is_aligned), held))
    }

    /// Returns true if a run of this version is written with direct I/O, past the page cache. Other processes that fetch the version
    /// soon read the run from the page cache. If many bytes are `waiting` for the disk, the page cache takes more at once.
    fn is_direct(&self, version: &CachedVersion, waiting: u64) -> bool {
        let is_behind = waiting > self.most_queued() / 2;
        version.size > LARGE_BYTES && !is_behind && !version.is_shared.load(Ordering::Relaxed)
    }

    fn push(&self, job: Job) {
        let mut state = lock(&self.queue.state);
        state.notes += usize::from(!matches!(job, Job::Write(_)));
        state.waiting += job.held_bytes();
        state.jobs.push_back(job);
        let here = Some(std::process::id());
        if state.threads_of != here {
            (state.threads_of, state.threads, state.working) = (here, 0, 0);
        }
        if state.threads >= self.most_threads.min(state.working + state.jobs.len()) {
            // A thread that works looks at the queue before it waits.
            let is_idle = state.working < state.threads;
            drop(state);
            if is_idle {
                self.queue.ready.notify_one();
            }
            return;
        }
        state.threads += 1;
        drop(state);
        let (queue, tier) = (Arc::clone(&self.queue), Arc::clone(&self.tier));
        if spawn("foreread-cache", move || work(&queue, &*tier)).is_ok() {
            return;
        }
        // No thread could be started, so nothing is written. The next run tries again.
        let jobs = {
            let mut state = lock(&self.queue.state);
            state.threads -= 1;
            if state.threads > 0 {
                return;
            }
            state.notes = 0;
            let jobs = std::mem::take(&mut state.jobs);
            state.bytes -= std::mem::take(&mut state.waiting);
            jobs
        };
        jobs.iter().for_each(|job| job.give_back(&*self.tier));
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        lock(&self.queue.state).ends = true;
        self.queue.ready.notify_all();
    }
}

/// Collects the data of a range as it arrives, and queues it in runs of consecutive blocks.
pub struct Tee {
    writer: Arc<Writer>,
    version: Arc<CachedVersion>,
    source: Arc<dyn Source>,
    /// How often the source has accepted another version, now and at the start.
    accepted: Arc<AtomicU64>,
    began_with: u64,
    /// The part of the range that has not arrived yet.
    range: Range<u64>,
    claimed: bool,
    /// The run being filled: its offset, its bytes, and the bytes that the queue counts for it.
    run: Option<(u64, RunBytes, u64)>,
}

impl Tee {
    /// Receives the next bytes, which begin at the offset `at`, where the previous bytes ended.
    pub fn take(&mut self, at: u64, mut bytes: &[u8]) {
        if at != self.range.start {
            return;
        }
        while !bytes.is_empty() {
            let start = self.range.start;
            // A run ends at each 1 MiB boundary.
            let run_end =
                ((start / CLAIM_BYTES + 1) * CLAIM_BYTES).min(self.range.end.max(start + 1));
            let is_block = start.is_multiple_of(BLOCK_BYTES);
            let begins = self.run.is_none() && is_block;
            let is_writing = begins && self.writer.tier.is_writing();
            if is_writing {
                let buffer = self.writer.buffer(&self.version, run_end - start);
                self.run = buffer.map(|(run, held)| (start, run, held));
            }
            // A partial block at the start is skipped. If the queue has no room, data is skipped up to the start of the next run.
            let end = if is_block || self.run.is_some() {
                run_end
            } else {
                start.next_multiple_of(BLOCK_BYTES)
            };
            let taken = (end - start).min(bytes.len() as u64);
            let (now, rest) = bytes.split_at(taken as usize);
            match &mut self.run {
                Some((_, run, _)) => run.buffer.extend_from_slice(now),
                None if is_block => {
                    let dropped = u64::from(is_writing) * taken;
                    Counts::add(&self.writer.tier.state().counts.dropped_bytes, dropped);
                    self.give_back(start..start + taken);
                }
                None => {}
            }
            (self.range.start, bytes) = (start + taken, rest);
            if self.range.start == run_end {
                self.send();
            }
        }
    }

    fn send(&mut self) {
        let Some((offset, mut bytes, held)) = self.run.take() else {
            return;
        };
        let mut len = bytes.bytes().len();
        let arrived = offset..offset + len as u64;
        if arrived.end != self.version.size {
            // A partial block at the end is skipped.
            len = len / BLOCK_BYTES as usize * BLOCK_BYTES as usize;
            bytes.buffer.truncate(bytes.start + len);
        }
        // The bytes may be of a version that the source had before.
        let is_same = self.accepted.load(Ordering::Relaxed) == self.began_with
            && self.source.exact_version().as_ref() == Some(&self.version.exact);
        if len > 0 && is_same {
            let claimed = if self.claimed { arrived } else { 0..0 };
            self.writer.push(Job::Write(Run {
                version: Arc::clone(&self.version),
                offset,
                bytes,
                held,
                claimed,
            }));
            return;
        }
        lock(&self.writer.queue.state).bytes -= held;
        self.give_back(arrived);
    }

    fn give_back(&self, range: Range<u64>) {
        if self.claimed {
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
    let mut state = lock(&queue.state);
    let mut was_idle = false;
    loop {
        let Some(job) = state.jobs.pop_front() else {
            let is_due = was_idle || state.is_awaited || state.ends;
            if is_due && state.is_unsettled && state.working == 0 {
                state.is_unsettled = false;
                state.working += 1;
                drop(state);
                tier.settle();
                state = lock(&queue.state);
                state.working -= 1;
                continue;
            }
            if state.working == 0 && !state.is_unsettled {
                state.is_awaited = false;
                queue.done.notify_all();
            }
            if state.ends {
                state.threads -= 1;
                return;
            }
            let pause = if state.is_unsettled {
                SETTLED_AFTER
            } else {
                Duration::MAX
            };
            let waited = queue.ready.wait_timeout(state, pause);
            let (now, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            (state, was_idle) = (now, timeout.timed_out());
            continue;
        };
        was_idle = false;
        state.waiting -= job.held_bytes();
        state.working += 1;
        state.is_unsettled = true;
        drop(state);
        if catch_unwind(AssertUnwindSafe(|| done(&job, tier))).is_err() {
            tier.state().writes.off(PANIC_PAUSE);
        }
        job.give_back(tier);
        state = lock(&queue.state);
        state.working -= 1;
        state.bytes -= job.held_bytes();
        if let Job::Write(run) = job {
            state.spare.push(run.bytes.buffer);
            if state.spare.len() > MAX_SPARE {
                // The longest are kept: they take the most time to map.
                state
                    .spare
                    .sort_unstable_by_key(|spare| std::cmp::Reverse(spare.capacity()));
                state.spare.truncate(MAX_SPARE);
            }
        }
        state.notes = state.jobs.len().min(state.notes);
    }
}

fn done(job: &Job, tier: &dyn Tier) {
    match job {
        Job::Write(run) => {
            let state = tier.state();
            if !(state.writes.is_on() && tier.write(&run.version, run.offset, run.bytes.bytes())) {
                Counts::add(&state.counts.refused_writes, 1);
            }
        }
        Job::Note(note) => tier.take_note(note),
    }
}

/// The parts of a disk cache: the tier on this machine, its writer thread, and the shared tier below it, if there is one.
pub struct Parts {
    pub tier: Arc<dyn Tier>,
    pub writer: Arc<Writer>,
    pub below: Option<Arc<Parts>>,
}

impl Parts {
    /// Returns true if a writer's queue is more than a third full.
    pub fn is_behind(&self) -> bool {
        self.writer.queued_bytes() > self.writer.most_queued() / 3
            || self.below.as_ref().is_some_and(|below| below.is_behind())
    }

    /// From now on, limits each writer's queue to this many bytes.
    pub fn bound_queues(&self, bytes: u64) {
        self.writer.bound_queue(bytes);
        if let Some(below) = &self.below {
            below.bound_queues(bytes);
        }
    }

    pub fn flush(&self, most: Duration) -> bool {
        let began = Instant::now();
        let left = || most.saturating_sub(began.elapsed());
        self.writer.flush(most) & self.below.as_ref().is_none_or(|below| below.flush(left()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::ExactVersion;
    use crate::source::disk_cache::disk::DiskTier;
    use crate::source::disk_cache::settings::DiskCacheSettings;

    #[test]
    fn direct_io_is_for_large_versions_of_one_process_on_a_fast_disk() {
        let dir = tempfile::tempdir().expect("a folder");
        let tier = DiskTier::open(DiskCacheSettings::new(dir.path().join("c")));
        let tier = Arc::new(tier.expect("opened"));
        let writer = Writer::new(tier.clone(), 1);
        let version = |size: u64| {
            let exact = ExactVersion {
                source: "s".to_string(),
                version: size.to_string(),
                shown: "s".to_string(),
            };
            tier.state().version(exact, size)
        };
        let (large, small) = (version(LARGE_BYTES + 1), version(LARGE_BYTES));
        assert!(writer.is_direct(&large, 0));
        assert!(!writer.is_direct(&small, 0));
        assert!(
            !writer.is_direct(&large, 1000 * CLAIM_BYTES),
            "the disk is behind"
        );
        large.is_shared.store(true, Ordering::Relaxed);
        assert!(!writer.is_direct(&large, 0), "another process fetches it");
    }
}
