//! Threads that read ahead, for `warm`, `replay` and `run`: each takes a task, carries it out, and says what came of it.
//!
//! ```text
//!   Work::next ──task──► a thread: Work::carry_out, without the lock ──► Work::ended ──► threads that wait look again
//!     ├─ wait: until a task has ended, or the queue was changed
//!     └─ end: the thread ends
//! ```
//! A storage that does not answer keeps a thread in the kernel, and nothing but the end of the process ends it. So a pool that is dropped
//! waits for no thread.
//!
//! Threads, and no ring: opening a cold file waits for the storage as well, and readahead(2) has no other form. A thread that waits
//! costs the processor nothing.

use foreread_os::threads::{END_PATIENCE, spawn_with_stack};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Stack of a thread: it opens files and calls the kernel.
const STACK_BYTES: usize = 256 << 10;

pub enum Next<T> {
    /// This.
    Task(T),
    /// Waits until the queue has changed.
    Wait,
    End,
}

pub trait Work: Send + Sync + 'static {
    /// What is left to do, and what was done: under the lock.
    type Queue: Send;
    /// A part of it, which one thread does.
    type Task;
    type Ended;

    fn next(&self, queue: &mut Self::Queue) -> Next<Self::Task>;

    /// Does it. May wait for a storage.
    fn carry_out(&self, task: Self::Task) -> Self::Ended;

    /// Notes what came of it; true where threads that wait may have something to do now.
    fn ended(&self, queue: &mut Self::Queue, ended: Self::Ended) -> bool;
}

/// The threads and their queue.
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
    /// Threads that have not ended.
    threads: usize,
    /// Of these: wait for a task.
    idle: usize,
}

impl<W: Work> Pool<W> {
    /// Without a thread yet; `name` is that of its threads.
    pub fn new(name: &'static str, work: W, queue: W::Queue) -> Pool<W> {
        let state = Mutex::new(State {
            queue,
            threads: 0,
            idle: 0,
        });
        let wake = Condvar::new();
        Pool {
            shared: Arc::new(PoolShared { work, state, wake }),
            name,
        }
    }

    pub fn work(&self) -> &W {
        &self.shared.work
    }

    pub fn look<T>(&self, look: impl FnOnce(&mut W::Queue) -> T) -> T {
        look(&mut self.shared.lock().queue)
    }

    /// Changes the queue, and has threads that wait look again.
    pub fn change(&self, change: impl FnOnce(&mut W::Queue)) {
        self.look(change);
        self.shared.wake.notify_all();
    }

    /// Adds tasks by `add`, which says how many there are then. A thread is woken for the last one, or a thread more begins, up to
    /// `max_threads`.
    #[cfg(feature = "lab")]
    pub fn add(&self, max_threads: usize, add: impl FnOnce(&mut W::Queue) -> usize) {
        let mut state = self.shared.lock();
        let left = add(&mut state.queue);
        if state.idle >= left {
            self.shared.wake.notify_one();
        } else if state.threads < max_threads {
            drop(state);
            // Without a thread more the others do it, later.
            let _ = self.add_thread();
        }
    }

    /// Threads that have not ended.
    pub fn threads(&self) -> usize {
        self.shared.lock().threads
    }

    /// Begins a thread more.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn add_thread(&self) -> std::io::Result<()> {
        self.shared.lock().threads += 1;
        let thread = Thread(Arc::clone(&self.shared));
        spawn_with_stack(self.name, STACK_BYTES, move || thread.0.run()).map(drop)
    }

    /// Waits until all threads have ended; once `is_hurried`, no longer than 1.5 s after the last sign of any.
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

/// A thread, counted while it is there, however it ends.
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

    /// Doubles numbers.
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
