//! Fetches that wait to be run, reads that wait for their bytes, and who has to be woken for them.
//!
//! Never: runs or wakes anything; it only says what and whom.
//!
//! ```text
//!   submitted ──► demand ─┬─ a caller that waits for it ──┐
//!             └─► ahead ──┴─ a worker, demand first ──────┴──► running ──► answered
//!                     └─ cancelled before anybody took it ──► answered without a transfer
//! ```

use super::line::Batch;
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

/// Fetches that nobody has begun.
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

    /// The next job of a worker, and whether somebody waits for it.
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

    /// Jobs that were taken out and not begun. Somebody may wait for them, so they are demand.
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

/// One place for a read in progress; used again and again.
pub struct Wait {
    pub ready: VecDeque<Ready>,
    pub failed: Option<Error>,
    /// Its caller sleeps and nobody has rung yet. Whoever rings takes that note away.
    pub asleep: bool,
    /// The file that its caller sleeps for.
    pub file: FileId,
    /// The queue at which its caller sits. Whoever interrupts it takes that note away.
    pub reaps: Option<Weak<dyn Queue>>,
    pub bell: Arc<Condvar>,
    /// The task whose read it is, if it is a task's and has nothing to do. Whoever wakes it takes that note away.
    pub waker: Option<Waker>,
    /// That task waits for a source's word, and not for bytes.
    pub asks: bool,
}

impl Wait {
    pub fn new() -> Wait {
        let bell = Arc::new(Condvar::new());
        let (ready, file) = (VecDeque::new(), FileId(0));
        Wait { ready, failed: None, asleep: false, file, reaps: None, bell, waker: None, asks: false }
    }
}

/// Whose wait is over.
#[derive(Default)]
pub struct News {
    /// Callers, and those who wait for a seat at a queue.
    pub bells: Vec<Arc<Condvar>>,
    /// Tasks.
    pub wakers: Vec<Waker>,
    /// Queues whose reaper has an answer.
    pub queues: Vec<Weak<dyn Queue>>,
    /// Queues that tasks read from and nobody attends to: the file, and the number of its line.
    pub attend: Vec<(FileId, u64)>,
    /// Files without readers, to be let go of without the lock: closing a source may take its time, and its queue waits
    /// for what is under way.
    pub gone: Vec<File>,
}

impl News {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bells.is_empty()
            && self.wakers.is_empty()
            && self.queues.is_empty()
            && self.attend.is_empty()
            && self.gone.is_empty()
    }
}

/// The worker threads. `idle + called` of them wait at their bell, or are being started.
#[derive(Default)]
pub struct Crew {
    pub most: u32,
    pub started: u32,
    pub idle: u32,
    /// Woken, not yet arrived.
    pub called: u32,
    pub closing: bool,
    /// The time of the timer is another: one of them has to look at it.
    pub timer_moved: bool,
    /// Who looks after transfers that nobody waits for.
    pub watch: Watch,
}

/// Whether one of the workers looks after transfers that nobody waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Watch {
    #[default]
    No,
    /// One has been called for it, and takes it once it is idle.
    Called,
    Kept,
}

/// Whom to wake once the lock is given up.
#[derive(Default)]
pub struct Calls {
    /// What is handed over first.
    pub batches: Vec<Batch>,
    pub news: News,
    /// How many of the callers sleep for what is left over.
    pub sleepers_rung: u32,
    /// How many idle workers.
    pub workers: u32,
    /// How many workers to start.
    pub hire: u32,
}

impl Calls {
    /// Calls a worker for each job that none has been called for, and callers that sleep for demand that is left
    /// over: nothing that somebody waits for waits for a worker. Nobody is called twice for one thing. `others` is how many
    /// things there are besides the jobs; `watch` tells that somebody should look after transfers.
    #[cold]
    pub fn plan(
        mut self,
        jobs: &Jobs,
        crew: &mut Crew,
        waits: &mut [Wait],
        (others, watch): (usize, bool),
    ) -> Option<Calls> {
        let calls = &mut self;
        let watch = watch && crew.watch == Watch::No && (crew.idle > 0 || crew.started < crew.most) && !crew.closing;
        let things = (jobs.len() + others + usize::from(crew.timer_moved) + usize::from(watch)) as u32;
        crew.timer_moved = false;
        if watch {
            crew.watch = Watch::Called;
        }
        let wanted = things.saturating_sub(crew.called);
        calls.workers = wanted.min(crew.idle);
        if !crew.closing {
            calls.hire = (wanted - calls.workers).min(crew.most - crew.started);
        }
        crew.idle -= calls.workers;
        crew.started += calls.hire;
        crew.called += calls.workers + calls.hire;
        let left_over = jobs.demand.len().saturating_sub(crew.called as usize);
        let alone = crew.most == 0;
        let helps = |wait: &Wait| wait.asleep && (alone || jobs.demand.iter().any(|job| job.file == wait.file));
        for wait in waits.iter_mut().filter(|wait| left_over > 0 && helps(wait)).take(left_over) {
            wait.asleep = false;
            calls.sleepers_rung += 1;
            calls.news.bells.push(Arc::clone(&wait.bell));
        }
        let nobody = calls.news.is_empty() && calls.batches.is_empty() && calls.workers + calls.hire == 0;
        (!nobody).then_some(self)
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
            let mut crew = Crew { most: free, idle, called, ..Crew::default() };
            let mut waits: Vec<Wait> = (0..9).map(|n| Wait { asleep: n < asleep, ..Wait::new() }).collect();
            let plan = |crew: &mut Crew, waits: &mut [Wait]| {
                let calls = Calls::default().plan(&jobs(demand, ahead), crew, waits, (0, false)).unwrap_or_default();
                (calls.workers, calls.hire, calls.news.bells.len())
            };
            assert_eq!(plan(&mut crew, &mut waits), want, "{demand} {ahead} {idle} {called} {free} {asleep}");
            assert_eq!((crew.called, crew.started), (called + want.0 + want.1, want.1));
            assert_eq!(waits.iter().filter(|w| w.asleep).count(), asleep - want.2);
            let again = plan(&mut crew, &mut waits);
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
