//! Work deferred until the driver lock is released: notifications, thread starts, drops.
//!
//! A condvar is notified, a waker called and a source dropped only without the lock: another thread would run into it, a
//! waker is foreign code, and closing a source may take any time. So the state collects them here, and the
//! thread that releases the lock runs them.
//!
//! Example: bytes arrive that two sleeping callers and one task wait for. Two condvars and one waker are collected; the
//! thread that delivered the bytes releases the lock, notifies both condvars and calls the waker.

use super::lock::{self, Remote};
use crate::source::{Cause, Queue, Source};
use crate::sync::Condvar;
use foreread_core::units::FileId;
use std::sync::{Arc, Weak};
use std::task::Waker;

/// Identifies the queue of a file: another file may have the same file number by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueKey {
    pub file: FileId,
    pub number: u64,
}

#[derive(Default)]
pub struct Notifications {
    /// Something is in one of the lists.
    any: bool,
    /// Condvars of callers, and of threads that reap for tasks.
    condvars: Vec<Arc<Condvar>>,
    wakers: Vec<Waker>,
    /// Queues with an answer for their reaper.
    interrupts: Vec<Weak<dyn Queue>>,
    /// Queues that tasks read from and no thread reaps.
    unreaped: Vec<QueueKey>,
    closed_sources: Vec<Remote<dyn Source>>,
    closed_queues: Vec<Remote<dyn Queue>>,
    /// Errors of sources that have been reported.
    causes: Vec<Cause>,
}

impl Notifications {
    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.any
    }

    /// How many threads are notified.
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

    /// A thread is to be started that reaps this queue.
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

    /// The queues for which a thread is to be started.
    pub fn unreaped(&self) -> &[QueueKey] {
        &self.unreaped
    }

    /// Calls the wakers and drops closed sources.
    pub fn wake_tasks(self) {
        self.wakers.into_iter().for_each(lock::wake);
    }
}
