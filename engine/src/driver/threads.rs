//! The threads of a driver, so that they can be joined: workers, and those that reap queues for tasks.
//!
//! A thread that has ended keeps its stack until it is joined. So those that have ended are joined when another is started and
//! when a reader is closed, not only at the end: an engine may live for months, and its threads for seconds.
//!
//! Example: a worker ends at the second 5. The next `spawn`, at the second 60, joins it before it starts another.
//!
//! ```text
//!   spawn ──► running ──► ended ──(next spawn, close, end of the driver)──► joined
//! ```

use crate::sync::Mutex;
use crate::sync::thread::{self, JoinHandle};
use crate::system::{self, SystemRequest};
use std::sync::PoisonError;

/// See the head of this file.
#[derive(Default)]
pub struct Threads {
    handles: Mutex<Vec<JoinHandle<()>>>,
}

impl Threads {
    /// Starts a thread. False when the system refuses.
    pub fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) -> bool {
        self.join_ended();
        if system::allowed(SystemRequest::Thread).is_err() {
            return false;
        }
        let Ok(thread) = thread::Builder::new().name(name.to_string()).spawn(work) else {
            return false;
        };
        self.handles
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(thread);
        true
    }

    /// Joins those that have ended.
    pub fn join_ended(&self) {
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        let all = std::mem::take(&mut *handles);
        let (ended, alive): (Vec<_>, Vec<_>) = all.into_iter().partition(has_ended);
        *handles = alive;
        drop(handles);
        ended.into_iter().for_each(|thread| drop(thread.join()));
    }

    /// Threads that have not been joined.
    pub fn count(&self) -> usize {
        self.handles
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    /// Joins all of them, and those that they start meanwhile.
    pub fn join_all(&self) {
        let me = thread::current().id();
        // A worker that is ending may have started another, which is ending too: look again until there is none.
        while let Some(thread) = self.pop() {
            // A source that owned the last reader would have a worker wait for itself.
            if thread.thread().id() != me {
                drop(thread.join());
            }
        }
    }

    fn pop(&self) -> Option<JoinHandle<()>> {
        self.handles
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
    }
}

#[cfg(not(shuttle))]
fn has_ended(thread: &JoinHandle<()>) -> bool {
    thread.is_finished()
}

/// The scheduler's threads cannot be asked; the end of the driver joins them.
#[cfg(shuttle)]
fn has_ended(_: &JoinHandle<()>) -> bool {
    false
}
