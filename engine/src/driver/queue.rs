//! Asynchronous transfers: the requests submitted to the files' queues, and which thread reaps them.
//!
//! A fetch is submitted as one transfer for each group of pages. The pages of a fetch are stored in ascending order, as they arrive. If
//! several callers wait for bytes of a file, one of them reaps the completions for all. When the reaping caller has its own bytes, it
//! wakes a sleeping caller, which continues reaping. While no caller waits, a worker polls the queue, so that readahead continues. A
//! transfer that the queue refuses, or for which it has no room, waits for a thread, like a fetch of a file without a queue.
//! `queue/attend.rs` decides which thread or task reaps a queue.
//!
//! Example: three readers miss on one file with a queue of depth 16. The first reader submits all three transfers and reaps. The transfer
//! of the second reader ends first, and the first reader's thread completes it. Then the first reader's own transfer ends, and its thread
//! wakes the third reader, which reaps the last transfer.
//!
//! ```text
//!   jobs ──batch──► queue (owns buffers) ──ended──► reaper: a caller that waits     ──► Done, Failed
//!                                              │    the next caller, which polls first ┘
//!                                              └─── the idle poll: a worker, while no caller waits
//! ```

mod attend;

use super::jobs::{FetchPiece, Job, Jobs, Part, SubmittedFetch, groups};
use super::lock::Remote;
use super::notifications::{Notification, Notifications, QueueKey};
use crate::budget::Budget;
use crate::source::{CompletedTransfer, Queue, SourceError, piece_of, serial_of};
use crate::sync::Condvar;
use attend::Poller;
pub use attend::STALE;
use foreread_core::event::Class;
use foreread_core::units::{FetchId, FileId, Nanos, PageSize};
use std::sync::Arc;

/// The driver's state of one file's queue.
struct QueueState {
    queue: Remote<dyn Queue>,
    depth: usize,
    number: u64,
    /// Fetches with transfers in flight.
    submitted: Vec<SubmittedFetch>,
    /// Number of transfers at the queue.
    in_flight: usize,
    reaped: bool,
    /// Whether that thread is the one that reaps for tasks.
    reaped_for_tasks: bool,
    /// Whether a sleeping caller was woken to reap and has not started yet.
    called: bool,
    /// Whether it has refused a request: then nothing more is submitted.
    closed: bool,
    /// Number of event loops that watch its descriptor and reap it when it is readable.
    watchers: u32,
    reaper_thread: ReaperThread,
    poller: Poller,
}

#[derive(Default)]
struct ReaperThread {
    /// Whether it runs or is being started.
    here: bool,
    /// Whether a task has read since the thread last checked.
    wanted: bool,
    /// The condvar on which it sleeps while a caller reaps or a task polls.
    condvar: Option<Arc<Condvar>>,
    /// Whether it sleeps there because a task polls.
    on_standby: bool,
}

/// Which thread or task reaps a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaper {
    /// The caller of this slot, which waits for its read: until there is a completion, or until the read has an answer.
    Caller(u32),
    /// The thread that reaps for tasks. It waits for a completion, at most for about a second, even with nothing in flight.
    Thread,
    /// A thread that polls without waiting.
    Poll,
    /// An event loop whose descriptor of the queue is readable: like `Poll`, even with nothing in flight, or the descriptor might stay
    /// readable.
    #[cfg_attr(
        not(feature = "nbd"),
        expect(dead_code, reason = "only the NBD server watches queues")
    )]
    Watcher,
    /// The thread that drops the driver. It waits for a completion.
    Last,
}

impl QueueState {
    fn key(&self, file: FileId) -> QueueKey {
        let number = self.number;
        QueueKey { file, number }
    }

    fn room(&self) -> usize {
        if self.closed {
            0
        } else {
            self.depth.saturating_sub(self.in_flight)
        }
    }

    /// Whether transfers are in flight and no thread reaps them.
    fn is_unreaped(&self) -> bool {
        !self.reaped && self.in_flight > 0
    }

    /// Whether transfers are in flight, no thread reaps them, and no event loop will.
    fn is_unattended(&self) -> bool {
        self.is_unreaped() && self.watchers == 0
    }

    /// Whether transfers are in flight, no thread reaps them, and a task polls them.
    fn is_polled(&self) -> bool {
        self.is_unattended() && self.poller.is_active()
    }

