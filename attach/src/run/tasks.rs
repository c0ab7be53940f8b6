//! Threads that carry out tasks in the order of submission, and wake the main thread of the run whenever a task has ended.
//!
//! ```text
//!   the run ──Tasks::add──► queue ──► a thread: TaskKind::carry_out ──► ended, and `wake` is signalled ──► the run: Tasks::ended
//! ```
//! The main thread never waits for one of these threads. A thread that is blocked by storage ends when the storage answers, or with the
//! process.

use crate::pool::{Next, Pool, Work};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The work that a thread does for each task.
pub trait TaskKind: Send + Sync + 'static {
    type Task: Send;
    type Ended: Send;

    /// Name of the threads, and how many there may be.
    const NAME: &'static str;
    const MAX_THREADS: usize;

    /// Carries out a task. May wait for storage.
    fn carry_out(&self, task: Self::Task) -> Self::Ended;
}

/// The waiting tasks, and the results of tasks that have ended.
pub struct TaskQueue<K: TaskKind> {
    tasks: VecDeque<K::Task>,
    ended: Vec<K::Ended>,
    is_over: bool,
}

struct TaskWork<K> {
    kind: K,
    wake: Arc<OwnedFd>,
}

impl<K: TaskKind> Work for TaskWork<K> {
    type Queue = TaskQueue<K>;
    type Task = K::Task;
    type Ended = K::Ended;

    fn next(&self, queue: &mut TaskQueue<K>) -> Next<K::Task> {
        match queue.tasks.pop_front() {
            _ if queue.is_over => Next::End,
            Some(task) => Next::Task(task),
            None => Next::Wait,
        }
    }

    fn carry_out(&self, task: K::Task) -> K::Ended {
        self.kind.carry_out(task)
    }

    fn ended(&self, queue: &mut TaskQueue<K>, ended: K::Ended) -> bool {
        queue.ended.push(ended);
        // A full counter also wakes the run.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        false
    }
}

pub struct Tasks<K: TaskKind>(Pool<TaskWork<K>>);

impl<K: TaskKind> Tasks<K> {
    /// A queue of tasks that writes to `wake`, an event descriptor, whenever a task has ended.
    pub fn new(kind: K, wake: Arc<OwnedFd>) -> Tasks<K> {
        let queue = TaskQueue {
            tasks: VecDeque::new(),
            ended: Vec::new(),
            is_over: false,
        };
        Tasks(Pool::new(K::NAME, TaskWork { kind, wake }, queue))
    }

    /// Carries out `task` on a thread of the pool. If the system refuses to start any thread, the task is never executed.
    pub fn add(&self, task: K::Task) {
        self.0.add(K::MAX_THREADS, |queue| {
            queue.tasks.push_back(task);
            queue.tasks.len()
        });
    }

    /// Returns the results of tasks that have ended since the last call.
    pub fn ended(&self) -> Vec<K::Ended> {
        self.0.look(|queue| std::mem::take(&mut queue.ended))
    }
}

impl<K: TaskKind> Drop for Tasks<K> {
    /// Does not wait for threads that wait for storage.
    fn drop(&mut self) {
        self.0.change(|queue| {
            queue.is_over = true;
            queue.tasks.clear();
        });
    }
}
