//! Waits for reads so that Ctrl-C can interrupt them. The main thread wakes up regularly, because Python runs signal
//! handlers only in the main thread, and not during native calls.
//!
//! ```text
//!   main thread:   poll ──► ready                    other threads: Reader::read_at, without the interpreter
//!                   └─ pending ──► sleep at most 50 ms, or until woken ──► signals? ──► KeyboardInterrupt: the read is dropped
//! ```
//! Every thread detaches from the interpreter (`detach`) while it copies bytes or waits for them.

use crate::{error, process};
use foreread::{ReadError, Reader};
use pyo3::prelude::*;
use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Interval at which the waiting main thread checks for signals.
const LOOK: Duration = Duration::from_millis(50);

/// Does a read, while the thread is detached from the interpreter. The inner result is that of the read; the outer error is an exception
/// that a signal handler raised, such as `KeyboardInterrupt`.
pub fn read(
    py: Python<'_>,
    reader: &Reader,
    buf: &mut [u8],
    offset: u64,
) -> PyResult<Result<usize, ReadError>> {
    if !is_main() {
        return Ok(py.detach(|| reader.read_at(buf, offset)));
    }
    let unpark = Arc::new(Unpark {
        thread: std::thread::current(),
        woken: AtomicBool::new(false),
    });
    let waker = Waker::from(Arc::clone(&unpark));
    let mut read = pin!(Some(reader.read_at_async(buf, offset)));
    loop {
        let ready = py.detach(|| {
            read.as_mut()
                .as_pin_mut()
                .and_then(|read| poll_for(read, &unpark, &waker))
        });
        if let Some(done) = ready {
            return Ok(done);
        }
        if let Err(raised) = py.check_signals() {
            // Dropping the read takes the engine's lock.
            py.detach(|| read.set(None));
            return Err(raised);
        }
    }
}

/// Drops a value whose drop may wait for the engine. While it drops the value, the thread is detached from the interpreter, unless the
/// interpreter is ending.
pub fn drop_released<T: Send>(value: T) {
    let mut value = Some(value);
    Python::try_attach(|py| py.detach(|| drop(value.take())));
    // If the interpreter is ending, the value is dropped here.
}

/// Runs `work` while the thread is detached from the interpreter. In the main thread, a signal ends the wait, but
/// `work` continues.
pub fn call<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    if !is_main() {
        return Ok(py.detach(work));
    }
    let (send, receive) = channel();
    // Sending fails if the receiver is gone; then the value is dropped.
    let thread = std::thread::Builder::new().name("foreread-open".to_string());
    thread.spawn(move || send.send(work()).is_err())?;
    // Releasing the interpreter requires `Sync`; the lock makes the receiver `Sync`.
    let receive = std::sync::Mutex::new(receive);
    loop {
        let wait = || {
            receive
                .lock()
                .map_or(Err(RecvTimeoutError::Disconnected), |receive| {
                    receive.recv_timeout(LOOK)
                })
        };
        match py.detach(wait) {
            Ok(value) => return Ok(value),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(error::of_errno(libc::EIO, error::PANIC, None));
            }
        }
    }
}

/// Polls until the future is ready, at most for [`LOOK`].
fn poll_for<F: Future>(
    mut future: Pin<&mut F>,
    unpark: &Unpark,
    waker: &Waker,
) -> Option<F::Output> {
    let deadline = Instant::now() + LOOK;
    loop {
        unpark.woken.store(false, Ordering::Release);
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(waker)) {
            return Some(done);
        }
        while !unpark.woken.load(Ordering::Acquire) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            std::thread::park_timeout(left);
        }
    }
}

struct Unpark {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Whether this is the main thread. In a forked child, the forking thread is the main thread.
fn is_main() -> bool {
    thread_local! {
        static KNOWN: Cell<Option<(u64, bool)>> = const { Cell::new(None) };
    }
    let now = process::generation();
    match KNOWN.get() {
        Some((generation, main)) if generation == now => main,
        _ => {
            let main = rustix::thread::gettid() == rustix::process::getpid();
            KNOWN.set(Some((now, main)));
            main
        }
    }
}
