//! `foreread._native.Tasks`: reads for asyncio event loops, without a thread for each read.
//!
//! A read is a future of the engine, which the thread of the event loop polls. Threads of the engine never attach to the interpreter to
//! complete a read. The read's waker stores the read's number and writes to an eventfd, which the event loop watches like a socket.
//!
//! ```text
//!   await read_at ──► begin: poll ──► ready: the bytes, at once
//!                              └─ pending ──► kept under a number; the loop runs other tasks
//!   engine: fetched ──► wake: number, eventfd ──► loop: run ──► poll ──► set_result of the asyncio future
//!   cancelled ──► forget: the read is dropped, fetched data stays cached
//! ```

use crate::buffer::Room;
use crate::error::guarded;
use crate::handle::{Handle, bytes};
use crate::opened::LentReader;
use crate::wait;
use foreread::ReadError;
use pyo3::prelude::*;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::HashMap;
use std::future::Future;
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

struct ReadEnd {
    done: Result<usize, ReadError>,
    /// The memory that the read fills.
    room: Room,
    lent: LentReader,
}

/// The numbers of reads that can continue.
struct ReadyReads {
    bell: OwnedFd,
    numbers: Mutex<Vec<u64>>,
}

struct WakeOne {
    woken: Arc<ReadyReads>,
    number: u64,
}

impl Wake for WakeOne {
    fn wake(self: Arc<Self>) {
        let mut numbers = lock(&self.woken.numbers);
        numbers.push(self.number);
        if numbers.len() == 1 {
            // It fails only if the counter is full, and then the loop has been woken.
            let _ = rustix::io::write(&self.woken.bell, &1_u64.to_ne_bytes());
        }
    }
}

struct PendingRead {
    read: Pin<Box<dyn Future<Output = ReadEnd> + Send>>,
    waker: Waker,
    /// The asyncio future, and the file's name for errors.
    future: Py<PyAny>,
    shown: String,
}

#[pyclass(frozen, module = "foreread._native")]
pub struct Tasks {
    woken: Arc<ReadyReads>,
    waiting: Mutex<(u64, HashMap<u64, PendingRead>)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The result as a Python object or exception.
fn finish<'py>(
    py: Python<'py>,
    ReadEnd { done, room, lent }: ReadEnd,
    shown: &str,
) -> PyResult<Bound<'py, PyAny>> {
    match done {
        Ok(got) => room.into_object(py, got),
        Err(error) => Err(lent.error(py, &error, shown)),
    }
}

#[pymethods]
impl Tasks {
    #[new]
    fn new() -> PyResult<Tasks> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let woken = ReadyReads {
            bell: eventfd(0, flags).map_err(std::io::Error::from)?,
            numbers: Mutex::default(),
        };
        Ok(Tasks {
            woken: Arc::new(woken),
            waiting: Mutex::default(),
        })
    }

    /// The descriptor that the loop watches for readability.
    fn fileno(&self) -> i32 {
        self.woken.bell.as_raw_fd()
    }

    /// Starts a read. Returns the bytes if they are cached, otherwise the number under which `future` will get them.
    fn begin<'py>(
        &self,
        py: Python<'py>,
        handle: &Handle,
        offset: i64,
        length: i64,
        future: Py<PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        guarded(|| {
            let (offset, length) = (bytes(offset, "offset")?, bytes(length, "length")?);
            let lent = handle.lend(py)?;
            let mut room = Room::new(py, lent.room(py, offset, length))?;
            let mut read: Pin<Box<dyn Future<Output = ReadEnd> + Send>> = Box::pin(async move {
                let done = lent.reader().read_at_async(room.bytes(), offset).await;
                ReadEnd { done, room, lent }
            });
            let number = {
                let mut waiting = lock(&self.waiting);
                waiting.0 += 1;
                waiting.0
            };
            let woken = Arc::clone(&self.woken);
            let waker = Waker::from(Arc::new(WakeOne { woken, number }));
            let poll = py.detach(|| read.as_mut().poll(&mut Context::from_waker(&waker)));
            if let Poll::Ready(ended) = poll {
                return finish(py, ended, handle.shown());
            }
            // If it was woken meanwhile, nothing is lost: this is the loop's thread, which calls `run` later.
            let pending = PendingRead {
                read,
                waker,
                future,
                shown: handle.shown().to_string(),
            };
            lock(&self.waiting).1.insert(number, pending);
            Ok(number.into_pyobject(py)?.into_any())
        })
    }

    /// Polls the woken reads and completes their futures. The loop calls it when the descriptor is readable.
    fn run(&self, py: Python<'_>) -> PyResult<()> {
        guarded(|| {
            let _ = rustix::io::read(&self.woken.bell, &mut [0_u8; 8]);
            let numbers = std::mem::take(&mut *lock(&self.woken.numbers));
            for number in numbers {
                let Some(mut one) = lock(&self.waiting).1.remove(&number) else {
                    continue;
                };
                let poll =
                    py.detach(|| one.read.as_mut().poll(&mut Context::from_waker(&one.waker)));
                let Poll::Ready(ended) = poll else {
                    lock(&self.waiting).1.insert(number, one);
                    continue;
                };
                let future = one.future.bind(py);
                // A cancelled future is already done.
                if future.call_method0("done")?.is_truthy()? {
                    continue;
                }
                match finish(py, ended, &one.shown) {
                    Ok(bytes) => future.call_method1("set_result", (bytes,))?,
                    Err(error) => future.call_method1("set_exception", (error,))?,
                };
            }
            Ok(())
        })
    }

    /// The number of pending reads.
    fn pending(&self) -> usize {
        lock(&self.waiting).1.len()
    }

    /// Cancels a read.
    fn forget(&self, py: Python<'_>, number: u64) {
        let gone = lock(&self.waiting).1.remove(&number);
        py.detach(|| drop(gone));
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        // Cancels the remaining reads of a closed loop, which takes the engine's lock.
        let left = std::mem::take(&mut *lock(&self.waiting));
        if !left.1.is_empty() {
            wait::drop_released(left);
        }
    }
}
