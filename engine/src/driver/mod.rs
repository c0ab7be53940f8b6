//! The driver: turns the machine's actions into I/O and completions into events.
//!
//! It is the only reader of the clock, and the only room that waits. Everything it decides is who runs what: a hit is
//! served by the thread that asked, under two short locks with the copy between them; a miss too is read by the
//! thread that asked. Worker threads run readahead, and demand reads that their callers have not got round to.
//! Progress never depends on them: a caller that waits runs the jobs it waits for itself. Never: decides what to
//! read, or looks into a page.
//!
//! ```text
//!   read:    lock ─ Read ─► served? ─unlock─ copy ─lock─ Release ─► last? ─unlock─► done
//!                     ▲        │ no
//!                     │        ├─ a job for it? ─unlock─ source.read_at ─lock─ Done
//!                     └────────┴─ none: sleep until somebody has something for it
//!
//!   time:    now = nanoseconds since the driver was made; taken before the lock, never goes back behind it.
//!            Release carries the time of the event before it: nothing is measured from it, and a clock costs 20 ns.
//! ```

mod bytes;
mod crew;
mod jobs;
mod line;
mod polled;
mod report;
mod room;
mod seen;
mod state;
mod streamed;
mod transfer;

use crate::budget::Budget;
use crate::chunk::{Meter, Pool};
use crate::error::Fault;
use crate::eventlog::EventLog;
use crate::log;
use crate::source::{EIO, Io, Source, SourceError};
use crate::store::Store;
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Condvar, Mutex, MutexGuard};
use foreread_core::event::{Advice, Error, Event};
use foreread_core::machine::{MAX_IDS, Machine};
use foreread_core::stats::Stats;
use foreread_core::units::{ByteRange, FileId, Nanos, OpenId, PageSize};
use jobs::{Calls, Ready};
use line::Seat;
pub use polled::Progress;
pub use report::StreamView;
pub use room::Room;
pub use seen::Seen;
use state::State;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A sleeper looks up once in this time even if nobody rings: the net under a bug, not a way of working.
const LOOK_UP: Duration = Duration::from_secs(1);

type Guard<'a> = MutexGuard<'a, State>;

