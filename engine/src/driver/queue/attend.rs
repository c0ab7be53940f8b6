//! Which thread or task reaps a queue: a waiting caller, the reaper thread for tasks, or a polling task.
//!
//! ```text
//!   transfers in flight ──► a caller reaps: it waits in the queue
//!                       ──► a task polls; the reaper thread sleeps, and checks every `STALE` whether it still does
//!                       ──► the reaper thread waits in the queue, if tasks read and none polls
//!                       ──► an event loop (the NBD server) watches the descriptor of the queue, and reaps when it is readable
//!                       ──► none of them: the idle poll of a worker
//! ```
//!
//! Example: 8 tasks read one file. One task polls the queue and finds the completions of all eight; meanwhile the reaper thread, which is
//! started when a task first reads the file, sleeps. If the runtime of the polling task is busy for longer than a millisecond, the reaper
//! thread takes over.

use super::super::notifications::{Notification, Notifications, QueueKey};
use super::super::reads::Reads;
use super::{Queues, ReaperThread};
use crate::sync::Condvar;
use foreread_core::units::{FileId, Nanos};
use std::sync::Arc;
use std::time::Duration;

impl Queues {
    // ---- which thread reaps ----

    /// Reports that the caller that was woken to reap the file's queue is awake.
    pub fn caller_awake(&mut self, file: FileId) {
        self.table.update(file, |queue| queue.called = false);
    }

    /// Wakes a sleeping caller for each queue without a reaper. Returns false if a queue without a reaper has no sleeping caller.
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
                // A sleeping caller must not depend on a polling task.
                queue.called = reads.notify_one_of(FileId(number as u32), notifications);
                continue;
            }
            if queue.reaper_thread.on_standby && queue.poller.is_fresh(now) {
                // The tasks that the transfers belong to will poll in a moment, or that thread will.
                continue;
            }
            if queue.reaper_thread.here {
                let condvar = queue.reaper_thread.condvar.take();
                queue.called = condvar.is_some();
                notifications.extend(condvar.map(Notification::Notify));
                continue;
            }
            queue.called = reads.notify_one_of(FileId(number as u32), notifications);
            all &= queue.called;
        }
        all
    }

    // ---- tasks that poll ----

    /// Whether the task whose read has this slot and no data yet has itself polled again at once, and checks the queue then. Otherwise it
    /// leaves its waker for the task that polls, or for a thread.
    pub fn task_polls(
        &mut self,
        file: FileId,
        slot: u32,
        now: Nanos,
        notifications: &mut Notifications,
    ) -> bool {
        let full = self.table.polled.len() >= self.max_polled as usize;
        let polls = self.table.update(file, |queue| {
            let poller = &mut queue.poller;
            if poller.is(slot) {
                return poller.look(now);
            }
            if poller.attends(now) {
                return false;
            }
            let by_another = queue.reaped && !queue.reaped_for_tasks;
            if queue.closed || by_another || full && !poller.is_active() || !poller.begin(slot, now)
            {
                return false;
            }
            if queue.reaped {
                // The reaper thread is on standby from now on.
                queue.reaper_thread.wanted = true;
                notifications.add(Notification::Interrupt(queue.queue.weak()));
            }
            true
        });
        polls.unwrap_or(false)
    }

    pub fn is_polled_by(&self, file: FileId, slot: u32) -> bool {
        self.table
            .get(file)
            .is_some_and(|queue| queue.poller.is(slot))
    }

    /// Reports that the polling task has found a completion.
    pub fn poller_found(&mut self, file: FileId, now: Nanos) {
        self.table.update(file, |queue| queue.poller.found(now));
    }

    /// Ends the read of this slot. If its task polled the queue, another waiting task polls it from now on.
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

    // ---- threads that reap for tasks ----

    /// Reports that a task reads a file. If the file has a queue, a reaper thread is started for it.
    pub fn want_thread(&mut self, file: FileId, notifications: &mut Notifications) {
        self.table.update(file, |queue| {
            queue.reaper_thread.wanted = true;
            if !std::mem::replace(&mut queue.reaper_thread.here, true) {
                notifications.add(Notification::StartReaper(queue.key(file)));
            }
        });
    }

    /// Whether the reaper thread must continue, because tasks read or transfers are in flight. If the result is false, the thread is no
    /// longer recorded as the queue's reaper thread.
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

    /// Reports that the reaper thread could not be started. After this call, tasks do not poll the queue; a worker's idle poll checks it
    /// once per tick, so no read depends on a task.
    pub fn thread_not_started(&mut self, key: QueueKey) {
        self.table.update_by_key(key, |queue| {
            queue.reaper_thread = ReaperThread::default();
            queue.poller.forbid();
        });
    }

    /// Whether the reaper thread should sleep, because a task polls the queue.
    pub fn thread_on_standby(&self, key: QueueKey, now: Nanos) -> bool {
        let queue = self
            .table
            .get(key.file)
            .filter(|queue| queue.number == key.number);
        queue.is_some_and(|queue| queue.poller.is_fresh(now))
    }

    /// Puts the reaper thread to sleep while a caller reaps or a task polls. Returns the condvar on which it sleeps.
    pub fn thread_sleeps(&mut self, key: QueueKey, on_standby: bool) -> Option<Arc<Condvar>> {
        let condvar = Arc::new(Condvar::new());
        self.table.update_by_key(key, |queue| {
            queue.reaper_thread.condvar = Some(Arc::clone(&condvar));
            queue.reaper_thread.on_standby = on_standby;
        })?;
        self.waiting_threads += 1;
        Some(condvar)
    }

    /// Reports that the reaper thread is awake again.
    pub fn thread_awake(&mut self, key: QueueKey) {
        self.waiting_threads -= 1;
        self.table.update_by_key(key, |queue| {
            (queue.reaper_thread.condvar, queue.reaper_thread.on_standby) = (None, false);
            queue.called = false;
        });
    }

    /// Makes all reaper threads check their queues.
    pub fn interrupt_threads(&mut self, notifications: &mut Notifications) {
        self.table
            .queues
            .iter_mut()
            .flatten()
            .for_each(|queue| queue.interrupt_thread(notifications));
    }
}

