//! The driver: turns the machine's actions into I/O and completions into events.
//!
//! It is the only reader of the clock, and the only room that waits. It decides which thread does what: a hit is
//! served by the thread that asked, under two short locks with the copy between them; a miss too is read by the
//! thread that asked. Worker threads run readahead, and demand reads that their callers have not got round to.
//! Progress never depends on them: a caller that waits runs the jobs it waits for itself. Never: decides what to
//! read, or looks into a page.
//!
//! ```text
//!   read:    lock ─ Read ─► served? ─unlock─ copy ─lock─ Release ─► last? ─unlock─► done
//!                     ▲        │ no
//!                     │        ├─ a job for it? ─unlock─ source.read_at ─lock─ Done
//!                     └────────┴─ none: sleep until another thread has something for it
//!
//!   time:    now = nanoseconds since the driver was made; taken before the lock, never goes back behind it.
//!            Release carries the time of the event before it: nothing is measured from it, and a clock costs 20 ns.
//! ```

mod bytes;
mod jobs;
mod lock;
mod polled;
mod queue;
mod read_buf;
mod report;
mod state;
mod streamed;
mod submitted;
mod threads;
mod transfer;
mod version_cursor;
mod workers;

use crate::budget::Budget;
use crate::chunk::{Meter, Pool};
use crate::error::Fault;
use crate::eventlog::EventLog;
use crate::log;
use crate::source::{EIO, Io, Source, SourceError};
use crate::store::Store;
use crate::sync::{Condvar, Mutex};
use foreread_core::event::{Advice, Error, Event};
use foreread_core::machine::{MAX_IDS, Machine};
use foreread_core::stats::Stats;
use foreread_core::units::{ByteRange, FileId, Nanos, OpenId, PageSize};
use jobs::{Ready, Wakeups};
use lock::{Guard, Outside, Remote};
pub use polled::Progress;
use queue::Reaper;
pub use read_buf::ReadBuf;
pub use report::StreamView;
use state::{NewFile, State};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use threads::Threads;
pub use version_cursor::VersionCursor;

/// Safety timeout of a sleeping thread, in case a wakeup is missed.
const LOOK_UP: Duration = Duration::from_secs(1);

/// What runs and waits at this moment. Reads and fetches are zero when there is no read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Reads that have not returned.
    pub reads: u64,
    /// Fetches that have not begun.
    pub queued_fetches: u64,
    /// Fetches being read.
    pub running_fetches: u64,
    /// Fetches the machine has not got an answer for.
    pub open_fetches: u64,
    /// Worker threads that have been started.
    pub threads: u64,
    /// Threads of any kind that have been started and not been joined: those that run, and few that have ended.
    pub unjoined_threads: u64,
    /// Bytes in buffers: cached, being read, or lent out.
    pub held_bytes: u64,
    /// Bytes in buffers kept to be used again.
    pub spare_bytes: u64,
    /// Pages present or in flight.
    pub pages: u64,
    /// Files that are open.
    pub files: u64,
    /// Open descriptions of them.
    pub opens: u64,
    /// Times a sleeper found by itself that there was something to do. Counted since the beginning; each is a call that
    /// was forgotten, or a machine that stood still for a second.
    pub missed_calls: u64,
}

/// What a read has been given so far.
#[derive(Debug, Default)]
struct Given {
    bytes: usize,
    /// Bytes that the machine promised and the store does not have: a bug, and never a guess.
    torn: bool,
}

impl Given {
    fn outcome(&self) -> Result<usize, Error> {
        debug_assert!(!self.torn, "every byte of a served piece is in the store");
        // In a release build too: an error, and never bytes that were not filled.
        if self.torn { Err(Error::Io(EIO)) } else { Ok(self.bytes) }
    }
}

/// What workers and callers share.
struct Shared {
    state: Mutex<State>,
    /// Where idle workers wait.
    workers_condvar: Condvar,
    /// Where readers wait for the word of a source that has changed.
    accepted: Condvar,
    threads: Threads,
    start: Instant,
    pool: Arc<Pool>,
    page: PageSize,
    budget: Arc<Budget>,
}

/// See the head of this file. Dropped, it waits for the jobs that run and forgets those that do not.
pub struct Driver {
    shared: Arc<Shared>,
}

