//! Chooses the thread for a request: the thread that took it from the kernel, or a new thread if most threads that take requests are
//! busy.
//!
//! A request may wait for slow storage. Only a few threads take requests; if all of them waited, no request would be taken. So if only a
//! few of these threads are free, they pass requests to new threads instead of executing them. Requests are not queued.
//!
//! ```text
//!   request ──► busy < INLINE? ── yes ──► on this thread
//!                    └─ no ──► a new thread, at most MAX_EXTRA of them; otherwise this thread
//! ```

use crate::system;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of threads that receive requests from the kernel.
pub const DISPATCHERS: usize = 16;
/// How many of these may wait for storage at the same time.
const INLINE: usize = 12;
/// Maximum number of additional threads that execute requests. If all of these threads are busy, too, new requests wait in the kernel.
pub const MAX_EXTRA: usize = 1024;
/// Stack size of such a thread, which holds no buffers.
const STACK_BYTES: usize = 256 << 10;

#[derive(Clone, Default)]
pub struct RequestPool(Arc<BusyThreads>);

#[derive(Default)]
struct BusyThreads {
    inline: AtomicUsize,
    extra: AtomicUsize,
}

/// Decrements the counter however the work ends.
struct Count<'a>(&'a AtomicUsize);

impl Drop for Count<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl RequestPool {
    /// Runs the work of a request, on the calling thread or on another thread. If the work panics, only the work ends: its reply is
    /// dropped, and the kernel gets an error.
    pub fn run(&self, work: impl FnOnce() + Send + 'static) {
        let busy = &self.0;
        let before = busy.inline.fetch_add(1, Ordering::Relaxed);
        let count = Count(&busy.inline);
        if before < INLINE || busy.extra.load(Ordering::Relaxed) >= MAX_EXTRA {
            return guarded(work);
        }
        drop(count);
        busy.extra.fetch_add(1, Ordering::Relaxed);
        let own = Arc::clone(busy);
        let hand_over = move || {
            let _count = Count(&own.extra);
            guarded(work);
        };
        if system::spawn("foreread-fuse", Some(STACK_BYTES), hand_over).is_err() {
            // The work was dropped with the thread that could not be started; its reply is an error.
            busy.extra.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn guarded(work: impl FnOnce()) {
    // The panic has already been reported.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// With more waiting requests than threads, the last threads still take requests.
    #[test]
    fn the_last_takers_never_wait() {
        let pool = RequestPool::default();
        let (begun, begins) = channel();
        let barrier = Arc::new(std::sync::Barrier::new(DISPATCHERS * 3 + 1));
        for _ in 0..3 {
            for _ in 0..DISPATCHERS {
                let (pool, barrier, begun) = (pool.clone(), Arc::clone(&barrier), begun.clone());
                std::thread::spawn(move || {
                    pool.run(move || {
                        begun.send(()).expect("counted");
                        barrier.wait();
                    });
                });
            }
        }
        (0..DISPATCHERS * 3).for_each(|_| begins.recv().expect("all of them begin"));
        assert!(pool.0.inline.load(Ordering::Relaxed) <= INLINE);
        barrier.wait();
        pool.run(|| std::panic::panic_any("a bug"));
    }
}
