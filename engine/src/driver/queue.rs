//! Asynchronous transfers: the requests submitted to the files' queues, and which thread reaps them.
//!
//! A fetch is one transfer for each group of pages; its pages land in order from the front, as they arrive. Of the callers
//! that wait for bytes of a file, one reaps for all of them; when it has its own bytes, it wakes another that sleeps. While
//! no caller waits, a worker polls, so that readahead continues. A queue may refuse transfers: those, and transfers beyond its
//! depth, waits for a thread like any other fetch. Which thread or task attends to a queue is in `queue/attend.rs`.
//!
//! Example: three readers miss on one file with a queue of depth 16. The first submits three transfers and reaps. Its own
//! ends second: it has by then completed the first reader's, and wakes the third to reap the last transfer.
//!
//! ```text
//!   jobs ──batch──► queue (owns buffers) ──ended──► reaper: a caller that waits     ──► Done, Failed
//!                                              │    the next caller, which polls first ┘
//!                                              └─── the idle poll: a worker, while no caller waits
//! ```

mod attend;

use super::jobs::{FetchPiece, Job, Jobs, Part, SubmittedFetch, groups};
use super::lock::Remote;
use super::notifications::{Notifications, QueueKey};
use crate::budget::Budget;
use crate::source::{CompletedTransfer, Queue, SourceError, piece_of, serial_of};
use crate::sync::Condvar;
use attend::Poller;
pub use attend::STALE;
pub use attend::TaskWait;
use foreread_core::event::Class;
use foreread_core::units::{FetchId, FileId, Nanos, PageSize};
use std::sync::{Arc, Weak};

/// The constructor of a source's queue.
pub struct NewQueue {
    pub queue: Remote<dyn Queue>,
    /// Transfers that it takes at once.
    pub depth: usize,
}

/// The driver's state of one file's queue.
struct QueueState {
    queue: Remote<dyn Queue>,
    depth: usize,
    number: u64,
    /// Fetches with transfers in flight.
    submitted: Vec<SubmittedFetch>,
    /// Transfers at the queue.
    in_flight: usize,
    /// A thread reaps it.
    reaped: bool,
    /// That thread is the one that reaps for tasks.
    reaped_for_tasks: bool,
    /// A sleeping caller was woken to reap and has not started.
    called: bool,
    /// It has refused a request: nothing more is submitted.
    closed: bool,
    reaper_thread: ReaperThread,
    /// The task that polls it.
    poller: Poller,
}

/// The thread that reaps a queue for tasks.
#[derive(Default)]
struct ReaperThread {
    /// It runs, or is being started.
    here: bool,
    /// A task has read since that thread looked last.
    wanted: bool,
    /// Where it waits while a caller reaps, or a task polls.
    condvar: Option<Arc<Condvar>>,
    /// It sleeps there because a task polls.
    on_standby: bool,
}

/// The thread that reaps a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaper {
    /// The caller of this slot, which waits for its read: until there is something, or the read has an answer.
    Caller(u32),
    /// The thread that reaps for tasks waits until there is a completion, or about a second, even with nothing in flight.
    Thread,
    /// A thread that polls and does not wait.
    Poll,
    /// The thread that drops the driver: until there is something.
    Last,
}

impl QueueState {
    fn room(&self) -> usize {
        if self.closed {
            0
        } else {
            self.depth.saturating_sub(self.in_flight)
        }
    }

    /// Transfers are in flight, and no thread reaps them.
    fn is_unattended(&self) -> bool {
        !self.reaped && self.in_flight > 0
    }

    /// The same, but a task polls it.
    fn is_polled(&self) -> bool {
        self.is_unattended() && self.poller.is_active()
    }

    /// Takes out a fetch that is answered and has no transfer in flight.
    fn clear(&mut self, index: usize) {
        if self.submitted[index].answered && self.submitted[index].left == 0 {
            self.submitted.swap_remove(index);
        }
    }

    /// The thread that reaps for tasks is notified, if there is one.
    fn interrupt_thread(&mut self, notifications: &mut Notifications) {
        if self.reaper_thread.here {
            self.reaper_thread
                .condvar
                .take()
                .into_iter()
                .for_each(|condvar| notifications.notify(condvar));
            notifications.interrupt(self.queue.weak());
        }
    }
}

