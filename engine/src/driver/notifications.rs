//! Work deferred until the driver lock is released: notifications, thread starts, drops.
//!
//! A condvar is notified, a waker called and a source dropped only after the lock is released. A thread that is notified under the lock
//! would immediately wait for the lock, a waker is foreign code, and closing a source may take any time. So the state collects
//! notifications, waker calls and drops here, and the thread that releases the lock runs them.
//!
//! Example: bytes arrive for two sleeping callers and one task. The state collects two condvars and one waker. The thread that delivered
//! the bytes releases the lock, notifies both condvars and calls the waker.

use super::lock::{self, Remote};
use crate::source::{Cause, Queue, Source};
use crate::sync::Condvar;
use foreread_core::units::FileId;
use std::sync::{Arc, Weak};
use std::task::Waker;

/// Identifies the queue of a file. The key stays unique even if the file number is reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueKey {
    pub file: FileId,
    pub number: u64,
}

#[derive(Default)]
pub struct Notifications {
    /// Whether one of the lists has an entry.
    any: bool,
    /// Condvars of callers, and of threads that reap on behalf of tasks.
    condvars: Vec<Arc<Condvar>>,
    wakers: Vec<Waker>,
    /// Queues whose reaper must be interrupted because its answer is there.
    interrupts: Vec<Weak<dyn Queue>>,
    /// Queues that tasks read from and that no thread reaps.
    unreaped: Vec<QueueKey>,
    closed_sources: Vec<Remote<dyn Source>>,
    closed_queues: Vec<Remote<dyn Queue>>,
    /// Errors of sources that were already reported.
    causes: Vec<Cause>,
}

impl Notifications {
    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.any
    }

    /// Number of condvars to notify.
    #[cfg(test)]
    pub fn condvars(&self) -> usize {
        self.condvars.len()
    }

    // ---- collected under the lock ----

    pub fn notify(&mut self, condvar: Arc<Condvar>) {
        self.any = true;
        self.condvars.push(condvar);
    }

    pub fn wake(&mut self, waker: Waker) {
        self.any = true;
        self.wakers.push(waker);
    }

    pub fn interrupt(&mut self, queue: Weak<dyn Queue>) {
        self.any = true;
        self.interrupts.push(queue);
    }

    /// Requests the start of a thread that reaps this queue.
    pub fn start_reaper(&mut self, queue: QueueKey) {
        self.any = true;
        self.unreaped.push(queue);
    }

    pub fn drop_source(&mut self, source: Remote<dyn Source>) {
        self.any = true;
        self.closed_sources.push(source);
    }

    pub fn drop_queue(&mut self, queue: Remote<dyn Queue>) {
        self.any = true;
        self.closed_queues.push(queue);
    }

    pub fn drop_cause(&mut self, cause: Cause) {
        self.any = true;
        self.causes.push(cause);
    }

    // ---- delivered without the lock ----

    pub fn notify_threads(&self) {
        self.condvars
            .iter()
            .for_each(|condvar| condvar.notify_one());
        self.interrupts
            .iter()
            .filter_map(Weak::upgrade)
            .for_each(|queue| queue.interrupt());
    }

    /// The queues for which a reaper thread must be started.
    pub fn unreaped(&self) -> &[QueueKey] {
        &self.unreaped
    }

    /// Calls the wakers of tasks, and drops closed sources.
    pub fn wake_tasks(self) {
        self.wakers.into_iter().for_each(lock::wake);
    }
}
