//! Work deferred until the driver lock is released: notifications, thread starts, drops.
//!
//! A condvar is notified, a waker called and a source dropped only after the lock is released. A thread that is notified under the lock
//! would immediately wait for the lock, a waker is foreign code, and closing a source may take any time. So the state collects
//! notifications, waker calls and drops here, and the thread that releases the lock runs them.
//!
//! Example: bytes arrive for two sleeping callers and one task. The state collects two condvars and one waker. The thread that delivered
//! the bytes releases the lock, notifies both condvars and calls the waker.

use super::lock;
use crate::source::Queue;
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

/// What is done once the lock is released.
pub enum Notification {
    /// Notify a caller, or a thread that reaps on behalf of tasks.
    Notify(Arc<Condvar>),
    /// Interrupt the reaper of a queue, because its answer is there.
    Interrupt(Weak<dyn Queue>),
    /// Start a thread that reaps a queue, because tasks read from it and no thread reaps it.
    StartReaper(QueueKey),
    /// Wake a task.
    Wake(Waker),
    /// Drop a closed source or queue, or the error of a source, which may be of the source's own type.
    Drop(Box<dyn Send>),
}

#[derive(Default)]
pub struct Notifications(Vec<Notification>);

impl Notifications {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[cfg(test)]
    pub fn condvars(&self) -> usize {
        let is_condvar = |one: &&Notification| matches!(one, Notification::Notify(_));
        self.0.iter().filter(is_condvar).count()
    }

    // ---- collected under the lock ----

    pub fn add(&mut self, one: Notification) {
        self.0.push(one);
    }

    pub fn extend(&mut self, some: impl IntoIterator<Item = Notification>) {
        self.0.extend(some);
    }

    // ---- delivered without the lock ----

    pub fn notify_threads(&self) {
        for one in &self.0 {
            match one {
                Notification::Notify(condvar) => condvar.notify_one(),
                Notification::Interrupt(queue) => {
                    queue.upgrade().iter().for_each(|queue| queue.interrupt());
                }
                _ => {}
            }
        }
    }

    /// The queues for which a reaper thread must be started.
    pub fn unreaped(&self) -> impl Iterator<Item = QueueKey> {
        self.0.iter().filter_map(|one| match one {
            Notification::StartReaper(key) => Some(*key),
            _ => None,
        })
    }

    /// Calls the wakers of tasks, and then drops what is no longer used, which may take any time.
    pub fn wake_tasks(self) {
        for one in &self.0 {
            if let Notification::Wake(waker) = one {
                lock::wake(waker);
            }
        }
        for one in self.0 {
            if let Notification::Drop(unused) = one {
                drop(unused);
            }
        }
    }
}
