//! Which thread or task attends to a queue: a caller that waits, the thread that reaps for tasks, or a task that polls.
//!
//! ```text
//!   transfers in flight ──► a caller reaps: it waits in the queue
//!                       ──► a task polls (`poller.rs`); the reaper thread sleeps and looks once in `STALE` whether it does
//!                       ──► the reaper thread waits in the queue, while tasks read and none polls
//!                       ──► none of them: the idle poll of a worker
//! ```
//!
//! Example: 8 tasks read one file. One polls and finds what ends for all; the thread that was started for the others sleeps.
//! The runtime of the first runs something long: after a millisecond the thread reaps.

use super::super::notifications::{Notifications, QueueKey};
use super::super::reads::Reads;
use super::{Queues, ReaperThread};
use crate::sync::Condvar;
use foreread_core::units::{FileId, Nanos};
use std::sync::Arc;

/// How a task that has nothing yet goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskWait {
    /// It has itself polled again at once, and looks into the queue then.
    Polls,
    /// It leaves its waker to the task that polls, or to a thread.
    Leaves,
}

impl Queues {
    // ---- which thread reaps ----

    /// The caller that was woken to reap is awake.
    pub fn caller_awake(&mut self, file: FileId) {
        self.table.update(file, |queue| queue.called = false);
    }

    /// Wakes a sleeping caller for each queue without a reaper. False when a queue has no such caller.
    pub fn wake_reapers(
        &mut self,
        now: Nanos,
        reads: &mut Reads,
        notifications: &mut Notifications,
    ) -> bool {
        let mut all = true;
        for (number, queue) in self.table.queues.iter_mut().enumerate() {
            let Some(queue) = queue
                .as_mut()
                .filter(|queue| queue.is_unattended() && !queue.called)
            else {
                continue;
            };
            if queue.poller.attends(now) {
                // A thread that sleeps does not depend on a task.
                queue.called = reads.notify_one_of(FileId(number as u32), notifications);
                continue;
            }
            if queue.reaper_thread.on_standby && queue.poller.is_fresh(now) {
                // The tasks that it was for look in a moment, or that thread does.
                continue;
            }
            if queue.reaper_thread.here {
                let condvar = queue.reaper_thread.condvar.take();
                queue.called = condvar.is_some();
                condvar
                    .into_iter()
                    .for_each(|condvar| notifications.notify(condvar));
                continue;
            }
            queue.called = reads.notify_one_of(FileId(number as u32), notifications);
            all &= queue.called;
        }
        all
    }

    // ---- tasks that poll ----

    /// How the task of this slot, which has nothing yet, goes on.
    pub fn task_waits(
        &mut self,
        file: FileId,
        slot: u32,
        now: Nanos,
        notifications: &mut Notifications,
    ) -> TaskWait {
        let full = self.table.polled.len() >= self.max_polled as usize;
        let wait = self.table.update(file, |queue| {
            let poller = &mut queue.poller;
            if poller.is(slot) {
                return if poller.look(now) {
                    TaskWait::Polls
                } else {
                    TaskWait::Leaves
                };
            }
            if poller.attends(now) {
                return TaskWait::Leaves;
            }
            let by_another = queue.reaped && !queue.reaped_for_tasks;
            if queue.closed || by_another || full && !poller.is_active() || !poller.begin(slot, now)
            {
                return TaskWait::Leaves;
            }
            if queue.reaped {
                // The thread is on standby from now on.
                queue.reaper_thread.wanted = true;
                notifications.interrupt(queue.queue.weak());
            }
            TaskWait::Polls
        });
        wait.unwrap_or(TaskWait::Leaves)
    }

    /// The task of this slot polls the file's queue.
    pub fn is_polled_by(&self, file: FileId, slot: u32) -> bool {
        self.table
            .get(file)
            .is_some_and(|queue| queue.poller.is(slot))
    }

    /// The task that polls has found something.
    pub fn poller_found(&mut self, file: FileId, now: Nanos) {
        self.table.update(file, |queue| queue.poller.found(now));
    }

    /// The read of this slot is over. If its task polled, another that waits does from now on.
    pub fn end_poll(
        &mut self,
        file: FileId,
        slot: u32,
        now: Nanos,
        reads: &mut Reads,
        notifications: &mut Notifications,
    ) {
        if !self.is_polled_by(file, slot) {
            return;
        }
        self.table.update(file, |queue| {
            queue.poller.end();
            let next = reads.wake_task_of(file, notifications);
            next.into_iter()
                .for_each(|next| queue.poller.pass_on(next, now));
        });
    }

    // ---- the threads that reap for tasks ----

    /// A task reads a file: a thread reaps its queue, if it has one.
    pub fn want_thread(&mut self, file: FileId, notifications: &mut Notifications) {
        self.table.update(file, |queue| {
            queue.reaper_thread.wanted = true;
            if !std::mem::replace(&mut queue.reaper_thread.here, true) {
                notifications.start_reaper(QueueKey {
                    file,
                    number: queue.number,
                });
            }
        });
    }

    /// Whether that thread goes on: while tasks read, or transfers are in flight. When not, it is gone.
    pub fn thread_goes_on(&mut self, key: QueueKey, now: Nanos, closing: bool) -> bool {
        let goes_on = self.table.update_by_key(key, |queue| {
            let wanted = std::mem::take(&mut queue.reaper_thread.wanted);
            let goes_on = !closing && (wanted || queue.in_flight > 0 || queue.poller.is_fresh(now));
            if !goes_on {
                queue.reaper_thread = ReaperThread::default();
            }
            goes_on
        });
        goes_on.unwrap_or(false)
    }

    /// That thread could not be started: the idle poll looks in once in a tick, and no read depends on a task.
    pub fn thread_not_started(&mut self, key: QueueKey) {
        self.table.update_by_key(key, |queue| {
            queue.reaper_thread = ReaperThread::default();
            queue.poller.forbid();
        });
    }

    /// Whether that thread is on standby, because a task polls.
    pub fn thread_on_standby(&self, key: QueueKey, now: Nanos) -> bool {
        let queue = self
            .table
            .get(key.file)
            .filter(|queue| queue.number == key.number);
        queue.is_some_and(|queue| queue.poller.is_fresh(now))
    }

    /// That thread waits while a caller reaps, or is on standby: where it sleeps.
    pub fn thread_sleeps(&mut self, key: QueueKey, on_standby: bool) -> Option<Arc<Condvar>> {
        let condvar = Arc::new(Condvar::new());
        self.table.update_by_key(key, |queue| {
            queue.reaper_thread.condvar = Some(Arc::clone(&condvar));
            queue.reaper_thread.on_standby = on_standby;
        })?;
        self.waiting_threads += 1;
        Some(condvar)
    }

    /// That thread is awake again.
    pub fn thread_awake(&mut self, key: QueueKey) {
        self.waiting_threads -= 1;
        self.table.update_by_key(key, |queue| {
            (queue.reaper_thread.condvar, queue.reaper_thread.on_standby) = (None, false);
            queue.called = false;
        });
    }

    /// Every such thread looks up.
    pub fn interrupt_threads(&mut self, notifications: &mut Notifications) {
        self.table
            .queues
            .iter_mut()
            .flatten()
            .for_each(|queue| queue.interrupt_thread(notifications));
    }
}