/// The queues by file number, how many of them no thread attends to, and which of these a task polls: few, [`Queues::max_polled`].
#[derive(Default)]
struct QueueTable {
    queues: Vec<Option<QueueState>>,
    unattended: u32,
    polled: Vec<FileId>,
}

impl QueueTable {
    fn get(&self, file: FileId) -> Option<&QueueState> {
        self.queues.get(file.0 as usize)?.as_ref()
    }

    /// The one way to change a queue: counts the unattended ones again.
    fn update<R>(&mut self, file: FileId, change: impl FnOnce(&mut QueueState) -> R) -> Option<R> {
        let queue = self.queues.get_mut(file.0 as usize)?.as_mut()?;
        let (unattended, polled) = (queue.is_unattended(), queue.is_polled());
        let result = change(queue);
        self.unattended =
            self.unattended + u32::from(queue.is_unattended()) - u32::from(unattended);
        match (polled, queue.is_polled()) {
            (false, true) => self.polled.push(file),
            (true, false) => self.polled.retain(|other| *other != file),
            _ => {}
        }
        Some(result)
    }

    /// As [`QueueTable::update`], if the file number is still this queue's.
    fn update_by_key<R>(
        &mut self,
        key: QueueKey,
        change: impl FnOnce(&mut QueueState) -> R,
    ) -> Option<R> {
        self.get(key.file)
            .filter(|queue| queue.number == key.number)?;
        self.update(key.file, change)
    }
}

/// Fetches to be submitted to one queue.
pub struct Batch {
    pub key: QueueKey,
    pub queue: Remote<dyn Queue>,
    pub jobs: Vec<SerialJob>,
}

/// A fetch and its serial number at the queue.
#[derive(Clone, Copy, Debug)]
pub struct SerialJob {
    pub serial: u64,
    pub job: Job,
}

/// Jobs taken for the queues.
#[derive(Default)]
pub struct QueueFill {
    pub batches: Vec<Batch>,
    /// Readahead that exceeds the budget.
    pub refused: Vec<Job>,
}

/// A queue that this thread reaps now.
pub struct ReapedQueue {
    pub key: QueueKey,
    pub queue: Remote<dyn Queue>,
}

impl ReapedQueue {
    /// The queue, to be interrupted.
    pub fn weak(&self) -> Weak<dyn Queue> {
        self.queue.weak()
    }
}

/// The effect of a completed transfer on its fetch.
pub enum Arrival {
    Failed {
        job: Job,
        error: SourceError,
    },
    /// These parts land; `bytes` of the fetch have landed then. `over`: nothing more of it comes.
    Landed {
        job: Job,
        parts: Vec<Part>,
        bytes: u64,
        size: u64,
        over: Option<FetchEnd>,
    },
}

/// When a finished fetch started, and whether it was readahead.
pub struct FetchEnd {
    pub began: Nanos,
    pub ahead: bool,
}

pub struct Queues {
    table: QueueTable,
    /// Threads that wait until a caller no longer reaps their queue, or stand by for a task that polls it.
    waiting_threads: u32,
    /// Fetches submitted so far.
    serials: u64,
    page: PageSize,
    budget: Arc<Budget>,
    /// Queues that tasks may poll at once: half of the cores.
    max_polled: u32,
}

impl Queues {
    pub fn new(page: PageSize, budget: Arc<Budget>) -> Queues {
        let cores = if cfg!(shuttle) {
            2
        } else {
            std::thread::available_parallelism().map_or(1, usize::from)
        };
        let max_polled = (cores / 2) as u32;
        Queues {
            table: QueueTable::default(),
            waiting_threads: 0,
            serials: 0,
            page,
            budget,
            max_polled,
        }
    }

    // ---- getters ----

    /// Queues with transfers in flight that no thread reaps.
    #[inline]
    pub fn unattended(&self) -> u32 {
        self.table.unattended
    }

