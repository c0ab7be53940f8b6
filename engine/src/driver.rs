//! The driver: turns the state machine's actions into I/O and completions into events.
//!
//! Only this module reads the clock and waits. The driver decides which thread does which work. The calling thread serves a hit itself:
//! it takes the lock twice for a short time and copies the bytes in between, or it takes no lock (`read.rs`). The calling thread also
//! runs the fetch of a single miss itself. Worker threads run readahead fetches, and also demand fetches whose waiting callers are busy
//! running another fetch. Progress never depends on workers: a waiting caller runs the jobs that it waits for. The driver does not decide
//! what to read, and does not inspect data.
//!
//! # Threads and locks
//! ```text
//!   callers ───────────┐                     ┌── the one lock ──────────────────────────────────┐
//!   workers ───────────┤  Outside ──lock──►  │ state: machine, store, log                       │
//!   reaper threads ────┤     ▲               │   files   reads   queue   jobs, workers          │
//!   (one for a queue   │     │               │   notifications: what the next unlock wakes      │
//!    that tasks read)  │  unlock, which      └──────────────────────────────────────────────────┘
//!                      │  wakes and submits
//!                      ▼
//!     without the lock: source.read_at, queue.reap, the copy of a hit, hits of published pages, wakers, the drop of a source
//! ```
//! The driver has one lock. A thread holds the lock for microseconds, and never while it calls a source: the types in `lock.rs` guarantee
//! this. A thread sleeps on the condvar of its read, on the workers' condvar, on `accepted` (until a changed source reports its new
//! size), or in the queue that it reaps. Time is counted in nanoseconds since the driver was created. A thread reads the clock before it
//! takes the lock. If an event's time is earlier than the time of the previous event, the previous time is used. The event `Release` always
//! gets the time of the previous event, because no measurement uses the time of a `Release`, and reading the clock costs 20 ns.
//!
//! # Example: a miss
//! A caller reads 8 KiB at offset 0 of a file without a queue, so threads read the file; the policy adds 128 KiB of readahead.
//! ```text
//!   caller  lock: Read ─► Submit demand 0..8K, Submit ahead 8K..136K ─► two jobs
//!           takes the demand job;  unlock: one job is left, so it notifies an idle worker
//!           source.read_at(0..8K)                     worker  takes the ahead job, source.read_at(8K..136K)
//!           lock: Done ─► Serve: a piece is ready
//!           unlock, copy, lock: Release; unlock       worker  lock: Done; no job is left: sleeps
//! ```
//! If the file had a queue (io_uring), `unlock` would submit both fetches, and the caller would reap completions until it is served.
//!
//! # Files
//! Each file of this module imports only files that are above it or to its left in this table.
//! ```text
//!   lock        the one lock, and calls of a source without it     jobs      fetches that threads read, and their buffers
//!   files       sources, versions known to readers                 workers   worker threads and the list of all threads
//!   notifications ◄─ reads (in progress, and hits without the lock)   span        the tracing span of a read
//!   queue, queue/attend ◄─ state ◄─ shared ◄─ transfer ◄─ reaping (and the threads' loops) ◄─ read (by a thread, by a task)
//! ```

mod files;
mod jobs;
mod lock;
mod notifications;
mod queue;
mod read;
mod reads;
mod reaping;
mod shared;
mod span;
mod state;
mod transfer;
mod workers;

use crate::budget::Budget;
use crate::chunk::{MemoryMeter, Pool};
use crate::error::Fault;
use crate::eventlog::EventLog;
use crate::latency::Latencies;
use crate::source::{Io, Source};
pub use crate::store::SizedVersion;
use crate::store::{ShownGroups, Store};
use crate::sync::{Condvar, Mutex};
pub use files::{FileKey, OpenFile, VersionCursor};
use foreread_core::event::{Advice, Event};
use foreread_core::machine::{LookedUp, Machine};
use foreread_core::policy::Tuning;
use foreread_core::stats::Stats;
use foreread_core::units::{ByteRange, FileId, Nanos, OpenId};
use lock::Remote;
pub use lock::guarded;
#[cfg(feature = "nbd")]
use queue::Reaper;
pub use read::{Progress, TaskRead};
#[cfg(feature = "fuse")]
pub use reads::LentBytes;
use reads::NotedHits;
pub use reads::ReadBuf;
use shared::{DriverShared, Loops, Outside};
pub use span::ReadSpan;
pub use state::event_error;
use state::{NewFile, State};
#[cfg(feature = "nbd")]
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;
use workers::Threads;

