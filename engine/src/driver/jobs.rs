//! Fetches that wait to be run, reads that wait for their bytes, and the threads and tasks to wake for them.
//!
//! Never: runs or wakes anything; it only says what and whom.
//!
//! ```text
//!   submitted ──► demand ─┬─ a caller that waits for it ──┐
//!             └─► ahead ──┴─ a worker, demand first ──────┴──► running ──► answered
//!                     └─ cancelled before anybody took it ──► answered without a transfer
//! ```

use super::queue::Batch;
use super::state::File;
use crate::chunk::Chunk;
use crate::source::Queue;
use crate::store::Lease;
use crate::sync::Condvar;
use foreread_core::event::{Class, Error};
use foreread_core::units::{ByteRange, FetchId, FileId, LeaseId};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::task::Waker;

/// A fetch to be run.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    pub fetch: FetchId,
    pub file: FileId,
    pub range: ByteRange,
    /// The version of the file it was made for.
    pub version: u64,
}

/// Part of a fetch: the pages that lie in one group.
pub struct Part {
    /// First byte.
    pub start: u64,
    pub chunk: Chunk,
}

/// Fetches that have not begun.
#[derive(Default)]
pub struct Jobs {
    demand: VecDeque<Job>,
    ahead: VecDeque<Job>,
}

impl Jobs {
    pub fn len(&self) -> usize {
        self.demand.len() + self.ahead.len()
    }

    pub fn push(&mut self, job: Job, class: Class) {
        match class {
            Class::Demand => self.demand.push_back(job),
            Class::Ahead => self.ahead.push_back(job),
        }
    }

    /// Is there a job that [`Jobs::take_for`] would give?
    pub fn has_for(&self, file: FileId, range: ByteRange, alone: bool) -> bool {
        let demand = self.demand.iter().any(|job| alone || job.file == file);
        demand || self.ahead.iter().any(|job| brings(job, file, range))
    }

    /// A demand job: one that brings bytes of `range`, else any of the same file. `alone`, without workers, else any: its
    /// own caller may be gone. With workers a caller has no part in another file, whose source may take any time.
    pub fn take_demand(&mut self, file: FileId, range: ByteRange, alone: bool) -> Option<Job> {
        let place = |fits: &dyn Fn(&Job) -> bool| self.demand.iter().position(fits);
        let found = place(&|job| brings(job, file, range)).or_else(|| place(&|job| alone || job.file == file));
        self.demand.remove(found?)
    }

    /// A job for a caller that waits for `range`: one that brings bytes of it, else as [`Jobs::take_demand`].
    pub fn take_for(&mut self, file: FileId, range: ByteRange, alone: bool) -> Option<Job> {
        if !self.demand.iter().any(|job| brings(job, file, range))
            && let Some(i) = self.ahead.iter().position(|job| brings(job, file, range))
        {
            return self.ahead.remove(i);
        }
        self.take_demand(file, range, alone)
    }

    /// The next job of a worker, and whether a caller waits for it.
    pub fn take_any(&mut self) -> Option<(Job, Class)> {
        let demand = self.demand.pop_front().map(|job| (job, Class::Demand));
        demand.or_else(|| self.ahead.pop_front().map(|job| (job, Class::Ahead)))
    }

    /// Those that wait to be run, demand first.
    pub fn iter(&self) -> impl Iterator<Item = &Job> {
        self.demand.iter().chain(&self.ahead)
    }

    /// Offers every job, demand first; takes out those that are accepted.
    pub fn take_if(&mut self, mut accept: impl FnMut(&Job, Class) -> bool) {
        self.demand.retain(|job| !accept(job, Class::Demand));
        self.ahead.retain(|job| !accept(job, Class::Ahead));
    }

    /// Jobs that were taken out and not begun. A caller may wait for them, so they are demand.
    pub fn put_back(&mut self, jobs: Vec<Job>) {
        self.demand.extend(jobs);
    }

    /// Takes out a job of which the result is of no use.
    pub fn cancel(&mut self, fetch: FetchId) -> Option<Job> {
        [&mut self.demand, &mut self.ahead].into_iter().find_map(|queue| {
            let i = queue.iter().position(|job| job.fetch == fetch)?;
            queue.remove(i)
        })
    }
}

