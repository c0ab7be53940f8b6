//! The threads that serve clients: about as many threads work at a time as the machine has cores, however many clients there are.
//!
//! Requests are taken in order of arrival, so that clients get equal shares. With one thread per client, the system's scheduler would
//! decide which client is served. In a test with 256 clients and one thread for each, some clients got four to nine times as many bytes as
//! others. A thread that must wait (for the source, or for a slow client) first releases its slot, so that another thread polls the
//! sockets. A thread that has just answered polls for a moment before it sleeps. Putting a thread to sleep and waking it on another core
//! took 50 us, a cached read only 12 us (measured). The thread that polls the sockets also polls the queue of the source, if that is
//! possible, so that reads in flight need no thread. This module does not interpret requests. Only one thread at a time polls.
//!
//! ```text
//!              ┌── in order of arrival ◄── poll (one thread) ◄── no request, no poller ──┐
//!   called ──► take ──► a turn of a client ──► done ──► take ...                            take ──► rest
//!                          └─ has to wait: releases its slot (calls another) ──► comes back ──► take or rest
//! ```

use crate::sync::lock;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::fd::OwnedFd;
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a thread polls: twice the measured time from an answer to the next request of a client.
const MOMENT: Duration = Duration::from_micros(50);
/// It polls longer by the time that the client needs to take its answer: 1 ns per byte, for at most this many bytes. (Without this,
/// answers of 256 KiB had 0.86 of the throughput of nbdkit, in 12 rounds of one second.)
const MAX_TAKEN: usize = 256 << 10;
/// Number of empty polls before polling pauses.
const MAX_EMPTY_POLLS: u32 = 3;
/// Number of waits without polling during a pause.
const REST: u32 = 256;
/// Maximum number of clients that the kernel reports at once.
const BATCH: usize = 256;
/// A thread that was not called for this long ends.
const IDLE: Duration = Duration::from_secs(10);
/// Reports once that a client has sent something.
const ONCE: EventFlags = EventFlags::IN.union(EventFlags::ONESHOT);
/// Not a client: the wakeup of the thread that polls.
const WAKE: u64 = u64::MAX;
/// Not a client: transfers of the source have ended.
const SOURCE: u64 = u64::MAX - 1;

pub struct Workers {
    epoll: OwnedFd,
    wake_fd: OwnedFd,
    pool: Mutex<ThreadPool>,
    called: Condvar,
    /// The thread that holds this lock polls.
    poller: Mutex<Poller>,
    cores: u32,
    most: u32,
}

#[derive(Default)]
struct ThreadPool {
    /// Clients that have sent something, or whose reads have ended, in order of arrival.
    ready: VecDeque<u64>,
    polls: bool,
    threads: u32,
    /// Number of threads that neither wait nor rest.
    at_work: u32,
    resting: u32,
    /// Number of resting threads that were called; they count as at work.
    calls: u32,
    ended: bool,
}

#[derive(Default)]
struct Poller {
    came: Vec<u64>,
    empty_polls: u32,
    rest: u32,
}

/// What the caller must do after it has released the lock.
#[must_use]
#[derive(PartialEq, Eq)]
pub enum WorkerStep {
    Nothing,
    /// Start a thread that begins with [`Workers::take`]; call [`Workers::lost`] if it cannot be started.
    Spawn,
}

impl ThreadPool {
    fn add_ready(&mut self, number: u64) {
        // A client whose data arrives while its reads end needs one thread, not two.
        if !self.ready.contains(&number) {
            self.ready.push_back(number);
        }
    }
}