/// Turns the state machine's actions into I/O, on threads that the driver manages. Dropping the driver discards jobs that have not
/// started, and waits for running jobs.
pub struct Driver {
    shared: Arc<DriverShared>,
}

/// A newly opened reader, and the version that it starts with.
pub type NewReader = (OpenFile, u64);

/// Current activity. The numbers of reads and fetches are zero when no read is running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gauges {
    /// Reads that have not returned.
    pub reads: u64,
    /// Fetches that have not started.
    pub queued_fetches: u64,
    /// Fetches that are being read.
    pub running_fetches: u64,
    /// Fetches whose result the machine has not received yet.
    pub open_fetches: u64,
    /// Worker threads that have been started.
    pub threads: u64,
    /// Threads of any kind that were started and not joined yet: all running ones, and a few that have ended.
    pub unjoined_threads: u64,
    /// Bytes in buffers: cached, being read, or lent out.
    pub held_bytes: u64,
    /// Bytes in buffers kept for reuse.
    pub spare_bytes: u64,
    /// Pages in the cache or in flight.
    pub pages: u64,
    /// Open files.
    pub files: u64,
    /// Open descriptions of these files.
    pub opens: u64,
    /// How often a sleeping thread found work without having been woken, since the start. Each is a missed wakeup, or a machine that
    /// was suspended for a second.
    pub missed_calls: u64,
    /// The present settings of a policy that tunes itself. `None` for a policy with fixed settings, and before the first file is
    /// open.
    pub tuning: Option<Tuning>,
}

/// The state of one open file description, for reports.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StreamView {
    /// Its number; reused after it is closed.
    pub number: u32,
    /// What it reads.
    pub source: String,
    /// Its share of the counters.
    pub stats: Stats,
}

impl Driver {
    pub fn new(
        machine: Machine,
        pool: Arc<Pool>,
        log: Option<EventLog>,
        workers: u32,
        budget: Arc<Budget>,
    ) -> Driver {
        let page = machine.config().page;
        let shown = Arc::new(ShownGroups::new(page, machine.config().capacity_pages));
        let store = Store::new(Arc::clone(&pool), Arc::clone(&shown));
        let state = State::new(machine, store, log, workers, Arc::clone(&budget));
        Driver {
            shared: Arc::new(DriverShared {
                state: Mutex::new(state),
                shown,
                noted: NotedHits::default(),
                workers_condvar: Condvar::new(),
                accepted: Condvar::new(),
                threads: Threads::default(),
                start: Instant::now(),
                pool,
                page,
                budget,
                loops: Loops {
                    worker: reaping::worker,
                    reaper: reaping::reaper,
                },
            }),
        }
    }