    /// A task attends to every one of these.
    #[inline]
    pub fn are_polled(&self, now: Nanos) -> bool {
        let attends = |file: &FileId| {
            self.table
                .get(*file)
                .is_some_and(|queue| queue.poller.attends(now))
        };
        self.table.unattended as usize == self.table.polled.len()
            && self.table.polled.iter().all(attends)
    }

    pub fn is_unattended(&self, file: FileId) -> bool {
        self.table.get(file).is_some_and(QueueState::is_unattended)
    }

    /// Reaper threads that sleep.
    pub fn waiting_threads(&self) -> u32 {
        self.waiting_threads
    }

    /// The highest file number there has been, and one.
    pub fn file_numbers(&self) -> u32 {
        self.table.queues.len() as u32
    }

    /// Fetches submitted and not completed.
    pub fn submitted(&self) -> usize {
        self.table
            .queues
            .iter()
            .flatten()
            .map(|queue| queue.submitted.len())
            .sum()
    }

    /// Transfers at the queue of a file.
    pub fn in_flight(&self, file: FileId) -> usize {
        self.table.get(file).map_or(0, |queue| queue.in_flight)
    }

    /// Several transfers can be submitted at once.
    pub fn has_room_for_several(&self, file: FileId) -> bool {
        self.table.get(file).is_some_and(|queue| queue.room() > 1)
    }

    /// The queue of a file that no thread attends to.
    pub fn share_unattended(&self, file: FileId) -> Option<Remote<dyn Queue>> {
        self.table
            .get(file)
            .filter(|queue| queue.is_unattended())
            .map(|queue| queue.queue.share())
    }

    // ---- opening and closing of files ----

    /// The queue of a new file. `number` distinguishes it from other queues of this file number.
    pub fn add(&mut self, file: FileId, new: NewQueue, number: u64) {
        let index = file.0 as usize;
        if self.table.queues.len() <= index {
            self.table.queues.resize_with(index + 1, || None);
        }
        let NewQueue { queue, depth } = new;
        self.table.queues[index] = Some(QueueState {
            queue,
            depth,
            number,
            submitted: Vec::new(),
            in_flight: 0,
            reaped: false,
            called: false,
            closed: false,
            reaper_thread: ReaperThread::default(),
            reaped_for_tasks: false,
            poller: Poller::default(),
        });
    }

    /// The file is closed: transfers in flight are dropped when they end. Returns the fetches that have no answer.
    pub fn remove(&mut self, file: FileId, notifications: &mut Notifications) -> Vec<FetchId> {
        // Counted as attended before it goes.
        self.table.update(file, |queue| queue.in_flight = 0);
        let Some(mut queue) = self
            .table
            .queues
            .get_mut(file.0 as usize)
            .and_then(Option::take)
        else {
            return Vec::new();
        };
        queue.interrupt_thread(notifications);
        let QueueState {
            queue, submitted, ..
        } = queue;
        notifications.drop_queue(queue);
        submitted
            .iter()
            .filter(|fetch| !fetch.answered)
            .map(|fetch| fetch.job.fetch)
            .collect()
    }

    // ---- submitting ----

    /// Takes as many jobs as the queues have room for.
    pub fn fill(&mut self, jobs: &mut Jobs, began: Nanos, filled: &mut QueueFill) {
        let Queues {
            table,
            serials,
            page,
            budget,
            ..
        } = self;
        jobs.take_if(|job, class| {
            let pieces = groups(*page, job.range).count();
            if table
                .get(job.file)
                .is_none_or(|queue| queue.room() < pieces)
            {
                return false;
            }
            let bytes = job.range.len();
            let claim = if class == Class::Demand {
                Some(budget.demand(bytes))
            } else {
                budget.ahead(bytes)
            };
            let Some(claim) = claim else {
                filled.refused.push(*job);
                return true;
            };
            *serials += 1;
            let serial_job = SerialJob {
                serial: *serials,
                job: *job,
            };
            table.update(job.file, |queue| {
                queue.in_flight += pieces;
                queue.submitted.push(SubmittedFetch::new(
                    serial_job.serial,
                    *job,
                    pieces as u32,
                    began,
                    claim,
                ));
                match filled
                    .batches
                    .iter_mut()
                    .find(|batch| batch.key.file == job.file)
                {
                    Some(batch) => batch.jobs.push(serial_job),
                    None => filled.batches.push(Batch {
                        key: QueueKey {
                            file: job.file,
                            number: queue.number,
                        },
                        queue: queue.queue.share(),
                        jobs: vec![serial_job],
                    }),
                }
            });
            true
        });
    }

