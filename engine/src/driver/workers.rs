//! Counts the worker threads: how many run, how many are idle, and which of them handles the timer and polls the queues.
//!
//! A worker runs readahead fetches, and also demand fetches whose waiting callers are busy running another fetch. A worker is started if
//! there is work, no worker is idle, and the limit is not reached. No read depends on a worker. The loops of the threads are in
//! `reaping.rs`.
//!
//! Example: the limit is 4, one worker is idle, and a window has 3 fetches. [`Workers::call`] returns: notify 1, start 2. All three
//! workers are counted as `called` until they check for work, so the next thread that releases the lock does not request a fourth worker.
//!
//! ```text
//!   started ──► called ──► running jobs: demand first, then ahead ──none left──► idle ──notified──► called
//!                                │ closing                                        │ the time of a timer: Timer
//!                                ▼                                                ▼
//!                              ended ◄────────────────────────────────────────── closing
//! ```

use super::lock::WAKEUP_TIMEOUT;
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Mutex, MutexGuard};
use crate::system::{self, SystemRequest};
use foreread_core::units::Nanos;
use std::sync::PoisonError;
use std::time::Duration;

/// How often a worker polls the queues that no thread reaps. 16 fetches of 1 MiB in each tick are 16 GB/s.
const TICK: Duration = Duration::from_millis(1);
/// Number of ticks without a transfer after which polling ends.
const LINGER: u32 = 50;

/// Counts the workers by state. `idle + called` workers wait at their condvar, or are being started.
#[derive(Default)]
pub struct Workers {
    /// Maximum number of workers.
    max: u32,
    pub started: u32,
    idle: u32,
    /// Notified workers that do not look for work yet.
    pub called: u32,
    pub closing: bool,
    /// The time for which the state machine has requested its next `Timer`.
    pub wake_at: Option<Nanos>,
    /// Whether that time has changed, so that a worker must check it.
    pub timer_moved: bool,
    idle_poll: IdlePoll,
}

/// Whether one of the workers polls queues that no thread reaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum IdlePoll {
    #[default]
    No,
    /// A worker was called to poll, and starts when it is idle.
    Called,
    Kept,
}

/// How many workers to notify and to start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CalledWorkers {
    pub notified: u32,
    pub spawned: u32,
}

impl Workers {
    pub fn new(max: u32) -> Workers {
        Workers {
            max,
            ..Workers::default()
        }
    }

    /// For tests: creates counts of workers in these states.
    #[cfg(test)]
    pub fn with(max: u32, idle: u32, called: u32) -> Workers {
        Workers {
            max,
            idle,
            called,
            ..Workers::default()
        }
    }

    // ---- getters ----

    /// Whether there are no workers, so that callers must run every fetch.
    pub fn is_disabled(&self) -> bool {
        self.max == 0
    }

    /// Whether there are no workers to run a task's fetches.
    pub fn is_unavailable(&self) -> bool {
        self.max == 0 || self.closing
    }

    /// Whether a worker is free or can be started.
    pub fn has_room(&self) -> bool {
        self.idle + self.called > 0 || self.started < self.max
    }

    /// Whether a worker polls, or is about to poll, the queues that no thread reaps.
    pub fn polls_while_idle(&self) -> bool {
        self.idle_poll != IdlePoll::No
    }

    // ---- how many to call ----

    /// Decides how many workers to notify and how many to start, so that each of `things` jobs has a worker. If `idle_poll` is set, a
    /// worker should poll the queues.
    pub fn call(&mut self, things: usize, idle_poll: bool) -> CalledWorkers {
        let idle_poll = idle_poll
            && self.idle_poll == IdlePoll::No
            && (self.idle > 0 || self.started < self.max)
            && !self.closing;
        let things = (things + usize::from(self.timer_moved) + usize::from(idle_poll)) as u32;
        self.timer_moved = false;
        if idle_poll {
            self.idle_poll = IdlePoll::Called;
        }
        let wanted = things.saturating_sub(self.called);
        let notified = wanted.min(self.idle);
        let spawned = if self.closing {
            0
        } else {
            (wanted - notified).min(self.max - self.started)
        };
        self.idle -= notified;
        self.started += spawned;
        self.called += notified + spawned;
        CalledWorkers { notified, spawned }
    }

    /// Reports that a worker could not be started. After this call, no further workers are started.
    pub fn not_spawned(&mut self) {
        self.started -= 1;
        self.called = self.called.saturating_sub(1);
        self.max = self.started;
    }

    pub fn close(&mut self) {
        self.closing = true;
    }

    // ---- reports of a worker about itself ----

    /// Reports that a started worker now looks for work.
    pub fn begins(&mut self) {
        self.called = self.called.saturating_sub(1);
    }

    pub fn falls_idle(&mut self) {
        self.idle += 1;
    }

    /// Reports that a worker is awake. The notifying thread has already moved one worker from idle to called in the counts, so it does
    /// not matter which idle worker wakes up.
    pub fn wakes(&mut self) {
        match self.called {
            0 => self.idle = self.idle.saturating_sub(1),
            _ => self.called -= 1,
        }
    }