impl Workers {
    /// Creates the pool without threads; it will start at most `most` threads.
    pub fn new(most: u32) -> std::io::Result<Workers> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake_fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        // Each write is reported once, and never read.
        let once = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, &wake_fd, EventData::new_u64(WAKE), once)?;
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        let (pool, called, poller) = (Mutex::default(), Condvar::new(), Mutex::default());
        Ok(Workers {
            epoll,
            wake_fd,
            pool,
            called,
            poller,
            cores,
            most,
        })
    }

    /// Adds a client: when data arrives on this socket, [`Workers::take`] returns `number`. After the number was returned once, it is not
    /// returned again until [`Workers::arm`] is called. If `more` is true, the number is returned immediately: bytes were
    /// taken from the socket that are not used yet, so polling it does not report them.
    pub fn add(
        &self,
        socket: BorrowedFd<'_>,
        number: u64,
        more: bool,
    ) -> std::io::Result<WorkerStep> {
        epoll::add(&self.epoll, socket, EventData::new_u64(number), ONCE)?;
        if more {
            self.make_ready(number);
        }
        let pool = lock(&self.pool);
        // The first client has no thread yet.
        Ok(if pool.at_work == 0 {
            self.call(pool)
        } else {
            WorkerStep::Nothing
        })
    }

    /// Polls the client's socket for data again; see [`Workers::add`].
    pub fn arm(&self, socket: BorrowedFd<'_>, number: u64, more: bool) -> std::io::Result<()> {
        if more {
            self.make_ready(number);
            return Ok(());
        }
        let number = EventData::new_u64(number);
        Ok(epoll::modify(&self.epoll, socket, number, ONCE)?)
    }

    /// Polls this descriptor of the source's queue too: while it is readable, [`Workers::take`] calls its `reap`.
    pub fn watch(&self, source: BorrowedFd<'_>) -> std::io::Result<()> {
        let data = EventData::new_u64(SOURCE);
        Ok(epoll::add(&self.epoll, source, data, EventFlags::IN)?)
    }

    /// Has [`Workers::take`] return this client, because its reads have ended.
    pub fn make_ready(&self, number: u64) {
        let mut pool = lock(&self.pool);
        pool.add_ready(number);
        let polls = pool.polls;
        drop(pool);
        if polls {
            self.wake();
        }
    }

    /// Releases the calling thread's slot, because the thread has to wait. If no thread remains at work, or a client is ready to be
    /// served, another thread is woken, or the caller must start one.
    pub fn yield_slot(&self) -> WorkerStep {
        let mut pool = lock(&self.pool);
        pool.at_work -= 1;
        let needed = pool.at_work == 0 || !pool.ready.is_empty();
        if needed {
            self.call(pool)
        } else {
            WorkerStep::Nothing
        }
    }

    /// Counts the calling thread as working again, after it has waited.
    pub fn come_back(&self) {
        lock(&self.pool).at_work += 1;
    }

    /// Requests another thread, because there is more work than the calling thread can do.
    pub fn invite(&self) -> WorkerStep {
        self.call(lock(&self.pool))
    }

    /// Calls one more thread if a core is free.
    fn call(&self, mut pool: MutexGuard<'_, ThreadPool>) -> WorkerStep {
        if pool.at_work >= self.cores || pool.ended {
            return WorkerStep::Nothing;
        }
        if pool.resting > pool.calls {
            pool.calls += 1;
            pool.at_work += 1;
            // Not under the lock, or the thread would wake up only to wait for it.
            drop(pool);
            self.called.notify_one();
        } else if pool.threads < self.most {
            pool.threads += 1;
            pool.at_work += 1;
            return WorkerStep::Spawn;
        }
        WorkerStep::Nothing
    }

    /// Number of serving threads.
    pub fn threads(&self) -> u32 {
        lock(&self.pool).threads
    }

    /// Reports that a requested thread could not be started, or that a thread has died.
    pub fn lost(&self) {
        let mut pool = lock(&self.pool);
        pool.threads -= 1;
        pool.at_work -= 1;
    }

    /// Waits until a client has sent data, and returns the client's number. `answered` is the number of bytes sent, if the calling thread
    /// has just answered a request. Returns `None` if the calling thread is no longer needed and must end.
    pub fn take(&self, answered: Option<usize>, spawn: &dyn Fn(), reap: &dyn Fn()) -> Option<u64> {
        let mut pool = lock(&self.pool);
        let look = |bytes: usize| MOMENT + Duration::from_nanos(bytes.min(MAX_TAKEN) as u64);
        let mut look = answered.filter(|_| self.cores > 1).map(look);
        loop {
            if pool.ended {
                break;
            }
            if pool.at_work <= self.cores {
                if let Some(number) = pool.ready.pop_front() {
                    return Some(number);
                }
                if let Ok(mut poller) = self.poller.try_lock() {
                    pool.polls = true;
                    drop(pool);
                    poller.poll(self, look);
                    pool = lock(&self.pool);
                    pool.polls = false;
                    let ended = poller.came.contains(&SOURCE);
                    let clients = poller.came.drain(..).filter(|number| *number < SOURCE);
                    clients.for_each(|number| pool.add_ready(number));
                    // Dropped before another thread finds neither a poller nor a request.
                    drop(poller);
                    if ended {
                        drop(pool);
                        reap();
                        pool = lock(&self.pool);
                    }
                    if pool.ready.len() > 1 {
                        if self.call(pool) == WorkerStep::Spawn {
                            spawn();
                        }
                        pool = lock(&self.pool);
                    }
                    continue;
                }
            }
            look = None;
            let rested;
            (pool, rested) = self.rest(pool);
            if !rested {
                pool.threads -= 1;
                return None;
            }
        }
        pool.threads -= 1;
        pool.at_work -= 1;
        None
    }

    /// Waits for a call. Returns false if no call came for a long time; the thread then no longer counts as at work.
    fn rest<'a>(&self, mut pool: MutexGuard<'a, ThreadPool>) -> (MutexGuard<'a, ThreadPool>, bool) {
        pool.at_work -= 1;
        pool.resting += 1;
        let until = Instant::now() + IDLE;
        while pool.calls == 0 && !pool.ended {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                pool.resting -= 1;
                return (pool, false);
            }
            pool = self
                .called
                .wait_timeout(pool, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        pool.resting -= 1;
        if pool.calls > 0 {
            pool.calls -= 1;
        } else {
            // The end of the server wakes every thread.
            pool.at_work += 1;
        }
        (pool, true)
    }

    /// Makes all threads end: [`Workers::take`] returns `None` from now on.
    pub fn end(&self) {
        lock(&self.pool).ended = true;
        self.called.notify_all();
        self.wake();
    }

    /// Wakes the polling thread.
    fn wake(&self) {
        // A full `wake_fd` already contains a wakeup.
        let _ = rustix::io::write(&self.wake_fd, &1_u64.to_ne_bytes());
    }
}