impl Driver {
    pub fn new(machine: Machine, pool: Arc<Pool>, log: Option<EventLog>, workers: u32, budget: Arc<Budget>) -> Driver {
        let page = machine.config().page;
        let state = State::new(machine, Store::new(Arc::clone(&pool)), log, workers, Arc::clone(&budget));
        let (state, workers_condvar, accepted) = (Mutex::new(state), Condvar::new(), Condvar::new());
        let (threads, start) = (Threads::default(), Instant::now());
        Driver { shared: Arc::new(Shared { state, workers_condvar, accepted, threads, start, pool, page, budget }) }
    }

    /// A thread from outside begins here.
    fn enter(&self) -> Outside<'_> {
        Outside::enter(&self.shared)
    }

    // ---- files and readers ----

    /// A new file and its first reader; nothing when there are too many. The last reader takes the file with it.
    /// It is read by its queue where it has one and `io` does not forbid it.
    pub fn add(&self, source: Arc<dyn Source>, io: Io) -> Result<Option<(FileId, OpenId, u64)>, Fault> {
        let (size, streams) = (source.size(), source.streams());
        self.shared.pool.align_to(source.alignment().memory as usize);
        // A queue needs buffers that its source takes as they are.
        let fits = self.shared.page.bytes().is_multiple_of(u64::from(source.alignment().offset));
        let queue = if io == Io::Queue && fits { guarded(|| Ok(source.queue())).ok().flatten() } else { None };
        let queue = queue.map(|queue| (queue.depth(), queue)).map(|(depth, queue)| (Remote::new(queue), depth));
        let new = NewFile { source: Remote::new(source), size, streams, queue };
        let mut state = self.enter().lock()?;
        let file = state.add_file(new, MAX_IDS);
        state.unlock();
        let Some(file) = file else { return Ok(None) };
        Ok(self.open(file)?.map(|(open, version)| (file, open, version)))
    }

    /// One more reader of the file and the version it begins with; nothing when there are too many.
    pub fn open(&self, file: FileId) -> Result<Option<(OpenId, u64)>, Fault> {
        let now = self.shared.now();
        let mut state = self.enter().lock()?;
        let open = state.open(now, file, MAX_IDS);
        let version = state.file(file).map_or(0, |file| file.version);
        state.unlock();
        Ok(open.map(|open| (open, version)))
    }

    pub fn close(&self, open: OpenId) {
        let now = self.shared.now();
        if let Ok(mut state) = self.enter().lock() {
            state.close(now, open);
            state.unlock();
        }
        self.shared.threads.join_ended();
    }

    // ---- getters ----

    /// Waits where the source has changed and has not said yet how large it is.
    pub fn size(&self, file: FileId) -> Result<u64, Fault> {
        let state = self.shared.await_accepted(self.enter().lock()?, file)?;
        Ok(state.file(file).map_or(0, |file| file.size))
    }

    pub fn stats(&self) -> Result<Stats, Fault> {
        Ok(self.enter().lock()?.machine().stats())
    }

    pub fn meter(&self) -> &Arc<Meter> {
        self.shared.pool.meter()
    }

    pub fn gauges(&self) -> Result<Gauges, Fault> {
        // What has ended is not in flight, though no thread has reaped it yet.
        let state = self.shared.look_in_everywhere(self.enter().lock()?)?;
        let gauges = self.count(&state);
        state.unlock();
        Ok(gauges)
    }

    fn count(&self, state: &State) -> Gauges {
        let machine = state.machine();
        Gauges {
            reads: (state.waiting() as u64).max(machine.reads_in_progress() as u64),
            queued_fetches: state.jobs.len() as u64,
            running_fetches: u64::from(state.running) + state.handed() as u64,
            open_fetches: machine.fetches_in_progress() as u64,
            threads: u64::from(state.workers.started),
            unjoined_threads: self.shared.threads.count() as u64,
            pages: machine.cache().pages(),
            files: state.files() as u64,
            opens: state.opens() as u64,
            missed_calls: state.missed_calls,
            held_bytes: self.meter().held_bytes(),
            spare_bytes: self.meter().spare_bytes(),
        }
    }

    /// The lock, for what writes a file.
    fn lock_for_log(&self) -> std::io::Result<Guard<'_>> {
        self.enter().lock().map_err(|_| std::io::Error::other("the engine stopped after an internal error"))
    }

    pub fn flush_log(&self) -> std::io::Result<()> {
        let mut state = self.lock_for_log()?;
        state.log().map_or(Ok(()), EventLog::flush)
    }

    /// Brings the log to its file and writes nothing more to it. The counters as they were at its last line.
    pub fn end_log(&self) -> std::io::Result<Stats> {
        let mut state = self.lock_for_log()?;
        state.take_log().map_or(Ok(()), |mut log| log.flush())?;
        Ok(state.machine().stats())
    }

    // ---- what readers ask ----

    pub fn advise(&self, open: OpenId, advice: Advice, range: ByteRange) -> Result<(), Fault> {
        self.tell(Event::Advise { open, advice, range })
    }

    /// Fetches what a caller will read, whatever the policy.
    pub fn prefetch(&self, open: OpenId, range: ByteRange) -> Result<(), Fault> {
        self.tell(Event::Prefetch { open, range })
    }

    fn tell(&self, event: Event) -> Result<(), Fault> {
        let now = self.shared.now();
        let mut state = self.enter().lock()?;
        state.feed(now, event);
        state.unlock();
        Ok(())
    }

    /// Size and version of the file; the version counts the changes. Waits as [`Driver::size`] does.
    pub fn known(&self, file: FileId) -> Result<(u64, u64), Fault> {
        Ok(self.shared.await_accepted(self.enter().lock()?, file)?.known(file))
    }

    /// A write found that the source is another than this version.
    pub fn changed(&self, file: FileId, version: u64) -> Result<(), Fault> {
        let now = self.shared.now();
        let mut state = self.enter().lock()?;
        state.changed(now, file, version);
        self.shared.accept(state, file)?.unlock();
        Ok(())
    }

    /// These bytes are others now, within the same version: what is cached of them goes, and what is on its way is doomed.
    pub fn invalidate(&self, file: FileId, range: ByteRange) -> Result<(), Fault> {
        self.tell(Event::Invalidate { file, range })
    }

    /// Reads what there is into `room` from `offset` on. `seen` is the version its reader knows of: when there is a newer
    /// one, the read fails and the reader learns of it. `waits` is called before the first wait, if there is one.
    pub fn read(
        &self,
        (open, file): (OpenId, FileId),
        seen: &VersionCursor,
        (room, offset): (&mut ReadBuf<'_, '_>, u64),
        waits: Option<&mut dyn FnMut()>,
    ) -> Result<usize, Fault> {
        let shared = &self.shared;
        let range = ByteRange::between(offset, offset.saturating_add(room.len() as u64));
        let now = shared.now();
        let mut state = self.enter().lock()?;
        if state.unattended > 0 {
            state = shared.look_in(state, file)?;
        }
        let mut asked = false;
        loop {
            if let Some(end) = state.outcome_if_changed(file, seen) {
                state.unlock();
                return Err(end);
            }
            if state.is_accepting(file) {
                state = shared.await_accepted(state, file)?;
            } else if range.end() > state.known(file).0 && !range.is_empty() && !asked {
                asked = true;
                state = shared.check(state, file)?;
            } else {
                break;
            }
        }
        if let Some(end) = state.met(file, seen, range) {
            state.unlock();
            return end;
        }
        state.ring_timer(now);
        let Some(slot) = state.begin(now, open, range) else { return Err(Fault::Read(Error::Limit)) };
        let (state, outcome) = shared.run_read(state, slot, (file, range), room, &mut Given::default(), waits)?;
        let outcome = state.settle(file, seen, outcome);
        if outcome == Err(Error::Changed) {
            seen.told(state.known(file).1);
        }
        state.unlock();
        outcome.map_err(Fault::Read)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Ok(mut state) = self.enter().lock() {
            state.workers.closing = true;
            // Each ends, and calls no other thread.
            state.interrupt_attendants();
            state.unlock();
        }
        self.shared.workers_condvar.notify_all();
        self.shared.threads.join_all();
        // After an internal error the queues wait by themselves when they are dropped.
        let _ = self.shared.drain(self.enter());
    }
}