    /// How long a worker may sleep. At any time, one worker may poll the queues that no reader reaps. This worker starts polling when it
    /// is notified to do so, and stops after [`LINGER`] ticks without a transfer. If this worker polls, `quiet_ticks` is the number of
    /// ticks without a transfer.
    pub fn pause(&mut self, quiet_ticks: &mut Option<u32>, unattended: bool) -> Duration {
        if self.idle_poll == IdlePoll::Called {
            (self.idle_poll, *quiet_ticks) = (IdlePoll::Kept, Some(0));
        }
        let Some(quiet) = quiet_ticks.as_mut() else {
            return WAKEUP_TIMEOUT;
        };
        *quiet = if unattended { 0 } else { *quiet + 1 };
        if *quiet <= LINGER {
            return TICK;
        }
        (self.idle_poll, *quiet_ticks) = (IdlePoll::No, None);
        WAKEUP_TIMEOUT
    }

    // ---- the timer ----

    pub fn set_timer(&mut self, at: Nanos) {
        if self.wake_at.is_none_or(|old| at < old) {
            self.wake_at = Some(at);
            self.timer_moved = true;
        }
    }

    /// Whether the state machine's timer is due. Returns true only once for each timer.
    #[inline]
    pub fn take_due_timer(&mut self, now: Nanos) -> bool {
        let due = self.wake_at.is_some_and(|at| at <= now);
        if due {
            self.wake_at = None;
        }
        due
    }
}

/// All threads of a driver, so that they can be joined: workers, and those that reap queues for tasks.
///
/// A thread that has ended keeps its stack until it is joined. An engine may run for months, but each of its threads only for seconds. So
/// ended threads are joined not only when the driver ends, but also when another thread is started and when a reader is closed.
///
/// Example: a worker ends after 5 s. The next call of `spawn`, after 60 s, joins the ended worker before it starts another thread.
///
/// ```text
///   spawn ──► running ──► ended ──(next spawn, close, end of the driver)──► joined
/// ```
#[derive(Default)]
pub struct Threads {
    handles: Mutex<Vec<JoinHandle<()>>>,
}

impl Threads {
    /// Starts a thread. Returns false if the system refuses to start a thread.
    pub fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) -> bool {
        self.join_ended();
        if system::allowed(SystemRequest::Thread).is_err() {
            return false;
        }
        let Ok(thread) = thread::Builder::new().name(name.to_string()).spawn(work) else {
            return false;
        };
        self.handles().push(thread);
        true
    }

    pub fn join_ended(&self) {
        let mut handles = self.handles();
        let all = std::mem::take(&mut *handles);
        let (ended, alive): (Vec<_>, Vec<_>) = all.into_iter().partition(has_ended);
        *handles = alive;
        drop(handles);
        ended.into_iter().for_each(|thread| drop(thread.join()));
    }

    /// Number of threads that have not been joined yet.
    pub fn count(&self) -> usize {
        self.handles().len()
    }

    /// Joins all threads, including those that they start meanwhile.
    pub fn join_all(&self) {
        let me = thread::current().id();
        // An ending worker may have started another one, which is ending too: repeat until there is none.
        let pop = || self.handles().pop();
        while let Some(thread) = pop() {
            // If a source owned the last reader, a worker would wait for itself.
            if thread.thread().id() != me {
                drop(thread.join());
            }
        }
    }

    fn handles(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(not(shuttle))]
fn has_ended(thread: &JoinHandle<()>) -> bool {
    thread.is_finished()
}

/// Shuttle's threads cannot be asked; the end of the driver joins them.
#[cfg(shuttle)]
fn has_ended(_: &JoinHandle<()>) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_polls_until_it_was_quiet_for_long_enough() {
        let mut workers = Workers::with(1, 1, 0);
        let (notified, spawned) = (1, 0);
        assert_eq!(workers.call(0, true), CalledWorkers { notified, spawned });
        assert_eq!(
            workers.call(0, true),
            CalledWorkers::default(),
            "one polls, and is called once"
        );
        let mut ticks = None;
        assert_eq!(workers.pause(&mut ticks, true), TICK);
        let quiet = (0..LINGER)
            .filter(|_| workers.pause(&mut ticks, false) == TICK)
            .count();
        assert_eq!(quiet, LINGER as usize);
        assert_eq!(
            (workers.pause(&mut ticks, false), ticks),
            (WAKEUP_TIMEOUT, None)
        );
        assert!(!workers.polls_while_idle());
    }

    #[test]
    fn the_earliest_timer_rings_once() {
        let mut workers = Workers::new(1);
        [30, 20, 40]
            .into_iter()
            .for_each(|at| workers.set_timer(Nanos(at)));
        assert!(workers.timer_moved && !workers.take_due_timer(Nanos(19)));
        assert!(workers.take_due_timer(Nanos(20)) && !workers.take_due_timer(Nanos(99)));
    }
}
