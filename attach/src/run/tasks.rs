//! Threads that carry out tasks in the order of submission, and wake the main thread of the run whenever a task has ended.
//!
//! ```text
//!   the run ──Tasks::add──► queue ──► a thread: `carry_out` ──► ended, and `wake` is signalled ──► the run: Tasks::ended
//! ```
//! The main thread never waits for one of these threads. A thread that is blocked by storage ends when the storage answers, or with the
//! process.

use crate::pool::{Next, Pool, Work};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

pub struct TaskQueue<T, E> {
    tasks: VecDeque<T>,
    ended: Vec<E>,
    is_over: bool,
}

struct TaskWork<T, E> {
    carry_out: Box<dyn Fn(T) -> E + Send + Sync>,
    wake: Arc<OwnedFd>,
}

impl<T: Send + 'static, E: Send + 'static> Work for TaskWork<T, E> {
    type Queue = TaskQueue<T, E>;
    type Task = T;
    type Ended = E;

    fn next(&self, queue: &mut TaskQueue<T, E>) -> Next<T> {
        match queue.tasks.pop_front() {
            _ if queue.is_over => Next::End,
            Some(task) => Next::Task(task),
            None => Next::Wait,
        }
    }

    fn carry_out(&self, task: T) -> E {
        (self.carry_out)(task)
    }

    fn ended(&self, queue: &mut TaskQueue<T, E>, ended: E) -> bool {
        queue.ended.push(ended);
        // A full counter also wakes the run.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        false
    }
}

pub struct Tasks<T: Send + 'static, E: Send + 'static> {
    pool: Pool<TaskWork<T, E>>,
    max_threads: usize,
}

impl<T: Send + 'static, E: Send + 'static> Tasks<T, E> {
    /// A queue of tasks, which `carry_out` carries out on at most `max_threads` threads and which may wait for storage. Whenever a task has
    /// ended, a thread writes to `wake`, an event descriptor.
    pub fn new(
        name: &'static str,
        max_threads: usize,
        wake: Arc<OwnedFd>,
        carry_out: impl Fn(T) -> E + Send + Sync + 'static,
    ) -> Tasks<T, E> {
        let queue = TaskQueue {
            tasks: VecDeque::new(),
            ended: Vec::new(),
            is_over: false,
        };
        let carry_out = Box::new(carry_out);
        let pool = Pool::new(name, TaskWork { carry_out, wake }, queue);
        Tasks { pool, max_threads }
    }

    /// Carries out `task` on a thread of the pool. If the system refuses to start any thread, the task is never executed.
    pub fn add(&self, task: T) {
        self.pool.add(self.max_threads, |queue| {
            queue.tasks.push_back(task);
            queue.tasks.len()
        });
    }

    pub fn ended(&self) -> Vec<E> {
        self.pool.look(|queue| std::mem::take(&mut queue.ended))
    }
}

impl<T: Send + 'static, E: Send + 'static> Drop for Tasks<T, E> {
    /// Does not wait for threads that wait for storage.
    fn drop(&mut self) {
        self.pool.change(|queue| {
            queue.is_over = true;
            queue.tasks.clear();
        });
    }
}