fn brings(job: &Job, file: FileId, range: ByteRange) -> bool {
    job.file == file && !job.range.intersect(range).is_empty()
}

/// A served piece, ready to be copied.
pub struct Ready {
    pub lease: LeaseId,
    pub range: ByteRange,
    pub bytes: Lease,
    /// Every byte of the range is in `bytes`.
    pub whole: bool,
    pub last: bool,
}

/// One slot for a read in progress; used again and again.
pub struct Wait {
    pub ready: VecDeque<Ready>,
    pub failed: Option<Error>,
    /// Its caller sleeps and has not been notified. The notifier clears it.
    pub asleep: bool,
    /// The file that its caller sleeps for.
    pub file: FileId,
    /// The queue that its caller reaps. The thread that interrupts it clears it.
    pub reaps: Option<Weak<dyn Queue>>,
    pub condvar: Arc<Condvar>,
    /// The waker of the task whose read it is, while the task waits. The thread that wakes it clears it.
    pub waker: Option<Waker>,
    /// That task waits for a source's word, and not for bytes.
    pub asks: bool,
}

impl Wait {
    pub fn new() -> Wait {
        let condvar = Arc::new(Condvar::new());
        let (ready, file) = (VecDeque::new(), FileId(0));
        Wait { ready, failed: None, asleep: false, file, reaps: None, condvar, waker: None, asks: false }
    }
}

/// Whose wait is over.
#[derive(Default)]
pub struct Notifications {
    /// Condvars of callers, and of threads that reap for tasks.
    pub condvars: Vec<Arc<Condvar>>,
    /// Tasks.
    pub wakers: Vec<Waker>,
    /// Queues whose reaper has an answer.
    pub queues: Vec<Weak<dyn Queue>>,
    /// Queues that tasks read from and no thread reaps: the file, and the number of its queue.
    pub attend: Vec<(FileId, u64)>,
    /// Files without readers, to be let go of without the lock: closing a source may take its time, and its queue waits
    /// for what is under way.
    pub gone: Vec<File>,
}

impl Notifications {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.condvars.is_empty()
            && self.wakers.is_empty()
            && self.queues.is_empty()
            && self.attend.is_empty()
            && self.gone.is_empty()
    }
}

/// The worker threads. `idle + called` of them wait at their condvar, or are being started.
#[derive(Default)]
pub struct ThreadPool {
    pub most: u32,
    pub started: u32,
    pub idle: u32,
    /// Woken, not yet arrived.
    pub called: u32,
    pub closing: bool,
    /// The time of the timer is another: one of them has to look at it.
    pub timer_moved: bool,
    /// Whether a worker polls queues that no thread reaps.
    pub idle_poll: IdlePoll,
}

/// Whether one of the workers polls queues that no thread reaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdlePoll {
    #[default]
    No,
    /// One has been called for it, and takes it once it is idle.
    Called,
    Kept,
}

/// Whom to wake once the lock is given up.
#[derive(Default)]
pub struct Wakeups {
    /// What is handed over first.
    pub batches: Vec<Batch>,
    pub notifications: Notifications,
    /// How many of the callers sleep for what is left over.
    pub sleepers_rung: u32,
    /// How many idle workers.
    pub workers: u32,
    /// How many workers to start.
    pub spawn: u32,
}