/// How long a task polls without a completion. A fast device answers one read in 70 us, and 32 concurrent reads in bursts 400 us
/// apart.
const MOMENT: Duration = Duration::from_micros(500);
/// If the runtime has not polled the polling task for this long, the task is considered stalled.
pub const STALE: Duration = Duration::from_millis(1);
/// Number of such polling periods without a completion before polling pauses.
const MAX_EMPTY: u32 = 3;
/// Number of reads that then do not poll.
const REST: u32 = 256;
/// A pause without end.
const FOREVER: u32 = u32::MAX;
/// Under shuttle no time passes, so polls are counted instead of time.
const MAX_LOOKS: u32 = if cfg!(shuttle) { 3 } else { u32::MAX };

/// The task that polls a queue, so that its answer needs no other thread.
///
/// A task must not block. Without polling, three threads run for one completion. The kernel completes the transfer in the thread that
/// submitted it, the reaper thread wakes up, and the reaper thread wakes the task's thread. To avoid these wake-ups, a waiting task polls
/// for a moment: it wakes itself again and again, and each time checks the queue for all tasks of the file. Between two checks, the runtime
/// can run other tasks on the thread. Tasks do not poll if there is only one core, or if earlier polling found nothing because the storage
/// takes longer than [`MOMENT`].
///
/// Example: tasks A and B miss on one file. Task A polls the queue; task B registers its waker and waits. Task A finds the completion of
/// task B and wakes task B. Then task A checks again, finds its own completion, and ends. If task C also waits, it is woken and polls
/// from then on.
///
/// A transfer for a task is submitted immediately. In a measurement, 32 tasks that read concurrently reached 81 % of the throughput of 32
/// threads. When the polling task submitted the transfers of all tasks together, the tasks reached only 66 % of that throughput.
///
/// ```text
///   none ──a task waits──► polls ──its read ends──► another waiting task polls, or none
///    ▲                       ├─ no completion for MOMENT ──► none: the reaper thread; three times in a row: rest
///    └── rest: REST reads ◄──┘  not polled itself for STALE: the reaper thread, or another task
/// ```
#[derive(Debug, Default)]
pub struct Poller {
    /// The slot of the read whose task polls.
    slot: Option<u32>,
    /// When it started, or last found a completion.
    since: Nanos,
    /// When it last checked the queue.
    last: Nanos,
    looks: u32,
    empty: u32,
    rest: u32,
}