    /// Removes a fetch that is answered and has no transfer in flight.
    fn clear(&mut self, index: usize) {
        if self.submitted[index].answered && self.submitted[index].left == 0 {
            self.submitted.swap_remove(index);
        }
    }

    fn interrupt_thread(&mut self, notifications: &mut Notifications) {
        if self.reaper_thread.here {
            let condvar = self.reaper_thread.condvar.take();
            notifications.extend(condvar.map(Notification::Notify));
            notifications.add(Notification::Interrupt(self.queue.weak()));
        }
    }
}

/// The queues by file number, with the number of unattended queues, and the few queues that a task polls ([`Queues::max_polled`]).
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

    /// Changes a queue and updates the count of unattended queues. All changes go through this.
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

    /// Like [`QueueTable::update`], if the file number still belongs to this queue.
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

/// Fetches to submit to one queue.
pub struct Batch {
    pub key: QueueKey,
    pub queue: Remote<dyn Queue>,
    /// The fetches with their serial numbers at the queue.
    pub jobs: Vec<(u64, Job)>,
}

/// What a completed transfer means for its fetch: more bytes have arrived, the fetch has ended, or it has failed.
pub enum Arrival {
    Failed {
        job: Job,
        error: SourceError,
    },
    /// These parts can be stored, and `bytes` of the fetch are then stored. `over`: no more data of this fetch follows.
    Landed {
        job: Job,
        parts: Vec<Part>,
        bytes: u64,
        size: u64,
        over: bool,
        /// When the fetch started, and whether it is readahead.
        began: Nanos,
        ahead: bool,
    },
}

pub struct Queues {
    table: QueueTable,
    /// Number of threads that sleep until a caller stops reaping their queue, or because a task polls it.
    pub waiting_threads: u32,
    /// Number of fetches submitted so far.
    serials: u64,
    page: PageSize,
    budget: Arc<Budget>,
    /// Number of queues that tasks may poll at once: half of the cores.
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

    /// Number of queues with transfers in flight that no thread reaps.
    #[inline]
    pub fn unattended(&self) -> u32 {
        self.table.unattended
    }

    /// Whether a task polls each of the queues that no thread reaps.
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

    /// One more than the highest file number so far.
    pub fn file_numbers(&self) -> u32 {
        self.table.queues.len() as u32
    }

    /// Number of fetches submitted and not completed.
    pub fn submitted(&self) -> usize {
        self.table
            .queues
            .iter()
            .flatten()
            .map(|queue| queue.submitted.len())
            .sum()
    }

    pub fn in_flight(&self, file: FileId) -> usize {
        self.table.get(file).map_or(0, |queue| queue.in_flight)
    }

    /// Whether the queue of this file has room for more than one further transfer.
    pub fn has_room_for_several(&self, file: FileId) -> bool {
        self.table.get(file).is_some_and(|queue| queue.room() > 1)
    }

    /// The queue of a file, if it has transfers in flight that no thread reaps.
    pub fn share_unreaped(&self, file: FileId) -> Option<Remote<dyn Queue>> {
        self.table
            .get(file)
            .filter(|queue| queue.is_unreaped())
            .map(|queue| queue.queue.share())
    }

    #[cfg(feature = "nbd")]
    pub fn share(&self, file: FileId) -> Option<Remote<dyn Queue>> {
        self.table.get(file).map(|queue| queue.queue.share())
    }

    /// Counts an event loop that begins to watch the queue of a file, or ends.
    #[cfg(feature = "nbd")]
    pub fn watch(&mut self, file: FileId, begins: bool) {
        self.table.update(file, |queue| {
            queue.watchers = if begins {
                queue.watchers + 1
            } else {
                queue.watchers.saturating_sub(1)
            };
        });
    }

    pub fn is_watched(&self, file: FileId) -> bool {
        self.table.get(file).is_some_and(|queue| queue.watchers > 0)
    }

    // ---- opening and closing of files ----

