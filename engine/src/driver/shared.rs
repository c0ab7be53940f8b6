//! State shared by all threads of a driver. A thread that releases the lock also wakes and starts threads and submits fetches.
//!
//! Example: a thread that holds the lock passes a `Read` to the state machine, and the read misses. The state machine submits one demand
//! fetch and four readahead fetches. `unlock` releases the lock, submits as many fetches as the file's queue has room for, and notifies
//! or starts a worker for each of the other fetches. `unlock` returns an [`Outside`], with which the thread may read the source.
//!
//! ```text
//!   Outside ──lock──► Guard ──unlock──► Outside: wakes threads and tasks, submits batches, drops closed sources
//!                       └────release──► Outside: wakes no thread; the next unlock does
//! ```
//!
//! A started thread runs one of the two [`Loops`], which are defined in `reaping.rs`.

use super::jobs::{Part, groups};
use super::lock::{LockHeld, UnlockedProof, guarded};
use super::notifications::QueueKey;
use super::queue::Batch;
use super::reads::NotedHits;
use super::state::{State, Wakeups};
use super::workers::Threads;
use crate::budget::Budget;
use crate::chunk::Pool;
use crate::error::Fault;
use crate::source::{Transfer, serial_of, tag};
use crate::store::ShownGroups;
use crate::sync::{Condvar, Mutex, MutexGuard};
use foreread_core::units::{ByteRange, Nanos, PageSize};
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Clone, Copy)]
pub struct Loops {
    pub worker: fn(&Arc<DriverShared>),
    pub reaper: fn(&Arc<DriverShared>, QueueKey),
}

pub struct DriverShared {
    pub state: Mutex<State>,
    /// Published groups, which are read without the lock.
    pub shown: Arc<ShownGroups>,
    /// Reads that were served without the lock.
    pub noted: NotedHits,
    pub workers_condvar: Condvar,
    /// Readers wait on this until a changed source has reported its size.
    pub accepted: Condvar,
    pub threads: Threads,
    pub start: Instant,
    pub pool: Arc<Pool>,
    pub page: PageSize,
    pub budget: Arc<Budget>,
    pub loops: Loops,
}

impl DriverShared {
    /// Whether the driver has stopped because a thread panicked while it held the lock.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        // Shuttle's mutex does not report it; a panic ends the shuttle run.
        #[cfg(shuttle)]
        return false;
        #[cfg(not(shuttle))]
        self.state.is_poisoned()
    }

    /// Nanoseconds since the driver was created.
    pub fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Buffers for all pages of the range, one buffer for each group of pages.
    pub fn parts(&self, range: ByteRange) -> Vec<Part> {
        let part = |pages: Range<u64>| Part {
            start: self.page.start_of(pages.start),
            chunk: self.pool.take((pages.end - pages.start) as usize),
        };
        groups(self.page, range).map(part).collect()
    }
}

/// The shared state of the driver, for a thread that provably does not hold the lock.
pub struct Outside<'a> {
    shared: &'a Arc<DriverShared>,
    unlocked: UnlockedProof,
}

impl Deref for Outside<'_> {
    type Target = UnlockedProof;

    fn deref(&self) -> &UnlockedProof {
        &self.unlocked
    }
}

impl<'a> Outside<'a> {
    /// Creates an `Outside`, the access to the shared state without the lock, for a thread that the driver has not
    /// started itself.
    pub fn enter(shared: &'a Arc<DriverShared>) -> Outside<'a> {
        Outside {
            shared,
            unlocked: UnlockedProof::enter(),
        }
    }

    /// Takes the lock. Returns an error if a thread has panicked while it held the lock.
    #[inline]
    pub fn lock(self) -> Result<Guard<'a>, Fault> {
        self.try_lock().map_err(|_| Fault::Stopped)
    }

    /// Like [`Outside::lock`], for a caller that can continue without the lock. If this call gets the lock, it first reports the recorded
    /// hits to the state machine.
    #[inline]
    pub fn try_lock(self) -> Result<Guard<'a>, Outside<'a>> {
        let Outside { shared, unlocked } = self;
        let Ok(mut state) = shared.state.lock() else {
            return Err(Outside { shared, unlocked });
        };
        let held = unlocked.taken();
        if shared.noted.has_any() {
            state.report_hits(&shared.noted);
        }
        Ok(Guard {
            state,
            held,
            shared,
        })
    }