/// What runs and waits at this moment. Reads and fetches are zero when nobody reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Reads that have not returned.
    pub reads: u64,
    /// Fetches that nobody has begun yet.
    pub queued_fetches: u64,
    /// Fetches being read.
    pub running_fetches: u64,
    /// Fetches the machine has not got an answer for.
    pub open_fetches: u64,
    /// Worker threads that have been started.
    pub threads: u64,
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
    crew_bell: Condvar,
    workers: Mutex<Vec<JoinHandle<()>>>,
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
        let (state, crew_bell) = (Mutex::new(state), Condvar::new());
        let shared = Shared { state, crew_bell, workers: Mutex::default(), start: Instant::now(), pool, page, budget };
        Driver { shared: Arc::new(shared) }
    }

    // ---- files and readers ----

    /// A new file and its first reader; nothing when there are too many. The last reader takes the file with it.
    /// It is read by its queue where it has one and `io` does not forbid it.
    pub fn add(&self, source: Arc<dyn Source>, io: Io) -> Result<Option<(FileId, OpenId, u64)>, Fault> {
        let size = source.size();
        self.shared.pool.align_to(source.alignment().memory as usize);
        // A queue needs buffers that its source takes as they are.
        let fits = self.shared.page.bytes().is_multiple_of(u64::from(source.alignment().offset));
        let queue = if io == Io::Queue && fits { guarded(|| Ok(source.queue())).ok().flatten() } else { None };
        let file = self.shared.lock()?.add_file((source, size), queue, MAX_IDS);
        let Some(file) = file else { return Ok(None) };
        Ok(self.open(file)?.map(|(open, version)| (file, open, version)))
    }

    /// One more reader of the file and the version it begins with; nothing when there are too many.
    pub fn open(&self, file: FileId) -> Result<Option<(OpenId, u64)>, Fault> {
        let now = self.shared.now();
        let mut state = self.shared.lock()?;
        let open = state.open(now, file, MAX_IDS);
        let version = state.file(file).map_or(0, |file| file.version);
        self.shared.unlock(state);
        Ok(open.map(|open| (open, version)))
    }

    pub fn close(&self, open: OpenId) {
        let now = self.shared.now();
        if let Ok(mut state) = self.shared.lock() {
            let file = state.close(now, open);
            self.shared.unlock(state);
            // Not behind the lock: closing a source may take its time, and its queue waits for what is under way.
            drop(file);
        }
    }

    // ---- getters ----

    pub fn size(&self, file: FileId) -> Result<u64, Fault> {
        Ok(self.shared.lock()?.file(file).map_or(0, |file| file.size))
    }

    pub fn stats(&self) -> Result<Stats, Fault> {
        Ok(self.shared.lock()?.machine().stats())
    }

    pub fn meter(&self) -> &Arc<Meter> {
        self.shared.pool.meter()
    }

    pub fn gauges(&self) -> Result<Gauges, Fault> {
        // What has ended is not under way, though nobody has come for it.
        let state = self.shared.look_in_everywhere(self.shared.lock()?)?;
        let gauges = self.count(&state);
        self.shared.unlock(state);
        Ok(gauges)
    }

    fn count(&self, state: &State) -> Gauges {
        let machine = state.machine();
        Gauges {
            reads: (state.waiting() as u64).max(machine.reads_in_progress() as u64),
            queued_fetches: state.jobs.len() as u64,
            running_fetches: u64::from(state.running) + state.handed() as u64,
            open_fetches: machine.fetches_in_progress() as u64,
            threads: u64::from(state.crew.started),
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
        self.shared.lock().map_err(|_| std::io::Error::other("the engine stopped after an internal error"))
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
        let now = self.shared.now();
        let mut state = self.shared.lock()?;
        state.feed(now, Event::Advise { open, advice, range });
        self.shared.unlock(state);
        Ok(())
    }

    /// Fetches what a caller will read, whatever the policy.
    pub fn want(&self, open: OpenId, range: ByteRange) -> Result<(), Fault> {
        let now = self.shared.now();
        let mut state = self.shared.lock()?;
        state.feed(now, Event::Want { open, range });
        self.shared.unlock(state);
        Ok(())
    }

    /// Size and version of the file; the version counts the changes.
    pub fn known(&self, file: FileId) -> Result<(u64, u64), Fault> {
        Ok(self.shared.lock()?.known(file))
    }

    /// A write found that the source is another than this version.
    pub fn changed(&self, file: FileId, version: u64) -> Result<(), Fault> {
        let now = self.shared.now();
        let mut state = self.shared.lock()?;
        state.changed(now, file, version);
        self.shared.unlock(state);
        Ok(())
    }

    /// These bytes are others now, within the same version: what is cached of them goes, and what is on its way is doomed.
    pub fn invalidate(&self, file: FileId, range: ByteRange) -> Result<(), Fault> {
        let now = self.shared.now();
        let mut state = self.shared.lock()?;
        state.feed(now, Event::Invalidate { file, range });
        self.shared.unlock(state);
        Ok(())
    }

    /// Reads what there is into `room` from `offset` on. `seen` is the version its reader knows of: when there is a newer
    /// one, the read fails and the reader is told. `waits` is called before the first wait, if there is one.
    pub fn read(
        &self,
        (open, file): (OpenId, FileId),
        seen: &Seen,
        (room, offset): (&mut Room<'_, '_>, u64),
        waits: Option<&mut dyn FnMut()>,
    ) -> Result<usize, Fault> {
        let shared = &self.shared;
        let range = ByteRange::between(offset, offset.saturating_add(room.len() as u64));
        let now = shared.now();
        let mut state = shared.lock()?;
        if range.end() > state.known(file).0 && !range.is_empty() {
            state = shared.check(state, file)?;
        }
        if let Some(end) = state.met(file, seen, range) {
            shared.unlock(state);
            return end;
        }
        state.ring_timer(now);
        if state.unattended > 0 {
            state = shared.look_in(state, file)?;
        }
        let Some(place) = state.begin(now, open, range) else { return Err(Fault::Read(Error::Limit)) };
        let (state, outcome) = shared.see_through(state, place, (file, range), room, &mut Given::default(), waits)?;
        let outcome = state.settle(file, seen, outcome);
        if outcome == Err(Error::Changed) {
            seen.told(state.known(file).1);
        }
        shared.unlock(state);
        outcome.map_err(Fault::Read)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Ok(mut state) = self.shared.state.lock() {
            state.crew.closing = true;
            // Each has its reader no more, so that nobody else is told.
            state.interrupt_attendants();
            self.shared.unlock(state);
        }
        self.shared.crew_bell.notify_all();
        let me = thread::current().id();
        // A worker that is ending may have started another, which is ending too: look again until there is none.
        while let Some(worker) = self.shared.workers.lock().ok().and_then(|mut w| w.pop()) {
            // A source that owned the last reader would have a worker wait for itself.
            if worker.thread().id() != me {
                drop(worker.join());
            }
        }
        // After an internal error the queues wait by themselves when they are dropped.
        let _ = self.shared.drain();
    }
}