    /// The entry point for threads that are not the driver's own.
    fn enter(&self) -> Outside<'_> {
        Outside::enter(&self.shared)
    }

    // ---- files and readers ----

    /// Adds a file and opens its first reader. Returns `None` if there are too many files or readers. Closing the last reader closes the
    /// file. If the source has an asynchronous queue and `io` permits it, the queue is used.
    pub fn add(&self, source: Arc<dyn Source>, io: Io) -> Result<Option<NewReader>, Fault> {
        let new = self.new_file(source, io);
        let file = self.change(|state, _| state.add_file(new))?;
        file.map_or(Ok(None), |file| self.open(file))
    }

    /// Adds a file without a reader, which follows `after` in a listing. Returns `None` if there are too many files.
    pub fn list(
        &self,
        source: Arc<dyn Source>,
        io: Io,
        after: Option<FileKey>,
        planned: bool,
    ) -> Result<Option<FileKey>, Fault> {
        let new = self.new_file(source, io);
        self.change(|state, now| state.list(now, new, after, planned))
    }

    /// Reports that the file is no longer in any listing.
    pub fn unlist(&self, key: FileKey) {
        let _ = self.change(|state, now| state.unlist(now, key));
    }

    /// A key that distinguishes the file from later files with the same number.
    pub fn key(&self, file: FileId) -> Option<FileKey> {
        self.enter().lock().ok()?.files.key(file)
    }

    fn new_file(&self, source: Arc<dyn Source>, io: Io) -> NewFile {
        let (size, streams) = (source.size(), source.streaming().is_some());
        let answer_ns = source
            .answered_in()
            .map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let (alignment, page) = (source.alignment(), self.shared.page.bytes());
        self.shared.pool.align_to(alignment.memory as usize);
        // A queue needs buffers with the alignment of its source.
        let fits = page.is_multiple_of(u64::from(alignment.offset));
        let queue = (io == Io::Queue && fits)
            .then(|| guarded(|| Ok(source.queue())).ok().flatten())
            .flatten()
            .map(|queue| {
                let depth = queue.depth();
                (Remote::new(queue), depth)
            });
        NewFile {
            source: Remote::new(source),
            size,
            streams,
            queue,
            answer_ns,
        }
    }

    /// Opens another reader of the file. Returns `None` if there are too many readers.
    pub fn open(&self, file: FileId) -> Result<Option<NewReader>, Fault> {
        self.open_with(|_| Some(file))
    }

    /// Opens the first reader of a listed file. Returns `None` if the file has changed since it was listed, or if there are too many
    /// readers.
    pub fn open_listed(&self, key: FileKey) -> Result<Option<NewReader>, Fault> {
        self.open_with(|state| state.files.unchanged(key))
    }

    fn open_with(
        &self,
        file: impl FnOnce(&State) -> Option<FileId>,
    ) -> Result<Option<NewReader>, Fault> {
        self.change(|state, now| {
            let file = file(state)?;
            let open = state.open(now, file)?;
            Some((OpenFile { file, open }, state.files.known(file).version))
        })
    }

    pub fn close(&self, open: OpenId) {
        let _ = self.change(|state, now| state.close(now, open));
        self.shared.threads.join_ended();
    }

    // ---- getters ----

    /// Size and version of the file. Waits if the source has changed and its new size is not known yet.
    pub fn known(&self, file: FileId) -> Result<SizedVersion, Fault> {
        read::known(&self.shared, file)
    }

    pub fn stats(&self) -> Result<Stats, Fault> {
        Ok(self.enter().lock()?.machine().stats())
    }

    /// The counters of one open description.
    pub fn own_stats(&self, open: OpenId) -> Result<Stats, Fault> {
        let state = self.enter().lock()?;
        Ok(state
            .machine()
            .open_stats(open)
            .copied()
            .unwrap_or_default())
    }

    /// Whether the first page of a file was read ahead, or is being read ahead, and no read has used it yet.
    #[cfg(feature = "fuse")]
    pub fn is_start_unused(&self, file: FileId) -> bool {
        let state = self.enter().lock();
        state.is_ok_and(|state| state.machine().cache().group(file, 0).untouched() & 1 != 0)
    }

    pub fn meter(&self) -> &Arc<MemoryMeter> {
        self.shared.pool.meter()
    }

    /// Whether the driver has stopped because a thread panicked while it held the lock.
    pub fn is_stopped(&self) -> bool {
        self.shared.is_stopped()
    }

    pub fn gauges(&self) -> Result<Gauges, Fault> {
        // Completed transfers do not count as in flight, even if no thread has reaped them yet.
        let state = reaping::look_in_everywhere(self.enter().lock()?)?;
        let gauges = count_gauges(&self.shared, &state);
        state.unlock();
        Ok(gauges)
    }

    /// Whether the driver is idle: no read or fetch is running or waiting. The call has no side effects.
    pub fn is_quiet(&self) -> bool {
        let Ok(state) = self.enter().lock() else {
            return true;
        };
        let counts = count_gauges(&self.shared, &state);
        state.unlock();
        counts.reads + counts.queued_fetches + counts.running_fetches + counts.open_fetches == 0
    }

    /// Latencies of the sources: first those of demand fetches, then those of readahead.
    pub fn latencies(&self) -> [Latencies; 2] {
        let state = self.enter().lock();
        let of = |ahead| {
            state
                .as_ref()
                .map(|state| state.clocked[usize::from(ahead)].now())
                .unwrap_or_default()
        };
        [of(false), of(true)]
    }

    /// The open descriptions that have read most often, at most `max` of them. The names of their sources are computed without the lock,
    /// because that may take time.
    pub fn streams(&self, max: usize) -> Result<Vec<StreamView>, Fault> {
        let state = self.enter().lock()?;
        let machine = state.machine();
        let mut opens: Vec<_> = machine.opens().collect();
        let reads = |open| {
            machine
                .open_stats(open)
                .map_or(0, |stats| stats.demand_reads)
        };
        opens.sort_by_key(|&(open, _)| (std::cmp::Reverse(reads(open)), open));
        opens.truncate(max);
        let view = |(open, file): (OpenId, FileId)| {
            let source = state.files.source(file)?;
            Some((open.0, source, *machine.open_stats(open)?))
        };
        let found = opens.into_iter().filter_map(view).collect::<Vec<_>>();
        let outside = state.release();
        let named = found.into_iter().map(|(number, source, stats)| StreamView {
            number,
            source: source.once(&outside, |source| source.describe()),
            stats,
        });
        Ok(named.collect())
    }

    /// Flushes and closes the event log. Returns the counters at the time of the log's last line.
    pub fn end_log(&self) -> std::io::Result<Stats> {
        let stopped = |_| std::io::Error::other("the engine stopped after an internal error");
        let mut state = self.enter().lock().map_err(stopped)?;
        state.take_log().map_or(Ok(()), |mut log| log.flush())?;
        Ok(state.machine().stats())
    }

    // ---- requests of readers ----

    pub fn advise(&self, open: OpenId, advice: Advice, range: ByteRange) -> Result<(), Fault> {
        self.feed(Event::Advise {
            open,
            advice,
            range,
        })
    }

    /// Fetches a range that the reader's caller has announced, independently of the policy.
    pub fn prefetch(&self, open: OpenId, range: ByteRange) -> Result<(), Fault> {
        self.feed(Event::Prefetch { open, range })
    }

    /// Sets the size of the cache.
    #[cfg(feature = "fuse")]
    pub fn bound_cache(&self, bytes: u64) -> Result<(), Fault> {
        let pages = bytes / self.shared.page.bytes();
        self.feed(Event::Pressure { pages })
    }

    /// Reports that these bytes have changed within the same version: cached pages are dropped, and the results of fetches in flight are
    /// discarded.
    pub fn invalidate(&self, file: FileId, range: ByteRange) -> Result<(), Fault> {
        self.feed(Event::Invalidate { file, range })
    }

    fn feed(&self, event: Event) -> Result<(), Fault> {
        self.change(|state, now| state.feed(now, event))
    }

    fn change<R>(&self, change: impl FnOnce(&mut State, Nanos) -> R) -> Result<R, Fault> {
        let now = self.shared.now();
        let mut state = self.enter().lock()?;
        let changed = change(&mut state, now);
        state.unlock();
        Ok(changed)
    }

    /// Asks the source whether it still has the known version.
    #[cfg(feature = "nbd")]
    pub fn check(&self, file: FileId) -> Result<(), Fault> {
        transfer::check(self.enter().lock()?, file)?.unlock();
        Ok(())
    }

    /// Reports that the source no longer has this version, because a write to the source has found another version.
    pub fn changed(&self, file: FileId, version: u64) -> Result<(), Fault> {
        let now = self.shared.now();
        let mut state = self.enter().lock()?;
        state.change(now, file, version);
        transfer::accept(state, file)?.unlock();
        Ok(())
    }

    /// Reads into `buf` from `offset`. `seen` is the version that the reader knows: if there is a newer version, the read fails and
    /// `seen` is set to that version. `waits` is called before the first wait, if there is one. `looked_up` is set to the numbers of
    /// bytes that were in the cache (hits), in flight (late) or absent (missed).
    #[inline]
    pub fn read(
        &self,
        at: OpenFile,
        seen: &VersionCursor,
        buf: &mut ReadBuf<'_, '_>,
        offset: u64,
        waits: Option<&mut dyn FnMut()>,
        looked_up: Option<&mut LookedUp>,
    ) -> Result<usize, Fault> {
        let range = buf.range_from(offset);
        match read::read_hit(&self.shared, at, seen, buf, range) {
            Some(hit) => {
                if let Some(looked_up) = looked_up {
                    *looked_up = read::all_hit(&hit);
                }
                hit
            }
            None => read::read(&self.shared, at, seen, buf, range, waits, looked_up),
        }
    }

    /// Polls reads of tasks together. Their fetches are submitted together, in one call of the queue. If a read stays pending, its waker
    /// will be called.
    pub fn poll_reads(&self, reads: &mut [TaskRead<'_>]) {
        for read in reads.iter_mut().filter(|read| read.progress.is_first()) {
            let range = read.range();
            let mut buf = ReadBuf::One(read.buf);
            let hit = read::read_hit(&self.shared, read.at, read.seen, &mut buf, range);
            if let Some(hit) = hit {
                read.progress.looked_up = read::all_hit(&hit);
                read.outcome = Poll::Ready(hit);
            }
        }
        if reads.iter().any(|read| read.outcome.is_pending()) {
            read::poll_reads(&self.shared, reads);
        }
    }

    /// Starts to watch the queue of a file: the caller calls [`Driver::reap`] whenever the returned descriptor is readable, until it
    /// calls [`Driver::unwatch`]. Returns `None` if there is no queue, or if it has no descriptor.
    #[cfg(feature = "nbd")]
    pub fn watch(&self, file: FileId) -> Option<OwnedFd> {
        let state = self.enter().lock().ok()?;
        let queue = state.queues.share(file);
        let outside = state.release();
        let descriptor = queue?.once(&outside, |queue| {
            queue.descriptor()?.try_clone_to_owned().ok()
        })?;
        let mut state = outside.lock().ok()?;
        state.queues.watch(file, true);
        state.unlock();
        Some(descriptor)
    }

    /// Ends [`Driver::watch`].
    #[cfg(feature = "nbd")]
    pub fn unwatch(&self, file: FileId) {
        let _ = self.change(|state, _| state.queues.watch(file, false));
    }

    /// Reaps the completed transfers of a file's queue, without waiting for any.
    #[cfg(feature = "nbd")]
    pub fn reap(&self, file: FileId) {
        let state = self.enter().lock();
        if let Ok((state, _)) = state.and_then(|state| reaping::reap(state, file, Reaper::Watcher))
        {
            state.unlock();
        }
    }

    /// Abandons the read of a task; pages that are already fetched stay cached.
    pub fn abandon(&self, progress: &mut Progress) {
        read::abandon(&self.shared, progress);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.change(|state, _| state.close_workers());
        self.shared.workers_condvar.notify_all();
        self.shared.threads.join_all();
        // After an internal error, each queue waits for its own transfers when it is dropped.
        let _ = reaping::drain(self.enter());
    }
}

fn count_gauges(shared: &DriverShared, state: &State) -> Gauges {
    let (machine, meter) = (state.machine(), shared.pool.meter());
    Gauges {
        reads: (state.reads.len() as u64).max(machine.reads_in_progress() as u64),
        queued_fetches: state.jobs.len() as u64,
        running_fetches: u64::from(state.jobs.running) + state.queues.submitted() as u64,
        open_fetches: machine.fetches_in_progress() as u64,
        threads: u64::from(state.workers.started),
        unjoined_threads: shared.threads.count() as u64,
        pages: machine.cache().pages(),
        files: state.files.len() as u64,
        opens: state.files.opens() as u64,
        missed_calls: state.reads.missed_calls,
        tuning: machine.tuning(),
        held_bytes: meter.held_bytes(),
        spare_bytes: meter.spare_bytes(),
    }
}
