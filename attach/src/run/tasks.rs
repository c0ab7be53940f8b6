//! Threads that carry out tasks in their order and wake the run whenever one has ended.
//!
//! ```text
//!   the run ──Tasks::add──► queue ──► a thread: TaskKind::carry_out ──► ended, and `wake` is written to ──► the run: Tasks::ended
//! ```
//! Never: a wait of the run for a thread. One that waits for a storage ends by itself, or with the process.

use crate::pool::{Next, Pool, Work};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// What is done with a task.
pub trait TaskKind: Send + Sync + 'static {
    type Task: Send;
    type Ended: Send;

    /// Name of the threads, and how many there are at most.
    const NAME: &'static str;
    const MAX_THREADS: usize;

    /// Does it. May wait for a storage.
    fn carry_out(&self, task: Self::Task) -> Self::Ended;
}

/// Tasks that wait, and those that have ended.
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
        // A counter that is full wakes as well.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        false
    }
}

pub struct Tasks<K: TaskKind>(Pool<TaskWork<K>>);

impl<K: TaskKind> Tasks<K> {
    /// Writes to `wake`, an event descriptor, whenever a task has ended.
    pub fn new(kind: K, wake: Arc<OwnedFd>) -> Tasks<K> {
        let queue = TaskQueue {
            tasks: VecDeque::new(),
            ended: Vec::new(),
            is_over: false,
        };
        Tasks(Pool::new(K::NAME, TaskWork { kind, wake }, queue))
    }

    /// Does `task` on a thread of the pool. Where the system refuses all threads none is done.
    pub fn add(&self, task: K::Task) {
        self.0.add(K::MAX_THREADS, |queue| {
            queue.tasks.push_back(task);
            queue.tasks.len()
        });
    }

    /// What has ended since the last call.
    pub fn ended(&self) -> Vec<K::Ended> {
        self.0.look(|queue| std::mem::take(&mut queue.ended))
    }
}

impl<K: TaskKind> Drop for Tasks<K> {
    /// Threads that wait for a storage are not waited for.
    fn drop(&mut self) {
        self.0.change(|queue| {
            queue.is_over = true;
            queue.tasks.clear();
        });
    }
}