impl Shared {
    /// Nanoseconds since the driver was made.
    fn now(&self) -> Nanos {
        let since = self.start.elapsed();
        Nanos(since.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(since.subsec_nanos())))
    }

    /// After a panic behind the lock everybody gets an error instead of a guess.
    fn lock(&self) -> Result<Guard<'_>, Fault> {
        self.state.lock().map_err(|_| Fault::Stopped)
    }

    /// Gives up the lock and wakes whoever has something to do now.
    #[inline]
    fn unlock(self: &Arc<Shared>, mut state: Guard<'_>) {
        let calls = state.calls();
        drop(state);
        if let Some(calls) = calls {
            self.call(calls);
        }
    }

    #[cold]
    fn call(self: &Arc<Shared>, calls: Calls) {
        calls.news.bells.iter().for_each(|bell| bell.notify_one());
        calls.news.queues.iter().for_each(|queue| queue.interrupt());
        (0..calls.workers).for_each(|_| self.crew_bell.notify_one());
        (0..calls.hire).for_each(|_| crew::hire(self));
        calls.batches.into_iter().for_each(|batch| self.submit(batch));
        calls.news.attend.into_iter().for_each(|queue| polled::attend(self, queue));
        calls.news.wakers.into_iter().for_each(polled::wake);
    }

    /// From the look-up to the last byte or the error.
    fn see_through<'a>(
        self: &'a Arc<Shared>,
        mut state: Guard<'a>,
        place: u32,
        (file, range): (FileId, ByteRange),
        room: &mut Room<'_, '_>,
        given: &mut Given,
        mut waits: Option<&mut dyn FnMut()>,
    ) -> Result<(Guard<'a>, Result<usize, Error>), Fault> {
        loop {
            if let Some(ready) = state.wait(place).ready.pop_front() {
                let last = ready.last;
                state = self.hand_out(state, ready, range, room, given)?;
                if last {
                    state.end(place);
                    return Ok((state, given.outcome()));
                }
            } else if let Some(error) = state.wait(place).failed {
                state.end(place);
                return Ok((state, Err(error)));
            } else if let Some(waits) = waits.take() {
                // What is to be called is called later: it may be that nobody else is needed.
                drop(state);
                waits();
                state = self.lock()?;
            } else if let Some(job) = state.take_job(file, range) {
                let claim = self.budget.demand(job.range.len());
                state = self.run(state, &job, claim)?;
            } else {
                let reaped;
                (state, reaped) = self.reap(state, file, Seat::Caller(place))?;
                if !reaped {
                    state = self.sleep(state, place, (file, range))?;
                }
            }
        }
    }

    /// Copies a piece, without the lock, and gives its lease back.
    fn hand_out<'a>(
        self: &'a Arc<Shared>,
        state: Guard<'a>,
        ready: Ready,
        range: ByteRange,
        room: &mut Room<'_, '_>,
        given: &mut Given,
    ) -> Result<Guard<'a>, Fault> {
        self.unlock(state);
        let at = (ready.range.start() - range.start()) as usize;
        let len = room.take(at, &ready.bytes);
        given.torn |= !ready.whole || len as u64 != ready.range.len();
        given.bytes += len;
        let lease = ready.lease;
        drop(ready);
        let mut state = self.lock()?;
        let now = state.now();
        state.feed(now, Event::Release { lease });
        Ok(state)
    }

    /// Gives up the lock until somebody rings: for this read, or because a job wants somebody to run it.
    fn sleep<'a>(
        self: &'a Arc<Shared>,
        mut state: Guard<'a>,
        place: u32,
        (file, range): (FileId, ByteRange),
    ) -> Result<Guard<'a>, Fault> {
        if let Some(calls) = state.calls() {
            drop(state);
            self.call(calls);
            // Things may have moved on meanwhile: the caller looks again.
            return self.lock();
        }
        let bell = state.falls_asleep(place, file);
        let (mut state, pause) = bell.wait_timeout(state, LOOK_UP).map_err(|_| Fault::Stopped)?;
        let rung = state.wakes(place, file);
        let forgotten = state.jobs.has_for(file, range) || state.is_unattended(file);
        state.missed_calls += u64::from(pause.timed_out() && !rung && forgotten);
        Ok(state)
    }
}

/// A panic in a source is an error of that source.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T, SourceError>) -> Result<T, SourceError> {
    let panicked = |_| SourceError::Io { errno: EIO, what: "a panic in the source".to_string() };
    catch_unwind(AssertUnwindSafe(work)).map_err(panicked).and_then(|result| result).inspect_err(log::source_failed)
}