    /// Does the work that was deferred until the lock was released: wakes and starts threads, and submits fetches.
    #[cold]
    pub fn wake(mut self, wakeups: Wakeups) -> Self {
        let Wakeups {
            batches,
            notifications,
            workers,
        } = wakeups;
        notifications.notify_threads();
        (0..workers.notified).for_each(|_| self.shared.workers_condvar.notify_one());
        for _ in 0..workers.spawned {
            self = self.spawn_worker();
        }
        for batch in batches {
            self = self.submit(batch);
        }
        for key in notifications.unreaped() {
            self = self.spawn_reaper(key);
        }
        notifications.wake_tasks();
        self
    }

    /// Starts a worker, which is already counted as started and called.
    fn spawn_worker(self) -> Self {
        let own = Arc::clone(self.shared);
        if self
            .shared
            .threads
            .spawn("foreread", move || (own.loops.worker)(&own))
        {
            return self;
        }
        self.locked(State::worker_not_spawned)
    }

    /// Starts the thread that reaps a queue for tasks.
    fn spawn_reaper(self, key: QueueKey) -> Self {
        let own = Arc::clone(self.shared);
        if self
            .shared
            .threads
            .spawn("foreread-queue", move || (own.loops.reaper)(&own, key))
        {
            return self;
        }
        self.locked(|state| state.queues.thread_not_started(key))
    }

    /// Changes the state, unless a panic under the lock has stopped the driver.
    fn locked(self, tell: impl FnOnce(&mut State)) -> Self {
        match self.try_lock() {
            Ok(mut state) => {
                tell(&mut state);
                state.unlock()
            }
            Err(outside) => outside,
        }
    }

    fn submit(self, batch: Batch) -> Self {
        let mut transfers = Vec::with_capacity(batch.jobs.len() * 5);
        for &(serial, job) in &batch.jobs {
            let pieces = (0..).zip(self.shared.parts(job.range));
            transfers.extend(pieces.map(|(piece, part): (u64, Part)| {
                Transfer::new(tag(serial, piece), part.start, vec![part.chunk])
            }));
        }
        // After a panic it is unknown which transfers were started: all are read again, and late pieces are dropped.
        let sound = guarded(|| {
            batch.queue.at(&self).submit(&mut transfers);
            Ok(())
        });
        let serials: Vec<u64> = match sound {
            Ok(()) if transfers.is_empty() => return self,
            Ok(()) => transfers
                .iter()
                .map(|transfer| serial_of(transfer.tag()))
                .collect(),
            Err(_) => batch.jobs.iter().map(|(serial, _)| *serial).collect(),
        };
        drop(transfers);
        let outside = self.locked(|state| {
            let jobs = state
                .queues
                .close(batch.key, |fetch| serials.contains(&fetch.serial));
            state.jobs.put_back(jobs);
        });
        // Its reaper may be waiting only for these.
        batch.queue.once(&outside, |queue| queue.interrupt());
        outside
    }
}

/// The driver's state, accessible while this thread holds the lock.
pub struct Guard<'a> {
    /// Released before `held` is dropped.
    state: MutexGuard<'a, State>,
    held: LockHeld,
    shared: &'a Arc<DriverShared>,
}

impl<'a> Guard<'a> {
    pub fn shared(&self) -> &'a Arc<DriverShared> {
        self.shared
    }

    /// Releases the lock and wakes every thread that has work now.
    #[inline]
    pub fn unlock(mut self) -> Outside<'a> {
        let wakeups = self.state.wakeups();
        let outside = self.release();
        match wakeups {
            None => outside,
            Some(wakeups) => outside.wake(wakeups),
        }
    }

    /// Releases the lock without waking any thread; the next `unlock` wakes them.
    #[inline]
    pub fn release(self) -> Outside<'a> {
        let Guard {
            state,
            held,
            shared,
        } = self;
        drop(state);
        Outside {
            unlocked: held.released(),
            shared,
        }
    }

    /// Releases the lock until `condvar` is notified, for at most `time`. Also returns whether the wait has timed out.
    pub fn sleep_on(self, condvar: &Condvar, time: Duration) -> Result<(Guard<'a>, bool), Fault> {
        let Guard {
            state,
            held,
            shared,
        } = self;
        let (state, passed) = condvar
            .wait_timeout(state, time)
            .map_err(|_| Fault::Stopped)?;
        let guard = Guard {
            state,
            held,
            shared,
        };
        Ok((guard, passed.timed_out()))
    }
}

impl Deref for Guard<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}