    /// Adds the queue of a new file, with its maximum number of concurrent transfers. `number` distinguishes this queue from earlier queues
    /// with the same file number.
    pub fn add(&mut self, file: FileId, queue: Remote<dyn Queue>, depth: usize, number: u64) {
        let index = file.0 as usize;
        if self.table.queues.len() <= index {
            self.table.queues.resize_with(index + 1, || None);
        }
        self.table.queues[index] = Some(QueueState {
            queue,
            depth,
            number,
            submitted: Vec::new(),
            in_flight: 0,
            reaped: false,
            called: false,
            closed: false,
            watchers: 0,
            reaper_thread: ReaperThread::default(),
            reaped_for_tasks: false,
            poller: Poller::default(),
        });
    }

    /// Removes the queue of a closed file; transfers in flight are dropped when they end. Returns the fetches that have no answer
    /// yet.
    pub fn remove(&mut self, file: FileId, notifications: &mut Notifications) -> Vec<FetchId> {
        // Counts as attended before it is removed.
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
        notifications.add(Notification::Drop(Box::new(queue)));
        submitted
            .iter()
            .filter(|fetch| !fetch.answered)
            .map(|fetch| fetch.job.fetch)
            .collect()
    }

    // ---- submitting ----

    /// Takes as many jobs as can be submitted to the queues now, and adds them to `batches`. Returns the readahead jobs that the budget
    /// refuses.
    pub fn fill(&mut self, jobs: &mut Jobs, began: Nanos, batches: &mut Vec<Batch>) -> Vec<Job> {
        let mut refused = Vec::new();
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
                refused.push(*job);
                return true;
            };
            *serials += 1;
            let serial_job = (*serials, *job);
            table.update(job.file, |queue| {
                queue.in_flight += pieces;
                let fetch = SubmittedFetch::new(*serials, *job, pieces as u32, began, claim);
                queue.submitted.push(fetch);
                let key = queue.key(job.file);
                match batches.iter_mut().find(|batch| batch.key == key) {
                    Some(batch) => batch.jobs.push(serial_job),
                    None => batches.push(Batch {
                        key,
                        queue: queue.queue.share(),
                        jobs: vec![serial_job],
                    }),
                }
            });
            true
        });
        refused
    }

    /// Handles a queue that has refused transfers of some fetches, or whose code has panicked: the queue is no longer used, and threads will
    /// run these fetches. Transfers that have already started are ignored when they end.
    pub fn close(
        &mut self,
        key: QueueKey,
        is_refused: impl Fn(&SubmittedFetch) -> bool,
    ) -> Vec<Job> {
        let refused = self.table.update_by_key(key, |queue| {
            queue.closed = true;
            let all = std::mem::take(&mut queue.submitted).into_iter();
            let (refused, left): (Vec<_>, Vec<_>) = all.partition(is_refused);
            queue.submitted = left;
            let in_flight = refused.iter().map(|fetch| fetch.left as usize);
            queue.in_flight -= in_flight.sum::<usize>();
            refused
        });
        // They are read again from the start; bytes that are already stored are not stored again.
        refused
            .into_iter()
            .flatten()
            .filter(|fetch| !fetch.answered)
            .map(|fetch| fetch.job)
            .collect()
    }

    // ---- reaping ----

    /// Starts to reap the file's queue, unless another thread already does: the calling thread then takes its completions.
    pub fn begin_reap(
        &mut self,
        file: FileId,
        reaper: Reaper,
    ) -> Option<(QueueKey, Remote<dyn Queue>)> {
        let idle_too = matches!(reaper, Reaper::Thread | Reaper::Watcher);
        self.table
            .get(file)
            .filter(|queue| queue.is_unreaped() || idle_too && !queue.reaped)?;
        self.table.update(file, |queue| {
            (queue.reaped, queue.reaped_for_tasks) = (true, reaper == Reaper::Thread);
            (queue.key(file), queue.queue.share())
        })
    }

    pub fn end_reap(&mut self, key: QueueKey) {
        self.table.update_by_key(key, |queue| {
            (queue.reaped, queue.reaped_for_tasks) = (false, false)
        });
    }

    /// Handles a transfer that has ended; the source has this size. Returns `None` if the fetch has already been answered, or the file is
    /// closed.
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
                    let (parts, bytes) = fetch.arrive(piece);
                    Some(Arrival::Landed {
                        job,
                        parts,
                        bytes,
                        size,
                        over: fetch.answered,
                        began: fetch.began,
                        ahead: fetch.claim.is_ahead(),
                    })
                }
            };
            queue.clear(index);
            arrival
        })?
    }
}