impl Poller {
    /// Whether a task polls the queue.
    pub fn is_active(&self) -> bool {
        self.slot.is_some()
    }

    pub fn is(&self, slot: u32) -> bool {
        self.slot == Some(slot)
    }

    /// Whether the polling task has checked the queue recently.
    pub fn is_fresh(&self, now: Nanos) -> bool {
        cfg!(shuttle) && self.is_active() || !cfg!(shuttle) && is_within(now, self.last, STALE)
    }

    /// Whether a task polls the queue and has checked it recently. The time of the last check matters, because a runtime may stop polling
    /// a task without dropping it.
    pub fn attends(&self, now: Nanos) -> bool {
        self.is_active() && self.is_fresh(now)
    }

    /// Whether the task of this slot may start to poll. No task may start while polling is paused.
    pub fn begin(&mut self, slot: u32, now: Nanos) -> bool {
        let rests = self.rest > 0;
        self.rest -= u32::from(rests && self.rest != FOREVER);
        if !rests {
            self.pass_on(slot, now);
        }
        !rests
    }

    /// Makes the task of this slot the polling task.
    pub fn pass_on(&mut self, slot: u32, now: Nanos) {
        (self.slot, self.since, self.last, self.looks) = (Some(slot), now, now, 0);
    }

    /// Records that the task has checked the queue once more. Returns false if the task has polled for long enough and must stop.
    pub fn look(&mut self, now: Nanos) -> bool {
        (self.last, self.looks) = (now, self.looks + 1);
        let goes_on =
            self.looks < MAX_LOOKS && (cfg!(shuttle) || is_within(now, self.since, MOMENT));
        if !goes_on {
            // It no longer polls.
            (self.slot, self.last) = (None, Nanos(0));
            self.empty += 1;
            if self.empty >= MAX_EMPTY {
                (self.empty, self.rest) = (0, self.rest.max(REST));
            }
        }
        goes_on
    }

    /// Reports that polling has found a completed transfer.
    pub fn found(&mut self, now: Nanos) {
        (self.since, self.looks, self.empty) = (now, 0, 0);
    }

    pub fn end(&mut self) {
        self.slot = None;
    }

    /// Forbids polling by tasks from now on.
    pub fn forbid(&mut self) {
        (self.slot, self.rest) = (None, FOREVER);
    }
}

fn is_within(now: Nanos, since: Nanos, time: Duration) -> bool {
    u128::from(now.since(since)) < time.as_nanos()
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    /// Microseconds.
    fn us(us: u64) -> Nanos {
        Nanos(us * 1000)
    }

    #[test]
    fn it_polls_while_transfers_complete_and_rests_otherwise() {
        let mut poller = Poller::default();
        assert!(poller.begin(7, us(0)) && poller.is(7) && !poller.is(8));
        assert!(poller.look(us(450)));
        poller.found(us(450));
        assert!(poller.look(us(900)), "a moment from what it found");
        assert!(!poller.look(us(960)) && !poller.is_active());
        assert!(!poller.is_fresh(us(10_000)), "a thread goes on at once");
        poller.pass_on(9, us(10_000));
        assert!(poller.is(9) && poller.is_fresh(us(10_900)) && !poller.is_fresh(us(11_100)));
        for _ in 1..MAX_EMPTY {
            assert!(poller.begin(7, us(12_000)) && !poller.look(us(12_600)));
        }
        assert_eq!((0..REST).filter(|_| poller.begin(7, us(13_000))).count(), 0);
        assert!(poller.begin(7, us(14_000)), "and tries again");
        poller.forbid();
        assert!(!poller.is_active() && (0..2 * REST).all(|_| !poller.begin(7, us(15_000))));
    }
}