impl Shared {
    /// Nanoseconds since the driver was made.
    fn now(&self) -> Nanos {
        let since = self.start.elapsed();
        Nanos(since.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(since.subsec_nanos())))
    }

    /// From the look-up to the last byte or the error.
    fn run_read<'a>(
        &self,
        mut state: Guard<'a>,
        slot: u32,
        (file, range): (FileId, ByteRange),
        room: &mut ReadBuf<'_, '_>,
        given: &mut Given,
        mut waits: Option<&mut dyn FnMut()>,
    ) -> Result<(Guard<'a>, Result<usize, Error>), Fault> {
        loop {
            if let Some(ready) = state.wait(slot).ready.pop_front() {
                let last = ready.last;
                state = self.hand_out(state, ready, range, room, given)?;
                if last {
                    state.end(slot);
                    return Ok((state, given.outcome()));
                }
            } else if let Some(error) = state.wait(slot).failed {
                state.end(slot);
                return Ok((state, Err(error)));
            } else if let Some(waits) = waits.take() {
                // Wakeups are sent later: perhaps no other thread is needed.
                let outside = state.release();
                waits();
                state = outside.lock()?;
            } else if let Some(job) = state.take_job(file, range) {
                let claim = self.budget.demand(job.range.len());
                state = self.run(state, &job, claim)?;
            } else {
                let reaped;
                (state, reaped) = self.reap(state, file, Reaper::Caller(slot))?;
                if !reaped {
                    state = self.sleep(state, slot, (file, range))?;
                }
            }
        }
    }

    /// Copies a piece, without the lock, and gives its lease back.
    fn hand_out<'a>(
        &self,
        state: Guard<'a>,
        ready: Ready,
        range: ByteRange,
        room: &mut ReadBuf<'_, '_>,
        given: &mut Given,
    ) -> Result<Guard<'a>, Fault> {
        let outside = state.unlock();
        let at = (ready.range.start() - range.start()) as usize;
        let len = room.take(at, &ready.bytes);
        given.torn |= !ready.whole || len as u64 != ready.range.len();
        given.bytes += len;
        let lease = ready.lease;
        drop(ready);
        let mut state = outside.lock()?;
        let now = state.now();
        state.feed(now, Event::Release { lease });
        Ok(state)
    }

    /// Releases the lock until this caller is notified: for its read, or because a job needs a thread.
    fn sleep<'a>(
        &self,
        mut state: Guard<'a>,
        slot: u32,
        (file, range): (FileId, ByteRange),
    ) -> Result<Guard<'a>, Fault> {
        if let Some(wakeups) = state.wakeups() {
            // Things may have moved on meanwhile: the caller looks again.
            return state.release().wake(wakeups).lock();
        }
        let condvar = state.falls_asleep(slot, file);
        let (mut state, passed) = state.sleep_on(&condvar, LOOK_UP)?;
        let rung = state.wakes(slot, file);
        let alone = state.workers.most == 0;
        let forgotten = state.jobs.has_for(file, range, alone) || state.is_unattended(file);
        state.missed_calls += u64::from(passed && !rung && forgotten);
        Ok(state)
    }
}

impl Outside<'_> {
    /// Wakes and starts what the state asked for when the lock was given up.
    #[cold]
    fn wake(mut self, wakeups: Wakeups) -> Self {
        let Wakeups { batches, notifications, workers, spawn, .. } = wakeups;
        notifications.condvars.iter().for_each(|condvar| condvar.notify_one());
        notifications.queues.iter().filter_map(Weak::upgrade).for_each(|queue| queue.interrupt());
        (0..workers).for_each(|_| self.shared().workers_condvar.notify_one());
        for _ in 0..spawn {
            self = workers::spawn_worker(self);
        }
        for batch in batches {
            self = self.shared().submit(self, batch);
        }
        for (file, queue_state) in notifications.attend {
            self = polled::attend(self, file, queue_state);
        }
        notifications.wakers.into_iter().for_each(polled::wake);
        drop(notifications.gone);
        self
    }
}

/// A panic in a source is an error of that source.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T, SourceError>) -> Result<T, SourceError> {
    let panicked = |_| SourceError::Io { errno: EIO, what: "a panic in the source".to_string() };
    catch_unwind(AssertUnwindSafe(work)).map_err(panicked).and_then(|result| result).inspect_err(log::source_failed)
}
