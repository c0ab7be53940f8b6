//! Threads that read ahead for `warm`, `replay` and `run`: each thread takes a task from a queue, carries it out, and reports the result.
//!
//! ```text
//!   Work::next ──task──► a thread: Work::carry_out, without the lock ──► Work::ended ──► waiting threads check again
//!     ├─ wait: until a task has ended, or the queue was changed
//!     └─ end: the thread ends
//! ```
//! If storage does not answer, the thread that reads from it stays blocked in the kernel until the process ends. Code that drops a pool
//! does not wait for the pool's threads, because storage may block them.
//!
//! Threads are used instead of io_uring: opening a cold file also waits for the storage, and readahead(2) has no asynchronous form.
//! A thread that waits for work uses no CPU time.

use foreread_os::threads::{END_PATIENCE, spawn_with_stack};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Stack size of a thread: it opens files and makes system calls.
const STACK_BYTES: usize = 256 << 10;

pub enum Next<T> {
    Task(T),
    /// Wait until the queue has changed.
    Wait,
    End,
}

pub trait Work: Send + Sync + 'static {
    /// The tasks that are left and the results so far, protected by the lock.
    type Queue: Send;
    type Task;
    type Ended;

    fn next(&self, queue: &mut Self::Queue) -> Next<Self::Task>;

    /// Carries out a task. May wait for storage.
    fn carry_out(&self, task: Self::Task) -> Self::Ended;

    /// Records the result of a task. Returns true if waiting threads may have something to do now.
    fn ended(&self, queue: &mut Self::Queue, ended: Self::Ended) -> bool;
}

pub struct Pool<W: Work> {
    shared: Arc<PoolShared<W>>,
    name: &'static str,
}

struct PoolShared<W: Work> {
    work: W,
    state: Mutex<State<W::Queue>>,
    wake: Condvar,
}

struct State<Q> {
    queue: Q,
    threads: usize,
    idle: usize,
}

impl<W: Work> Pool<W> {
    /// Creates a pool that has no threads yet; threads that are started later get the name `name`.
    pub fn new(name: &'static str, work: W, queue: W::Queue) -> Pool<W> {
        let shared = Arc::new(PoolShared {
            work,
            state: Mutex::new(State {
                queue,
                threads: 0,
                idle: 0,
            }),
            wake: Condvar::new(),
        });
        Pool { shared, name }
    }

    pub fn work(&self) -> &W {
        &self.shared.work
    }

    pub fn look<T>(&self, look: impl FnOnce(&mut W::Queue) -> T) -> T {
        look(&mut self.shared.lock().queue)
    }

    /// Passes the queue of tasks to a function that may change it, then wakes the threads that wait for a task.
    pub fn change(&self, change: impl FnOnce(&mut W::Queue)) {
        self.look(change);
        self.shared.wake.notify_all();
    }

    /// Calls `add`, which adds tasks to the queue and returns the number of tasks that wait in it. Then wakes a waiting thread, or starts
    /// another thread if there are fewer than `max_threads`.
    #[cfg(feature = "lab")]
    pub fn add(&self, max_threads: usize, add: impl FnOnce(&mut W::Queue) -> usize) {
        let mut state = self.shared.lock();
        let left = add(&mut state.queue);
        if state.idle >= left {
            self.shared.wake.notify_one();
        } else if state.threads < max_threads {
            drop(state);
            // If no thread can be started, the others do it later.
            let _ = self.add_thread();
        }
    }

    pub fn threads(&self) -> usize {
        self.shared.lock().threads
    }

    pub fn add_thread(&self) -> std::io::Result<()> {
        self.shared.lock().threads += 1;
        let thread = Thread(Arc::clone(&self.shared));
        spawn_with_stack(self.name, STACK_BYTES, move || thread.0.run()).map(drop)
    }

    /// Waits until all threads have ended. While `is_hurried` returns true, this function waits at most 1.5 s after a thread last made
    /// progress.
    pub fn join(&self, is_hurried: impl Fn() -> bool) {
        let PoolShared { wake, .. } = &*self.shared;
        let mut state = self.shared.lock();
        while state.threads > 0 {
            if !is_hurried() {
                state = wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = wake.wait_timeout(state, END_PATIENCE);
            let (after, time) = waited.unwrap_or_else(PoisonError::into_inner);
            if time.timed_out() {
                return;
            }
            state = after;
        }
    }
}

/// Counts a thread as long as it runs, however it ends.
struct Thread<W: Work>(Arc<PoolShared<W>>);

impl<W: Work> Drop for Thread<W> {
    fn drop(&mut self) {
        self.0.lock().threads -= 1;
        self.0.wake.notify_all();
    }
}

impl<W: Work> PoolShared<W> {
    fn lock(&self) -> MutexGuard<'_, State<W::Queue>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.lock();
        loop {
            match self.work.next(&mut state.queue) {
                Next::Task(task) => {
                    drop(state);
                    let ended = self.work.carry_out(task);
                    state = self.lock();
                    if self.work.ended(&mut state.queue, ended) {
                        self.wake.notify_all();
                    }
                }
                Next::Wait => {
                    state.idle += 1;
                    let woken = self.wake.wait(state);
                    state = woken.unwrap_or_else(PoisonError::into_inner);
                    state.idle -= 1;
                }
                Next::End => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct DoublingWork;

    #[derive(Default)]
    struct Numbers {
        left: Vec<u32>,
        doubled: Vec<u32>,
        is_over: bool,
    }

    impl Work for DoublingWork {
        type Queue = Numbers;
        type Task = u32;
        type Ended = u32;

        fn next(&self, numbers: &mut Numbers) -> Next<u32> {
            match numbers.left.pop() {
                Some(number) => Next::Task(number),
                None if numbers.is_over => Next::End,
                None => Next::Wait,
            }
        }

        fn carry_out(&self, number: u32) -> u32 {
            assert!(number < 100, "a task that panics ends its thread alone");
            2 * number
        }

        fn ended(&self, numbers: &mut Numbers, doubled: u32) -> bool {
            numbers.doubled.push(doubled);
            false
        }
    }

    #[test]
    fn tasks_are_done_by_all_threads_and_an_end_ends_them() {
        let pool = Pool::new("doubling", DoublingWork, Numbers::default());
        for number in (0..50).chain([100]) {
            pool.add(4, |numbers| {
                numbers.left.push(number);
                numbers.left.len()
            });
        }
        assert!((1..=4).contains(&pool.threads()));
        pool.change(|numbers| numbers.is_over = true);
        pool.join(|| false);
        let mut doubled = pool.look(|numbers| std::mem::take(&mut numbers.doubled));
        doubled.sort_unstable();
        assert!(doubled.into_iter().eq((0..50).map(|number| 2 * number)));
        assert_eq!(pool.threads(), 0);
    }
}