impl Poller {
    /// Fills `came` with at least one entry.
    fn poll(&mut self, workers: &Workers, look: Option<Duration>) {
        self.rest = self.rest.saturating_sub(1);
        if let Some(look) = look.filter(|_| self.rest == 0) {
            let until = Instant::now() + look;
            while self.came.is_empty() && Instant::now() < until {
                self.wait(workers, Some(&Timespec::default()));
            }
            self.empty_polls = if self.came.is_empty() {
                self.empty_polls + 1
            } else {
                0
            };
            if self.empty_polls >= MAX_EMPTY_POLLS {
                (self.empty_polls, self.rest) = (0, REST);
            }
        }
        while self.came.is_empty() {
            self.wait(workers, None);
        }
    }

    fn wait(&mut self, workers: &Workers, time: Option<&Timespec>) {
        // Any error but an interrupt would be a bug of this file.
        let mut room = [const { MaybeUninit::uninit() }; BATCH];
        match epoll::wait(&workers.epoll, &mut room, time) {
            Ok((events, _)) => self
                .came
                .extend(events.iter().map(|event| event.data.u64())),
            // The kernel ends a transfer in the thread that submitted it, and interrupts that thread's call for it.
            Err(rustix::io::Errno::INTR) => self.came.push(SOURCE),
            Err(error) => debug_assert!(false, "{error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    fn clients(workers: &Workers, many: u64) -> Vec<(UnixStream, UnixStream)> {
        let pair = |number| {
            let (mine, theirs) = UnixStream::pair().expect("a pair");
            let spawn =
                workers.add(mine.as_fd(), number, false).expect("added") == WorkerStep::Spawn;
            assert_eq!(
                spawn,
                number == 0,
                "the first needs a thread, and it is the caller"
            );
            (mine, theirs)
        };
        (0..many).map(pair).collect()
    }

    fn no_spawn() {
        panic!("no thread is needed");
    }

    /// The client that sends most gets no more turns than the client that sends least: one turn, and then the others.
    #[test]
    fn turns_come_in_the_order_of_the_requests() {
        let mut workers = Workers::new(8).expect("made");
        workers.cores = 1;
        let mut all = clients(&workers, 8);
        let mut order = vec![5, 2, 7, 0];
        for number in &order {
            all[*number as usize].1.write_all(&[1; 10]).expect("sent");
        }
        for _ in 0..3 {
            let taken: Vec<u64> = order
                .iter()
                .map(|_| workers.take(Some(0), &no_spawn, &|| ()).expect("a turn"))
                .collect();
            assert_eq!(taken, order);
            // The sockets are armed again in another order, although all clients sent more long ago.
            order.rotate_left(1);
            order.swap(0, 2);
            for number in &order {
                workers
                    .arm(all[*number as usize].0.as_fd(), *number, false)
                    .expect("armed");
            }
        }
        workers.end();
        assert_eq!(workers.take(Some(0), &no_spawn, &|| ()), None);
        let pool = lock(&workers.pool);
        assert_eq!((pool.threads, pool.at_work, pool.resting), (0, 0, 0));
    }

    /// As many threads as cores, and more only if those wait. A returning thread that exceeds the number rests.
    #[test]
    fn a_waiting_thread_has_another_called() {
        let mut workers = Workers::new(3).expect("made");
        workers.cores = 2;
        let all = clients(&workers, 1);
        let workers = &workers;
        assert!(workers.invite() == WorkerStep::Spawn, "a core is free");
        assert!(workers.invite() == WorkerStep::Nothing, "no other is");
        assert!(
            workers.yield_slot() == WorkerStep::Nothing,
            "one is still at work"
        );
        assert!(
            workers.yield_slot() == WorkerStep::Spawn,
            "no thread is free"
        );
        assert!(
            workers.yield_slot() == WorkerStep::Nothing,
            "there are three threads, and may not be more"
        );
        workers.come_back();
        workers.come_back();
        workers.come_back();
        let (count, done) = (
            std::sync::atomic::AtomicU32::new(0),
            std::sync::atomic::AtomicU32::new(0),
        );
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while workers.take(None, &no_spawn, &|| ()).is_some() {
                        count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        // The sent data is still there. The second thread polls, or the third, which rested until it was called.
                        assert!(workers.yield_slot() == WorkerStep::Nothing);
                        while count.load(std::sync::atomic::Ordering::SeqCst) < 3 {
                            workers.arm(all[0].0.as_fd(), 0, false).expect("armed");
                            std::thread::yield_now();
                        }
                        workers.come_back();
                        done.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    }
                });
            }
            (&all[0].1).write_all(&[1]).expect("sent");
            while done.load(std::sync::atomic::Ordering::SeqCst) < 3 {
                std::thread::yield_now();
            }
            workers.end();
        });
        let pool = lock(&workers.pool);
        assert_eq!(
            (pool.threads, pool.at_work, pool.resting, pool.calls),
            (0, 0, 0, 0)
        );
    }
}
