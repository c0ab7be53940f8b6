//! Starts threads without panicking if the system refuses, and waits for threads with a time limit.
//!
//! `std::thread::spawn` and `Scope::spawn` panic if the system refuses a thread (`ulimit -u`, `pids.max` of a control group); clippy.toml
//! forbids them. The functions of this module return an error with a remedy instead.
//!
//! A thread that reads files of users may never end: if a file system (NFS, FUSE) does not answer, the thread stays in the kernel, and only
//! SIGKILL ends it. Work that a command must wait for when it ends runs as a [`Task`]: after a time limit, its thread is abandoned.
//!
//! ```text
//!   Task::start ──► thread: stat, open, read ... ──► result          within(5 s): the result, or `None`, and the process can end
//! ```

use std::io::{Error, Result};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};
use std::time::Duration;

/// How long a command waits at its end for storage that may never answer. A working file system answers within this time, and even several
/// of these waits together are not too long for a user.
pub const END_PATIENCE: Duration = Duration::from_millis(1500);

/// Returns for how long this thread has waited for a processor since it was started. Returns `None` if the kernel does not say it.
#[must_use]
pub fn waited_for_processor() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

pub fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    begun(name, Builder::new().name(name.to_string()).spawn(work))
}

/// Like [`spawn`], but with a stack of this many bytes.
pub fn spawn_with_stack<T: Send + 'static>(
    name: &str,
    stack_bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    let builder = Builder::new().name(name.to_string());
    begun(name, builder.stack_size(stack_bytes).spawn(work))
}

pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    let builder = Builder::new().name(name.to_string());
    begun(name, builder.spawn_scoped(scope, work))
}

/// Calls `measure` for all items on at most `threads` threads, and passes each result to `each`, in the order in which they
/// complete. If `each` returns `Break`, no further item is started; running items are finished and are also passed to `each`.
/// Returns the first error of a measurement; running items are finished first.
pub fn for_each_on<K: Sync, T, E: Send>(
    items: &[K],
    threads: usize,
    measure: &(dyn Fn(&K) -> std::result::Result<T, E> + Sync),
    each: &mut (dyn FnMut(&K, T) -> ControlFlow<()> + Send),
) -> std::result::Result<(), E> {
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<E>> = Mutex::new(None);
    let each = Mutex::new(each);
    let work = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            match measure(item) {
                Ok(measured) => {
                    let each = &mut *each.lock().unwrap_or_else(PoisonError::into_inner);
                    if each(item, measured).is_break() {
                        next.store(items.len(), Ordering::Relaxed);
                    }
                }
                Err(error) => {
                    next.store(items.len(), Ordering::Relaxed);
                    let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                    failed.get_or_insert(error);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        // Fewer threads are slower but give the same results; without any, this thread does the work.
        let more = threads.clamp(1, items.len().max(1)) - 1;
        let _ = (0..more).try_for_each(|_| spawn_scoped(scope, "foreread-run", work).map(drop));
        work();
    });
    failed
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
        .map_or(Ok(()), Err)
}

fn begun<T>(name: &str, thread: Result<T>) -> Result<T> {
    thread.map_err(|error| {
        let remedy = "allow more (ulimit -u, or pids.max of the control group)";
        let what = format!("the system refuses the thread {name}: {error}; {remedy}");
        Error::new(error.kind(), what)
    })
}

/// Checks that the system allows `count` more threads, by starting and ending them.
///
/// This check is for libraries that panic or stop halfway if the system refuses to start a thread. The system counts a thread towards its
/// limit for a moment even after the thread was joined; when this function returns, the test threads are no longer counted.
pub fn rehearse(name: &str, count: usize) -> Result<()> {
    let before = own_threads();
    let rehearsed = std::thread::scope(|scope| {
        let mut waiting = Vec::new();
        for _ in 0..count {
            let (end, ended) = channel::<()>();
            // Each thread ends when the sender is dropped, so that all exist at the same time.
            spawn_scoped(scope, name, move || ended.recv().unwrap_or_default())?;
            waiting.push(end);
        }
        Ok(())
    });
    for _ in 0..MAX_LOOKS {
        if own_threads() <= before {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    rehearsed
}

/// Number of checks, a millisecond apart, whether the ended threads are gone. In a program with other threads no count is exact.
const MAX_LOOKS: u32 = 50;

/// The system's count of this process's threads; 0 if unknown.
fn own_threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

/// Work on a separate thread; the caller may abandon the work, that is, stop waiting for its result.
#[derive(Debug)]
pub struct Task<T>(Receiver<T>);

impl<T: Send + 'static> Task<T> {
    pub fn start(name: &str, work: impl FnOnce() -> T + Send + 'static) -> Result<Task<T>> {
        let (send, receive) = channel();
        // Without a receiver the result is no longer needed.
        spawn(name, move || drop(send.send(work())))?;
        Ok(Task(receive))
    }

    /// Waits for the result, and returns `None` if the result does not arrive in this time or if the thread has panicked.
    pub fn within(&self, patience: Duration) -> Option<T> {
        self.0.recv_timeout(patience).ok()
    }

    /// Waits for the result as long as the value of `progress` changes at least once within the time `patience`.
    pub fn while_moving(&self, patience: Duration, progress: impl Fn() -> u64) -> Option<T> {
        let mut last = progress();
        loop {
            match self.0.recv_timeout(patience) {
                Ok(result) => return Some(result),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    let now = progress();
                    if std::mem::replace(&mut last, now) == now {
                        return None;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn a_task_that_does_not_end_is_abandoned() {
        let (hold, held) = channel::<()>();
        let never = Task::start("never", move || held.recv().is_ok()).expect("a thread");
        assert_eq!(never.within(Duration::ZERO), None);
        let moved = never.while_moving(Duration::from_millis(1), || 7);
        assert_eq!(moved, None, "it does not move");
        let looks = AtomicU64::new(0);
        // It makes progress as long as the test says so, and ends after three checks.
        let ended = never.while_moving(Duration::from_millis(1), || {
            let look = looks.fetch_add(1, Ordering::Relaxed);
            if look == 3 {
                hold.send(()).expect("it waits");
            }
            look
        });
        assert_eq!(ended, Some(true));
        let panics =
            Task::<()>::start("panics", || std::panic::panic_any("a bug")).expect("a thread");
        assert_eq!(panics.within(Duration::from_secs(60)), None);
        let ends = Task::start("ends", || 5).expect("a thread");
        assert_eq!(ends.within(Duration::from_secs(60)), Some(5));
    }

    #[test]
    fn a_refused_thread_is_an_error_with_a_remedy() {
        // More address space than exists: a reliable reason to refuse a stack.
        let refused = spawn_with_stack("large", usize::MAX / 4, || ())
            .expect_err("refused")
            .to_string();
        let has = |part| refused.contains(part);
        assert!(has("the thread large") && has("ulimit -u"), "{refused}");
        rehearse("some", 8).expect("eight threads");
    }
}