    /// A queue refused pieces of these fetches: it is closed, and they wait for a thread. Pieces of them that were begun are
    /// dropped when they end.
    pub fn refuse(&mut self, key: QueueKey, serials: &[u64]) -> Vec<Job> {
        self.close(key, |fetch| serials.contains(&fetch.serial))
    }

    /// A queue panicked: all its fetches are read again.
    pub fn lose(&mut self, key: QueueKey) -> Vec<Job> {
        self.close(key, |_| true)
    }

    fn close(&mut self, key: QueueKey, is_refused: impl Fn(&SubmittedFetch) -> bool) -> Vec<Job> {
        let refused = self.table.update_by_key(key, |queue| {
            queue.closed = true;
            let all = std::mem::take(&mut queue.submitted).into_iter();
            let (refused, left): (Vec<SubmittedFetch>, Vec<SubmittedFetch>) =
                all.partition(is_refused);
            queue.submitted = left;
            queue.in_flight -= refused
                .iter()
                .map(|fetch| fetch.left as usize)
                .sum::<usize>();
            refused
        });
        // From the start: bytes that were stored are not stored again.
        refused
            .into_iter()
            .flatten()
            .filter(|fetch| !fetch.answered)
            .map(|fetch| fetch.job)
            .collect()
    }

    // ---- reaping ----

    /// Starts to reap the file's queue, if no other thread does.
    pub fn begin_reap(&mut self, file: FileId, reaper: Reaper) -> Option<ReapedQueue> {
        let idle_too = reaper == Reaper::Thread;
        self.table
            .get(file)
            .filter(|queue| queue.is_unattended() || idle_too && !queue.reaped)?;
        self.table.update(file, |queue| {
            (queue.reaped, queue.reaped_for_tasks) = (true, idle_too);
            ReapedQueue {
                key: QueueKey {
                    file,
                    number: queue.number,
                },
                queue: queue.queue.share(),
            }
        })
    }

    /// This thread no longer reaps the queue.
    pub fn end_reap(&mut self, key: QueueKey) {
        self.table.update_by_key(key, |queue| {
            (queue.reaped, queue.reaped_for_tasks) = (false, false)
        });
    }

    /// A transfer has ended, and the source has this size. Nothing when its fetch has its answer, or its file is closed.
    pub fn arrive(
        &mut self,
        file: FileId,
        ended: CompletedTransfer,
        size: &Result<u64, SourceError>,
    ) -> Option<Arrival> {
        let tag = ended.transfer.tag();
        let serial = serial_of(tag);
        self.table.update(file, |queue| {
            let index = queue
                .submitted
                .iter()
                .position(|fetch| fetch.serial == serial)?;
            queue.in_flight -= 1;
            let fetch = &mut queue.submitted[index];
            fetch.left -= 1;
            let job = fetch.job;
            let arrival = match ended
                .result
                .and_then(|read| Ok((read as u64, size.clone()?)))
            {
                _ if fetch.answered => None,
                Err(error) => {
                    fetch.fail();
                    Some(Arrival::Failed { job, error })
                }
                Ok((read, size)) => {
                    let (number, start) = (piece_of(tag), ended.transfer.offset());
                    let chunk = ended.transfer.into_chunks().pop();
                    let piece = chunk.map(|chunk| FetchPiece {
                        number,
                        part: Part { start, chunk },
                        read,
                    });
                    let landing = fetch.arrive(piece);
                    let over = landing.over.then(|| FetchEnd {
                        began: fetch.began,
                        ahead: fetch.claim.is_ahead(),
                    });
                    Some(Arrival::Landed {
                        job,
                        parts: landing.parts,
                        bytes: landing.bytes,
                        size,
                        over,
                    })
                }
            };
            queue.clear(index);
            arrival
        })?
    }
}