impl Wakeups {
    /// Calls a worker for each job that none has been called for, and callers that sleep for demand that is left
    /// over: no demand fetch waits for a worker. No thread is called twice for one thing. `others` is how many
    /// things there are besides the jobs; `idle_poll`: a worker should poll.
    #[cold]
    pub fn plan(
        mut self,
        jobs: &Jobs,
        workers: &mut ThreadPool,
        waits: &mut [Wait],
        (others, idle_poll): (usize, bool),
    ) -> Option<Wakeups> {
        let wakeups = &mut self;
        let idle_poll = idle_poll
            && workers.idle_poll == IdlePoll::No
            && (workers.idle > 0 || workers.started < workers.most)
            && !workers.closing;
        let things = (jobs.len() + others + usize::from(workers.timer_moved) + usize::from(idle_poll)) as u32;
        workers.timer_moved = false;
        if idle_poll {
            workers.idle_poll = IdlePoll::Called;
        }
        let wanted = things.saturating_sub(workers.called);
        wakeups.workers = wanted.min(workers.idle);
        if !workers.closing {
            wakeups.spawn = (wanted - wakeups.workers).min(workers.most - workers.started);
        }
        workers.idle -= wakeups.workers;
        workers.started += wakeups.spawn;
        workers.called += wakeups.workers + wakeups.spawn;
        let left_over = jobs.demand.len().saturating_sub(workers.called as usize);
        let alone = workers.most == 0;
        let helps = |wait: &Wait| wait.asleep && (alone || jobs.demand.iter().any(|job| job.file == wait.file));
        for wait in waits.iter_mut().filter(|wait| left_over > 0 && helps(wait)).take(left_over) {
            wait.asleep = false;
            wakeups.sleepers_rung += 1;
            wakeups.notifications.condvars.push(Arc::clone(&wait.condvar));
        }
        let none =
            wakeups.notifications.is_empty() && wakeups.batches.is_empty() && wakeups.workers + wakeups.spawn == 0;
        (!none).then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(demand: u64, ahead: u64) -> Jobs {
        let mut jobs = Jobs::default();
        for n in 0..demand + ahead {
            let class = if n < demand { Class::Demand } else { Class::Ahead };
            jobs.push(
                Job { fetch: FetchId(n), file: FileId(0), range: ByteRange::between(n, n + 1), version: 0 },
                class,
            );
        }
        jobs
    }

    /// (demand, ahead), (idle, called, may still be started), asleep; then workers called, started, callers rung.
    #[test]
    fn everybody_needed_is_called_and_nobody_twice() {
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
            let mut workers = ThreadPool { most: free, idle, called, ..ThreadPool::default() };
            let mut waits: Vec<Wait> = (0..9).map(|n| Wait { asleep: n < asleep, ..Wait::new() }).collect();
            let plan = |workers: &mut ThreadPool, waits: &mut [Wait]| {
                let wakeups =
                    Wakeups::default().plan(&jobs(demand, ahead), workers, waits, (0, false)).unwrap_or_default();
                (wakeups.workers, wakeups.spawn, wakeups.notifications.condvars.len())
            };
            assert_eq!(plan(&mut workers, &mut waits), want, "{demand} {ahead} {idle} {called} {free} {asleep}");
            assert_eq!((workers.called, workers.started), (called + want.0 + want.1, want.1));
            assert_eq!(waits.iter().filter(|w| w.asleep).count(), asleep - want.2);
            let again = plan(&mut workers, &mut waits);
            assert_eq!((again.0, again.1), (0, 0), "workers are called once");
        }
    }

    #[test]
    fn callers_take_their_own_first_and_workers_demand() {
        let mut jobs = jobs(2, 2);
        let mine = |n| ByteRange::between(n, n + 1);
        let take = |jobs: &mut Jobs, n| jobs.take_for(FileId(0), mine(n), false).map(|job| job.fetch.0);
        assert_eq!(take(&mut jobs, 3), Some(3), "readahead it waits for");
        assert_eq!(take(&mut jobs, 1), Some(1));
        assert!(jobs.has_for(FileId(0), mine(9), false));
        assert!(!jobs.has_for(FileId(1), mine(0), false), "another file's source may hang");
        assert!(jobs.take_for(FileId(1), mine(0), false).is_none());
        assert!(jobs.has_for(FileId(1), mine(0), true), "nothing else would run it");
        assert_eq!(take(&mut jobs, 9), Some(0), "demand of another reader");
        assert_eq!(take(&mut jobs, 9), None, "no readahead of another");
        assert!(!jobs.has_for(FileId(1), mine(2), true) && jobs.has_for(FileId(0), mine(2), false));
        jobs.push(Job { fetch: FetchId(8), file: FileId(0), range: mine(8), version: 0 }, Class::Demand);
        assert_eq!(jobs.take_any().map(|(job, _)| job.fetch.0), Some(8), "a worker takes demand first");
        assert!(jobs.cancel(FetchId(7)).is_none() && jobs.cancel(FetchId(2)).is_some() && jobs.len() == 0);
    }
}
