//! What a thread does once it has given up the lock: which threads and tasks it wakes, and what it submits.
//!
//! Example: one demand fetch and five readahead fetches wait, two workers are idle and one may still be started. Two are
//! notified and one is started. With no worker left for the demand fetch, a sleeping caller would be notified to run it.

use super::jobs::Jobs;
use super::notifications::Notifications;
use super::queue::Batch;
use super::reads::Reads;
use super::workers::{CalledWorkers, Workers};

/// See the head of this file.
#[derive(Default)]
pub struct Wakeups {
    /// What is submitted first.
    pub batches: Vec<Batch>,
    pub notifications: Notifications,
    pub workers: CalledWorkers,
}

impl Wakeups {
    /// Calls a worker for each job for which none has been called, and callers that sleep for demand that is left
    /// over: no demand fetch waits for a worker. No thread is called twice for one thing. `idle_poll`: a worker should
    /// poll the queues.
    #[cold]
    pub fn plan(
        mut self,
        jobs: &Jobs,
        workers: &mut Workers,
        reads: &mut Reads,
        idle_poll: bool,
    ) -> Option<Wakeups> {
        self.workers = workers.call(jobs.len() + jobs.checks(), idle_poll);
        let left_over = jobs.demand_len().saturating_sub(workers.called() as usize);
        let alone = workers.is_disabled();
        reads.notify_sleepers(
            left_over,
            |file| alone || jobs.has_demand_of(file),
            &mut self.notifications,
        );
        let none = self.notifications.is_empty()
            && self.batches.is_empty()
            && self.workers == CalledWorkers::default();
        (!none).then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::super::jobs::tests::jobs;
    use super::*;
    use foreread_core::units::FileId;

    /// (demand, ahead), (idle, called, may still be started), asleep; then workers called, started, callers notified.
    #[test]
    fn all_that_are_needed_are_called_and_none_twice() {
        for ((demand, ahead), (idle, called, free), asleep, want) in [
            ((0, 1), (0, 0, 2), 1, (0, 1, 0)),
            ((0, 1), (2, 0, 2), 1, (1, 0, 0)),
            ((0, 1), (2, 1, 2), 1, (0, 0, 0)),
            ((1, 0), (0, 0, 0), 1, (0, 0, 1)),
            ((1, 0), (0, 0, 0), 0, (0, 0, 0)),
            ((1, 3), (1, 0, 1), 2, (1, 1, 0)),
            ((3, 3), (1, 0, 0), 9, (1, 0, 2)),
            ((0, 5), (0, 0, 0), 9, (0, 0, 0)),
        ] {
            let mut workers = Workers::with(free, idle, called);
            let mut reads = Reads::default();
            let slots: Vec<u32> = (0..9).filter_map(|_| reads.take_slot()).collect();
            slots
                .iter()
                .take(asleep)
                .for_each(|&slot| drop(reads.falls_asleep(slot, FileId(0))));
            let plan = |workers: &mut Workers, reads: &mut Reads| {
                let wakeups = Wakeups::default()
                    .plan(&jobs(demand, ahead), workers, reads, false)
                    .unwrap_or_default();
                (
                    wakeups.workers.notified,
                    wakeups.workers.spawned,
                    wakeups.notifications.condvars(),
                )
            };
            assert_eq!(
                plan(&mut workers, &mut reads),
                want,
                "{demand} {ahead} {idle} {called} {free} {asleep}"
            );
            assert_eq!(
                (workers.called(), workers.started()),
                (called + want.0 + want.1, want.1)
            );
            assert_eq!(reads.sleepers() as usize, asleep - want.2);
            let again = plan(&mut workers, &mut reads);
            assert_eq!((again.0, again.1), (0, 0), "workers are called once");
        }
    }
}
